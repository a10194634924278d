"""The bloom index: of each base file its range of keys is asked, then its bloom filter, and only what may be there is read.

The keys that are sought are sorted, so those within a file's range follow one another, and are found by two searches: no tree of ranges
is built. A file without a range, or without a filter, may hold any key. Source: Hudi's `HoodieBloomIndex`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.table.index.lookup import KeyFile, Sought

if TYPE_CHECKING:
    import pyarrow as pa

    from quire.table.index import Partition


class BloomIndex:
    """See the module."""

    name, computes = "bloom", False

    def lookup(self, partition: Partition, keys: pa.Array) -> pa.Array:
        """See `Index.lookup`."""
        sought = Sought(partition, keys)
        for number, one in enumerate(partition.slices):
            file = KeyFile(partition.store, one)
            places = file.near(sought)
            if not len(places):
                continue
            keys_filter = file.footer.keys_filter()
            if keys_filter is not None:
                places = places[keys_filter.might_contain(keys.slice(places[0], len(places)))]
            sought.hold(number, file.held(sought, places))
        return sought.groups()
