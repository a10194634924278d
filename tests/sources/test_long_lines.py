"""A line that no value can hold is quarantined alone: what lies around it is gathered, and nobody holds it in memory."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import MANY, gather, refused, write
from quire import Ledger, QuireError
from quire.engine.kinds import reading
from quire.formats import lines
from quire.read import first_rows
from quire.sources import ranges
from quire.storage import connect
from sums import check as sums_agree

MOST = 1_000_000  # bytes of a line, in these tests


@pytest.fixture(autouse=True)
def most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST", MOST)
    monkeypatch.setattr(reading, "APPENDED", MOST // 10)  # longer ends of files that grow come as streams


def content(*lengths: int) -> bytes:
    """Lines of so many bytes, each with its newline."""
    return b"".join(b"%c" % (97 + i % 26) * (n - 1) + b"\n" for i, n in enumerate(lengths))


def kept(dest: Path) -> list[bytes]:
    """All that who does not use quire finds."""
    return sorted(line for path in dest.glob("*.txt") for line in path.read_bytes().splitlines(keepends=True))


@pytest.mark.nth(6)
@pytest.mark.parametrize("lengths", [(5, 3_000_000, 7), (3_000_000,), (5, 2_000_000, 7, MOST + 1, 9, MOST, 1_200_000)])
@pytest.mark.parametrize(
    "settings", [{}, {"target_size": "700 KB"}, {"change_detection": "content"}, {"on_append": "tail"}, {"compression": "gzip"}]
)
def test_a_line_that_is_too_long_is_quarantined_and_the_others_are_gathered(
    tmp_path: Path, lengths: tuple[int, ...], settings: dict[str, Any]
) -> None:
    text = content(*lengths)
    source = write(tmp_path / "in", {"long.txt": text, "other.txt": b"other\n"})
    report = gather(source, tmp_path / "out", **settings)
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    too_long = {start: n for start, n in zip(starts, lengths, strict=True) if n > MOST}
    assert report.quarantined_count == len(too_long)
    ledger = Ledger(tmp_path / "out")
    found = ledger.inspect.quarantined_records("arrow").to_pylist()
    assert {row["offset"]: row["length"] for row in found} == too_long
    for row in found:
        assert row["path"].endswith("/long.txt")
        for word in (f"{row['length']:,} bytes", f"byte {row['offset']:,}", f"{MOST:,}", "transform='raw'"):
            assert word in row["error"].replace("2,147,483,646", f"{MOST:,}")
    expected = sorted([b"other\n", *(text[s : s + n] for s, n in zip(starts, lengths, strict=True) if n <= MOST)])
    if settings.get("compression") != "gzip":
        assert kept(tmp_path / "out") == expected
    assert sorted(first_rows(connect(f"file://{tmp_path}/out"), 100)) == [line[:-1] for line in expected]
    assert ledger.read(f"{source}/other.txt") == b"other\n"
    assert ledger.verify(spark=quire.LocalRunner()).ok
    with refused(QuireError, 3, "longer than one value may be", "at its source"):
        ledger.read(f"{source}/long.txt")
    assert gather(source, tmp_path / "out", **settings).jobs == (), "it is not read again by each run"
    changed = ledger.retry(source, spark=quire.LocalRunner(), max_quarantined=MANY)
    assert changed.gathered == 0
    assert Ledger(tmp_path / "out").inspect.quarantined_records("arrow").num_rows == len(too_long)
    sums_agree(connect(f"file://{tmp_path}/out"))


def test_a_long_line_whose_file_has_changed_stays_in_quarantine(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.txt": content(5, 3_000_000, 7)})
    gather(source, tmp_path / "out", target_size="1 MB")
    write(source, {"a.txt": content(6)})
    changed = Ledger(tmp_path / "out").retry(source, spark=quire.LocalRunner())
    assert (changed.gathered, changed.left_count) == (0, 1)
    assert "changed since" in changed.left[0][1]


def test_lines_follow_behind_a_line_that_was_too_long(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.txt": content(5, 3_000_000, 7)})
    gather(source, tmp_path / "out", on_append="tail")
    with (source / "a.txt").open("ab") as file:
        file.write(b"new\n")
    gather(source, tmp_path / "out", on_append="tail")
    assert kept(tmp_path / "out") == sorted([content(5), b"c" * 6 + b"\n", b"new\n"])


@pytest.mark.nth(2)
@pytest.mark.parametrize("lengths", [(5, 3_000_000, 7), (3_000_000, 7), (3_000_000,)])
def test_a_function_is_given_the_lines_around_one_that_is_longer_than_max_file_size(tmp_path: Path, lengths: tuple[int, ...]) -> None:
    given = list[bytes]()

    def work(_: Any, text: bytes) -> bytes:
        given.append(text)
        return text

    text = content(*lengths)
    source = write(tmp_path / "in", {"long.txt": text})
    settings: dict[str, Any] = {"split": "lines", "format": "lines", "split_size": "100 KB", "max_file_size": "1 MB"}
    quire.process(
        source, tmp_path / "out", work, spark=quire.LocalRunner(), progress=False, max_quarantined=MANY, function_version="1", **settings
    )
    short = sorted(line for line in text.splitlines(keepends=True) if len(line) <= MOST)
    assert sorted(b"".join(given).splitlines(keepends=True)) == kept(tmp_path / "out") == short
    (row,) = Ledger(tmp_path / "out").inspect.quarantined_records("arrow").to_pylist()
    assert (row["offset"], row["length"]) == (sum(lengths[: lengths.index(3_000_000)]), 3_000_000)
    for word in ("3,000,000 bytes", "longer than max_file_size", "1,000,000"):
        assert word in row["error"]
    for most, gathered in (("1 MB", 0), ("4 MB", 1)):
        changed = Ledger(tmp_path / "out").retry(source, function=work, spark=quire.LocalRunner(), max_quarantined=MANY, max_file_size=most)
        assert changed.gathered == gathered, "the reason says what lets it be read"
    assert kept(tmp_path / "out") == sorted(text.splitlines(keepends=True))
    sums_agree(connect(f"file://{tmp_path}/out"))


def test_nothing_is_held_of_a_line_that_is_too_long() -> None:
    def endless() -> Any:
        yield b"short\n"
        for _ in range(400):
            yield b"x" * MOST
        yield b"\nend\n"

    size = 6 + 400 * MOST + 5
    tracemalloc.start()
    with pytest.raises(ranges.TooLongError) as caught:
        for _ in ranges.lines_of(endless(), 0, 0, size, size):
            pass
    assert caught.value.lines == [(6, 400 * MOST + 1)]
    assert b"".join(ranges.lines_of(endless(), 0, 0, size, size, caught.value.lines)) == b"short\nend\n"
    assert tracemalloc.get_traced_memory()[1] < 20 * MOST
    tracemalloc.stop()


@pytest.mark.parametrize(("transform", "made"), [("json", b'["%s"]'), ("xml", b"<a>%s</a>")])
def test_a_document_that_becomes_too_long_a_line_is_quarantined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transform: str, made: bytes
) -> None:
    monkeypatch.setattr("quire.engine.kinds.reading.LONGEST", MOST)
    source = write(tmp_path / "in", {"long": made % (b"x" * MOST), "short": made % b"x"})
    report = gather(source, tmp_path / "out", transform=transform)
    assert (report.files, report.quarantined_count) == (1, 1)
    assert "1,000,0" in report.quarantined[0][1]
    assert kept(tmp_path / "out") == [made % b"x" + b"\n"]


def test_a_raw_file_that_is_one_value_too_long_is_quarantined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.engine.kinds.files.LONGEST", MOST)
    source = write(tmp_path / "in", {"long": b"x" * 2 * MOST, "short": b"x"})
    report = gather(source, tmp_path / "out", transform="raw", change_detection="content", target_size="10 MB")
    assert (report.files, report.quarantined_count) == (1, 1)
    assert "change_detection='store'" in report.quarantined[0][1]
    monkeypatch.setattr("quire.planning.listing.LONGEST", MOST)
    assert gather(source, tmp_path / "cut", transform="raw", target_size="10 MB").quarantined_count == 0
    assert Ledger(tmp_path / "cut").read(f"{source}/long") == b"x" * 2 * MOST


@pytest.mark.chaos
def test_a_line_of_three_gib_is_skipped_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(lines, "LONGEST", (1 << 31) - 2)
    source = write(tmp_path / "in", {"long.txt": b"before\n", "other.txt": b"other\n"})
    with (source / "long.txt").open("r+b") as file:  # a hole: nothing of it lies on the disk
        file.truncate(3 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nbehind\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = gather(source, tmp_path / "out", compression="zstd")  # of what is written first, too, nothing is large
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
    assert report.quarantined_count == 1
    (row,) = Ledger(tmp_path / "out").inspect.quarantined_records("arrow").to_pylist()
    assert (row["offset"], row["length"]) == (7, (3 << 30) - 6)
    found = sorted(first_rows(connect(f"file://{tmp_path}/out"), 100))
    assert found == [b"before", b"behind", b"other"]
