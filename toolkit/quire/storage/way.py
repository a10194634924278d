"""Ways below a directory of the local disk that go through no symbolic link, also where somebody exchanges a directory for one meanwhile.

Each directory is opened from the one before, and a name is looked up in the directory that is open: looking for links first and opening a
path then would leave a moment in between.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

KEPT = 64  # directories that stay open
DEEP = 16  # parts of a name up to which its directories are kept
# A directory that may be entered and not listed is opened all the same, where the system has a flag for it.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Way:
    """The directories of one root, kept open for whoever reads many files of each; to be closed."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.fds = dict[str, int]()  # those that are open, by their names; nobody else changes it

    def folder(self, name: str) -> int:
        """A directory below the root ("": the root itself), open; OSError where there is none, or a link in its place or on the way."""
        fd = self.fds.get(name)
        if fd is not None:
            return fd
        if len(self.fds) >= KEPT:
            self.close()
        if "" not in self.fds:
            self.fds[""] = os.open(self._root, _FOLDER & ~os.O_NOFOLLOW)
        at, fd, passing = "", self.fds[""], -1
        parts = name.split("/") if name else []
        try:
            for i, part in enumerate(parts):
                at = f"{at}/{part}" if at else part
                known = self.fds.get(at)
                if known is None:
                    known = os.open(part, _FOLDER, dir_fd=fd)
                    if i < DEEP or i == len(parts) - 1:
                        self.fds[at] = known
                if passing >= 0:
                    os.close(passing)
                passing = -1 if at in self.fds else known
                fd = known
        except BaseException:
            if passing >= 0:
                os.close(passing)
            raise
        return fd

    def open(self, name: str, flags: int) -> int:
        """A file below the root, open; OSError likewise."""
        folder, _, last = name.rpartition("/")
        fd = self.fds.get(folder)
        return os.open(last, flags | os.O_NOFOLLOW, dir_fd=self.folder(folder) if fd is None else fd)

    def close(self) -> None:
        """Close what is open; it may be gone on with."""
        fds = list(self.fds.values())
        self.fds.clear()
        for fd in fds:
            os.close(fd)


def origin(path: str) -> str:
    """The meaning of a path without links, if a directory is mounted at several places: the file system's number and the path in it.

    Where the system does not tell, the path.
    """
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            mounts = [os.fsdecode(line).split(" ", 5)[2:5] for line in file]
    except OSError:
        return path
    found = ""
    at = ""
    for device, inside, octal in mounts:  # a later one lies on those before
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), octal).rstrip("/")
        if len(point) >= len(at) and (path == point or path.startswith(point + "/")):
            found, at = f"/{device}{inside.rstrip('/')}", point
    return found + path[len(at) :] if found else path


@contextmanager
def below(root: str, name: str) -> Iterator[tuple[int, str]]:
    """The directory that a name below a root lies in, open, and the last part of the name."""
    way, (folder, _, last) = Way(root), name.rpartition("/")
    try:
        yield way.folder(folder), last
    finally:
        way.close()
