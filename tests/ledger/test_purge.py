"""Purging deletes what was verified just now, and nothing else: whatever does not agree stays, and is told with the reason."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import quire
from checker import look, tree
from gathering import documents, gather, refused, snapshot, write
from quire import Ledger, LocalRunner
from quire.commit import protocol
from quire.errors import QuireError, RefusedError
from quire.ledger import comparing, purge, purging
from quire.ledger.identifiers import identifier
from quire.storage import Unreadable, aside, connect, local
from quire.storage.local import LocalStore
from quire.storage.memory import MemoryStore

SHAPES: list[dict[str, Any]] = [
    {"transform": "lines"}, {"transform": "lines", "compression": "gzip", "target_size": "40 B"},
    {"transform": "raw", "compression": "zstd"},
    {"transform": "raw", "target_size": "25 B"}, {"transform": "raw", "format": "parquet"}, {"transform": "xml"},
    {"transform": "xml", "format": "parquet"},
]  # fmt: skip


def gathered(tmp_path: Path, files: dict[str, bytes], **settings: Any) -> tuple[Path, Ledger]:
    source = write(tmp_path / "in", files)
    gather(source, tmp_path / "out", **settings)
    return source, Ledger(tmp_path / "out")


def go(ledger: Ledger, **more: Any) -> purge.Purged:
    return ledger.purge_sources(**{"source": beside(ledger), "spark": LocalRunner(), "dry_run": False, "min_age": 0, **more})


def beside(ledger: Ledger) -> str:
    """The source of all that is gathered here."""
    return ledger._url.rpartition("/")[0] + "/in"


def names(source: Path) -> set[str]:
    return {os.path.relpath(p, source) for p in tree(source)}


def states(ledger: Ledger) -> set[str]:
    return {row["state"] for row in look(ledger._url.removeprefix("file://")).rows}


def why(found: purge.Purged) -> dict[str, str]:
    return {path.rpartition("/")[2]: reason.split(":")[0] for path, reason in found.examples}


@pytest.mark.nth(8)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_verified_goes_and_can_be_read_from_the_data_files(tmp_path: Path, shape: dict[str, Any]) -> None:
    files = documents(9, "xml") if shape["transform"] == "xml" else {**documents(9), "empty": b"", "no end": b"x"}
    source, ledger = gathered(tmp_path, files, **shape)
    before, content = snapshot(source), {path: ledger.read(path) for path in tree(source)}
    seen = ledger.purge_sources(source, spark=LocalRunner(), min_age=0)
    assert (seen.dry_run, seen.files, seen.bytes, seen.stays) == (True, len(files), sum(map(len, files.values())), {})
    assert "would be deleted" in str(seen)
    assert snapshot(source) == before, "a dry run touches nothing"
    assert list(ledger.inspect.history()["kind"]) == ["commit", "published"]
    found = go(ledger)
    assert (found.files, found.bytes, found.stays) == (seen.files, seen.bytes, {})
    assert names(source) == set()
    assert {path: ledger.read(path) for path in content} == content
    assert ledger.verify(spark=LocalRunner()).ok
    again = go(ledger)
    assert (again.files, again.gone) == (0, 0), "they are finished"
    assert list(ledger.inspect.history()["verb"]) == ["run", "", "purge", "", "purge", ""]
    assert gather(source, tmp_path / "out", **shape).jobs == (), "what is gone at its source stays"


def test_whatever_does_not_agree_stays_with_the_reason(tmp_path: Path) -> None:
    files = {**documents(3, "xml"), "bad.xml": b"<a>", "changed.xml": b"<a/>", "touched.xml": b"<t/>", "vanished.xml": b"<v/>"}
    source, ledger = gathered(tmp_path, files, transform="xml")
    then = os.stat(source / "touched.xml")
    (source / "touched.xml").write_bytes(b"<T/>")  # as rsync -t would: another content, the size and the time of before
    os.utime(source / "touched.xml", ns=(then.st_atime_ns, then.st_mtime_ns))
    write(source, {"new.xml": b"<new/>"})
    (source / "changed.xml").write_bytes(b"<b/>")
    (source / "vanished.xml").unlink()
    found = go(ledger)
    assert (found.files, found.gone) == (3, 1)
    assert why(found) == {"changed.xml": comparing.CHANGED, "touched.xml": comparing.DIFFERS}
    assert names(source) == {"bad.xml", "changed.xml", "touched.xml", "new.xml"}
    assert found.stays == {comparing.CHANGED: 1, comparing.DIFFERS: 1}
    assert "2" in str(found)
    last = ledger.inspect.history().iloc[-2]
    assert (last["kind"], last["verb"], last["files"], last["note"]) == ("commit", "purge", 3, "sources deleted")


@pytest.mark.nth(3)
@pytest.mark.parametrize("shape", SHAPES[:5], ids=str)
def test_a_file_whose_record_does_not_verify_stays_and_the_others_go(tmp_path: Path, shape: dict[str, Any]) -> None:
    shape = {**shape, "planner": "directory", "layout": "directories"}
    source, ledger = gathered(tmp_path, documents(9), **shape)
    hit = ledger.locate(source / "d1/f0001.txt")[0].data_file
    assert hit is not None
    path = tmp_path / "out" / hit
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    found = go(ledger)
    assert names(source)
    assert all(name.startswith("d1/") for name in names(source))
    assert found.files == 9 - len(names(source)) >= 6
    assert set(why(found).values()) == {comparing.DAMAGED}
    assert {row["path"].rpartition("/")[2] for row in look(tmp_path / "out").rows} >= {n.rpartition("/")[2] for n in names(source)}
    path.unlink()
    assert set(why(go(ledger)).values()) == {comparing.DAMAGED}, "neither does one whose data file is gone"
    assert all(name.startswith("d1/") for name in names(source))


def test_of_what_grows_only_what_is_wholly_there_goes(tmp_path: Path) -> None:
    tail: dict[str, Any] = {"on_append": "tail"}
    source, ledger = gathered(tmp_path, {"a.log": b"one\n", "held.log": b"one\ntw", "more.log": b"1\n"}, **tail)
    with (source / "a.log").open("ab") as file:
        file.write(b"two\n")
    gather(source, tmp_path / "out", **tail)
    with (source / "more.log").open("ab") as file:
        file.write(b"2\n")
    found = go(ledger)
    assert names(source) == {"held.log", "more.log"}
    assert why(found) == {"held.log": comparing.PARTLY, "more.log": comparing.CHANGED}
    assert ledger.refresh().read(source / "a.log") == b"one\ntwo\n"


def test_a_long_file_goes_only_if_every_range_of_it_verifies(tmp_path: Path) -> None:
    source, ledger = gathered(tmp_path, {"long": os.urandom(900), "other": os.urandom(900)}, transform="raw", target_size="200 B")
    ranges = ledger.locate(source / "long")
    assert len({x.data_file for x in ranges}) > 2
    assert ranges[2].data_file is not None
    (tmp_path / "out" / ranges[2].data_file).write_bytes(b"")
    assert why(go(ledger)) == {"long": comparing.DAMAGED}
    assert names(source) == {"long"}


def test_what_others_have_marked_done_or_nobody_has_gathered_stays(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"marked": b"m", "gathered": b"g", "unknown": b"u"})
    gather(source, tmp_path / "out", include="gathered")
    write(tmp_path / "m", {identifier(f"{source}/marked", 0, 1): b""})
    for marker in (tmp_path / "m").iterdir():
        os.utime(marker)
    ledger = Ledger(tmp_path / "out")
    assert ledger.import_markers(tmp_path / "m", source, spark=LocalRunner(), progress=False).gathered == 1
    assert go(ledger).files == 1
    assert names(source) == {"marked", "unknown"}


def test_only_below_the_source_that_is_named(tmp_path: Path) -> None:
    source, ledger = gathered(tmp_path, documents(9))
    assert go(ledger, source=source / "d0").files == 3
    assert {name[:2] for name in names(source)} == {"d1", "d2"}
    assert str(source / "d0") in ledger.inspect.history()["note"].iloc[-4]


def test_a_glob_means_the_files_that_match_it(tmp_path: Path) -> None:
    source, ledger = gathered(tmp_path, {"a.csv": b"a", "b.txt": b"b", "d/c.csv": b"c", "d1/e.csv": b"e"})
    assert go(ledger, source=f"{source}/*.txs").files == 0, "a mistyped one means none"
    assert go(ledger, source=[f"{source}/*.csv", f"{source}/d"]).files == 2
    assert names(source) == {"b.txt", "d1/e.csv"}
    assert "in/*.csv" in ledger.inspect.history()["note"].iloc[-4]


@pytest.mark.parametrize("wrong", [{"dry_run": None}, {"dry_run": "no"}, {"derived": "no"}, {"spark": False}, {"source": []}], ids=str)
def test_what_is_no_clear_word_deletes_nothing(tmp_path: Path, wrong: dict[str, Any]) -> None:
    source, ledger = gathered(tmp_path, documents(3))
    with refused(quire.UsageError, 2, "source" if "source" in wrong else next(iter(wrong))):
        ledger.purge_sources(**{"source": source, "spark": LocalRunner(), "dry_run": False, "min_age": 0, **wrong})
    assert len(names(source)) == 3


def test_what_a_forget_takes_out_that_is_not_published_yet_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, ledger = gathered(tmp_path, documents(9), planner="directory", layout="directories")

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(protocol, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger.forget(source / "d0", spark=LocalRunner(), progress=False)
    assert list(ledger.refresh().inspect.history()["kind"]) == ["commit", "published", "commit"]
    assert (go(ledger).files, len(names(source))) == (6, 3)
    quire.recover(tmp_path / "out")
    assert gather(source, tmp_path / "out", planner="directory", layout="directories").files == 3


def test_a_forget_that_comes_in_between_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, ledger = gathered(tmp_path, documents(9))
    real = comparing.Comparison.verified

    def meanwhile(self: Any, items: Any) -> Any:
        found = list(real(self, items))
        monkeypatch.undo()
        Ledger(tmp_path / "out").forget(source / "d0", spark=LocalRunner(), progress=False)
        return found

    monkeypatch.setattr(comparing.Comparison, "verified", meanwhile)
    assert go(ledger).files == 6, "the others are verified again, where they are now"
    assert {name[:2] for name in names(source)} == {"d0"}
    assert gather(source, tmp_path / "out").files == 3


def test_what_was_compacted_meanwhile_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, ledger = gathered(tmp_path, documents(3))
    write(source, {"more": b"m"})
    gather(source, tmp_path / "out")
    real = comparing.Comparison.verified

    def meanwhile(self: Any, items: Any) -> Any:
        monkeypatch.undo()
        other = Ledger(tmp_path / "out")
        other.compact(spark=LocalRunner(), progress=False)
        other.expire()
        return real(self, items)

    monkeypatch.setattr(comparing.Comparison, "verified", meanwhile)
    before = ledger.as_of(ledger.version)
    found = go(ledger)
    assert (found.files, found.stays) == (0, {comparing.MOVED: 4})
    with refused(QuireError, 3, "has expired", "refresh"):
        before.verify(spark=LocalRunner())
    assert ledger.refresh().verify(spark=LocalRunner()).ok
    assert go(ledger).files == 4


def test_a_file_that_changes_after_it_was_verified_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    source = connect("memory://purge-race/in")
    for name in "abc":
        source.put(name, b"1")
    gather("memory://purge-race/in", "memory://purge-race/out")
    real = MemoryStore.remove_if

    def late(self: MemoryStore, name: str, version: str) -> bool:
        if name.endswith("b"):
            source.put("b", b"new")
        return real(self, name, version)

    monkeypatch.setattr(MemoryStore, "remove_if", late)
    found = go(Ledger("memory://purge-race/out"))
    assert (found.files, why(found)) == (2, {"b": comparing.CHANGED})
    assert source.get("b") == b"new"


def test_on_a_disk_that_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, ledger = gathered(tmp_path, {"a": b"a", "b": b"b"})
    real = purging.remove_version

    def late(store: Any, name: str, version: str) -> bool:
        if name == "b":
            (source / "b").write_bytes(b"new")
        return real(store, name, version)

    monkeypatch.setattr(purging, "remove_version", late)
    assert why(go(ledger)) == {"b": comparing.CHANGED}
    assert tree(source) == {str(source / "b"): b"new"}


@pytest.mark.parametrize("step", ["take", "drop"])
def test_what_is_written_in_the_moment_of_the_deletion_is_not_deleted(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is a new file for the next run: both contents stay."""
    source, ledger = gathered(tmp_path, {"a": b"a", "b": b"b"})
    real = getattr(local._OpenDirectory, step)

    def late(self: Any, name: str, *private: str) -> None:
        if not (source / "b").exists() or name == "b":
            (tmp_path / "x").write_bytes(b"new")
            os.replace(tmp_path / "x", source / "b")
        real(self, name, *private)

    with monkeypatch.context() as patch:
        for module in (comparing, purging):
            patch.setattr(module, "ASKING", 1)
        patch.setattr(local._OpenDirectory, step, late)
        purged = go(ledger)
    assert purged.files == (1 if step == "take" else 2)
    assert tree(source) == {str(source / "b"): b"new"}
    assert gather(source, tmp_path / "out").files == 1
    found = ledger.refresh()
    assert [found.read(f"{source}/b", version=x.version) for x in found.locate(f"{source}/b")] == [b"b", b"new"]


@pytest.mark.parametrize("at", ["take", "drop"])
def test_one_that_is_killed_has_deleted_only_what_was_verified_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """At `drop` a file has lost its name already: it has it again before the next call looks at it."""
    source, ledger = gathered(tmp_path, documents(9))
    done, real = list[str](), getattr(local._OpenDirectory, at)

    def killed(self: Any, *given: str) -> None:
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(given[0])
        real(self, *given)

    for module in (comparing, purging):
        monkeypatch.setattr(module, "ASKING", 1)
    with monkeypatch.context() as patch:
        patch.setattr(local._OpenDirectory, at, killed)
        patch.setattr(local._OpenDirectory, "give", lambda *_: True)  # who is killed puts nothing back
        with pytest.raises(KeyboardInterrupt):
            go(ledger)
    left = [name for _, _, files in os.walk(source) for name in files]
    assert len(left) == 5
    assert any(map(aside.is_private, left)) == (at == "drop")
    assert gather(source, tmp_path / "out", hidden=True).files == 0, "what lies under a private name is no source"
    assert states(ledger.refresh()) == {"purging"}
    assert gather(source, tmp_path / "out").files == 0, "neither what is gone nor what is still there is gathered again"
    found = go(ledger)
    assert (found.files, found.gone) == (5, 4)
    assert names(source) == set()
    assert states(ledger) == {"purged"}


def test_one_file_that_cannot_be_read_or_deleted_does_not_keep_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, ledger = gathered(tmp_path, {"a": b"a", "b": b"b", "c": b"c"})
    real, remove = LocalStore.read_many, LocalStore.remove_if

    def forbidden(self: LocalStore, requests: Any) -> Any:
        for request, content in real(self, requests):
            yield request, Unreadable("no permission") if request.name == "a" else content

    def kept(self: LocalStore, name: str, version: str) -> bool:
        if name == "b":
            raise quire.StorageError("cannot remove it: no permission")
        return remove(self, name, version)

    monkeypatch.setattr(LocalStore, "read_many", forbidden)
    monkeypatch.setattr(LocalStore, "remove_if", kept)
    assert why(go(ledger)) == {"a": comparing.REFUSED, "b": comparing.REFUSED}
    assert names(source) == {"a", "b"}


def upper(content: bytes, file: quire.FileInfo) -> bytes:
    return content.upper()


def test_what_a_function_has_made_is_not_the_files_content(tmp_path: Path) -> None:
    source, ledger = gathered(tmp_path, documents(3), transform=upper)
    with refused(RefusedError, 2, "upper", "derived=True", "would lose it"):
        go(ledger)
    assert len(names(source)) == 3
    assert go(ledger, derived=True).files == 3


def test_a_ledger_that_names_files_of_the_destination_deletes_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, ledger = gathered(tmp_path, documents(3))
    before = snapshot(tmp_path / "out")
    monkeypatch.setattr(comparing, "below", lambda path, root: True if root == ledger._url else path == root)
    assert go(ledger).files == 0
    assert snapshot(tmp_path / "out") == before
    assert len(names(source)) == 3


class _Dies(BaseException):
    """The process of one call dies, and nobody puts anything back."""


@pytest.mark.parametrize("when", ["looked", "deleting"])
def test_a_call_that_dies_beside_another_one_leaves_nothing_that_the_next_does_not_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Its file lies under a private name when the other one finds it gone, and after that one has looked what was left."""
    source, ledger = gathered(tmp_path, {"a": b"a", "b": b"b", "c": b"c"})
    for module in (comparing, purging):
        monkeypatch.setattr(module, "ASKING", 1)
    monkeypatch.setattr(purging, "ROWS", 1)
    here: dict[str, Any] = {"source": source, "spark": LocalRunner(), "dry_run": False, "min_age": 0}
    real_drop, real_delete, real_left = local._OpenDirectory.drop, purging._Deleting._delete, comparing.left_in
    began, resume, state = threading.Event(), threading.Event(), {"first": True}

    def dying() -> None:
        with pytest.raises(_Dies):
            quire.Ledger(tmp_path / "out").purge_sources(**here)

    first = threading.Thread(target=dying, daemon=True)

    def delete(self: Any, item: Any) -> Any:
        path = item[0][0]["path"]
        if when == "deleting" and path.endswith("b") and not resume.is_set():
            resume.set()
            first.join(10)
        return real_delete(self, item)

    def left_in(store: Any, folder: str) -> Any:
        found = real_left(store, folder)
        if when == "looked" and began.is_set() and not resume.is_set():
            resume.set()  # it takes b now, after this look
            first.join(10)
        return found

    with monkeypatch.context() as patch:
        paused = purging._Deleting._some

        def some(self: Any, rows: Any) -> None:
            if state["first"] and not rows[0]["path"].endswith("b"):
                return
            if state["first"]:  # the call that will die, and has its rows already
                state["first"] = False
                began.set()
                assert resume.wait(10)
                patch.setattr(local._OpenDirectory, "give", lambda *_: True)
                patch.setattr(local._OpenDirectory, "drop", lambda *_: (_ for _ in ()).throw(_Dies()))
                try:
                    paused(self, rows)
                finally:
                    patch.setattr(local._OpenDirectory, "drop", real_drop)
                    patch.setattr(local._OpenDirectory, "give", real_give)
                return
            paused(self, rows)

        real_give = local._OpenDirectory.give
        patch.setattr(purging._Deleting, "_some", some)
        patch.setattr(purging._Deleting, "_delete", delete)
        patch.setattr(comparing, "left_in", left_in)
        first.start()
        assert began.wait(10)
        if when == "looked":
            (source / "a").unlink()  # so that the other call looks what lies there
        found = go(ledger)
    left = [name for name in os.listdir(source) if aside.is_private(name)]
    if left:
        assert "b" in why(found)
        assert why(found)["b"] == comparing.AWAY.split(":")[0]
    assert go(ledger).stays == {}
    assert os.listdir(source) == []
    assert states(ledger.refresh()) == {"purged"}
    assert sorted(ledger.read(f"{source}/{name}") for name in "abc") == [b"a", b"b", b"c"]
