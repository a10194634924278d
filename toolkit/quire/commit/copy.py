"""The committer of stores that cannot rename, for output that lies there as objects already: what a user's own job has written.

Publishing copies each whole object within the store, on condition of the version that the manifest names, so no byte passes through
quire. A copy is one step for whoever reads the new name, and made again it makes the same. The original is removed when the job is
cleaned. Where quire writes by itself, `upload` does without the copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import cast

from quire.commit import names
from quire.commit.entries import DataFile, Task
from quire.errors import FormatError, StorageError
from quire.storage import Copying, Entry, Sink, Store


class Copies:
    """Output waits in the attempt's folder and is copied file by file once the commit is in the log."""

    name = "copy"
    leaks = False

    def serves(self, store: Store) -> bool:
        return not store.can_rename and isinstance(store, Copying)

    def create(self, store: Store, job: str, task: int, attempt: str, final: str) -> Sink:
        return store.create(names.staged(job, task, attempt, final))

    def handle(self, job: str, task: int, attempt: str, final: str, sink: Sink) -> str:
        return copied(names.staged(job, task, attempt, final), "")

    def adopt(self, store: Store, entry: Entry) -> str:
        return copied(entry.name, entry.version)

    def commit_task(self, store: Store, job: str, task: Task) -> None:
        pass

    def abort_task(self, store: Store, job: str, task: int, attempt: str, outputs: Mapping[str, Sink]) -> None:
        store.remove_tree(names.attempt_folder(job, task, attempt))

    def publish(self, store: Store, job: str, task: Task, file: DataFile) -> bool:
        waiting, version = _source(file.handle, names.attempt_folder(job, task.task, task.attempt))
        if not cast("Copying", store).copy(waiting, file.name, version):
            # Somebody else published it, and the job was cleaned; or the output is gone. The name holds task and attempt.
            return store.stat(file.name) is not None
        there = store.stat(file.name)
        if there is None or there.size != file.size:
            raise StorageError(
                f"cannot publish {store.url}/{file.name}: it has {there.size if there else 0:,} bytes, and the log says {file.size:,}. "
                f"Look who writes there, and call again."
            )
        return True

    def clean(self, store: Store, job: str, named: Iterable[str]) -> None:
        store.remove_tree(names.attempts(job))
        for name, handle in self._pending(store):
            if names.job_of_data_file(name) == job:
                store.give_up(name, handle)

    def leftovers(self, store: Store, named: Iterable[str]) -> set[str]:
        return {job for name, _ in self._pending(store) if (job := names.job_of_data_file(name))}

    def _pending(self, store: Store) -> list[tuple[str, str]]:
        """Remove the parts of long objects that were being written or copied when their process died."""
        return list(store.pending()) if store.can_upload and not store.pieces_expire else []


def copied(waiting: str, version: str) -> str:
    """The handle of an object that waits, in the version that is meant; "": it has one writer alone, who names it after its last byte."""
    return json.dumps({"from": waiting, "version": version}, separators=(",", ":"))


def _source(handle: str, folder: str) -> tuple[str, str]:
    """Take a handle apart; FormatError if it leads out of its attempt's folder, for a log's entry may be damaged or forged."""
    try:
        told = json.loads(handle)
        waiting, version = told["from"], told["version"]
        if isinstance(waiting, str) and waiting.startswith(f"{folder}/") and isinstance(version, str) and len(version) < 200:
            return waiting, version
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise FormatError(f"{handle[:200]!r} is not where an attempt in {folder} writes: nothing was touched.")
