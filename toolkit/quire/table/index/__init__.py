"""Indexes: which file group of its partition holds a record key.

`bloom` and `simple` look it up in the newest base files, `bucket` computes it from the key. Other packages bring their own: an entry
point of the group `quire.indexes` names the class. Partitions do not know of each other: a key may be in several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from quire.errors import RefusedError, UsageError, about, choose, quoted
from quire.packaging import Registry
from quire.storage import Store
from quire.table.file_groups import Slice
from quire.table.format.config import TableConfig

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Partition:
    """A partition as an index sees it.

    slices   the newest slice of each of its file groups; an instant later others may be there
    ended    the ids of file groups that were replaced, and must never be used again
    """

    store: Store = field(repr=False)
    config: TableConfig = field(repr=False)
    path: str
    slices: Sequence[Slice] = field(repr=False)
    ended: frozenset[str] = field(default=frozenset(), repr=False)


class Index(Protocol):
    """The interface of an index. Its class is made without arguments, in each task anew, on executors, too."""

    name: str  # as the table names it
    computes: bool  # whether the key alone says the group: then each row has one, and one that nobody has written yet may be named

    def lookup(self, partition: Partition, keys: pa.Array) -> pa.Array:
        """The id of the file group of each key: text, or a dictionary of it; null where no group holds the key.

        `keys`: text, sorted by the bytes of UTF-8, each once, none null or empty. Where an insert has brought a key into several groups,
        the answer is a list of ids for each key, empty for none. A false answer breaks the table: the key would be there twice. Raises
        FormatError for a file that cannot be read.
        """
        ...


_ROOM = "quire.table.index"
_OWN = {name: f"{_ROOM}.{name}:{name.title()}Index" for name in ("bloom", "simple", "bucket")}
REGISTRY = Registry("quire.indexes", "index {!r}", _OWN, needs=("lookup",), flags=("computes",), docs=f"{_ROOM}.Index")
TYPE, BUCKETS, FIELDS = "hoodie.index.type", "hoodie.bucket.index.num.buckets", "hoodie.bucket.index.hash.field"
MOST_BUCKETS = 100_000  # of a partition: each is a file, and Hudi has eight digits for them
# The indexes of JVM Hudi that do more than ours: a key is once in the table, or where it stands is kept elsewhere.
_THEIRS = (
    "GLOBAL_BLOOM", "GLOBAL_SIMPLE", "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "RECORD_LEVEL_INDEX", "HBASE", "INMEMORY", "FLINK_STATE",
)  # fmt: skip


def of(config: TableConfig) -> str:
    """The index that a table names; `bloom` where it names none. RefusedError for one of Hudi's that quire does not keep."""
    said = dict(config.others).get(TYPE, "bloom")
    if said.upper() in _THEIRS:
        raise RefusedError(f"the table {config.name} has Hudi's index {said[:80]}, which quire does not keep: write it with Hudi")
    return said.lower() if said.lower() in _OWN else said


def settings(name: str, buckets: int | None = None) -> dict[str, str]:
    """The settings of a new table with this index, as Hudi names them; `buckets`, of each partition, are for the index bucket alone.

    Raises UsageError for an index that nobody brings, and for a number of buckets that does not fit.
    """
    named(name)
    with about("buckets"):
        if name != "bucket":
            if buckets is not None:
                raise UsageError(f"buckets={quoted(buckets)} is for index='bucket', and the index is {name!r}: leave one of them out.")
            return {TYPE: name.upper() if name in _OWN else name}
        if isinstance(buckets, bool) or not isinstance(buckets, int) or not 0 < buckets <= MOST_BUCKETS:
            raise UsageError(f"index='bucket' needs buckets, a whole number from 1 to {MOST_BUCKETS:,}, and it is {quoted(buckets)}.")
    return {TYPE: "BUCKET", BUCKETS: str(buckets), "hoodie.index.bucket.engine": "SIMPLE"}


def named(name: str) -> Index:
    """The index of this name; UsageError where nobody brings it."""
    found: Any = REGISTRY.make(name) if isinstance(name, str) else None
    if found is None:
        choose(name, REGISTRY.known(), "index")
    made: Index = found
    return made
