"""The committers of stores that rename in one step; what a committer is stands in `committers.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quire.commit import names
from quire.commit.entries import DataFile, Task
from quire.errors import FormatError, NotFoundError
from quire.storage import Entry, Sink, Store


class Rename:
    """Output waits in the attempt's folder and is renamed file by file once the commit is in the log (rename v1)."""

    name = "rename"
    leaks = False

    def serves(self, store: Store) -> bool:
        return store.can_rename

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
        # Its final name there, or the one that a user's own job has chosen.
        if not file.handle.startswith(f"{names.attempt_folder(job, task.task, task.attempt)}/"):
            raise FormatError(f"{file.handle[:200]!r} is not where an attempt of job {job} writes: nothing was touched.")
        try:
            store.rename(file.handle, file.name)
        except NotFoundError:
            # Somebody else published it, or the output is gone. The name holds task and attempt, so it cannot be another's.
            return store.stat(file.name) is not None
        return True

    def clean(self, store: Store, job: str, named: Iterable[str]) -> None:
        store.remove_tree(names.attempts(job))

    def leftovers(self, store: Store, named: Iterable[str]) -> set[str]:
        return set()


class RenameV2(Rename):
    """Output is renamed at task commit, before the job commits: readers of the directory see it early. For comparison."""

    name = "rename_v2"
    leaks = True

    def commit_task(self, store: Store, job: str, task: Task) -> None:
        for file in task.data_files:
            try:
                store.rename(file.handle, file.name)
            except NotFoundError:
                if store.stat(file.name) is None:  # else it was called before, and got no answer
                    raise

    def publish(self, store: Store, job: str, task: Task, file: DataFile) -> bool:
        return store.stat(file.name) is not None

    def clean(self, store: Store, job: str, named: Iterable[str]) -> None:
        super().clean(store, job, named)
        keep = set(named)
        for name in [e.name for e in store.walk() if names.job_of_data_file(e.name) == job]:
            if name not in keep and not name.startswith(f"{names.STATE}/"):
                store.remove(name)

    def leftovers(self, store: Store, named: Iterable[str]) -> set[str]:
        keep = set(named)
        return {job for e in store.walk() if e.name not in keep and (job := names.job_of_data_file(e.name))}
