"""Is a plan even? `check` tells a fair hash from a skewed one, and knows the signature of a missing abs().

The small-files article (SmallFilesMerge) gives each task the files for which ABS(Hash(fileName) % N) is its number, and tells
how the ABS was missing at first: the first part was always about twice as big as any other. The reason: Java's remainder has
the sign of the hash, so there are 2N-1 remainders. 0 comes from both sides and has a share of 1/N of the files; each other
one has 1/2N, and the N-1 negative ones, with (N-1)/2N of all files, belong to no task. The visible sign is part 0 at twice
the others; in fact nearly half of the files are lost. A chi-square test sees the first, only a count of the listed
files sees the second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quire.errors import choose
from quire.skew.chi_square import survival
from quire.skew.parts import Parts, read_parts
from quire.skew.result import PartRows, SkewResult, chance

if TYPE_CHECKING:
    import pandas as pd

_RARE = 0.001  # a p-value below it is not chance
_UNEVEN = 1.25  # a heaviest part below this ratio costs a job less than its start
_FEWEST = 5  # files that each part should have, for the chi-square test to hold (Cochran's rule)
_DOUBLE = (1.6, 2.5)  # "about twice"
_NEAR = 0.2  # how far, relatively, the missing share may be from (N-1)/2N
_BY_ITSELF = 4.0  # standard deviations from which a single part stands out

_Floats = NDArray[np.float64]


def check(
    counts: Iterable[float] | Mapping[Any, float] | pd.Series[Any],
    groups: Iterable[Any] | Mapping[Any, Any] | pd.Series[Any] | None = None,
    expected: float | Iterable[float] | Mapping[Any, float] | pd.Series[Any] | None = None,
    *,
    listed: float | Mapping[Any, float] | pd.Series[Any] | None = None,
    unit: str = "files",
) -> SkewResult:
    """Return whether the parts of a plan are even, and if not, whether a missing abs() is the reason.

        quire.skew.check([12, 13, 11]).verdict

    counts    files (or bytes, or records) of each part: a sequence, name -> count, or a Series. Parts without files belong into it, as 0.
              Part 0 is the one whose name is, or ends with, the lowest number; else the first.
    groups    the group, for example the directory, of each part, in the same order or under the same names: parts are
              compared within their group only, and the chi-square statistics and degrees of freedom are summed. Groups with
              fewer than 5 files a part are added up first, part by part, with others of as many parts.
    expected  what a part should have: one number, or one for each part; default: the mean of its group. Files are compared
              with it in proportion, so that only the evenness counts; bytes are compared with it as it is.
    listed    how many files (or bytes) there are in all, or group -> how many: only then is it known whether any are in no
              part. For files the sum of `expected` stands in for it.
    unit      "files" | "bytes" | "records". Bytes come by the file, and records by their keys, not one by one, so no chi-square test
              holds for them: the verdict goes by the ratio alone. Check hash plans by files, within each directory; balanced
              plans by bytes.

    The verdict is "skewed" if p < 0.001 and the heaviest part has more than 1.25 times its share. It is "missing abs()" if
    part 0 has about twice the median of the others, these are even, and about (N-1)/2N of what was listed is in no part;
    "looks like a missing abs()" if it is not known what was listed; "too few to tell" if the test cannot hold.
    Raises UsageError for counts that are negative or no numbers, and for arguments that do not fit together.
    """
    in_files = choose(unit, ("files", "bytes", "records"), "unit") == "files"
    parts = read_parts(counts, groups, expected, listed)
    fair = _fair(parts, in_files)
    blocks = _blocks(parts, fair) if in_files else _groups(parts, fair)
    evenness = _evenness(blocks, in_files)
    known = parts.listed
    if known is None and in_files and parts.expected is not None:
        known = float(parts.expected.sum())
    signature = None if unit == "records" else _signature(blocks, in_files)  # no part of a topic is missing
    found = _Numbers(unit, parts, blocks, evenness, signature, known)
    verdict = _verdict(found)
    rows = _rows(found, fair, doubled=verdict.endswith("missing abs()"))
    return SkewResult(
        verdict=verdict,
        p_value=evenness.p,
        chi_square=evenness.chi_square,
        dof=evenness.dof,
        ratio=evenness.ratio if blocks else _largest(rows.ratio),
        heaviest=_heaviest(rows, in_files),
        parts=len(parts.names),
        total=found.total,
        missing_share=found.missing,
        explanation=_explain(verdict, found, rows),
        unit=unit,
        rows=rows,
    )


@dataclass(frozen=True)
class _Block:
    """Parts that are compared with each other: a group, or small groups added up. `members` are their groups' numbers."""

    name: str
    counts: _Floats
    expected: _Floats
    members: tuple[int, ...]

    def chi_square(self) -> float:
        return float((((self.counts - self.expected) ** 2) / self.expected).sum())

    def p(self) -> float:
        return survival(self.chi_square(), len(self.counts) - 1)

    def ratios(self) -> _Floats:
        return self.counts / self.expected

    def others(self) -> _Block:
        """Return the block without part 0."""
        counts, expected = self.counts[1:], self.expected[1:]
        return _Block(self.name, counts, expected * (counts.sum() / expected.sum()), self.members)


@dataclass(frozen=True)
class _Evenness:
    chi_square: float | None
    dof: int | None
    p: float | None
    ratio: float

    def skewed(self) -> bool:
        return self.ratio > _UNEVEN and (self.p is None or self.p < _RARE)


@dataclass(frozen=True)
class _Numbers:
    """The numbers behind the verdict and its explanation."""

    unit: str
    parts: Parts
    blocks: list[_Block]
    evenness: _Evenness
    signature: float | None
    known: float | None

    @property
    def in_files(self) -> bool:
        return self.unit == "files"

    @property
    def total(self) -> float:
        return float(self.parts.counts.sum())

    @property
    def missing(self) -> float | None:
        return 1 - self.total / self.known if self.known else None


def _fair(parts: Parts, in_files: bool) -> _Floats:
    """Return what each part should have; for files the groups' sums are those of the counts."""
    weights = np.ones(len(parts.names)) if parts.expected is None else parts.expected
    if parts.expected is not None and not in_files:
        return weights
    sums = np.bincount(parts.group, weights=parts.counts, minlength=len(parts.groups))
    scale = np.bincount(parts.group, weights=weights, minlength=len(parts.groups))
    return weights * (sums / np.maximum(scale, math.ulp(0.0)))[parts.group]


def _groups(parts: Parts, fair: _Floats) -> list[_Block]:
    """Return the groups in which there is something to compare."""
    found = []
    for number, place in enumerate(parts.of_groups()):
        counts = parts.counts[place]
        if len(counts) > 1 and counts.any():
            found.append(_Block(parts.groups[number], counts, fair[place], (number,)))
    return found


def _blocks(parts: Parts, fair: _Floats) -> list[_Block]:
    """Return what the chi-square test may be used on: large groups, and small ones added up."""
    large, small = [], dict[int, list[_Block]]()
    for block in _groups(parts, fair):
        if block.expected.min() >= _FEWEST:
            large.append(block)
        else:
            small.setdefault(len(block.counts), []).append(block)
    pooled = (_add_up(blocks) for blocks in small.values())
    return large + [block for block in pooled if block.expected.min() >= _FEWEST]


def _add_up(blocks: list[_Block]) -> _Block:
    counts = np.sum([block.counts for block in blocks], axis=0)
    expected = np.sum([block.expected for block in blocks], axis=0)
    return _Block(f"{len(blocks)} groups together", counts, expected, tuple(number for block in blocks for number in block.members))


def _evenness(blocks: list[_Block], in_files: bool) -> _Evenness:
    if not blocks:
        return _Evenness(None, None, None, math.nan)
    if not in_files:
        return _Evenness(None, None, None, max(float(block.ratios().max()) for block in blocks))
    chi_square = math.fsum(block.chi_square() for block in blocks)
    dof = sum(len(block.counts) - 1 for block in blocks)
    # Of many groups a small one has a heavy part by chance. Only those that are uneven by themselves tell how heavy, and
    # all together, since the same small excess in each group may show in none of them.
    by_length: dict[int, list[_Block]] = {}
    for block in blocks:
        by_length.setdefault(len(block.counts), []).append(block)
    together = [_add_up(alike) for alike in by_length.values() if len(alike) > 1]
    telling = [block for block in blocks + together if block.p() < _RARE] or blocks
    ratio = max(float(block.ratios().max()) for block in telling)
    return _Evenness(chi_square, dof, survival(chi_square, dof), ratio)


# --- a missing abs() ---


def _signature(blocks: list[_Block], in_files: bool) -> float | None:
    """Return part 0 over the median of the others, if it is about twice as large, not by chance, and the others are even."""
    if not blocks:
        return None
    means = [float(block.expected.mean()) for block in blocks]
    first = math.fsum(float(block.ratios()[0]) * mean for block, mean in zip(blocks, means, strict=True))
    others = math.fsum(float(np.median(block.ratios()[1:])) * mean for block, mean in zip(blocks, means, strict=True))
    if others <= 0 or not _DOUBLE[0] <= first / others <= _DOUBLE[1]:
        return None
    rest = [block.others() for block in blocks if len(block.counts) > 2 and block.counts[1:].any()]
    if rest and _evenness(rest, in_files).skewed():
        return None
    if in_files:
        seen = math.fsum(float(block.counts[0]) for block in blocks)
        fair = math.fsum(float(block.expected[0]) for block in blocks)
        spread = math.fsum(float(block.expected[0] * (1 - block.expected[0] / block.expected.sum())) for block in blocks)
        if survival((seen - fair) ** 2 / spread, 1) >= _RARE / 10:
            return None
    return first / others


def _predicted_missing(parts: Parts) -> float:
    """Return the share that is in no part if abs() is missing: (N-1)/2N, over groups of different N by their files."""
    assigned = [float(parts.counts[place].sum()) for place in parts.of_groups()]
    lengths = [place.stop - place.start for place in parts.of_groups()]
    there = math.fsum(a * 2 * n / (n + 1) for a, n in zip(assigned, lengths, strict=True))
    return 1 - math.fsum(assigned) / there if there else 0.0


def _verdict(found: _Numbers) -> str:
    if found.signature is not None:
        if found.missing is None:
            return "looks like a missing abs()"
        predicted = _predicted_missing(found.parts)
        if abs(found.missing - predicted) <= _NEAR * predicted:
            return "missing abs()"
    if not found.blocks:
        return "too few to tell"
    return "skewed" if found.evenness.skewed() else "even"


# --- what is told ---


def _rows(found: _Numbers, fair: _Floats, doubled: bool) -> PartRows:
    parts, in_files = found.parts, found.in_files
    ratio = np.divide(parts.counts, fair, out=np.full(len(fair), math.nan), where=fair > 0)
    alone = {block.members[0] for block in found.blocks if len(block.members) == 1}
    first = {place.start for place in parts.of_groups()}
    deviation = _deviation(parts.counts, fair)
    flags = []
    for i, group in enumerate(parts.group.tolist()):
        tested = group in alone
        stands_out = tested and (not in_files or abs(deviation[i]) > _BY_ITSELF)
        if doubled and i in first and ratio[i] > 1:
            flags.append("doubled")
        elif stands_out and ratio[i] > _UNEVEN:
            flags.append("heavy")
        elif stands_out and ratio[i] < 2 - _UNEVEN:
            flags.append("light")
        else:
            flags.append("" if tested else "few")
    groups = [parts.groups[number] for number in parts.group.tolist()]
    return PartRows(groups, parts.names, parts.counts, fair, ratio, flags)


def _deviation(counts: _Floats, fair: _Floats) -> _Floats:
    return np.divide(counts - fair, np.sqrt(fair), out=np.zeros(len(fair)), where=fair > 0)


def _heaviest(rows: PartRows, in_files: bool) -> tuple[tuple[str, float, float], ...]:
    weight = _deviation(rows.count, rows.expected) if in_files else rows.count
    order = np.argsort(-weight, kind="stable")[:5].tolist()
    return tuple((rows.part[i], float(rows.count[i]), float(rows.ratio[i])) for i in order if rows.count[i] > 0)


def _largest(ratios: _Floats) -> float:
    known = ratios[~np.isnan(ratios)]
    return float(known.max()) if len(known) else math.nan


def _explain(verdict: str, found: _Numbers, rows: PartRows) -> str:
    evenness, unit = found.evenness, found.unit
    test = (
        f" (chi-square {evenness.chi_square:,.1f}, {evenness.dof:,} degrees of freedom, {chance(evenness.p)})"
        if evenness.p is not None
        else ""
    )
    if verdict == "missing abs()":
        return (
            f"Part 0 has {found.signature:.2f} times what the others have, and {found.missing:.1%} of the {unit} are in no part: "
            "hash % N without abs() does that, as no task reads the negative remainders."
        )
    if verdict == "looks like a missing abs()":
        return (
            f"Part 0 has {found.signature:.2f} times what the others have, as hash % N without abs() gives it. If that is the reason, "
            f"about {_predicted_missing(found.parts):.1%} of the {unit} are in no part: say how many were listed (listed=) to be sure."
        )
    if verdict == "too few to tell":
        return _too_few(found.parts, unit) + _incomplete(found)
    share = f"{evenness.ratio:.2f} times its share of the {unit}"
    if verdict == "skewed":
        sure = f", and that is not chance{test}" if test else ""
        return f"The heaviest part has {share}{sure}. Most in excess: {_heaviest(rows, found.in_files)[0][0]!r}." + _incomplete(found)
    if evenness.ratio < 1:  # of a fixed expectation: as of tasks, none of which is full
        most = f"None of {len(rows.part):,} parts has more than {evenness.ratio:.2f} of what was expected of it."
        return most + _odd_one_out(found) + _incomplete(found)
    by_chance = ", as chance has it" if evenness.ratio > _UNEVEN else ""
    return f"The heaviest of {len(rows.part):,} parts has {share}{by_chance}{test}.{_odd_one_out(found)}{_incomplete(found)}"


def _too_few(parts: Parts, unit: str) -> str:
    if not parts.names:
        return "The plan has no parts."
    if not parts.counts.any():
        return f"The parts hold no {unit}."
    if max(place.stop - place.start for place in parts.of_groups()) < 2:
        return "There is one part" + (" in each group" if parts.groups != [""] else "") + ": nothing to compare it with."
    return f"A part should have at least {_FEWEST} {unit} for chance to be told from skew, and these have fewer."


def _odd_one_out(found: _Numbers) -> str:
    if len(found.blocks) > 1 and found.in_files:
        worst = min(found.blocks, key=_Block.p)
        if worst.p() * len(found.blocks) < _RARE and worst.ratios().max() > _UNEVEN:
            return f" But {worst.name!r} is uneven by itself: {worst.ratios().max():.2f} times its share, {chance(worst.p())}."
    return ""


def _incomplete(found: _Numbers) -> str:
    known, total = found.known, found.total
    if known is None or math.isclose(total, known, rel_tol=1e-9, abs_tol=0.5):
        return ""
    if found.parts.listed is None:
        return f" Expected were {known:,.0f} {found.unit} in all, and there are {total:,.0f}."
    if total > known:
        return f" There are {total - known:,.0f} more {found.unit} in the parts than were listed: counted twice, or listed earlier."
    lost = f" In no part: {known - total:,.0f} of {known:,.0f} {found.unit}"
    predicted = _predicted_missing(found.parts)
    alike = total > 0 and predicted > 0 and abs(1 - total / known - predicted) <= _NEAR * predicted
    return lost + (", about as many as hash % N without abs() loses." if alike else ".")
