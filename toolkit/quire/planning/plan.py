"""From a source to a plan: list on the runner, pack on the driver, refuse what is incomplete, write which task reads what."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from quire import skew
from quire.commit import names
from quire.commit.log import Log
from quire.coverage.fold import Fold, fold
from quire.coverage.near import Near
from quire.errors import QuireError
from quire.planning import offsets, pack, undone
from quire.planning.among import Among
from quire.planning.changes import Policy
from quire.planning.columns import Columns
from quire.planning.listing import EXAMPLES, TOLD, Cut, Listed, Listing, TaskRun, Written, list_piece
from quire.planning.offsets import Offsets
from quire.planning.pieces import Piece, pieces
from quire.planning.rewriting import live_files, rewriting
from quire.progress import Progress
from quire.sources.files import Root, Selection
from quire.sources.transforms import schemas
from quire.spark.collector import without_collector
from quire.spark.runner import Failure, LocalRunner, Runner
from quire.storage import Entry, Store

MOST_PARTS = 2_000_000


@dataclass(frozen=True)
class Wanted:
    """The wish of a call, whatever the state of the destination."""

    roots: tuple[Root, ...]
    selection: Selection
    cut: Cut
    dest: str
    dest_options: Any = field(repr=False)
    estimate: Callable[..., int] | None
    ratio: float | None  # bytes written for a byte read, where that is known beforehand
    policy: Policy = field(default_factory=Policy)  # for files that were gathered in another version
    offsets: Offsets | None = None  # of Kafka, in the place of files
    columns: Columns | None = None  # of files that hold rows
    among: Among | None = None  # names that are looked at, where the roots are not listed
    near: Near = field(default_factory=Near, repr=False, compare=False)  # rows of the ledger that the call holds


@dataclass(frozen=True)
class Planned:
    """A plan that is written, and not yet frozen."""

    job: str
    base: int
    plan: str
    tasks: list[pack.PlannedTask]
    listed: Listed
    ratio: float
    cut: Cut

    @property
    def spread(self) -> bool:
        """Whether there are more tasks than the target size asks for, so that no core stands idle."""
        wanted = sum(t.bytes for t in self.tasks) * self.ratio / (self.cut.target * pack.HEADROOM)
        many = self.listed.new >= self.cut.many * len(self.tasks)
        return many and self.cut.planner == "balanced" and len(self.tasks) > max(1, math.ceil(wanted))

    def skew(self) -> skew.SkewResult:
        """Hash plans by files within each directory, other plans by bytes."""
        rows = [(t.folder, t.part, t.files, t.bytes) for t in self.tasks if t.runs]
        return evenness(rows, self.cut.planner, self.cut.parts, self.cut.target / max(self.ratio, 0.001), self.listed.written.splits)


def evenness(tasks: Iterable[tuple[str, int, int, int]], planner: str, parts: int, budget: float, listed: int | None) -> skew.SkewResult:
    """Whether tasks (directory, part, files, bytes) are even.

    Hash plans by files within each directory. Balanced plans by bytes against what a task may hold, as the last one of a
    directory may well be light; directory plans by bytes against their mean.
    """
    tasks = list(tasks)
    if planner == "hash":
        counts = {(folder, part): files for folder, part, files, _ in tasks}
        folders = sorted({t[0] for t in tasks})
        # Empty parts count too, but for so many that only a forged entry can mean them.
        every = [(folder, part) for folder in folders for part in range(parts)] if len(folders) * parts <= MOST_PARTS else sorted(counts)
        groups = {f"{folder or '.'}#{part}": folder or "." for folder, part in every}
        return skew.check({name: counts.get(key, 0) for name, key in zip(groups, every, strict=True)}, groups, listed=listed)
    sizes = {f"{i} {folder}".rstrip(): size for i, (folder, _, _, size) in enumerate(tasks)}
    mean = sum(sizes.values()) / max(1, len(sizes))
    return skew.check(sizes, expected=max(mean, budget) if planner == "balanced" and sizes else None, unit="bytes")


@dataclass(frozen=True)
class Look:
    """The means of a kind of input to list what is there and take out what is done: the plan that is made, of which job, from which log."""

    runner: Runner
    log: Log
    base: int
    job: str
    plan: str
    wanted: Wanted
    progress: Progress

    @property
    def fold(self) -> Fold:
        """The ledger that the plan rests on."""
        return fold(self.log, self.base)


Lister = Callable[[Look], tuple[Listed, float]]  # writes the rows of the plan; with bytes written for a byte read


def make(lister: Lister, runner: Runner, log: Log, base: int, job: str, wanted: Wanted, progress: Progress) -> Planned:
    """List, anti-join with the ledger at `base`, pack and write the plan (with no tasks: there is nothing to do, and nothing is written).

    Only objects in names of this plan's own are written; whoever puts plan.entry decides whether they count.
    """
    look = Look(runner, log, base, job, names.new_id(), wanted, progress)
    try:
        return _make(look, *lister(look))
    except BaseException:  # an interrupt too
        with suppress(QuireError):  # what goes wrong now is not what the user should hear of
            discard(log.store, job, look.plan)
        raise


def _make(look: Look, listed: Listed, ratio: float) -> Planned:
    wanted, store, written = look.wanted, look.log.store, listed.written
    runs, accounts = [TaskRun(**run) for run in listed.written.runs], [root.account for root in wanted.roots]
    tasks = pack.pack(runs, wanted.cut, ratio, accounts, look.runner.parallelism)
    planned = Planned(look.job, look.base, look.plan, tasks, listed, ratio, wanted.cut)
    if not written.splits:
        return planned
    pack.check_complete(tasks, written.splits, written.bytes, wanted.cut)
    tasks.extend(rewriting(written.drops, live_files(look.log, look.base), wanted.cut.target) if written.drops else ())
    pack.write_head(store, names.plan_parquet(look.job, look.plan), tasks)
    return planned


def listing_of(wanted: Wanted, fold: Fold, job: str = "", plan: str = "") -> Listing:
    """All that the tasks need to list, or to look up, what a call wants."""
    return Listing(
        wanted.dest, wanted.dest_options, job, plan, wanted.roots, wanted.selection, fold, wanted.cut, wanted.estimate, wanted.policy,
        columns=wanted.columns, whole=wanted.among is None,
    )  # fmt: skip


def unsettled(runner: Runner, log: Log, wanted: Wanted) -> tuple[set[tuple[int, str]], int]:
    """Among the names that a call looks at, those of which anything is left to do, by what the log says now: (root's number, name).

    And how many of them are not there. A file that the call has looked at is not looked up again: whatever befell it since has an event
    of its own.
    """
    assert wanted.among is not None
    found = wanted.among.pieces(again=False)
    listing = listing_of(wanted, fold(log, log.settled_version()))
    left, missing = set[tuple[int, str]](), 0
    outcomes = _near(runner, found).run(functools.partial(_unsettled, listing), found) if found else []
    for piece, outcome in zip(found, outcomes, strict=True):
        if isinstance(outcome, Failure):
            raise outcome.kind_of_error(f"a look at what events have named failed: {str(outcome).rstrip('.')}. Nothing was changed.")
        left.update((piece.root, name) for name in outcome["left"])
        missing += outcome["missing"]
    return left, missing


def _near(runner: Runner, found: Sequence[Piece]) -> Runner:
    """Some names are looked up here, sooner than elsewhere a task has begun."""
    return LocalRunner() if len(found) == 1 and found[0].names else runner


def _unsettled(listing: Listing, piece: Piece) -> dict[str, Any]:
    with without_collector():
        left, missing = undone.unsettled(listing, piece)
        return {"left": left, "missing": missing}


def list_files(look: Look) -> tuple[Listed, float]:
    """The files of a source that are not done, listed by tasks."""
    wanted, progress = look.wanted, look.progress
    listing = listing_of(wanted, wanted.near.of(look.fold, look.log), look.job, look.plan)
    every = bool(listing.fold.sources)
    with progress.phase("listing", unit="dir") as bar:
        found = list[Piece]()
        cut = pieces(wanted.roots, wanted.selection, look.runner.parallelism, progress.again, every=every)
        for piece in cut if wanted.among is None else wanted.among.pieces():
            found.append(piece)
            bar.update(1)
    with progress.phase("planning", total=len(found), unit="dir") as bar:
        listed = _merge(_near(look.runner, found), listing, found, lambda: bar.update(0)) if found else Listed()
        bar.to(len(found), retries=listed.retries)
    written = listed.written
    if wanted.among is not None:
        wanted.among.first = wanted.among.first or listed
        wanted.among.saw(listed.differing.looks)
    if listed.new:
        freeze_columns(look, written)
    ratio = wanted.ratio if wanted.ratio is not None else written.sampled_out / written.sampled if written.sampled else 1.0
    return listed, ratio


def freeze_columns(look: Look, written: Written) -> None:
    """Write the columns of files that hold rows, as they were seen when these were listed, to the plan."""
    if look.wanted.columns:
        frozen = look.wanted.columns.freeze(look.log.store, look.log.at(look.base), look.job, look.plan, written.schemas)
        written.columns = "" if frozen is None else schemas.text(frozen)


def list_offsets(look: Look) -> tuple[Listed, float]:
    """The offsets of topics that are not done."""
    wanted = look.wanted.offsets
    assert wanted is not None
    with look.progress.phase("listing", total=len(wanted.ends), unit="partition") as bar:
        found = offsets.listed(wanted, look.fold, look.log.store, look.wanted.cut, look.job, look.plan, look.progress.again)
        bar.to(len(wanted.ends))
    return found


def discard(store: Store, job: str, plan: str) -> None:
    """Delete a plan that nobody has frozen: its names are its own, so nothing can refer to them."""
    own = names.plan_parquet(job, plan).removesuffix(names.ROWS)
    for found in list(store.scan(names.job_folder(job))):
        if isinstance(found, Entry) and found.name.startswith(own):
            store.remove(found.name)


def _merge(runner: Runner, listing: Listing, found: list[Piece], watch: Callable[[], None]) -> Listed:
    # Each of very many pieces tells a few names, since the driver holds what all of them have brought.
    listing = replace(listing, examples=min(EXAMPLES, max(1, TOLD // max(1, len(found)))))
    work = functools.partial(_list, listing)
    items = list(enumerate(found))
    n = min(len(items), max(1, 2 * runner.parallelism))
    groups = [list(range(len(items) * i // n, len(items) * (i + 1) // n)) for i in range(n)]
    total = Listed()
    for outcome in runner.run(work, items, groups=groups, watch=watch):
        if isinstance(outcome, Failure):
            raise outcome.kind_of_error(f"listing failed: {str(outcome).rstrip('.')}. Nothing was changed; call again when that is mended.")
        total.add(outcome)
    return total


def _list(listing: Listing, item: tuple[int, Piece]) -> dict[str, Any]:
    with without_collector():
        return list_piece(listing, *item)
