"""A file's kind, told by its content: how it is compressed, which columns it has, and the transform that takes it.

The name counts only where the content leaves it open: one JSON object on one line is a document in `x.json`, and a line in `x.jsonl`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

from quire.sources import archives, magic
from quire.sources.compression import CODECS, decode
from quire.sources.members import Member
from quire.sources.transforms import columnar
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.text import Csv, JsonLines, encodings

DELIMITERS = (",", ";", "\t", "|")
RECORDS, MOSTLY = 50, 0.8  # of a text that are looked at for its delimiter; so many of them have as many values as the first
MEMBERS = 8  # of an archive that are looked at
BEGINNING = 256 << 10  # decoded bytes of a file that are looked at
_NAME = re.compile(r"[^\W\d][\w .\-/]*")
_OF_COLUMNS = {"Parquet": "parquet", "ORC": "orc", "Avro": "avro"}
_ARCHIVES = ("zip", "tar", "7z")
_VALUE = msgspec.json.Decoder()


@dataclass(frozen=True)
class Kind:
    """A kind of files: its name for people, the transform that takes it, with which settings, and the codec it is compressed with."""

    name: str
    transform: str = ""  # "": none takes it
    settings: tuple[tuple[str, Any], ...] = ()
    codec: str = ""

    def __str__(self) -> str:
        said = [self.codec, *(f"{name}={value!r}" for name, value in self.settings)]
        return f"{self.name} ({', '.join(each for each in said if each)})" if any(said) else self.name


@dataclass(frozen=True)
class Found:
    """A file that was looked at."""

    path: str
    kind: Kind
    columns: pa.Schema | None = field(default=None, compare=False)
    why: str = ""  # it cannot be read


def looked(path: str, content: bytes, *, whole: bool, file: Any = None) -> Found:
    """The kind of a file, by its content or the beginning of that; `file`: the same as a file that can be sought in, if it is long."""
    if not content:
        return Found(path, Kind("empty"))
    kind = "ORC" if whole and content.startswith(b"ORC") and content[-4:-1] == b"ORC" else magic.kind(content)
    codec = kind if kind in CODECS else ""
    if codec:
        try:
            content, whole = _decoded(codec, content, whole)
        except BadContent as e:
            return Found(path, Kind("damaged", codec=codec), why=e.reason)
        kind = magic.kind(content)
        file = None
    if transform := _OF_COLUMNS.get(kind):
        found = Kind(kind, "" if codec else transform, codec=codec)
        try:
            return Found(path, found, None if codec else columnar.schema_of(transform, file or pa.BufferReader(content)))
        except BadContent as e:
            return Found(path, found, why=e.reason)
    if kind == "tar" or (kind == "zip" and not codec):
        return _archive(path, archives.members(kind, file or content), kind, codec)
    if kind:
        return Found(path, Kind(f"{kind} archive" if kind in _ARCHIVES else kind, codec=codec))
    return _text(path, content, codec, whole)


def _archive(path: str, members: Iterable[Member], kind: str, codec: str) -> Found:
    """An archive, by the kind that most of its first members have; of a beginning of one, those that are there."""
    found, name = list[Found](), f"{kind} archive"
    try:
        for member in islice((member for member in members if not member.why), MEMBERS):
            held = b""
            for piece in member.pieces():
                held += piece
                if len(held) > BEGINNING:
                    break
            if not magic.kind(held) or magic.kind(held) in (*_OF_COLUMNS, *CODECS):  # an archive in an archive is bytes
                found.append(looked(member.name, held[:BEGINNING], whole=len(held) <= BEGINNING))
    except BadContent as e:
        if not found:
            return Found(path, Kind(name, codec=codec), why=e.reason)
    holding = Counter(each.kind for each in found if each.kind.transform)
    if not holding:
        return Found(path, Kind(name, codec=codec))
    most = holding.most_common(1)[0][0]
    columns = next(each.columns for each in found if each.kind == most)
    return Found(path, Kind(name, most.transform, (*most.settings, ("archives", True)), codec), columns)


def _decoded(codec: str, content: bytes, whole: bool) -> tuple[bytes, bool]:
    """The beginning of what a content decodes to, and whether it is all of it; BadContent where it is damaged, and not only cut off."""
    held = b""
    try:
        for piece in decode(codec, content):
            held += piece
            if len(held) > BEGINNING:
                return held[:BEGINNING], False
    except BadContent:
        if whole or not held:
            raise
    return held, whole


def _text(path: str, content: bytes, codec: str, whole: bool) -> Found:
    try:
        encoding, _ = encodings.of(content, encodings.AUTO)
        text = encodings.text(content, encodings.AUTO, cut=not whole).content
        text.decode() if whole else text[: text.rfind(b"\n") + 1 or None].decode()
    except (BadContent, UnicodeDecodeError):
        if b"\0" in content[:4096]:
            return Found(path, Kind("binary", "raw", codec=codec))
        encoding, text = "cp1252", content.decode("cp1252", "replace").encode()
    begins = text.lstrip()[:1]
    if begins == b"<":
        return Found(path, Kind("XML", "xml", codec=codec))
    if begins in (b"{", b"["):
        found = _json(path, text, codec, whole)
        if found is not None:
            return found
    said = () if encoding in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be") else (("encoding", encoding),)
    return _csv(path, text, codec, said, whole) or Found(path, Kind("lines", "lines", codec=codec))


def _json(path: str, text: bytes, codec: str, whole: bool) -> Found | None:
    lines = [line for line in text.split(b"\n") if line.strip()]
    whole_lines = lines if whole else lines[:-1]
    objects = sum(line.lstrip()[:1] == b"{" and _is_json(line) for line in whole_lines)
    of_lines = re.search(r"\.(jsonl|ndjson|jsonlines)\b", path.rsplit("/", 1)[-1]) is not None
    if objects and 2 * objects >= len(whole_lines) and (of_lines or len(whole_lines) > 1):
        with suppress(BadContent):
            return Found(path, Kind("JSON lines", "jsonl", codec=codec), JsonLines().infer(text, whole=whole))
    if not whole or _is_json(text):
        return Found(path, Kind("JSON", "json", codec=codec))
    return None


def _is_json(text: bytes) -> bool:
    try:
        _VALUE.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    return True


def _csv(path: str, text: bytes, codec: str, said: tuple[tuple[str, Any], ...], whole: bool) -> Found | None:
    """Delimited text: with the delimiter that makes most columns of the same number in nearly all records."""
    best, most = "", 1
    for delimiter in DELIMITERS:
        reader = Csv(delimiter=delimiter)
        spans = reader.records(text, 0)[: RECORDS if whole else RECORDS + 1]
        records = [text[first:end] for first, end in (spans if whole or len(spans) < 2 else spans[:-1])]
        try:
            widths = [len(reader.values(record)) for record in records]
        except BadContent:  # a quoted value without an end
            continue
        if widths and widths[0] > most and sum(width == widths[0] for width in widths) >= MOSTLY * len(widths):
            best, most = delimiter, widths[0]
    named = re.search(r"\.(csv|tsv)\b", path.rsplit("/", 1)[-1]) is not None
    if not best and not named:
        return None
    best = best or ","
    header = _has_header(Csv(delimiter=best), text)
    settings = (*said, *((("delimiter", best),) if best != "," else ()), *(() if header else (("header", False),)))
    try:
        columns = Csv(delimiter=best, header=header).infer(text, whole=whole)
    except BadContent as e:
        return Found(path, Kind("CSV", "csv", settings, codec), why=e.reason) if named else None
    return Found(path, Kind("CSV", "csv", settings, codec), columns)


def _has_header(reader: Csv, text: bytes) -> bool:
    first = next(iter(reader.records(text, 0)), None)
    try:
        values = reader.values(text[first[0] : first[1]]) if first else []
    except BadContent:
        return True
    return bool(values) and len(set(values)) == len(values) and all(_NAME.fullmatch(value.strip()) for value in values)


def settings_of(kinds: Iterable[Kind]) -> dict[str, Any]:
    """The settings that most of some kinds have; archives are unpacked wherever there are some."""
    kinds = list(kinds)
    most = Counter(tuple(each for each in kind.settings if each[0] != "archives") for kind in kinds).most_common(1)
    unpacked = any(("archives", True) in kind.settings for kind in kinds)
    return {**(dict(most[0][0]) if most else {}), **({"archives": True} if unpacked else {})}
