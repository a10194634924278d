"""An independent witness: what a consumer of its own finds in a topic, against what lies in files. Nothing here is quire's.

>>> must = look(cluster, "events")
>>> account(must, parquet(folder))
1,000 expected, 0 lost, 0 double, 0 other
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from services.kafka import Kafka

__all__ = ["Account", "Content", "Position", "account", "by_value", "lines", "look", "parquet", "values"]


class Position(NamedTuple):
    topic: str
    partition: int
    offset: int


class Content(NamedTuple):
    key: bytes | None
    value: bytes | None


class Account(NamedTuple):
    """By position, or by value. One that is there three times is twice in `double`."""

    expected: int
    lost: list[Any]
    double: list[Any]
    other: list[Any]  # what nobody wrote, or with another content

    @property
    def exact(self) -> bool:
        return not (self.lost or self.double or self.other)

    def __repr__(self) -> str:
        told = {"lost": self.lost, "double": self.double, "other": self.other}
        some = "".join(f"; {name}: {', '.join(map(str, sorted(found, key=str)[:3]))}" for name, found in told.items() if found)
        return f"{self.expected:,} expected, {', '.join(f'{len(found):,} {name}' for name, found in told.items())}{some}"


def look(cluster: Kafka, *topics: str, isolation: str = "read_committed") -> dict[Position, Content]:
    """All that such a reader sees in the topics now."""
    return {
        Position(topic, message.partition(), message.offset()): Content(message.key(), message.value())
        for topic in topics
        for message in cluster.read(topic, isolation=isolation)
    }


def parquet(folder: Path, names: Iterable[str] | None = None) -> Counter[tuple[Position, Content]]:
    """The rows of these files below the folder; without `names`, of all that a plain reader of directories takes."""
    columns = ["topic", "partition", "offset", "key", "value"]
    found = Counter[tuple[Position, Content]]()
    for path in _files(folder, names):
        for batch in pq.ParquetFile(path).read(columns).select(columns).to_batches():
            found.update((Position(*row[:3]), Content(*row[3:])) for row in zip(*map(pa.Array.to_pylist, batch.columns), strict=True))
    return found


def lines(folder: Path, names: Iterable[str] | None = None) -> Counter[bytes]:
    """The lines of these files, or of all; of compressed ones by the ends of their names."""
    found = Counter[bytes]()
    for path in _files(folder, names):
        with pa.input_stream(str(path)) as content:
            found.update(content.read().split(b"\n")[:-1])
    return found


def account(
    must: Mapping[Position, Content], held: Mapping[tuple[Position, Content], int], may: Mapping[Position, Content] | None = None
) -> Account:
    """What must be there, and of each position once; what may be there, too, was seen before retention or compaction took it away."""
    return _account(Counter(must.items()), held, Counter({**(may or {}), **must}.items()))


def by_value(must: Mapping[Position, Content], held: Mapping[bytes, int], may: Mapping[Position, Content] | None = None) -> Account:
    """The same of lines, which do not say where they come from: each as often as it was written. A tombstone is no line."""
    return _account(values(must), held, values(may or {}) | values(must))


def values(records: Mapping[Position, Content]) -> Counter[bytes]:
    return Counter(content.value for content in records.values() if content.value is not None)


def _account(must: Counter[Any], held: Mapping[Any, int], may: Counter[Any]) -> Account:
    lost = [one for one, n in must.items() for _ in range(n - held.get(one, 0))]
    double = [one for one, n in held.items() if one in may for _ in range(n - may[one])]
    return Account(must.total(), lost, double, [one for one, n in held.items() if one not in may for _ in range(n)])


def _files(folder: Path, names: Iterable[str] | None) -> Iterator[Path]:
    """Spark, Hive and Hadoop pass by what begins with `_` or a dot."""
    if names is not None:
        yield from (folder / name for name in names)
        return
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
            yield path
