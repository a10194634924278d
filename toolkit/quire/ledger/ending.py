"""The end of a claim: what its block has written, as the last task of its job, in the commit that also has the splits."""

from __future__ import annotations

import functools
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from msgspec.structs import replace

from quire.commit import names, protocol
from quire.commit.committers import Adopting, committer
from quire.commit.entries import UNSAID, Commit, Coverage, DataFile, PlanHead, Stats, Task
from quire.commit.log import Log
from quire.coverage.conflicts import conflicts, examples
from quire.engine import job as jobs
from quire.engine.own_files import KINDS, differing, files_below, in_the_way, rows_and_columns, settled, spec_of_files, spec_there
from quire.errors import FormatError, QuireError, RefusedError
from quire.progress import Progress
from quire.storage import Syncing

LOOKING = 16  # files whose ends are read at once
STAYS = (
    "What this block has written elsewhere stays there, and others write what is left of its splits, and the shared ones, too: take it "
    "back, or use committed= so that this cannot happen."
)


def written(log: Log, head: PlanHead, attempt: str, started: float, *, allow_empty: bool) -> Task:
    """The block's output, as the last task of its job. Raises QuireError for output that cannot be committed."""
    store, number, by = log.store, head.tasks, committer(head.committer, log.store)
    assert isinstance(by, Adopting)
    folder = names.attempt_folder(head.job, number, attempt)
    found, ended = files_below(store, folder)
    if not (found or ended or allow_empty) and log.refresh().outcome(head.job) is None:  # else it was cleaned
        raise RefusedError(
            "the claim's block has written nothing, and its splits would be done: nothing is visible. If they hold nothing that you want, "
            "say allow_empty=True; else write below c.path."
        )
    shown_names = {entry.name: entry.name.removeprefix(f"{folder}/") for entry in found}
    for entry in found:
        if not KINDS.search(shown_names[entry.name]):
            raise RefusedError(
                f"the claim's block has written {shown_names[entry.name]!r}, which is neither Parquet nor text, CSV or JSON (plain, .gz or "
                f".zst): nothing is visible. Write another format, and what does not count elsewhere."
            )
    shown = list(shown_names.values())
    spec = spec_of_files(shown)
    if found:
        between = " of earlier claims, and this block has written"
        settled(log, spec, shown, between, ": nothing is visible. Write the same, or claim into another destination.")
    with ThreadPoolExecutor(LOOKING) as pool:
        looks = list(pool.map(functools.partial(rows_and_columns, store), found))
    schemas = {schema: shown_names[entry.name] for entry, (_, schema) in reversed([*zip(found, looks, strict=True)])}
    if len(schemas) > 1:
        (one, first), (other, second), *_ = schemas.items()
        raise RefusedError(
            f"the claim's block has written rows of two schemas, {first!r} with ({one}) and {second!r} with ({other}): nothing is visible."
        )
    files = []
    for i, (entry, (records, _)) in enumerate(zip(found, looks, strict=True)):
        inside = shown_names[entry.name]
        match = KINDS.search(inside)
        assert match is not None
        final = names.data_file(inside.rpartition("/")[0], head.job, number, attempt, i, match[0][1:])
        if isinstance(store, Syncing):
            store.sync(entry.name)  # whoever wrote it may not have waited for the disk
        files.append(DataFile(final, entry.size, records, by.adopt(store, entry)))
    return replace(empty(head, attempt, started), data_files=tuple(files), schema=next(iter(schemas), ""))


def empty(head: PlanHead, attempt: str, started: float) -> Task:
    """The last task of a job whose block has written nothing into the destination."""
    stats = Stats(started=round(started, 3), seconds=round(time.time() - started, 3))
    return Task(task=head.tasks, attempt=attempt, data_files=(), schema="", coverage=Coverage(), stats=stats)


def commit(log: Log, head: PlanHead, marks: list[Task], bars: Progress) -> list[tuple[str, int]]:
    """Commit what is marked with the output of the block that was first, unless the job has an outcome; then end it.

    Some of the paths that others have taken in the meantime, with the numbers of their commits, if that is why it could not be.
    """
    done, taken = protocol.get_manifest(log.store, head.job, head.tasks), list[tuple[str, int]]()
    if done is not None and log.refresh().outcome(head.job) is None:
        files = [file.name for file in done.data_files]
        spec = spec_of_files(files) if files else UNSAID
        if files and log.filling() is not None and differing(log, spec, files) is None:
            spec = spec_there(log)  # it says more of the same files

        def odd(log: Log, head: PlanHead, tasks: list[Task]) -> set[int] | str:
            return in_the_way(log, head, tasks) or conflicts(log, head, tasks)

        with suppress(FormatError):  # the job is over, and its segments are gone
            taken = examples(log, head, marks)
        protocol.commit(log, replace(head, spec=spec), [*marks, done], odd)
    jobs.settle(log, head.job, bars)
    return taken


def check_ours(log: Log, head: PlanHead, marks: list[Task], attempt: str, taken: list[tuple[str, int]], *, apart: bool) -> None:
    """Raise QuireError unless what this block has written is what the commit names; without an `attempt`, whoever has committed it."""
    outcome = log.refresh().outcome(head.job)
    won = isinstance(outcome, Commit) and (not attempt or any(task.attempt == attempt for task in outcome.tasks))
    whole = isinstance(outcome, Commit) and bool(log.in_effect(outcome))
    nothing = STAYS if apart else "Nothing that this block has written is visible; claim again for what is left."
    count = sum(task.stats.gathered for task in marks)
    some = f"{count:,} splits from {min((t.coverage.first for t in marks), default='')} on"
    if won and whole:
        return
    if won:
        raise QuireError(f"the store has lost what a claim on {some} had written, before it was published. {nothing}")
    if isinstance(outcome, Commit):
        raise QuireError(f"another claim on the same {some} has ended first. {nothing}")
    if taken:
        said = ", ".join(f"{path} (commit {number})" for path, number in taken)
        raise QuireError(f"others have processed splits of this claim in the meantime: {said}. {nothing}")
    raise QuireError(f"the claim on {some} was given up in the meantime ({getattr(outcome, 'why', 'nobody knows by whom')}). {nothing}")
