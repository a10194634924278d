"""Avro's records, each by itself: the schema of its writer, resolved to a reader's where the call says one. fastavro decodes."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from quire.errors import UsageError, about, scrub
from quire.sources.decoders.base import BARE, Decoder, Form
from quire.sources.decoders.frames import Frame
from quire.sources.decoders.projected import projected
from quire.sources.decoders.registry import Found
from quire.sources.transforms.avro import DAMAGED, SCHEMA, kind_of
from quire.sources.transforms.columns import storable, stored
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.functions import WrongTypeError


class AvroForm(Form):
    """The records of a writer's schema, as a reader's says them, or as they are."""

    def __init__(self, text: str, imports: Mapping[str, str], reader: str) -> None:
        self.writer, kind = _read(text, imports)
        self.reader = None
        if reader:
            self.reader, kind = _read(reader, {})
        self.bare = not pa.types.is_struct(kind)
        self.columns = storable(stored(pa.schema([pa.field(BARE, kind)] if self.bare else list(kind))))
        self.kind = pa.struct(list(self.columns) if self.bare else list(kind))

    def row(self, document: bytes) -> Any:
        """A record."""
        file = io.BytesIO(document)
        try:
            found = fastavro.schemaless_reader(file, self.writer, self.reader)
        except DAMAGED as e:
            raise BadContent(f"not a record of its Avro schema ({type(e).__name__})") from None
        if (rest := len(document) - file.tell()) > 0:
            raise BadContent(f"{rest:,} bytes stand behind the record: it is of another schema")
        return {BARE: found} if self.bare else found

    def batch(self, rows: list[Any], columns: pa.Schema) -> pa.RecordBatch:
        """Rows by name."""
        return projected(pa.RecordBatch.from_struct_array(pa.array(rows, self.kind)), columns)


@dataclass(frozen=True)
class AvroDecoder(Decoder):
    """Decodes Avro. `reader`: its schema, as JSON; "": each record has the fields that its writer's schema has."""

    reader: str = ""

    name: ClassVar[str] = "avro"
    kind: ClassVar[str] = "AVRO"

    def form(self, frame: Frame | None, found: Found | None) -> Form:
        """The form of a writer's schema; without a registry it is the reader's."""
        return _guarded(lambda: AvroForm(found.text if found else self.reader, dict(found.imports) if found else {}, self.reader))

    def told(self) -> list[str]:
        """With the reader's schema."""
        return [*super().told(), self.reader]


def checked(text: str) -> tuple[str, pa.Schema]:
    """A reader's schema as canonical JSON, and its columns; UsageError for one that cannot be used."""
    with about("schema"):
        try:
            return json.dumps(json.loads(text)), _guarded(lambda: AvroForm(text, {}, "")).columns
        except ValueError as e:
            raise UsageError(f"schema= is not JSON of an Avro schema: {scrub(str(e), 150)}.") from None
        except BadContent as e:
            raise UsageError(f"schema=: {e.reason}.") from None


def _read(text: str, imports: Mapping[str, str]) -> tuple[Any, pa.DataType]:
    """A schema as fastavro takes it, whose names may be those of imported ones, and Arrow's type of it."""
    if len(text) > SCHEMA:
        raise ValueError(f"it has {len(text):,} characters")
    schema = _with_imports(json.loads(text), {name: json.loads(each) for name, each in imports.items()}, set())
    kind = kind_of(schema)
    return fastavro.parse_schema(schema), kind


def _with_imports(schema: Any, imports: Mapping[str, Any], seen: set[str], space: str = "") -> Any:
    """The schema, in which the first mention of an imported one is its definition."""
    if isinstance(schema, str):
        full = schema if "." in schema or not space else f"{space}.{schema}"
        known = next((name for name in (full, schema) if name in imports and name not in seen), None)
        if known is None:
            return schema
        seen.add(known)
        return _with_imports(copy.deepcopy(imports[known]), imports, seen)
    if isinstance(schema, list):
        return [_with_imports(each, imports, seen, space) for each in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("name", ""))
    inner = str(schema.get("namespace", name.rpartition(".")[0] or space)) if schema.get("type") in ("record", "error") else space
    made = {
        key: _with_imports(value, imports, seen, inner) if key in ("type", "items", "values") else value for key, value in schema.items()
    }
    if isinstance(schema.get("fields"), list):
        made["fields"] = [_with_imports(each, imports, seen, inner) for each in schema["fields"]]
    return made


def _guarded(make: Callable[[], Form]) -> Form:
    try:
        return make()
    except BadContent:
        raise
    except WrongTypeError as e:
        raise BadContent(str(e)) from None
    except (*DAMAGED, UnknownType, SchemaParseException) as e:
        first = (str(e).strip().splitlines() or [""])[0]
        raise BadContent(f"not an Avro schema whose records columns can hold ({first[:200] or type(e).__name__})") from None
