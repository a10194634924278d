"""Deleting on condition of a version, on a disk and in HDFS: whoever writes in the middle of it loses nothing, and neither does a crash."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from quire.errors import NotFoundError, StorageError
from quire.sources.files import Selection
from quire.storage import Store, aside, bare, local, remove_version
from quire.storage.hdfs import store as hdfs
from services.scripted import Asked, scripted

STEPS = ("version", "take", "version", "drop")  # of a file that goes


class Namenode:
    """The files of one directory, as a namenode tells of them and renames them: never over another one."""

    def __init__(self) -> None:
        self.files, self.ids = dict[str, tuple[int, bytes]](), itertools.count(1)

    def put(self, name: str, data: bytes) -> None:
        self.files[f"/home/{name}"] = next(self.ids), data

    def answer(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        url = urlsplit(asked.target)
        path, query = unquote(url.path).removeprefix("/webhdfs/v1"), {k.lower(): v[0] for k, v in parse_qs(url.query).items()}
        op = query["op"]
        if op == "LISTSTATUS_BATCH":
            found = [self._status(p) for p in sorted(self.files)]
            return self._said({"DirectoryListing": {"partialListing": {"FileStatuses": {"FileStatus": found}}, "remainingEntries": 0}})
        if op == "DELETE":
            return self._said({"boolean": self.files.pop(path, None) is not None})
        if path not in self.files:
            return self._refused(404, "FileNotFoundException")
        if op == "GETFILESTATUS":
            return self._said({"FileStatus": {**self._status(path), "pathSuffix": ""}})
        assert (op, query["renameoptions"]) == ("RENAME", "NONE")
        if query["destination"] in self.files:
            return self._refused(403, "FileAlreadyExistsException")
        self.files[query["destination"]] = self.files.pop(path)
        return 200, {}, b""

    def _status(self, path: str) -> dict[str, Any]:
        number, data = self.files[path]
        name = path.rpartition("/")[2]
        return {"type": "FILE", "length": len(data), "modificationTime": 1, "fileId": number, "pathSuffix": name}

    @staticmethod
    def _said(what: object) -> tuple[int, dict[str, str], bytes]:
        return 200, {"Content-Type": "application/json"}, json.dumps(what).encode()

    @staticmethod
    def _refused(code: int, kind: str) -> tuple[int, dict[str, str], bytes]:
        said = {"RemoteException": {"exception": kind, "javaClassName": f"java.io.{kind}", "message": "no"}}
        return code, {"Content-Type": "application/json"}, json.dumps(said).encode()


class Site:
    """A store, the class by which it acts, and another one who writes there: a new file under a name, whatever had it before."""

    def __init__(self, store: Store, here: Any, put: Callable[[str, bytes], None], files: Callable[[], dict[str, bytes]]) -> None:
        self.store, self.here, self.put, self.files = store, here, put, files

    def version(self, name: str) -> str:
        found = self.store.stat(name)
        assert found is not None
        return found.version


@pytest.fixture(params=["disk", "disk without hard links", "hdfs"])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    if request.param == "hdfs":
        node = Namenode()
        with scripted(node.answer) as (address, _):
            there = bare(f"webhdfs://{address.rpartition('/')[2]}/home", {"user": "me"})
            yield Site(
                there, hdfs._HdfsDirectory, node.put, lambda: {p.removeprefix("/home/"): data for p, (_, data) in node.files.items()}
            )
        return
    if request.param != "disk":
        monkeypatch.setattr(os, "link", _without)
    root = tmp_path / "in"
    root.mkdir()

    def put(name: str, data: bytes) -> None:
        (tmp_path / "new").write_bytes(data)
        os.replace(tmp_path / "new", root / name)

    yield Site(bare(f"file://{root}", None), local._OpenDirectory, put, lambda: {p.name: p.read_bytes() for p in root.iterdir()})


def _without(*_: object, **__: object) -> None:
    raise PermissionError(1, "Operation not permitted")


class Killed(BaseException):
    """The process dies."""


def before(site: Site, monkeypatch: pytest.MonkeyPatch, acts: dict[int, Callable[[], object]]) -> list[str]:
    """Do something before the steps of these numbers; the steps that were made."""
    made = list[str]()

    def watched(name: str) -> Callable[..., Any]:
        real = getattr(site.here, name)

        def step(self: Any, *given: str) -> Any:
            made.append(name)
            acts.get(len(made) - 1, lambda: None)()
            return real(self, *given)

        return step

    for name in ("version", "take", "give", "drop"):
        monkeypatch.setattr(site.here, name, watched(name))
    return made


@pytest.mark.parametrize("name", ["a", "ö +%#?", "x" * 255])
def test_the_version_that_is_meant_goes_and_no_other(site: Site, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site.put(name, b"old")
    version = site.version(name)
    site.put("beside", b"stays")
    made = before(site, monkeypatch, {})
    assert not remove_version(site.store, name, "another")
    assert made == ["version"], "a file of another version is not touched"
    made.clear()
    assert remove_version(site.store, name, version)
    assert tuple(made) == STEPS
    assert remove_version(site.store, name, version), "what is gone is gone"
    assert site.files() == {"beside": b"stays"}


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_what_is_written_under_the_name_meanwhile_stays(site: Site, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    site.put("a", b"old")
    before(site, monkeypatch, {step: lambda: site.put("a", b"new")})
    gone = remove_version(site.store, "a", site.version("a"))
    assert gone is (step >= 2), "renamed first, it was the old one that went"
    assert site.files() == {"a": b"new"}


def test_of_two_that_are_written_meanwhile_both_stay_and_the_error_says_where(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.put("a", b"old")
    before(site, monkeypatch, {1: lambda: site.put("a", b"new"), 2: lambda: site.put("a", b"newer")})
    with pytest.raises(StorageError, match="rewritten twice") as caught:
        remove_version(site.store, "a", site.version("a"))
    (private,) = set(site.files()) - {"a"}
    assert site.files() == {"a": b"newer", private: b"new"}
    assert private in str(caught.value)
    assert aside.is_private(private)
    for selection in (Selection(), Selection(hidden=True)):
        assert not selection.shows(private), "it is never gathered"


@pytest.mark.parametrize(("step", "late"), [*((step, False) for step in range(len(STEPS))), (2, True)])
def test_what_a_call_leaves_that_dies_gets_its_name_back(site: Site, step: int, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is lost, though another file has taken its name, or came between the look and the renaming."""
    site.put("a", b"old")

    version = site.version("a")
    with monkeypatch.context() as patch:

        def die() -> None:
            patch.setattr(site.here, "give", lambda *_: True)  # nobody puts it back any more
            raise Killed

        before(site, patch, {step: die} | ({1: lambda: site.put("a", b"new")} if late else {}))
        with pytest.raises(Killed):
            remove_version(site.store, "a", version)
    there = set(site.files().values())
    assert there == {b"new" if late else b"old"}
    left = aside.left_in(site.store, "")
    assert sorted(left) == ([aside.mark("a")] if step >= 2 else [])
    for private in left.get(aside.mark("a"), ()):
        assert site.store.give_back(private, "a")  # type: ignore[attr-defined]
        assert site.store.give_back(private, "a"), "once more does no harm"  # type: ignore[attr-defined]
    assert set(site.files()) == {"a"}


def test_another_call_may_put_it_back_and_delete_it_at_any_step(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(len(STEPS)):
        site.put("a", b"old")
        version = site.version("a")

        def other(version: str = version) -> None:
            for private in aside.left_in(site.store, "").get(aside.mark("a"), ()):
                site.store.give_back(private, "a")  # type: ignore[attr-defined]

        with monkeypatch.context() as patch:
            before(site, patch, {step: other})
            assert remove_version(site.store, "a", version)
        assert set(site.files()) <= ({"a"} if step == 3 else set()), step
        assert all(data == b"old" for data in site.files().values())


def test_what_cannot_be_deleted_has_its_name_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.put("a", b"old")

    def refused() -> None:
        raise StorageError("no")

    with monkeypatch.context() as patch:
        before(site, patch, {3: refused})
        with pytest.raises(StorageError, match="no"):
            remove_version(site.store, "a", site.version("a"))
    assert site.files() == {"a": b"old"}


def test_a_file_that_is_gone_or_never_was_is_no_error(site: Site) -> None:
    assert remove_version(site.store, "none", "1-1")
    assert site.store.give_back(".quire-purge-0-0", "none")  # type: ignore[attr-defined]
    if isinstance(site.store, local.LocalStore):
        assert remove_version(site.store, "no/such/directory", "1-1")
        with pytest.raises(NotFoundError):
            site.store.give_back("no/such/x", "no/such/y")
