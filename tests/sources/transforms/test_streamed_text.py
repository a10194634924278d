"""Long CSV files and JSON lines go into rows chunk by chunk: the same rows and quarantined records as of one that is held, or none."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quire
from gathering import gather, tar, write, zipped
from quire import Ledger
from quire.coverage.tails import Fingerprints, fingerprint
from quire.engine.attempt import Attempt
from quire.engine.kinds import reading, streamed, together
from quire.errors import AllQuarantined, FormatError
from quire.formats import running
from quire.sources import archives, compression
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.text import Csv, JsonLines, chunks, rejects
from quire.sources.transforms.text.csv_lines import CsvLines
from quire.sources.transforms.text.reader import Reader
from quire.storage import local

LOCAL: dict[str, Any] = {"spark": quire.LocalRunner()}
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
SCHEMA = "id long, name string, price double"
KINDS = pytest.mark.parametrize("kind", ["csv", "jsonl"])
CHUNK = 1_000


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few KB are long here, so that a file has hundreds of chunks."""
    for place, name, n in (
        (chunks, "HELD", 4 * CHUNK), (chunks, "CHUNK", CHUNK), (compression, "HELD", 2 * CHUNK), (archives, "HELD", 2 * CHUNK),
        (compression, "PIECE", 4 * CHUNK), (compression, "STORED", CHUNK), (together, "BYTES", 8 * CHUNK), (local, "WHOLE", 2 * CHUNK),
        (local, "PIECE", 2 * CHUNK),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, n)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What made attempts start again."""
    seen = list[str]()
    real = streamed.Again

    def again(key: Any, known: Any) -> Exception:
        seen.append(str(known))
        return real(key, known)

    monkeypatch.setattr(streamed, "Again", again)
    return seen


def line(kind: str, i: int) -> bytes:
    if kind == "csv":
        return b'%d,"n ""%d"",\n of",%d.5\n' % (i, i, i)
    return json.dumps({"id": i, "name": f'n "{i}",\n of', "price": i + 0.5}).encode() + b"\n"


def text(kind: str, n: int, first: int = 0, wrong: dict[int, bytes] | None = None) -> bytes:
    """`n` rows from `first` on; `wrong`: what stands before some of them."""
    head = b"id,name,price\n" if kind == "csv" else b""
    return head + b"".join((wrong or {}).get(i, b"") + line(kind, i) for i in range(first, first + n))


def want(n: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": i, "name": f'n "{i}",\n of', "price": i + 0.5} for i in range(first, first + n)]


def rows_of(dest: Path) -> list[dict[str, Any]]:
    """All rows, in the order in which they lie there."""
    return list(ds.dataset(sorted(map(str, dest.rglob("part-*.parquet")))).to_table().to_pylist())


def all_rows(dest: Path) -> list[dict[str, Any]]:
    """The same, with all columns that the destination has."""
    return list(ds.dataset(sorted(map(str, dest.rglob("*.parquet")))).to_table().to_pylist())


WRONG = {"csv": b'x,"y\nz",1\n', "jsonl": b'{"id": "x"}\n'}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0), ".bz2": bz2.compress, ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress, "": lambda data: data,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- as if it were held
@KINDS
@pytest.mark.parametrize("ending", PACKED)
def test_a_long_file_gives_its_rows_in_their_order_and_its_records_their_lines(kind: str, ending: str, tmp_path: Path) -> None:
    content = text(kind, 9_000, wrong={7_000: WRONG[kind], 8_999: WRONG[kind]})
    files = {f"2.{kind}{ending}": PACKED[ending](content), f"1.{kind}": text(kind, 2, 9_002), f"3.{kind}": text(kind, 2, 9_000)}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    report = gather(source, dest, transform=kind, schema=SCHEMA)
    assert (report.files, report.quarantined_count) == (3, 2)
    assert [row for row in rows_of(dest) if 0 <= row["id"] < 9_000] == want(9_000)
    assert sorted(rows_of(dest), key=lambda row: row["id"]) == want(9_004)
    ledger = Ledger(dest)
    (found, *parts) = [x for x in ledger.locate(source / f"2.{kind}{ending}") if x.state == "done"]
    assert found.records == 9_000
    assert sum(x.records or 0 for x in parts) == 0
    records = ledger.inspect.quarantined_records()
    at = [content.index(WRONG[kind]), content.rindex(WRONG[kind])]
    lines = [content.count(b"\n", 0, each) + 1 for each in at]
    assert [f"line {n:,}: " in why for n, why in zip(lines, records.error, strict=True)] == [True, True]
    assert list(records.content) == [WRONG[kind]] * 2
    assert [f"at byte {n:,} of" in why for n, why in zip(at, records.error, strict=True)] == [bool(ending)] * 2
    if not ending:
        assert [content[r.offset : r.offset + r.length] for r in records.itertuples()] == [WRONG[kind]] * 2
    assert ledger.verify(**LOCAL).ok
    assert gather(source, dest, transform=kind).files == 0


@KINDS
def test_records_of_a_long_file_are_retried_alone(kind: str, tmp_path: Path) -> None:
    good = {"csv": b'7,"y\nz",N\n', "jsonl": b'{"id": 7, "name": null, "more": 1}\n'}[kind]
    source, dest = write(tmp_path / "in", {f"1.{kind}.gz": gzip.compress(text(kind, 900, wrong={500: good}))}), tmp_path / "out"
    gather(source, dest, transform=kind, schema=SCHEMA)
    ledger = Ledger(dest)
    if kind == "csv":
        ledger.retry(source, text_options={"null_values": ["", "N"]}, progress=False, **LOCAL)
        assert sorted(row["id"] for row in rows_of(dest)) == sorted([*range(900), 7])
    else:
        with pytest.raises(AllQuarantined):
            ledger.retry(source, progress=False, **LOCAL)
        assert len(rows_of(dest)) == 900


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1"])
@KINDS
def test_text_in_any_encoding(kind: str, encoding: str, tmp_path: Path) -> None:
    wrong = WRONG[kind].decode()
    content = text(kind, 500).decode().replace("of", "öf") + wrong + line(kind, 500).decode()
    source, dest = write(tmp_path / "in", {f"1.{kind}": content.encode(encoding)}), tmp_path / "out"
    said = "auto" if encoding in ("utf-16", "utf-32", "utf-8-sig") else encoding
    report = gather(source, dest, transform=kind, schema=SCHEMA, encoding=said)
    assert (report.files, report.quarantined_count) == (1, 1)
    assert [row["id"] for row in rows_of(dest)] == list(range(501))
    assert "öf" in rows_of(dest)[0]["name"] or kind == "jsonl"
    (record,) = Ledger(dest).inspect.quarantined_records().itertuples()
    stored = content.encode(encoding)
    assert stored[record.offset : record.offset + record.length] == record.content
    assert wrong in record.content.decode("utf-8" if encoding == "utf-8-sig" else stored[:4] and encoding)
    assert Ledger(dest).verify(**LOCAL).ok


def test_half_a_character_says_where(tmp_path: Path) -> None:
    content = text("csv", 900).decode().encode("utf-16-le")
    at = 30_001 - 30_001 % 2
    damaged = content[:at] + b"\x00\xdc" + content[at:]  # half of a pair
    source, dest = write(tmp_path / "in", {"1.csv": damaged, "2.csv": "id,name,price\n1,a,1\n".encode("utf-16-le")}), tmp_path / "out"
    gather(source, dest, transform="csv", schema=SCHEMA, encoding="utf-16-le")
    (row,) = Ledger(dest).inspect.quarantined().itertuples()
    assert f"not valid utf-16-le at byte {at:,}" in row.reason
    assert [r["id"] for r in rows_of(dest)] == [1]


TOKENS = {
    "csv": [b"1", b"x", b",", b",", b"\n", b"\r\n", b"\r", b'"', b'""', b'"a,\r\nb"', b"1,a,2\n", b'2,"b\n""c",3.5\r\n', b"\xc3\xa4",
            b" ", b"\n\n"],
    "jsonl": [b'{"id": 1}\n', b'{"id": 2, "name": "a\\n"}\r\n', b'{"id": "x"}\n', b"\n", b" \n", b"{", b'"', b'{"price": 1.5}\n', b"null\n",
              b"\xff\n",
              b'{"more": [1]}\n', b'{"id": 3, "id": 4}\n'],
}  # fmt: skip
READERS: dict[str, Reader] = {
    "csv": Csv(columns=COLUMNS), "jsonl": JsonLines(columns=COLUMNS), "unnamed": Csv(columns=COLUMNS, header=False),
    "plain": Csv(columns=COLUMNS, quote=""), "rescued": Csv(columns=COLUMNS.append(pa.field("_r", pa.string())), rescued="_r"),
    "fields": JsonLines(columns=COLUMNS.append(pa.field("_r", pa.string())), rescued="_r"),
    "lines": CsvLines(columns=pa.schema([(n, pa.string()) for n in COLUMNS.names]), delimiter=",", quote='"', nulls=("",)),
}  # fmt: skip


def joined(made: list[Any]) -> Any:
    """Rows, or lines, as one."""
    return b"".join(made) if made and isinstance(made[0], bytes) else [row for each in made for row in each.to_pylist()]


def outcome(work: Callable[[], tuple[list[Any], list[Any]]]) -> Any:
    try:
        made, rejected = work()
    except BadContent:
        return "quarantined"
    return joined([each for each in made if len(each)]) or [], rejected


@pytest.mark.parametrize("which", READERS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_texts_in_random_chunks_are_as_if_read_whole(which: str, data: st.DataObject, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = READERS[which]
    kind = reader.name
    head = b"id,name,price\n" if kind == "csv" and which != "unnamed" else b""
    tokens = data.draw(st.lists(st.sampled_from(TOKENS[kind]), max_size=40))
    content = data.draw(st.sampled_from([b"", b"\n\n"])) * (kind == "csv") + head + b"".join(tokens)
    encoding = data.draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
    with suppress(UnicodeDecodeError):
        content = content.decode().encode(encoding)
    monkeypatch.setattr(chunks, "CHUNK", data.draw(st.integers(1, 60)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]

    def in_chunks() -> tuple[list[Any], list[Any]]:
        found = list(reader.stream(iter(pieces), 1 << 20))
        return [each for part in found for each in part.made], [each for part in found for each in part.rejected]

    assert outcome(in_chunks) == outcome(lambda: reader.read(content, begins=True))


def test_every_byte_may_end_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Carriage returns, quotes and marks at any edge."""
    content = b'\xef\xbb\xbfid,name,price\r\n1,"a\r\n""b""",1\r\n\r\n2,c,2\r\nx,"d",5\r\n3,"",3\r4,,4\n'
    reader = READERS["csv"]
    whole = outcome(lambda: reader.read(content, begins=True))
    assert (len(whole[0]), len(whole[1])) == (4, 1)
    for size in range(1, len(content) + 1):
        monkeypatch.setattr(chunks, "CHUNK", size)
        pieces = (content[i : i + size] for i in range(0, len(content), size))
        found = list(reader.stream(pieces, 1 << 20))
        assert (
            [row for part in found for each in part.made for row in each.to_pylist()],
            [r for part in found for r in part.rejected],
        ) == whole


# -------------------------------------------------------------------------------------------------------- what is taken back whole
def damaged(how: str, kind: str) -> bytes:
    rng = random.Random(5)
    content = b"".join(line(kind, i).replace(b" of", b" %032x of" % rng.getrandbits(128)) for i in range(3_000))
    packed = bytearray(gzip.compress((b"id,name,price\n" if kind == "csv" else b"") + content, mtime=0))
    if how == "truncated":
        return bytes(packed[: len(packed) * 2 // 3])
    if how == "checksum":
        packed[-6] ^= 255
    else:
        at = len(packed) // 2
        packed[at : at + 8] = b"\xff" * 8
    return bytes(packed)


@KINDS
@pytest.mark.parametrize(("how", "why"), [("truncated", "is cut off"), ("middle", ""), ("checksum", "is damaged")])
def test_none_of_a_damaged_file_counts(kind: str, how: str, why: str, tmp_path: Path, starts: list[str]) -> None:
    files = {f"1.{kind}": text(kind, 300), f"2.{kind}.gz": damaged(how, kind), f"3.{kind}": text(kind, 300, 300)}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    report = gather(source, dest, transform=kind, schema=SCHEMA)
    assert (report.files, report.quarantined_count) == (2, 1)
    assert len(starts) == 1  # rows of it were written already
    assert rows_of(dest) == want(600)
    ledger = Ledger(dest)
    (row,) = ledger.inspect.quarantined().itertuples()
    assert (row.start, row.length) == (0, len(files[f"2.{kind}.gz"]))
    assert why in row.reason
    if how != "middle":
        assert "at or before byte" in row.reason
    assert [path.name for path in dest.rglob("*") if path.is_file() and "_quire" not in path.parts] == [
        path.name for path in dest.glob("part-*")
    ]
    assert ledger.verify(**LOCAL).ok
    write(source, {f"2.{kind}.gz": gzip.compress(text(kind, 300, 600))})
    assert gather(source, dest, transform=kind).files == 1
    assert rows_of(dest) == want(900)


@KINDS
def test_a_bomb_is_quarantined_where_it_is_seen(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: list[str]) -> None:
    monkeypatch.setattr(compression, "FREE", 60_000)
    monkeypatch.setattr(compression, "RATIO", 5)
    source = write(tmp_path / "in", {f"1.{kind}.gz": gzip.compress(text(kind, 20) + line(kind, 1) * 50_000), f"2.{kind}": text(kind, 2)})
    gather(source, tmp_path / "out", transform=kind, schema=SCHEMA)
    (row,) = Ledger(tmp_path / "out").inspect.quarantined().itertuples()
    assert "as a bomb does (at byte" in row.reason
    assert len(starts) == 1
    assert rows_of(tmp_path / "out") == want(2)


@KINDS
@pytest.mark.parametrize("ending", [".gz", ""])
def test_an_endless_record_is_quarantined_with_its_file(kind: str, ending: str, tmp_path: Path) -> None:
    endless = {"csv": b'1,"' + b"x\n" * 40_000, "jsonl": b'{"id": 1, "name": "' + b"x" * 80_000}[kind]
    files = {f"1.{kind}{ending}": PACKED[ending](text(kind, 300) + endless), f"2.{kind}": text(kind, 2)}
    if kind == "jsonl" and not ending:  # which is cut into ranges, so that its end is quarantined alone
        files[f"1.{kind}"] = files[f"1.{kind}"].decode().encode("utf-16")
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest, transform=kind, schema=SCHEMA, max_file_size="50 KB")
    (row,) = Ledger(dest).inspect.quarantined().itertuples()
    assert f"its record that begins at line {text(kind, 300).count(10) + 1:,} is longer than max_file_size, 50,000 bytes" in row.reason
    assert rows_of(dest) == want(2)
    Ledger(dest).retry(source, max_file_size="1 MB", progress=False, **LOCAL)
    assert sorted(r["id"] for r in rows_of(dest)) == sorted([*range(300), 0, 1])  # the record that has no end stays alone in quarantine


def test_records_longer_than_a_chunk_are_rows(tmp_path: Path) -> None:
    rows = [{"id": i, "name": "x" * (i * 3_000), "price": 0.5} for i in range(9)]
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    source = write(tmp_path / "in", {"1.jsonl.gz": gzip.compress(content)})
    gather(source, tmp_path / "out", transform="jsonl", schema=SCHEMA)
    assert rows_of(tmp_path / "out") == rows


@KINDS
def test_a_file_of_another_kind_behind_its_beginning(kind: str, tmp_path: Path, starts: list[str]) -> None:
    """More than a thousand records, and more than a tenth, do not fit: nothing of it is taken."""
    bad = b"x,y,z\n" if kind == "csv" else b"x\n"
    files = {f"1.{kind}.gz": gzip.compress(text(kind, 2_000) + bad * 3_000), f"2.{kind}": text(kind, 2)}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest, transform=kind, schema=SCHEMA)
    (row,) = Ledger(dest).inspect.quarantined().itertuples()
    assert row.reason.startswith(f"more than {rejects.MOST:,} of its first ")
    assert len(starts) == 1
    assert rows_of(dest) == want(2)


def test_a_thousand_records_may_stay_out(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"1.jsonl.gz": gzip.compress(text("jsonl", 2_000) + b"x\n" * 1_000 + line("jsonl", 2_000))})
    report = gather(source, tmp_path / "out", transform="jsonl", schema=SCHEMA)
    assert report.quarantined_count == 1_000
    assert rows_of(tmp_path / "out") == want(2_001)


def test_what_is_kept_of_records_that_do_not_fit_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "ASIDE", 20_000)
    wrong = b'{"id": "%s"}\n' % (b"x" * 5_000)
    files = {"1.jsonl.gz": gzip.compress(text("jsonl", 300, wrong=dict.fromkeys(range(0, 50, 10), wrong))), "2.jsonl": text("jsonl", 2)}
    source = write(tmp_path / "in", files)
    gather(source, tmp_path / "out", transform="jsonl", schema=SCHEMA)
    (row,) = Ledger(tmp_path / "out").inspect.quarantined().itertuples()
    assert "its records that do not fit have more than" in row.reason
    assert rows_of(tmp_path / "out") == want(2)


@KINDS
@pytest.mark.parametrize("ending", [".gz", ""])
def test_nothing_and_a_header_alone(kind: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "HELD", 0)  # all is long
    files = {
        f"1.{kind}{ending}": PACKED[ending](b""),
        f"2.{kind}{ending}": PACKED[ending](text(kind, 0) + b"\n"),
        f"3.{kind}": text(kind, 5),
    }
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    report = gather(source, dest, transform=kind, schema=SCHEMA)
    assert (report.files, report.quarantined_count) == (3, 0)
    assert rows_of(dest) == want(5)
    assert Ledger(dest).verify(**LOCAL).ok
    assert gather(source, dest, transform=kind).files == 0


def test_a_header_that_is_wrong_stops_before_anything_is_written(tmp_path: Path, starts: list[str]) -> None:
    content = b"\n" * 3 * CHUNK + b"id,other\n" + b"1,2\n" * 3_000
    source = write(tmp_path / "in", {"1.csv": content, "2.csv": text("csv", 2)})
    gather(source, tmp_path / "out", transform="csv", schema=SCHEMA)
    (row,) = Ledger(tmp_path / "out").inspect.quarantined().itertuples()
    assert "'other' of its header" in row.reason
    assert not starts


def test_columns_that_nobody_knows_are_said(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"1.csv": b"id;name\n" + b"1;a\n" * 3_000})
    gather(source, tmp_path / "out", transform="csv")
    (row,) = Ledger(tmp_path / "out").inspect.quarantined().itertuples()
    assert "say delimiter=';'" in row.reason


# ------------------------------------------------------------------------------------------------------------------- other choices
def test_a_column_that_comes_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunk 90: its records are quarantined, as of a file that is held; `rescued` keeps their values; columns that grow take them."""
    late = b'{"id": 0, "more": 1}\n'
    content = text("jsonl", 2_000, wrong={1_900: late})
    assert content.index(late) // CHUNK >= 90
    source = write(tmp_path / "in", {"1.jsonl.gz": gzip.compress(content)})
    for held in (False, True):
        if held:
            monkeypatch.setattr(chunks, "HELD", 1 << 30)
        for name, how in (("plain", {}), ("rescued", {"rescued": "_rescued"})):
            dest = tmp_path / f"{name}-{held}"
            report = gather(source, dest, transform="jsonl", schema=SCHEMA, **how)
            assert (report.files, report.quarantined_count) == (1, int(name == "plain"))
            assert len(rows_of(dest)) == 2_000 + (name == "rescued")
            assert [row["_rescued"] for row in rows_of(dest) if row.get("_rescued")] == ['{"more":1}'] * (name == "rescued")
            assert "'more' is not among the columns" in str(Ledger(dest).inspect.quarantined().reason.tolist()) or name == "rescued"
    dest = tmp_path / "plain-False"
    write(source, {"2.jsonl.gz": gzip.compress(b'{"id": -1, "more": 5}\n' + text("jsonl", 900, 2_000, {2_800: late}))})
    report = gather(source, dest, transform="jsonl", schema_evolution="add")
    assert (report.files, report.quarantined_count) == (1, 0)
    assert sorted(row["more"] for row in all_rows(dest) if row["more"]) == [1, 5]
    assert Ledger(dest).verify(**LOCAL).ok
    Ledger(dest).retry(source, progress=False, **LOCAL)
    assert sorted(row["more"] for row in ds.dataset(sorted(map(str, dest.rglob("*.parquet")))).to_table().to_pylist() if row["more"]) == [
        1,
        1,
        5,
    ]


def test_directories_of_the_source_and_of_the_destination(tmp_path: Path) -> None:
    files = {f"dt=2026-11-2{i}/1.jsonl.gz": gzip.compress(text("jsonl", 400, 400 * i)) for i in range(3)}
    source = write(tmp_path / "in", files)
    gather(source, tmp_path / "out", transform="jsonl", partition_by="path.dt", schema=SCHEMA)
    found = ds.dataset(tmp_path / "out", partitioning="hive", exclude_invalid_files=True).to_table()
    assert sorted(found.column("id").to_pylist()) == list(range(1_200))
    assert len(set(found.column("dt").to_pylist())) == 3
    gather(source, tmp_path / "out2", transform="jsonl", partition_columns="directories", schema=SCHEMA)
    assert len({row["dt"] for row in rows_of(tmp_path / "out2")}) == 3
    assert len(rows_of(tmp_path / "out2")) == 1_200


def test_rows_in_order(tmp_path: Path) -> None:
    rng = random.Random(1)
    ids = list(range(2_000))
    rng.shuffle(ids)
    content = b"".join(line("jsonl", i) for i in ids)
    source = write(tmp_path / "in", {"1.jsonl.gz": gzip.compress(content), "2.jsonl": text("jsonl", 100, 2_000)})
    gather(source, tmp_path / "out", transform="jsonl", sort_by="id", schema=SCHEMA)
    assert rows_of(tmp_path / "out") == want(2_100)


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_csv_into_lines(compression: str, tmp_path: Path, starts: list[str]) -> None:
    source = write(tmp_path / "in", {"1.csv.gz": gzip.compress(text("csv", 3_000)), "2.csv.gz": damaged("truncated", "csv")})
    dest = tmp_path / "out"
    report = gather(source, dest, transform="csv", format="lines", compression=compression)
    assert (report.files, report.quarantined_count, len(starts)) == (1, 1, 1)
    (path,) = dest.glob("part-*")
    assert pd.read_csv(path).shape == (3_000, 3)
    ledger = Ledger(dest)
    with pytest.warns(UserWarning, match="decoded"):
        assert ledger.read(source / "1.csv.gz") == text("csv", 3_000)
    assert ledger.verify(**LOCAL).ok


@pytest.mark.parametrize("packed", ["zip", "tar", "tar.gz"])
@KINDS
def test_members_of_archives(kind: str, packed: str, tmp_path: Path, starts: list[str]) -> None:
    members = {"a": text(kind, 900, wrong={700: WRONG[kind]}), "b": b"", "c": text(kind, 900, 900)}
    content = {"zip": zipped, "tar": tar, "tar.gz": lambda files: gzip.compress(tar(files))}[packed](members)
    source, dest = write(tmp_path / "in", {f"1.{packed}": content}), tmp_path / "out"
    report = gather(source, dest, transform=kind, schema=SCHEMA, archives=True, max_file_size="20 KB")
    assert (report.files, report.quarantined_count) == (1, 1)
    assert rows_of(dest) == want(1_800)
    ledger = Ledger(dest)
    (record,) = ledger.inspect.quarantined_records().itertuples()
    assert record.content == WRONG[kind]
    assert "of the member" in record.error
    (place,) = [x for x in ledger.locate(f"{source}/1.{packed}!c") if x.state == "done"]
    assert place.records == 900
    with pytest.raises(AllQuarantined):
        ledger.retry(source, progress=False, **LOCAL)
    assert ledger.refresh().verify(**LOCAL).ok


@pytest.mark.parametrize("packed", ["zip", "tar", "tar.gz"])
@pytest.mark.parametrize("transform", ["csv", "jsonl", "lines", "raw"])
def test_members_that_are_compressed_files_are_streams(
    transform: str, packed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored bytes of few or of many pieces; what they decode to may be longer than anything that is held."""
    kind = "csv" if transform == "csv" else "jsonl"
    longest, real = [0], compression.bounded

    def bounded(*given: Any) -> compression.Decoded:
        found = real(*given)
        longest[0] = max(longest[0], len(found.content) if isinstance(found.content, bytes) else 0)
        return found

    monkeypatch.setattr(compression, "bounded", bounded)
    members = dict[str, bytes]()
    contents = [text(kind, 900), text(kind, 0), text(kind, 900, 900)]
    for i, (ending, content) in enumerate(zip((".gz", ".zst", ".bz2"), contents, strict=True)):
        members[f"{i}.{kind}{ending}"] = PACKED[ending](content)
    content = {"zip": zipped, "tar": tar, "tar.gz": lambda files: gzip.compress(tar(files))}[packed](members)
    source, dest = write(tmp_path / "in", {f"1.{packed}": content}), tmp_path / "out"
    how: dict[str, Any] = {"schema": SCHEMA} if transform == kind else {"decompress": "auto"}
    report = gather(source, dest, transform=transform, archives=True, max_file_size="5 KB", **how)
    assert (report.files, report.quarantined_count) == (1, 0)
    assert longest[0] <= 4 * CHUNK
    ledger = Ledger(dest)
    if transform == kind:
        assert [row["id"] for row in rows_of(dest)] == list(range(1_800))
    else:
        assert b"".join(path.read_bytes() for path in sorted(dest.glob("part-*"))) == b"".join(contents)
        with pytest.warns(UserWarning, match="decoded"):
            assert ledger.read(f"{source}/1.{packed}!2.{kind}.bz2") == contents[2]
    assert ledger.verify(**LOCAL).ok
    assert gather(source, dest, transform=transform, archives=True, **how).files == 0
    report = ledger.purge_sources(source, derived=transform == kind, min_age="0 s", dry_run=False, **LOCAL)
    assert report.files == 1
    assert not [path for path in source.rglob("*") if path.is_file()]


@pytest.mark.parametrize("packed", ["zip", "tar"])
@pytest.mark.parametrize("transform", ["jsonl", "lines"])
def test_damaged_members_are_quarantined_alone_and_cost_one_more_reading(
    transform: str, packed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = list[int]()
    real = Attempt.run

    def run(self: Attempt) -> Any:
        attempts.append(1)
        return real(self)

    monkeypatch.setattr(Attempt, "run", run)
    members = {f"{i}.gz": damaged("truncated", "jsonl") if i % 3 == 1 else gzip.compress(text("jsonl", 300, 300 * i)) for i in range(12)}
    content = {"zip": zipped, "tar": tar}[packed](members)
    source, dest = write(tmp_path / "in", {f"1.{packed}": content}), tmp_path / "out"
    gather(source, dest, transform=transform, archives=True, **({"schema": SCHEMA} if transform == "jsonl" else {}))
    ledger = Ledger(dest)
    found = ledger.inspect.quarantined()
    assert sorted(found.member) == ["1.gz", "10.gz", "4.gz", "7.gz"]
    assert ["its gzip is cut off at or before byte" in why for why in found.reason] == [True] * 4
    good = [i for i in range(12) if i % 3 != 1]
    if transform == "jsonl":
        assert [row["id"] for row in rows_of(dest)] == [n for i in good for n in range(300 * i, 300 * i + 300)]
    else:
        assert b"".join(path.read_bytes() for path in sorted(dest.glob("part-*"))) == b"".join(text("jsonl", 300, 300 * i) for i in good)
    assert len(attempts) == 2, "the others were looked at before it began again"
    assert ledger.verify(**LOCAL).ok


@KINDS
def test_an_archive_that_is_cut_off_is_taken_back_whole(kind: str, tmp_path: Path, starts: list[str]) -> None:
    content = gzip.compress(tar({"a": text(kind, 900), "b": damaged("whole", kind) * 3, "c": text(kind, 2)}))
    source = write(tmp_path / "in", {"1.tar.gz": content[:-4_000], f"2.{kind}": text(kind, 2)})
    gather(source, tmp_path / "out", transform=kind, schema=SCHEMA, archives=True)
    (row,) = Ledger(tmp_path / "out").inspect.quarantined().itertuples()
    assert row.path.endswith("1.tar.gz")
    assert row.length == len(content) - 4_000
    assert rows_of(tmp_path / "out") == want(2)


def test_a_file_that_changes_while_it_is_read_is_left_to_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: list[str]
) -> None:
    source = write(tmp_path / "in", {"1.csv": text("csv", 900), "2.csv": text("csv", 2)})
    real, once = Reader.stream, list[int]()

    def stream(self: Reader, pieces: Iterator[bytes], most: int, start: int) -> Iterator[Any]:
        for i, found in enumerate(real(self, pieces, most, start)):
            if i == 3 and not once:
                once.append(1)
                time.sleep(0.01)
                (source / "1.csv").write_bytes(text("csv", 900, 5_000))
            yield found

    monkeypatch.setattr(Reader, "stream", stream)
    gather(source, tmp_path / "out", transform="csv", schema=SCHEMA)
    assert len(starts) == 1
    assert "changed" in starts[0]
    gather(source, tmp_path / "out", transform="csv")
    assert sorted(row["id"] for row in rows_of(tmp_path / "out")) == sorted([0, 1, *range(5_000, 5_900)])


# ------------------------------------------------------------------------------------------------------------- files that grow
TAIL: dict[str, Any] = {"transform": "jsonl", "schema": SCHEMA, "on_append": "tail"}


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
    later = time.time_ns() + 1_000_000  # another version, however coarse the file system's clock is
    os.utime(path, ns=(later, later))


def tiles(ledger: Ledger, path: Path) -> list[tuple[int, int, str]]:
    """What the ledger has of a file, which must touch: (start, length, state)."""
    found = sorted((x.start, x.length, x.state) for x in ledger.refresh().locate(path))
    assert [start for start, *_ in found] == [0, *(start + length for start, length, _ in found[:-1])]
    assert sum(found[-1][:2]) == path.stat().st_size
    return found


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each text that was parsed, of what was joined to be held, and of what was asked for from the middle of a file."""
    seen = list[int]()
    real, held = JsonLines.parse, chunks.held

    def parse(self: JsonLines, head: None, text: bytes) -> pa.RecordBatch:
        seen.append(len(text))
        return real(self, head, text)

    def holds(pieces: Iterator[bytes], most: int) -> bytes | Iterator[bytes]:
        found = held(pieces, most)
        seen.append(len(found) if isinstance(found, bytes) else 0)
        return found

    monkeypatch.setattr(JsonLines, "parse", parse)
    monkeypatch.setattr(chunks, "held", holds)
    monkeypatch.setattr(reading, "APPENDED", 2 * CHUNK)  # what is read at once of a file that is being written to
    return seen


@pytest.mark.parametrize("last", [b"", b'{"id": 900, "na'])
def test_a_long_file_that_grows_by_long_ends_is_never_held(last: bytes, tmp_path: Path, parsed: list[int]) -> None:
    """Records that do not fit and lines without an end among them; a wrong record is as done as what lies around it."""
    content = text("jsonl", 900, wrong={500: WRONG["jsonl"]})
    source, dest = write(tmp_path / "in", {"1.jsonl": content + last}), tmp_path / "out"
    report = gather(source, dest, **TAIL)
    assert (report.files, report.held_back, report.quarantined_count) == (1, int(bool(last)), 1)
    assert rows_of(dest) == want(900)
    more = text("jsonl", 1_200, 900, wrong={1_000: WRONG["jsonl"], 1_001: WRONG["jsonl"]})
    append(source / "1.jsonl", b'me": "x"}\n' * bool(last) + more)
    report = gather(source, dest, **TAIL)
    assert (report.held_back, report.quarantined_count, report.changed_count) == (0, 2, 0)
    rest = [{"id": 900, "name": "x", "price": None}] * bool(last) + want(1_200, 900)
    assert sorted(rows_of(dest), key=repr) == sorted([*want(900), *rest], key=repr)
    whole, ledger = (source / "1.jsonl").read_bytes(), Ledger(dest)
    records = ledger.inspect.quarantined_records()
    assert [whole[r.offset : r.offset + r.length] for r in records.itertuples()] == [WRONG["jsonl"]] * 3
    assert ["line 501: " in why for why in records.error] == [True, False, False]
    assert len(tiles(ledger, source / "1.jsonl")) >= 6
    assert ledger.verify(**LOCAL).ok
    assert gather(source, dest, **TAIL).jobs == ()
    assert max(parsed) <= CHUNK + 100, "more of a file was held than a chunk and a record"


def test_fingerprints_of_what_has_passed_are_those_of_what_is_held() -> None:
    rng = random.Random(3)
    for _ in range(200):
        content = rng.randbytes(rng.choice([1, 100, 4_095, 4_096, 8_192, 8_193, 30_000]))
        at, start = (0, 0) if rng.random() < 0.7 else (0, rng.randint(0, len(content) - 1))
        found = Fingerprints(start, at)
        cuts = sorted(rng.choices(range(len(content) + 1), k=4))
        for _ in found.passing(content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)):
            pass
        spans, end, place = list[tuple[int, int]](), len(content), start
        for mark in sorted(rng.choices(range(start, end + 1), k=3)):
            found.settle(mark)
        while place < end and len(spans) < 5:
            first = rng.randint(place, end - 1)
            spans.append((first, rng.randint(1, end - first)))
            place = sum(spans[-1])
        found = Fingerprints(start, at)
        for _ in found.passing(iter((content,))):
            pass
        middle = rng.randint(0, len(spans))
        edge = spans[middle - 1][0] + spans[middle - 1][1] if middle else start
        found.settle(edge, spans[:middle])
        found.settle(rng.randint(edge, spans[middle][0] if middle < len(spans) else end))
        found.settle(end, spans[middle:])
        found.last(end)
        done, aside = reading.cut(start, end - start, spans)
        assert found.of == {(a, n): fingerprint(content[a : a + n]) for a, n in (*done, *aside)}


@pytest.mark.parametrize("flush", ["hold", "take"])
def test_a_last_line_of_a_long_end_waits_or_is_taken(flush: str, tmp_path: Path, parsed: list[int]) -> None:
    source, dest = write(tmp_path / "in", {"1.jsonl": text("jsonl", 3)}), tmp_path / "out"
    gather(source, dest, **TAIL)
    append(source / "1.jsonl", text("jsonl", 900, 3) + line("jsonl", 903)[:-1])
    report = gather(source, dest, partial_lines=flush, **TAIL)
    assert report.held_back == (flush == "hold")
    assert rows_of(dest) == want(903 + (flush == "take"))
    append(source / "1.jsonl", b"\n" + text("jsonl", 900, 904))
    report = gather(source, dest, **TAIL)
    assert report.longer_count == (flush == "take"), "what goes on behind a line that was taken may be the rest of it"
    assert rows_of(dest) == want(1_804 if flush == "hold" else 904)
    assert Ledger(dest).verify(**LOCAL).ok
    assert max(parsed) <= CHUNK + 100


def test_a_long_end_without_a_whole_line_waits(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"1.jsonl": text("jsonl", 3)}), tmp_path / "out"
    gather(source, dest, **TAIL)
    long = json.dumps({"id": 3, "name": "x" * 50_000}).encode()
    append(source / "1.jsonl", long)
    report = gather(source, dest, **TAIL)
    assert (report.files, report.held_back) == (0, 1)
    append(source / "1.jsonl", b"\n" + line("jsonl", 4))
    gather(source, dest, **TAIL)
    assert [row["id"] for row in rows_of(dest)] == [0, 1, 2, 3, 4]


def test_a_part_of_a_long_file_that_was_lost_is_read_again_as_a_stream(tmp_path: Path, parsed: list[int]) -> None:
    """It lies within the file, so that its last line ends where others go on."""
    source, dest = write(tmp_path / "in", {"1.jsonl": text("jsonl", 900)}), tmp_path / "out"
    for first in (900, 1_800, 2_700):
        gather(source, dest, **TAIL)
        append(source / "1.jsonl", text("jsonl", 900, first))
    ledger, how = Ledger(dest), {**TAIL, "max_file_size": "10 KB"}
    for at in (0, sorted(x.start for x in ledger.locate(source / "1.jsonl"))[1]):
        lost = next(x.data_file for x in ledger.refresh().locate(source / "1.jsonl") if x.start == at)
        assert lost is not None
        (dest / lost).unlink()
        ledger.forget(file=lost, progress=False, **LOCAL)
        append(source / "1.jsonl", line("jsonl", -1))
        assert gather(source, dest, **how).quarantined_count == 0
        assert sorted(row["id"] for row in rows_of(dest) if row["id"] >= 0) == list(range(3_600))
        tiles(ledger, source / "1.jsonl")
        assert gather(source, dest, **how).jobs == ()
    assert ledger.verify(**LOCAL).ok
    assert max(parsed) <= CHUNK + 100


def test_a_long_end_that_was_quarantined_is_retried_as_a_stream(tmp_path: Path, parsed: list[int]) -> None:
    source, dest = write(tmp_path / "in", {"1.jsonl": text("jsonl", 900)}), tmp_path / "out"
    gather(source, dest, **TAIL)
    long = json.dumps({"id": 905, "name": "x" * 20_000}).encode() + b"\n"
    append(source / "1.jsonl", text("jsonl", 900, 900, {905: long, 950: WRONG["jsonl"]}))
    at = len(text("jsonl", 905))
    gather(source, dest, max_file_size="4 KB", **TAIL)
    (row,) = Ledger(dest).inspect.quarantined().itertuples()
    assert f"its record that begins at byte {at:,} is longer than max_file_size" in row.reason
    assert rows_of(dest) == want(900)
    Ledger(dest).retry(source, max_file_size="50 KB", progress=False, **LOCAL)
    assert sorted(row["id"] for row in rows_of(dest)) == sorted([*range(1_800), 905])
    (record,) = Ledger(dest).inspect.quarantined_records().itertuples()
    assert (source / "1.jsonl").read_bytes()[record.offset :][: record.length] == record.content == WRONG["jsonl"]
    append(source / "1.jsonl", line("jsonl", 1_800))
    assert gather(source, dest, **TAIL).bytes == len(line("jsonl", 1_800)), "it is followed from there"
    tiles(Ledger(dest), source / "1.jsonl")


def test_a_long_file_that_is_written_to_while_it_is_read_gives_each_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "APPENDED", 6 * CHUNK)
    source, dest = write(tmp_path / "in", {"1.jsonl": text("jsonl", 300)}), tmp_path / "out"
    real, rows = local.LocalStore.read_many, [300]

    def growing(self: Any, requests: Any) -> Any:
        for answer in real(self, requests):
            if rows[0] < 900 and answer[0].name == "1.jsonl":
                append(source / "1.jsonl", text("jsonl", 10, rows[0]))
                rows[0] += 10
            yield answer

    with monkeypatch.context() as patch:
        patch.setattr(local.LocalStore, "read_many", growing)
        taken = [gather(source, dest, **TAIL).bytes for _ in range(12)]
    assert sum(n > 0 for n in taken) >= 2, "a file that is always being written to was never read"
    for _ in range(10):
        gather(source, dest, **TAIL)
    assert sorted(row["id"] for row in rows_of(dest)) == list(range(rows[0]))
    tiles(Ledger(dest), source / "1.jsonl")


def test_a_change_behind_the_lines_that_are_read_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: list[str]) -> None:
    """The stream ends before the line that has no end, and does not look again at the file."""
    monkeypatch.setattr(reading, "APPENDED", 2 * CHUNK)
    source, dest = write(tmp_path / "in", {"1.jsonl": text("jsonl", 900) + b'{"id'}), tmp_path / "out"
    real, once = Reader.stream, list[int]()

    def stream(self: Reader, pieces: Iterator[bytes], most: int, start: int) -> Iterator[Any]:
        yield from real(self, pieces, most, start)
        if not once:
            once.append(1)
            (source / "1.jsonl").write_bytes(text("jsonl", 900, 5_000))

    monkeypatch.setattr(Reader, "stream", stream)
    gather(source, dest, **TAIL)
    assert starts
    assert "changed" in starts[0]
    gather(source, dest, **TAIL)
    assert rows_of(dest) == want(900, 5_000)


@pytest.mark.parametrize("n", [3, 900])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_text_whose_lines_cannot_be_told_is_not_followed(n: int, encoding: str, tmp_path: Path) -> None:
    content = ("\ufeff" + text("jsonl", n).decode()).encode(encoding)
    source, dest = write(tmp_path / "in", {"1.jsonl": content, "2.jsonl": text("jsonl", 2)}), tmp_path / "out"
    gather(source, dest, **TAIL)
    (row,) = Ledger(dest).inspect.quarantined().itertuples()
    assert f"its text is {encoding}, in which no line's end stands alone" in row.reason
    assert rows_of(dest) == want(2)


@pytest.mark.parametrize("grown", [False, True])
def test_memory_is_flat_however_long_the_lines_of_a_file_are_together(grown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "APPENDED", 2 * CHUNK)
    source, dest = write(tmp_path / "in", {"1.jsonl": text("jsonl", 3)}), tmp_path / "out"
    if grown:
        gather(source, dest, **TAIL)
    append(source / "1.jsonl", text("jsonl", 20_000, 3) + b'{"id"')
    now, asked, real, read_many = list[int](), list[int](), JsonLines.parse, local.LocalStore.read_many

    def parse(self: JsonLines, head: None, text: bytes) -> pa.RecordBatch:
        now.append(tracemalloc.get_traced_memory()[0])
        return real(self, head, text)

    def asking(self: Any, requests: Any) -> Any:
        for request, answer in read_many(self, requests):
            asked.append(len(answer) if isinstance(answer, bytes) else 0)
            yield request, answer

    monkeypatch.setattr(JsonLines, "parse", parse)
    monkeypatch.setattr(local.LocalStore, "read_many", asking)
    tracemalloc.start()
    try:
        gather(source, dest, **TAIL)
    finally:
        tracemalloc.stop()
    assert rows_of(dest) == want(20_003)
    assert (source / "1.jsonl").stat().st_size > 1 << 20
    assert max(asked) <= 2 * CHUNK
    assert max(now) < 500_000, "as much of it is held as there is"


# ------------------------------------------------------------------------------------------------------- what is made of it later
@pytest.fixture
def long_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two long files and a short one, whose rows are read back some at a time."""
    monkeypatch.setattr(running, "SHORT", 10_000)
    monkeypatch.setattr("quire.formats.parquet.ParquetWriter.group", 8_000)
    files = {"1.csv.gz": gzip.compress(text("csv", 900)), "2.csv": text("csv", 900, 900), "3.csv": text("csv", 3, 1_800)}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest, transform="csv", schema=SCHEMA)
    return source, dest


def test_rows_that_are_written_again_are_carried_some_at_a_time(long_rows: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = long_rows
    monkeypatch.setattr("quire.formats.parquet.RowReader.take", _short_only)
    ledger = Ledger(dest)
    assert ledger.verify(**LOCAL).ok
    ledger.forget(paths=[source / "3.csv"], progress=False, **LOCAL)
    assert rows_of(dest) == want(1_800)
    assert ledger.refresh().verify(**LOCAL).ok
    gather(source, dest, transform="csv")
    ledger.refresh().compact(target_size="1 MiB", progress=False, **LOCAL)
    assert rows_of(dest) == want(1_803)
    assert ledger.refresh().verify(**LOCAL).ok
    (place,) = ledger.locate(source / "1.csv.gz")
    assert place.records == 900


REAL_TAKE = quire.formats.parquet.RowReader.take


def _short_only(self: Any, start: int, n: int) -> pa.Table:
    assert n < 10, "a long record is held"
    return REAL_TAKE(self, start, n)


def test_a_purge_reads_them_back_some_at_a_time(long_rows: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = long_rows
    monkeypatch.setattr("quire.formats.parquet.RowReader.take", _short_only)
    report = Ledger(dest).purge_sources(source, derived=True, min_age="0 s", dry_run=False, **LOCAL)
    assert report.files == 3, report
    assert not [path for path in source.rglob("*") if path.is_file()]
    assert rows_of(dest) == want(1_803)


def test_damage_to_the_rows_of_a_long_file_is_seen(long_rows: tuple[Path, Path]) -> None:
    source, dest = long_rows
    (path,) = dest.glob("part-*.parquet")
    file = pq.ParquetFile(path)
    table = file.read()
    i = 850
    other = table.set_column(
        0, table.schema.field(0), pa.array([*table.column(0).to_pylist()[:i], -7, *table.column(0).to_pylist()[i + 1 :]])
    )
    size = path.stat().st_size
    pq.write_table(other, path, row_group_size=100, compression="zstd")
    found = Ledger(dest).verify(**LOCAL)
    assert any("1.csv.gz" in where and "checksum" in what for _, where, what in found.damaged), (found.damaged, size)
    assert not any("3.csv" in where for _, where, _ in found.damaged)
    with pytest.raises(FormatError, match="its checksum differs"):
        Ledger(dest).forget(paths=[source / "2.csv"], progress=False, **LOCAL)
    report = Ledger(dest).purge_sources(source, derived=True, min_age="0 s", dry_run=False, **LOCAL)
    assert (source / "1.csv.gz").exists(), report
    assert not (source / "3.csv").exists()
