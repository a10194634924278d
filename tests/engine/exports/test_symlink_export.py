"""A destination by manifests of Hive's SymlinkTextInputFormat: they name the ledger's files after each call, also of lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from exported import play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_retire import STEPS, History

import quire
from gathering import gather, refused, write
from quire import Ledger, LocalRunner
from quire.engine.exports import step, symlinks
from quire.engine.exports.pointer import point
from quire.errors import RefusedError, StorageError, UsageError
from quire.storage import Store, connect
from quire.storage.local import LocalStore

LOCAL = LocalRunner()
LINES: dict[str, Any] = {"transform": "lines", "exports": "symlinks"}


def named(dest: Path) -> dict[str, list[Path]]:
    """Folder → the files that its manifest names; each is there."""
    found = {
        str(path.parent.relative_to(dest / "_symlinks")): [Path(line.removeprefix("file://")) for line in path.read_text().splitlines()]
        for path in (dest / "_symlinks").rglob("manifest")
    }
    assert all(path.is_file() for paths in found.values() for path in paths)
    return found


def lines(dest: Path) -> list[str]:
    return sorted(line for paths in named(dest).values() for path in paths for line in path.read_text().splitlines())


def contents(dest: Path) -> list[str]:
    paths = [path for paths in named(dest).values() for path in paths]
    return sorted(value.decode() for path in paths for value in pq.ParquetFile(path).read()["content"].to_pylist())


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 4))
def test_after_any_history_the_manifests_name_the_ledgers_files(
    steps: list[str], seed: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(History(tmp_path_factory.mktemp("history"), monkeypatch), "symlinks", contents, steps, seed)


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 4))
def test_after_very_many_histories_the_manifests_name_the_ledgers_files(
    steps: list[str], seed: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(History(tmp_path_factory.mktemp("history"), monkeypatch), "symlinks", contents, steps, seed)


def test_lines_have_one_too(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"one\ntwo\n", "b": b"three\n"}), tmp_path / "out"
    gather(source, dest, **LINES)
    assert lines(dest) == ["one", "three", "two"]
    report = gather(write(source, {"a": b"four\n"}), dest, on_change="reprocess", **LINES)
    assert report.exports == (f"symlinks: version {Ledger(dest).exports()['symlinks']}",)
    assert lines(dest) == ["four", "three"]
    Ledger(dest).drop_export("symlinks")
    assert not (dest / "_symlinks").exists()


def test_each_partition_has_its_manifest_and_others_are_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest, how = tmp_path / "in", tmp_path / "out", LINES | {"layout": "directories"}
    gather(write(source, {f"k={i}/dt=1/f": b"%d\n" % i for i in range(4)}), dest, **how)
    assert {folder: len(paths) for folder, paths in named(dest).items()} == {f"k={i}/dt=1": 1 for i in range(4)}
    put, written = LocalStore.put, list[str]()
    monkeypatch.setattr(LocalStore, "put", lambda store, name, data: (written.append(name), put(store, name, data))[1])
    gather(write(source, {"k=2/dt=1/f": b"new\n"}), dest, on_change="reprocess", **how)
    assert [name for name in written if name.startswith("_symlinks")] == ["_symlinks/k=2/dt=1/manifest"]
    assert lines(dest) == ["0", "1", "3", "new"]
    (only,) = named(dest)["k=0/dt=1"]
    Ledger(dest).forget(file=str(only.relative_to(dest)), spark=LOCAL)
    assert named(dest)["k=0/dt=1"] == []
    assert lines(dest) == ["1", "3", "new"]
    with refused(RefusedError, 2, "files in directories of different columns", "drop_export('symlinks')"):
        gather(write(source, {"k=5/f": b"5\n"}), dest, **how)
        Ledger(dest).export("symlinks")


ROWS: list[dict[str, Any]] = [
    {"id": 1, "k": "a", "j": ""}, {"id": 2, "k": "", "j": ""}, {"id": 3, "k": None, "j": "b"}, {"id": 4, "k": "", "j": "b"},
]  # fmt: skip


@pytest.mark.parametrize(("rows", "counts"), [(ROWS, [1, 1, 2]), (ROWS[1:2], [0, 1, 0]), (ROWS[3:], [0, 0, 1])], ids=str)
def test_empty_text_is_named_beside_missing_values(tmp_path: Path, rows: list[dict[str, Any]], counts: list[int]) -> None:
    """As Hive has it, which knows no empty text there; also where nothing else is there."""
    dest, none = tmp_path / "out", "__HIVE_DEFAULT_PARTITION__"
    how: dict[str, Any] = {"partition_by": ["k", "j"], "schema": "id long, k string, j string", "function_version": "1", "spark": LOCAL}
    quire.process(write(tmp_path / "in", {"a": b"a"}), dest, lambda split, content: rows, exports="symlinks", progress=False, **how)
    assert any("/empty/" in str(path) for path in dest.rglob("*.parquet"))
    found = {folder: len(paths) for folder, paths in named(dest).items()}
    assert found == {f: n for f, n in zip((f"k=a/j={none}", f"k={none}/j={none}", f"k={none}/j=b"), counts, strict=True) if n}


def test_empty_text_that_comes_later_does_not_stop_it(tmp_path: Path) -> None:
    source, dest, none = tmp_path / "in", tmp_path / "out", "k=__HIVE_DEFAULT_PARTITION__"
    how = LINES | {"layout": "directories"}
    gather(write(source, {"k=1/f": b"1\n", f"{none}/f": b"missing\n"}), dest, **how)
    report = gather(write(source, {f"{none}/empty/f": b"empty\n"}), dest, **how)
    assert "behind" not in report.exports[0]
    assert {folder: len(paths) for folder, paths in named(dest).items()} == {"k=1": 1, none: 2}
    (only,) = [path for path in named(dest)[none] if path.parent.name == "empty"]
    Ledger(dest).forget(file=str(only.relative_to(dest)), spark=LOCAL)
    assert lines(dest) == ["1", "missing"]


def test_what_somebody_has_changed_or_deleted_is_written_again(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a\n"}), dest, **LINES)
    for wrong in (None, "file:///nowhere\n"):
        manifest = dest / "_symlinks/manifest"
        manifest.unlink() if wrong is None else manifest.write_text(wrong)
        Ledger(dest).export("symlinks")
        assert lines(dest) == ["a"]


def test_something_else_in_its_place_is_left_alone(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a\n"}), dest)
    write(dest / "_symlinks", {"notes.txt": b"mine"})
    with refused(RefusedError, 2, "_symlinks/notes.txt is another program's"):
        Ledger(dest).export("symlinks")
    assert Ledger(dest).exports() == {}


def test_an_export_that_cannot_be_written_lags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dest, put = tmp_path / "out", LocalStore.put
    gather(write(tmp_path / "in", {"a": b"a\n", "b": b"b\n"}), dest, **LINES)

    def away(store: LocalStore, name: str, data: bytes) -> None:
        if name.startswith("_symlinks"):
            raise StorageError("the disk is full")
        put(store, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put", away)
        report = gather(write(tmp_path / "in", {"a": b"new\n"}), dest, on_change="reprocess", **LINES)
        assert "behind the newest one" in report.exports[0]
        assert lines(dest) == ["a", "b"], "what it names is there"
    assert "behind" not in gather(tmp_path / "in", dest, **LINES).exports[0]
    assert lines(dest) == ["b", "new"]


def test_files_that_came_and_went_while_it_lagged_stand_in_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its driver has died between the manifests and the log's entry."""
    source, dest, how = tmp_path / "in", tmp_path / "out", LINES | {"layout": "directories"}
    gather(write(source, {"k=1/f": b"1\n"}), dest, **how)
    with monkeypatch.context() as patch:
        patch.setattr(step, "Export", dies)
        with pytest.raises(KeyboardInterrupt):
            gather(write(source, {"k=2/f": b"2\n"}), dest, **how)
        assert lines(dest) == ["1", "2"]
        patch.setattr(step, "export", lambda *_: None)
        Ledger(dest).forget([source / "k=1/f", source / "k=2/f"], spark=LOCAL, progress=False)
    for gone in ("k=1/f", "k=2/f"):
        (source / gone).unlink()
    gather(write(source, {"k=3/f": b"3\n"}), dest, **how)
    assert lines(dest) == ["3"]


def dies(**_: Any) -> None:
    raise KeyboardInterrupt


def test_options_of_others_are_refused(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a\n"}), dest)
    with refused(UsageError, 2, "the export symlinks takes no catalog: its readers find it by location"):
        Ledger(dest).export("symlinks", catalog="prod", table="db.t")
    Ledger(dest).export("symlinks", location="hdfs://name:8020/out")
    assert (dest / "_symlinks/manifest").read_text().startswith("hdfs://name:8020/out/part")


@pytest.mark.parametrize("url", ["file://{}", "memory://pointers/{}"])
def test_a_slow_driver_does_not_leave_an_older_pointer(tmp_path: Path, url: str) -> None:
    """The other driver comes between any two steps of the slow one; both say what is newest as of their look."""
    for between in range(1, 4):
        store = connect(url.format(tmp_path if "file" in url else "x") + f"/{between}")
        newest, steps = [b"1"], [0]

        def step(store: Store = store, newest: list[bytes] = newest, steps: list[int] = steps, between: int = between) -> None:
            steps[0] += 1
            if steps[0] == between:
                newest[0] = b"2"
                point(store, "pointer", lambda: b"2")

        class Slow:
            """The store, with another driver between the calls."""

            def __init__(self, store: Store) -> None:
                self.store = store

            def __getattr__(self, name: str) -> Any:
                def call(*args: Any) -> Any:
                    done = getattr(self.store, name)(*args)
                    step()
                    return done

                return call if callable(getattr(self.store, name)) else getattr(self.store, name)

        def looked(newest: list[bytes] = newest) -> bytes:
            said = newest[0]
            step()
            return said

        store.put("pointer", b"0")
        point(Slow(store), "pointer", looked)  # type: ignore[arg-type]
        assert store.get("pointer") == b"2", between
        assert steps[0] >= between


def test_a_manifest_is_a_file_of_that_name() -> None:
    assert symlinks._name("") == "_symlinks/manifest"
    assert symlinks._name("k=1") == "_symlinks/k=1/manifest"
