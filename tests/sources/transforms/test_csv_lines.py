"""CSV files become few files of lines, each with one header: records stay as they are, or are rearranged, and none is lost."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
import zstandard

import quire
from gathering import gather, look, refused, write
from quire import Ledger
from quire.errors import RefusedError, UsageError
from quire.read import first_rows
from quire.storage import connect

LOCAL: dict[str, Any] = {"spark": quire.LocalRunner()}
HERE: dict[str, Any] = {**LOCAL, "progress": False}
HEADER = b"id,name,note\n"
LINES: dict[str, Any] = {"transform": "csv", "format": "lines"}


def text(first: int, n: int = 3) -> bytes:
    """Rows of three columns, one of which has line ends in its values."""
    return HEADER + b"".join(b'%d,"n, %d","two\nlines ""%d"""\n' % (i, i, i) for i in range(first, first + n))


def tree(n: int = 40) -> dict[str, bytes]:
    return {f"d{i % 3}/{i:03}.csv": text(3 * i) for i in range(n)}


def held(dest: Path) -> dict[str, bytes]:
    """The data files, decompressed, by their names."""
    frames = zstandard.ZstdDecompressor()
    opens: dict[str, Any] = {
        ".csv": bytes, ".gz": gzip.decompress, ".zst": lambda data: frames.stream_reader(data, read_across_frames=True).read()
    }  # fmt: skip
    return {path.name: opens[path.suffix](path.read_bytes()) for path in sorted(dest.glob("part-*"))}


def rows_of(dest: Path) -> list[dict[str, str]]:
    """All rows, as Python's own reader finds them below the header of each file."""
    found = [row for data in held(dest).values() for row in csv.DictReader(io.StringIO(data.decode(), newline=""))]
    return sorted(found, key=lambda row: int(row["id"]))


def want(*ids: int) -> list[dict[str, str]]:
    return [{"id": str(i), "name": f"n, {i}", "note": f'two\nlines "{i}"'} for i in ids]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_each_data_file_has_one_header_and_every_tool_opens_it(compression: str, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", tree()), tmp_path / "out"
    plan = look(source, dest, **LINES)
    assert plan.columns == "`id` string, `name` string, `note` string"
    plan.discard()
    more = {"compression": compression, "planner": "directory", "target_size": "700 B" if compression == "none" else "100 B"}
    report = gather(source, dest, **LINES, **more)
    assert (report.files, report.quarantined_count) == (40, 0)
    files = held(dest)
    assert len(files) > (4 if compression == "none" else 2), "several for each task"
    ends = {"none": ".csv", "gzip": ".csv.gz", "zstd": ".csv.zst"}
    assert all(name.endswith(ends[compression]) and data.count(HEADER) == 1 and data.startswith(HEADER) for name, data in files.items())
    assert rows_of(dest) == want(*range(120))
    if compression != "zstd":
        assert duckdb.sql(f"select count(*), sum(id) from read_csv('{dest}/*.csv*', header=true)").fetchone() == (120, 7140)
        (one,) = sorted(dest.glob("part-*"))[:1]
        assert arrow_csv.read_csv(one, parse_options=arrow_csv.ParseOptions(newlines_in_values=True)).column_names == ["id", "name", "note"]
    ledger = Ledger(dest)
    assert ledger.verify(**LOCAL).ok
    lines = b"".join(data[len(HEADER) :] for data in files.values())
    assert ledger.summary().records == lines.count(b"\n") == len(list(first_rows(connect(dest.as_uri()), 10_000)))
    assert HEADER.rstrip() not in list(first_rows(connect(dest.as_uri()), 10_000))
    assert ledger.read(source / "d1/001.csv") == text(3)
    (found,) = ledger.locate(source / "d1/001.csv")
    assert (found.records, found.length) == (6, len(text(3)))
    assert gather(source, dest, **LINES, compression=compression).files == 0


def test_what_changes_a_destination_keeps_one_header_for_each_file(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", tree(12)), tmp_path / "out"
    gather(source, dest, **LINES, include="d0/*")
    gather(source, dest, **LINES)
    ledger = Ledger(dest)
    assert len(held(dest)) == 2
    ledger.compact(**HERE)
    assert [data.count(HEADER) for data in held(dest).values()] == [1]
    assert rows_of(dest) == want(*range(36))
    ledger.forget(source / "d1", **HERE)
    assert rows_of(dest) == want(*(i for i in range(36) if i // 3 % 3 != 1))
    assert gather(source, dest, **LINES).files == 4
    write(source, {"d0/000.csv": text(500, 1)})
    gather(source, dest, **LINES, on_change="reprocess")
    ledger.checkpoint(**LOCAL)
    ledger.refresh().compact(**HERE)
    assert [data.count(HEADER) for data in held(dest).values()] == [1]
    assert rows_of(dest) == want(*range(3, 36), 500)
    assert ledger.refresh().verify(**LOCAL).ok
    assert ledger.read(source / "d0/000.csv") == text(500, 1)


def test_records_stay_as_they_are_or_are_rearranged(tmp_path: Path) -> None:
    files = {
        "a.csv": b'id,name,note\n1,"a",x""y\n2, b ,\n',
        "b.csv": b'id,name,note\r\n\r\n3,"c\r\nd",""\r\n4,e',
        "c.csv": b"note,id,name\n\"x,\"\"y\"\"\",5,f\n,6,\n\"\",7,' \n",
        "d.csv": b'name,id\n"NULL",8\n',
        "e.csv": "id,name,note\n9,é,\n".encode("utf-16"),
        "f.csv.gz": gzip.compress(b"\xef\xbb\xbfid,name,note\n10,g,\n"),
        "g.csv": b"id,name,note\n",
        "h.csv": b"",
        "i.csv": b"id,name,other\n11,h,\n",
        "j.csv": b"id,name,note\n12,too,many,values\n13,i,\n",
    }  # fmt: skip
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest, **LINES, schema="id string, name string, note string")
    (data,) = held(dest).values()
    records = [
        b'1,"a",x""y\n2, b ,\n', b'3,"c\r\nd",""\n', b'5,f,"x,""y"""\n6,,\n7,"\' ",""\n', b"8,NULL,\n",
        "9,é,\n".encode(), b"10,g,\n", b"13,i,\n",
    ]  # fmt: skip
    assert data.startswith(HEADER)
    assert all(b"\n" + record in data for record in records)
    assert len(data) == len(HEADER) + sum(map(len, records))
    ledger = Ledger(dest)
    told = {row.path.rpartition("/")[2]: row.reason for row in ledger.inspect.quarantined().itertuples()}
    assert set(told) == {"b.csv", "i.csv", "j.csv"}
    assert "has 2 values, and there are 3 columns" in told["b.csv"]
    assert "the column 'other' of its header is not among the columns" in told["i.csv"]
    assert "line 2: it has 4 values, and there are 3 columns" in told["j.csv"]
    assert ledger.verify(**LOCAL).ok


def test_a_record_that_has_another_type_is_quarantined_and_retried(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"1.csv": b"name;id\na;1\nb;x\n", "2.csv": b"id;name\n02;c\n"}), tmp_path / "out"
    more: dict[str, Any] = {**LINES, "schema": "id long, name string", "delimiter": ";"}
    assert gather(source, dest, **more).quarantined_count == 1
    (data,) = held(dest).values()
    assert data == b"id;name\n1;a\n02;c\n"
    ledger = Ledger(dest)
    assert ledger.retry(source, max_quarantined=9, **HERE).quarantined == 1
    write(source, {"3.csv": b"id|name\n3|d\n"})
    gather(source, dest, **more)
    assert ledger.refresh().retry(paths=[source / "3.csv"], source=source, text_options={"delimiter": "|"}, **HERE).gathered == 1
    assert sorted(held(dest).values()) == [b"id;name\n1;a\n02;c\n", b"id;name\n3;d\n"]
    with refused(UsageError, 2, "null_values", "each value stays its text"):
        ledger.retry(source, text_options={"null_values": "x"}, **HERE)
    with refused(RefusedError, 2, "delimiter ';'", "delimiter ','"):
        gather(source, dest, **LINES)
    with refused(RefusedError, 2, "header True"):
        gather(source, dest, **{**more, "header": False})


def test_files_without_a_header_become_lines_without_one(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"1": b"1,a\n2,b", "2": b"3,c\n4\n"}), tmp_path / "out"
    gather(source, dest, **LINES, header=False)
    assert [*held(dest).values()] == [b"1,a\n2,b\n3,c\n"]
    assert [*first_rows(connect(dest.as_uri()), 9)] == [b"1,a", b"2,b", b"3,c"]
    ledger = Ledger(dest)
    assert ledger.read(source / "1") == b"1,a\n2,b\n"
    assert len(ledger.inspect.quarantined()) == 1
    assert ledger.verify(**LOCAL).ok


def test_new_columns_are_refused_and_a_header_of_two_lines_is_quarantined(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"1.csv": text(0), "2.csv": b'id,"na\nme"\n1,2\n'}), tmp_path / "out"
    gather(source, dest, **LINES)
    (row,) = Ledger(dest).inspect.quarantined().itertuples()
    assert "'na\\nme' of its header has a line end" in row.reason
    write(source, {f"{i}.csv": b"id,more\n1,2\n" for i in range(3, 9)})
    with refused(RefusedError, 2, "'more'", "is not there"):
        gather(source, dest, **LINES)


def test_a_damaged_header_is_found(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"1.csv": text(0)}), tmp_path / "out"
    gather(source, dest, **LINES)
    (path,) = dest.glob("part-*")
    path.write_bytes(path.read_bytes().replace(b"id,name", b"id,nane"))
    ((_, _, what),) = Ledger(dest).verify(**LOCAL).damaged
    assert what == "its first line is not the header of the destination's columns"


def test_quire_read_gives_the_lines_below_the_headers(tmp_path: Path, spark: Any) -> None:
    source, dest = write(tmp_path / "in", tree(6)), tmp_path / "out"
    gather(source, dest, **LINES, target_size="200 B")
    values = [bytes(row.value) for row in quire.read(dest, spark=spark).collect()]
    assert b"".join(value + b"\n" for value in sorted(values)) == b"".join(
        sorted(b"".join(text(3 * i).removeprefix(HEADER) for i in range(6)).splitlines(keepends=True))
    )
    frame = spark.read.csv(str(dest), header=True, multiLine=True, escape='"')
    assert sorted(int(row.id) for row in frame.collect()) == [*range(18)]
    assert isinstance(frame.toArrow(), pa.Table)
