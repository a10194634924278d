"""Twice the input may take twice the work and a bit, in every loop that input drives.

Work is counted in steps of quire's own bytecode, which are the same on every machine; what C does at once (a search, a regular expression)
is measured in processor time of this thread, with factors at which a square shows and other load does not.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from gathering import MANY, gather, look, write
from quire import Ledger, plots
from quire.commit import names
from quire.commit.entries import Uncover
from quire.coverage import carry
from quire.coverage.counts import Counts
from quire.coverage.fold import Fold, Source
from quire.coverage.ranges import Covered
from quire.coverage.uncovered import Uncovered, overlap
from quire.errors import scrub
from quire.formats import folders
from quire.formats.folders import FolderWriter
from quire.formats.lines import FrameWriter
from quire.formats.parquet import ParquetWriter, RowReader
from quire.ledger import markers
from quire.ledger.identifiers import identifier
from quire.planning import plan
from quire.planning.listing import EXAMPLES, TOLD, Cut, Listed, Listing, TaskRun, _note, list_piece
from quire.planning.pack import pack
from quire.planning.pieces import Piece
from quire.sources.files import Root, Selection
from quire.sources.ranges import lines_of
from quire.sources.splits import FileInfo, QuarantineError
from quire.sources.transforms.json import json
from quire.sources.transforms.processing import BLOCK, Processing, _Quarantine
from quire.sources.transforms.xml import xml
from quire.storage import Entry, Trouble, connect
from quire.storage.local import LocalStore
from quire.table.file_groups import Slice
from quire.table.write.blocks import Run
from quire.table.write.targets import targets

OWN = str(Path(quire.__file__).parent)
HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False, "max_quarantined": MANY}


def steps(work: Callable[[], object]) -> int:
    """How many bytecodes of quire's own a piece of work takes."""
    taken = 0

    def each(frame: FrameType, event: str, _: object) -> Any:
        nonlocal taken
        taken += event == "opcode"
        return each

    def begun(frame: FrameType, _event: str, _arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(OWN) and "<" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return each

    before = sys.gettrace()
    sys.settrace(begun)
    try:
        work()
    finally:
        sys.settrace(before)
    return taken


def grows(made: Callable[[int], Callable[[], object]], n: int) -> float:
    """By what the steps grow when what they grow by is doubled: 2 is in proportion, 4 is a square."""
    made(3)()  # what is built at its first use
    one, two, four = (steps(made(size)) for size in (n, 2 * n, 4 * n))
    return (four - two) / max(two - one, n)


# ---------------------------------------------------------------------------------------------------------------- single loops
def rows(n: int) -> pa.Table:
    start = np.arange(n) * 10
    files = [f"d{i}" for i in range(n)]
    columns = {"commit": [1] * n, "path": ["p"] * n, "version": ["v"] * n, "start": start, "length": [10] * n, "data_file": files}
    return pa.table(columns)


def retried(n: int) -> Callable[[], object]:
    """Each row of one file was uncovered by itself."""
    fold = Fold(1, (), {}, Uncovered(p=tuple((5, Uncover("p", "v", ((i * 10, 10),))) for i in range(n))))
    table = rows(n)
    return lambda: fold._counting(table)


def removed(n: int) -> Callable[[], object]:
    fold = Fold(1, (), {f"d{i}": 5 for i in range(n)}, Uncovered())
    tables = [rows(4) for _ in range(n)]
    return lambda: [fold._counting(table) for table in tables]


def met(n: int) -> Callable[[], object]:
    ours, others = [(i * 20, 10) for i in range(n)], [(i * 20 + 10, 10) for i in range(n)]
    return lambda: overlap(ours, others)


def rejected(n: int) -> Callable[[], object]:
    content = b"".join(b"%06d\n" % i for i in range(n))

    def function(split: Any, given: bytes) -> None:
        for line in given.splitlines():
            split.quarantine(line, "no")

    work = Processing(function, "file", "lines")
    return lambda: work.call(content, FileInfo("p", len(content), "v"), (0, len(content)), 1)


def packed(n: int) -> Callable[[], object]:
    runs = [TaskRun("", 0, "o", i % 3, i, 1, 10 + i % 7) for i in range(n)]
    return lambda: pack(runs, Cut("balanced", "flat", 1, "xxh64", 100, True), 1.0, ["a", "b", "a"])


def in_folders(n: int) -> Callable[[], object]:
    runs = [TaskRun(f"d{i}", 0, "o", 0, i, 1, 10) for i in range(n)]
    return lambda: pack(runs, Cut("directory", "directories", 1, "xxh64", 100, True), 1.0)


def lined(n: int) -> Callable[[], object]:
    pieces = [b"x" * 7, b"\n"] * n
    return lambda: list(lines_of(iter(pieces), 0, 0, 8 * n, 8 * n))


def covered(n: int) -> Callable[[], object]:
    def work() -> None:
        whole = Covered(ranges=[(i * 10, i * 10 + 5) for i in range(n)])
        whole.add(Covered(ranges=[(i * 10 + 5, i * 10 + 10) for i in range(n)]))
        assert whole.gaps(20 * n) == [(10 * n, 20 * n)]

    return work


ENTRY = Entry("m", 0, 2, "w")


def importing() -> markers.Importing:
    nowhere, fold = Root("memory://markers"), Fold(1, (), {}, Uncovered())
    return markers.Importing(nowhere, (), (), "memory://x", None, fold, str, content=False, whole=False, lines=False)


def marked(n: int) -> Callable[[], object]:
    """Every other part of one file was marked before, and now all are, some twice."""
    file, before = Entry("p", 10 * n, 1, "v"), [(i * 10, 10) for i in range(0, n, 2)]
    taken = sorted((i * 10 - i % 3, 10, ENTRY) for i in range(1, n))
    return lambda: markers._uncovered(importing(), "p", file, taken, before, markers._Matches())


def unmarked(n: int) -> Callable[[], object]:
    """Every other split of one file is done."""
    done = [(i * 20, 10) for i in range(n)]
    job = markers._Exporting("memory://x", None, Root("memory://m"), Fold(1, (), {}, Uncovered()), (), "file://", 10, lines=False)
    return lambda: list(markers._splits(job, "file:///p", done, 20 * n))


def sources(n: int) -> Callable[[], object]:
    files = [names.data_file("", f"{i}-{i:016x}", 0, f"{i:012x}", 0, ".txt") for i in range(n)]
    fold = Fold(1, tuple(Source(i, names.segment_of(file), "a", "b") for i, file in enumerate(files)), {}, Uncovered())
    return lambda: carry.Carrying(connect("memory://s"), fold, files, "none", carry.Dropped((), Counts(0, 0, 0, 0), frozenset()))


def row_groups(n: int) -> Callable[[], object]:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"i": range(n)}), out, row_group_size=1)
    connect("memory://groups").put(f"{n}.parquet", out.getvalue().to_pybytes())
    rows = RowReader(connect("memory://groups"), f"{n}.parquet")
    return lambda: [rows.take(i, 1) for i in range(n)]


def placed(n: int) -> Callable[[], object]:
    """New rows come into each of so many partitions of a table."""
    slices = [Slice(f"p={i:06}", f"g{i}", "20261122100000000", f"p={i:06}/g{i}.parquet", 10) for i in range(n)]
    runs = [Run("block", i, f"p={i:06}", 3, 0, 30, "a", "c") for i in range(n)]
    return lambda: targets(runs, slices, 1000, 10.0)


def reported(n: int) -> Callable[[], object]:
    """A report of a run that left out, quarantined and could not read so many."""
    some = tuple((f"p{i}", "why") for i in range(n))
    report = quire.Report("in", "out", quarantined=some, quarantined_count=n, unreadable=some, deferred=some, changed=some)
    return lambda: (report._repr_html_(), str(report), repr(report))


def tasks_drawn(n: int) -> Callable[[], object]:
    start = pd.Timestamp("2026-11-23", tz="UTC") + pd.to_timedelta(np.arange(n) * 0.5, unit="s")
    table = pd.DataFrame({"commit": 1, "task": range(n), "directory": "", "part": "0", "files": 1, "bytes": 10, "started": start})
    return lambda: plots.tasks(table.assign(seconds=n / 4.0))


def commits_drawn(n: int) -> Callable[[], object]:
    table = pd.DataFrame(
        {"version": range(1, n + 1), "verb": "run", "files": 2, "forgotten": 0, "quarantined": 1, "written": 1, "removed": 0}
    )
    return lambda: plots.commits(table.assign(data_files=range(n)))


def ranges_drawn(n: int) -> Callable[[], object]:
    table = pd.DataFrame(
        {"start": range(0, 10 * n, 10), "length": 10, "state": ["done", "quarantined"] * (n // 2) + ["gap"] * (n % 2), "commit": 1}
    )
    return lambda: plots.coverage(table)


def parts_drawn(n: int) -> Callable[[], object]:
    result = quire.skew.check({f"p{i}": 100 + i % 13 for i in range(n)}, unit="files")
    return lambda: (plots.partitions(result), result._repr_html_())


DRAWN = [tasks_drawn, commits_drawn, ranges_drawn, parts_drawn]


@pytest.mark.nth(4)
@pytest.mark.parametrize("loop", DRAWN)
def test_the_steps_of_a_picture_grow_as_what_it_shows_does(loop: Callable[[int], Callable[[], object]]) -> None:
    """One of many is drawn more simply than one of few, so it may take fewer."""
    loop(3)()
    assert steps(loop(240)) < 5.2 * steps(loop(60))


@pytest.mark.parametrize(
    "loop", [reported, sources, row_groups, retried, removed, met, rejected, packed, in_folders, lined, covered, marked, unmarked, placed]
)
def test_the_steps_of_a_loop_grow_as_its_input_does(loop: Callable[[int], Callable[[], object]]) -> None:
    assert grows(loop, 100) < 2.6


def test_rejects_in_any_order_find_short_lists() -> None:
    def longest(n: int) -> int:
        content, processing = b"".join(b"%06d\n" % i for i in range(n)), Processing(lambda *_: None, "file", "lines")
        rejects, order = _Quarantine(processing, content, len(content)), list(range(n))
        random.Random(n).shuffle(order)
        for i in [*reversed(range(0, n, 2)), *(i for i in order if i % 2)]:
            rejects.take(content[7 * i : 7 * i + 6], "no", 7 * i)
        with pytest.raises(QuarantineError, match="twice"):
            rejects.take(content[7:9], "no", 7)
        assert len(rejects.found) == n
        return max(map(len, rejects.spans.values()))

    assert longest(4_000) <= longest(2_000) <= BLOCK // 7 + 2


def test_a_record_that_lies_in_many_blocks_is_not_rejected_twice() -> None:
    content = b"x" * 10 * BLOCK
    rejects = _Quarantine(Processing(lambda *_: None, "file", "lines"), content, len(content))
    rejects.take(content[: 5 * BLOCK], "no", BLOCK)
    for at in (BLOCK - 1, 3 * BLOCK, 6 * BLOCK - 2):
        with pytest.raises(QuarantineError, match="twice"):
            rejects.take(b"xx", "no", at)
    for at in (BLOCK - 2, 6 * BLOCK):
        rejects.take(b"xx", "no", at)


def test_what_pieces_tell_the_driver_of_troubles_does_not_grow_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[int]()

    def troubles(listing: Listing, piece: Piece, found: Listed, seen: object) -> Iterable[Any]:
        for i in range(EXAMPLES + 1):
            _note(Trouble(f"f{i}", "unreadable", "no"), listing.roots[piece.root], found)
        return ()

    def listed(listing: Listing, number: int, piece: Piece) -> dict[str, Any]:
        answer = list_piece(listing, number, piece)
        told.append(len(answer["unreadable"]["examples"]))
        return answer

    fold = Fold(1, (), {}, Uncovered())
    cut = Cut("balanced", "flat", 1, "xxh64", 100, True)
    listing = Listing("memory://told", None, "j", "p", (Root("memory://of", ("",)),), Selection(), fold, cut)
    monkeypatch.setattr("quire.planning.listing._chunks", troubles)
    monkeypatch.setattr("quire.planning.plan.list_piece", listed)
    for pieces in (3, 200):
        told.clear()
        merged = plan._merge(quire.LocalRunner(), listing, [Piece(0, "")] * pieces, lambda: None)
        assert len(told) == pieces
        assert sum(told) <= TOLD
        assert len(merged.unreadable.examples) == EXAMPLES
        assert merged.unreadable.count == pieces * (EXAMPLES + 1), "counted are all"


class Part:
    """A sink as of an upload: it holds what fills no part."""

    def __init__(self) -> None:
        self.held = self.size = 0

    def write(self, data: Any) -> None:
        self.size += len(data)
        self.held = self.size % (1 << 20)

    def close(self) -> None:
        self.held = 0

    discard = close


@pytest.mark.nth(3)
@pytest.mark.parametrize(("kind", "uploads"), [(ParquetWriter, False), (ParquetWriter, True), (FrameWriter, True)])
def test_twice_the_partitions_hold_no_more_memory(monkeypatch: pytest.MonkeyPatch, kind: Any, uploads: bool) -> None:
    """One bound for all writers of a task; each record is where its place says."""
    monkeypatch.setattr(folders, "HELD", 1 << 20)
    record = random.Random(1).randbytes(20_000)

    def peak(n: int) -> int:
        sinks, most = list[Any](), 0

        def create(index: int, folder: str) -> Any:
            sinks.append(Part() if uploads else connect("memory://partitions").create(f"{n}/{index}"))
            return sinks[-1]

        writer = FolderWriter(kind, create, 1 << 30, "zstd")
        for i in range(6 * n):
            batch = pa.record_batch({"v": [record], "i": [i]}) if kind is ParquetWriter else record
            writer.add(batch, f"k={i % n}")
            most = max(most, sum(writer._all[place][0].held for place in writer._open.values()))
        writer.close()
        assert len(writer.files) == 6 * n
        if not uploads:
            assert len(sinks) == n, "rows that wait are written, and no file is closed for them"
            for i, (file, offset) in enumerate(zip(writer.files, writer.offsets, strict=True)):
                found = RowReader(connect("memory://partitions"), f"{n}/{file}").take(offset, 1)
                assert found.column("i").to_pylist() == [i]
        return most

    assert max(peak(25), peak(50), peak(100)) <= (1 << 20) + 21_000


# -------------------------------------------------------------------------------------------------------------------- whole calls
def halves(split: Any, content: bytes) -> bytes:
    """Takes every other line and rejects the rest."""
    taken = []
    for i, line in enumerate(content.splitlines(keepends=True)):
        if i % 2:
            split.quarantine(line, "no", offset=i * len(line))
        else:
            taken.append(line)
    return b"".join(taken)


def everything(split: Any, content: bytes) -> bytes:
    return content


def mark(source: Path, dest: Path) -> None:
    """Three markers for each file, as jobs with other sizes of splits leave them."""
    for path in source.rglob("f*"):
        for start, length in ((0, 2), (2, 2), (0, path.stat().st_size)):
            name = dest.parent / "markers" / identifier(str(path), start, length)
            name.parent.mkdir(parents=True, exist_ok=True)
            name.touch()


CALLS: dict[str, tuple[Callable[[Path, Path], object], ...]] = {
    "listing and planning": (look,),
    "a run": (gather,),
    "a run with nothing new": (gather, gather),
    "a run by directories": (lambda source, dest: gather(source, dest, layout="directories", planner="directory"),),
    "what is not done": (lambda source, dest: gather(source, dest, include="*1"), lambda source, dest: Ledger(dest).inspect.unprocessed(
        source, spark=HERE["spark"])),
    "forgetting many paths": (gather, lambda source, dest: Ledger(dest).forget(
        [str(p) for p in sorted(source.rglob("f*"))[::2]], spark=HERE["spark"], progress=False)),
    "the ledger's pages": (gather, lambda source, dest: (
        Ledger(dest).summary(), Ledger(dest).inspect.history(), Ledger(dest).inspect.quarantined())),
    "reading markers": (mark, lambda source, dest: Ledger(dest, create=True).import_markers(
        dest.parent / "markers", source, spark=HERE["spark"], progress=False)),
}  # fmt: skip


def small(source: Path, dest: Path) -> None:
    """A data file and a segment for each of the files."""
    assert gather(source, dest, target_size="8 B").data_files == len(list(source.iterdir()))


READING: dict[str, Callable[[Path, Path], object]] = {
    "a checkpoint": lambda _, dest: Ledger(dest).checkpoint(spark=HERE["spark"]),
    "showing what there is": lambda source, dest: (
        Ledger(dest)._repr_html_(), Ledger(dest).rows(limit=1000)._repr_html_(), look(source, dest)._repr_html_()),
    "forgetting a data file": lambda _, dest: Ledger(dest).forget(
        file=Ledger(dest).inspect.files()["data_file"].iloc[0], spark=HERE["spark"], progress=False),
    "compacting": lambda _, dest: Ledger(dest).compact(target_size="1 MB", spark=HERE["spark"], progress=False),
}  # fmt: skip


def test_no_object_is_read_again_for_each_of_many_data_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in reads, since Arrow does the rest: what is read once more for each data file may be as long as there are many of them."""
    read = list[str]()

    def counting(real: Callable[..., bytes]) -> Callable[..., bytes]:
        return lambda store, name, *given: (read.append(name), real(store, name, *given))[1]

    for way in ("get", "get_range"):
        monkeypatch.setattr(LocalStore, way, counting(getattr(LocalStore, way)))

    def most(n: int) -> dict[str, int]:
        source, dest = write(tmp_path / f"{n}/in", {f"f{i:05}": b"one\ntwo\n" for i in range(n)}), tmp_path / f"{n}/out"
        small(source, dest)
        found = {}
        for call, act in READING.items():
            read.clear()
            act(source, dest)
            found[call] = max(Counter(read).values())
        return found

    few, many = most(4), most(16)
    assert all(many[call] <= few[call] + 2 for call in READING), (few, many)


@pytest.mark.nth(8)
@pytest.mark.parametrize("call", CALLS)
def test_the_steps_of_a_call_grow_as_its_files_do(call: str, tmp_path: Path) -> None:
    *before, last = CALLS[call]
    number = count()

    def made(n: int) -> Callable[[], object]:
        place = tmp_path / str(next(number))
        source = write(place / "in", {f"d{i % 5}/f{i:05}": b"one\ntwo\n" for i in range(n)})
        for act in before:
            act(source, place / "out")
        return lambda: last(source, place / "out")

    assert grows(made, 40) < 2.6


RECORDS: dict[str, tuple[Callable[[Path, Path], object], ...]] = {
    "rejecting": (),
    "retrying": (lambda _, dest: Ledger(dest).retry(function=everything, **{**HERE, "max_quarantined": None}),),
    "running after a retry": (
        lambda _, dest: Ledger(dest).retry(function=everything, **{**HERE, "max_quarantined": None}),
        lambda source, dest: quire.process(source, dest, halves, split="lines", function_version="1", **HERE),
    ),
    "looking at what was rejected": (lambda _, dest: Ledger(dest).inspect.quarantined_records(),),
    "looking at the ranges of a file": (
        lambda source, dest: (Ledger(dest).inspect.coverage(source / "a"), Ledger(dest).locate(source / "a")),
    ),
    "what is shown": (lambda source, dest: Ledger(dest).rows(limit=1000)._repr_html_(),),
}


@pytest.mark.nth(6)
@pytest.mark.parametrize("call", RECORDS)
def test_the_steps_of_a_call_grow_as_the_records_of_a_file_do(call: str, tmp_path: Path) -> None:
    number = count()

    def made(n: int) -> Callable[[], object]:
        place = tmp_path / str(next(number))
        source = write(place / "in", {"a": b"".join(b"%06d\n" % i for i in range(2 * n))})
        acts = [lambda source, dest: quire.process(source, dest, halves, split="lines", function_version="1", **HERE), *RECORDS[call]]
        for act in acts[:-1]:
            act(source, place / "out")
        return lambda: acts[-1](source, place / "out")

    assert grows(made, 40) < 2.6


# ---------------------------------------------------------------------------------------------------------------- what C does at once
def seconds(work: Callable[[], object]) -> float:
    def once() -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    return min(once() for _ in range(3))


TEXTS: dict[str, Callable[[int], Callable[[], object]]] = {
    "slashes in an attribute": lambda n: lambda: xml(b'<a b="\n' + b"/" * n + b'"></a>'),
    "a long name beside xml:space": lambda n: lambda: xml(b"<r><" + b"a" * n + b" xml:space='preserve'>\n</" + b"a" * n + b"></r>"),
    "blanks between tags": lambda n: lambda: xml(b"<a>" + b"\n <b/>" * (n // 8) + b" " * n + b"\nx</a>"),
    "many attributes": lambda n: lambda: xml(b"<a" + b"".join(b' a%d="/>"\n' % i for i in range(n // 10)) + b"/>"),
    "comments before the document": lambda n: lambda: xml(b"<!--\n-->" * (n // 8) + b"<a>\n</a>"),
    "strings in JSON": lambda n: lambda: json(b"[" + b'"\\"a",\n' * (n // 6) + b"1]"),
    "lines of JSON": lambda n: lambda: json(b'{"a": "b"}\n' * (n // 10)),
    "keys in what is hidden of a message": lambda n: lambda: scrub("password=\" token  'sig= :// @ " * (n // 30)),
    "blanks in what is hidden of a message": lambda n: lambda: scrub("token" + " " * n + "x"),
}  # fmt: skip


# A square shows in a small text within a second, and so the large one is not begun; what is no square yet shows in the large one.
@pytest.mark.nth(6)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("n", [1_000, 50_000])
def test_what_is_parsed_takes_time_in_proportion(text: str, n: int) -> None:
    most = 8 * 2.3
    for _ in range(3):  # a machine may be busy with other things
        least, found = seconds(TEXTS[text](n)), seconds(TEXTS[text](8 * n))
        if found < most * max(least, 0.001):
            return
    raise AssertionError(f"8 times the bytes took {found / least:.0f} times as long")


# ------------------------------------------------------------------------------------------------------------------- they agree
def test_what_was_uncovered_is_found_as_by_comparing_each_with_each() -> None:
    def meets(a: tuple[int, int], b: tuple[int, int]) -> bool:
        (s, n), (t, m) = a, b
        return (s == t and n == m == 0) or (n > 0 and m > 0 and s < t + m and t < s + n)

    def some(n: int) -> list[tuple[int, int]]:
        return [(rnd.randrange(30), rnd.choice([0, 0, 1, 3, 9])) for _ in range(n)]

    rnd = random.Random(7)
    for _ in range(1000):
        ours, others = some(rnd.randrange(5)), some(rnd.randrange(5))
        assert overlap(ours, others) == any(meets(a, b) for a in ours for b in others)
        by: Iterable[tuple[int, Uncover]] = tuple((rnd.randrange(4), Uncover("p", "v", tuple(some(2)))) for _ in range(4))
        row, number = some(1)[0], rnd.randrange(4)
        wanted = any(at > number and any(meets(r, row) for r in u.ranges) for at, u in by)
        assert Uncovered(p=by).since(number, "p", "v", *row) == wanted
