"""Damaged input for each decoder: `python tests/fuzz.py [decoder …] [--seconds 60] [--seed 1]`.

A decoder runs in a process of its own, so that one that crashes is told with the seed that did it. Each input is a whole one with bytes
changed, cut, doubled or made up; nothing may take 10 seconds, nothing may take more than 1 GiB of memory, and any error is BadContent.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import lzma
import random
import resource
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import zstandard

from quire.sources import archives, compression
from quire.sources.decoders import decoder, protoc
from quire.sources.decoders.base import Decoder
from quire.sources.decoders.frames import unframed
from quire.sources.decoders.protobuf import ProtobufForm
from quire.sources.looking import looked
from quire.sources.transforms import BadContent, columnar, text, xml
from quire.sources.transforms import json as json_lines
from quire.storage import ReadRequest, Store

LONGEST, MOST = 10.0, 1 << 30  # seconds of one input, bytes of memory of all
ROWS = [{"id": i, "name": f"n{i}", "x": i / 2, "l": [i, None], "s": {"a": i}} for i in range(50)]
_SPICE = [
    b"", b"\0", b"\xff" * 8, b'"', b"{", b"}", b"[" * 50, b"]", b",", b"\n", b"\r", b"<", b">", b"&", b"<!DOCTYPE a [", b"PAR1",
    b"\x7f" * 4, b"Obj\x01",
]  # fmt: skip


def _parquet(**how: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, **how)
    return sink.getvalue()


def _orc() -> bytes:
    sink = io.BytesIO()
    pyarrow.orc.write_table(pa.Table.from_pylist(ROWS), sink)
    return sink.getvalue()


def _avro(codec: str) -> bytes:
    sink, inner = io.BytesIO(), {"type": "record", "name": "s", "fields": [{"name": "a", "type": "long"}]}
    fields = [("id", "long"), ("name", "string"), ("x", "double"), ("l", {"type": "array", "items": ["null", "long"]}), ("s", inner)]
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    fastavro.writer(sink, schema, ROWS, codec=codec)
    return sink.getvalue()


LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
TABLE = b"id,name,x\n" + b"".join(b'%d,"n ""%d""\n",%d.5\n' % (i, i, i) for i in range(50))
DOCUMENT = b"<?xml version='1.0'?><a b='c'><!-- d --><e>f &amp; g</e><![CDATA[h]]></a>"


def _columns(kind: str) -> Callable[[bytes], object]:
    def read(content: bytes) -> None:
        for ask in (lambda: columnar.schema_of(kind, pa.BufferReader(content)), lambda: columnar.rows(kind, content, None)):
            try:
                ask()
            except BadContent:
                continue

    return read


def _text(kind: str) -> Callable[[bytes], object]:
    columns = text.canonical(
        kind, "id bigint, name string, x double" + (", l array<bigint>, s struct<a: bigint>" if kind == "jsonl" else "")
    )

    def read(content: bytes) -> None:
        for reader in (text.reader(kind, {}, None), text.reader(kind, {}, columns)):
            try:
                reader.sampled(content, whole=True) if reader.columns is None else reader.read(content, begins=True)
            except BadContent:
                continue

    return read


def _zip() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for i, method in enumerate((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)):
            archive.writestr(zipfile.ZipInfo(f"d/{i}"), LINES, method)
    return sink.getvalue()


def _tar(form: int) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=form) as archive:
        for name in ("a", "d/" * 60 + "b"):
            info = tarfile.TarInfo(name)
            info.size = len(LINES)
            archive.addfile(info, io.BytesIO(LINES))
    return sink.getvalue()


class _One:
    """A store that has the input, and gives the rest of what is asked for by ranges."""

    def __init__(self, content: bytes, *, held: bool) -> None:
        self.content, self.held = content, held

    def read_many(self, requests: Any) -> Iterator[Any]:
        for request in requests:
            content = self.content[request.start : request.start + request.length]
            yield request, content if self.held or request.length < len(self.content) else (each for each in (content,))


def _archive(content: bytes) -> None:
    for held in (True, False):
        request, store = ReadRequest("a", "", len(content), 0, len(content)), cast("Store", _One(content, held=held))
        for _, archive in archives.unpacking(store, compression.AUTO, 1 << 26, archives=True).read_many([request]):
            if not isinstance(archive, archives.Archive):
                continue
            try:
                for member in archive.members():
                    assert not {"..", "."} & {*member.name.split("/")}, member.name
                    try:
                        archive.content(member, 1 << 26)
                    except archives.BrokenArchive:
                        raise
                    except BadContent:
                        continue
            except archives.BrokenArchive:
                continue


def _codec(name: str) -> Callable[[bytes], object]:
    return lambda content: sum(map(len, compression.decode(name, content)))


_RECORD = {"type": "record", "name": "r", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}, {"name": "l", "type": {"type": "array", "items": "long"}},
    {"name": "m", "type": {"type": "map", "values": "bytes"}}, {"name": "d", "type": {"type": "bytes", "logicalType": "decimal",
    "precision": 9, "scale": 2}}, {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]}  # fmt: skip
_PROTO = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/struct.proto";
message M { int64 id = 1; optional string name = 2; repeated M2 l = 3; map<string, bytes> m = 4; google.protobuf.Timestamp t = 5;
google.protobuf.Struct s = 6; message M2 { fixed64 a = 1; } }"""


def _avro_record() -> bytes:
    sink = io.BytesIO()
    row = {"id": 1 << 40, "name": "n", "l": [1, 2, 3], "m": {"k": b"v" * 50}, "d": Decimal("12.34"), "t": datetime.now(tz=UTC)}
    fastavro.schemaless_writer(sink, fastavro.parse_schema(dict(_RECORD)), row)
    return sink.getvalue()


def _message() -> bytes:
    made = ProtobufForm(protoc.compiled(_PROTO), "M").made
    row = {"id": 1 << 40, "name": "n", "l": [{"a": 5}, {}], "m": {"k": b"v" * 50}, "t": {"seconds": 5}, "s": {"x": [1, None, {"y": "z"}]}}
    return bytes(made(**row).SerializeToString())


def _records(made: Decoder) -> Callable[[bytes], object]:
    def read(content: bytes) -> object:
        return made.decoded(pa.record_batch({"value": pa.array([content, content[:5]], pa.binary())}))

    return read


DECODERS: dict[str, tuple[list[bytes], Callable[[bytes], object]]] = {
    "parquet": ([_parquet(), _parquet(compression="gzip", use_dictionary=False), _parquet(version="1.0")], _columns("parquet")),
    "orc": ([_orc()], _columns("orc")),
    "avro": ([_avro(codec) for codec in ("null", "deflate", "snappy", "bzip2", "xz")], _columns("avro")),
    "csv": ([TABLE, TABLE.decode().encode("utf-16")], _text("csv")),
    "jsonl": ([LINES, LINES.decode().encode("utf-16")], _text("jsonl")),
    "xml": ([DOCUMENT], xml),
    "json": ([LINES, json.dumps(ROWS).encode()], json_lines),
    "gzip": ([gzip.compress(LINES), gzip.compress(b"a") + gzip.compress(LINES)], _codec("gzip")),
    "bzip2": ([bz2.compress(LINES)], _codec("bzip2")),
    "xz": ([lzma.compress(LINES)], _codec("xz")),
    "zstd": ([zstandard.compress(LINES)], _codec("zstd")),
    "lz4": ([pa.compress(LINES, codec="lz4", asbytes=True)], _codec("lz4")),
    "zip": ([_zip()], _archive),
    "tar": ([_tar(tarfile.PAX_FORMAT), _tar(tarfile.GNU_FORMAT), gzip.compress(_tar(tarfile.USTAR_FORMAT))], _archive),
    "avro record": ([_avro_record()], _records(decoder("avro", schema=dict(_RECORD)))),
    "protobuf": ([_message()], _records(decoder("protobuf", schema=protoc.compiled(_PROTO), message="M"))),
    "frame": ([b"\0\0\0\0\7\4\2\4abc", b"\0\0\0\0\7\0abc"], lambda content: unframed(content, indexed=True)),
    "json record": (LINES.splitlines()[:5], _records(decoder("json", schema="id bigint, name string, l array<bigint>"))),
    "json paths": (
        [LINES.splitlines()[0]],
        _records(decoder("json", columns={"id": "$.id: long", "l": "$.l[*]: array<int>", "s": "$.s: struct<a: int>", "x": "$.x: date"})),
    ),
    "xml paths": ([DOCUMENT], _records(decoder("xml", columns={"b": "/a/@b: string", "e": "//e: array<string>", "n": "count(//*): int"}))),
    "looking": (
        [LINES, TABLE, DOCUMENT, _avro("null"), _parquet(), gzip.compress(TABLE), _zip(), _tar(tarfile.PAX_FORMAT)],
        lambda content: looked("a", content, whole=True),
    ),
}


def damaged(good: list[bytes], draw: random.Random) -> bytes:
    """One input."""
    found = bytearray(draw.choice(good))
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        at = draw.randrange(len(found) + 1)
        match draw.randrange(6):
            case 0:
                found[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                del found[at : at + draw.randrange(1, 30)]
            case 2:
                found[at:at] = draw.choice(_SPICE) * draw.choice([1, 1, 1, 1000])
            case 3:
                found[at:at] = found[draw.randrange(len(found) + 1) :][: draw.randrange(400)]
            case 4:
                found[at : at + 8] = draw.randbytes(8)
            case _:
                found = found[:at] or bytearray(draw.randbytes(draw.randrange(200)))
    return bytes(found)


def fuzz(name: str, seconds: float, seed: int) -> Iterator[str]:
    """The findings of one decoder, in this process."""
    good, decode = DECODERS[name]
    resource.setrlimit(resource.RLIMIT_AS, (8 * MOST, 8 * MOST))  # a mistake does not take the machine along
    end, number, before = time.monotonic() + seconds, seed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    while time.monotonic() < end:
        content = damaged(good, random.Random(f"{name} {number}"))
        print(f"at {number}", flush=True)
        started = time.monotonic()
        try:
            decode(content)
        except BadContent as e:
            if "\n" in e.reason:
                yield f"{name} {number}: more than one line: {e.reason!r}"
        except Exception as e:
            yield f"{name} {number}: {type(e).__name__}: {e}"
        if (took := time.monotonic() - started) > LONGEST:
            yield f"{name} {number}: took {took:.1f} s"
        number += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    if peak > MOST:
        yield f"{name}: took {peak >> 20:,} MiB of memory"
    print(f"done {number - seed}", flush=True)


def run(name: str, seconds: float, seed: int) -> tuple[int, list[str]]:
    """How many inputs one decoder was given, in a process of its own, and what was found."""
    command = [sys.executable, __file__, name, "--seconds", str(seconds), "--seed", str(seed), "--here"]
    found, at, inputs = list[str](), "", 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            kind, _, rest = line.strip().partition(" ")
            if kind == "at":
                at = rest
            elif kind == "done":
                inputs = int(rest)
            else:
                found.append(line.strip())
    if not inputs:
        found.append(f"{name} {at}: its process ended with {child.returncode}")
    return inputs, found


def main(arguments: list[str]) -> int:
    """Run all decoders, or some; exit code 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("decoders", nargs="*", choices=[[], *DECODERS], metavar="decoder")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.here:
        for finding in fuzz(chosen.decoders[0], chosen.seconds, chosen.seed):
            print(finding, flush=True)
        return 0
    findings = list[str]()
    for name in chosen.decoders or DECODERS:
        inputs, found = run(name, chosen.seconds, chosen.seed)
        print(f"{name:<12} {inputs:>9,} inputs, {len(found)} findings", flush=True)
        findings += found
    print("\n".join(findings[:50]))
    return bool(findings)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main(sys.argv[1:]))
