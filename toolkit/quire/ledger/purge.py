"""Delete sources whose bytes were verified in committed files just now, and nothing else.

A file goes only if all of it is done and published, the source has the very version that the ledger names and has had it for `min_age`,
what it holds would be written today as it was written then, and what was written is read back from the data files with the same checksum.

    begin    each of these is read and verified; one commit says that their rows are `purging`
    end      those of that commit are deleted on condition of their version; one commit says which are `purged`

So the ledger says what is finished before a byte of it is gone, and a call may end anywhere: the next one looks at what the last one has
left as `purging`, and deletes nothing that it has not verified itself. A task does all of this for the files of one segment; whatever does
not agree stays, with the reason.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from quire import display
from quire.arguments import format_size
from quire.commit.entries import PURGE, Spec
from quire.commit.log import Log
from quire.coverage.fold import Source, fold
from quire.errors import RefusedError, printable
from quire.ledger import purging
from quire.ledger.comparing import MOVED, Candidates, Purging
from quire.ledger.job import Change, Dest, PlannedChange
from quire.planning.listing import TaskRun
from quire.planning.pack import PlannedTask
from quire.sources import transforms
from quire.sources.files import Root
from quire.spark.runner import Failure, Runner

TOGETHER = 200_000  # in a task that says what is finished


@dataclass(frozen=True)
class Purged(display.Shown):
    """The result of `purge_sources`, or (`dry_run`) its plan.

    files, bytes   of sources that were verified, and deleted unless it was a dry run
    gone           sources that were not there any more
    stays          reason → how many files that are done stay, for that reason; `examples`: (path, reason) of some
    """

    dest: str
    dry_run: bool
    files: int = 0
    bytes: int = 0
    gone: int = 0
    stays: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = ()
    version: int = 0

    def _facts(self) -> dict[str, object]:
        done = "verified, would be deleted" if self.dry_run else "verified and deleted"
        rows: dict[str, object] = {done: f"{self.files:,} ({format_size(self.bytes)})", "gone before": f"{self.gone:,}"}
        return rows | {"stay": f"{sum(self.stays.values()):,}"} | {f"  {why}": f"{n:,}" for why, n in sorted(self.stays.items())}

    def _note(self) -> str:
        told = [printable(f"{path}: {why}") for path, why in self.examples[:5]]
        return "\n".join([*told, *(["nothing was deleted: dry_run=False (in a shell: --yes) does it"] if self.dry_run else [])])


def purge(
    dest: Dest, spec: Spec, roots: tuple[Root, ...], *, dry: bool, derived: bool, min_age: float
) -> Purged:  # fmt: skip
    """Verify, and unless it is `dry` delete, those of the sources `roots` of which the ledger says that they are done.

    `min_age`: seconds for which a source has not changed.
    """
    url, runner = dest.url, dest.runner
    if not spec.traced:
        raise RefusedError(
            f"{url} holds rows of all splits of a commit together, and nothing says whose they are: what was made of a source cannot be "
            f"verified, and no source was deleted."
        )
    if spec.said and spec.transform not in transforms.NAMES and not derived:
        raise RefusedError(
            f"{url} holds what {spec.transform!r} has made of its files, and not their content: deleting the sources would lose it. If "
            f"that is meant, say derived=True; what was written is verified all the same."
        )
    job = Purging(url, dest.options, fold(Log(dest.store()).refresh(), reader=True), roots, spec)
    before, verified, deleted, bases, version = Candidates(), Candidates(), Candidates(), list[int](), job.fold.version
    watched = False

    def begin(log: Log, base: int, named: Callable[[str], str]) -> PlannedChange:
        nonlocal verified, watched
        mine = replace(job, fold=fold(log, base), named=named, newest=_ago(min_age), bases=tuple(bases))
        verified = _spread(runner, purging.verify, mine, "no source was deleted")
        bases.append(base)
        watched = watched or verified.taken_over > 0
        return _planned(verified)

    def end(log: Log, base: int, named: Callable[[str], str]) -> PlannedChange:
        nonlocal before
        mine = replace(job, fold=fold(log, base), named=named, bases=tuple(bases), watched=watched)
        if not bases:  # also what has no plan yet: this is its job, whose objects would stay for ever
            if mine.fold.said or mine.fold.base:
                before = _spread(runner, purging.settle, mine, "no source was deleted")
            return _planned(before)
        found = _spread(runner, purging.delete, mine, "what is deleted was verified, and the ledger has it")
        deleted.add({**asdict(found), "runs": []})
        return _planned(found)

    if dry:
        verified = deleted = _spread(runner, purging.verify, replace(job, newest=_ago(min_age)), "nothing was changed")
    else:
        meant = ["/".join(filter(None, (root.url, wanted))) for root in roots for wanted in root.wanted]
        reason = f"sources to be deleted below {', '.join(meant)}"[:500]
        said = {"verb": PURGE, "step": "begin", "sources": meant, "derived": derived, "reason": reason}
        ending = {"verb": PURGE, "step": "end", "reason": "sources deleted"}
        Change(dest, ending, end, target=0).run()  # what a killed call has deleted, and could not say any more
        bases.clear()
        begun = Change(dest, said, begin, target=0, fresh=True, repeat=True).run()
        bases[:] = [int(name.partition("-")[0]) for name in begun.jobs]
        version = Change(dest, ending, end, target=0, repeat=True).run().version if begun.jobs else begun.version
    total = Candidates()
    for found in (before, verified, deleted) if not dry else (verified,):
        total.add(asdict(found))
    moved = 0 if dry else verified.files - deleted.files - sum(deleted.stays.values())
    if moved > 0:
        total.stays[MOVED] = total.stays.get(MOVED, 0) + moved
    return Purged(url, dry, deleted.files, deleted.bytes, total.gone, total.stays, tuple(total.examples), version)


def _ago(min_age: float) -> int | None:
    return time.time_ns() - int(min_age * 1e9) if min_age else None


def _spread(runner: Runner, step: Callable[[Purging, Source], dict[str, Any]], job: Purging, state: str) -> Candidates:
    """The findings of the tasks of all segments."""
    total, failed = Candidates(), None
    for outcome in runner.run(functools.partial(step, job), list(job.fold.sources)):
        if isinstance(outcome, Failure):
            failed = failed or outcome
        else:
            total.add(outcome)
    if failed is not None:
        raise failed.kind_of_error(f"cannot purge the sources of {job.dest}: {str(failed).rstrip('.')}; {state}: call again to go on.")
    return total


def _planned(found: Candidates) -> PlannedChange:
    tasks = list[PlannedTask]()
    for name, rows in found.runs:
        if not tasks or tasks[-1].files + rows > TOGETHER:
            tasks.append(PlannedTask("", 0))
        tasks[-1].marks.append(TaskRun("", 0, name, 0, 0, rows, 0))
    return PlannedChange(tasks)
