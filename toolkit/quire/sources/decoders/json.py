"""JSON: an object a record, with the columns that the call says, that the first objects show, or that a registry's JSON Schema has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecodeError, loads
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from quire.sources import magic, transforms
from quire.sources.decoders.base import Decoder, Form
from quire.sources.decoders.frames import Frame
from quire.sources.decoders.registry import Found
from quire.sources.transforms.columns import DEEP, storable, stored
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.functions import WrongTypeError
from quire.sources.transforms.text.jsonl import JsonLines
from quire.sources.transforms.text.rejects import DoesNotFitError

SEEN = 2_000  # objects of which the columns are inferred


class _Object(msgspec.Struct):
    """Any object."""


_OBJECT = msgspec.json.Decoder(_Object)
_TIMES: dict[Any, pa.DataType] = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}
_TYPES: dict[str, pa.DataType] = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


class JsonForm(Form):
    """Objects in the columns of a reader, or in those of a JSON Schema."""

    def __init__(self, reader: JsonLines, columns: pa.Schema | None) -> None:
        self.reader = reader
        self.columns = columns or reader.columns or pa.schema([])

    def row(self, document: bytes) -> bytes:
        """An object on one line."""
        try:
            _OBJECT.decode(document)
        except (msgspec.MsgspecError, UnicodeDecodeError) as e:
            raise BadContent(f"not one JSON object ({type(e).__name__})") from None
        except RecursionError:
            raise BadContent("its objects are nested too deeply") from None
        return document.replace(b"\n", b" ").replace(b"\r", b" ")  # they stand between values: a string has none

    def batch(self, rows: list[bytes], columns: pa.Schema) -> pa.RecordBatch:
        """Objects by the names of their fields."""
        reader = dataclasses.replace(self.reader, columns=columns)
        try:
            return reader.parse(None, b"\n".join(rows))
        except DoesNotFitError as e:
            raise BadContent(reader.why(None, rows[0], e) if len(rows) == 1 else str(e)) from None


@dataclass(frozen=True)
class JsonDecoder(Decoder):
    """Decodes JSON. Where the call, or a registry, says the columns, other fields are left out; else they are quarantined."""

    name: ClassVar[str] = "json"
    kind: ClassVar[str] = "JSON"

    def form(self, frame: Frame | None, found: Found | None) -> Form:
        """The form of objects, of which a registry may say the JSON Schema."""
        said = self.columns or self.into
        columns = None
        if found is not None and said is None:
            columns = _columns(found)
        return JsonForm(JsonLines(columns=said, lenient=self.columns is not None or found is not None), columns)

    def first(self, payloads: Sequence[tuple[Frame | None, bytes]]) -> pa.Schema | None:
        """Without a registry the columns that the objects show."""
        if self.registry is not None:
            return super().first(payloads)
        lines = [document.replace(b"\n", b" ").replace(b"\r", b" ") for _, document in payloads[:SEEN]]
        try:
            found = JsonLines().infer(b"\n".join(lines))
            return storable(pa.schema([f for f in found if not pa.types.is_null(f.type)]))
        except (BadContent, DoesNotFitError, WrongTypeError, pa.ArrowInvalid):
            return None

    def whole(self, content: bytes) -> list[bytes]:
        """As `transform="json"`: one document, or JSON lines."""
        return whole(content)

    def documents(self, content: bytes) -> list[tuple[int, bytes]]:
        """One document, or JSON lines."""
        return documents(content)


def whole(content: bytes) -> list[bytes]:
    """The documents of a file of JSON, in whatever encoding; BadContent as `transform="json"`."""
    magic.check(content, "json")
    return transforms.json(content)


def documents(content: bytes) -> list[tuple[int, bytes]]:
    """A document of JSON, or the lines of a content that is more than one; BadContent for an empty one."""
    if b"\n" in content.strip():
        try:
            loads(content)
        except (JSONDecodeError, UnicodeDecodeError, RecursionError):
            found, at = list[tuple[int, bytes]](), 0
            for line in content.split(b"\n"):
                if line.strip():
                    found.append((at, line.removesuffix(b"\r")))
                at += len(line) + 1
            return found
    if not content.strip():
        raise BadContent("empty")
    return [(0, content)]


# --------------------------------------------------------------------------------------------------------------------- JSON Schema
def _columns(found: Found) -> pa.Schema:
    """The columns of a JSON Schema; BadContent for one whose values no column holds."""
    try:
        schema = loads(found.text)
        imports = {name: loads(text) for name, text in found.imports}
        kind = _type(schema, _Root(schema, imports), "", 0)
        if not pa.types.is_struct(kind):
            raise BadContent("its values are not objects with properties: say schema=")
        return storable(stored(pa.schema(list(kind))))
    except (ValueError, RecursionError, WrongTypeError) as e:
        raise BadContent(f"not a JSON Schema whose values columns can hold ({str(e)[:150]}): say schema=") from None


@dataclass(frozen=True)
class _Root:
    schema: Any
    imports: Mapping[str, Any]

    def resolved(self, reference: str) -> tuple[Any, _Root]:
        """A schema by its reference, and the document that it stands in."""
        where, _, inside = reference.partition("#")
        root = self if not where else _Root(self.imports.get(where), self.imports)
        found = root.schema
        for part in inside.strip("/").split("/") if inside.strip("/") else []:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            raise BadContent(f"it names {reference[:100]!r}, which is not there")
        return found, root


def _type(schema: Any, root: _Root, at: str, depth: int) -> pa.DataType:
    """Arrow's type of the values of a JSON Schema."""
    if depth > DEEP:
        raise BadContent(f"the field {at.split('.', maxsplit=1)[0]!r} holds itself, or more than {DEEP} levels: say schema=")
    if not isinstance(schema, dict):
        raise BadContent(f"nothing says the type of the field {at[:100]!r}: say schema=")
    if isinstance(schema.get("$ref"), str):
        found, within = root.resolved(schema["$ref"])
        return _type(found, within, at, depth + 1)
    if several := next((schema[word] for word in ("oneOf", "anyOf") if isinstance(schema.get(word), list)), None):
        others = [each for each in several if not (isinstance(each, dict) and each.get("type") == "null")]
        if len(others) != 1:
            raise BadContent(f"the field {at[:100]!r} is of several types, and no column is: say schema=")
        return _type(others[0], root, at, depth + 1)
    kind = schema.get("type")
    kinds = [each for each in kind if each != "null"] if isinstance(kind, list) else [kind]
    return _of_kind(kinds[0] if len(kinds) == 1 else None, schema, root, at, depth)


def _of_kind(kind: Any, schema: Mapping[str, Any], root: _Root, at: str, depth: int) -> pa.DataType:
    properties = schema.get("properties")
    if (kind == "object" or kind is None) and isinstance(properties, dict) and properties:
        return pa.struct([pa.field(name, _type(each, root, f"{at}.{name}".lstrip("."), depth + 1)) for name, each in properties.items()])
    if kind == "array" and "items" in schema:
        return pa.list_(_type(schema["items"], root, f"{at}[]", depth + 1))
    if kind is None and isinstance(values := schema.get("enum"), list) and all(isinstance(each, str | None) for each in values):
        return pa.string()
    if kind == "string" and schema.get("format") in _TIMES:
        return _TIMES[schema["format"]]
    if kind in _TYPES:
        return _TYPES[kind]
    raise BadContent(f"the field {at[:100]!r} has no type that a column has: say schema=")
