"""Writing on a local disk so that it lasts: bytes, names, and the directories that lead to them.

`fsync` of a file keeps its bytes and `fsync` of a directory the names in it, and nothing else does (POSIX promises no more). Files
of another process may not be durable either: it may have been killed before its fsync.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from quire.errors import NotFoundError, StorageError, TransientError

WRITE_BACK = 16 << 20  # bytes written until the kernel is told to bring them to the disk

# What a mounted share says when it is away for a moment. Not EIO: after it, an fsync that is repeated succeeds though the bytes are lost.
BUSY = frozenset({
    errno.EAGAIN, errno.ETIMEDOUT, errno.ESTALE, errno.ECONNRESET, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ENETDOWN,
    errno.ENETRESET, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH,
})  # fmt: skip
# What this process or machine has run out of says nothing of the file that it was about: nobody may quarantine one for it.
STARVED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_OPEN = "too many files are open. Close some (a function of yours may leave them open), or allow more with ulimit -n, and call again"
_MEMORY = "the machine has too little memory left. Free some, or let fewer tasks run at once, and call again"
_ADVICE = {
    errno.EMFILE: _OPEN,
    errno.ENFILE: _OPEN,
    errno.ENOMEM: _MEMORY,
    errno.ENOBUFS: _MEMORY,
    errno.ENOSPC: "the disk is full. Free some space and call again: what was committed is safe",
    errno.EDQUOT: "the quota is used up. Free some space and call again: what was committed is safe",
    errno.EROFS: "the file system is read-only. Choose a destination that can be written",
    errno.EACCES: "no permission. Ask for the right, or choose another place",
    errno.EPERM: "no permission. Ask for the right, or choose another place",
    errno.ENOTDIR: "a file has the name of a directory on the way there. Move it away and call again: what was committed is safe",
    errno.ENAMETOOLONG: "the name is too long for this file system",
}


@contextmanager
def explained(doing: str, name: str) -> Iterator[None]:
    """Let an error of the system say what was done to what, and what to do."""
    try:
        yield
    except FileNotFoundError as e:
        raise NotFoundError(f"cannot {doing} {name}: it is not there") from e
    except OSError as e:
        kind = TransientError if e.errno in BUSY else StorageError
        raise kind(f"cannot {doing} {name}: {_ADVICE.get(e.errno or 0, e.strerror or type(e).__name__)}") from e


def not_the_files(e: OSError, doing: str, name: str) -> None:
    """Raise StorageError for an error that says nothing of the file: read again when there is enough, it is as good as any."""
    if e.errno in STARVED:
        with explained(doing, name):
            raise e


def tries() -> Iterator[int]:
    """Again and again while clean-ups take away what a write needs: the first times at once, then further apart, for some 15 s."""
    for n in range(100):
        if n > 2:
            time.sleep(min(0.001 * 1.3**n, 0.25) * random.uniform(0.5, 1))
        yield n


def sync_folder(path: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder_of(path: str) -> None:
    """Make the name of an object durable, unless a clean-up has taken object and directory by now."""
    with suppress(FileNotFoundError):
        sync_folder(os.path.dirname(path))


def unlink(path: str) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write, however little the system takes at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Folders:
    """Directories whose names are durable: an object is as safe as the names that lead to it."""

    def __init__(self) -> None:
        self._kept = set[str]()  # what needs no fsync again; whether it is still there is looked up each time

    def make(self, path: str) -> None:
        """Make a directory and those above it, where they are missing; the names of all of them are durable afterwards."""
        unsure = []
        while not (path in self._kept and os.path.isdir(path)) and not os.path.ismount(path):
            unsure.append(path)
            path = os.path.dirname(path)
        for folder in reversed(unsure):
            self._make(folder)
            self._kept.add(folder)

    @staticmethod
    def _make(folder: str) -> None:
        ours = not os.path.isdir(folder)
        try:
            if ours:
                os.mkdir(folder)
        except FileExistsError:
            pass  # another writer was faster, and may not have come to its fsync
        try:
            sync_folder(os.path.dirname(folder))
        except PermissionError:
            if ours:
                raise  # else it lies above what we may write, and was there before


class LocalSink:
    """A file that is being written; `close` makes its bytes and its name durable."""

    def __init__(self, path: str, shown: str, folders: Folders) -> None:
        self.path, self.shown = path, shown
        self._written = 0  # bytes that the kernel was not told to bring to the disk
        with explained("write", shown):
            for _ in tries():
                try:
                    folders.make(os.path.dirname(path))
                    self.fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
                except FileNotFoundError:
                    continue  # a clean-up took the directory between the two
                return
            raise FileNotFoundError(path)

    def write(self, data: bytes | memoryview) -> None:
        with explained("write", self.shown):
            write_all(self.fd, data)
        self._written += len(data)
        if self._written >= WRITE_BACK and hasattr(os, "posix_fadvise"):
            # The disk works while the task reads on, so the fsync at the end has little left to wait for; and what is on disk
            # gives its memory to what is written next: a third less time for gathering small files.
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            self._written = 0

    def close(self) -> None:
        with explained("write", self.shown):
            try:
                os.fsync(self.fd)
            finally:
                os.close(self.fd)
                self.fd = -1
            sync_folder(os.path.dirname(self.path))

    def discard(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
