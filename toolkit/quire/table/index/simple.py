"""The simple index: the keys of all base files of a partition are read, whatever the filters say.

It needs no filters, and is quick where a commit brings keys of most files. Source: Hudi's `HoodieSimpleIndex`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.table.index import Partition
from quire.table.index.lookup import KeyFile, Sought

if TYPE_CHECKING:
    import pyarrow as pa


class SimpleIndex:
    """See the module."""

    name, computes = "simple", False

    def lookup(self, partition: Partition, keys: pa.Array) -> pa.Array:
        """See `Index.lookup`."""
        sought = Sought(partition, keys)
        for number, one in enumerate(partition.slices):
            file = KeyFile(partition.store, one)
            sought.hold(number, file.held(sought, file.near(sought)))
        return sought.groups()
