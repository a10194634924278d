"""The attacks that SECURITY.md lists: nothing outside of the destination is touched, and each ends soon, in one line."""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import quire
from checker import check
from gathering import documents, gather, look, refused, write
from hostile import (
    ATTEMPT,
    JOB,
    acts,
    append,
    commit,
    destination,
    encoded,
    frozen,
    one_line,
    outside,
    put,
    rewrite,
    survive,
    trouble,
    untouched,
    whole_plan,
)
from quire.cli import main as cli
from quire.commit.entries import Entry, check_head, decode
from quire.coverage import segments
from quire.errors import FormatError, QuireError, UsageError
from quire.sources.files import Selection
from quire.sources.transforms import BadContent, xml
from quire.sources.transforms import json as json_transform
from quire.storage import normalise

ROOM = Path(__file__).parent.parent

# ------------------------------------------------------------------------------------------------------------ the list itself


def test_every_attack_of_the_list_has_a_test_and_every_test_here_is_in_the_list() -> None:
    text = (ROOM / "SECURITY.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|") and not set(line) <= set("|- ")]
    rows = [row for row in rows if not row.startswith(("| attack ", "| string "))]  # the heads of the two tables
    assert len(rows) > 20
    named = set[str]()
    for row in rows:
        tests = re.findall(r"`(?:tests/)?((?:\w+/)*test_\w+\.py)::(test_\w+)`", row) + [
            ("test_security.py", t) for t in re.findall(r"`(test_\w+)`", row)
        ]
        assert tests, f"no test: {row}"
        for file, test in tests:
            assert re.search(rf"^def {test}\(", (ROOM / "tests" / file).read_text(), re.MULTILINE), f"{file}::{test} is not there"
        named |= {test for file, test in tests if file == "test_security.py"}
    here = set(re.findall(r"^def (test_\w+)\(", Path(__file__).read_text(), re.MULTILINE))
    assert here - named == {"test_every_attack_of_the_list_has_a_test_and_every_test_here_is_in_the_list"}


# ---------------------------------------------------------------------------------------------------------- names that lead out

NAMES = [
    "../outside/precious", "/etc/passwd", "x/../../outside/precious", "..", ".", "", "a\0b", "x//y", "./x",
    "_quire/log/00000000000000000001.entry", "_quire/jobs/../../../outside/precious", f"../outside/part-{JOB}-0-{ATTEMPT}-0.txt",
    f"_quire/part-{JOB}-0-{ATTEMPT}-0.txt", f"../outside/{JOB}-0-{ATTEMPT}.rows", "part-1-0000000000000000-0-000000000000-0.txt",
    "x" * 5000, "\x1b[31mred",
]  # fmt: skip
FIELDS: list[tuple[str | int, ...]] = [
    ("tasks", 0, "data_files", 0, "name"), ("tasks", 0, "data_files", 0, "handle"), ("tasks", 0, "coverage", "segment"),
    ("tasks", 0, "coverage", "removes"),
    ("tasks", 0, "attempt"), ("job",), ("committer",), ("closer",), ("parts",),
]  # fmt: skip


# All names in all fields take minutes: a third of them here, other ones for each field, and all in the lane of what takes long.
EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.nightly)], ids=["some names", "all names"])


@pytest.mark.nth(10)
@EVERY
@pytest.mark.parametrize("field", FIELDS, ids=lambda f: str(f[-1]))
def test_a_forged_name_in_a_log_entry_touches_nothing_else(tmp_path: Path, field: tuple[str | int, ...], every: int) -> None:
    for name in NAMES[len(str(field[-1])) % every :: every]:
        folder = tmp_path / str(NAMES.index(name))
        if (field[-1], name[:7]) == ("removes", "part-1-"):
            continue  # another job's data file may be removed
        if (field[-1], name) == ("closer", ""):
            continue  # most jobs have none
        out, beside = destination(folder), outside(folder)
        (out / f"_quire/jobs/{JOB}/attempts/0-{ATTEMPT}").mkdir(parents=True)
        forged = put(commit(out), field, [name] if field[-1] == "removes" else name)
        if field[-1] == "name":  # with the handle that goes with it, and something there to rename
            handle = f"_quire/jobs/{JOB}/attempts/0-{ATTEMPT}/{name}"
            forged["tasks"][0]["data_files"][0]["handle"] = handle
            with suppress(OSError, ValueError):
                (out / handle).parent.mkdir(parents=True, exist_ok=True)
                (out / handle).write_bytes(b"forged")
        append(out, encoded(forged))
        with untouched(beside, folder / "in", out / "_quire/log"):
            said = survive(out)
        for act in ("recover", "gather"):
            assert isinstance(said[act], FormatError), (name, act)
        assert len(list(out.glob("part-*"))) == 1, name


@pytest.mark.nth(5)
@EVERY
@pytest.mark.parametrize("field", [f[2:] for f in FIELDS if f[0] == "tasks"], ids=lambda f: str(f[-1]))
def test_a_forged_name_in_a_manifest_touches_nothing_else(tmp_path: Path, field: tuple[str | int, ...], every: int) -> None:
    for name in NAMES[len(str(field[-1])) % every :: every]:
        folder = tmp_path / str(NAMES.index(name))
        head, _ = frozen(folder)
        out, beside = folder / "out", outside(folder)
        task = commit(out, head.parent.name)["tasks"][0]
        forged = put(
            {"kind": "manifest", "job": head.parent.name, "task": task, "format": 1},
            ("task", *field),
            [name] if field[-1] == "removes" else name,
        )
        (head.parent / "tasks").mkdir()
        (head.parent / "tasks/0.entry").write_bytes(encoded(forged))
        with untouched(beside, folder / "in"):
            said = survive(out)
        if field[-1] != "handle":  # nobody believes a handle before there is a commit
            assert "gather" in said, name


@pytest.mark.nth(6)
@pytest.mark.parametrize("name", NAMES)
def test_a_forged_name_in_a_plan_touches_nothing_else(tmp_path: Path, name: str) -> None:
    head, _ = frozen(tmp_path)
    plan = json.loads(head.read_bytes())
    beside = outside(tmp_path)
    for field in ("plan", "job", "committer"):
        head.write_bytes(encoded({**plan, field: name}))
        with untouched(beside, tmp_path / "in"), refused(FormatError, 2):
            quire.recover(tmp_path / "out")
            gather(tmp_path / "in", tmp_path / "out", transform="xml")
    head.write_bytes(encoded(plan))
    table = pq.read_table(whole_plan(head))
    rewrite(whole_plan(head), object=[name] * table.num_rows)
    with untouched(beside, tmp_path / "in"), refused(FormatError, 2, "is damaged", "recover --abort"):
        gather(tmp_path / "in", tmp_path / "out", transform="xml")


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    "way", ["/../outside/precious", "/d9/../../outside/precious", "x/../../outside/precious", "/./d9/late.xml", "/a\0b", None]
)
def test_a_forged_plan_reads_nothing_that_does_not_lie_in_the_source(tmp_path: Path, way: str | None) -> None:
    _, piece = frozen(tmp_path, transform="raw")
    secret = outside(tmp_path) / "precious"
    root, status = f"file://{os.path.realpath(tmp_path)}/in", secret.stat()
    path, n = (f"file://{secret}" if way is None else root + way), pq.read_metadata(piece).num_rows
    rewrite(
        piece,
        path=[path] * n,
        version=[f"{status.st_mtime_ns}-{status.st_size}"] * n,
        size=[status.st_size] * n,
        length=[status.st_size] * n,
    )
    with refused(FormatError, 2, "does not lie in", root):
        gather(tmp_path / "in", tmp_path / "out", transform="raw")
    quire.recover(tmp_path / "out", abort="open")
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file() and b"precious" in p.read_bytes()]
    assert gather(tmp_path / "in", tmp_path / "out", transform="raw").files == 2, "after it was given up all goes on"


def test_names_of_source_files_are_only_names(tmp_path: Path) -> None:
    names = ["..a", "...", "a\nb", "-rf", "$(touch x)", "`x`", "a;b", "%2e%2e%2fx", "~", "\\..\\x",
             "part-1-0000000000000000-0-000000000000-0.txt", "CON", "a=..", "d=%2e%2e/x", "\u202etxt.exe", "file:", "memory:", "*", "[a]",
             "{x}", "'\"", "x" * 255]  # fmt: skip
    source, beside = write(tmp_path / "in", {name: name.encode() for name in names}), outside(tmp_path)
    with open(os.fsencode(source) + b"/\xff\xfe", "wb") as file:
        file.write(b"no text")
    for layout in ("flat", "directories"):
        with untouched(beside, source):
            assert gather(source, tmp_path / layout, layout=layout, hidden=True).files == len(names) + 1
        written = [p for p in (tmp_path / layout).rglob("*") if p.is_file()]
        assert all(p.resolve().is_relative_to(tmp_path / layout) for p in written)


def test_a_url_cannot_hide_that_the_destination_lies_in_the_source(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(3))
    (tmp_path / "link").symlink_to("in")
    with untouched(source):
        for dest in ("in/../in/out", "link/out", "x/../link/./out", "in//out"):
            for url in (f"{tmp_path}/{dest}", f"file://{tmp_path}/{dest}", f"FILE://localhost{tmp_path}/{dest}"):
                with refused(UsageError, 2, " lies in the source "):
                    gather(source, url)
    for url in ("memory://a/../b", "memory://../b", "a\0b", "file://host/etc", "\ud800"):
        with refused(UsageError, 2):
            normalise(url)


# ------------------------------------------------------------------------------------------------------------- links and devices

PLACES = [
    "_quire", "_quire/jobs", f"_quire/jobs/{JOB}", f"_quire/jobs/{JOB}/attempts", f"_quire/jobs/{JOB}/tasks", "_quire/ledger", "_quire/log",
    "_quire/log/parts", "_quire/tmp", f"_quire/jobs/{JOB}/attempts/0-{ATTEMPT}",
]  # fmt: skip


@pytest.mark.nth(12)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["commit", "published", "abort"])
@pytest.mark.parametrize("committer", ["rename", "rename_v2"])
def test_a_link_inside_the_destination_is_not_a_way_out_of_it(tmp_path: Path, place: str, kind: str, committer: str) -> None:
    out, beside = destination(tmp_path), outside(tmp_path)
    forged = {**commit(out), "committer": committer}
    if kind == "abort":
        append(out, {"kind": "abort", "job": JOB, "why": "", "time": "", "committer": committer, "format": 1})
    else:
        append(out, forged)
    if kind == "published":
        append(out, {"kind": "published", "job": JOB, "time": "", "lost": [], "format": 1})
    for name in (
        f"_quire/ledger/{JOB}-1-{ATTEMPT}.rows",
        f"_quire/jobs/{JOB}/tasks/0.entry",
        f"_quire/jobs/{JOB}/attempts/0-{ATTEMPT}/x",
    ):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(b"")
    target = beside if not place.endswith(JOB) else beside / JOB
    if (out / place).exists():
        (out / place).rename(tmp_path / "taken away")
    (out / place).parent.mkdir(parents=True, exist_ok=True)
    (out / place).symlink_to(target)
    with untouched(beside):
        said = survive(out)
    if place in ("_quire", "_quire/log"):
        assert "is a symbolic link" in str(said["gather"])
    if place == "_quire/tmp":
        assert not (out / place).is_symlink(), "the link itself is swept away"


def test_a_linked_directory_of_data_is_not_written_through(tmp_path: Path) -> None:
    source, beside = write(tmp_path / "in", {"dt=1/a": b"1\n", "dt=2/a": b"2\n"}), outside(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/dt=1").symlink_to(beside)
    with untouched(beside), refused(FormatError, 2, "/out/dt=1 is a symbolic link"):
        gather(source, tmp_path / "out", layout="directories", allow_nonempty=True)
    (tmp_path / "out/dt=1").unlink()
    gather(source, tmp_path / "out", layout="directories", allow_nonempty=True)
    check(source, tmp_path / "out")


def planted(folder: Path, what: str) -> tuple[Path, Callable[[], object]]:
    """An object of quire's own to replace, and what reads it."""
    if what in ("plan.entry", "manifest", "piece", "head"):
        head, piece = frozen(folder)
        found = {"plan.entry": head, "manifest": head.parent / "tasks/0.entry", "piece": piece, "head": whole_plan(head)}[what]
        found.parent.mkdir(exist_ok=True)
        return found, acts(folder / "out")["gather"]
    out = destination(folder)
    if what == "entry":
        return out / "_quire/log/00000000000000000001.entry", acts(out)["summary"]
    if what == "next entry":
        return out / "_quire/log/00000000000000000003.entry", acts(out)["summary"]
    if what == "segment":
        return next((out / "_quire/ledger").iterdir()), acts(out)["quarantined"]
    return next(out.glob("part-*")), acts(out)["read"]


OBJECTS = ["entry", "next entry", "plan.entry", "head", "piece", "manifest", "segment", "data"]


@pytest.mark.nth(2)
@pytest.mark.parametrize("what", OBJECTS)
def test_a_link_in_an_objects_place_is_not_read(tmp_path: Path, what: str) -> None:
    path, act = planted(tmp_path, what)
    content = path.read_bytes() if path.exists() else encoded(commit(tmp_path / "out"))
    (beside := outside(tmp_path)).joinpath("object").write_bytes(content)
    path.unlink(missing_ok=True)
    path.symlink_to(beside / "object")
    with untouched(beside):
        if what == "entry":
            path.with_name("00000000000000000002.entry").unlink()
        with refused(FormatError, 2, "is a symbolic link"):
            act()


def test_a_link_in_the_place_of_a_tasks_output_is_not_published(tmp_path: Path) -> None:
    out, secret = destination(tmp_path), outside(tmp_path) / "precious"
    forged = commit(out)
    append(out, forged)
    handle = out / forged["tasks"][0]["data_files"][0]["handle"]
    handle.parent.mkdir(parents=True)
    handle.symlink_to(secret)
    with untouched(secret.parent), refused(FormatError, 2, "is a symbolic link"):
        quire.recover(out)
    assert [p.name for p in out.glob("part-*") if JOB in p.name] == []


@pytest.mark.nth(2)
@pytest.mark.parametrize("what", OBJECTS)
def test_a_pipe_or_a_device_in_an_objects_place_does_not_block(tmp_path: Path, what: str) -> None:
    path, act = planted(tmp_path, what)
    if what == "entry":
        path.with_name("00000000000000000002.entry").unlink()
    for make in (os.mkfifo, os.mkdir):
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        make(path)
        if make is os.mkdir:
            (path / "x").touch()  # else it would be tidied up
        began = time.monotonic()
        with pytest.raises(QuireError) as caught:
            act()
        one_line(caught.value)
        assert make is os.mkdir or "not a regular file" in str(caught.value)
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("what", [o for o in OBJECTS if o != "data"])
def test_an_endless_object_is_not_read_into_memory(tmp_path: Path, what: str) -> None:
    path, act = planted(tmp_path, what)
    path.touch()
    os.truncate(path, 1 << 40)
    began = time.monotonic()
    with refused(FormatError, 2, "is longer than"):
        act()
    assert time.monotonic() - began < 10


# ------------------------------------------------------------------------------------------------------------- forged contents

HUGE = [-1, 10**18 * 5, 10**30, 1e300, "1", None, [1], {}, True]
NUMBERS: list[tuple[str | int, ...]] = [
    ("base",), ("hash_parts",), ("target",), ("format",),
    ("tasks", 0, "task"), ("tasks", 0, "part"),
    *(("tasks", 0, "stats", f) for f in ("assigned", "gathered", "quarantined_files", "files_in", "bytes_in", "started", "seconds")),
    ("tasks", 0, "data_files", 0, "size"), ("tasks", 0, "data_files", 0, "records"),
]  # fmt: skip


@pytest.mark.nth(9)
@pytest.mark.parametrize("field", NUMBERS, ids=lambda f: str(f[-1]))
def test_a_forged_number_in_a_log_entry_is_one_line(tmp_path: Path, field: tuple[str | int, ...]) -> None:
    out = destination(tmp_path)
    published = {"kind": "published", "job": JOB, "time": "", "lost": [], "format": 1}
    for value in HUGE:
        first, second = append(out, encoded(put(commit(out), field, value))), append(out, published)
        said = survive(out)
        if not isinstance(value, bool) and field[-1] not in ("started", "seconds"):
            assert isinstance(said.get("summary"), FormatError), value
        second.unlink()
        first.unlink()


SHAPES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "another thing": b"[]",
    "a number": b"7",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep where nobody looks": b'{"kind": "pin", "format": 1, "version": 1, "id": "", "time": "", "x": '
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}",
    "no kind": b'{"format": 1}',
    "an unknown kind": b'{"format": 1, "kind": "\\u001b[31m<script>"}',
    "a newer format": b'{"format": 2, "kind": "commit"}',
    "an old format": b'{"format": 0, "kind": "commit"}',
    "a long number": b'{"format": 1' + b"0" * 100_000 + b"}",
    "no UTF-8": b'{"format": 1, "kind": "abort", "job": "\xff", "why": "", "time": ""}',
    "half a character": b'{"format": 1, "kind": "abort", "job": "1-0123456789abcdef", "why": "\\ud800", "time": ""}',
    "NaN": b'{"format": 1, "kind": "pin", "version": NaN, "id": "", "time": ""}',
    "two of a key": b'{"format": 1, "kind": "pin", "version": 1, "version": -1, "id": "", "time": "", "format": 9}',
    "a byte order mark": b'\xef\xbb\xbf{"format": 1}',
    "binary": bytes(range(256)) * 10,
}


@pytest.mark.nth(24)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("what", ["next entry", "plan.entry", "manifest"])
def test_an_entry_a_plan_or_a_manifest_that_is_damaged_is_one_line(tmp_path: Path, what: str, shape: str) -> None:
    path, act = planted(tmp_path, what)
    path.write_bytes(SHAPES[shape])
    with refused(FormatError, 2, path.name):
        act()
    survive(tmp_path / "out")


def _shapes(thing: dict[str, Any], needed: Iterable[str]) -> Iterator[dict[str, Any]]:
    """One object in the shapes that it never has: a field is missing, has another name, or there is one more."""
    for name in needed:
        rest = {key: value for key, value in thing.items() if key != name}
        yield rest
        yield {**rest, f"{name}s": thing[name]}
    yield {**thing, "more": []}


def test_an_object_without_a_field_is_damaged_and_not_an_empty_one(tmp_path: Path) -> None:
    """Else data files that stand under another name were a task that has none, and nobody told."""
    log = destination(tmp_path) / "_quire/log"
    commit, published = (json.loads((log / f"{n:020}.entry").read_bytes()) for n in (1, 2))
    task = commit["tasks"][0]
    wrong = [
        *_shapes(commit, ("tasks", "dropped", "left", "parts", "closer")),
        *_shapes(published, ("lost",)),
        *({**commit, "tasks": [one]} for one in _shapes(task, ("data_files", "coverage", "stats"))),
        *({**commit, "tasks": [{**task, name: one}]} for name in ("coverage", "stats") for one in _shapes(task[name], ())),
        *({**commit, "tasks": [{**task, "data_files": [one]}]} for one in _shapes(task["data_files"][0], ("name", "handle"))),
    ]
    for one in wrong:
        with pytest.raises(FormatError, match=r"is damaged: .*(missing required|unknown) field"):
            decode(json.dumps(one).encode(), Entry, "here")


@pytest.mark.nth(8)
@pytest.mark.parametrize(
    "forged",
    [
        {"intent": {}}, {"intent": {"parts": "many"}}, {"intent": {"parts": 10**12}}, {"intent": {"target": -1}}, {"tasks": 10**6},
        {"tasks": 0}, {"base": 0}, {"committer": "rename_v2"}, {"committer": "other"}, {"job": JOB}, {"plan": "x/../../y"},
        {"plan": "0" * 12},
        {"spec": {}},
        {"spec": {"transform": "raw", "format": "raw", "compression": "none", "layout": "flat"}},
        {"spec": {"transform": "xml", "format": "lines", "compression": "lzma", "layout": "flat"}},
        {"spec": {"transform": "xml", "format": "lines", "compression": "none", "layout": "directories"}},
    ],
    ids=str,
)  # fmt: skip
def test_a_forged_plan_head_is_one_line_and_can_be_given_up(tmp_path: Path, forged: dict[str, Any]) -> None:
    head, _ = frozen(tmp_path)
    before = outside(tmp_path)
    whole = json.loads(head.read_bytes())
    changed = {
        **whole,
        **forged,
        "intent": {**whole["intent"], **forged["intent"]} if forged.get("intent") else forged.get("intent", whole["intent"]),
    }
    head.write_bytes(encoded(changed))
    with untouched(before, tmp_path / "in"):
        for name in ("plan", "summary", "gather"):
            if (e := trouble(acts(tmp_path / "out")[name])) is not None:
                one_line(e)
                assert isinstance(e, FormatError) or "is missing" in str(e), e
    quire.recover(tmp_path / "out", abort="open")
    gather(tmp_path / "in", tmp_path / "out", transform="xml")
    check(tmp_path / "in", tmp_path / "out", None)


@pytest.mark.parametrize("spec", [{"layout": "directories"}, {"transform": "raw", "format": "raw"}, {"compression": "gzip"}], ids=str)
def test_a_first_plan_under_this_calls_name_that_says_something_else_is_refused(tmp_path: Path, spec: dict[str, str]) -> None:
    head, _ = frozen(tmp_path)
    for path in (tmp_path / "out/_quire").glob("log/*"):
        path.unlink()
    whole = json.loads(head.read_bytes())
    job = "0" + head.parent.name[1:]
    other = head.parent.rename(head.parent.with_name(job)) / "plan.entry"
    text = whole_plan(other)
    rewrite(text, object=[name.replace(head.parent.name, job) for name in pq.read_table(text).column("object").to_pylist()])
    other.write_bytes(encoded({**whole, "base": 0, "job": job, "spec": {**whole["spec"], **spec}}))
    with refused(FormatError, 2, "does not say what this call says", job):
        gather(tmp_path / "in", tmp_path / "out", transform="xml")


def damage(path: Path, how: str, column: str) -> None:
    """Forge one column of a Parquet file."""
    n, kind = pq.read_metadata(path).num_rows, pq.read_schema(path).field(column).type
    number, text, nothing = pa.types.is_integer(kind), pa.types.is_string(kind), pa.nulls(pq.read_metadata(path).num_rows, kind)
    signed = number and kind != pa.uint64()
    made = {
        "missing": None,
        "another type": pa.array([[1]] * n),
        "text for numbers and the reverse": pa.array(["1"] * n) if number else pa.array([1] * n),
        "null": nothing,
        "negative": pa.array([-5] * n, kind) if signed else pa.array(["-1"] * n) if text else nothing,
        "huge": pa.array([(1 << 63) - 1] * n, kind) if number else pa.array(["²" * 6000] * n) if text else nothing,
        "no UTF-8": pa.array([b"\xff\xfe"] * n).view(pa.string()) if text else nothing,
        "far away": pa.array([1 << 61] * n, kind) if number else pa.array(["../outside/precious"] * n) if text else nothing,
    }
    rewrite(path, **{column: made[how]})


HOWS = ["missing", "another type", "text for numbers and the reverse", "null", "negative", "huge", "no UTF-8", "far away"]
SEGMENT = segments.SCHEMA.names


@pytest.mark.nth(8)
@pytest.mark.parametrize("how", HOWS)
def test_a_forged_segment_is_an_answer_or_one_line(tmp_path: Path, how: str) -> None:
    out, beside = destination(tmp_path, transform="raw"), outside(tmp_path)
    write(tmp_path / "in", {"d0/f0000.xml": b"changed", "d0/new.xml": b"new"})
    (segment,) = (out / "_quire/ledger").iterdir()
    shutil.copytree(out, tmp_path / "good")
    for column in SEGMENT:
        if column == "carried" and how in ("negative", "huge", "far away"):
            continue
        shutil.rmtree(out)
        shutil.copytree(tmp_path / "good", out)
        damage(segment, how, column)
        with untouched(beside, tmp_path / "in"):
            said = survive(out)
        if how == "missing" and column in segments.LATER:
            assert "sizes" not in said, "segments of an earlier quire have no such column"
        elif how in ("missing", "another type"):
            assert isinstance(said["sizes"], FormatError), column


@pytest.mark.nth(6)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", ["head", "piece"])
def test_a_forged_plan_is_an_answer_or_one_line(tmp_path: Path, what: str, how: str) -> None:
    head, piece = frozen(tmp_path, transform="raw")
    out, beside, path = tmp_path / "out", outside(tmp_path), piece if what == "piece" else whole_plan(head)
    good = {p: p.read_bytes() for p in (head, piece, whole_plan(head))}
    for column in pq.read_schema(path).names:
        for p, content in good.items():
            p.parent.mkdir(parents=True, exist_ok=True)
            p.write_bytes(content)
        damage(path, how, column)
        with untouched(beside, tmp_path / "in"):
            try:
                gather(tmp_path / "in", out, transform="raw")
            except QuireError as e:
                one_line(e)
                quire.recover(out, abort="open")
            else:
                break  # it was no damage that matters, and the job is done
    quire.recover(out, abort="open")
    assert not [p for p in out.rglob("part-*") if b"precious" in p.read_bytes()]


@pytest.mark.seldom
@pytest.mark.parametrize("tasks", [50_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_very_many_tasks_cost_time_for_each_and_no_more(tmp_path: Path, tasks: int) -> None:
    out = destination(tmp_path)
    forged = commit(out)
    task = {**forged["tasks"][0], "data_files": [], "coverage": {}, "folder": "f"}
    text = [
        encoded({"kind": "manifest", "job": JOB, "format": 1, "task": {**task, "task": i, "folder": f"f{i}"}}).decode()
        for i in range(tasks)
    ]
    (out / "_quire/log/parts").mkdir()
    pq.write_table(pa.table({"task": text}), out / f"_quire/log/parts/{JOB}-{ATTEMPT}.rows", compression="zstd")
    append(out, {**forged, "tasks": [], "parts": f"_quire/log/parts/{JOB}-{ATTEMPT}.rows", "planner": "hash", "hash_parts": 100_000})
    append(out, {"kind": "published", "job": JOB, "time": "", "lost": [], "format": 1})
    began = time.monotonic()
    assert quire.Ledger(out).summary().commits == 2
    quire.Ledger(out).skew()
    assert time.monotonic() - began < 10 + tasks / 5_000
    head, _ = frozen(tmp_path / "two")
    rows = pq.read_table(whole_plan(head)).to_pylist()[0]
    columns = {name: [value] * tasks for name, value in rows.items()} | {"task": list(range(tasks))}
    pq.write_table(pa.table(columns), whole_plan(head))
    began = time.monotonic()
    with refused(FormatError, 2, "is damaged", "not numbered from 0 on"):
        gather(tmp_path / "two/in", tmp_path / "two/out", transform="xml")
    assert time.monotonic() - began < 10 + tasks / 5_000


# ----------------------------------------------------------------------------------------------------------------------- bombs


def measured(code: str, limit: int = 1 << 30) -> str:
    """Run code in a process of its own, which may take so much memory more than it has after its imports; what it prints."""
    script = f"""
        import resource, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
        import quire, pyarrow.parquet, pandas, zstandard
        from quire import LocalRunner, ledger, planning
        from quire.read import first_rows
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    """
    after = """
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print("used", used >> 10, "MiB", file=sys.stderr)
        sys.exit(used >> 10 > LIMIT)
    """.replace("LIMIT", str(limit >> 20))
    whole = textwrap.dedent(script) + textwrap.dedent(code) + textwrap.dedent(after)
    done = subprocess.run([sys.executable, "-W", "error", "-c", whole], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def parquet(table: pa.Table, **how: Any) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd", **how)
    data: bytes = out.getvalue().to_pybytes()
    return data


def long_text(n: int, rows: int) -> pa.Array:
    """`rows` times a text of `n` characters, in a few bytes of Parquet."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * n]))


def test_a_parquet_bomb_is_noticed_before_it_fills_the_memory(tmp_path: Path) -> None:
    out = destination(tmp_path)
    (segment,) = (out / "_quire/ledger").iterdir()
    fields = {f.name: f for f in pq.read_schema(segment)}
    n = 300_000
    plain = {
        name: pa.nulls(n, f.type) if f.nullable else pa.array(np.zeros(n), f.type) if f.type != pa.string() else None
        for name, f in fields.items()
    }
    bombs = {
        "many": parquet(
            pa.table({name: long_text(1 << 20, n) if made is None else made for name, made in plain.items()}), store_schema=False
        ),
        "long": parquet(
            pa.table({name: long_text(1 << 27, 1) if made is None else made.slice(0, 1) for name, made in plain.items()}),
            store_schema=False,
        ),
    }
    for name, data in bombs.items():
        assert len(data) < 200_000
        (tmp_path / name).write_bytes(data)
    said = measured(f"""
        from pathlib import Path
        for name in {list(bombs)!r}:
            Path({str(segment)!r}).write_bytes((Path({str(tmp_path)!r}) / name).read_bytes())
            for act in ("quarantined", "sizes"):
                try:
                    getattr(quire.Ledger({str(out)!r}).inspect, act)()
                except quire.QuireError as e:
                    print(name, type(e).__name__)
    """)
    assert said.split() == ["many", "FormatError"] * 2 + ["long", "FormatError"] * 2


@pytest.mark.nth(2)
@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_compressed_bomb_in_a_data_file_is_read_in_pieces(tmp_path: Path, compression: str) -> None:
    out = destination(tmp_path, compression=compression)
    (data,) = out.glob("part-*")
    size = 4 << 30
    if compression == "gzip":
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        zeros = bytes(16 << 20)
        bomb = b"".join(packer.compress(zeros) for _ in range(size // len(zeros) // 8)) + packer.flush()
    else:  # blocks of one repeated byte: 128 KiB in four bytes
        block = struct.pack("<I", (128 << 10) << 3 | 1 << 1)[:3] + b"\0"
        last = struct.pack("<I", (128 << 10) << 3 | 1 << 1 | 1)[:3] + b"\0"
        bomb = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x58" + block * (size // (128 << 10) - 1) + last
        assert zstandard.ZstdDecompressor().decompressobj().decompress(bomb[:100])[:1] == b"\0"
    data.write_bytes(bomb)
    measured(f"""
        from quire.errors import QuireError
        ledger = quire.Ledger({str(out)!r})
        assert not ledger.verify(spark=LocalRunner()).ok
        try:
            ledger.read({str(tmp_path / "in/d0/f0000.xml")!r})
        except QuireError as e:
            print(e)
        else:
            raise SystemExit("read")
    """)


def test_xml_bombs_and_entities_are_refused_unread_and_nothing_is_fetched(tmp_path: Path) -> None:
    secret = outside(tmp_path) / "precious"
    lol = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
    refused_ones = [
        f'<!DOCTYPE l [<!ENTITY l0 "lol">{lol}]><l>&l11;</l>', f'<!DOCTYPE q [<!ENTITY a "{"a" * 99999}">]><q>{"&a;" * 99999}</q>',
        f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{secret}">]><x>&e;</x>', f'<!DOCTYPE x SYSTEM "file://{secret}"><x>&e;</x>', "<x>&e;</x>",
        f'<!DOCTYPE l [<!ENTITY l0 "lol">{lol}]><l a="&l11;"/>', f'<!DOCTYPE l [<!ENTITY l0 "lol">{lol}<!ATTLIST l a CDATA "&l2;">]><l/>',
        "<a>" * 200_000 + "</a>" * 200_000,
    ]  # fmt: skip
    began = time.monotonic()
    for text in refused_ones:
        for encoding in ("utf-8", "utf-16"):
            with pytest.raises(BadContent) as caught:
                xml(text.encode(encoding))
            assert "precious" not in caught.value.reason
    kept = f'<x xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="file://{secret}" parse="text"/></x>'.encode()
    assert xml(kept) == kept, "an XInclude is an element like any other"
    for text in (
        f'<!DOCTYPE x [<!ENTITY % p SYSTEM "file://{secret}"> %p;]><x/>', f'<!DOCTYPE x SYSTEM "file://{secret}"><x/>',
        '<!DOCTYPE x PUBLIC "a" "http://127.0.0.1:9/x.dtd"><x/>', f'<!DOCTYPE l [<!ENTITY l0 "lol">{lol}]><l/>',
    ):  # fmt: skip
        assert xml(text.encode()) == text.encode(), "it stays, and is not looked at"
    assert xml(b'<?xml-stylesheet href="http://127.0.0.1:9/x"?><x/>'), "nothing is fetched"
    assert time.monotonic() - began < 10


def test_long_tags_and_many_attributes_cost_time_for_each_byte_and_no_more() -> None:
    many = b"<a " + b" ".join(b'a%d="1"' % i for i in range(200_000)) + b"/>"
    texts = [many, b"<a b='" + b"x" * (4 << 20) + b"'/>", b"<a>" + b"<b/>\n" * 500_000 + b"</a>", b"<a>" + b"<" * (2 << 20),
             b"<!--" + b"-" * (3 << 20), b"<a>" + b"&amp;" * 500_000 + b"</a>", b"<a>" + b"]]" * (1 << 20) + b"</a>",
             b"<?" + b"x" * (9 << 20),
             b"<a><![CDATA[" + b"]]" * (1 << 20) + b"]]></a>", b"<a\n" + b"\n" * (2 << 20) + b"/>",
             b"<" + b"a" * (9 << 20) + b"/>"]  # fmt: skip
    for text in texts:
        began = time.monotonic()
        if (e := trouble(lambda text=text: xml(text))) is not None:  # type: ignore[misc]
            assert e.reason.isprintable()
        assert time.monotonic() - began < 10, text[:20]


def test_json_that_is_deep_or_huge_or_not_quite_json_is_kept_as_text_or_set_aside() -> None:
    for bad in (
        b"[" * 1_000_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b"NaN",
        b"[1, -Infinity]",
        b'{"a": 1,}',
        b"'a'",
        b"\xff",
        b"01",
    ):
        began = time.monotonic()
        with pytest.raises(BadContent) as caught:
            json_transform(bad)
        assert caught.value.reason.isprintable()
        assert time.monotonic() - began < 5
    for kept in (
        b"1" * 1_000_000,
        b"1e999999999",
        b"-" + b"9" * 10_000 + b"." + b"9" * 10_000,
        b'{"a":1,"a":2}',
        b'{"__proto__":{"x":1}}',
        b'"\\ud800"',
    ):
        began = time.monotonic()
        assert json_transform(kept) == [kept]
        assert time.monotonic() - began < 5


def test_a_file_name_cannot_keep_a_glob_busy(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"-" * 255: b"1", "a-b-c-d-e-f-g-h.xml": b"2", "a" * 200 + "/" + "a" * 255: b"3"})
    began = time.monotonic()
    report = gather(
        source, tmp_path / "out", include=["*-*-*-*-*-*-*-*.xml", "*a*a*a*a*a*a*a*b", "**/*a*a*a*a*a*b*/x"], exclude="*?*?*?*?*?*.txt"
    )
    assert (report.files, time.monotonic() - began < 10) == (1, True)
    taken = Selection(include=("*a*b*.x?", "d/*/[!a]*"))
    chosen = taken.chooser(quire.sources.files.Root("memory://x"))
    assert [bool(chosen.match(n)) for n in ("aab.xx", "z/1a2bb.xy", "d/e/bcd", "d/e/abc", "d/bcd", "ab.x")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


# -------------------------------------------------------------------------------------------------------- code that names run as

TAGS = {"div", "strong", "table", "tr", "th", "td", "p"}
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"&<b>\n"


class Strict(HTMLParser):
    """Fails for any tag or attribute but those that quire writes."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        assert {name for name, _ in attrs} <= {"class", "style"}, attrs

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)


def evil(tmp_path: Path, name: str) -> list[Any]:
    """One of each object that shows itself, all about places and files of such names."""
    folder = tmp_path / name.replace("/", "")
    source = write(folder / "in", {f"{name.replace('/', '')}{i}.xml": b"<a/>" if i else b"<" for i in range(9)})
    out = folder / "out"
    plan = look(source, out, transform="xml", planner="hash", parts=2)
    plan.run(progress=False)
    write(source, {f"{name.replace('/', '')}1.xml": b"<b>it has changed</b>"})
    report = gather(source, out, transform="xml", planner="hash", parts=2)
    verified = quire.Ledger(out).verify(spark=quire.LocalRunner())
    located = quire.Ledger(out).locate(source / f"{name.replace('/', '')}1.xml")
    append(out, {"kind": "abort", "job": JOB, "why": name, "time": name, "format": 1})
    forged = {**commit(out, "8-0123456789abcdef"), "time": name, "planner": name}
    forged["tasks"][0]["coverage"]["segment"] = None
    append(out, forged)
    append(out, {"kind": "published", "job": "8-0123456789abcdef", "time": name, "lost": [], "format": 1})
    ledger = quire.Ledger(out)
    skew = quire.skew.check({name: 900, f"{name}2": 100, "c": 100}, {name: name, f"{name}2": name, "c": name}, listed=2000)
    return [
        plan,
        report,
        ledger,
        ledger.summary(),
        quire.recover(out),
        verified,
        skew,
        *located,
    ]


def test_html_in_names_reasons_and_entries_is_shown_and_never_run(tmp_path: Path) -> None:
    for shown in evil(tmp_path, EVIL):
        if hasattr(shown, "_repr_html_"):
            text = shown._repr_html_()
            assert "<script" not in text
            assert "<img" not in text
            Strict().feed(text)
    ledger = quire.Ledger(tmp_path / EVIL.replace("/", "") / "out")
    for frame in (ledger.inspect.quarantined(), ledger.inspect.history(), ledger.inspect.tasks()):
        assert "<script" not in frame._repr_html_()
        assert "<img" not in frame._repr_html_()


ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\r\u202e\u2028\ufeff"


def test_escape_sequences_in_names_never_reach_a_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for shown in evil(tmp_path, ESCAPES):
        for text in (str(shown), repr(shown)):
            assert all(line.isprintable() for line in text.split("\n")), text
    out, first = str(tmp_path / ESCAPES / "out"), str(tmp_path / ESCAPES / f"in/{ESCAPES}1.xml")
    (tmp_path / "counts.json").write_text(json.dumps({"counts": {ESCAPES: 900, "b": 1}, "groups": [ESCAPES, ESCAPES]}))
    capfd.readouterr()
    calls = [["ledger", "summary", out], ["ledger", "quarantined", out], ["ledger", "history", out], ["ledger", "locate", out, first],
             ["recover", out], ["skew", out], ["skew", str(tmp_path / "counts.json")], ["ledger", "locate", out, "no" + ESCAPES],
             ["ledger", "summary", ESCAPES],
             ["recover", out, "--abort", ESCAPES], [ESCAPES], ["ledger", ESCAPES], ["skew", f"{ESCAPES}.json"]]  # fmt: skip
    for call in calls:
        for given in (call, [*call, "--json"]):
            with suppress(SystemExit):
                cli(given)
            said = "".join(capfd.readouterr())
            assert said
            assert all(line.isprintable() for line in said.split("\n")), (given, said)


def test_an_error_about_any_name_is_one_printable_line(tmp_path: Path) -> None:
    for name in (EVIL, ESCAPES):
        source = write(tmp_path / "in", documents(2))
        out = tmp_path / "out"
        wrong: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = [
            (gather, (tmp_path / name, out), {}), (gather, (source, f"file://{name}/x"), {}), (quire.Ledger, (tmp_path / name,), {}),
            (gather, (source, out), {"transform": name}), (gather, (source, out), {"include": f"**{name}"}),
            (gather, (source, out), {name: 1}), (gather, (source, out), {"target_size": name}), (quire.recover, (tmp_path / name,), {}),
            (quire.skew.check, ({name: -1},), {}),
        ]  # fmt: skip
        for act, given, settings in wrong:
            with pytest.raises(QuireError) as caught:
                act(*given, **settings)
            one_line(caught.value)


# ---------------------------------------------------------------------------------------------------------------------- pickles


class Planted:
    """Unpickling it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_no_module_can_unpickle_or_run_what_it_reads() -> None:
    forbidden = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "yaml", "jsonpickle", "code", "codeop", "pty"}
    calls = {"eval", "exec", "compile", "__import__", "loads_pickle", "read_pickle", "to_pickle", "system", "popen"}
    seen = 0
    for path in [*(ROOM / "toolkit").rglob("*.py"), *(ROOM / "widgets").rglob("*.py")]:
        # What a task carries was packed by the driver that started it, and came through Spark, not from a store.
        ours = {"pickle"} if path.name == "shipping.py" else set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert not {name.partition(".")[0] for name in names} & (forbidden - ours), f"{path}:{node.lineno}"
            if isinstance(node, ast.Call):
                seen += 1
                of_re = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                assert name not in calls or of_re, f"{path}:{node.lineno}"
                assert not {k.arg for k in node.keywords} & {"allow_pickle"}, f"{path}:{node.lineno}"
                shell = next((k.value for k in node.keywords if k.arg == "shell"), None)
                assert shell is None, f"{path}:{node.lineno}"
    assert seen > 1000


@pytest.mark.nth(2)
@pytest.mark.parametrize("what", OBJECTS)
def test_a_pickle_in_an_objects_place_is_damage_and_never_run(tmp_path: Path, what: str) -> None:
    path, act = planted(tmp_path, what)
    if what == "entry":
        path.with_name("00000000000000000002.entry").unlink()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(Planted(tmp_path / "owned"), protocol))
        with pytest.raises(QuireError) as caught:
            act()
        one_line(caught.value)
    assert not (tmp_path / "owned").exists()


def test_a_pickle_in_the_metadata_of_a_parquet_file_is_never_run(tmp_path: Path) -> None:
    out = destination(tmp_path)
    (segment,) = (out / "_quire/ledger").iterdir()
    table, payload = pq.read_table(segment), pickle.dumps(Planted(tmp_path / "owned"), 0)
    extension = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": payload}
    for at in (table.schema.names.index("path"), table.schema.names.index("written")):
        schema = table.schema.set(at, table.schema.field(at).with_metadata(extension)).with_metadata(
            {b"pandas": payload, b"pickle": payload}
        )
        pq.write_table(table.cast(schema), segment)
        survive(out)
    assert not (tmp_path / "owned").exists()


def test_what_decodes_entries_takes_nothing_but_its_own_fields() -> None:
    from quire.commit.entries import PlanHead

    pin = {"kind": "pin", "format": 1, "version": 3, "id": "a", "time": ""}
    found = decode(encoded(pin), Entry, "x")
    assert (type(found).__name__, found.version) == ("Pin", 3)
    for name in ("__class__", "format_map"):
        with refused(FormatError, 2, "is damaged", name):
            decode(encoded({**pin, name: "os.system"}), Entry, "x")
    spec = {"transform": "xml", "format": "lines", "compression": "none", "layout": "flat"}
    plan = {"kind": "plan", "job": JOB, "base": 7, "plan": ATTEMPT, "tasks": 1, "committer": "rename", "intent": {}, "format": 1}
    head = decode(encoded({**plan, "closer": "", "spec": spec}), PlanHead, "x")
    check_head(head, "x")


# ------------------------------------------------------------------------------------------------------------------------ rights


def test_what_is_written_is_not_for_everybody_to_write(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        out = destination(tmp_path)
    finally:
        os.umask(before)
    for path in [out, *out.rglob("*")]:
        assert not path.stat().st_mode & 0o022, path
