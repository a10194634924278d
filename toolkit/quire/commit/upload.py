"""The committer of stores that hold uploads: pieces wait under the file's final name, and publishing lets them become the object.

Nothing is moved and nothing is copied, so publishing takes one request a file, however large it is. An upload that the store
dropped before it was published (a life-cycle rule, uncommitted blocks after a week) is lost output: its task is planned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from quire.commit import names
from quire.commit.entries import DataFile, Task
from quire.storage import Sink, Store, Upload


class Uploads:
    """Output waits as an upload that nobody sees; the manifest and the log's entry carry the handle that completes it."""

    name = "upload"
    leaks = False

    def serves(self, store: Store) -> bool:
        return store.can_upload

    def create(self, store: Store, job: str, task: int, attempt: str, final: str) -> Sink:
        return store.upload(final)

    def handle(self, job: str, task: int, attempt: str, final: str, sink: Sink) -> str:
        return cast("Upload", sink).handle

    def commit_task(self, store: Store, job: str, task: Task) -> None:
        pass

    def abort_task(self, store: Store, job: str, task: int, attempt: str, outputs: Mapping[str, Sink]) -> None:
        for final, sink in outputs.items():
            if handle := cast("Upload", sink).handle:  # else it was not closed, and its writer has discarded it
                store.give_up(final, handle)

    def publish(self, store: Store, job: str, task: Task, file: DataFile) -> bool:
        # A forged handle reaches no other object: the store uses it with this name alone, which `check_task` found to be the attempt's.
        return store.complete(file.name, file.handle)

    def clean(self, store: Store, job: str, named: Iterable[str]) -> None:
        if store.pieces_expire:
            return  # they go by themselves, and what can be listed of them would be found again at each recovery
        # All of them, also those of committed names: what was completed stays, and an upload that was begun twice, since the first
        # answer did not arrive, must not stay open.
        for name, handle in list(store.pending()):
            if names.job_of_data_file(name) == job or _mark(name) == names.mark(job):
                store.give_up(name, handle)

    def leftovers(self, store: Store, named: Iterable[str]) -> set[str]:
        pending = () if store.pieces_expire else store.pending()
        return {job for name, _ in pending if (job := names.job_of_data_file(name))}

    def marks(self, store: Store) -> set[str]:
        return {_mark(name) for name, _ in (() if store.pieces_expire else store.pending())} - {""}


def _mark(name: str) -> str:
    """The mark of the job that has begun a base file of a table; "" for any other name."""
    return (names.attempt_of_table_file(name) or "")[:6]
