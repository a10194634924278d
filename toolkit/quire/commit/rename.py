"""The committers of stores that rename in one step; others are files beside this one.

A committer decides where an attempt's output waits and how it becomes visible. In Hadoop's words: `place` is setup_task,
`commit_task` and `abort_task` are themselves, `publish` is commit_job for one file, `clean` is what abort_job and the end
of commit_job remove. The protocol around them (who may call what, and when) is in `protocol.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from quire.commit import names
from quire.commit.entries import DataFile, Task
from quire.errors import FormatError, NotFoundError
from quire.storage import Store


class Committer(Protocol):
    """How the output of attempts becomes visible in a store."""

    name: str
    leaks: bool  # a reader of the directory may see output that is not committed

    def place(self, store: Store, job: str, task: int, attempt: str, final: str) -> str:
        """Where an attempt writes the data file that will be called `final`; also the file's publish handle."""
        ...

    def commit_task(self, store: Store, job: str, task: Task) -> None:
        """The attempt's files are written; its manifest is not yet."""
        ...

    def abort_task(self, store: Store, job: str, task: int, attempt: str) -> None:
        """The attempt has provably lost, or failed: remove what only it can have written."""
        ...

    def publish(self, store: Store, job: str, task: Task, file: DataFile) -> bool:
        """Make a committed file visible, from the log's entry alone, as often as you like; False: its output is lost."""
        ...

    def clean(self, store: Store, job: str, named: Iterable[str]) -> None:
        """The job is over: remove its output but for the committed files `named`."""
        ...


class Rename:
    """Output waits in the attempt's folder and is renamed file by file once the commit is in the log (rename v1)."""

    name = "rename"
    leaks = False

    def place(self, store: Store, job: str, task: int, attempt: str, final: str) -> str:
        return f"{names.attempt_folder(job, task, attempt)}/{final}"

    def commit_task(self, store: Store, job: str, task: Task) -> None:
        pass

    def abort_task(self, store: Store, job: str, task: int, attempt: str) -> None:
        store.remove_tree(names.attempt_folder(job, task, attempt))

    def publish(self, store: Store, job: str, task: Task, file: DataFile) -> bool:
        if file.handle != self.place(store, job, task.task, task.attempt, file.name):
            raise FormatError(f"{file.handle[:200]!r} is not where an attempt of job {job} writes: nothing was touched.")
        try:
            store.rename(file.handle, file.name)
        except NotFoundError:
            # Somebody else published it, or the output is gone. The name holds task and attempt, so it cannot be another's.
            return store.stat(file.name) is not None
        return True

    def clean(self, store: Store, job: str, named: Iterable[str]) -> None:
        store.remove_tree(names.attempts(job))


class RenameV2(Rename):
    """Output is renamed at task commit, before the job commits: readers of the directory see it early. For comparison."""

    name = "rename_v2"
    leaks = True

    def commit_task(self, store: Store, job: str, task: Task) -> None:
        for file in task.files:
            store.rename(file.handle, file.name)

    def publish(self, store: Store, job: str, task: Task, file: DataFile) -> bool:
        return store.stat(file.name) is not None

    def clean(self, store: Store, job: str, named: Iterable[str]) -> None:
        super().clean(store, job, named)
        keep = set(named)
        for name in [e.name for e in store.walk() if names.job_of_data_file(e.name) == job]:
            if name not in keep and not name.startswith(f"{names.STATE}/"):
                store.remove(name)


COMMITTERS: dict[str, Callable[[], Committer]] = {"rename": Rename, "rename_v2": RenameV2}
