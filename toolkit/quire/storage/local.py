"""Local disk, by plain system calls: on a disk they beat every library several times over.

Put if absent is a temporary file, fsync, `link` and fsync of the directory. A local disk has no conditional read: size and
mtime are compared before and after reading. This misses a file that is rewritten with the same size within one tick of the
file system's clock, or whose mtime is set back by its writer (`rsync -t`, `touch -r`).

Links below the root are followed only where a source is listed. Objects are never read, written or deleted through one: somebody
who may write into a destination must not reach what lies outside of it.

Names on disk are bytes. They are shown as text; a byte that is not UTF-8 is shown as one character of U+F780..U+F7FF (and so
are the bytes of a name that really holds such a character), so that each name has one text and each text one name.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat as stat_bits
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from stat import S_ISREG

from quire.errors import FormatError, NotFoundError, StorageError, TransientError
from quire.storage import aside
from quire.storage.base import (
    LARGEST,
    Busy,
    Content,
    Entry,
    Files,
    Folder,
    ReadRequest,
    Sink,
    Trouble,
    Unreadable,
    Vanished,
    WithoutUploads,
    fits,
    instant,
    safe,
    too_long,
    walked,
)
from quire.storage.durable import BUSY, Folders, LocalSink, explained, not_the_files, sync_folder_of, tries, unlink, write_all
from quire.storage.way import Way, below

WHOLE = 1 << 20  # up to here a file is read by one call; larger ones come as a stream
PIECE = 4 << 20
PAGE = 1_000  # names that are looked at before their files are handed on
PATH_MAX, NAME_MAX = 4096, 255  # bytes of a path with its end, and of one of its parts, on every system that quire runs on at most
# Files are read without a note of it in their inodes, which of new files would all be written once more.
UNTOUCHED = getattr(os, "O_NOATIME", 0)
LINK = "link"  # the version of what is reached through a link, and was not looked at
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

_PRIVATE = re.compile("[\uf780-\uf7ff]")
_ESCAPED = re.compile("[\udc80-\udcff]")


def to_text(name: str) -> str:
    """A name as `os` gives it (undecodable bytes as surrogates) → the text that quire uses."""
    if name.isascii():
        return name
    name = _PRIVATE.sub(lambda m: "".join(chr(0xF700 + b) for b in m[0].encode()), name)
    return _ESCAPED.sub(lambda m: chr(0xF700 + ord(m[0]) - 0xDC00), name)


def to_os(name: str) -> str:
    """The reverse of `to_text`."""
    return name if name.isascii() else _PRIVATE.sub(lambda m: chr(0xDC00 + ord(m[0]) - 0xF700), name)


def version_of(status: os.stat_result) -> str:
    """The version of a file's content: `<mtime in ns>-<size>`."""
    return f"{status.st_mtime_ns}-{status.st_size}"


def _is_folder(item: os.DirEntry[str], follow: bool) -> bool:
    try:
        return item.is_dir(follow_symlinks=follow)
    except OSError:
        return False  # a link to itself, say: looking it up as a file tells the reason


def _is_plain(item: os.DirEntry[str]) -> bool:
    """Whether a name is a file's and not a link's; where that cannot be seen, looking it up tells the reason."""
    try:
        return item.is_file(follow_symlinks=False)
    except OSError:
        return False


def _within(name: str, after: str, until: str) -> bool:
    """Whether a name lies in [after, until)."""
    return name >= after and (not until or name < until)


def _special(name: str) -> Trouble:
    return Trouble(name, "special", "not a regular file (a pipe, a socket or a device)")


def _is_directory(path: str) -> bool:
    """Whether there is a directory; OSError where that cannot be seen just now: `os.path.isdir` says then that there is none."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return stat_bits.S_ISDIR(os.stat(path).st_mode)
    return False


class LocalNames(WithoutUploads):
    """Names below one directory of the local disk, as they are looked up and listed."""

    def __init__(self, root: str, links: bool = False) -> None:
        """`links`: files of a source are read through links, which their listing has followed."""
        self.root, self.links = to_os(root), links
        self.url = "file://" + root
        self._prefix = self.root.rstrip("/") + "/"

    def _path(self, name: str) -> str:
        return self._prefix + to_os(safe(name)) if name else self.root

    def _own(self, name: str) -> str:
        """The path of an object; FormatError where a link on the way to it may lead out of the root."""
        path = self._path(name)
        at = path.find("/", len(self._prefix))
        while at >= 0:
            if os.path.islink(path[:at]):
                raise self._not_followed(to_text(path[len(self._prefix) : at]))
            at = path.find("/", at + 1)
        return path

    def _not_followed(self, name: str) -> FormatError:
        return FormatError(f"{self.shown(name)} is a symbolic link that may lead out of its store: nothing was touched. Look who made it.")

    def stat(self, name: str) -> Entry | None:
        path = self._path(name)
        try:
            with explained("look up", self.shown(name)):
                if self.links or not name:
                    status = os.stat(path)
                else:
                    with below(self.root, to_os(name)) as (folder, last):
                        status = os.stat(last, dir_fd=folder, follow_symlinks=False)
        except NotFoundError:
            return None
        except StorageError as e:
            if isinstance(e.__cause__, NotADirectoryError):
                return Entry(name, 0, LINK, 0) if self._through_link(path) else None
            raise
        if stat_bits.S_ISDIR(status.st_mode):
            return None
        if stat_bits.S_ISLNK(status.st_mode):
            return Entry(name, 0, LINK, instant(status.st_mtime_ns))
        return Entry(name, status.st_size, version_of(status), instant(status.st_mtime_ns))

    def _through_link(self, path: str) -> bool:
        """Whether a directory on the way to what is there is a link."""
        ends = [at for at, c in enumerate(path) if c == "/" and at > len(self._prefix)]
        return os.path.lexists(path) and any(os.path.islink(path[:at]) for at in ends)

    def is_folder(self, name: str = "") -> bool:
        with explained("look up", self.shown(name)):
            return _is_directory(self._path(name))

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        with explained("list", self.shown(folder)), os.scandir(self._path(folder)) as found:
            for item in found:
                name = item.name if item.name.isascii() else to_text(item.name)
                if _is_plain(item):  # nearly all
                    yield name, False
                else:
                    yield name, _is_folder(item, follow) and not (item.is_symlink() and self._loops(item.path))

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        for item in self.scan_pages(folder, after=after, until=until, follow=follow):
            if isinstance(item, Files):
                yield from item.entries()
            else:
                yield item

    def scan_pages(
        self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False
    ) -> Iterator[Files | Entry | Folder | Trouble]:  # fmt: skip
        # The hot loop of a listing: some 3 µs a file, of which the system's look at it takes 2.
        below, every = f"{folder}/" if folder else "", not after and not until
        try:
            pages = self._pages(folder)
            some = next(pages, [])
        except FileNotFoundError:
            return  # it was deleted since its parent was listed
        except OSError as e:
            if e.errno in BUSY:
                raise TransientError(f"cannot list {self.shown(folder)}: {e.strerror}") from e
            not_the_files(e, "list", self.shown(folder))
            yield Trouble(folder, "unreadable", f"cannot list the directory: {e.strerror}")
            return
        while some:
            names, seen = list[str](), list[os.stat_result]()
            for item in some:
                name = item.name if item.name.isascii() else to_text(item.name)
                if not _is_plain(item):
                    yield from self._scanned(item, below + name, every or _within(name, after, until), follow)
                elif every or _within(name, after, until):
                    try:
                        status = item.stat(follow_symlinks=False)
                    except OSError as e:
                        yield from self._missed(item, below + name, e)
                        continue
                    if S_ISREG(status.st_mode):
                        names.append(below + name)
                        seen.append(status)
                    else:
                        yield _special(below + name)  # it took the file's place
            if names:
                sizes, times = [status.st_size for status in seen], [status.st_mtime_ns for status in seen]
                versions = [f"{time}-{size}" for time, size in zip(times, sizes, strict=True)]  # as `version_of` has it
                yield Files(names, sizes, versions, list(map(instant, times)))
            with explained("list", self.shown(folder)):  # what comes behind these nobody knows
                some = next(pages, [])

    def _pages(self, folder: str) -> Iterator[list[os.DirEntry[str]]]:
        """The names in a directory, some at a time; of some file systems it can be opened and not be read."""
        with os.scandir(self._path(folder)) as found:
            while some := list(islice(found, PAGE)):
                yield some

    def _scanned(self, item: os.DirEntry[str], name: str, wanted: bool, follow: bool) -> Iterator[Entry | Folder | Trouble]:
        """Anything but a plain file; `wanted`: its name lies in the range."""
        if item.is_symlink() and not follow:
            yield Trouble(name, "link", "a symbolic link, not followed")
        elif _is_folder(item, follow):
            if item.is_symlink() and self._loops(item.path):
                yield Trouble(name, "link", "a symbolic link to a directory above it")
            else:
                yield Folder(name)
        elif wanted:
            try:
                status = item.stat(follow_symlinks=follow)
            except OSError as e:
                yield from self._missed(item, name, e)
            else:
                yield self._file(name, status)

    def _file(self, name: str, status: os.stat_result) -> Entry | Trouble:
        if not S_ISREG(status.st_mode):
            return _special(name)
        return Entry(name, status.st_size, version_of(status), instant(status.st_mtime_ns))

    def _missed(self, item: os.DirEntry[str], name: str, e: OSError) -> Iterator[Trouble]:
        """A name that could not be looked up: it is told, unless it was deleted since its directory was listed."""
        if not isinstance(e, FileNotFoundError) or item.is_symlink():
            not_the_files(e, "look up", self.shown(name))
            yield _not_looked_up(name, e)

    def _loops(self, path: str) -> bool:
        """Whether a link to a directory points to one of the directories it lies in (as the links above it are resolved)."""
        target = os.path.realpath(path)
        here = os.path.dirname(path)
        while len(here) >= len(self.root):
            if os.path.realpath(here) == target:
                return True
            here = os.path.dirname(here)
        return self.root.startswith(target.rstrip("/") + "/")

    def walk(self, folder: str = "") -> Iterator[Entry]:
        if folder and os.path.islink(self._own(folder)):
            raise self._not_followed(folder)
        yield from walked(self.scan, folder, self.shown)


class LocalFiles(LocalNames):
    """The same, and how files are read."""

    def _open(self, name: str) -> int:
        """Open an object, which is a regular file: a link is not followed, and a pipe in its place does not block."""
        self._path(name)
        try:
            with below(self.root, to_os(name)) as (folder, last):
                fd = os.open(last, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except OSError as e:
            self._own(name)  # says which part of it is a link
            if e.errno == errno.ELOOP:
                raise self._not_followed(name) from e
            raise
        if not S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise FormatError(f"{self.shown(name)} is not a regular file: it was not read. Look who made it.")
        return fd

    def get(self, name: str) -> bytes:
        with explained("read", self.shown(name)), open(self._open(name), "rb") as file:
            if os.fstat(file.fileno()).st_size > LARGEST:
                raise too_long(self.shown(name))
            return file.read()

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with explained("read", self.shown(name)), open(self._open(name), "rb") as file:
            file.seek(start)
            return file.read(length)

    def get_ranges(self, name: str, places: Sequence[tuple[int, int]]) -> list[bytes]:
        with explained("read", self.shown(name)):
            fd, read = self._open(name), os.pread
            try:
                return [read(fd, length, start) for start, length in places]
            finally:
                os.close(fd)

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        # The hot loop of consolidation: locals and bare system calls, about 10 µs a small file.
        fstat, read, close, way, whole = os.fstat, os.read, os.close, Way(self.root), WHOLE
        # Through links only where the listing went through them: what was exchanged for a link since then has changed.
        open_ = (lambda name, flags: os.open(self._prefix + name, flags)) if self.links else way.open
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | UNTOUCHED  # a pipe that took a file's place must not block
        folders, open_in, no_link = ({} if self.links else way.fds).get, os.open, flags | os.O_NOFOLLOW
        try:
            for request in requests:
                name, version, size, start, length = request
                if start or length != size or size > whole:
                    yield request, self._stream(open_, to_os(name), version, start, length)
                    continue
                try:
                    folder, _, last = name.rpartition("/")
                    try:
                        if name.isascii() and (at := folders(folder)) is not None:  # nearly always
                            fd = open_in(last, no_link, dir_fd=at)
                        else:
                            fd = open_(to_os(name), flags)
                    except PermissionError as e:
                        if e.errno != errno.EPERM or not flags & UNTOUCHED:
                            raise
                        flags, no_link = flags & ~UNTOUCHED, no_link & ~UNTOUCHED  # it is somebody else's, who alone may ask for that
                        fd = open_(to_os(name), flags)
                except (FileNotFoundError, NotADirectoryError):
                    yield request, Vanished("vanished")
                    continue
                except OSError as e:
                    not_the_files(e, "read", self.shown(name))
                    yield request, Vanished("changed") if e.errno == errno.ELOOP and not self.links else _refused(e)
                    continue
                try:
                    # Looked at after reading, against what the listing saw before: a file that was changed in between has another
                    # version. One byte more is asked for than there should be: a longer file shows itself.
                    data = read(fd, size + 1)
                    status = fstat(fd)
                except OSError as e:
                    not_the_files(e, "read", self.shown(name))
                    # What took the file's place (a directory, a pipe) cannot be read as a file can.
                    changed = version_of(fstat(fd)) != version
                    yield request, Vanished("changed") if changed else _refused(e)
                    continue
                finally:
                    close(fd)
                if len(data) == size == status.st_size and f"{status.st_mtime_ns}-{size}" == version:
                    yield request, data
                else:
                    yield request, Vanished("changed")
        finally:
            way.close()

    def _stream(self, open_: Callable[[str, int], int], name: str, version: str, start: int, length: int) -> Iterator[bytes]:
        path = self._prefix + name
        try:
            fd = open_(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError) as e:
            raise Vanished("vanished") from e
        except OSError as e:
            if e.errno == errno.ELOOP and not self.links:
                raise Vanished("changed") from e
            raise self._unread(e, path) from e
        try:
            if version_of(os.fstat(fd)) != version:
                raise Vanished("changed")
            end = start + length
            while start < end:
                data = os.pread(fd, min(PIECE, end - start), start)
                if not data:
                    raise Vanished("changed while it was read")
                start += len(data)
                yield data
            if version_of(os.fstat(fd)) != version:
                raise Vanished("changed while it was read")
        except OSError as e:
            raise self._unread(e, path) from e
        finally:
            os.close(fd)

    def _unread(self, e: OSError, path: str) -> Exception:
        """The error that ends a long file's stream: its attempt begins again if only the disk was away for a moment."""
        not_the_files(e, "read", to_text(path))
        return TransientError(f"cannot read {to_text(path)}: {e.strerror}") if e.errno in BUSY else _refused(e)


class LocalStore(LocalFiles):
    """The same, and how they are written (it may be a disk that every worker has mounted)."""

    can_rename = True
    shared = True

    def __init__(self, root: str, links: bool = False) -> None:
        super().__init__(root, links)
        self._folders = Folders()

    def _temporary(self, data: bytes) -> str:
        folder = self._own(f"{self.temporary}/x").rpartition("/")[0]
        self._folders.make(folder)
        path = f"{folder}/{uuid.uuid4().hex}"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        try:
            write_all(fd, data)
            os.fsync(fd)
        except BaseException:
            os.close(fd)
            unlink(path)
            raise
        os.close(fd)
        return path

    def put(self, name: str, data: bytes) -> None:
        path = self._own(name)
        fits(self.shown(name), data)
        with explained("write", self.shown(name)):
            for _ in tries():
                try:
                    self._folders.make(os.path.dirname(path))
                    os.replace(self._temporary(data), path)
                except FileNotFoundError:
                    continue  # a sweep took the temporary file, or a clean-up the directory: write it again
                sync_folder_of(path)
                return
            raise FileNotFoundError(path)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._own(name)
        with explained("write", self.shown(name)):
            for _ in tries():
                try:
                    self._folders.make(os.path.dirname(path))
                    temporary = self._temporary(data)
                except FileNotFoundError:
                    continue
                try:
                    os.link(temporary, path)
                except FileNotFoundError:
                    continue
                except FileExistsError:
                    # The winner may not have come to its fsync: whoever acts on what is there must find it after a power cut.
                    sync_folder_of(path)
                    return False
                finally:
                    unlink(temporary)
                sync_folder_of(path)
                return True
            raise FileNotFoundError(path)

    def create(self, name: str) -> Sink:
        return LocalSink(self._own(name), self.shown(name), self._folders)

    def rename(self, old: str, new: str) -> None:
        source, target = self._own(old), self._own(new)
        if os.path.islink(source):
            raise self._not_followed(old)
        with explained("publish", self.shown(new)):
            self._folders.make(os.path.dirname(target))
            try:
                os.rename(source, target)
            finally:
                # Also where `old` is gone: who renamed it may not have come to its fsync, and our caller acts on what is there.
                sync_folder_of(target)
            sync_folder_of(source)

    def sync(self, name: str) -> None:
        path = self._own(name)
        with explained("make durable", self.shown(name)):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            sync_folder_of(path)

    def sync_folder(self, folder: str) -> None:
        with explained("make durable", self.shown(folder)):
            sync_folder_of(os.path.join(self._own(folder), ""))

    def check_name(self, name: str) -> None:
        path = os.fsencode(self._path(name))
        if len(path) >= PATH_MAX or any(len(part) > NAME_MAX for part in path.split(b"/")):
            raise StorageError(f"cannot write {self.shown(name)[:200]}…: the name is too long for this file system. Choose a shorter one.")

    def check_writable(self) -> None:
        path = self.root
        while not os.path.lexists(path):
            path = os.path.dirname(path)
        with explained("write below", self.url):
            is_directory = _is_directory(path)
        if not is_directory:
            raise StorageError(f"cannot write below {self.url}: {path} is not a directory. Choose another destination.")
        if not os.access(path, os.W_OK | os.X_OK):
            why = "the file system is read-only" if os.statvfs(path).f_flag & os.ST_RDONLY else "no permission"
            raise StorageError(f"cannot write below {self.url}: {why}. Choose a destination that can be written, or ask for the right.")

    def remove(self, name: str) -> None:
        path = self._own(name)
        with explained("remove", self.shown(name)):
            with suppress(FileNotFoundError), below(self.root, to_os(name)) as (folder, last):
                os.unlink(last, dir_fd=folder)
            self._prune(os.path.dirname(path))

    def remove_if(self, name: str, version: str) -> bool:
        self._own(name)
        with explained("remove", self.shown(name)):
            try:
                with below(self.root, to_os(name)) as (folder, _):
                    return aside.remove_if(_OpenDirectory(folder, self.links), name.rpartition("/")[2], version, self.shown(name))
            except FileNotFoundError:
                return True  # its directory is gone

    def give_back(self, private: str, name: str) -> bool:
        self._own(name)
        with explained("put back", self.shown(name)), below(self.root, to_os(name)) as (folder, _):
            return _OpenDirectory(folder, self.links).give(private.rpartition("/")[2], name.rpartition("/")[2])

    def _prune(self, folder: str) -> None:
        """Remove directories of quire's own that have become empty; writers make theirs again."""
        while folder.startswith(f"{self._prefix}{self.state}/") and _rmdir(folder):
            folder = os.path.dirname(folder)

    def remove_tree(self, folder: str) -> None:
        path = self._own(safe(folder))
        with explained("remove", self.shown(folder)):
            for _ in range(10):
                try:
                    # What becomes a link by now, on the way there, is not gone through.
                    with below(self.root, to_os(folder)) as (above, last):
                        if os.path.islink(path):
                            os.unlink(last, dir_fd=above)  # the link alone: what it leads to is not ours
                            return
                        shutil.rmtree(last, dir_fd=above)
                except FileNotFoundError:
                    if not os.path.lexists(path):
                        return  # else another cleaner took a name that we were about to take
                except OSError as e:
                    if e.errno != errno.ENOTEMPTY:  # a late writer put something in: take that too
                        raise
                else:
                    return

    def sweep(self, folder: str) -> None:
        """Temporary files lie in one directory and their writers write them again if they are gone: all can go.

        So can the directories of jobs that are empty, as a writer leaves one that is killed before its first file.
        """
        if not f"{folder}/".startswith(f"{self.state}/"):
            return
        self.remove_tree(self.temporary)
        jobs = f"{self.state}/jobs"
        with explained("clean up", self.shown(jobs)):
            for path, _, _ in os.walk(self._own(jobs), topdown=False):
                if path != self._path(jobs):
                    _rmdir(path)


class _OpenDirectory:
    """A directory that is open, for `storage.aside`: whatever takes its place in the tree meanwhile."""

    def __init__(self, folder: int, links: bool) -> None:
        self._folder, self._links = folder, links

    def version(self, name: str) -> str | None:
        try:
            status = os.stat(to_os(name), dir_fd=self._folder, follow_symlinks=self._links)
        except FileNotFoundError:
            return None
        return version_of(status) if S_ISREG(status.st_mode) else LINK

    def take(self, name: str, private: str) -> None:
        with suppress(FileNotFoundError):
            os.rename(to_os(name), private, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def give(self, private: str, name: str) -> bool:
        at, both = to_os(name), {"src_dir_fd": self._folder, "dst_dir_fd": self._folder}
        try:
            os.link(private, at, follow_symlinks=False, **both)
        except FileNotFoundError:
            return True
        except FileExistsError:
            if not os.path.samestat(*(os.stat(n, dir_fd=self._folder, follow_symlinks=False) for n in (private, at))):
                return False
        except OSError as e:
            if e.errno not in _NO_LINKS:
                raise
            # A directory, or a file system without hard links: a better way does not exist.
            if self.version(private) is not None:
                if self.version(name) is not None:
                    return False
                os.rename(private, at, **both)
            return True
        self.drop(private)
        return True

    def drop(self, private: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(private, dir_fd=self._folder)


def _rmdir(path: str) -> bool:
    """Remove a directory if it is empty."""
    try:
        os.rmdir(path)
    except OSError as e:
        if e.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
            raise
        return False
    return True


def _refused(e: OSError) -> Unreadable:
    return (Busy if e.errno in BUSY else Unreadable)(f"{type(e).__name__}: {e.strerror}")


def _not_looked_up(name: str, e: OSError) -> Trouble:
    if isinstance(e, FileNotFoundError):
        return Trouble(name, "link", "a symbolic link to nothing")
    return Trouble(name, "busy" if e.errno in BUSY else "unreadable", f"cannot look up the file: {e.strerror}")
