"""Made-up device documents: what `quire populate` and the sample data write.

XML as fleets of devices send it, in several shapes and encodings (`SHAPES`), and the ways in which such files arrive
damaged (`DIRT`). A body is built and padded once; a document is a copy of it in which only fields of fixed width are
replaced, so that one costs a few microseconds. Nothing but the standard library is imported: the processes that write
start with this module alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

DIRT = ("truncated", "mismatched tags", "empty", "wrong encoding", "garbage")
"""The kinds of damage: cut off, another closing tag, 0 bytes, Latin-1 bytes declared as UTF-8, random bytes."""

SMALLEST = 256
"""The smallest mean size, in bytes: below it a document has no room for its root element."""
LARGEST = 16 * 1024**2
"""The largest mean size, in bytes: the bodies are held in memory."""

_SPREAD = 0.2  # sizes lie within ± 20 % of the mean
_DEVICE, _SEQUENCE, _MOMENT, _VALUE = "@device@", "@sequence@", "@moment@".ljust(24, "@"), "@val@@"
_MARKS = (_DEVICE, _SEQUENCE, _MOMENT, _VALUE)


@dataclass(frozen=True, slots=True)
class Template:
    """A padded document whose fields of fixed width are still to be filled in.

    shape     its name in `SHAPES`
    encoding  the encoding that it declares and has
    body      the bytes
    places    for each field, where it stands: (the field's number, offset in bytes)
    """

    shape: str
    encoding: str
    body: bytes
    places: tuple[tuple[int, int], ...]

    def fill(self, device: int, sequence: int, moment: str, value: int) -> bytearray:
        """Return the document of one file.

        `device` has at most 8 digits, `sequence` 10; `moment` is a time like 2026-11-20T13:45:07.123Z (24 characters);
        `value`, in thousandths below 100,000, is the first reading.
        """
        texts = (f"{device:08d}", f"{sequence:010d}", moment, f"{value // 1000:02d}.{value % 1000:03d}")
        codec = "utf-16-le" if self.encoding == "UTF-16" else "ascii"
        fields = [text.encode(codec) for text in texts]
        document = bytearray(self.body)
        for number, at in self.places:
            field = fields[number]
            document[at : at + len(field)] = field
        return document


@dataclass(frozen=True, slots=True)
class _Shape:
    encoding: str
    newline: str
    share: int
    head: str
    items: Callable[[random.Random], Iterator[str]]
    tail: str


def _telemetry(rng: random.Random) -> Iterator[str]:
    yield f'  <reading sensor="t0" unit="°C"><value>{_VALUE}</value></reading>'
    yield "  <!-- gateway “Süd-3”, firmware 4.2.1 -->"
    yield '  <rule><![CDATA[if (t < 20 && rpm > 900) { warn("zu kühl"); }]]></rule>'
    yield "  <place>測定室 第三 · Zürich</place>"
    for number in count(1):
        value = rng.randrange(-20_000, 80_000) / 1000
        yield f'  <reading sensor="t{number % 16}" unit="°C" quality="{rng.choice("ABC")}"><value>{value:.3f}</value></reading>'


def _inventory(rng: random.Random) -> Iterator[str]:
    yield f"  <inv:voltage>{_VALUE}</inv:voltage>"
    yield '  <inv:maker xml:lang="de">Müller &amp; Söhne</inv:maker>'
    yield "  <!-- geprüft -->"
    for number in count(1):
        serial = f"{rng.getrandbits(48):012X}"
        yield f'  <inv:part inv:slot="{number}" inv:serial="{serial}"><inv:name>Lüfter {rng.randrange(100)}</inv:name></inv:part>'


def _events(rng: random.Random) -> Iterator[str]:
    yield f'<event level="info"><load>{_VALUE}</load></event>'
    for _ in count():
        level, code = rng.choice(("info", "warning", "error")), rng.randrange(10_000)
        yield f'<event level="{level}" code="E{code:04d}"><![CDATA[valve <{rng.randrange(64)}> & pump → état {code % 7}]]></event>'


_IDENTITY = f'device="{_DEVICE}" sequence="{_SEQUENCE}" sent="{_MOMENT}"'
_TELEMETRY = f'<telemetry xmlns="urn:devices:telemetry:2" {_IDENTITY}>'
_INVENTORY = f'<inv:inventory xmlns:inv="urn:devices:inventory:1" {_IDENTITY} site="Köln">'
_EVENTS = f'<events xmlns="urn:devices:events" {_IDENTITY}>'

SHAPES: dict[str, _Shape] = {
    "telemetry": _Shape("UTF-8", "\n", 30, _TELEMETRY, _telemetry, "</telemetry>\n"),
    "inventory": _Shape("ISO-8859-1", "\r\n", 13, _INVENTORY, _inventory, "</inv:inventory>\r\n"),
    "events": _Shape("UTF-8", "", 14, _EVENTS, _events, "</events>"),
    "telemetry in UTF-16": _Shape("UTF-16", "\n", 3, _TELEMETRY, _telemetry, "</telemetry>\n"),
}
"""The shapes of documents: readings, line by line; parts, with prefixes and CRLF; a log in one line without an end of line."""


def build(shape: str, size: int, rng: random.Random) -> Template:
    """Return a template of exactly `size` bytes (one less for an odd size in UTF-16), filled from `rng`."""
    kind = SHAPES[shape]
    codec = "utf-16-le" if kind.encoding == "UTF-16" else kind.encoding
    pad = " ".encode(codec)
    parts = [b"\xff\xfe"] if kind.encoding == "UTF-16" else []
    parts.append(f'<?xml version="1.0" encoding="{kind.encoding}"?>{kind.newline}{kind.head}{kind.newline}'.encode(codec))
    tail = kind.tail.encode(codec)
    room = size - sum(map(len, parts)) - len(tail)
    if room < 0:
        raise ValueError(f"a document of the shape {shape!r} does not fit into {size} bytes")
    for item in kind.items(rng):
        line = (item + kind.newline).encode(codec)
        if len(line) > room:
            break
        parts.append(line)
        room -= len(line)
    body = b"".join([*parts, pad * (room // len(pad)), tail])
    return Template(shape, kind.encoding, body, tuple(_places(body, codec)))


def _places(body: bytes, codec: str) -> Iterator[tuple[int, int]]:
    for number, mark in enumerate(_MARKS):
        at = body.find(mark.encode(codec))
        if at >= 0:
            yield number, at


class Stock:
    """All templates for a mean size in bytes, and the damage done to them; the same for the same size and seed.

    About half of the documents are telemetry, a quarter events, a fifth inventories and, from 1500 bytes on, a
    twentieth telemetry in UTF-16. Their sizes are spread evenly over ± 20 %, so that the mean is `size`.
    """

    def __init__(self, size: int, seed: int) -> None:
        rng = random.Random(f"{seed} {size}")
        bodies = max(4, min(60, 48 * 1024**2 // size))
        self.templates: list[Template] = []
        for shape, kind in SHAPES.items():
            if kind.encoding == "UTF-16" and size < 1500:
                continue
            number = max(1, kind.share * bodies // 60)
            for k in range(number):
                share = 1 - _SPREAD + 2 * _SPREAD * (k + 0.5) / number
                self.templates.append(build(shape, round(size * share), rng))
        self._latin = [template for template in self.templates if template.encoding == "ISO-8859-1"]
        self._noise = rng.randbytes(size)

    def document(self, pick: int, device: int, sequence: int, moment: str) -> bytearray:
        """Return a clean document; `pick`, any number that is not negative, chooses the template and the first reading."""
        return self._template(pick).fill(device, sequence, moment, pick % 97_003)

    def _template(self, pick: int) -> Template:
        return self.templates[(pick >> 17) % len(self.templates)]

    def damaged(self, dirt: str, pick: int, device: int, sequence: int, moment: str) -> bytes:
        """Return a file with the damage that `dirt`, one of `DIRT`, says; no XML parser takes it."""
        if dirt == "empty":
            return b""
        if dirt == "garbage":
            return b"\x00" + f"{sequence:010d}".encode() + self._noise[11:]
        if dirt == "wrong encoding":
            latin = self._latin[pick % len(self._latin)]
            document = latin.fill(device, sequence, moment, pick % 97_003)
            return bytes(document.replace(b'encoding="ISO-8859-1"', b'encoding="UTF-8"', 1))
        template = self._template(pick)
        document = template.fill(device, sequence, moment, pick % 97_003)
        if dirt == "truncated":
            return bytes(document[: len(document) * (30 + pick % 60) // 100])
        width = 2 if template.encoding == "UTF-16" else 1
        document[document.rindex(b">") - width] = ord("X")  # the closing tag's last letter
        return bytes(document)
