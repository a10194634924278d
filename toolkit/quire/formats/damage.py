"""What decoding damaged bytes raises. A lack of memory is not among it: it says nothing of the bytes, and a good file stays a good one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.lib

# All of Arrow's errors but ArrowMemoryError, which has the same parent, and ArrowCancelled.
ARROW = (
    pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowIndexError, pa.ArrowSerializationError,
    pyarrow.lib.ArrowCapacityError,
)  # fmt: skip
