"""Events of the directories of a local disk, as Linux tells them (inotify(7)): `inotify`.

The system tells of directories that are watched, one by one, and forgets what happened before they were. So a watch of a directory that
has just come is followed by a look at all that lies in it, and a full listing by what was lost: the first run, an overflow of the system's
queue, a root that has gone. A file is told when its writer closes it, or when it is given its name. Not told, and found by the next full
listing, are files that are held open, changes that other machines make on a shared disk, and what lies behind links to directories.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import select
import stat
import struct
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from quire.errors import StorageError, UsageError
from quire.sources.events import Event, Message
from quire.sources.files import Root
from quire.storage import OnRetry
from quire.storage.local import to_os, to_text

CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE_SELF, MOVE_SELF = 0x8, 0x40, 0x80, 0x100, 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED, ONLYDIR, DONT_FOLLOW, ISDIR = 0x2000, 0x4000, 0x8000, 0x1000000, 0x2000000, 0x40000000
WANTED = CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE_SELF | MOVE_SELF | ONLYDIR | DONT_FOLLOW
MOST = 1_000_000  # names that wait; of more a full listing follows
_HEAD = struct.Struct("iIII")
_PLACE = ("file", "")


def opened(place: str, _: Mapping[str, object], roots: Sequence[Root]) -> Inotify:
    """The events of the roots. UsageError where there are none."""
    if place:
        raise UsageError("inotify is of the source's own directories. Write events='inotify'.")
    if not sys.platform.startswith("linux"):
        raise UsageError("inotify is Linux's. Leave events= out here: each run lists then.")
    if other := next((root.url for root in roots if not root.url.startswith("file://")), None):
        raise UsageError(f"inotify tells of directories on local disk, and {other} is none. Leave events= out, or name its queue.")
    return Inotify([root.url.removeprefix("file://") for root in roots])


class Inotify:
    """Watches directories with all that lies below them, in a thread of its own, as long as the call lasts."""

    hidden = math.inf

    def __init__(self, roots: Sequence[str]) -> None:
        self.shown = "inotify"
        self._roots = [to_os(root) for root in roots]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd, self._wake = -1, (-1, -1)
        self._paths = dict[int, str]()  # directories by their watches; the thread alone changes them
        self._watches = dict[str, int]()
        self._lock = threading.Lock()
        self._names = dict[tuple[str, bool], None]()  # names that wait, in the order of their coming; whether a directory's
        self._lost = True
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------------------------------------------ the call
    def receive(self, most: int, on_retry: OnRetry) -> list[Message]:
        """See `EventQueue`."""
        self._start()
        with self._lock:
            found = list(self._names)[:most]
            for key in found:
                del self._names[key]
        return [Message(f"{path}{'/' * folder}", "", (Event(_PLACE, to_text(path).lstrip("/"), folder),)) for path, folder in found]

    def hold(self, messages: Sequence[Message], on_retry: OnRetry) -> list[Message]:
        """They are given once, whatever happens."""
        return list(messages)

    def delete(self, messages: Sequence[Message], on_retry: OnRetry) -> None:
        """They were forgotten when they were given."""

    def lost(self) -> bool:
        """See `EventQueue`. Names that wait are forgotten with it: the listing that follows finds them."""
        self._start()
        with self._lock:
            lost, self._lost = self._lost, False
            if lost:
                self._names.clear()
            return lost

    def close(self) -> None:
        """End the thread, and with it all watches."""
        thread, self._thread = self._thread, None
        if thread is not None:
            os.write(self._wake[1], b"x")
            thread.join()
            for fd in (self._fd, *self._wake):
                os.close(fd)

    def _start(self) -> None:
        """Begin to watch, or say why nothing is watched any more: the next call begins anew."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self._thread is not None:
            self.close()
        self._lost, self._paths, self._watches = True, {}, {}
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise _refused(ctypes.get_errno(), "this machine")
        try:
            for root in self._roots:
                for path in _directories(root):
                    self._watch(path)
        except BaseException:
            os.close(self._fd)
            raise
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._listen, name="quire-inotify", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------------------------------------------------- the thread
    def _listen(self) -> None:
        """However it ends, nothing is lost: the next call sees that it has ended, begins anew, and says why it cannot."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._wake[0], select.POLLIN)
        with suppress(StorageError):
            while self._wake[0] not in [fd for fd, _ in poll.poll()]:
                with suppress(BlockingIOError):
                    self._read(os.read(self._fd, 1 << 20))

    def _read(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            name = data[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0")
            at += _HEAD.size + length
            self._heard(watch, mask, os.fsdecode(name))

    def _heard(self, watch: int, mask: int, name: str) -> None:
        folder = self._paths.get(watch)
        if mask & (OVERFLOW | UNMOUNT):
            self._lose()
        elif folder is None:
            return  # it is not watched any more
        elif folder in self._roots and mask & (DELETE_SELF | MOVE_SELF | IGNORED):
            raise StorageError(f"{to_text(folder)} has gone")  # what takes its place has to be watched anew
        elif mask & IGNORED:
            self._forget(folder)
        elif name and mask & ISDIR and mask & (CREATE | MOVED_TO):
            self._came(f"{folder.rstrip('/')}/{name}")
        elif name and mask & ISDIR and mask & MOVED_FROM:
            self._left(f"{folder.rstrip('/')}/{name}")
        elif name and not mask & ISDIR and (mask & (CLOSE_WRITE | MOVED_TO) or (mask & CREATE and _is_link(f"{folder}/{name}"))):
            self._tell(f"{folder.rstrip('/')}/{name}", folder=False)

    def _came(self, path: str) -> None:
        """A directory: watched first, and then looked at by whoever takes the event, with all that came before the watch."""
        for below in _directories(path):
            self._watch(below)
        self._tell(path, folder=True)

    def _left(self, path: str) -> None:
        """A directory that has another place now: what happens there is told, if at all, by its new name."""
        for below in [each for each in self._watches if each == path or each.startswith(f"{path}/")]:
            self._libc.inotify_rm_watch(self._fd, self._watches[below])
            self._forget(below)

    def _watch(self, path: str) -> None:
        watch = self._libc.inotify_add_watch(self._fd, os.fsencode(path), WANTED)
        if watch < 0:
            code = ctypes.get_errno()
            if code in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP) and path not in self._roots:
                return  # it has gone meanwhile, or cannot be read, which the next full listing tells
            raise _refused(code, to_text(path))
        if (before := self._paths.get(watch)) is not None and before != path:
            self._watches.pop(before, None)  # the same directory under its new name
        self._paths[watch], self._watches[path] = path, watch

    def _forget(self, path: str) -> None:
        watch = self._watches.pop(path, None)
        if watch is not None and self._paths.get(watch) == path:
            del self._paths[watch]

    def _tell(self, path: str, *, folder: bool) -> None:
        with self._lock:
            self._names[path, folder] = None
            full = len(self._names) > MOST
        if full:
            self._lose()

    def _lose(self) -> None:
        with self._lock:
            self._lost = True
            self._names.clear()


def _directories(root: str) -> Iterator[str]:
    """A directory and all that lie below it; each is given before it is looked into, so that who watches it misses none."""
    waiting = [root]
    while waiting:
        yield (here := waiting.pop())
        with suppress(OSError), os.scandir(here) as found:
            waiting += [item.path for item in found if item.is_dir(follow_symlinks=False)]


def _is_link(path: str) -> bool:
    """Whether a file is there at once, and nobody writes and closes it: a link of either kind."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or status.st_nlink > 1


def _refused(code: int, what: str) -> StorageError:
    if code in (errno.ENOSPC, errno.EMFILE):
        limit = "max_user_watches" if code == errno.ENOSPC else "max_user_instances"
        return StorageError(
            f"cannot watch {what}: the system allows no more. Raise it (sysctl fs.inotify.{limit}=…), or leave events= out."
        )
    return StorageError(f"cannot watch {what}: {os.strerror(code)}. Look at the directory, or leave events= out.")
