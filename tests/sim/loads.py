"""Loads of topics in memory, for the matrix and for races: what lies in them, what becomes of them meanwhile, and the calls of a user."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import quire
from quire.coverage import checkpoint
from quire.storage import connect
from sim.topics import CLUSTER, SERVERS, TOPICS, WITHIN

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ASKED", "DISTINCT", "again", "checked", "distinct", "fill", "happens", "load", "once", "path"]

ASKED = f"kafka://{SERVERS}/events,bound,short"
HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
DISTINCT: dict[str, Any] = {"deduplicate": "key", "within": WITHIN / 1000}
NAMES = ["topic", "partition", "offset", "key", "value"]


def checked(repaired: bool = False) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Records as they are; one whose value begins with a minus is rejected, until the function is repaired."""

    def records(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not repaired and any(value.startswith(b"-") for value in batch.column("value").to_pylist()):
            raise ValueError("it begins with a minus")
        return batch.select(NAMES)

    return records


def path(topic: str, partition: int = 0) -> str:
    """A partition's key in the ledger."""
    return f"kafka://{CLUSTER}/{topic}/{partition}"


def fill(_: object = None) -> None:
    """Records in two partitions, transactions of which one is aborted and one open, and a topic that has lost its beginning already."""
    TOPICS.clear()
    TOPICS.create("events", 2)
    TOPICS.create("bound")
    TOPICS.create("short")
    TOPICS.produce("events", 0, *(b"event %d" % i for i in range(6)), b"-bad", b"event 7")
    TOPICS.produce("events", 1, b"-worse", b"another")
    TOPICS.transaction("bound", 0, b"one", b"two", b"three")
    TOPICS.transaction("bound", 0, b"never", b"-never", commit=False)
    TOPICS.transaction("bound", 0, b"four")
    TOPICS.transaction("bound", 0, b"not yet", commit=None)
    TOPICS.produce("short", 0, *(b"short %d" % i for i in range(9)))
    TOPICS.retain("short", 0, 2)


def wave() -> None:
    """More of everything; what was not loaded of one topic goes, a record is compacted away, and a partition is new."""
    TOPICS.age += 1
    TOPICS.compact("events", 0, 7)
    TOPICS.produce("events", 0, b"late", b"-bad again")
    TOPICS.grow("events")
    TOPICS.produce("events", 2, b"new")
    TOPICS.end("bound", 0, commit=False)
    TOPICS.transaction("bound", 0, b"five", b"six")
    TOPICS.produce("short", 0, b"short 9", b"short 10")
    TOPICS.retain("short", 0, 8)


def load(dest: str, committer: str, **settings: Any) -> quire.LoadReport:
    """One call, with small tasks; what retention has removed is written down."""
    given = {
        "max_quarantined": 1000,
        "target_size": "8000 B",
        "compression": "none",
        "function_version": "1",
        "on_data_loss": "record",
        **HERE,
        **settings,
    }
    return quire.load(ASKED, dest, checked(), committer=committer, **given)


def once(_: str, dest: str, committer: str) -> quire.LoadReport:
    """Load all that is stable."""
    return load(dest, committer)


def again(_: str, dest: str, committer: str) -> None:
    """Load a part; then the rest and what came meanwhile, try again what was rejected, merge, delete what nobody reads any more.

    A script that is started again goes on with what the topics have become by then.
    """
    if not TOPICS.age:
        load(dest, committer, until={("events", 0): 5, ("short", 0): 5, ("bound", 0): 3})
        wave()
    load(dest, committer)
    ledger = quire.Ledger(dest)
    if "retry" not in set(ledger.inspect.history()["verb"]):
        ledger.retry(ASKED, function=checked(repaired=True), committer=committer, max_quarantined=1000, **HERE)
    ledger.compact("20000 B", committer=committer, **HERE)
    ledger.expire()


def distinct(_: str, dest: str, committer: str) -> None:
    """The same with what is known by its key left out; keys are merged in between, and again at the end."""
    if not TOPICS.age:
        load(dest, committer, until={("events", 0): 5, ("short", 0): 5, ("bound", 0): 3}, **DISTINCT)
        load(dest, committer, until={("events", 0): 6, ("short", 0): 6, ("bound", 0): 4}, **DISTINCT)
        wave()
    checkpoint.write(quire.LocalRunner(), dest, None, connect(dest, None))
    load(dest, committer, **DISTINCT)
    ledger = quire.Ledger(dest)
    if "retry" not in set(ledger.inspect.history()["verb"]):
        ledger.retry(ASKED, function=checked(repaired=True), committer=committer, max_quarantined=1000, **HERE)
    ledger.compact("20000 B", committer=committer, **HERE)
    checkpoint.write(quire.LocalRunner(), dest, None, connect(dest, None))
    TOPICS.produce("events", 1, b"again", b"longer", b"event 1")
    load(dest, committer)


def happens(change: str, i: int, edition: int) -> None:
    """To a topic, while loaders race: one of the edits that `load_races` draws."""
    topic, partition = (("events", 0), ("events", 1), ("bound", 0), ("short", 0))[i % 4]
    if change in ("produce", "abort", "open") and topic == "bound":
        TOPICS.transaction(topic, 0, b"%s %d" % (change.encode(), edition), commit={"produce": True, "abort": False}.get(change))
    elif change in ("produce", "abort", "open"):
        TOPICS.produce(topic, partition, b"%s %d" % (change.encode(), edition), b"-rejected %d" % edition)
    elif change == "end":
        TOPICS.end("bound", 0, commit=i % 2 == 0)
    elif change == "compact":
        TOPICS.compact(topic, partition, i)
    elif change == "retain":
        TOPICS.retain(topic, partition, i)
    else:
        TOPICS.grow("events")
        TOPICS.produce("events", len(TOPICS.topics["events"]) - 1, b"in a new one")
