"""Keys that are sought in base files: which of them a file holds, read from its column of keys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import FormatError
from quire.formats import parquet
from quire.formats.damage import ARROW
from quire.storage import Store
from quire.table.file_groups import Slice
from quire.table.format import base_file
from quire.table.format.base_file import KEY, Footer
from quire.table.index import Partition

_TAIL = 64 << 10  # bytes at the end of a file, in which most footers lie whole
_LONG = 1_000  # characters of a key that is not worth its way to the driver
Places = npt.NDArray[np.int64]  # of keys in the array of those that are sought


class Sought:
    """The keys that are sought in a partition, and the slices that hold them as far as is known."""

    def __init__(self, partition: Partition, keys: pa.Array) -> None:
        self.keys, self._partition = keys, partition
        self._bytes = _Bytes(keys)
        self._held = list[tuple[int, Places]]()  # the number of a slice, and the keys that it holds

    def between(self, least: bytes, most: bytes) -> tuple[int, int]:
        """The keys from `least` to `most`, as a range of places."""
        return bisect_left(self._bytes, least), bisect_right(self._bytes, most)

    def hold(self, number: int, places: Places) -> None:
        """Slice `number` holds these keys."""
        self._held.append((number, places))

    def groups(self) -> pa.Array:
        """The answer of `Index.lookup`."""
        ids = pa.array([one.group for one in self._partition.slices], pa.string())
        counts = np.zeros(len(self.keys), np.int32)
        for _, places in self._held:
            counts[places] += 1
        if counts.max(initial=0) <= 1:
            holder = np.full(len(self.keys), -1, np.int32)
            for number, places in self._held:
                holder[places] = number
            return pa.DictionaryArray.from_arrays(pa.array(holder, mask=holder < 0), ids)
        numbers = np.concatenate([np.full(len(places), number, np.int32) for number, places in self._held])
        order = np.argsort(np.concatenate([places for _, places in self._held]), kind="stable")
        offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])
        return pa.ListArray.from_arrays(pa.array(offsets), ids.take(pa.array(numbers[order])))


class _Bytes(Sequence[bytes]):
    """Text as the bytes by which it is sorted, one at a time."""

    def __init__(self, text: pa.Array) -> None:
        self._binary = text.cast(pa.binary())

    def __len__(self) -> int:
        return len(self._binary)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...
    def __getitem__(self, at: Any) -> Any:
        return self._binary[at].as_py()


class _Tail(parquet.Seekable):
    """A file whose end, where a footer stands, is read at once: a request costs more than the bytes."""

    def __init__(self, store: Store, name: str, size: int) -> None:
        self._store, self._name, self.size = store, name, size
        self._start = max(0, size - _TAIL)
        self._end = store.get_range(name, self._start, size - self._start)

    def read(self, n: int = -1) -> bytes:
        end = self.size if n is None or n < 0 else min(self.size, self.at + n)
        if self.at >= self._start:
            data = self._end[self.at - self._start : end - self._start]
        else:
            data = self._store.get_range(self._name, self.at, end - self.at)
        self.at += len(data)
        return data


class KeyFile:
    """The keys of a base file; FormatError where it is damaged, or its rows do not have the meta columns."""

    def __init__(self, store: Store, one: Slice) -> None:
        self._where = f"{store.url}/{one.name}"
        self._file = base_file.open_base_file(_Tail(store, one.name, one.size), self._where)
        self.footer: Footer = base_file.footer_of(self._file, self._where)
        if not self.footer.has_meta:
            raise FormatError(f"{self._where} has no column of keys ({KEY} and the other meta columns), so no commit can find its rows")

    def near(self, sought: Sought) -> Places:
        """The places of the sought keys within its range; all of them, where it says none."""
        least, most = self.footer.min_key, self.footer.max_key
        if least is None or most is None:
            return np.arange(len(sought.keys))
        return np.arange(*sought.between(least.encode(), most.encode()))

    def held(self, sought: Sought, places: Places) -> Places:
        """Those of the sought keys at `places` (sorted) that the file holds; it reads the row groups that may hold some."""
        return np.unique(np.concatenate([np.empty(0, np.int64), *self.groups(sought, places).values()]))

    def groups(self, sought: Sought, places: Places) -> dict[int, Places]:
        """The number of each row group that holds some of the sought keys at `places` (sorted), and which."""
        found = dict[int, Places]()
        for group in range(self._file.num_row_groups):
            first, end = self._range(sought, group)
            if len(some := places[bisect_left(places, first) : bisect_left(places, end)]):
                found[group] = _common(self._keys(group), sought.keys, some)
        return {group: some for group, some in found.items() if len(some)}

    def _range(self, sought: Sought, group: int) -> tuple[int, int]:
        """The places of the sought keys that may be in a row group, by its statistics."""
        try:
            if ends := self._file.chunks[group][KEY].ends:
                return sought.between(*ends)
        except (OSError, ValueError, KeyError) as e:
            raise self._damaged(e) from e
        return 0, len(sought.keys)

    def _keys(self, group: int) -> pa.Array:
        try:
            keys = self._file.read_row_group(group, [KEY]).column(0).combine_chunks()
            keys.validate(full=True)
        except (*ARROW, OSError, ValueError, TypeError) as e:
            raise self._damaged(e) from e
        return keys

    def _damaged(self, e: Exception) -> FormatError:
        return FormatError(f"{self._where} is damaged: its keys cannot be read ({type(e).__name__}). Restore it from a copy.")


def _common(stored: pa.Array, keys: pa.Array, places: Places) -> Places:
    """Those of the keys at `places` that are stored. The smaller of the two is hashed."""
    some = keys.slice(places[0], len(places)) if places[-1] - places[0] + 1 == len(places) else keys.take(pa.array(places))
    which = pc.is_in(some, value_set=stored) if len(some) > len(stored) else pc.drop_null(pc.index_in(stored, value_set=some))
    found: Places = places[np.asarray(which)]
    return found


def ranges(store: Store, slices: Sequence[Slice]) -> list[tuple[str, str] | None]:
    """The least and greatest key of each slice; None: it may hold any."""
    footers = (KeyFile(store, one).footer for one in slices)
    ends = ((footer.min_key, footer.max_key) for footer in footers)
    return [None if a is None or b is None or max(len(a), len(b)) > _LONG else (a, b) for a, b in ends]
