"""Rules that look at the log: which files go together in a destination, and that a name is committed once."""

from __future__ import annotations

from collections.abc import Iterable

from quire.commit.entries import UNSAID, WRITE, Commit, PlanHead, Spec, Task
from quire.commit.log import Log
from quire.coverage.conflicts import conflicts
from quire.engine import own_files
from quire.errors import RefusedError


def of_name(log: Log, wanted: str, but: str = "") -> Commit | None:
    """The commit that counts of a job of this name."""
    found = (commit for commit in log.ending(wanted) if commit.verb == WRITE and commit.job != but)
    return next((commit for commit in found if log.in_effect(commit)), None)


def in_the_way(log: Log, head: PlanHead, tasks: list[Task]) -> set[int] | str:
    """If two jobs of one name begin at once, the second to commit is given up: decided where the entry gets its number."""
    twin = of_name(log, head.job.partition("-")[2], head.job)
    if twin is not None:
        return f"a job of the same name was committed first, {twin.job}"
    return own_files.in_the_way(log, head, tasks) or conflicts(log, head, tasks)


def spec_of(log: Log, tasks: Iterable[Task], job: str) -> Spec:
    """The kind of the job's files; RefusedError if they differ among themselves or from the destination's: the job stays open."""
    own_files.check_kind(log)
    tasks = list(tasks)
    files = [file.name for task in tasks for file in task.data_files]
    spec = own_files.spec_of_files(files, f"job {job}") if files else UNSAID
    if files:
        after = ": nothing of it is visible. Give it up with abort_job, and write the same, or into another destination."
        spec = own_files.settled(log, spec, files, f", and job {job} has written", after)
    schemas = list(dict.fromkeys(schema for schema in (*sorted(log.schemas()), *(task.schema for task in tasks)) if schema))
    if len(schemas) > 1:
        raise RefusedError(
            f"job {job} would leave rows of two schemas in {log.store.url}, ({schemas[0]}) and ({schemas[1]}): nothing of it is visible. "
            f"Give it up with abort_job, and write the same columns, or into another destination."
        )
    return spec
