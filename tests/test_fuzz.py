"""Whatever is read, from a store, a source, a shell or a caller: a value, or one line that says what is wrong with it; never anything else.

What a run really wrote is changed in a few places, so that the changes come through to where it is used. `QUIRE_FUZZ=100` tries a
hundred times as much (`make nightly` does).
"""

from __future__ import annotations

import copy
import datetime as dt
import functools
import json
import math
import os
import re
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.utils import glob_translate
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import quire
import sums
from gathering import MANY, documents, gather, look, write
from hostile import freeze, one_line, trouble
from quire.arguments import format_size, parse_size, seconds
from quire.cli.app import _counts
from quire.commit import names
from quire.commit.entries import Entry, Manifest, PlanHead, check_head, check_task, decode, encode
from quire.commit.log import Log
from quire.coverage import segments
from quire.coverage.antijoin import gaps
from quire.errors import FormatError, QuireError, UsageError, printable, scrub
from quire.planning.listing import PLAN
from quire.planning.pack import HEAD, read_head, read_rows
from quire.read import first_rows
from quire.sources.files import Root, Selection, located, patterns
from quire.sources.kafka import offsets
from quire.sources.kafka.records import Loading
from quire.sources.kafka.topics import Key
from quire.sources.transforms import json as json_records
from quire.sources.transforms import xml
from quire.storage import canonical, connect, memory, normalise
from quire.storage.azure.account import account, parts
from quire.storage.base import safe

TIMES = int(os.environ.get("QUIRE_FUZZ", "1"))
SOON = 10.0  # seconds


def tries(n: int) -> Callable[[Any], Any]:
    """So many examples, a hundred times as many at night; no deadline for each, as the machine may be busy."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(max_examples=n * TIMES, deadline=None, suppress_health_check=checks, derandomize=TIMES == 1, database=None)


def answer(act: Callable[[], Any], kind: type[QuireError] = QuireError) -> Any:
    """What the call gives; None if it says in one line what is wrong."""
    began = time.monotonic()
    try:
        return act()
    except kind as e:
        one_line(e)
        return None
    finally:
        assert time.monotonic() - began < SOON


# ----------------------------------------------------------------------------------------------------------- what a run writes

IN, OUT = "memory://fuzz/in", "memory://fuzz/out"


@functools.cache
def written() -> dict[str, bytes]:
    """All objects of a destination with a commit (files quarantined too) and an open job."""
    store = connect(IN)
    for name, content in {**documents(5, "xml"), "d0/bad.xml": b"<", "d1/empty.xml": b""}.items():
        store.put(name, content)
    gather(IN, OUT, transform="xml")
    store.put("d2/late.xml", b"<late/>")
    plan: Any = look(IN, OUT, transform="xml")
    freeze(plan)
    found = {e.name: connect(OUT).get(e.name) for e in connect(OUT).walk()}
    assert len(found) == 7
    return found


def put_back(**changed: bytes) -> None:
    """The destination as it was, but for some objects."""
    there = written()
    with memory._lock:
        for path in [p for p in memory._objects if p.startswith(OUT + "/")]:
            del memory._objects[path]
        for name, content in {**there, **changed}.items():
            memory._objects[f"{OUT}/{name}"] = (content, next(memory._ticks))


def object_like(pattern: str) -> str:
    (name,) = (n for n in written() if re.fullmatch(pattern, n))
    return name


COMMIT = "_quire/log/0*1.entry"
HEAD_NAME = r".*/plan\.entry"
TASKS = r".*/plan-[0-9a-f]{12}\.rows"
PIECE = r".*/plan-[0-9a-f]{12}-.*\.rows"
SEGMENT = "_quire/ledger/.*"


def manifest() -> Any:
    """A manifest of the open job's task, as its attempt would write it."""
    head, done = json.loads(written()[object_like(HEAD_NAME)]), json.loads(written()[object_like(COMMIT)])
    text = json.dumps(done["tasks"][0]).replace(done["job"], head["job"])
    return {"kind": "manifest", "job": head["job"], "task": json.loads(text), "format": 1}


def use_all() -> None:
    """Whatever a user may do with the destination."""
    acts: list[Callable[[], object]] = [
        lambda: str(quire.Ledger(OUT).summary()), lambda: repr(quire.Ledger(OUT).skew()),
        *(lambda look=look: getattr(quire.Ledger(OUT).inspect, look)() for look in ("history", "tasks", "sizes", "quarantined")),
        lambda: quire.Ledger(OUT).locate(f"{IN}/d0/f0000.xml"), lambda: quire.Ledger(OUT).read(f"{IN}/d0/f0000.xml"),
        lambda: quire.Ledger(OUT).verify(spark=quire.LocalRunner()).as_dict(), lambda: list(first_rows(connect(OUT), 100)),
        lambda: gather(IN, OUT, transform="xml"), lambda: quire.recover(OUT, abort="open"),
    ]  # fmt: skip
    for act in acts:
        answer(act)


# -------------------------------------------------------------------------------------------------------------------- strategies

odd_numbers = st.sampled_from([-1, 0, 1, 2**31, 2**53, 2**62, 2**63, 2**64, 10**30, -(2**63), 1e308, 0.5, -0.0])
odd_texts = st.sampled_from(
    ["", ".", "..", "/", "../../x", "a\0b", "\x1b[31m", "<b>", "²", "٣", "_quire", "_quire/log/x", "x" * 5000, "\u202e", "rename", "commit"]
)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), odd_numbers, st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8), odd_texts
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=6
)


def places(thing: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON document."""
    inside = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    return [at, *(place for key, value in inside for place in places(value, (*at, key)))]


@st.composite
def changed(draw: st.DrawFn, thing: Any) -> Any:
    """A document with some of its places changed: another value, nothing, a value of another place, twice the same."""
    thing = copy.deepcopy(thing)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from([p for p in places(thing) if p] or [("",)]))
        inside = thing
        for key in way:
            inside = inside[key]
        how = draw(st.sampled_from(["value", "value", "gone", "other", "again"]))
        if last == "":
            return draw(values)
        if how == "gone":
            del inside[last]
        elif how == "again" and isinstance(inside, list):
            inside += [copy.deepcopy(inside[last])] * draw(st.integers(1, 3))
        elif how == "other":
            other = thing
            for key in draw(st.sampled_from(places(thing))):
                other = other[key]
            inside[last] = copy.deepcopy(other)
        else:
            inside[last] = draw(values)
    return thing


@st.composite
def scratched(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes with some of them changed, cut out or put in."""
    made = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(made)))
        n = draw(st.integers(0, 4))
        made[at : at + n] = draw(
            st.binary(max_size=6) | st.sampled_from([b'"', b"[" * 2000, b"{", b"\xff", b"\0", b"-", b"9" * 30, b"e999"])
        )
    return bytes(made)


def forged(thing: Any) -> st.SearchStrategy[bytes]:
    """Bytes near to the JSON of a thing."""
    text = json.dumps(thing).encode()
    return changed(thing).map(lambda x: json.dumps(x).encode()) | scratched(text) | st.binary(max_size=60)


arrays: st.SearchStrategy[Any] = st.sampled_from(
    [pa.int64(), pa.int32(), pa.uint64(), pa.string(), pa.binary(), pa.float64(), pa.bool_(), pa.list_(pa.int64())]
)


def column(kind: Any, n: int) -> st.SearchStrategy[Any]:
    """An array of a type, of odd values and of none."""
    if pa.types.is_integer(kind):
        width = 64 if kind != pa.int32() else 32
        least, most = (0, 2**64 - 1) if kind == pa.uint64() else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
        value: st.SearchStrategy[Any] = st.integers(least, most) | st.sampled_from([0, 1, most])
    elif kind == pa.string():
        value = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | odd_texts
    elif kind == pa.binary():
        value = st.binary(max_size=4)
    elif kind == pa.float64():
        value = st.floats()
    elif kind == pa.bool_():
        value = st.booleans()
    else:
        value = st.lists(st.integers(-5, 5), max_size=2)
    return st.lists(st.none() | value if kind != pa.bool_() else value, min_size=n, max_size=n).map(lambda found: pa.array(found, kind))


@st.composite
def tables(draw: st.DrawFn, data: bytes) -> bytes:
    """The Parquet file with some columns changed: other values, another type, a name that is there twice, none at all."""
    table = pq.read_table(pa.BufferReader(data), use_threads=False)
    for _ in range(draw(st.integers(1, 2))):
        at, how = (
            draw(st.integers(0, table.num_columns - 1)),
            draw(st.sampled_from(["values", "values", "type", "gone", "twice", "binary", "rows"])),
        )
        field = table.schema.field(at)
        if how == "gone" and table.num_columns > 1:
            table = table.remove_column(at)
        elif how == "twice":
            table = table.append_column(field.name, table.column(at))
        elif how == "rows":
            table = pa.concat_tables([table, table]) if draw(st.booleans()) else table.slice(0, draw(st.integers(0, table.num_rows)))
        elif how == "binary" and field.type == pa.string():
            raw = pa.array([b"\xff"] * table.num_rows, pa.binary())
            table = table.set_column(at, field.name, raw.view(pa.string()))
        else:
            kind = draw(arrays) if how == "type" else field.type
            table = table.set_column(at, field.name, draw(column(kind, table.num_rows)))
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd")
    made: bytes = out.getvalue().to_pybytes()
    return made


# ------------------------------------------------------------------------------------------------------- what lies in a store


@tries(60)
@given(st.data())
def test_an_entry_is_read_as_it_is_written_or_refused(data: st.DataObject) -> None:
    entry = json.loads(written()[object_like(COMMIT)])
    others = [
        {"kind": "abort", "job": entry["job"], "why": "x", "time": "", "left": [["p", "w"]], "format": 1},
        {"kind": "published", "job": entry["job"], "time": "", "lost": [1], "format": 1},
        {"kind": "expired", "below": 3, "time": "", "format": 1},
        {"kind": "pin", "version": 3, "id": "a", "time": "", "format": 1},
    ]
    content = data.draw(forged(data.draw(st.sampled_from([entry, *others]))))
    found = answer(lambda: decode(content, Entry, "where"), FormatError)
    if found is not None:
        assert decode(encode(found), Entry, "again") == found


@tries(40)
@given(st.data())
def test_a_manifest_and_a_plan_head_are_read_as_they_are_written_or_refused(data: st.DataObject) -> None:
    content = data.draw(forged(manifest()))
    found = answer(lambda: decode(content, Manifest, "where"), FormatError)
    if found is not None:
        assert decode(encode(found), Manifest, "again") == found
        answer(lambda: check_task(found.job, found.task), FormatError)
    content = data.draw(forged(json.loads(written()[object_like(HEAD_NAME)])))
    head = answer(lambda: decode(content, PlanHead, "where"), FormatError)
    if head is not None:
        assert decode(encode(head), PlanHead, "again") == head
        answer(lambda: check_head(head, "where"), FormatError)


@tries(15)
@given(st.data())
def test_a_destination_with_a_forged_entry_answers_or_says_why_not(data: st.DataObject) -> None:
    entry = json.loads(written()[object_like(COMMIT)])
    if data.draw(st.booleans()):
        put_back(**{object_like(COMMIT): data.draw(forged(entry))})
    else:
        text = json.dumps(entry).replace(entry["job"], "2-0123456789abcdef")
        put_back(**{names.entry(3): data.draw(changed(json.loads(text)).map(lambda x: json.dumps(x).encode()))})
    use_all()


@tries(15)
@given(st.data())
def test_a_destination_with_a_forged_plan_or_manifest_answers_or_says_why_not(data: st.DataObject) -> None:
    head = json.loads(written()[object_like(HEAD_NAME)])
    if data.draw(st.booleans()):
        put_back(**{object_like(HEAD_NAME): data.draw(forged(head))})
    else:
        put_back(**{names.manifest(head["job"], 0): data.draw(forged(manifest()))})
    use_all()


@tries(15)
@given(st.data(), st.sampled_from([TASKS, PIECE, SEGMENT]))
def test_a_destination_with_forged_parquet_answers_or_says_why_not(data: st.DataObject, which: str) -> None:
    name = object_like(which)
    content = written()[name]
    put_back(**{name: data.draw(tables(content) | st.binary(max_size=50))})
    use_all()


@tries(60)
@given(st.data())
def test_rows_of_plans_and_segments_are_of_their_types_or_refused(data: st.DataObject) -> None:
    store, content = connect(OUT), data.draw(tables(written()[object_like(SEGMENT)]))
    store.put("x", content)
    found = answer(lambda: segments.read(store, "x", segments.SCHEMA.names), FormatError)
    if found is not None:
        assert [f.type for f in found.schema] == [f.type for f in segments.SCHEMA]
        for row in found.to_pylist():
            assert isinstance(row["path"], str)
            assert 0 <= row["start"] <= 1 << 62
            assert row["data_file"] is None or row["offset"] is not None
    answer(lambda: segments.read(store, "x", ["path", "start"], "a", "z"), FormatError)
    name = object_like(TASKS)
    store.put(name, data.draw(tables(written()[name])))
    tasks = answer(lambda: read_head(store, name, 1), FormatError)
    for task in tasks or []:
        assert min([task.part, *(min(r.row, r.rows, r.bytes, r.root) for r in task.runs)]) >= 0
    store.put(name, written()[name])
    (task,) = read_head(store, name, 1)
    store.put(object_like(PIECE), data.draw(tables(written()[object_like(PIECE)])))
    rows = answer(lambda: list(read_rows(store, task.runs)), FormatError)
    for table in rows or []:
        assert table.schema.types == PLAN.types
    assert HEAD.names[0] == "task"


@tries(10)
@given(st.data(), st.sampled_from([TASKS, PIECE, SEGMENT]))
def test_scratched_parquet_is_read_or_refused(data: st.DataObject, which: str) -> None:
    store, name = connect(OUT), object_like(which)
    store.put("x", data.draw(scratched(written()[name])))
    answer(lambda: segments.read(store, "x", segments.SCHEMA.names), FormatError)


@tries(200)
@given(
    st.lists(st.tuples(st.integers(0, 1 << 62) | st.integers(0, 40), st.integers(0, 1 << 62) | st.integers(0, 20)), max_size=5),
    st.integers(0, 30),
)
@example([(1 << 61, 5)], 8)  # a row that begins beyond the end of the file: what was left had 2^61 bytes, in as many pieces
def test_what_is_left_of_a_file_lies_in_it(covered: list[tuple[int, int]], size: int) -> None:
    left = gaps(covered, size)
    if size:
        bytes_left = [at for start, n in left for at in range(start, start + n)]
        assert bytes_left == [at for at in range(size) if not any(s <= at < s + n for s, n in covered)]
        assert all(n > 0 for _, n in left)
    else:
        assert left == ([] if covered else [(0, 0)])


# -------------------------------------------------------------------------------------------------------------------- names

name_parts = st.sampled_from(
    ["..", ".", "", "a", "_quire", "jobs", "log", "\0", "x" * 300, "part-1-0123456789abcdef-0-0123456789ab-0.txt", "²"]
)
some_names = st.lists(name_parts, max_size=6).map("/".join) | st.text(max_size=20)


@tries(300)
@given(some_names)
@example("a/..")
@example("/")
@example("x" * 5000)
def test_a_name_that_is_taken_lies_below_its_root(name: str) -> None:
    if answer(lambda: safe(name), FormatError) is not None:
        path = os.path.normpath(f"/store/{name}")
        assert path == f"/store/{name}"
        assert path.startswith("/store/")
        assert len(name) <= 4096


@tries(300)
@given(some_names, some_names, some_names)
@example("1-0123456789abcdef", "0123456789ab", "_quire/part-1-0123456789abcdef-0-0123456789ab-0.txt")
@example("1-0123456789abcdef", "0123456789ab", "x/../part-1-0123456789abcdef-0-0123456789ab-0.txt")
def test_a_name_of_a_job_an_attempt_or_a_data_file_is_what_it_says_or_refused(job: str, attempt: str, file: str) -> None:
    if answer(lambda: names.attempt_folder(job, 0, attempt), FormatError) is not None:
        assert re.fullmatch(r"[0-9]+-[0-9a-f]{16}/[0-9a-f]{12}", f"{job}/{attempt}", re.ASCII)
    answer(lambda: names.plan_parquet(job, attempt), FormatError)
    job, attempt = "1-0123456789abcdef", "0123456789ab"
    if answer(lambda: names.check_data_file(file, job, 0, attempt) or file, FormatError) is not None:
        assert file.rpartition("/")[2].startswith(f"part-{job}-0-{attempt}-")
        assert not {"..", ".", ""} & set(file.split("/"))
        assert file.split("/", maxsplit=1)[0] != "_quire"


PLACES = [
    "file:", "file://", "FILE:///", "memory://", "memory:/", "", "~", "../", "/", "http://a:b@c/", "s3://", "s3a://", "s3://bucket/",
    "abfs://", "az://box/", "wasb://box@acc.x/", "webhdfs://", "webhdfs://h:1/",
]  # fmt: skip
some_urls = st.one_of(
    st.text(max_size=30), st.text(st.characters(), max_size=10), st.tuples(st.sampled_from(PLACES), some_names).map("".join)
)


@tries(200)
@given(some_urls)
@example("\ud800")
@example("file://localhost\udcff/\ud800")
@example("memory://a/../b")
@example("memory://a\ud800/b")
@example("~root/" + "a/" * 3000)
@example("S3A://bucket/a//b/")
@example("wasbs://box@acc.blob.core.windows.net/a%20b/")
@example("WebHDFS://Host:9870/a b/")
def test_a_url_is_normal_once_it_is_normalised(url: str) -> None:
    found = answer(lambda: normalise(url), UsageError)
    if found is not None:
        found.encode()
        assert found.startswith(("file:///", "memory://", "abfs://", "s3://", "webhdfs://"))
        assert ".." not in found.split("/")
        if not re.search("[\uf780-\uf7ff]", found):
            assert normalise(found) == found


ROOTS = ["file:///data/in", "s3://bucket/in", "abfs://data@acc.dfs.core.windows.net/in", "memory://a"]
some_ways = st.lists(st.sampled_from(["..", ".", "", "a", "in", "private", "%2e%2e", "\0", "x" * 300]), max_size=6).map("/".join)


@tries(300)
@given(st.sampled_from(ROOTS), some_ways, st.sampled_from(["/", "", "2/", "//", "/../in/"]))
@example("file:///data/in", "a/../../private/x", "/")
def test_a_stored_path_is_found_below_a_named_root_or_nowhere(root: str, way: str, between: str) -> None:
    found = located([Root(there) for there in ROOTS])(stored := f"{root}{between}{way}")
    if found is not None:
        assert stored == f"{found[0].url}/{found[1]}"
        assert os.path.normpath(found[1]) == found[1], "it leads nowhere else"


@tries(300)
@given(
    st.sampled_from(["", "acc", "acc.dfs.core.windows.net", "ACC.blob.core.windows.net:443", "acc.blob.stack.example", "10.0.0.5:1"])
    | st.lists(st.sampled_from(["acc", "dfs", "blob", "core", "windows", "net", "z1", "evil", ":1"]), max_size=7).map(".".join),
    st.fixed_dictionaries({"sas_token": st.just("sig=x")}, optional={
        "account_name": st.just("acc"), "account_host": st.sampled_from(["10.0.0.5:1", "acc.blob.stack.example", "https://img.example"]),
    }),
)  # fmt: skip
def test_a_signature_goes_to_known_hosts_and_a_place_has_one_url(host: str, options: dict[str, str]) -> None:
    def seen() -> tuple[str, str]:
        url = canonical(f"wasb://data@{host}/in" if host else "az://data/in", options)
        assert canonical(url, options) == url
        return url, account(parts(url)[1], options).host

    found = answer(seen, UsageError)
    if found is not None:
        assert found[1] in {"10.0.0.5:1", "acc.blob.stack.example", "img.example"} or found[1].endswith(".core.windows.net"), found
        if options.get("account_name"):
            assert found[0].startswith("abfs://data@acc."), found


# ---------------------------------------------------------------------------------------------------------- what people write


@tries(300)
@given(st.text(max_size=20) | st.text(string.digits + "._ kMiBgtpe-+", max_size=12) | values | st.floats())
@example("9" * 400)
@example("1." + "9" * 400)
@example(float("inf"))
@example(float("nan"))
def test_a_size_is_a_whole_number_of_bytes_or_refused(text: Any) -> None:
    found = answer(lambda: parse_size(text), UsageError)
    if found is not None:
        assert type(found) is int
        assert 1 <= found < 2**63
        assert parse_size(found) == found
        parse_size(format_size(found))


@tries(300)
@given(st.text(max_size=20) | st.text(string.digits + ". smhdinu", max_size=12) | values | st.floats())
@example("9" * 400)  # it was infinite, and min_age failed with an OverflowError
@example("9" * 30 + " days")
@example(float("inf"))
@example("²")
def test_a_time_span_is_one_that_can_be_waited_or_refused(text: Any) -> None:
    found = answer(lambda: seconds(text, "every"), UsageError)
    if found is not None:
        assert math.isfinite(found)
        assert 0 <= found < 2**33
        time.time_ns() - int(found * 1e9)


glob_parts = st.text("ab*?[]!-.\\^{}", max_size=7) | st.sampled_from(["**", "*", "[!a]", "[a-", "[z-a]", "*-*-*-*-*-*-*"])
globs = st.lists(glob_parts, min_size=1, max_size=3).map("/".join)


@tries(300)
@given(globs, st.lists(st.text("ab-.[]!^", min_size=1, max_size=7), min_size=1, max_size=3).map("/".join))
@example("*-*-*-*-*-*-*-*-*-*.xml", "-" * 255)  # hours, once
@example("*a*a*a*a*a*a*a*a*b", "a" * 255)
@example("[z-a]", "x")
def test_a_glob_is_compiled_and_answers_soon_or_is_refused(glob: str, name: str) -> None:
    if (found := answer(lambda: patterns(glob, "include"), UsageError)) is None:
        return
    began = time.monotonic()
    taken = bool(Selection(include=found).chooser(Root("memory://x")).match(name))
    assert time.monotonic() - began < 5
    if "/" in glob and "[!" not in glob and "[^" not in glob and glob.count("*") < 6:
        assert taken == bool(re.match(str(glob_translate(glob)), name)), "as fsspec understands it"


numbers = st.one_of(
    st.integers(0, 1000), st.floats(0, 1e6), odd_numbers, st.integers(-(10**400), 10**400), st.floats(), st.none(), st.text(max_size=3)
)
keys = st.one_of(
    st.text(max_size=5), st.integers(-(10**30), 10**30), st.tuples(st.text(max_size=2), st.integers(0, 9)), st.none(), odd_texts
)
counted = st.one_of(
    st.lists(numbers, max_size=9), st.lists(st.integers(0, 500), max_size=12), st.dictionaries(keys, numbers, max_size=6), values
)


@tries(200)
@given(
    counted,
    st.none() | st.lists(st.sampled_from(["x", "y"]), max_size=12) | counted,
    st.none() | numbers | counted,
    st.none() | numbers,
    values,
)
@example([10**400], None, None, None, "files")
@example({10**400: 1, 5: 1}, None, None, None, "files")
@example([1e308, 1e308], None, None, None, "bytes")
@example([5, 5], None, 5e-324, None, "bytes")
@example({"\x1b[31m": 900, "b": 1}, None, None, None, "files")
@example([1, 2], ["\ud800", "b"], None, None, "files")
def test_counts_are_judged_or_refused(counts: Any, groups: Any, expected: Any, listed: Any, unit: Any) -> None:
    given_unit = unit if unit in ("files", "bytes") else "files"
    found = answer(lambda: quire.skew.check(counts, groups, expected, listed=listed, unit=given_unit), UsageError)
    answer(lambda: quire.skew.check([1, 2], unit=unit), UsageError)
    if found is not None:
        text = json.dumps(found.as_dict(), allow_nan=False)
        assert "\x1b" not in text + repr(found) + found.explanation
        assert len(found.table()) == found.parts
        assert "<script" not in found._repr_html_()


@tries(100)
@given(
    forged({"counts": {"d/0": 12, "d/1": 13}, "groups": {"d/0": "d", "d/1": "d"}, "expected": [1, 2], "listed": 25, "unit": "files"})
    | forged([1, 2, 3])
)
@example(b"[" * 100_000)
@example(b"[" + b"9" * 400 + b"]")
@example(b"[" + b"9" * 5000 + b"]")
@example(b"[NaN, Infinity, 1e999]")
@example(b'{"counts": [1], "unit": 5}')
@example(b'{"counts": {"a": 1}, "groups": {"a": ["x"]}}')
@example(b'{"counts": 5, "listed": {}}')
@example(b'{"counts": [1, 2], "listed": []}')
@example(b'"\xff"')
def test_what_the_shell_reads_as_counts_is_judged_or_refused(content: bytes) -> None:
    answer(lambda: _counts(content), UsageError)


@tries(200)
@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["sig", "=", "password", "://", "@", "a", "'", '"', " ", "\n", "\\", ":", "{", "Bearer "]), max_size=30).map(
        "".join
    )
)
@example("://" + "@" * 50_000)
@example("password='" + "\\" * 50_000)
@example("sig" * 50_000)
@example("token " + " " * 50_000)
def test_any_text_becomes_one_line_soon(text: str) -> None:
    began = time.monotonic()
    assert scrub(text).isprintable()
    assert len(scrub(text)) <= 300
    assert str(QuireError(text)).isprintable()
    assert printable(text).isprintable()
    assert time.monotonic() - began < 5


# ---------------------------------------------------------------------------------------------------------------- what is gathered

XML = (
    b'<?xml version="1.0" encoding="utf-8"?>\n<!-- c -->\n<a x="1">\n '
    b"<b y='2'>t\n</b> <![CDATA[<\n]]><?p i?>&amp;&#10;<c xml:space=\"preserve\">\n</c></a>"
)
xml_pieces = st.sampled_from([b"<a>", b"</a>", b"<a/>", b"\n", b"\r", b" ", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?x ", b"?>",
b"&#10;", b"&e;",
                              b"'", b'"', b"=", b"<!DOCTYPE a>", b"<!DOCTYPE a [", b"<?xml version='1.0' encoding='", b"'?>", b"\xff\xfe",
                              b"\xef\xbb\xbf", b"utf-16", b"x", b">", b"\0"])  # fmt: skip
documents_of_xml = st.one_of(
    scratched(XML), st.lists(xml_pieces, max_size=25).map(b"".join), st.binary(max_size=50), scratched(XML.decode().encode("utf-16"))
)


@tries(300)
@given(documents_of_xml)
@example(b"<?xml version='1.0' encoding='zlib'?><a/>")
@example(b"<?xml version='1.0' encoding='" + b"x" * 300 + b"'?><a/>")
@example(b"<a>" * 2000)
def test_xml_is_one_line_that_stays_as_it_is_or_set_aside(content: bytes) -> None:
    began = time.monotonic()
    if (e := trouble(lambda: xml(content))) is not None:
        assert e.reason.isprintable()
        assert 0 < len(e.reason) <= 300
    else:
        line = xml(content)
        assert b"\n" not in line
        assert xml(line) == line
    assert time.monotonic() - began < SOON


JSON = b'{"a": [1, -2.5e10, "x\\n\\"\\u00e9", null, true],\n "b": {"c": {}}}\n{"a": 2}\n\n[3]\n'
json_pieces = st.sampled_from([b"{", b"}", b"[", b"]",
b'"', b":", b",", b"\n", b" ", b"\\", b"1", b"-", b".", b"e", b"NaN", b"true", b"\\u", b"\\ud800",
                               b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r", b'"a"', b'{"a":1}'])  # fmt: skip


@tries(300)
@given(
    st.one_of(
        scratched(JSON),
        st.lists(json_pieces, max_size=20).map(b"".join),
        st.binary(max_size=40),
        values.map(lambda v: json.dumps(v, indent=1).encode()),
    )
)
@example(b"[" * 200_000)
@example(b'{"a":' * 5000 + b"1" + b"}" * 5000)
@example(b"9" * 100_000)
@example(b'"\\ud800"')
def test_json_is_lines_that_stay_as_they_are_or_set_aside(content: bytes) -> None:
    began = time.monotonic()
    if (e := trouble(lambda: json_records(content))) is not None:
        assert e.reason.isprintable()
        assert 0 < len(e.reason) <= 300
    else:
        records = json_records(content)
        assert records
        for record in records:
            assert b"\n" not in record
            assert json_records(record) == [record]
    assert time.monotonic() - began < SOON


# ---------------------------------------------------------------------------------------------------------- what users do, in any order
HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
VERBS = [
    "write", "write", "break", "gather", "gather", "purge", "purge", "forget", "forget last", "compact", "reprocess",
    "pin", "unpin", "expire", "checkpoint", "retry",
]  # fmt: skip


class History:
    """A source of some names on disk, its destination, and readers with pins; `lined`: a function quarantines single lines of its files."""

    def __init__(self, place: Path, *, lined: bool = False) -> None:
        self.source, self.dest, self.clock, self.lined = place / "in", place / "out", 1, lined
        self.pins, self.kept = ExitStack(), dict[int, list[bytes]]()
        write(self.source, {"f0": b'{"n":0}'})
        self.do("gather", 0)

    @property
    def ledger(self) -> quire.Ledger:
        return quire.Ledger(self.dest)

    def do(self, verb: str, i: int) -> None:
        path = self.source / f"f{i}"
        if verb in ("write", "break"):
            self.clock += 1
            content = b'{"n":%d}' % self.clock if verb == "write" else b"{" * self.clock
            content = b"{\n" * (verb == "break") + b'{"n":%d}\n{\n' % self.clock + content if self.lined and i else content
            write(self.source, {path.name: content})
            os.utime(path, (self.clock, self.clock))
        elif verb in ("gather", "reprocess"):
            how = {"on_change": "reprocess" if verb == "reprocess" else "ignore"}
            if self.lined:
                words = {"split": "lines", "format": "lines", "function_version": "1", "max_quarantined": MANY}
                quire.process(self.source, self.dest, whole_lines, **words, **how, **HERE)
            else:
                gather(self.source, self.dest, transform="json", **how)
        else:
            self.change(verb, path, self.ledger)

    def change(self, verb: str, path: Path, ledger: quire.Ledger) -> None:
        if verb == "purge":
            ledger.purge_sources(self.source, min_age=0, dry_run=False, derived=self.lined, spark=HERE["spark"])
        elif verb.startswith("forget"):
            done = answer(lambda: ledger.forget(path, last_copy=verb == "forget last", **HERE))
            if done is not None:
                sums.check_report(self.ledger, done)
        elif verb == "compact":
            ledger.compact(**HERE)
        elif verb == "retry":
            ledger.retry(self.source, max_quarantined=MANY, function=whole_lines if self.lined else None, **HERE)
        elif verb == "pin":
            version = self.pins.enter_context(ledger.pin())
            self.kept[version] = lines(ledger.as_of(version))
        elif verb == "unpin":
            self.pins.close()
            self.kept.clear()
        elif verb == "expire":
            ledger.expire(grace=0)
        elif verb == "checkpoint":
            ledger.checkpoint(spark=HERE["spark"])

    def purged(self) -> set[tuple[str, str, bytes]]:
        """What the destination alone has: path, version, content."""
        ledger = self.ledger
        rows = ledger.rows(state="purged").table
        return {(path, version, ledger.read(path, version=version)) for path, version in zip(rows["path"], rows["version"], strict=True)}

    def check(self, verb: str) -> None:
        ledger = self.ledger
        sums.check(ledger._store)
        sums.check_history(ledger)
        for version, there in self.kept.items():
            assert lines(ledger.as_of(version)) == there, f"version {version} was pinned"
        for path in self.source.iterdir() if verb == "reprocess" and not self.lined else ():
            if path.read_bytes().endswith(b"}"):
                assert ledger.read(path).strip() == path.read_bytes(), f"{path.name} is gathered as it is"


def whole_lines(split: quire.Split, content: bytes) -> bytes:
    """The lines of a split that end as they should; the others are quarantined."""
    at, good = 0, list[bytes]()
    for line in content.splitlines(keepends=True):
        if line.rstrip().endswith(b"}"):
            good.append(line.rstrip() + b"\n")
        else:
            split.quarantine(line, ValueError("no end"), offset=at)
        at += len(line)
    return b"".join(good)


def lines(ledger: quire.Ledger) -> list[bytes]:
    """All records of a version, in any order."""
    return sorted(line for name in ledger.inspect.files()["data_file"] for line in connect(ledger._url).get(name).splitlines())


@tries(1)
@given(st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 2)), min_size=4, max_size=8), st.booleans())
@example(steps=[("break", 1), ("gather", 0), ("retry", 0), ("write", 1), ("reprocess", 0), ("forget", 1)], lined=True)
@example(
    steps=[
        ("write", 1),
        ("gather", 0),
        ("purge", 0),
        ("pin", 0),
        ("write", 1),
        ("reprocess", 0),
        ("compact", 0),
        ("forget last", 1),
        ("expire", 0),
    ],
    lined=False,
)
def test_in_any_history_totals_equal_the_rows_and_what_was_purged_or_pinned_stays(steps: list[tuple[str, int]], lined: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        history = History(Path(place), lined=lined)
        with history.pins:
            for verb, i in steps:
                before = history.purged()
                history.do(verb, i)
                history.check(verb)
                if verb != "forget last":
                    assert history.purged() >= before, f"{verb}: the last copy of what was purged is gone"
            assert history.ledger.verify(spark=HERE["spark"]).ok


# ------------------------------------------------------------------------------------------------------------------- at length


def test_the_forged_things_are_near_enough_to_be_taken_now_and_then() -> None:
    """A fuzzer whose every input is refused at the door proves nothing about the rooms."""
    put_back()
    use_all()
    taken = {"entry": 0, "rows": 0}

    @tries(300)
    @given(forged(json.loads(written()[object_like(COMMIT)])), tables(written()[object_like(SEGMENT)]))
    def count(entry: bytes, rows: bytes) -> None:
        taken["entry"] += answer(lambda: decode(entry, Entry, "where")) is not None
        connect(OUT).put("x", rows)
        taken["rows"] += answer(lambda: segments.read(connect(OUT), "x", ["path"])) is not None

    count()
    assert min(taken.values()) >= 5, taken
    assert Log(connect(OUT)).refresh().tip >= 2


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_all_of_this_a_hundred_times_as_often() -> None:
    environment = {**os.environ, "QUIRE_FUZZ": "100"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(Path(__file__))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stdout[-5000:]


# -------------------------------------------------------------------------------------------------------- what a producer says
@tries(60)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-(10**15), 10**15)), min_size=1))
@example([(1, 1_795_000_000_000 * 10**6), (1, (1 << 63) - 1), (1, 0), (0, -1), (2, 253_402_300_799_999), (1, 253_402_300_800_000)])
def test_a_time_of_a_record_is_the_producers_or_none(given_: list[tuple[int, int]]) -> None:
    kinds, moments = (np.array(column, np.int64) for column in zip(*given_, strict=True))
    n = len(kinds)
    values = pa.array([b"%d" % i for i in range(n)], pa.binary())
    held = offsets._Chain(Key("t", 0), parts=[(values, values, None, np.arange(n), kinds, moments)])
    batch, _ = offsets._batch(held)
    parts, rejected = Loading("parquet", by="date").made(batch)
    for record in rejected:
        assert f" {given_[record.offset][1]} milliseconds" in record.reason
    found = dict[int, tuple[int | None, str]]()
    for part in parts:
        assert isinstance(part.made, pa.RecordBatch)
        times = part.made.column("timestamp").cast(pa.int64()).to_pylist()
        found |= {at: (moment, part.folder) for at, moment in zip(part.made.column("offset").to_pylist(), times, strict=True)}
    assert sorted([*found, *(record.offset for record in rejected)]) == [*range(n)]
    for at, (stamp, folder) in found.items():
        kind, moment = given_[at]
        if kind == 0:
            assert (stamp, folder) == (None, "date=__HIVE_DEFAULT_PARTITION__")
        else:
            day = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=moment)  # noqa: DTZ001 - UTC, of which years have no end
            assert (stamp, folder) == (moment * 1000, f"date={day.date().isoformat()}")
