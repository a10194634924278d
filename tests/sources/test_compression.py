"""Compressed files: decoded on their way, known by their content, and one split each."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import resource
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import quire
from gathering import gather, look, refused, write
from quire import Ledger, Split
from quire.commit import names
from quire.errors import RefusedError, UsageError
from quire.sources import compression
from quire.sources.compression import CODECS, Decoded, decode, decoding
from quire.sources.transforms.content import BadContent
from quire.storage import ReadRequest, Store, Vanished, bare

LOCAL: dict[str, Any] = {"spark": quire.LocalRunner()}
HERE: dict[str, Any] = {**LOCAL, "progress": False}


def zipped(data: bytes, level: int = 9) -> bytes:
    """The same at any time: a header may say when it was made."""
    return gzip.compress(data, level, mtime=0)


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": zipped, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstandard.compress,
    "lz4": lambda data: bytes(cramjam.lz4.compress(data)), "snappy": lambda data: bytes(cramjam.snappy.compress(data)),
}  # fmt: skip
ENDING = {"gzip": "gz", "bzip2": "bz2", "xz": "xz", "zstd": "zst", "lz4": "lz4", "snappy": "sz"}
NOT_KEPT = pytest.warns(UserWarning, match="not kept")


def text(dest: Path) -> bytes:
    """All that the data files hold."""
    return b"".join(path.read_bytes() for path in sorted(dest.glob("part-*")))


def lines_of(dest: Path) -> list[bytes]:
    return sorted(text(dest).splitlines())


def reasons(dest: Path) -> dict[str, str]:
    """Why files are in quarantine, by their names."""
    return {row.path.rpartition("/")[2]: row.reason for row in Ledger(dest).inspect.quarantined().itertuples()}


# -------------------------------------------------------------------------------------------------------------------- every codec
@pytest.mark.parametrize("codec", CODECS)
def test_lines_of_compressed_files_are_gathered_and_told(codec: str, tmp_path: Path) -> None:
    packed = PACK[codec]
    source = write(
        tmp_path / "in",
        {
            f"named.txt.{ENDING[codec]}": packed(b"a\nb"),
            "by content": packed(b"c\n"),
            f"two.{ENDING[codec]}": packed(b"d\n") + packed(b"e\nf\n"),
            f"nothing.{ENDING[codec]}": packed(b""),
            f"empty.{ENDING[codec]}": b"",
            "plain.txt": b"g\n",
        },
    )
    dest = tmp_path / "out"
    report = gather(source, dest)
    assert (report.files, report.quarantined_count) == (6, 0), report
    assert lines_of(dest) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    ledger = Ledger(dest)
    (found,) = ledger.locate(source / f"named.txt.{ENDING[codec]}")
    assert (found.reason, found.written, found.records) == (f"decoded from {codec}", 4, 2)
    assert (found.start, found.length) == (0, len(packed(b"a\nb"))), "the ledger speaks of stored bytes"
    with NOT_KEPT:
        assert ledger.read(source / f"two.{ENDING[codec]}") == b"d\ne\nf\n"
    assert ledger.read(source / "plain.txt") == b"g\n"
    assert ledger.locate(source / "plain.txt")[0].reason is None
    assert ledger.verify(**LOCAL).ok
    assert gather(source, dest).files == 0, "each is done"


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_cut_off_or_damaged_is_quarantined_with_its_place(codec: str, tmp_path: Path) -> None:
    packed = PACK[codec](b"".join(b"line %d of some text\n" % i for i in range(5_000)))
    broken = {"half": packed[: len(packed) // 2], "first": packed[:30] + b"\xaa" * 40 + packed[70:], "behind": packed + b"no frame"}
    source = write(tmp_path / "in", {f"{name}.{ENDING[codec]}": content for name, content in broken.items()} | {"plain": b"x\n"})
    dest = tmp_path / "out"
    assert gather(source, dest).quarantined_count == 3
    why = reasons(dest)
    assert lines_of(dest) == [b"x"]
    for name, said in (("half", "is cut off"), ("first", f"its {codec} is"), ("behind", f"its {codec} is")):
        assert said in why[f"{name}.{ENDING[codec]}"], why
        assert "byte " in why[f"{name}.{ENDING[codec]}"], why


def test_a_snappy_stream_may_not_end_within_any_chunk() -> None:
    stream, padding = PACK["snappy"](b"text\n"), b"\xfe\x03\x00\x00abc"
    assert b"".join(decode("snappy", stream + padding)) == b"text\n"
    for end in range(1, len(padding)):
        with pytest.raises(BadContent, match="its snappy is cut off"):
            list(decode("snappy", stream + padding[:end]))


@pytest.mark.nth(3)
@pytest.mark.parametrize("codec", CODECS)
def test_memory_stays_flat_and_any_cut_of_the_pieces_gives_the_same(codec: str) -> None:
    content = b"".join(b"%d,%d\n" % (i, i * 7919 % 1_000_003) for i in range(60_000))
    packed = PACK[codec](content)
    for size in (1, 7, 4096) if len(packed) < 3_000_000 else (7, 4096):
        part = packed if size > 1 else PACK[codec](content[:3000])
        pieces = (part[i : i + size] for i in range(0, len(part), size))
        assert b"".join(decode(codec, pieces)) == (content if size > 1 else content[:3000])
    assert all(len(piece) <= compression.PIECE for piece in decode(codec, packed))
    some = [PACK[codec](bytes(1 << 20)) for _ in range(40)]
    tracemalloc.start()
    total = sum(map(len, decode(codec, iter(some))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 40 << 20
    assert peak < 16 << 20


@pytest.mark.nth(3)
@pytest.mark.parametrize("codec", ["gzip", "bzip2", "xz", "zstd"])
def test_a_bomb_is_quarantined_before_it_fills_a_disk(codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "FREE", 1 << 20)
    source = write(tmp_path / "in", {f"bomb.{ENDING[codec]}": PACK[codec](bytes(300 << 20)), "fine": b"x\n"})
    for transform in ("lines", "json"):
        dest = tmp_path / transform
        gather(source, dest, transform=transform, max_file_size="1 GiB")
        assert "as a bomb does" in reasons(dest)[f"bomb.{ENDING[codec]}"]
        assert sum(path.stat().st_size for path in dest.glob("part-*")) <= 2


def test_a_decoder_that_wants_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30, "preset": 0, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3}]
    packer = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=30, strategy=1, hash_log=6))
    long = packer.compressobj()
    files = {"a.xz": lzma.compress(b"x\n", filters=filters), "b.zst": long.compress(b"y\n" * 100) + long.flush(), "c": b"z\n"}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest)
    assert lines_of(dest) == [b"z"]
    assert "its xz takes more than 256 MiB of memory" in reasons(dest)["a.xz"]
    assert "its zstd takes more than" in reasons(dest)["b.zst"]


# ------------------------------------------------------------------------------------------------------------- names and contents
def test_a_name_and_a_content_that_disagree_are_told(tmp_path: Path) -> None:
    files = {"a.gz": b"plain\n", "b.gz": zstandard.compress(b"x\n"), "c.zst": b"PK\x03\x04rest", "d.txt": zipped(b"d\n")}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    assert gather(source, dest).files == 1
    assert lines_of(dest) == [b"d"]
    why = reasons(dest)
    assert "its name says gzip, and its content is not compressed" in why["a.gz"]
    assert "its name says gzip, and its content is zstd" in why["b.gz"]
    assert "its name says zstd, and its content is zip" in why["c.zst"]
    assert all("decompress='none'" in each for each in why.values())
    done = Ledger(dest).retry(source, decompress="none", max_quarantined=9, **HERE)
    assert (done.gathered, done.quarantined) == (1, 2), "text is text, whatever its name says; the others still are none"
    assert lines_of(dest) == [b"d", b"plain"]


def test_a_codec_that_was_said_holds_for_all(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": zipped(b"a\n"), "b": b"b\n", "c.zst": zstandard.compress(b"c\n")}), tmp_path / "out"
    assert gather(source, dest, decompress="gzip").files == 1
    assert "decompress='gzip' says gzip, and its content is not compressed" in reasons(dest)["b"]
    assert "its content is zstd" in reasons(dest)["c.zst"]


def test_none_takes_nothing_for_text_that_is_none(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.gz": zipped(b"a\n"), "b": b"b\n"}), tmp_path / "out"
    assert gather(source, dest, decompress="none").files == 1
    assert "of the kind gzip" in reasons(dest)["a.gz"]
    assert Ledger(dest).retry(source, **HERE).gathered == 1, "left out, it is as usual"
    assert lines_of(dest) == [b"a", b"b"]


@pytest.mark.parametrize("value", ["deflate", "", 7, True, ["gzip"]])
def test_a_wrong_value_is_one_line(value: Any, tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"a\n"})
    with refused(UsageError, 2, "decompress"):
        gather(source, tmp_path / "out", decompress=value)


def test_what_decodes_to_another_kind_is_told(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("x"))
    source = write(tmp_path / "in", {"x.tar.gz": packed.getvalue(), "twice.gz": zipped(zipped(b"a\n")), "b": b"b\n"})
    dest = tmp_path / "out"
    assert gather(source, dest).files == 1
    assert "of the kind tar" in reasons(dest)["x.tar.gz"]
    assert "of the kind gzip" in reasons(dest)["twice.gz"]


# --------------------------------------------------------------------------------------------------------------------- transforms
def test_documents_are_decoded_before_they_are_parsed(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.json.gz": zipped(b'{"n": 1,\n "x": 2}'), "b.json": b'{"n": 2}'})
    gather(source, tmp_path / "json", transform="json")
    assert [json.loads(line) for line in lines_of(tmp_path / "json")] == [{"n": 1, "x": 2}, {"n": 2}]
    source = write(tmp_path / "xml in", {"a.xml.bz2": bz2.compress(b"<a>\n <b/>\n</a>")})
    gather(source, tmp_path / "xml", transform="xml")
    assert text(tmp_path / "xml") == b"<a><b/></a>\n"


def test_raw_keeps_the_bytes_unless_it_is_asked(tmp_path: Path) -> None:
    packed = zipped(b"a\nb\n")
    source = write(tmp_path / "in", {"a.gz": packed, "b": b"plain"})
    gather(source, tmp_path / "kept", transform="raw")
    assert Ledger(tmp_path / "kept").read(source / "a.gz") == packed
    assert Ledger(tmp_path / "kept").locate(source / "a.gz")[0].reason is None
    gather(source, tmp_path / "decoded", transform="raw", decompress="auto")
    with NOT_KEPT:
        assert Ledger(tmp_path / "decoded").read(source / "a.gz") == b"a\nb\n"
    with refused(RefusedError, 2, "decompress"):
        gather(source, tmp_path / "decoded", transform="raw")
    gather(source, tmp_path / "rows", transform="raw", format="parquet", decompress="auto")
    rows = pa.concat_tables([pq.read_table(path) for path in (tmp_path / "rows").glob("*.parquet")])
    assert sorted(rows.column("content").to_pylist()) == [b"a\nb\n", b"plain"]


@pytest.mark.parametrize("long", [False, True])
def test_members_that_are_kept_lie_in_files_that_are_gzip_for_everybody(long: bool, tmp_path: Path) -> None:
    n = 100_000 if long else 40
    texts = [b"".join(b"%d %d\n" % (i, j * 7919 % 10_007) for j in range(n)) for i in range(4)]
    files = {f"{i}.{'gz' if i % 2 else 'gzip'}": zipped(text, 1) for i, text in enumerate(texts)}
    source, dest = write(tmp_path / "in", {**files, "1 plain": b"x\n", "2 other": b"y"}), tmp_path / "out"
    gather(source, dest, transform="raw", target_size="16 KiB" if long else "256 MiB")

    def looks_right() -> None:
        members = sorted(dest.glob("part-*.bin.gz"))
        assert sorted(b"".join(gzip.decompress(path.read_bytes()) for path in members).splitlines()) == sorted(b"".join(texts).splitlines())
        assert sorted(b"".join(path.read_bytes() for path in dest.glob("part-*.bin"))) == sorted(b"x\ny")
        assert {name: Ledger(dest).read(source / name) for name in files} == files
        assert Ledger(dest).verify(**LOCAL).ok

    looks_right()
    gather(write(source, {"later.gz": zipped(b"")}), dest, transform="raw")
    texts.append(b"")
    Ledger(dest).compact(**HERE)
    looks_right()


def test_a_range_of_a_long_file_that_begins_like_a_member_is_none(tmp_path: Path) -> None:
    half = 64 << 10
    source = write(tmp_path / "in", {"long": b"a" * half + zipped(b"b").ljust(half, b"c")})
    gather(source, tmp_path / "out", transform="raw", target_size=half)
    assert [x.start for x in Ledger(tmp_path / "out").locate(source / "long")] == [0, half]
    assert not list((tmp_path / "out").glob("*.gz"))


def test_a_function_is_given_what_is_stored_unless_it_is_asked(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.gz": zipped(b"abc")})

    def size(content: bytes, _: quire.FileInfo) -> bytes:
        return b"%d\n" % len(content)

    gather(source, tmp_path / "kept", transform=size)
    gather(source, tmp_path / "decoded", transform=size, decompress="auto")
    assert (text(tmp_path / "kept"), text(tmp_path / "decoded")) == (b"%d\n" % len(zipped(b"abc")), b"3\n")


def test_what_is_held_has_its_limit_in_decoded_bytes(tmp_path: Path) -> None:
    many = b"[" + b"1," * 50_000 + b"1]"
    source = write(tmp_path / "in", {"a.json.gz": zipped(many), "b.json.xz": lzma.compress(many), "c.json": b"1"})
    dest = tmp_path / "out"
    assert gather(source, dest, transform="json", max_file_size="50 KB").files == 1
    assert all("larger than max_file_size" in why and "decodes to more than 50,000 bytes" in why for why in reasons(dest).values())
    assert Ledger(dest).retry(source, **HERE).gathered == 2


# ----------------------------------------------------------------------------------------------------------------- long ones, cut
@pytest.mark.parametrize("name", ["long.gz", "no name for it"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_long_file_is_one_split_and_is_never_held(name: str, compression: str, tmp_path: Path) -> None:
    content = b"".join(b"%d %s\n" % (i, zlib.crc32(b"%d" % i).to_bytes(4, "big").hex().encode()) for i in range(600_000))[:-1]
    source = write(tmp_path / "in", {name: zipped(content, 1), "short": b"x\n"})
    dest, target = tmp_path / "out", "1 MiB"
    assert look(source, dest, target_size=target, compression=compression).files()["start"].eq(0).all()
    assert gather(source, dest, target_size=target, compression=compression).files == 2
    (found,) = Ledger(dest).locate(source / name)
    assert (found.length, found.records) == ((source / name).stat().st_size, 600_000)
    with NOT_KEPT:
        assert Ledger(dest).read(source / name) == content + b"\n"
    assert Ledger(dest).verify(**LOCAL).ok


def test_a_long_one_that_breaks_late_leaves_nothing(tmp_path: Path) -> None:
    content = bytes(range(256)) * 80_000
    packed = zipped(content, 1)
    source, dest = write(tmp_path / "in", {"a.gz": packed[:-8] + b"12345678", "b": b"x\n"}), tmp_path / "out"
    gather(source, dest, transform="raw", decompress="auto")
    assert text(dest) == b"x\n"
    assert "its gzip is damaged" in reasons(dest)["a.gz"]


def test_one_that_grew_is_changed_and_no_tail(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.gz": zipped(b"a\n"), "b": b"b\n"}), tmp_path / "out"
    how: dict[str, Any] = {"on_append": "tail"}
    gather(source, dest, **how)
    write(source, {"a.gz": zipped(b"a\n") + zipped(b"more\n"), "b": b"b\nmore\n"})
    report = gather(source, dest, **how)
    assert (report.bytes, report.changed_count) == (5, 1), report
    assert lines_of(dest) == [b"a", b"b", b"more"]
    gather(source, dest, on_change="reprocess", **how)
    assert lines_of(dest) == [b"a", b"b", b"more", b"more"]


def test_files_known_by_their_content_are_decoded_too(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.gz": zipped(b"a\n"), "b": b"b\n"}), tmp_path / "out"
    assert gather(source, dest, change_detection="content").files == 2
    write(source, {"a.gz": zipped(b"a\n")})
    assert gather(source, dest, change_detection="content").changed_count == 0
    assert lines_of(dest) == [b"a", b"b"]


def test_a_plan_guesses_what_will_be_written(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"{i}.gz": zipped(b"abc\n" * 2_500) for i in range(20)} | {"plain": b"x\n" * 500})
    plan = look(source, tmp_path / "out")
    assert 180_000 < plan.estimate < 220_000
    assert look(write(tmp_path / "plain", {"a": b"x\n" * 500}), tmp_path / "out").estimate == 1000


# -------------------------------------------------------------------------------------------------------------------------- purges
def test_a_purge_compares_what_it_decodes_to(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.gz": zipped(b"a\nb"), "b.txt": b"b\n", "c.gz": b"broken"})
    dest = tmp_path / "out"
    gather(source, dest)
    ledger = Ledger(dest)
    found = ledger.purge_sources(source, dry_run=False, min_age=0, **LOCAL)
    assert found.files == 2
    assert [path.name for path in source.iterdir()] == ["c.gz"]
    with NOT_KEPT:
        assert Ledger(dest).read(source / "a.gz") == b"a\nb\n", "its end is as it was written"
    assert Ledger(dest).locate(source / "a.gz")[0].reason.endswith("; decoded from gzip")


@pytest.mark.parametrize("decompress", [None, "auto"])
def test_a_purge_keeps_what_was_not_gathered(decompress: str | None, tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.gz": zipped(b"first\n"), "b": b"b"})
    dest = tmp_path / "out"
    gather(source, dest, transform="raw", decompress=decompress)
    before = (source / "a.gz").stat()
    assert Ledger(dest).purge_sources(source, min_age=0, **LOCAL).files == 2
    for part in dest.glob("part-*"):
        part.write_bytes(part.read_bytes().replace(b"first\n", b"other\n").replace(zipped(b"first\n")[:12], b"x" * 12))
    found = Ledger(dest).purge_sources(source, dry_run=False, min_age=0, **LOCAL)
    assert found.files == 1
    assert (source / "a.gz").stat().st_mtime_ns == before.st_mtime_ns


# ------------------------------------------------------------------------------------------------------------------------- process
def numbers(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
    at = 0
    for line in content.splitlines(keepends=True):
        if line.strip().isdigit():
            yield {"n": int(line)}
        else:
            split.quarantine(line, "not a number", at)
        at += len(line)


def rows(dest: Path) -> list[int]:
    return sorted(n for path in dest.glob("*.parquet") for n in pq.read_table(path).column("n").to_pylist())


@pytest.mark.parametrize("name", ["a.gz", "a"])
def test_lines_of_a_function_are_decoded_ones(name: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in", {name: zipped(b"".join(b"%d\n" % i for i in range(2_000))), "plain": b"5000\n5001\n"})
    dest = tmp_path / "out"
    report = quire.process(source, dest, numbers, split="lines", split_size="1 KB", schema="n long", **HERE)
    assert rows(dest) == [*range(2_000), 5000, 5001]
    assert report.quarantined_count == 0
    assert [x.reason for x in Ledger(dest).locate(source / name)] == ["decoded from gzip"]
    assert quire.process(source, dest, numbers, split="lines", schema="n long", **HERE).files == 0


def test_records_of_compressed_files_are_quarantined_alone_and_retried(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.gz": zipped(b"1\nbad\n2\nworse\n3\n")})
    dest = tmp_path / "out"
    quire.process(source, dest, numbers, split="lines", schema="n long", function_version="1", **HERE)
    assert rows(dest) == [1, 2, 3]
    found = Ledger(dest).inspect.quarantined_records()
    assert found["content"].to_list() == [b"bad\n", b"worse\n"]
    assert found["error"].to_list() == [
        "not a number (at byte 2 of what the file decodes to)", "not a number (at byte 8 of what the file decodes to)",
    ]  # fmt: skip

    def repaired(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
        yield {"n": len(content)}

    repaired.__qualname__ = numbers.__qualname__
    done = Ledger(dest).retry(source, function=repaired, **HERE)
    assert (done.gathered, done.quarantined) == (2, 0)
    assert rows(dest) == [1, 2, 3, 4, 6]
    assert Ledger(dest).verify(**LOCAL).ok
    assert len({(x.start, x.length) for x in Ledger(dest).locate(source / "a.gz")}) == 3


def test_records_are_never_read_at_the_stored_bytes_that_stand_for_them(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.gz": zipped(b"1\nbad\n")})
    dest = tmp_path / "out"
    quire.process(source, dest, numbers, split="lines", schema="n long", function_version="1", **HERE)
    for path in [path for path in (dest / names.QUARANTINE).rglob("*") if path.is_file()]:
        path.unlink()
    given = list[bytes]()

    def seen(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
        given.append(content)
        yield {"n": 0}

    seen.__qualname__ = numbers.__qualname__
    Ledger(dest).retry(source, function=seen, max_quarantined=9, **HERE)
    assert given == []


def test_more_records_than_bytes_quarantine_the_whole_file(tmp_path: Path) -> None:
    source = write(
        tmp_path / "in",
        {
            "a.gz": zipped(b"".join(b"x%d\n" % (i % 3) for i in range(5_000))),
            "b.gz": zipped(b"y" * (2 << 20) + b"\n1\n"),
            "c": b"7\n",
        },
    )
    dest = tmp_path / "out"
    quire.process(source, dest, numbers, split="lines", schema="n long", max_quarantined=9, **HERE)
    assert rows(dest) == [7]
    assert "too few to stand for them" in reasons(dest)["a.gz"]
    assert "1,048,576 can be kept" in reasons(dest)["b.gz"]


def test_a_whole_file_is_what_is_stored_unless_it_is_asked(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.gz": zipped(b"abc")})

    def size(_: Split, content: bytes) -> list[dict[str, Any]]:
        return [{"n": len(content)}]

    quire.process(source, tmp_path / "kept", size, **HERE)
    quire.process(source, tmp_path / "decoded", size, decompress="auto", **HERE)
    assert (rows(tmp_path / "kept"), rows(tmp_path / "decoded")) == ([len(zipped(b"abc"))], [3])
    with refused(UsageError, 2, "decompress", "row groups"):
        quire.process(source, tmp_path / "out", size, split="row_groups", decompress="gzip", **HERE)


# ------------------------------------------------------------------------------------------------------------------------- streams
class _Streams:
    """A store whose answers are streams that break."""

    def __init__(self, pieces: list[bytes], error: Exception | None) -> None:
        self.pieces, self.error = pieces, error

    def read_many(self, requests: Any) -> Iterator[tuple[ReadRequest, Any]]:
        for request in requests:
            yield request, self.stream()

    def stream(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.error:
            raise self.error


@pytest.mark.parametrize("codec", CODECS)
def test_an_error_of_the_store_comes_through_as_it_is(codec: str) -> None:
    packed = PACK[codec](bytes(range(256)) * 40)
    for end in (1, 5, len(packed) // 2):
        store: Any = _Streams([packed[:end]], Vanished("changed"))
        ((_, found),) = decoding(store, codec, 1 << 20).read_many([ReadRequest("a", "v", len(packed), 0, len(packed))])
        assert isinstance(found, Vanished), found
    store = _Streams([packed[:1], packed[1:]], None)
    ((_, found),) = decoding(store, "auto").read_many([ReadRequest("a", "v", len(packed), 0, len(packed))])
    assert isinstance(found, Decoded)
    assert found.whole == bytes(range(256)) * 40


def test_ranges_of_files_are_not_touched(tmp_path: Path) -> None:
    store: Store = bare(f"file://{tmp_path}")
    packed = zipped(b"abc")
    store.put("a.gz", packed)
    entry = store.stat("a.gz")
    assert entry is not None
    requests = [ReadRequest("a.gz", entry.version, entry.size, start, 5) for start in (0, 5)]
    found = [content if isinstance(content, bytes) else b"".join(content) for _, content in decoding(store, "auto").read_many(requests)]  # type: ignore[arg-type]
    assert found == [packed[:5], packed[5:10]]


def test_any_bytes_end_in_one_line_and_in_time() -> None:
    from hypothesis import given, settings
    from hypothesis import strategies as st

    @settings(max_examples=200, deadline=10_000)
    @given(codec=st.sampled_from(CODECS), at=st.integers(0, 400), what=st.binary(max_size=30), drop=st.integers(0, 40))
    def broken(codec: str, at: int, what: bytes, drop: int) -> None:
        packed = PACK[codec](b"some text of a file, again and again\n" * 50)
        said = f"its {codec} "
        try:
            for _ in decode(codec, packed[:at] + what + packed[at + drop :]):
                pass
        except BadContent as e:
            said = e.reason
        assert said.startswith(f"its {codec} ")
        assert "\n" not in said

    broken()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20


def test_files_that_are_cut_off_leave_nothing_in_memory() -> None:
    def held() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    content = gzip.compress(os.urandom(4 << 20), 1)[:-9]

    def decode_all() -> None:
        with pytest.raises(BadContent, match="cut off"):
            sum(map(len, decode("gzip", content)))

    decode_all()
    before = held()
    for _ in range(60):
        decode_all()
    assert held() - before < 30 << 20
