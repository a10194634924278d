"""What kinds of stores promise, as switches. Another kind is another line in `KINDS`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quire.storage import within

if TYPE_CHECKING:
    from sim.wire import Opens


@dataclass(frozen=True, repr=False)
class Kind:
    """A kind of store: what it promises, and so what may go wrong in it."""

    name: str
    offers: frozenset[str] = frozenset({"rename"})  # ways to publish; a committer needs one of them
    uploads: str = ""  # "apart": each has an id, by which it is given up | "blocks": they wait on the name, where completing drops the rest
    rename: str = "atomic"  # "atomic" | "copy": the client copies and deletes, which others see half done
    put_if_absent: str = "atomic"  # "atomic" | "look": look first, then put, and others may come in between
    streams: str = "seen"  # an object that is being written is "seen" (disk, HDFS) or "hidden" until it is closed (objects)
    lag: int = 0  # operations of anybody for which listings may miss what another client has made
    reorders: bool = False  # listings come in any order
    disk: bool = False  # the local store by real system calls; what was not fsynced goes in a power cut
    service: Opens | None = None  # a real one, which keeps its promises itself: where a new and empty place on it is opened
    table: bool = False  # the destination is a table, and what is quire's in it lies below `.hoodie/_quire/`

    def __repr__(self) -> str:
        return f"TABLES[{self.name.removeprefix('table on ')!r}]" if self.table else f"KINDS[{self.name!r}]"

    @property
    def url(self) -> str:
        return "" if self.real else self.marked("memory://dest")  # what is real lies where its world makes it

    def marked(self, url: str) -> str:
        """The URL as the destination of this kind."""
        return within.marked(url) if self.table else url

    @property
    def real(self) -> bool:
        """System calls, or requests to a service, are its operations."""
        return self.disk or self.service is not None


def _offers(*ways: str) -> frozenset[str]:
    return frozenset(ways)


_ALL = (
    Kind("objects", streams="hidden", reorders=True),  # strongly consistent, with a rename: what the memory store is
    Kind("hdfs"),  # a file is seen while it is written; the namenode renames, and lists what is there
    Kind("adls", streams="hidden"),  # hierarchical names: rename is a step; a flush shows the whole
    Kind("nfs", lag=25, reorders=True),  # rename is a step; another client's listing is from its cache
    Kind("disk", disk=True),
    Kind("s3", _offers("upload", "copy"), "apart", rename="copy", streams="hidden", reorders=True),
    Kind("azure", _offers("upload", "copy"), "blocks", rename="copy", streams="hidden", reorders=True),
)
KINDS = {kind.name: kind for kind in _ALL}


def of_tables(kind: Kind) -> Kind:
    """The same store where the destination is a table: all that is quire's is the same there, but for its place."""
    return kind if kind.table else replace(kind, name=f"table on {kind.name}", table=True)


TABLES = {kind.name: of_tables(kind) for kind in _ALL}

# No quire may work on these: the tests must find out. (Both claim to be fit: `can_rename` and the answers of puts.)
UNFIT = {
    kind.name: kind
    for kind in (
        Kind("copies", rename="copy"),
        Kind("looks first", put_if_absent="look"),
    )
}
