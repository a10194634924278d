"""The lab's results: a row for each committer and fault, the guarantees that follow, and both as a table, a picture and JSON."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quire.committers.guarantees import BESIDE, FOUR, MARKS, WORDS, Guarantees
from quire.committers.lab.results import Results
from quire.errors import UsageError, choose, printable, scrub

if TYPE_CHECKING:
    import pandas as pd

HOW = ("measured", "read", "not run")


@dataclass(kw_only=True)
class Found:
    """The result of a fault; None: the fault does not ask for it."""

    files: int | None = None  # of the job
    rows: int | None = None
    early: int | None = None  # files visible before commitJob could begin
    partial: int | None = None  # files visible when the driver was stopped at the first one, or listings that showed a part
    partial_log: int | None = None  # the same of readers of the log
    left: int | None = None  # files visible after the job had failed, or had been killed
    remains: int | None = None  # its files that readers do not see, and uploads, then
    doubled: int | None = None  # rows that are there again, when all is over
    lost: int | None = None  # rows of jobs that said that all is well, and that are not there
    window_ms: float | None = None  # from the first file that a reader of the directory sees to the last
    window_log_ms: float | None = None
    jobs: int | None = 1  # that were started
    said: str = ""  # what the (last) job said: "" all is well


@dataclass
class Result(Found):
    """One committer and one fault. Counts that a fault does not ask for are None; times are in ms or s."""

    committer: str
    store: str  # "file", "s3a", "abfs": the kind of store, as Spark names it
    fault: str = ""  # none: of what was read
    guarantee: str = ""  # the one that the fault is about
    how: str = "measured"  # or "read" (not measured: `source` says where) | "not run" (`note` says why)
    _: KW_ONLY
    jobs: int | None = None
    seconds: float | None = None
    note: str = ""
    source: str = ""
    read: dict[str, bool | None] = field(default_factory=dict)  # of what was read: the guarantees


_NUMBERS = ("files", "rows", "early", "partial", "partial_log", "left", "remains", "doubled", "lost", "jobs")
_TIMES = ("window_ms", "window_log_ms", "seconds")
SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("committer", "store", "fault", "guarantee", "how")]
    + [("holds", pa.bool_())]
    + [(name, pa.int64()) for name in _NUMBERS]
    + [(name, pa.float64()) for name in _TIMES]
    + [(name, pa.string()) for name in ("said", "note", "source")]
)


_LOUD = ("zombie_restart",)  # where one of two jobs may say that it has failed


def holds(row: Result) -> bool | None:
    """A row's verdict on its guarantee; None: none."""
    if row.how != "measured":
        return None
    if row.guarantee == "hidden":
        return None if row.early is None else row.early == 0
    if row.guarantee == "visible":
        return False if row.partial else None  # not to have seen a part proves nothing
    if row.guarantee == "clean":
        return None if row.left is None else row.left == 0
    if row.said and row.guarantee in ("one_copy", "restart") and row.fault not in _LOUD:
        return False  # one that cannot do it again leaves no copy
    return None if row.doubled is None or row.lost is None else row.doubled == 0 and row.lost == 0


def _all(found: Iterable[bool | None]) -> bool | None:
    """False if one is, else True if one is."""
    known = [one for one in found if one is not None]
    return all(known) if known else None


def guarantees(rows: Sequence[Result]) -> Guarantees:
    """The verdict of all rows of one committer on one store."""
    measured = [row for row in rows if row.how == "measured"]
    if not measured:
        read = [row for row in rows if row.how == "read"]
        return Guarantees(**read[0].read) if read else Guarantees()
    by = {name: [holds(row) for row in measured if row.guarantee == name] for name in (*FOUR, *BESIDE)}
    by["hidden"] += [row.early == 0 for row in measured if row.early is not None]
    by["visible"] += [False for row in measured if row.partial and not row.early]
    by["clean"] += [row.left == 0 for row in measured if row.fault == "driver_in_job" and row.left is not None]
    log = [row.partial_log == 0 for row in measured if row.partial_log is not None]
    return Guarantees(**{name: _all(found) for name, found in by.items()}, visible_in_log=_all(log))


def _counted(row: Result, guarantee: str) -> list[tuple[float, str]]:
    """A row's counts against a guarantee: how bad they are, and words."""
    of = f" of {row.files:,}" if row.files and row.jobs == 1 else ""
    if guarantee == "hidden" and row.early:
        return [(row.early, f"{row.fault}: {row.early:,}{of} files early")]
    if guarantee == "visible" and row.fault == "driver_in_commit" and row.partial:
        return [(0, f"{row.fault}: {row.partial:,} files at the first look")]
    if guarantee == "visible" and row.guarantee == guarantee and row.window_ms is not None:
        took = f"{row.window_ms:,.0f} ms" if row.window_ms < 1000 else f"{row.window_ms / 1000:,.1f} s"
        return [(row.files or 0, f"{row.fault}: {took}, {row.files:,} files")]
    if guarantee == "clean" and row.left and row.fault in ("task_fails", "driver_in_job"):
        return [(row.left, f"{row.fault}: {row.left:,} files stay")]
    if row.guarantee == guarantee in ("one_copy", "restart", "concurrent"):
        failed = [(1.0, f"{row.fault}: the job fails")] if row.said and holds(row) is False and not row.doubled and not row.lost else []
        return failed + [(n, f"{row.fault}: {n:,} rows {what}") for n, what in ((row.doubled, "doubled"), (row.lost, "lost")) if n]
    return []


class Matrix(Results[Result]):
    """Committer × fault, and what follows for each guarantee.

    rows         a `Result` each
    made         the command, the machine, its load, the date and how long it took
    table        the rows as a pandas frame of fixed columns (`SCHEMA`); arrow: the same as an Arrow table
    guarantees   committer → `Guarantees`; where nothing could be measured, what was read
    """

    KIND, NAME, MAKER, EXAMPLE, ROW = "quire lab 1", "results", "quire.committers.lab.run()", "measured.json", Result

    # ------------------------------------------------------------------------------------------------------------ as tables
    @property
    def arrow(self) -> pa.Table:
        """A row for each committer and fault; see `Result`."""
        return pa.Table.from_pylist([{**asdict(row), "holds": holds(row)} for row in self.rows], schema=SCHEMA)

    @property
    def table(self) -> pd.DataFrame:
        """The same in pandas, where numbers that are not there are <NA>."""
        import pandas as pd

        kinds = {pa.string(): pd.StringDtype(), pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype(), pa.bool_(): pd.BooleanDtype()}
        found: pd.DataFrame = self.arrow.to_pandas(types_mapper=kinds.get)
        return found

    @property
    def marks(self) -> pd.DataFrame:
        """A row for each committer and guarantee: holds (<NA>: not known), why (the counts behind it), how (as of a `Result`)."""
        import pandas as pd

        rows = [
            (name, key, found.as_dict()[key], self.why(name, key), self.how(name))
            for name, found in self.guarantees.items() for key in (*FOUR, *BESIDE)
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["committer", "guarantee", "holds", "why", "how"]).astype({"holds": "boolean"})

    @property
    def windows(self) -> pd.DataFrame:
        """How long readers saw a part: committer, store, files, seconds; those of readers of the log have `(log)` behind the name."""
        import pandas as pd

        rows = list[tuple[str, str, int, float]]()
        for row in self.rows:
            if row.fault.startswith("window_") and row.files and row.how == "measured":
                for name, took in ((row.committer, row.window_ms), (f"{row.committer} (log)", row.window_log_ms)):
                    rows += [] if took is None else [(name, row.store, row.files, took / 1000)]
        return pd.DataFrame(rows, columns=["committer", "store", "files", "seconds"])

    @property
    def committers(self) -> list[str]:
        """Their names, in the order of the rows."""
        return list(dict.fromkeys(row.committer for row in self.rows))

    @property
    def guarantees(self) -> dict[str, Guarantees]:
        """The verdicts on each committer; if it was tried on several stores, those that hold on all of them."""
        return {name: guarantees(self.of(name)) for name in self.committers}

    def on(self, store: str) -> Matrix:
        """The measurements on one kind of store: "file", "s3a", "abfs"."""
        measured = [row for row in self.rows if row.how != "read"]
        choose(store, list(dict.fromkeys(row.store for row in measured)), "store")
        return Matrix([row for row in measured if row.store == store], self.made)

    def of(self, committer: str) -> list[Result]:
        """The rows of a committer."""
        found = [row for row in self.rows if row.committer == committer]
        if not found:
            raise UsageError(f"the matrix has no committer {scrub(committer)!r}: it has {', '.join(self.committers)}.")
        return found

    def row(self, committer: str, fault: str, store: str | None = None) -> Result:
        """One of them: where it was tried on several stores, the first."""
        found = [row for row in self.of(committer) if row.fault == fault and store in (None, row.store)]
        if not found:
            raise UsageError(
                f"the matrix has no fault {scrub(fault)!r} of {committer}: it has {', '.join(r.fault for r in self.of(committer))}."
            )
        return found[0]

    def how(self, committer: str) -> str:
        """Whether anything of it was measured here, or read, or neither."""
        there = {row.how for row in self.of(committer)}
        return next(one for one in HOW if one in there)

    # ------------------------------------------------------------------------------------------------------- as text, as pictures
    def __str__(self) -> str:
        names = [*FOUR, *BESIDE]
        wide = max([len(name) for name in self.committers] + [9])
        lines = [f"{'committer':<{wide}}  " + "  ".join(f"{name:<10}" for name in names) + "  how"]
        for name, found in self.guarantees.items():
            marks = found.as_dict()
            lines.append(f"{name:<{wide}}  " + "  ".join(f"{MARKS[marks[key]]:<10}" for key in names) + f"  {self.how(name)}")
        return "\n".join([*lines, *(f"{key}: {WORDS[key]}" for key in names), *self._notes()])

    __repr__ = __str__

    def _notes(self) -> list[str]:
        notes = list(dict.fromkeys(f"{row.committer} {row.fault}: {row.note}" for row in self.rows if row.how == "not run"))
        notes += [f"{row.committer}: read, not measured. {row.source}" for row in self.rows if row.how == "read"]
        return [printable(note) for note in notes]

    def _repr_html_(self) -> str:
        names = [*FOUR, *BESIDE]
        head = "".join(f'<th title="{html.escape(WORDS[name])}" style="text-align:center">{name}</th>' for name in names)
        body = ""
        for name, found in self.guarantees.items():
            marks = found.as_dict()
            cells = "".join(
                f'<td style="text-align:center" title="{html.escape(self.why(name, key), quote=True)}">{MARKS[marks[key]]}</td>'
                for key in names
            )
            body += f'<tr><th style="text-align:left">{html.escape(name)}</th>{cells}<td>{html.escape(self.how(name))}</td></tr>'
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self._notes())
        tail = f"<details><summary>not measured</summary><ul>{notes}</ul></details>" if notes else ""
        return (
            '<div class="quire" style="color: var(--jp-ui-font-color1, inherit)"><strong>committers × guarantees</strong>'
            f"<table><tr><th></th>{head}<th>how</th></tr>{body}</table>{tail}</div>"
        )

    def why(self, committer: str, guarantee: str) -> str:
        """The counts behind a mark, in words: the worst first."""
        rows = [row for row in self.of(committer) if row.how == "measured"]
        several = len({row.store for row in rows}) > 1
        found = [(bad, text, row.store) for row in rows for bad, text in _counted(row, guarantee)]
        worst = sorted(found, key=lambda one: -one[0])
        return "; ".join(text.replace(":", f" on {store}:", 1) if several else text for _, text, store in worst)

    def plot(self, what: str = "guarantees", store: str | None = None) -> Any:
        """Draw it (`quire.plots.Picture`): "guarantees", or "windows", how long readers saw a part of 10, 100, 1,000 files.

        `store`: of what was tried on one kind of store alone, such as "s3a"; left out: all, and of windows the first kind's.
        """
        from quire import plots

        drawn = choose(what, ("guarantees", "windows"), "picture")
        stores = list(dict.fromkeys(row.store for row in self.rows if row.how == "measured"))
        if drawn == "windows" and store is None:
            store = next(iter(stores), None)
        of = self if store is None else self.on(store)
        return plots.guarantees(of.marks) if drawn == "guarantees" else plots.windows(of.windows)

    def check(self) -> None:
        """Results of another making may say what nobody here can show."""
        if strange := [row.how for row in self.rows if row.how not in HOW]:
            raise ValueError(f"{strange[0]!r} is none of {', '.join(HOW)}")
        _ = self.arrow, self.guarantees

    def merged(self, other: Matrix) -> Matrix:
        """Both; of what both have tried on one store, the other's."""
        theirs = {(row.committer, row.store, row.fault) for row in other.rows}
        kept = [row for row in self.rows if (row.committer, row.store, row.fault) not in theirs]
        return Matrix([*kept, *other.rows], {**self.made, **other.made})
