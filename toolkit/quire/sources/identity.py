"""Files known by their content: a hash of it is their version, where a store's own is only a time and a size.

`rsync -t` or `touch -r` may leave another content under the size and the time of before; a file that was copied again has another time and
the content of before. With `change_detection="content"` the first is seen and the second
does not count as a change. It costs reading every file that is listed.

A split is read on condition of both: of the version that the store tells, which is planned beside the hash, and of the hash itself, since
what is read is hashed on its way. The ledger keeps the hash alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import xxhash

from quire.storage.base import Content, Entry, ReadRequest, Store, Stream, Trouble, Unreadable, Vanished

IDENTITIES = ("store", "content")
_PREFIX = "xxh3-128:"


def by_content(version: str) -> bool:
    """Whether a version of the ledger is a hash of content."""
    return version.startswith(_PREFIX)


def with_stored(version: str, stored: str) -> str:
    """The version by which a split is planned: the ledger's and the store's."""
    return f"{version} {stored}"


def identified(store: Store, entries: list[Entry]) -> Iterator[tuple[Entry, str] | Trouble]:
    """Each file with the hash of its content as version, and the store's version; those that vanish meanwhile are deferred."""
    requests = (ReadRequest(e.name, e.version, e.size, 0, e.size) for e in entries)
    with closing(store.read_many(requests)) as answers:  # type: ignore[type-var]  # a store's answers are a generator
        for entry, (_, content) in zip(entries, answers, strict=True):
            try:
                digest, size = xxhash.xxh3_128(), 0
                for piece in _pieces(content):
                    digest.update(piece)
                    size += len(piece)
            except Vanished:
                continue  # the next listing finds what it has become
            except Unreadable as e:
                yield Trouble(entry.name, "unreadable", str(e))
            else:
                yield entry._replace(version=_version(digest, size)), entry.version


def _version(digest: Any, size: int) -> str:
    return f"{_PREFIX}{digest.hexdigest()}-{size}"


def _pieces(content: Content) -> Iterator[bytes]:
    if isinstance(content, Vanished | Unreadable):
        raise content
    if isinstance(content, bytes):
        yield content
    else:
        yield from content


class ByContent:
    """A store of which files are read on condition of their content, too: requests name both versions, and answers the ledger's."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self._stored = dict[str, tuple[str, str]]()  # of the files that are being read in parts: the ledger's version and the store's

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)

    def stat(self, name: str) -> Entry | None:
        """The file; of one that is being read, with the ledger's version as long as the store's is what it was."""
        entry = self.inner.stat(name)
        version, stored = self._stored.get(name, ("", None))
        return entry._replace(version=version) if entry is not None and entry.version == stored else entry

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        """See `Store.read_many`. Splits that were planned by the store's version alone are read as in the store itself."""
        asked = deque[ReadRequest]()
        plain = (request._replace(version=self._split(request)[1]) for request in _kept(requests, asked))
        with closing(self.inner.read_many(plain)) as answers:  # type: ignore[type-var]  # a store's answers are a generator
            for _, content in answers:
                request = asked.popleft()
                version, stored = self._split(request)
                found = request._replace(version=version)
                if version == stored:
                    yield found, content
                elif isinstance(content, bytes) and len(content) == request.size:
                    same = _version(xxhash.xxh3_128(content), len(content)) == version
                    yield found, content if same else Vanished("changed")
                elif isinstance(content, Vanished | Unreadable):
                    yield found, content
                else:
                    before = self._stored.get(request.name)
                    self._stored[request.name] = version, stored
                    if isinstance(content, bytes) or request.length < request.size:
                        yield found, content
                    else:
                        yield found, _checked(content, version)
                    if before is None:
                        del self._stored[request.name]

    def _split(self, request: ReadRequest) -> tuple[str, str]:
        """The ledger's version and the store's; of a file that is being read, whoever asks for more of it knows the first alone."""
        if not by_content(request.version):
            return request.version, request.version
        known, _, stored = request.version.partition(" ")
        version, being_read = self._stored.get(request.name, ("", ""))
        return known, stored or (being_read if known == version else "")


def _kept(requests: Iterable[ReadRequest], asked: deque[ReadRequest]) -> Iterator[ReadRequest]:
    for request in requests:
        asked.append(request)
        yield request


def _checked(content: Stream, version: str) -> Iterator[bytes]:
    digest, size = xxhash.xxh3_128(), 0
    for piece in content:
        digest.update(piece)
        size += len(piece)
        yield piece
    if _version(digest, size) != version:
        raise Vanished("changed while it was read")
