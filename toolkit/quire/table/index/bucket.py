"""The bucket index: the key alone says the bucket, and a bucket is a file group of each partition; nothing is looked up.

Source: Hudi's `BucketIdentifier`. The bucket is the remainder of Java's hash of the list of the key's values, and the first eight digits
of the file group's id. Versions of JVM Hudi read some keys differently: those that would come into another bucket there are refused.
A bucket that has no file group yet gets the id that its partition and its number give, so that two commits that write its first rows
conflict; by the partition, as an incremental query of JVM Hudi 0.15 takes files of one id for one, whatever their partitions.
"""

from __future__ import annotations

import hashlib
import re
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import FormatError, RefusedError
from quire.planning.hashing import java_hashes
from quire.table.format.config import TableConfig
from quire.table.index import BUCKETS, FIELDS, MOST_BUCKETS, Partition

_ID = re.compile(r"(\d{8})-.*", re.ASCII)
_NOTHING = pa.array(["__null__", "__empty__"])  # values of a key of several fields that say nothing; their hash is 0


class BucketIndex:
    """See the module."""

    name, computes = "bucket", True

    def lookup(self, partition: Partition, keys: pa.Array) -> pa.Array:
        """See `Index.lookup`."""
        buckets, own = _count(partition), _groups(partition)
        if own and max(own) >= buckets:
            raise FormatError(
                f"the file group {own[max(own)]} of the partition {partition.path[:200]!r} in {partition.store.url} is of a bucket "
                f"beyond the table's {buckets:,}: look who changed {BUCKETS}"
            )
        used, numbers = np.unique(hashes(partition.config, keys) % np.int32(buckets), return_inverse=True)
        ids = [own.get(bucket) or _new(bucket, partition) for bucket in used.tolist()]
        return pa.DictionaryArray.from_arrays(pa.array(numbers.reshape(-1), pa.int32()), pa.array(ids, pa.string()))


def _count(partition: Partition) -> int:
    text = dict(partition.config.others).get(BUCKETS, "")
    if not re.fullmatch(r"\d{1,8}", text, re.ASCII) or not 0 < int(text) <= MOST_BUCKETS:
        raise RefusedError(
            f"{partition.store.url} says {BUCKETS}={text[:80]!r}, and it is a number from 1 to {MOST_BUCKETS:,}: set it right"
        )
    return int(text)


def _groups(partition: Partition) -> dict[int, str]:
    """Bucket → its file group, for those that have rows."""
    found = dict[int, str]()
    for one in partition.slices:
        named = _ID.fullmatch(one.group)
        if named is None:
            raise FormatError(f"{partition.store.url}/{one.name} is not of a bucket, and its table has buckets: look who wrote it")
        other = found.setdefault(int(named[1]), one.group)
        if other != one.group:
            raise FormatError(
                f"the file groups {other} and {one.group} of the partition {partition.path[:200]!r} in {partition.store.url} are of one "
                f"bucket, which has one: look who wrote them"
            )
    return found


def _new(bucket: int, partition: Partition) -> str:
    at = hashlib.blake2b(partition.path.encode(), digest_size=6).hexdigest()
    ids = (f"{bucket:08d}-{at[:4]}-{at[4:8]}-{at[8:]}-{number:012d}-0" for number in count())
    return next(each for each in ids if each not in partition.ended)


def hashes(config: TableConfig, keys: pa.Array) -> npt.NDArray[np.int32]:
    """Java's `List.hashCode` of the values that make each key, without its sign; RefusedError for a key that has no bucket."""
    found = np.ones(len(keys), np.uint32)
    for values in _values(config, keys):
        found = found * np.uint32(31) + java_hashes(values).view(np.uint32)
    return (found & np.uint32(0x7FFFFFFF)).view(np.int32)


def _values(config: TableConfig, keys: pa.Array) -> list[list[str]]:
    """The values of the fields that are hashed; RefusedError for keys that versions of JVM Hudi take apart differently."""
    fields, named = _fields(config), len(config.key) > 1
    parts = [(f"{re.escape(field)}:" if named else "") + f"(?P<f{i}>[^:,]*)" for i, field in enumerate(config.key)]
    found = pc.extract_regex(keys, f"^{','.join(parts)}$")
    if found.null_count:
        raise RefusedError(
            f"the key {keys.filter(pc.is_null(found))[0].as_py()[:80]!r} has no bucket: of values with ':' or ',' versions of Hudi make "
            f"different ones. Create the table with index='bloom'."
        )
    values = [found.field(config.key.index(field)) for field in fields]
    return [(pc.if_else(pc.is_in(each, _NOTHING), "", each) if named else each).to_pylist() for each in values]


def _fields(config: TableConfig) -> list[str]:
    """The fields of the key that are hashed, in the order of the key, whatever the order in which they are named."""
    said = dict(config.others).get(FIELDS, "")
    fields = {field.strip() for field in said.split(",")} if said else set(config.key)
    if unknown := sorted(fields - set(config.key)):
        raise RefusedError(
            f"the table {config.name} has {FIELDS}={said[:200]!r}, and {unknown[0][:80]!r} is not a field of its key "
            f"({', '.join(config.key)[:200]}): set it right"
        )
    return [field for field in config.key if field in fields]
