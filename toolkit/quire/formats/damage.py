"""Exceptions from decoding damaged bytes. They do not include a lack of memory, which says nothing about the bytes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.lib

# All of Arrow's errors but ArrowMemoryError, which has the same parent, and ArrowCancelled.
ARROW = (
    pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowIndexError, pa.ArrowSerializationError,
    pyarrow.lib.ArrowCapacityError,
)  # fmt: skip
