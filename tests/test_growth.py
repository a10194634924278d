"""Twice the input may take twice the work and a bit, in every loop that input drives.

Work is counted in steps of quire's own bytecode, which are the same on every machine; what C does at once (a search, a regular expression)
is measured in processor time of this thread, with factors at which a square shows and other load does not.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import quire
from gathering import MANY, gather, look, write
from quire import Ledger
from quire.commit.entries import Uncover
from quire.coverage.fold import Fold
from quire.coverage.ranges import Covered
from quire.coverage.uncovered import Uncovered, overlap
from quire.errors import scrub
from quire.planning.listing import Cut, Run
from quire.planning.pack import pack
from quire.sources.json import json
from quire.sources.processing import Processing
from quire.sources.ranges import lines_of
from quire.sources.xml import xml
from quire.splits import FileInfo

OWN = str(Path(quire.__file__).parent)
HERE: dict[str, Any] = {"spark": quire.InProcess(), "progress": False, "max_quarantined": MANY}


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
    columns = {"path": ["p"] * n, "version": ["v"] * n, "start": start, "length": [10] * n, "data_file": [f"d{i}" for i in range(n)]}
    return pa.table(columns)


def retried(n: int) -> Callable[[], object]:
    """Each row of one file was uncovered by itself."""
    fold = Fold(1, (), {}, Uncovered(p=tuple((5, Uncover("p", "v", ((i * 10, 10),))) for i in range(n))))
    table = rows(n)
    return lambda: fold._counting(table, 1)


def removed(n: int) -> Callable[[], object]:
    fold = Fold(1, (), {f"d{i}": 5 for i in range(n)}, Uncovered())
    tables = [rows(4) for _ in range(n)]
    return lambda: [fold._counting(table, 1) for table in tables]


def met(n: int) -> Callable[[], object]:
    ours, others = [(i * 20, 10) for i in range(n)], [(i * 20 + 10, 10) for i in range(n)]
    return lambda: overlap(ours, others)


def rejected(n: int) -> Callable[[], object]:
    content = b"".join(b"%06d\n" % i for i in range(n))

    def function(split: Any, given: bytes) -> None:
        for line in given.splitlines():
            split.reject(line, "no")

    work = Processing(function, "file", "lines")
    return lambda: work.call(content, FileInfo("p", len(content), "v"), (0, len(content)), 1)


def packed(n: int) -> Callable[[], object]:
    runs = [Run("", 0, "o", i % 3, i, 1, 10 + i % 7) for i in range(n)]
    return lambda: pack(runs, Cut("balanced", "flat", 1, "xxh64", 100, True), 1.0, ["a", "b", "a"])


def in_folders(n: int) -> Callable[[], object]:
    runs = [Run(f"d{i}", 0, "o", 0, i, 1, 10) for i in range(n)]
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


@pytest.mark.parametrize("loop", [retried, removed, met, rejected, packed, in_folders, lined, covered])
def test_the_steps_of_a_loop_grow_as_its_input_does(loop: Callable[[int], Callable[[], object]]) -> None:
    assert grows(loop, 100) < 2.6


# -------------------------------------------------------------------------------------------------------------------- whole calls
def halves(split: Any, content: bytes) -> bytes:
    """Takes every other line and rejects the rest."""
    taken = []
    for i, line in enumerate(content.splitlines(keepends=True)):
        if i % 2:
            split.reject(line, "no", offset=i * len(line))
        else:
            taken.append(line)
    return b"".join(taken)


def everything(split: Any, content: bytes) -> bytes:
    return content


CALLS: dict[str, tuple[Callable[[Path, Path], object], ...]] = {
    "listing and planning": (look,),
    "a run": (gather,),
    "a run with nothing new": (gather, gather),
    "a run by directories": (lambda source, dest: gather(source, dest, layout="directories", planner="directory"),),
    "what is not done": (lambda source, dest: gather(source, dest, include="*1"), lambda source, dest: Ledger(dest).unprocessed(
        HERE["spark"], source)),
    "forgetting many paths": (gather, lambda source, dest: Ledger(dest).forget(
        [str(p) for p in sorted(source.rglob("f*"))[::2]], spark=HERE["spark"], progress=False)),
    "the ledger's pages": (gather, lambda source, dest: (
        Ledger(dest).summary(), Ledger(dest).history(), Ledger(dest).failed())),
}  # fmt: skip


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
        lambda source, dest: quire.process(source, halves, dest, split="lines", version="1", **HERE),
    ),
    "looking at what was rejected": (lambda _, dest: Ledger(dest).rejected(),),
}


@pytest.mark.parametrize("call", RECORDS)
def test_the_steps_of_a_call_grow_as_the_records_of_a_file_do(call: str, tmp_path: Path) -> None:
    number = count()

    def made(n: int) -> Callable[[], object]:
        place = tmp_path / str(next(number))
        source = write(place / "in", {"a": b"".join(b"%06d\n" % i for i in range(2 * n))})
        acts = [lambda source, dest: quire.process(source, halves, dest, split="lines", version="1", **HERE), *RECORDS[call]]
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


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_parsed_takes_time_in_proportion(text: str) -> None:
    n, most = 50_000, 8 * 2.3
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
