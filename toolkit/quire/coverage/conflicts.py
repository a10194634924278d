"""Which of a job's tasks overlap what others committed since the job's base.

A task conflicts if a commit that counts touched (covered or uncovered) an overlapping range of a path that the task touches, or
the same path under another version, or removed a data file that the task removes. Between a commit that says what is the state of rows
(a purge) and one that carries these rows into another data file, it is as if both had removed it. It is dropped whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow.compute as pc

from quire.commit import checkpoints
from quire.commit.entries import TABLE, Commit, PlanHead, Task
from quire.commit.log import Log
from quire.coverage import keys, segments
from quire.coverage.fold import touched
from quire.coverage.uncovered import overlap
from quire.errors import FormatError

TWO = "the destination holds, or would hold, rows of two schemas"
TWICE = "another call has committed the same batch"  # why a job that covers nothing is given up


Agree = Callable[[Log, PlanHead, list[Task]], str]


def same_columns(log: Log, _: PlanHead, tasks: list[Task]) -> str:
    """Why the rows of a job cannot lie beside those that are there, which have the same columns; "" where they can."""
    there, ours = log.schemas(), {t.schema for t in tasks} - {""}
    return TWO if len(ours) > 1 or (there and not ours <= there) else ""


def conflicts(log: Log, head: PlanHead, tasks: list[Task], agree: Agree = same_columns) -> set[int] | str:
    """The numbers of the tasks to drop, or why the whole job cannot commit here; `agree` says so of the columns of its rows."""
    found = set[int]()
    there = log.saying()  # all others say the same, or nothing, or they had not been committed
    if there is not None and head.spec.said and there.spec != head.spec and head.closer != TABLE:
        return _other_spec(there, head)
    if why := agree(log, head, tasks):
        return why
    if head.intent.get("batch") and _twice(log, head):
        return TWICE
    since = [(number, t) for number, commit in log.commits(after=head.base) for t in log.in_effect(commit)]
    for task in tasks:
        for number, other in since:
            if (
                set(task.coverage.removes) & set(other.coverage.removes)
                or _moved(log, task, other, number)
                or (_may_meet(task, other) and _meet(log, task, other, number))
            ):
                found.add(task.task)
                break
    return found | keys.clashing(log.store, [task for task in tasks if task.task not in found], (other for _, other in since))


def _twice(log: Log, head: PlanHead) -> bool:
    """Whether the same batch was committed since the job's base: another call did not see the job when it planned its own."""
    same = head.job[head.job.index("-") :]
    return any(commit.job.endswith(same) and log.in_effect(commit) for _, commit in log.commits(head.base))


def examples(log: Log, head: PlanHead, tasks: list[Task], most: int = 3) -> list[tuple[str, int]]:
    """Some of the paths for which tasks conflict, with the numbers of the commits that were quicker."""
    found = dict[str, int]()
    for number, commit in log.commits(head.base):
        for other in log.in_effect(commit):
            for task in tasks:
                if len(found) < most and _may_meet(task, other):
                    found |= dict.fromkeys(_common(log, task, other, number), number)
    return list(found.items())[:most]


def _may_meet(a: Task, b: Task) -> bool:
    one, other = a.coverage, b.coverage
    return (one.first <= other.last and other.first <= one.last) or bool(one.uncovers or other.uncovers)


def _moved(log: Log, a: Task, b: Task, number: int) -> bool:
    """Whether one of two tasks says something of rows that the other carries over, as they were before; `number`: of the commit of `b`."""
    for said, moving in ((a, b), (b, a)):
        if said.stats.restated and said.coverage.segment and moving.coverage.removes:
            try:
                files = segments.read(log.store, said.coverage.segment, ["data_file"]).column("data_file")
            except FormatError:
                if said is b and _merged(log, b, number):
                    return True
                raise
            if set(pc.unique(files).to_pylist()) & set(moving.coverage.removes):
                return True
    return False


def _merged(log: Log, task: Task, number: int) -> bool:
    """Whether a checkpoint may have merged the task's segment, and its time was over: then what may meet is taken to meet."""
    newest = checkpoints.newest(log.store)
    gone = bool(task.coverage.segment) and log.store.stat(str(task.coverage.segment)) is None
    return gone and newest is not None and newest.version >= number


def _meet(log: Log, a: Task, b: Task, number: int) -> bool:
    return next(_common(log, a, b, number), None) is not None


def _common(log: Log, a: Task, b: Task, number: int) -> Iterator[str]:
    """The paths that two tasks touch in a way that does not go together; `number`: of the commit of `b`."""
    ours = touched(log.store, a)
    try:
        others = touched(log.store, b)
    except FormatError:
        if _merged(log, b, number):
            yield min(ours, default="")
            return
        raise
    for path in sorted(ours.keys() & others.keys()):
        both = ours[path], others[path]
        if len({version for ranges in both for version, _, _ in ranges}) > 1 or overlap(*([r[1:] for r in ranges] for ranges in both)):
            yield path


def _other_spec(commit: Commit, head: PlanHead) -> str:
    there, ours = commit.spec, head.spec
    return (
        f"the destination holds transform {there.transform!r} in format {there.format!r} since job {commit.job}, "
        f"and this job made {ours.transform!r} in {ours.format!r}"
    )
