"""Avro container files of one record, as the timeline has them: plans, and in layout 2 all that it says.

Source: Avro's specification of object container files, decoded by fastavro.
"""

from __future__ import annotations

import hashlib
import io
from typing import Any

import fastavro

from quire.errors import FormatError, QuireError, scrub
from quire.table.format.log_content import AVRO_ERRORS, check_schema

STRING = {"type": "string", "avro.java.string": "String"}  # as JVM Hudi declares texts: else it reads them as something else


def map_of(values: Any) -> dict[str, Any]:
    """The type of a map from texts."""
    return {"type": "map", "values": values, "avro.java.string": "String"}


def or_null(kind: Any) -> dict[str, Any]:
    """The type and default of a field that may be left out."""
    return {"type": ["null", kind], "default": None}


def record(data: bytes, where: str) -> dict[str, Any]:
    """The one record of a file; FormatError where it is damaged, or has a schema by which few bytes mean very many values."""
    try:
        reader: Any = fastavro.reader(io.BytesIO(data))
        if reader.codec != "null":
            raise ValueError(f"it is compressed with {reader.codec[:40]!r}")
        check_schema(reader.metadata["avro.schema"], where)
        found = next(reader)
        if not isinstance(found, dict) or next(reader, None) is not None:
            raise ValueError("it does not hold one record")
    except QuireError:
        raise
    except AVRO_ERRORS as e:
        raise FormatError(f"{where} is damaged ({type(e).__name__}: {scrub(str(e), 200)}). Restore it from a copy.") from e
    return found


def of_record(said: dict[str, Any], schema: dict[str, Any]) -> bytes:
    """The file of one record; the same bytes for the same record."""
    out = io.BytesIO()
    fastavro.writer(out, schema, [said], sync_marker=hashlib.sha256(repr(said).encode()).digest()[:16])
    return out.getvalue()
