"""A committer that somebody else could have written: it carries each file's bytes over to its final name, when the job is committed.

It needs no rename and no uploads, so it serves every store; its price is that all bytes pass through the process that publishes. It imports
nothing of quire but the interface. `ferry-1.0.dist-info`, which an installer would write, makes its name known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quire.commit import names
from quire.commit.entries import DataFile, Task
from quire.errors import FormatError, NotFoundError
from quire.storage import Entry, Sink, Store


class Ferry:
    """Output waits in the attempt's folder, and is written again under its final name once the commit is in the log."""

    name = "ferry"
    leaks = False

    def serves(self, store: Store) -> bool:
        return True

    def create(self, store: Store, job: str, task: int, attempt: str, final: str) -> Sink:
        return store.create(names.staged(job, task, attempt, final))

    def handle(self, job: str, task: int, attempt: str, final: str, sink: Sink) -> str:
        return names.staged(job, task, attempt, final)

    def adopt(self, store: Store, entry: Entry) -> str:
        return entry.name

    def commit_task(self, store: Store, job: str, task: Task) -> None:
        pass

    def abort_task(self, store: Store, job: str, task: int, attempt: str, outputs: Mapping[str, Sink]) -> None:
        store.remove_tree(names.attempt_folder(job, task, attempt))

    def publish(self, store: Store, job: str, task: Task, file: DataFile) -> bool:
        if not file.handle.startswith(f"{names.attempt_folder(job, task.task, task.attempt)}/"):
            raise FormatError(f"{file.handle[:200]!r} is not where an attempt of job {job} writes: nothing was touched.")
        try:
            store.put(file.name, store.get(file.handle))  # the same bytes, as often as one likes
        except NotFoundError:
            return store.stat(file.name) is not None
        return True

    def clean(self, store: Store, job: str, named: Iterable[str]) -> None:
        store.remove_tree(names.attempts(job))

    def leftovers(self, store: Store, named: Iterable[str]) -> set[str]:
        return set()
