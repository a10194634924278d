"""From a source to a plan: list on the runner, pack on the driver, refuse what is incomplete, write which task reads what."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from quire.commit import names
from quire.commit.log import Log
from quire.coverage.fold import fold
from quire.errors import QuireError, RefusedError
from quire.planning import pack, skew
from quire.planning.listing import EXAMPLES, Cut, Listed, Listing, Piece, Run, list_piece, pieces
from quire.progress import Progress
from quire.runner import Failure, Runner
from quire.sources.files import Root, Selection
from quire.storage import Store


@dataclass(frozen=True)
class Wanted:
    """What to plan, whatever the state of the destination."""

    roots: tuple[Root, ...]
    selection: Selection
    cut: Cut
    dest: str
    dest_options: Any
    estimate: Callable[..., int] | None
    ratio: float | None  # bytes written for a byte read, where that is known beforehand


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

    def skew(self) -> skew.SkewResult:
        """Hash plans by files within each directory, other plans by bytes."""
        return plan_skew(self.tasks, self.cut, self.listed.splits, self.ratio)


def plan_skew(tasks: list[pack.PlannedTask], cut: Cut, listed: int, ratio: float) -> skew.SkewResult:
    """Whether a plan is even."""
    if cut.planner == "hash":
        counts = {(t.folder, t.part): t.files for t in tasks}
        folders = sorted({t.folder for t in tasks})
        every = [(folder, part) for folder in folders for part in range(cut.parts)]
        labels = {key: f"{key[0] or '.'}#{key[1]}" for key in every}
        named = {labels[key]: counts.get(key, 0) for key in every}
        return skew.check(named, {labels[key]: key[0] or "." for key in every}, listed=listed)
    sizes = {(f"{t.folder}#" if cut.by_folder else "") + str(i): t.bytes for i, t in enumerate(tasks)}
    expected = None
    if cut.planner == "balanced":
        # The last task of a directory may be light; only one that is too heavy is wrong.
        expected = max(max(sizes.values(), default=0) if len(sizes) == 1 else 0, sum(sizes.values()) / max(1, len(sizes)))
    return skew.check(sizes, expected=expected, unit="bytes")


def make(runner: Runner, store: Store, log: Log, base: int, job: str, wanted: Wanted, progress: Progress) -> Planned | None:
    """List, anti-join with the ledger at `base`, pack and write the plan; None: there is nothing to do.

    Only objects in names of this plan's own are written; whoever puts plan.json decides whether they count.
    """
    plan = names.new_id()
    listing = Listing(
        wanted.dest, wanted.dest_options, job, plan, wanted.roots, wanted.selection, fold(log, base), wanted.cut, wanted.estimate
    )  # fmt: skip
    with progress.phase("listing", unit="dir") as bar:
        found = list[Piece]()
        for piece in pieces(wanted.roots, wanted.selection, runner.parallelism):
            found.append(piece)
            bar.update(1)
    with progress.phase("planning", total=len(found), unit="dir") as bar:
        listed = _merge(runner, listing, found)
        bar.update(len(found))
    runs = [Run(**run) for run in listed.runs]
    ratio = wanted.ratio if wanted.ratio is not None else listed.sampled_out / listed.sampled if listed.sampled else 1.0
    planned = Planned(job, base, plan, pack.pack(runs, wanted.cut, ratio), listed, ratio, wanted.cut)
    if not listed.splits:
        return planned
    try:
        pack.check_complete(planned.tasks, listed.splits, listed.split_bytes, wanted.cut)
    except RefusedError:
        discard(store, planned)
        raise
    pack.write_head(store, names.plan_parquet(job, plan), planned.tasks)
    return planned


def discard(store: Store, planned: Planned) -> None:
    """Delete a plan that nobody has frozen: its names are its own, so nothing can refer to them."""
    for run in planned.listed.runs:
        store.remove(run["object"])
    store.remove(names.plan_parquet(planned.job, planned.plan))
    if not any(True for _ in store.walk(names.job_folder(planned.job))):
        store.remove_tree(names.job_folder(planned.job))


def _merge(runner: Runner, listing: Listing, found: list[Piece]) -> Listed:
    work = functools.partial(_list, listing)
    items = list(enumerate(found))
    n = min(len(items), max(1, 2 * runner.parallelism))
    groups = [list(range(len(items) * i // n, len(items) * (i + 1) // n)) for i in range(n)]
    total = Listed()
    for outcome in runner.run(work, items, groups=groups):
        if isinstance(outcome, Failure):
            raise QuireError(f"listing failed: {outcome}. Nothing was changed; call again when that is mended.")
        part = Listed(**outcome)
        for f in fields(Listed):
            setattr(total, f.name, getattr(total, f.name) + getattr(part, f.name))
    total.changed_examples = total.changed_examples[:EXAMPLES]
    total.troubles = [tuple(t) for t in total.troubles[:EXAMPLES]]  # type: ignore[misc]  # JSON knows no tuples
    return total


def _list(listing: Listing, item: tuple[int, Piece]) -> dict[str, Any]:
    return list_piece(listing, *item)
