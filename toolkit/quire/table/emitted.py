"""The state of a table that says how far it was emitted to a topic: entries that are put if absent, each of which holds all of it.

    .hoodie/_quire/emitted/<hash of the target>/<number, 20 digits>.entry

An entry is put after the brokers have acknowledged all records of its commits. So a call that dies before it repeats them, and loses none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from quire.errors import FormatError, NotFoundError, TransientError
from quire.storage import Store
from quire.storage.base import ENTRY, STATE
from quire.table.timeline import Timeline
from quire.table.window import last_of

FOLDER = f"{STATE}/emitted"
VERSION = 1
LOOKS = 5  # at entries that another call deletes meanwhile
_NAME = re.compile(rf"([0-9]{{20}}){re.escape(ENTRY)}")


class Target(NamedTuple):
    """A topic: the cluster's id, the topic's name and its id; one that was made anew is another one."""

    cluster: str
    topic: str
    id: str

    @property
    def folder(self) -> str:
        """Where its entries lie."""
        return f"{FOLDER}/{hashlib.sha256(chr(10).join(self).encode()).hexdigest()[:32]}"


class Emission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The instants that a topic has, of those that are on the table's timeline."""

    version: int
    cluster: str
    topic: str
    id: str
    instants: list[str]


_decoder, _encoder = msgspec.json.Decoder(Emission), msgspec.json.Encoder()


class State(NamedTuple):
    """An entry as it was read: its number (0: there is none), and its instants."""

    number: int = 0
    instants: frozenset[str] = frozenset()


def read(store: Store, target: Target) -> State:
    """How far a topic has come. Raises FormatError for an entry that quire has not written."""
    for _ in range(LOOKS):
        numbers = _numbers(store, target)
        if not numbers:
            return State()
        name = _name(target, max(numbers))
        try:
            found = _decoder.decode(store.get(name))
        except NotFoundError:
            continue  # there is a newer one by now
        except msgspec.MsgspecError as e:
            raise FormatError(f"{store.url}/{name} is damaged ({e}): nothing was emitted. Look who wrote it.") from e
        if found.version != VERSION or (found.cluster, found.topic, found.id) != target:
            raise FormatError(f"{store.url}/{name} is of another topic, or of a newer quire: nothing was emitted. Look who wrote it.")
        return State(max(numbers), frozenset(found.instants))
    raise TransientError(f"{store.url}/{target.folder} changes while it is read. Call again")


def mark(store: Store, target: Target, before: State, emitted: Collection[str], line: Timeline) -> State | None:
    """Say that a topic has some more instants; None: another call has said something since `before` was read.

    An instant that has left the timeline is forgotten, but for the newest one.
    """
    done = before.instants.union(emitted)
    ends = (min(done), last_of(line, done)[1])
    kept = sorted(instant for instant in done if instant >= line.first or instant in ends)
    number = before.number + 1
    name, entry = _name(target, number), Emission(version=VERSION, **target._asdict(), instants=kept)
    written = _encoder.encode(entry)
    store.put_if_absent(name, written)
    try:
        if store.get(name) != written:
            return None
    except NotFoundError:  # a later one is there already
        return None
    for old in _numbers(store, target):
        if old < before.number:  # the one before stays for whoever reads it now
            store.remove(_name(target, old))
    return State(number, frozenset(kept))


def _numbers(store: Store, target: Target) -> list[int]:
    found = (_NAME.fullmatch(entry.name.rpartition("/")[2]) for entry in store.walk(target.folder))
    return [int(match[1]) for match in found if match]


def _name(target: Target, number: int) -> str:
    return f"{target.folder}/{number:020d}{ENTRY}"
