"""The result of `skew.check`, and its view in a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


@dataclass(frozen=True)
class PartRows:
    """One entry for each part, in the order of groups and of numbers within them; the columns of `SkewResult.table`."""

    group: list[str]
    part: list[str]
    count: NDArray[np.float64]
    expected: NDArray[np.float64]
    ratio: NDArray[np.float64]
    flag: list[str]


@dataclass(frozen=True)
class SkewResult:
    """Whether the parts of a plan are even.

    verdict        "even" | "skewed" | "missing abs()" | "looks like a missing abs()" | "too few to tell"
    p_value        how likely a fair hash is to be as uneven as this; None without a test
    chi_square     the statistic, summed over the groups; None without a test
    dof            its degrees of freedom; None without a test
    ratio          the heaviest part's count over what it should have; NaN without anything to compare
    heaviest       up to five parts that have most in excess: (name, count, ratio)
    parts, total   how many parts there are, and what they hold in all
    missing_share  share of what was listed that is in no part (below 0: there is more in the parts than was listed);
                   None if it is not known how much there is
    explanation    one or two sentences
    unit           what was counted: "files" | "bytes" | "records"
    rows           part, group, count and expected count: `.table` has them

        result = quire.skew.check({"part-0": 12, "part-1": 13})    # a quire.skew.SkewResult
        print(result.verdict, result.explanation)
        result.table().head(), result.as_dict()
    """

    verdict: str
    p_value: float | None
    chi_square: float | None
    dof: int | None
    ratio: float
    heaviest: tuple[tuple[str, float, float], ...]
    parts: int
    total: float
    missing_share: float | None
    explanation: str
    unit: str
    rows: PartRows = field(repr=False, compare=False)

    def table(self) -> pd.DataFrame:
        """Return one row for each part: group, part, count, expected, ratio, flag.

        flag is "heavy" or "light" where a part is more than a quarter off and not by chance, "doubled" for the first parts
        when abs() is missing, "few" where there are too few to say, else empty.
        """
        import pandas as pd  # here, because the command line checks without it

        return pd.DataFrame({column.name: getattr(self.rows, column.name) for column in fields(PartRows)})

    def as_dict(self) -> dict[str, Any]:
        """Return the result without the table, as JSON can hold it: NaN becomes None."""
        answer = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rows"}
        answer["ratio"] = None if np.isnan(self.ratio) else self.ratio
        answer["heaviest"] = [{"part": name, "count": count, "ratio": ratio} for name, count, ratio in self.heaviest]
        return answer

    def __repr__(self) -> str:
        return f"SkewResult({self.verdict}: {self.explanation})"

    def _repr_html_(self) -> str:
        test = "" if self.p_value is None else f"chi-square {self.chi_square:,.1f}, {self.dof:,} degrees of freedom, {chance(self.p_value)}"
        facts = [
            ("parts", f"{self.parts:,}"),
            ("in all", f"{self.total:,.0f}"),
            ("largest ratio to the share", "" if np.isnan(self.ratio) else f"{self.ratio:.2f}"),
            ("test", test),
            ("in no part", "" if self.missing_share is None else f"{self.missing_share:.1%}"),
        ]
        cell = 'style="text-align:left;padding:2px 12px 2px 0"'
        told = "".join(f"<tr><th {cell}>{name}</th><td {cell}>{html.escape(value)}</td></tr>" for name, value in facts if value)
        heavy = "".join(
            f"<tr><td {cell}>{html.escape(name)}</td><td {cell}>{count:,.0f}</td><td {cell}>{ratio:.2f}</td></tr>"
            for name, count, ratio in self.heaviest
        )
        head = f"<tr><th {cell}>part</th><th {cell}>count</th><th {cell}>times its share</th></tr>"
        colour = "--jp-success-color1, green" if self.verdict == "even" and not self.missing_share else "--jp-warn-color0, #b35900"
        return (
            '<div style="color:var(--jp-ui-font-color1, inherit);font-family:var(--jp-ui-font-family, sans-serif)">'
            f'<p><strong style="color:var({colour})">{html.escape(self.verdict)}</strong> {html.escape(self.explanation)}</p>'
            f"<table>{told}</table>" + (f"<table>{head}{heavy}</table>" if heavy else "") + "</div>"
        )


def chance(p: float) -> str:
    """Return a p-value as it is written: 'p = 0.042', 'p < 1e-300'."""
    return "p < 1e-300" if p < 1e-300 else f"p = {p:.2g}"
