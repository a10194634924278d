"""The archive of a log: old entries, ten thousand in one object, so that a log of many years has few objects.

An object has the entries as they stood, each with its row of the history. It is put if absent, after the one before it, and never
deleted; its entries are, once it is there. For a number that is archived the archive alone counts: a writer that has slept since may put
another entry under the free name. So whoever has asked for an entry looks *after* that whether its number is archived, and takes what the
archive says where it is. `archiving` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit import names
from quire.commit.history import HISTORY
from quire.errors import FormatError, NotFoundError
from quire.formats.parquet import DAMAGED, OwnParquet, stored
from quire.storage import Entry, Store

BLOCK = 10_000  # entries in an object: a number says which one has it, so this never changes
GROUP = 100  # entries in a row group: for one of them no more is read
ARCHIVED = pa.schema([*HISTORY, pa.field("entry", pa.binary(), False)])


def last_of(number: int) -> int:
    """The last entry of the object in which an entry is archived, sooner or later."""
    return -(-number // BLOCK) * BLOCK


class Archive:
    """The archive of the log at `store`; the entries up to `head` are in it, as far as is known here."""

    def __init__(self, store: Store, head: int = 0) -> None:
        self.store, self.head = store, head
        self._held: tuple[int, list[bytes]] = 0, []  # the first number of a row group, and its entries

    def has(self, number: int) -> bool:
        """Whether an entry is archived: one request, where it was not known."""
        if number > self.head and self.store.stat(names.archived(last_of(number))) is not None:
            self.head = last_of(number)
        return number <= self.head

    def saw(self, found: Sequence[str]) -> None:
        """Some names that a listing has shown."""
        self.head = max([self.head, *(last for name in found if (last := names.last_archived(name)) % BLOCK == 0)])

    def look(self) -> int:
        """The number of the last entry that is archived now, from a listing."""
        self.saw([item.name for item in self.store.scan(names.ARCHIVE) if isinstance(item, Entry)])
        return self.head

    def entries(self, numbers: range) -> Iterator[bytes]:
        """Archived entries, as they stood in the log."""
        for number in numbers:
            last, held = last_of(number), self._held
            group = (number - 1) % BLOCK // GROUP
            first = last - BLOCK + 1 + group * GROUP
            if held[0] != first:
                table = self._read(last, ["version", "entry"], [group])
                if table.column("version").to_pylist() != list(range(first, min(first + GROUP, last + 1))):
                    raise damaged(self.store, last, ValueError("it holds other entries than its name says"))
                held = self._held = first, table.column("entry").to_pylist()
            yield held[1][number - first]

    def tables(self, columns: Sequence[str], after: int, until: int) -> Iterator[pa.Table]:
        """The rows of the history of the entries in (after, until], those of an object at a time."""
        for last in range(last_of(after + 1), last_of(until) + 1, BLOCK):
            table = self._whole(last, list(dict.fromkeys([*columns, "version"])))
            version = table.column("version")
            yield table.filter(pc.and_(pc.greater(version, after), pc.less_equal(version, until))).select(columns)

    def check(self, last: int, entries: pa.ChunkedArray | None = None) -> None:
        """FormatError where an object does not hold all of its entries (`entries`: these)."""
        found = self._whole(last, ["version", "entry"]).column("entry")
        if entries is not None and not found.equals(entries):
            raise damaged(self.store, last, ValueError("it holds other entries than the log"))

    def _whole(self, last: int, columns: list[str]) -> pa.Table:
        table = self._read(last, columns)
        if table.column("version").to_pylist() != list(range(last - BLOCK + 1, last + 1)):
            raise damaged(self.store, last, ValueError("it holds other entries than its name says"))
        return table

    def _read(self, last: int, columns: list[str], groups: list[int] | None = None) -> pa.Table:
        name = names.archived(last)
        try:
            return OwnParquet(stored(self.store, name) if groups else self.store.get(name), ARCHIVED).read(columns, groups)
        except (NotFoundError, *DAMAGED) as e:
            raise damaged(self.store, last, e) from e


def damaged(store: Store, last: int, why: BaseException) -> FormatError:
    """The error for an object that does not hold what it should."""
    what = "missing" if isinstance(why, NotFoundError) else f"damaged ({type(why).__name__})"
    return FormatError(
        f"{store.url}/{names.archived(last)}, which has the entries {last - BLOCK + 1:,} to {last:,} of the log, is {what}. Nothing was "
        f"changed. Put back a good copy: no other object has these entries."
    )
