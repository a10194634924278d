"""Decoders, as a call describes them: every wrong argument is a UsageError of one line, before anything is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from quire.errors import UsageError, about, choose, quoted
from quire.formats.parquet import RECORDS
from quire.packaging import install
from quire.sources.decoders.base import BARE, Decoder, Form
from quire.sources.decoders.frames import Frame
from quire.sources.decoders.registry import Found, Registry, registry
from quire.sources.transforms import schemas, text
from quire.sources.transforms.content import BadContent

KINDS = ("json", "xml", "avro", "protobuf")
KEYS = ("string", "json", "avro", "protobuf")
LONGEST = 64 << 20  # bytes of a file that holds a schema
_FILES = (".avsc", ".desc", ".pb", ".binpb", ".bin", ".protoset")


def decoder(
    kind: str, *, schema: Any = None, columns: Mapping[str, str] | None = None, registry: str | None = None,
    registry_options: Mapping[str, Any] | None = None, message: str | None = None, metadata: Any = None, decode_key: str | None = None,
) -> Decoder:  # fmt: skip
    """Return a function that decodes documents: of `kind` "json", "xml", "avro" or "protobuf".

    It stands where a function may: as `transform=` of `quire.load` (which makes it of the same words, with `decode=kind`) and of
    `quire.consolidate`, as the function of `quire.process`, and as `function=` of `Ledger.retry`.

    schema            the columns, a pyarrow Schema or a text as "id long, name string": fields by name, the others are left out. For Avro
                      also the reader's schema (JSON, a dict, or a file of it), for Protobuf a compiled descriptor set (bytes, or a file)
    columns           of JSON and XML: the columns by expressions, {"id": "$.order.id: long not null"} or {"id": "/order/@id: long"}
    registry          the address of a schema registry: records have its frame, and the schemas of their writers are asked for there
    registry_options  for its client, {"basic.auth.user.info": quire.secret("REGISTRY_LOGIN"), "ssl.ca.location": …}
    message           of Protobuf: the full name of the message
    metadata          columns of Kafka's records that stand beside the decoded ones, ["timestamp", "offset"] or by their names here,
                      {"timestamp": "kafka_timestamp"}
    decode_key        the key's kind: "string", or "json", "avro", "protobuf" of the registry; it becomes the column `key`

        quire.process("/data/orders", "/data/out", quire.decoder("json", columns={"id": "$.order.id: long"}), split="lines")

    Raises UsageError, in one line.
    """
    choose(kind, KINDS, "decode")
    if kind == "xml" and registry is not None:
        with about("registry"):
            raise UsageError("registry= is for JSON, Avro and Protobuf: no schema registry has XML. Leave it out.")
    if columns is not None:
        made = _by_path(kind, columns, schema)
        made = made if registry is None else replace(made, registry=_registry(registry, registry_options))
    else:
        if kind == "xml":
            with about("columns"):
                raise UsageError("decode='xml' needs columns=, which say what is taken: columns={'id': '/order/@id: long'}.")
        made = _MADE[kind](_opened(schema), None if registry is None else _registry(registry, registry_options), message)
    if registry_options is not None and registry is None:
        with about("registry_options"):
            raise UsageError("registry_options= is for registry=, and there is none. Leave one of them out, or say both.")
    if message is not None and kind != "protobuf":
        with about("message"):
            raise UsageError(f"message= names a message of Protobuf, and this is {kind!r}. Leave it out.")
    made = replace(made, metadata=_metadata(metadata))
    if decode_key is not None:
        made = replace(made, key=_key(decode_key, made.registry))
    made.all_columns  # noqa: B018  # says where a column is there twice
    return made


def _by_path(kind: str, columns: Any, schema: Any) -> Decoder:
    if kind not in ("json", "xml"):
        with about("columns"):
            raise UsageError(f"columns= takes parts of documents of JSON and XML, and this is {kind!r}. Use schema=.")
    if schema is not None:
        with about("schema"):
            raise UsageError("schema= and columns= both say what the columns are. Leave one of them out.")
    from quire.sources.decoders.documents import by_path

    return by_path(kind, columns)


def _registry(url: Any, options: Any) -> Registry:
    return registry(url, options)


def _json(schema: Any, of: Registry | None, _: str | None) -> Decoder:
    from quire.sources.decoders.json import JsonDecoder

    if isinstance(schema, bytes):
        raise _no_schema(schema)
    if schema is None:
        return JsonDecoder(registry=of)
    said, columns = schemas.canonical(schema), text.canonical("jsonl", schema)
    return JsonDecoder(columns=pa.schema([f.with_nullable(said.field(f.name).nullable) for f in columns]), registry=of)


def _avro(schema: Any, of: Registry | None, _: str | None) -> Decoder:
    from quire.sources.decoders.avro import AvroDecoder, checked

    if isinstance(schema, bytes):
        try:
            schema = schema.decode()
        except UnicodeDecodeError:
            raise _no_schema(schema) from None
    if isinstance(schema, Mapping | list):
        import json

        schema = json.dumps(schema)
    if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"'):
        reader, columns = checked(schema)
        return AvroDecoder(columns=columns, registry=of, reader=reader)
    if of is None:
        with about("schema"):
            raise UsageError("decode='avro' needs schema=, the Avro schema of all records, or registry=, where each record's is.")
    return AvroDecoder(columns=None if schema is None else schemas.canonical(schema), registry=of)


def _protobuf(schema: Any, of: Registry | None, message: str | None) -> Decoder:
    try:
        from quire.sources.decoders.protobuf import ProtobufDecoder, checked
    except ImportError as e:
        with about("decode"):
            raise UsageError(f"decode='protobuf' needs the package {e.name!r}, which is not installed: {install('registry')}") from None
    if message is not None and (not isinstance(message, str) or not message):
        with about("message"):
            raise UsageError(f"message={quoted(message)} is not the full name of a message, such as 'shop.Order'.")
    if isinstance(schema, bytes):
        if message is None:
            with about("message"):
                raise UsageError("a compiled descriptor set holds several messages. Say which one with message='package.Name'.")
        return ProtobufDecoder(columns=checked(schema, message), registry=of, files=schema, message=message)
    if of is None:
        with about("schema"):
            raise UsageError(
                "decode='protobuf' needs schema=, a compiled descriptor set (protoc --include_imports --descriptor_set_out=FILE), with "
                "message=, or registry=, where each record's schema is."
            )
    return ProtobufDecoder(columns=None if schema is None else schemas.canonical(schema), registry=of, message=message or "")


_MADE: dict[str, Callable[[Any, Registry | None, str | None], Decoder]] = {"json": _json, "avro": _avro, "protobuf": _protobuf}


def _opened(schema: Any) -> Any:
    """A schema as it was given, or the content of the file that it names."""
    if not isinstance(schema, str | os.PathLike) or (isinstance(schema, str) and not _is_file(schema)):
        return schema
    path = Path(schema).expanduser()
    with about("schema"):
        try:
            if path.stat().st_size > LONGEST:
                raise UsageError(f"schema={quoted(str(path))} has more than {LONGEST:,} bytes, as no schema has. Check the spelling.")
            return path.read_bytes()
        except OSError as e:
            raise UsageError(f"schema={quoted(str(path))} cannot be read: {e.strerror}. Check the spelling.") from None


def _is_file(schema: str) -> bool:
    one = "\n" not in schema and "{" not in schema and len(schema) < 4096
    return one and (schema.lower().endswith(_FILES) or (os.sep in schema and Path(schema).expanduser().is_file()))


def _no_schema(_: object) -> UsageError:
    error = UsageError("schema= is bytes, and only decode='protobuf' takes these. Write 'id long, name string', or give a pyarrow Schema.")
    error.argument = "schema"
    return error


def _metadata(given: Any) -> tuple[tuple[str, str], ...]:
    if given is None:
        return ()
    with about("metadata"):
        named = given if isinstance(given, Mapping) else {given: given} if isinstance(given, str) else None
        if named is None:
            try:
                named = {name: name for name in given}
            except TypeError:
                named = {quoted(given): ""}
        known = [name for name in RECORDS.names if name != "value"]
        for name, called in named.items():
            choose(name, known, "metadata")
            if not isinstance(called, str) or not called:
                raise UsageError(f"metadata: {name!r} is called {quoted(called)}, which is not a column's name.")
        return tuple(named.items())


def _key(kind: Any, of: Registry | None) -> Decoder:
    choose(kind, KEYS, "decode_key")
    if kind == "string":
        return TextDecoder(columns=pa.schema([(BARE, pa.string())]))
    if of is None:
        with about("decode_key"):
            raise UsageError(f"decode_key={kind!r} needs registry=, where the schemas of keys are; decode_key='string' needs none.")
    return _MADE[kind](None, of, None)


class TextForm(Form):
    """Texts."""

    bare = True
    columns = pa.schema([(BARE, pa.string())])

    def row(self, document: bytes) -> str:
        """A text."""
        try:
            return document.decode()
        except UnicodeDecodeError as e:
            raise BadContent(f"not valid UTF-8 at its byte {e.start:,}") from None

    def batch(self, rows: list[str], columns: pa.Schema) -> pa.RecordBatch:
        """Texts in a column."""
        return pa.record_batch([pa.array(rows, pa.string())], names=[BARE])


@dataclass(frozen=True)
class TextDecoder(Decoder):
    """Decodes texts of UTF-8, as keys are."""

    name: ClassVar[str] = "string"

    def form(self, frame: Frame | None, found: Found | None) -> Form:
        """All texts have the same."""
        return TextForm()
