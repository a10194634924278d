"""File systems of fsspec (SFTP, FTP, HTTP, SMB, archives …): their URLs, how one is opened, what it says of a file, and its errors.

A URL that goes through an archive (`zip://inner::sftp://host/a.zip`) has the archive, quoted, in the place of a host:
`zip://sftp%3A%2F%2Fhost%2Fa.zip/inner`. So a name below a place is its URL, a slash and the name, as in all stores.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote, urlsplit

import xxhash

from quire.errors import NotFoundError, StorageError, TransientError, UsageError, hide, scrub
from quire.storage.base import Entry, instant
from quire.storage.http import BUSY, for_now, unanswered
from quire.storage.options import names

KEPT = 4  # file systems of a store that wait for their next use
# Schemes of fsspec that name no place by themselves, or for which quire has its own store.
_OTHERS = frozenset((
    "arrow_hdfs", "asynclocal", "asyncwrapper", "async_wrapper", "blockcache", "cached", "dask", "data", "dir", "file", "filecache",
    "generic", "hdfs", "local", "memory", "pyscript", "reference", "simplecache",
))  # fmt: skip
_COPIES = frozenset(("blockcache", "cached", "filecache", "simplecache"))
_REVISIONS = ("git", "github")  # in whose URLs a repository and its revision stand as user, password and host
_LINK = re.compile(r"//(?:[^/@\[]*@)?\[[^\]/]*\]|(::)")
_UNPACKERS = (
    "zipfile", "tarfile", "gzip", "bz2", "lzma", "zlib", "_compression", "compression.", "libarchive", "fsspec.implementations.zip",
    "fsspec.implementations.tar", "fsspec.implementations.libarchive",
)  # fmt: skip
_SECRETS = ("password", "passwd", "secret", "token", "key")
# What tells one content of a file from another, as the file systems call it. Not the time of the last access, which a read changes.
_STAMPS = (
    "etag", "content-md5", "digest", "md5", "md5hash", "crc", "crc32c", "chksum", "checksum", "sha", "sha1", "sha256", "content_hash",
    "blob_id", "generation", "rev", "version_id", "versionid", "unique", "ino",
)  # fmt: skip
_TIMES = ("last-modified", "lastmodified", "last_modified", "mtime", "modified", "modification_time", "updated", "modify", "date_time")
_SAFE = "!$&'()*+,;=:@-._~"  # of RFC 3986's pchar: what stands unquoted in a part of a URL


# ------------------------------------------------------------------------------------------------------------------------- URLs
def knows(scheme: str) -> bool:
    """Whether fsspec has a file system for URLs of this scheme."""
    from fsspec.registry import known_implementations, registry

    return scheme not in _OTHERS and (scheme in known_implementations or scheme in registry)


def _class(scheme: str) -> Any:
    from fsspec import get_filesystem_class

    try:
        return get_filesystem_class(scheme)
    except (ImportError, ValueError) as e:
        raise UsageError(f"{scheme}:// needs another package: {scrub(str(e).rstrip('.'), 200)}.") from None


def by_url(scheme: str) -> bool:
    """Whether the names of a file system are parts of URLs, quoted, as they are by HTTP."""
    return "://" in str(_class(scheme)._strip_protocol(f"{scheme}://host/name"))


def normalise(scheme: str, rest: str) -> str:
    """One URL for one place, from what follows `scheme:`. Raises UsageError."""
    said = scrub(re.sub(r"\?.*", "?…", f"{scheme}:{rest}", flags=re.DOTALL), 200)
    first, *chain = _links(f"//:{rest}" if rest.startswith(":") else rest)
    if chain:
        return "/".join([f"{scheme}://{quote(_archive(chain, said), safe='')}", *names(said, first.strip("/"))])
    authority, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest.lstrip("/"))
    if _is_archive(authority):
        return "/".join([f"{scheme}://{quote(_archive(_links(unquote(authority)), said), safe='')}", *names(said, path)])
    of_urls = by_url(scheme)
    if of_urls and (not authority or "@" in authority or "?" in f"{authority}/{path}" or "#" in path):
        raise UsageError(
            f"{said!r} is not the URL of a directory: scheme://host/path, without a user, a query or a fragment. Quote '?' as %3F."
        )
    if _secret(scheme, authority, path):
        raise UsageError(f"{said!r} carries a secret, and a URL is written into reports. Give it in the options of the source.")
    if of_urls:
        return "/".join([f"{scheme}://{authority.lower()}", *(as_url(name) for name in names(said, path))])
    return "/".join([f"{scheme}://{authority}", *names(said, path)])


def _links(url: str) -> list[str]:
    """The parts of a chain, which `::` joins: the one in the brackets of a host's address does not."""
    ends = [match.start() for match in _LINK.finditer(url) if match[1]]
    return [url[begin:end] for begin, end in zip([0, *(end + 2 for end in ends)], [*ends, len(url)], strict=True)]


def _secret(scheme: str, authority: str, path: str) -> bool:
    """Whether a URL carries a secret, as far as its file system or its words tell."""
    query = f"{authority}/{path}".partition("?")[2]
    if hide(query) != query or (":" in authority.rpartition("@")[0] and scheme not in _REVISIONS):
        return True
    try:
        given = _class(scheme)._get_kwargs_from_urls(f"{scheme}://{authority}/")
    except ValueError:
        return False  # its package is missing, or it is not a URL: who opens it says so
    return any(value and any(word in name.lower() for word in _SECRETS) for name, value in given.items())


def as_url(name: str) -> str:
    """The last part of a URL in its one spelling."""
    return quote(unquote(name), safe=_SAFE)


def _archive(chain: list[str], said: str) -> str:
    """The URL of an archive, from the links of a chain; a file on disk by its whole path."""
    *between, last = chain
    if not last:
        raise UsageError(f"{said!r} names no archive behind '::'. Write for example zip://inner::sftp://host/a.zip.")
    for link in chain:
        kind, colon, rest = link.partition("://")
        authority, _, path = rest.partition("/")
        if kind.lower() in _COPIES:
            raise UsageError(f"{said!r} goes through {kind}, whose copy may be an old one. Leave that out.")
        if colon and (_secret(kind.lower(), authority, path) or (kind.lower() in ("http", "https") and ("@" in authority or "?" in rest))):
            raise UsageError(
                f"{said!r} carries a secret, or a user or query that may be one, and a URL is written into reports. Give it in the options "
                f"of the source, or copy the archive to another place."
            )
        if colon and "[" in authority:
            raise UsageError(f"{said!r} has an address in brackets behind '::', which fsspec does not take. Write the host's name.")
    kind, colon, path = last.partition("://")
    if not colon or kind.lower() == "file":
        last = "file://" + os.path.abspath(os.path.expanduser(path if colon else last))
    return "::".join([*between, last])


def _is_archive(authority: str) -> bool:
    return "%3A%2F%2F" in authority.upper()


def parts(url: str) -> tuple[str, str, str]:
    """A normalised URL → its scheme, the URL that fsspec opens, and the path below that."""
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    opened = f"{scheme}://::{unquote(authority)}" if _is_archive(authority) else f"{scheme}://{authority}/"
    return scheme, opened, path


# ----------------------------------------------------------------------------------------------------------------- file systems
class Changed(TransientError):
    """An archive was written while it was in use, so its directory and its bytes may be of two contents."""


class Unusable(StorageError):
    """One file may not be read, or cannot be unpacked; others may well be."""


class Opened(NamedTuple):
    """A file system, and the path that all others are below; of an archive also its file, and how that was before it was opened."""

    fs: Any
    base: str
    file: tuple[Any, str] | None = None  # the file system that has the archive, and its path there
    was: Entry | None = None


class FileSystems:
    """File systems of one place, for one thread each: few of fsspec's may be used by several at once.

    A fork begins with connections of its own. No listing is kept, so each answer is the server's. Those of archives do keep the directory
    that they read when they were opened: they are used as long as the archive's file is the same, and what was done meanwhile counts only
    if it is the same afterwards.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        if "fo" in options:  # nobody would look at that file
            raise UsageError("an archive stands in the URL, as in zip://inner::sftp://host/a.zip, and not in the option fo.")
        self.scheme, self.opens, _ = parts(url)
        self.options = {name: value for name, value in options.items() if name != "max_concurrency"}
        self.chained = self.opens.startswith(f"{self.scheme}://::")
        self.shown = url
        self._idle, self._process, self._lock = list[Opened](), os.getpid(), threading.Lock()

    @contextmanager
    def one(self, what: str, *, reads: bool = False) -> Iterator[tuple[Any, str]]:
        """A file system, and the path that all others are below. `what` was wanted, for errors, which are explained here.

        `reads`: bytes of files. A directory is the one that was read when the archive was opened, and need not be looked at again.
        """
        found = None
        try:
            found, new = self._taken(), False
            if found is None:
                found, new = self._opened(what), True
            _forget_listings(found.fs)
            yield found.fs, found.base
            if new or reads:
                self._check(found, what)
        except FileNotFoundError as e:
            self._check(found, what)
            if _absent(e):
                self._give(found)
                raise NotFoundError(f"{what}: it is not there") from None
            raise self._explained(what, e.__cause__ or e) from None
        except (StorageError, UsageError):
            raise
        except Exception as e:  # of any file system, which is not used again
            self._check(found, what)
            raise self._explained(what, e) from None
        else:
            self._give(found)

    def _taken(self) -> Opened | None:
        with self._lock:
            if self._process != os.getpid():
                self._idle, self._process = [], os.getpid()
            found = self._idle.pop() if self._idle else None
        return None if found is not None and found.file is not None and _told(found.file) != found.was else found

    def _give(self, found: Opened | None) -> None:
        if found is None or (found.file is not None and not (found.was and found.was.version)):
            return  # an archive of which nothing tells whether it is still the same
        with self._lock:
            if self._process == os.getpid() and len(self._idle) < KEPT:
                self._idle.append(found)

    def _opened(self, what: str) -> Opened:
        from fsspec.core import url_to_fs

        _class(self.scheme)
        file = was = None
        try:
            if self.chained:
                last = self.opens.rpartition("::")[2]
                file = url_to_fs(last, skip_instance_cache=True, **self.options.get(last.partition("://")[0], {}))  # type: ignore[arg-type]
                was = _told(file)
            fs, base = self._by_address() if "://[" in self.opens else url_to_fs(self.opens, skip_instance_cache=True, **self.options)
        except (TypeError, ValueError) as e:
            raise UsageError(f"cannot open {self.shown}: {self._said(e)}. Look at the URL and at the options of the source.") from None
        except Exception:
            self._check(Opened(None, "", file, was), what)
            raise
        return Opened(fs, base if base.endswith("/") or not base else f"{base}/", file, was)

    def _by_address(self) -> tuple[Any, str]:
        """A host by its address in brackets, which fsspec takes for a chain of URLs."""
        made = _class(self.scheme)
        given = {**made._get_kwargs_from_urls(self.opens), **self.options}
        if "host" in given:
            given["host"] = urlsplit(self.opens).hostname
        return made(skip_instance_cache=True, **given), made._strip_protocol(self.opens)

    def _check(self, found: Opened | None, what: str) -> None:
        """Raise Changed if an archive is not what it was before it was opened."""
        try:
            same = found is None or found.file is None or _told(found.file) == found.was
        except Exception as e:  # of any file system
            raise self._explained(what, e) from None
        if not same:
            raise Changed(f"{what}: the archive was written meanwhile")

    def _said(self, error: BaseException) -> str:
        """An error's words without the value of any option."""
        text = str(error).rstrip(".")
        for value in sorted(set(_spellings(self.options)), key=len, reverse=True):  # else the rest of a longer one would stay
            if len(value) > 3:
                text = text.replace(value, "***")
        return scrub(text, 200) or type(error).__name__

    def _explained(self, what: str, error: BaseException) -> StorageError | UsageError:
        status, name = _status(error), type(error).__name__
        host = self.opens.partition("://")[2].rpartition("@")[2].rstrip("/")
        if (self.chained and _unpacks(error)) or name == "TooManyRedirects":
            return Unusable(f"{what}: {name}: {self._said(error)}. Look at the source.")
        if status in BUSY:
            return TransientError(f"{what}: the service did not manage it ({status})")
        signed_out = status == 530 or "Authentication" in name or "BadHostKey" in name or "No authentication" in str(error)
        if signed_out or isinstance(error, PermissionError) or status in (401, 403):
            return (StorageError if signed_out else Unusable)(
                f"{what}: no permission ({self._said(error)}). Ask for the right, or look at the options of the source."
            )
        if isinstance(error, ImportError):
            return UsageError(f"{what}: another package is needed: {self._said(error)}.")
        why, innermost = unanswered(error)
        if why == "no host":
            return StorageError(f"{what}: unknown host ({host}). Check the URL, or the network.")
        if why in ("no tls", "no trust", "proxy"):
            return StorageError(f"{what}: no connection to {host} that can be trusted ({innermost}). Look at the URL and the proxy.")
        if _passes(error):
            return for_now(what, host, why, innermost)
        return StorageError(f"{what}: {name}: {self._said(error)}. Look at the source.")


def _spellings(options: object) -> Iterator[str]:
    """The values in options, however deep, as texts may have them."""
    if isinstance(options, Mapping):
        options = list(options.values())
    if isinstance(options, list | tuple | set | frozenset):
        for each in options:
            yield from _spellings(each)
    elif isinstance(options, bytes):
        yield from _spellings(options.decode(errors="replace"))
        yield from (repr(options)[2:-1], quote(options), quote(options, safe=""), quote_plus(options))
    elif isinstance(options, str | int | float) and not isinstance(options, bool):
        text = str(options)
        yield from (text, repr(text)[1:-1], quote(text), quote(text, safe=""), quote_plus(text))


def _forget_listings(fs: Any) -> None:
    with suppress(AttributeError):
        fs.dircache.clear()
    fs.invalidate_cache()


def _told(file: tuple[Any, str]) -> Entry | None:
    """An archive's own file as it is now; None: it is gone, or nothing tells how long it is."""
    fs, path = file
    _forget_listings(fs)
    try:
        return entry("", looked_up(_scheme(fs), fs, path))
    except FileNotFoundError:
        return None


def _scheme(fs: Any) -> str:
    return str(fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0])


def _status(error: BaseException) -> int:
    """The code of an answer by HTTP, or by FTP."""
    found = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    if not found and type(error).__module__ == "ftplib" and (match := re.match(r"\d{3}", str(error))):
        found = int(match[0])
    return found if isinstance(found, int) else 0


def _passes(error: BaseException) -> bool:
    """Whether another try may end otherwise."""
    status = _status(error)
    if status:
        return 400 <= status < 500 and type(error).__module__ == "ftplib"  # there they are what passes
    known = ("SSHException", "ClientError", "ServerDisconnectedError", "ClientPayloadError", "RequestException", "NoValidConnectionsError")
    return isinstance(error, ConnectionError | TimeoutError | EOFError) or any(c.__name__ in known for c in type(error).__mro__)


def _unpacks(error: BaseException) -> bool:
    """Whether it comes from what unpacks an archive, and not from what brings its bytes, or from a memory that is full."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    module = str(at.tb_frame.f_globals.get("__name__")) if at is not None else ""
    return module.startswith(_UNPACKERS) and not isinstance(error, MemoryError) and not (isinstance(error, OSError) and error.errno)


def _absent(error: FileNotFoundError) -> bool:
    """Whether it says that a file is not there, and not that a file system has made that of an error of another kind."""
    cause = error.__cause__
    return cause is None or isinstance(cause, LookupError | FileNotFoundError | StopIteration) or _status(cause) in (404, 410, 450, 550)


# ----------------------------------------------------------------------------------------------------------- what is said of a file
def entry(name: str, info: Mapping[str, Any]) -> Entry | None:
    """A file, from what a file system says of it; None where it does not say how long it is.

    Its version is empty where nothing tells one content of it from another.
    """
    size = info.get("size")
    if type(size) is not int or not 0 <= size < 1 << 63:
        return None
    told = {str(key).lower(): value for key, value in info.items() if value not in (None, "", 0)}
    if isinstance(listed := told.get("modify"), str) and not re.match(r"\d{14}", listed):
        del told["modify"]  # as `ls` shows it: to the minute, and otherwise after half a year
    facts = [f"{key}={told[key]}" for key in (*_STAMPS, *_TIMES) if key in told]
    said = " ".join(facts).encode(errors="backslashreplace")  # an etag may hold half of a character
    version = f"{xxhash.xxh3_64_hexdigest(said)}-{size}" if facts else ""
    return Entry(name, size, version, next((at for key in _TIMES if (at := _moment(told.get(key)))), 0))


def _moment(value: Any) -> int:
    """A time as a file system tells it → ns since 1970; 0: not known."""
    if isinstance(value, str):
        found = _parsed(value)
        if found is None:
            return 0
        value = found
    if isinstance(value, datetime):
        value = value.replace(tzinfo=value.tzinfo or UTC)
        return instant(int(value.timestamp()) * 1_000_000_000 + value.microsecond * 1000)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value if isinstance(value, float) else 0):
        return instant(int(value * 1_000_000_000) if value < 1e11 else int(value * 1_000_000))  # seconds, or ms
    return 0


def _parsed(text: str) -> datetime | None:
    tries: tuple[Callable[[str], datetime], ...] = (
        lambda text: datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC), datetime.fromisoformat, parsedate_to_datetime,
    )  # fmt: skip
    for read in tries:
        with suppress(ValueError, TypeError):
            return read(text)
    return None


# How one file is looked up where `info` of the file system lists its whole directory; None: the server does not know it.
def _by_ftp(fs: Any, path: str) -> dict[str, Any] | None:
    """MLST (RFC 3659)."""
    from ftplib import error_perm

    try:
        lines = fs.ftp.sendcmd(f"MLST {path}").split("\n")
    except error_perm as e:
        if _status(e) == 550:
            raise FileNotFoundError(path) from e
        return None
    facts = dict(fact.partition("=")[::2] for fact in lines[1].strip().split(" ")[0].lower().split(";") if "=" in fact)
    kind = {"dir": "directory", "cdir": "directory", "pdir": "directory"}.get(facts["type"], facts["type"])
    return {**facts, "name": path, "type": kind, "size": int(facts.get("size", 0))}


_LOOKS: dict[str, Callable[[Any, str], dict[str, Any] | None]] = {"ftp": _by_ftp}


# Where a link leads to, for file systems that follow links.
_LEADS: dict[str, Callable[[Any, str], str]] = {scheme: lambda fs, path: str(fs.ftp.normalize(path)) for scheme in ("sftp", "ssh")}


def real(scheme: str, fs: Any, path: str) -> str:
    """A path without links; empty where the server does not tell it."""
    return _LEADS[scheme](fs, path) if scheme in _LEADS else ""


def looked_up(scheme: str, fs: Any, path: str) -> Mapping[str, Any]:
    """The facts that a file system tells of one path; FileNotFoundError."""
    found = _LOOKS[scheme](fs, path) if scheme in _LOOKS else None
    return found if found is not None else fs.info(path)
