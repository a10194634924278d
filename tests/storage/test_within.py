"""The store of a table: quire's objects lie below `.hoodie/_quire/`, and everybody above speaks of `_quire/`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire.errors import FormatError, RefusedError, UsageError, scrub
from quire.sources import files
from quire.spark.visibility import Landmarks
from quire.storage import (
    Batching,
    Beside,
    Conditional,
    Copying,
    Entry,
    Folder,
    Limited,
    ReadRequest,
    Seeking,
    Store,
    Syncing,
    Trouble,
    account,
    below,
    canonical,
    connect,
    destination,
    identity,
    normalise,
    overlap,
)  # fmt: skip
from quire.storage.local import LocalStore
from quire.storage.memory import MemoryStore
from quire.storage.within import Within

PROPERTIES = ".hoodie/hoodie.properties"


def on_disk(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table that another writer has made."""
    for name in (PROPERTIES, ".hoodie/20261122103000000.commit", "day=1/a.parquet"):
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_bytes(b"theirs")
    return tmp_path / "t"


def of_table(place: Path) -> Store:
    return connect(f"table+file://{place}")


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Within:
    """The store of a table that holds one file, and beside it what somebody else has put into `_quire/`."""
    plain: Any = LocalStore(str(tmp_path)) if request.param == "local" else MemoryStore(f"memory://{tmp_path.name}/{os.urandom(4).hex()}")
    for name in (PROPERTIES, "_quire/log/theirs", "day=1/a.parquet", "_quirky/b.parquet"):
        plain.put(name, b"theirs")
    return Within(plain)


# ------------------------------------------------------------------------------------------------------------------- names
def test_nothing_is_written_beside_the_timeline(table: Path) -> None:
    store, seen = of_table(table), set[str]()
    link = os.link

    def looking(*args: Any, **kwargs: Any) -> None:
        seen.update(on_disk(table))
        link(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quire.storage.local.os.link", looking)
        assert store.put_if_absent("_quire/log/1.entry", b"1")
    store.put("_quire/jobs/x/plan.rows", b"2")
    sink = store.create("_quire/jobs/x/attempts/0-a/day=1/b.parquet.staged")
    sink.write(b"rows")
    sink.close()
    store.rename("_quire/jobs/x/attempts/0-a/day=1/b.parquet.staged", "day=1/b.parquet")
    assert {name.rpartition("/")[0] for name in seen} == {".hoodie", "day=1", ".hoodie/_quire/tmp"}, "a temporary file, too"
    assert on_disk(table) == [
        ".hoodie/20261122103000000.commit", ".hoodie/_quire/jobs/x/plan.rows", ".hoodie/_quire/log/1.entry", PROPERTIES,
        "day=1/a.parquet", "day=1/b.parquet",
    ]  # fmt: skip
    assert sorted(os.listdir(table)) == [".hoodie", "day=1"]


def test_a_sweep_takes_temporary_files_and_empty_directories_of_jobs(table: Path) -> None:
    store = of_table(table)
    for name in ("tmp/left", "jobs/x/attempts/0-a/empty", "jobs/y/plan.entry"):
        store.put(f"_quire/{name}", b"")
    (table / ".hoodie/_quire/jobs/x/attempts/0-a/empty").unlink()
    store.sweep("_quire")
    assert [p for p in on_disk(table) if "_quire" in p] == [".hoodie/_quire/jobs/y/plan.entry"]
    assert not (table / ".hoodie/_quire/jobs/x").exists()
    store.remove("_quire/jobs/y/plan.entry")
    assert os.listdir(table / ".hoodie/_quire") == [], "the directories that have become empty go, and no other"


def test_what_lies_in_another_directory_of_that_name_is_neither_seen_nor_touched(store: Within) -> None:
    assert store.stat("_quire/log/theirs") is None
    assert not store.is_folder("_quire")
    assert sorted(i.name for i in store.scan()) == [".hoodie", "_quirky", "day=1"]
    assert sorted(store.peek()) == [(".hoodie", True), ("_quirky", True), ("day=1", True)]
    assert sorted(e.name for e in store.walk()) == [PROPERTIES, "_quirky/b.parquet", "day=1/a.parquet"]
    store.put("_quire/log/ours", b"")
    store.remove_tree("_quire")
    store.sweep("_quire")
    assert store.inner.get("_quire/log/theirs") == b"theirs"


def test_each_object_is_listed_once_under_the_name_that_it_is_asked_for_by(store: Within) -> None:
    store.put("_quire/log/1.entry", b"12")
    store.put("_quire/log/2.entry", b"1")
    found = {e.name: e for e in store.walk()}
    assert sorted(found) == [PROPERTIES, "_quire/log/1.entry", "_quire/log/2.entry", "_quirky/b.parquet", "day=1/a.parquet"]
    assert all(store.stat(name) == entry for name, entry in found.items())
    assert Folder("_quire") in list(store.scan())
    assert sorted(i.name for i in store.scan("_quire") if i.name != "_quire/tmp") == ["_quire/log"]
    assert sorted(i.name for i in store.scan("_quire/log", after="2")) == ["_quire/log/2.entry"]
    assert [i.name for i in store.scan(".hoodie")] == [PROPERTIES]
    assert list(store.peek(".hoodie")) == [("hoodie.properties", False)]
    assert [e.name for e in store.walk(".hoodie")] == [PROPERTIES]
    assert sorted(e.name for e in store.walk("_quire")) == ["_quire/log/1.entry", "_quire/log/2.entry"]
    assert store.inner.get(".hoodie/_quire/log/1.entry") == b"12"


def test_what_was_asked_for_stands_beside_its_answer(store: Within) -> None:
    names = ["_quire/log/1.entry", "day=1/a.parquet", "_quire/log/2.entry"]
    store.put(names[0], b"one")
    store.put(names[2], b"two")
    entries = [store.stat(name) for name in names]
    requests = [ReadRequest(e.name, e.version, e.size, 0, e.size) for e in entries if e is not None]
    assert list(store.read_many(requests)) == list(zip(requests, [b"one", b"theirs", b"two"], strict=True))


def test_names_come_in_order_from_any_of_them_on(store: Within) -> None:
    if not isinstance(store, Seeking):
        return
    store.put("_quire/log/1.entry", b"")
    store.put("z", b"")
    every = [(".hoodie", True), ("_quire", True), ("_quirky", True), ("day=1", True), ("z", False)]
    for most in range(1, 7):
        for after in ("", "_quire", "_quirf", "e"):
            assert store.first("", after, most) == [item for item in every if item[0] >= after][:most], (after, most)
    assert [i.name for i in store.scan()] == [name for name, _ in every]
    assert store.first(".hoodie", "", 5) == [("hoodie.properties", False)]
    assert store.first("_quire/log", "", 5) == [("1.entry", False)]


def test_uploads_wait_under_the_names_that_they_were_begun_by() -> None:
    plain = MemoryStore(f"memory://{os.urandom(4).hex()}")
    store = Within(plain)
    for name in ("_quire/jobs/x/a", "day=1/a"):
        store.upload(name).close()
    plain.upload("_quire/jobs/x/theirs").close()
    assert sorted(name for name, _ in store.pending()) == ["_quire/jobs/x/a", "day=1/a"]
    ((name, handle),) = store.pending("_quire")
    store.give_up(name, handle)
    assert [name for name, _ in store.pending()] == ["day=1/a"]


def test_a_store_offers_what_the_one_below_it_does(tmp_path: Path) -> None:
    optional = (Seeking, Limited, Conditional, Batching, Beside, Copying, Syncing)
    for plain in (LocalStore(str(tmp_path)), MemoryStore("memory://x")):
        for offers in optional:
            assert isinstance(Within(plain), offers) == isinstance(plain, offers), (plain, offers)
            assert isinstance(connect(f"table+{plain.url}"), offers) == isinstance(plain, offers), (plain, offers)


# ------------------------------------------------------------------------------------------------------------------- forged
FORGED = [
    ".hoodie/_quire",
    ".hoodie/_quire/log/1.entry",
    ".hoodie/_quire/jobs",
    ".hoodie/_quire/../hoodie.properties",
    "_quire/../x",
    "../x",
]
CHANGES: dict[str, Callable[[Any, str], object]] = {
    "put": lambda store, name: store.put(name, b""),
    "put_if_absent": lambda store, name: store.put_if_absent(name, b""),
    "create": lambda store, name: store.create(name),
    "rename from": lambda store, name: store.rename(name, "day=1/x"),
    "rename to": lambda store, name: store.rename("day=1/a.parquet", name),
    "remove": lambda store, name: store.remove(name),
    "remove_if": lambda store, name: store.remove_if(name, "1"),
    "put_if": lambda store, name: getattr(store, "put_if", store.remove_if)(*(name, b"", "1") if hasattr(store, "put_if") else (name, "1")),
    "remove_tree": lambda store, name: store.remove_tree(name),
    "sweep": lambda store, name: store.sweep(name) if ".." not in name else store.get(name),
}
QUESTIONS: dict[str, Callable[[Any, str], object]] = {
    "get": lambda store, name: store.get(name),
    "get_range": lambda store, name: store.get_range(name, 0, 1),
    "stat": lambda store, name: store.stat(name),
    "scan": lambda store, name: list(store.scan(name)),
    "walk": lambda store, name: list(store.walk(name)),
}


@pytest.mark.parametrize("name", FORGED)
def test_no_other_name_leads_to_what_is_quires(store: Within, name: str) -> None:
    store.put("_quire/log/1.entry", b"1")
    before = [(e.name, store.inner.get(e.name)) for e in store.inner.walk()]
    for what, act in (CHANGES | QUESTIONS).items():
        with pytest.raises(FormatError, match="nothing was touched") as caught:
            act(store, name)
        assert "\n" not in str(caught.value), what
    assert [(e.name, store.inner.get(e.name)) for e in store.inner.walk()] == before


def test_the_timeline_as_a_whole_is_never_moved_or_removed(store: Within) -> None:
    before = [e.name for e in store.inner.walk()]
    for act in CHANGES.values():
        with pytest.raises(FormatError, match="timeline"):
            act(store, ".hoodie")
    assert [e.name for e in store.inner.walk()] == before
    assert store.is_folder(".hoodie")
    assert store.stat(".hoodie") is None


def test_a_link_in_the_place_of_the_state_is_not_followed(table: Path, tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    (table / ".hoodie/_quire").symlink_to(tmp_path / "away")
    store = of_table(table)
    assert Trouble("_quire", "link", "a symbolic link, not followed") in list(store.scan())
    for act in CHANGES.values():
        with pytest.raises(FormatError):
            act(store, "_quire/log/1.entry")
    assert list((tmp_path / "away").iterdir()) == []


# --------------------------------------------------------------------------------------------------------------------- URLs
def test_the_mark_goes_with_the_url_and_people_see_the_url(table: Path) -> None:
    url = f"table+file://{table}"
    for given in (url, f"TABLE+file://{table}/", f"table+table+file://{table}/.", f"table+file:{table}"):
        assert normalise(given) == canonical(given) == normalise(normalise(given)) == url
    assert connect(url).url == f"file://{table}"
    assert canonical("table+s3a://bucket/x/") == "table+s3://bucket/x"
    assert canonical("table+webhdfs://NN1/x", {"namenodes": {"c": ["nn1:9870"]}}) == "table+webhdfs://c:9870/x"
    assert (account("table+s3://bucket/x"), account(url)) == ("bucket", "local disk")
    assert identity("table+s3://bucket/x") == identity("s3://bucket/x")
    assert below("file:///a/b", "table+file:///a")
    assert below("table+file:///a/b", "file:///a")
    assert not below("table+file:///ab", "file:///a")
    with pytest.raises(UsageError, match="Kafka"):
        normalise("table+kafka://broker/topic")
    with pytest.raises(UsageError, match="kind of store"):
        normalise("table+nowhere://x/y")


def test_no_secret_in_a_marked_url_is_shown() -> None:
    assert scrub("table+s3://key:secret@bucket/x") == "table+s3://***@bucket/x"
    assert scrub("table+abfs://container@account/x?sig=abc") == "table+abfs://container@account/x?sig=***"
    with pytest.raises(UsageError) as caught:
        normalise("table+s3://key:verysecret@bucket/x")
    assert "verysecret" not in str(caught.value)


def test_a_table_is_apart_from_what_is_gathered(table: Path, tmp_path: Path) -> None:
    (tmp_path / "t/day=1/in").mkdir()
    for source in (tmp_path, table, table / "day=1/in"):
        with pytest.raises(RefusedError, match="lies in"):
            files.apart(files.roots(str(source)), f"table+file://{table}")
    assert overlap(f"table+file://{table}", None, f"file://{tmp_path}", None)
    with pytest.raises(UsageError, match="without 'table\\+'"):
        files.roots(f"table+file://{table}")


def test_a_directory_with_a_tables_settings_is_a_table(table: Path, tmp_path: Path) -> None:
    url = f"file://{table}"
    assert destination(table) == destination(f"table+{url}") == f"table+{url}"
    assert destination(tmp_path) == f"file://{tmp_path}"
    assert destination("memory://not/there") == "memory://not/there"
    connect(url).put("_quire/log/1.entry", b"")
    assert destination(table) == url, "what quire has gathered lies beside a table of somebody else's"
    of_table(table).put("_quire/log/1.entry", b"")
    assert destination(table) == f"table+{url}", "nobody can hide the state of a table by a directory beside it"


# -------------------------------------------------------------------------------------------------------------------- Spark
def test_what_executors_look_for_lies_with_the_state(table: Path) -> None:
    with Landmarks([], f"file://{table}", ".hoodie/_quire").taken() as sight:
        assert [name for name in on_disk(table) if "tmp" in name] == [sight.places[0][1][0][0]]
        assert sight.places[0][1][0][0].startswith(".hoodie/_quire/tmp/")
    assert sorted(os.listdir(table)) == [".hoodie", "day=1"]
    of_table(table).put("_quire/log/1.entry", b"")
    before = on_disk(table)
    with Landmarks([], f"file://{table}", ".hoodie/_quire").taken() as sight:
        assert [name for name, _ in sight.places[0][1]] == [".hoodie/_quire/log/1.entry"]
        assert on_disk(table) == before


def test_a_file_in_the_place_of_the_state_is_told(store: Within) -> None:
    sink = store.inner.create(".hoodie/_quire")  # which needs no directory for temporary files
    sink.close()
    assert [i for i in store.scan() if isinstance(i, Entry)] == [store.stat("_quire")]
    assert [i.name for i in store.scan(until="_quire") if isinstance(i, Entry)] == []
