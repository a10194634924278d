"""Sources that fsspec reaches: archives, HTTP, FTP and SFTP, by real servers; and file systems that tell little, or fail."""

from __future__ import annotations

import gzip
import io
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, quote_plus

import fsspec
import pytest
from fsspec.implementations.http import HTTPFile, HTTPStreamFile
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.implementations.tar import TarFileSystem

import quire
from gathering import gather, refused, tar, write, zipped
from quire.errors import RefusedError, StorageError, TransientError, UsageError
from quire.storage import Folder, ReadRequest, Trouble, Vanished, bare, canonical, normalise, retry
from quire.storage.fsspec_access import entry
from quire.storage.fsspec_store import FsspecStore
from services import remote
from services.conformance import content

LOCAL = quire.LocalRunner()
SIGNED_IN = {"username": remote.USER, "password": remote.PASSWORD}
MiB = 1 << 20
ODD = ["a#1 ?%.txt", "a%20b.txt", "x::y.txt", "plain.txt", "sub dir/ü.txt", "sub dir/deeper+/&=.txt", "日本.txt"]


class Place:
    """A directory of this machine, and the URL and options by which a store shows it."""

    def __init__(self, kind: str, root: Path, running: ExitStack) -> None:
        self.kind, self.root = kind, root
        root.mkdir()
        self.options = SIGNED_IN if kind in ("ftp", "sftp") else {}
        self._url = "" if kind == "zip" else running.enter_context(getattr(remote, kind)(root))

    @property
    def url(self) -> str:
        if self.kind == "zip":
            with zipfile.ZipFile(f"{self.root}.zip", "w") as file:
                for path in sorted(self.root.rglob("*")):
                    file.write(path, path.relative_to(self.root))
            return normalise(f"zip://::{self.root}.zip")
        return f"{self._url}/"

    @property
    def store(self) -> Any:
        return bare(normalise(self.url), self.options)

    def name(self, name: str) -> str:
        """As the store calls it: by HTTP a name is part of a URL."""
        return quote(name, safe="/!$&'()*+,;=:@-._~") if self.kind == "http" else name

    def write(self, name: str, data: bytes) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_bytes(data)


@pytest.fixture(params=["zip", "http", "ftp", "sftp"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as running:
        yield Place(request.param, tmp_path / "in", running)


def asked(store: Any, *names: str) -> list[ReadRequest]:
    found = [store.stat(name) for name in names]
    return [ReadRequest(e.name, e.version, e.size, 0, e.size) for e in found]


def test_every_file_is_gathered_once_whatever_its_name(place: Place, tmp_path: Path) -> None:
    for number, name in enumerate(ODD):
        place.write(name, b"of %d\n" % number)
    url, dest = place.url, tmp_path / "out"
    done = quire.consolidate(url, dest, source_options=place.options, spark=LOCAL, progress=False)
    assert done.files == len(ODD)
    rows = [line for file in dest.glob("*.txt") for line in file.read_bytes().splitlines()]
    assert sorted(rows) == sorted(b"of %d" % number for number in range(len(ODD)))
    assert quire.consolidate(url, dest, source_options=place.options, spark=LOCAL, progress=False).files == 0
    place.write("new.txt", b"new\n")
    assert quire.consolidate(place.url, dest, source_options=place.options, spark=LOCAL, progress=False).files == 1


def test_a_listing_and_a_look_say_the_same(place: Place) -> None:
    for name in ODD:
        place.write(name, b"12345")
    store, names = place.store if place.kind != "zip" else bare(place.url), sorted(map(place.name, ODD))
    assert sorted(e.name for e in store.walk()) == names
    for found in store.walk():
        assert store.stat(found.name) == found
        assert found.version
        assert found.size == 5
        assert not store.is_folder(found.name)
    assert {i.name for i in store.scan() if isinstance(i, Folder)} == {place.name("sub dir")}
    assert dict(store.peek(place.name("sub dir"))) == {place.name("ü.txt"): False, place.name("deeper+"): True}
    assert [i.name for i in store.scan(after="p", until="q")] in (
        ["plain.txt"],
        [place.name("sub dir"), "plain.txt"],
        ["sub dir", "plain.txt"],
    )
    assert store.stat("no") is None
    assert not store.is_folder("no")
    assert list(store.scan("no")) == list(store.scan("plain.txt")) == []


def test_files_are_read_whole_in_ranges_and_as_streams(place: Place) -> None:
    long = os.urandom(6 * MiB + 7)
    place.write("long", long)
    place.write("short", b"12345")
    place.write("empty", b"")
    store = bare(normalise(place.url), place.options)
    wanted = asked(store, "short", "long", "empty", "short")
    wanted.append(wanted[0]._replace(start=1, length=3))
    wanted.append(wanted[1]._replace(start=3, length=MiB))
    wanted.append(wanted[1]._replace(start=5, length=5 * MiB))
    wanted.append(wanted[1]._replace(length=0))
    found = [(request, content(answer)) for request, answer in store.read_many(wanted)]
    assert [request for request, _ in found] == wanted
    assert [data for _, data in found] == [b"12345", long, b"", b"12345", b"234", long[3 : 3 + MiB], long[5 : 5 + 5 * MiB], b""]
    assert store.get("short") == b"12345"
    assert [store.get_range("short", *span) for span in ((1, 3), (3, 100), (9, 1))] == [b"234", b"45", b""]
    with pytest.raises(quire.NotFoundError, match="is not there"):
        store.get("no")


@pytest.mark.parametrize("place", ["http"], indirect=True)
def test_a_server_without_ranges_gives_long_files_whole(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"".join(b"%063d\n" % n for n in range(11 * MiB // 64))
    place.write("long.txt", lines)
    (request,) = asked(place.store, "long.txt")
    for start, length in ((0, len(lines)), (7, 9 * MiB), (5 * MiB + 1, 6 * MiB - 1)):
        ((_, found),) = ((r, content(answer)) for r, answer in place.store.read_many([request._replace(start=start, length=length)]))
        assert found == lines[start : start + length], (start, length)
    dest = tmp_path / "out"
    assert gather(place.url, dest).files == 1
    assert sorted(b"".join(f.read_bytes() for f in dest.glob("part*")).splitlines()) == lines.splitlines()

    def refuses(self: Any, length: int = -1) -> bytes:
        raise ValueError("The HTTP server doesn't appear to support range requests")

    monkeypatch.setattr(HTTPFile, "read", refuses)
    monkeypatch.setattr(HTTPStreamFile, "read", refuses)
    with pytest.raises(StorageError, match="range requests"):
        list(place.store._pieces("long.txt", 0, len(lines)))


@pytest.mark.parametrize("place", ["http", "ftp", "sftp"], indirect=True)
@pytest.mark.parametrize("size", [5, 5 * MiB])
def test_what_changed_or_vanished_is_deferred(place: Place, size: int) -> None:
    for name in "abc":
        place.write(name, b"x" * size)
        os.utime(place.root / name, (1_700_000_000, 1_700_000_000))
    wanted = asked(place.store, *"abc")
    place.write("a", b"y" * size)
    (place.root / "b").unlink()
    found = list[object]()
    for _, answer in place.store.read_many(wanted):
        try:
            found.append(len(content(answer)))
        except Vanished as e:
            found.append(str(e))
    assert found == ["changed", "vanished", size]


@pytest.mark.parametrize("place", ["ftp", "sftp"], indirect=True)
def test_a_wrong_password_is_said_in_one_line_that_does_not_hold_it(place: Place, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no permission") as caught:
        quire.consolidate(place.url, tmp_path / "out", source_options={**SIGNED_IN, "password": "hunter-two"}, spark=LOCAL, progress=False)
    assert "hunter" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_archive_with_a_damaged_member_loses_that_member_alone(tmp_path: Path) -> None:
    at = tmp_path / "a.zip"
    with zipfile.ZipFile(at, "w") as file:
        file.writestr("good", b"good\n")
        file.writestr("bad", b"bad and longer\n")
    at.write_bytes(at.read_bytes().replace(b"bad and longer", b"bad but longer"))
    done = quire.consolidate(f"zip://::{at}", tmp_path / "out", spark=LOCAL, progress=False)
    assert (done.files, len(done.quarantined)) == (1, 1)


def archive(at: Path, line: bytes, *before: str, mtime: int = 1000, lines: int = 200_000) -> None:
    """Write a tar archive in place, as `tar -cf` and downloads do; `before`: members that stand before the one of these lines."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as file:
        for name, data in (*((name, b"other!!\n" * 512) for name in before), ("in/a.txt", line * lines)):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), mtime
            file.addfile(info, io.BytesIO(data))
    with at.open("r+b" if at.exists() else "wb") as there:
        there.write(made.getvalue())
        there.truncate()


@pytest.mark.parametrize("lines", [10, 600_000])  # in one piece, and in several
@pytest.mark.parametrize("after", ["a look", "an opening"])
def test_an_archive_that_is_written_meanwhile_gives_no_foreign_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int, after: str
) -> None:
    at, dest, looked, done = tmp_path / "a.tar", tmp_path / "out", list[str](), list[Any]()
    archive(at, b"old-old\n", lines=lines)
    look, opens = FsspecStore._check, TarFileSystem._open

    def rewritten() -> None:
        if looked and not done:
            done.append(archive(at, b"NEW-NEW\n", "in/0.txt", mtime=2000, lines=lines))

    def looks(self: Any, request: ReadRequest, said: str) -> None:
        look(self, request, said)
        looked.append(said)
        if after == "a look":
            rewritten()

    def opening(*args: Any, **settings: Any) -> Any:
        found = opens(*args, **settings)
        rewritten()
        return found

    monkeypatch.setattr(FsspecStore, "_check", looks)
    monkeypatch.setattr(TarFileSystem, "_open", opening)
    assert gather(f"tar://in::{at}", dest).files == 2  # by a second listing, as all of the first was deferred
    assert done
    assert gather(f"tar://in::{at}", dest).files == 0
    rows = b"".join(file.read_bytes() for file in dest.glob("part*")).splitlines()
    assert {row: rows.count(row) for row in set(rows)} == {b"NEW-NEW": lines, b"other!!": 512}


def test_a_store_sees_that_its_archive_was_written_again(tmp_path: Path) -> None:
    at = tmp_path / "a.tar"
    archive(at, b"old-old\n", lines=10)
    store = bare(normalise(f"tar://in::{at}"))
    before = store.stat("a.txt")
    archive(at, b"NEW-NEW\n", "in/0.txt", mtime=2000, lines=10)
    assert store.stat("a.txt") not in (None, before)
    assert store.get("a.txt") == b"NEW-NEW\n" * 10
    assert [e.name for e in store.walk()] == ["0.txt", "a.txt"]
    at.unlink()
    assert store.stat("a.txt") is None


def test_a_member_is_not_taken_for_damaged_where_its_archive_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes at places that the old directory names are no member of the new archive."""
    at, real, done = tmp_path / "a.zip", zipfile.ZipFile.open, list[Any]()

    def write_zip(*names: str) -> None:
        with zipfile.ZipFile(at, "w") as file:
            for name in names:
                file.writestr(name, f"of {name}\n")

    def opens(self: zipfile.ZipFile, name: Any, *args: Any, **settings: Any) -> Any:
        if name == "b" and not done:
            done.append(write_zip("a longer name than before", "a", "b"))
        return real(self, name, *args, **settings)

    write_zip("a", "b")
    monkeypatch.setattr(zipfile.ZipFile, "open", opens)
    found = gather(f"zip://::{at}", tmp_path / "out")
    assert done
    assert found.quarantined_count == 0
    assert found.files + gather(f"zip://::{at}", tmp_path / "out").files == 3


def test_an_archive_of_which_nothing_tells_its_content_is_opened_each_time(told: Any) -> None:
    told("tells", timeless)
    put("/a.zip", zipped({"a": b"1", "b": b"2"}))
    store = bare(normalise("zip://::told://a.zip"))
    assert [e.size for e in store.walk()] == [1, 1]
    put("/a.zip", zipped({"a": b"3", "b": b"4"}))
    assert store.get("a") == b"3"


def test_an_archive_is_named_by_the_url_alone(tmp_path: Path) -> None:
    with refused(UsageError, 2, "the option fo", "zip://inner::"):
        bare(normalise("zip://inner"), {"fo": f"{tmp_path}/a.zip"})


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("name", ["/whole.txt", "/d/whole.txt", "a//b.txt"])
def test_a_member_that_no_listing_shows_is_told(tmp_path: Path, kind: str, name: str) -> None:
    """As `tar -P` names them. They were passed over, and a run over an archive of them was well and gathered nothing."""
    members = {"a.txt": b"a\n", name: b"b\n"}
    (tmp_path / f"x.{kind}").write_bytes(zipped(members) if kind == "zip" else tar(members))
    store = bare(normalise(f"{kind}://::{tmp_path}/x.{kind}"))
    if (kind, name) == ("tar", "a//b.txt"):  # there it is a/b.txt
        assert [found.name for found in store.walk()] == ["a.txt", "a/b.txt"]
        return
    assert [item.name for item in store.scan() if isinstance(item, Trouble)] == [f"{name}/"]
    with pytest.raises(StorageError, match="no path can say"):
        list(store.walk())
    done = gather(f"{kind}://::{tmp_path}/x.{kind}", tmp_path / "out")
    assert (done.files, len(done.unreadable)) == (1, 1)


def encrypted(raw: bytearray, entry: int, member: int) -> None:
    raw[entry + 8] |= 1
    raw[member + 6] |= 1


def deflate64(raw: bytearray, entry: int, member: int) -> None:
    raw[entry + 10] = raw[member + 8] = 9


def scrambled(raw: bytearray, entry: int, member: int) -> None:
    raw[member + 60 : member + 260] = bytes(byte ^ 0x55 for byte in raw[member + 60 : member + 260])


@pytest.mark.parametrize(
    ("change", "method"),
    [(encrypted, zipfile.ZIP_STORED), (deflate64, zipfile.ZIP_STORED), (scrambled, zipfile.ZIP_LZMA), (scrambled, zipfile.ZIP_BZIP2)],
)
def test_a_member_that_cannot_be_unpacked_is_quarantined_alone(tmp_path: Path, change: Callable[..., None], method: int) -> None:
    raw = bytearray(zipped({"a.txt": b"a\n", "b.txt": os.urandom(5000) + b"\n"}, method))
    change(raw, raw.rfind(b"PK\1\2"), raw.rfind(b"PK\3\4"))
    (tmp_path / "a.zip").write_bytes(raw)
    done = gather(f"zip://::{tmp_path}/a.zip", tmp_path / "out")
    assert (done.files, done.quarantined_count) == (1, 1)


@pytest.mark.parametrize("cut", [tar, lambda files: gzip.compress(tar(files))])
def test_an_archive_that_ends_too_early_is_said_at_once(tmp_path: Path, cut: Callable[[dict[str, bytes]], bytes]) -> None:
    whole = cut({"a.txt": b"a\n", "b.txt": os.urandom(20_000)})
    at = tmp_path / ("a.tar.gz" if whole[:2] == b"\x1f\x8b" else "a.tar")
    at.write_bytes(whole[: len(whole) // 2])
    with refused(StorageError, 3, "ReadError" if at.suffix == ".tar" else "EOFError") as caught:
        gather(f"tar://::{at}", tmp_path / "out")
    assert not isinstance(caught.value, TransientError)


def test_a_name_that_no_path_can_say_is_told_and_the_others_are_taken(tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape") as file:
        for name in ("in/a.txt", "in/caf\udce9.txt", "in/" + "x" * 5000, "in/caf\udce9/b.txt"):
            info = tarfile.TarInfo(name)
            info.size = 2
            file.addfile(info, io.BytesIO(b"z\n"))
    (tmp_path / "a.tar").write_bytes(made.getvalue())
    done = gather(f"tar://in::{tmp_path}/a.tar", tmp_path / "out")
    assert (done.files, done.unreadable_count) == (1, 3)
    store = bare(normalise(f"tar://in::{tmp_path}/a.tar"))
    troubles = [item for item in store.scan() if isinstance(item, Trouble)]
    assert all(item.name.isprintable() and item.name.endswith("/") and len(item.name) <= 301 for item in troubles)
    assert sorted(store.peek()) == [(".", False)] * 3 + [("a.txt", False)]


@pytest.mark.parametrize("place", ["http"], indirect=True)
@pytest.mark.parametrize(("answer", "said"), [(403, "no permission"), (302, "TooManyRedirects")])
def test_a_file_that_the_server_refuses_is_told_at_once_and_the_others_are_taken(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int, said: str
) -> None:
    place.write("a.txt", b"a\n")
    place.write("b.txt", b"b\n")
    gives = remote._Pages.send_head

    def send_head(self: Any) -> Any:
        if not self.path.endswith("a.txt"):
            return gives(self)
        self.send_response(answer)
        self.send_header("Location", self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    monkeypatch.setattr(remote._Pages, "send_head", send_head)
    done = gather(place.url, tmp_path / "out")
    assert (done.files, done.unreadable_count) == (1, 1)
    (trouble,) = [item for item in place.store.scan() if isinstance(item, Trouble)]
    assert said in trouble.reason


def test_a_look_that_failed_for_a_minute_is_not_tried_for_another(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put("/in/a", b"1")
    slept, now = list[float](), [0.0]
    monkeypatch.setattr(retry, "clock", lambda: now[0])
    monkeypatch.setattr(retry, "pause", lambda seconds: (slept.append(seconds), now.__setitem__(0, now[0] + seconds)))

    def lost(info: dict[str, Any]) -> dict[str, Any]:
        if "mtime" in info and info["name"].endswith("a") and looking:
            raise ConnectionResetError
        looking.append(True)
        return info

    looking = list[bool]()
    told("tells", lost)
    with pytest.raises(TransientError, match=r"tried \d+ times in \d+ s\)$"):
        list(retry.Retrying(bare("told://in")).scan())
    assert sum(slept) <= retry.PATIENCE


# ------------------------------------------------------------------------------------------------------------------------ links
@pytest.mark.parametrize("first", ["0link.txt", "link.txt"])
def test_links_are_followed_only_where_they_are_to_be(tmp_path: Path, first: str) -> None:
    root = write(tmp_path / "in", {"a.txt": b"a\n", "b.txt": b"b\n", "sub/c.txt": b"c\n"})
    write(tmp_path / "away", {"in.txt": b"in\n", "deep/er.txt": b"er\n"})
    (root / first).symlink_to("../away/in.txt")
    (root / "deeper").symlink_to("../away/deep")
    (root / "sub" / "up").symlink_to("..")
    (root / "none").symlink_to("nothing")
    with remote.sftp(tmp_path) as url:
        for follow, files, links, unreadable in ((False, 3, 4, 0), (True, 5, 1, 1)):
            dest = tmp_path / f"out{follow}"
            done = gather(f"{url}/in", dest, source_options=SIGNED_IN, follow_links=follow)
            assert (done.files, done.links, done.unreadable_count, done.deferred) == (files, links, unreadable, ())
            assert gather(f"{url}/in", dest, source_options=SIGNED_IN, follow_links=follow).files == 0
        store = bare(normalise(f"{url}/in"), SIGNED_IN)
        assert dict(store.peek(follow=True))["deeper"]
        assert not dict(store.peek())["deeper"]
        assert not dict(store.peek("sub", follow=True))["up"]


def test_a_link_to_a_directory_that_the_server_does_not_place_is_told(told: Any) -> None:
    put("/in/sub/a", b"1")
    told("tells", lambda info: info)
    made = Told.ls
    Told.ls = lambda self, path, detail=True, **_: [{**info, "type": "link"} for info in made(self, path)]  # type: ignore[method-assign]
    try:
        (found,) = bare("told://in").scan(follow=True)
    finally:
        Told.ls = made  # type: ignore[method-assign]
    assert isinstance(found, Trouble)
    assert found.kind == "link"


def test_a_server_that_fails_is_not_taken_for_one_without_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(retry, "PATIENCE", 0.0)
    with remote.http(tmp_path) as url:
        monkeypatch.setattr(remote._Pages, "do_GET", lambda self: self.send_error(503))
        monkeypatch.setattr(remote._Pages, "do_HEAD", lambda self: self.send_error(503))
        store = bare(normalise(url))
        for act in (lambda: store.stat("a"), store.is_folder, lambda: list(store.walk())):
            with pytest.raises(TransientError, match="503"):
                act()


# ------------------------------------------------------------------------------------------------- file systems that tell little
class Told(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """One whose answers a test changes."""

    protocol = "told"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    tells: Callable[[dict[str, Any]], dict[str, Any]] = staticmethod(lambda info: info)
    reading: Callable[[str], None] = staticmethod(lambda path: None)
    listing: Callable[[str], None] = staticmethod(lambda path: None)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        path = path.removeprefix("told://").strip("/")
        return f"/{path}" if path else ""

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        type(self).listing(path)
        return [type(self).tells({**info, "mtime": info.get("created")}) for info in super().ls(path, detail=True)]

    def info(self, path: str, **kwargs: Any) -> Any:
        info = super().info(path)
        return type(self).tells({**info, "mtime": info.get("created")})

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        found = bytes(super().cat_file(path, start, end))
        type(self).reading(path)
        return found


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    fsspec.register_implementation("told", Told, clobber=True)
    monkeypatch.setattr(Told, "store", {})
    monkeypatch.setattr(Told, "pseudo_dirs", [""])
    for name in ("tells", "reading", "listing"):
        monkeypatch.setattr(Told, name, getattr(Told, name))
    return lambda name, value: monkeypatch.setattr(Told, name, staticmethod(value))


def put(path: str, data: bytes) -> None:
    Told(skip_instance_cache=True).pipe_file(path, data)


def timeless(info: dict[str, Any]) -> dict[str, Any]:
    return {key: info[key] for key in ("name", "size", "type")}


def test_without_times_of_change_files_are_known_by_their_content(told: Any, tmp_path: Path) -> None:
    told("tells", timeless)
    put("/in/a", b"one\n")
    with pytest.raises(UsageError, match="change_detection='content'") as caught:
        quire.consolidate("told://in", tmp_path / "out", spark=LOCAL, progress=False)
    assert "told://in/a" in str(caught.value)
    chosen: dict[str, Any] = {"change_detection": "content", "spark": LOCAL, "progress": False}
    assert quire.consolidate("told://in", tmp_path / "out", **chosen).files == 1
    assert quire.consolidate("told://in", tmp_path / "out", **chosen).files == 0
    put("/in/a", b"two\n")
    assert quire.consolidate("told://in", tmp_path / "out", on_change="reprocess", **chosen).files == 1
    assert [f.read_bytes() for f in (tmp_path / "out").glob("*.txt")] == [b"two\n"]


def test_what_changes_while_it_is_read_is_deferred(told: Any, tmp_path: Path) -> None:
    put("/in/a", b"one\n")
    put("/in/b", b"two\n")
    told("reading", lambda path: put(path, b"six\n") if path.endswith("a") else None)
    done = quire.consolidate("told://in", tmp_path / "out", spark=LOCAL, progress=False)
    assert (done.files, len(done.deferred)) == (1, 1)
    told("reading", lambda path: None)
    assert quire.consolidate("told://in", tmp_path / "out", spark=LOCAL, progress=False).files == 1
    assert sorted(f.read_bytes() for f in (tmp_path / "out").glob("*.txt")) == [b"six\n", b"two\n"]


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), RuntimeError("no more of it"), PermissionError(13, "Permission denied")]
)
def test_a_directory_whose_listing_fails_ends_the_call(told: Any, tmp_path: Path, error: Exception) -> None:
    put("/in/a", b"one\n")
    put("/in/sub/b", b"two\n")

    def fails(path: str) -> None:
        if path.endswith("sub"):
            raise error

    told("listing", fails)
    with pytest.raises(quire.QuireError, match="told://in/sub"):
        quire.consolidate("told://in", tmp_path / "out", spark=LOCAL, progress=False)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*.txt"))


def test_a_directory_that_a_server_hides_is_told_and_is_not_empty(told: Any) -> None:
    """FTP has one answer for what is not there and what may not be seen."""
    put("/in/closed/a", b"1")

    def hides(path: str) -> None:
        if path.endswith("closed"):
            raise FileNotFoundError(path)

    told("listing", hides)
    (found,) = bare("told://in").scan("closed")
    assert isinstance(found, Trouble)
    assert (found.kind, found.name) == ("unreadable", "closed")


def test_one_file_system_is_never_used_by_two_threads(told: Any) -> None:
    using, wrong = dict[int, int](), list[int]()

    def reading(path: str) -> None:
        me = id(threading.current_thread())
        using[me] = using.get(me, 0) + 1
        threading.Event().wait(0.001)

    told("reading", reading)
    for number in range(40):
        put(f"/in/{number:02}", b"x")
    store = bare("told://in")
    opened = list[Any]()
    make = store.systems._opened
    store.systems._opened = lambda what: opened.append(make(what)) or opened[-1]  # type: ignore[method-assign, func-returns-value]
    names = [e.name for e in store.walk()]
    assert [content(answer) for _, answer in store.read_many(asked(store, *names))] == [b"x"] * 40
    assert not wrong
    assert 1 <= len(opened) <= store.flight
    assert len(using) <= store.flight


def test_a_listing_that_says_otherwise_than_a_look_is_not_believed(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put("/in/a", b"1")
    put("/in/b", b"1")
    store, made = bare("told://in"), MemoryFileSystem.ls
    looked = [store.stat("a"), store.stat("b")]
    assert sorted(store.walk()) == looked
    monkeypatch.setattr(MemoryFileSystem, "ls", lambda self, path, **_: [{**info, "etag": "x"} for info in made(self, path)])
    assert sorted(bare("told://in").walk()) == looked


@pytest.mark.parametrize(
    ("info", "version", "modified"),
    [
        ({"size": 1}, "", 0),
        ({"size": 1, "atime": 5, "time": 5, "created": 7}, "", 0),  # a read changes the first two
        ({"size": 1, "modify": "Nov 27 21:50"}, "", 0),  # half a year later the same time is said otherwise
        ({"size": 1, "modify": "20261127215000.123"}, "some", 1795816200_000000000),
        ({"size": 1, "LastModified": "2026-11-27T21:50:00Z"}, "some", 1795816200_000000000),
        ({"size": 1, "Last-Modified": "Fri, 27 Nov 2026 21:50:00 GMT"}, "some", 1795816200_000000000),
        ({"size": 1, "mtime": 1795816200}, "some", 1795816200_000000000),
        ({"size": 1, "modification_time": 1795816200000}, "some", 1795816200_000000000),
        ({"size": 1, "ETag": '"x"'}, "some", 0),
        ({"size": 1, "date_time": (2026, 11, 27, 21, 50, 0), "CRC": 5}, "some", 0),
        ({"size": 1, "mtime": float("nan")}, "some", 0),
        ({"size": 1, "mtime": float("-inf")}, "some", 0),
        ({"size": 1, "mtime": 10**400}, "some", 0),
        ({"size": 1, "etag": "\udce9"}, "some", 0),
    ],
)
def test_a_version_is_what_changes_with_the_content(info: dict[str, Any], version: str, modified: int) -> None:
    found = entry("a", info)
    assert found is not None
    assert bool(found.version) == bool(version)
    assert found.modified == modified
    again = entry("a", {**info, "size": 2})
    assert again is not None
    assert not version or again.version != found.version


@pytest.mark.parametrize("size", [None, -1, True, 2**63, 2.0])
def test_a_file_of_no_length_is_told_and_not_read(told: Any, size: object) -> None:
    told("tells", lambda info: {**info, "size": size})
    put("/in/a", b"1")
    (found,) = bare("told://in").scan()
    assert isinstance(found, Trouble)
    assert "how long" in found.reason


# ------------------------------------------------------------------------------------------------------------------------- URLs
@pytest.mark.parametrize(
    ("given", "one"),
    [
        ("zip://inner/dir::s3://bucket/a.zip", "zip://s3%3A%2F%2Fbucket%2Fa.zip/inner/dir"),
        ("zip::/data/a.zip", "zip://file%3A%2F%2F%2Fdata%2Fa.zip"),
        ("zip:///::file:///data/a.zip", "zip://file%3A%2F%2F%2Fdata%2Fa.zip"),
        ("tar://::/data/../data/a.tar", "tar://file%3A%2F%2F%2Fdata%2Fa.tar"),
        ("sftp://host:22/data/in/", "sftp://host:22/data/in"),
        ("SFTP://host/a#b?c%", "sftp://host/a#b?c%"),
        ("http://Host/a b/%c3%bc/", "http://host/a%20b/%C3%BC"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("http://[FE80::1]/a", "http://[fe80::1]/a"),
        ("tar://a::zip://b.tar::/data/../data/c.zip", "tar://zip%3A%2F%2Fb.tar%3A%3Afile%3A%2F%2F%2Fdata%2Fc.zip/a"),
        ("zip://in::abfs://c@a.dfs.core.windows.net/x.zip", "zip://abfs%3A%2F%2Fc%40a.dfs.core.windows.net%2Fx.zip/in"),
        ("zip://in::sftp://me@host/x.zip", "zip://sftp%3A%2F%2Fme%40host%2Fx.zip/in"),
        ("github://org:repo@main/x", "github://org:repo@main/x"),
        ("dbfs:/mnt/x", "dbfs:///mnt/x"),
    ],
)
def test_a_place_has_one_url(given: str, one: str) -> None:
    assert normalise(given) == one
    assert normalise(one) == canonical(one) == one


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sftp://me:hunter2@host/in", "carries a secret"),
        ("ftp://me:hunter2@host/in", "carries a secret"),
        ("http://me:hunter2@host/in", "not the URL of a directory"),
        ("http://host/in?token=hunter2", "not the URL of a directory"),
        ("http:///in", "not the URL of a directory"),
        ("http://host?k=hunter2", "not the URL of a directory"),
        ("jupyter://host/in?token=hunter2", "carries a secret"),
        ("zip://in::sftp://me:hunter2@host/a.zip", "carries a secret"),
        ("zip::ftp://me:hunter2@host/a.zip", "carries a secret"),
        ("zip://in::s3://me:hunter2@host/a.zip", "carries a secret"),
        ("zip://in::http://me:hunter2@host/a.zip", "carries a secret"),
        ("zip://in::https://hunter2@host/a.zip", "carries a secret"),
        ("zip://in::https://host/a.zip?sig=hunter2", "carries a secret"),
        ("zip://in::https://host/a.zip?k=hunter2", "carries a secret"),
        ("tar://in::zip://a.tar::ftp://me:hunter2@host/a.zip", "carries a secret"),
        ("zip://sftp%3A%2F%2Fme%3Ahunter2%40host%2Fa.zip/in", "carries a secret"),
        ("zip://https%3A%2F%2Fhost%2Fa.zip%3Fsig%3Dhunter2/in", "carries a secret"),
        ("zip://in::simplecache::https://host/a.zip", "may be an old one"),
        ("zip://in::http://[::1]/a.zip", "the host's name"),
        ("sftp://host/a/../b", "'..'"),
        ("zip://inner::", "unknown|names no archive|is a file|does not exist"),
        ("sfttp://host/in", "unknown kind of store"),
        ("simplecache://host/in", "unknown kind of store"),
    ],
)
def test_a_url_that_is_no_place_is_refused(given: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        quire.consolidate(given, tmp_path / "out", spark=LOCAL, progress=False)
    assert "hunter2" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_host_may_be_named_by_its_address(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"1\n")
    with remote.http(tmp_path, "::1") as url:
        assert "[::1]" in url
        assert [e.name for e in bare(normalise(url)).walk()] == ["a.txt"]


def test_a_file_with_colons_in_its_name_is_a_file(tmp_path: Path) -> None:
    assert normalise("a::b").endswith("/a::b")
    assert normalise(f"{tmp_path}/zip::x") == f"file://{tmp_path}/zip::x"


def test_a_wrong_option_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"")
    with pytest.raises(UsageError, match="max_concurrency"):
        bare(normalise(f"zip://::{tmp_path}/a.zip"), {"max_concurrency": 0})
    with remote.sftp(tmp_path) as url, pytest.raises(UsageError, match="options of the source") as caught:
        bare(f"{url}/x", {**SIGNED_IN, "pasword": "hunter2"}).stat("a")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "held",
    [
        "hunter two/é", b"hunter two/\xe9", b"hunter two", 31337133, {"cookie": "hunter'two"}, ["x", ("hunter two",)],
        {"a": [{"b": "hunter two"}]},
    ],
)  # fmt: skip
def test_no_error_says_a_value_of_an_option_however_deep(told: Any, held: Any) -> None:
    put("/in/a", b"1")

    def fails(path: str) -> None:
        inner = held
        while isinstance(inner, dict | list | tuple):
            inner = [*(inner.values() if isinstance(inner, dict) else inner)][-1]
        text = inner if isinstance(inner, bytes) else str(inner)
        raise RuntimeError(f"{inner!r} {inner} {quote(text)} {quote(text, safe='')} {quote_plus(text)} refused, and {held}")

    told("listing", fails)
    store = bare("told://in", {"held": held})
    with refused(StorageError, 3, "refused") as caught:
        list(store.scan())
    assert "hunter" not in str(caught.value)
    assert "31337133" not in str(caught.value)


def test_a_password_of_the_place_behind_an_archive_is_not_said(tmp_path: Path) -> None:
    """Servers may repeat it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            came, _ = listening.accept()
            with came, came.makefile("rb") as lines:
                came.sendall(b"220 here\r\n")
                for line in lines:
                    came.sendall({b"USER": b"331 and?\r\n", b"PASS": b"530 bad password " + line[5:]}.get(line[:4], b"500 no\r\n"))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url, options = f"zip://in::ftp://127.0.0.1:{listening.getsockname()[1]}/a.zip", {"ftp": {"username": "me", "password": "hunter2pw"}}
        with refused(StorageError, 3, "no permission", "***") as caught:
            gather(url, tmp_path / "out", source_options=options)
        assert "hunter2" not in str(caught.value)
        thread.join(10)


def test_the_parts_of_a_piece_are_asked_for_at_once_by_sftp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SFTP gives 32 KiB at a time: who waits for each of them reads no faster than the round trips allow."""
    from paramiko import SFTPClient
    from paramiko.sftp import CMD_READ

    waited, at_once, ask, send = list[Any](), list[Any](), SFTPClient._request, SFTPClient._async_request

    def asks(self: Any, kind: int, *args: Any) -> Any:
        waited.append(kind)
        return ask(self, kind, *args)

    def sends(self: Any, file: Any, kind: int, *args: Any) -> Any:
        at_once.append(kind)
        return send(self, file, kind, *args)

    long = os.urandom(6 * MiB + 7)
    (tmp_path / "long").write_bytes(long)
    (tmp_path / "short").write_bytes(long[: 100 << 10])
    (tmp_path / "empty").write_bytes(b"")
    with remote.sftp(tmp_path) as url:
        store = bare(normalise(f"{url}/"), SIGNED_IN)
        wanted = asked(store, "short", "long", "empty", "short")
        monkeypatch.setattr(SFTPClient, "_request", asks)
        monkeypatch.setattr(SFTPClient, "_async_request", sends)
        found = [content if isinstance(content, bytes) else b"".join(content) for _, content in store.read_many(wanted)]  # type: ignore[arg-type]
        assert found == [long[: 100 << 10], long, b"", long[: 100 << 10]]
        # paramiko waits for a part itself where the server has answered all that its thread has asked for so far.
        assert waited.count(CMD_READ) < at_once.count(CMD_READ) / 2
        assert at_once.count(CMD_READ) - waited.count(CMD_READ) == 2 * 4 + 128 + 65  # it sends what it waits for, too
        assert store.get_range("long", 40_000, 100_000) == long[40_000:140_000]
        (tmp_path / "short").write_bytes(b"shorter")
        assert [type(content) for _, content in store.read_many([wanted[0]])] == [Vanished]


# ----------------------------------------------------------------------------------------------------------------- destinations
@pytest.mark.parametrize("dest", ["sftp://127.0.0.1:1/out", "zip://out::/data/a.zip", "http://127.0.0.1:1/out", "told://out"])
def test_it_is_no_destination_and_says_why(dest: str, told: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for call in (lambda: quire.consolidate(tmp_path / "in", dest, spark=LOCAL, progress=False), lambda: quire.populate(dest, 5)):
        with pytest.raises(RefusedError, match=r"can be a source alone: .*one of two writers"):
            call()
    store = bare(normalise(dest))
    for attempt in (
        lambda: store.put("a", b""), lambda: store.put_if_absent("a", b""), lambda: store.create("a"), lambda: store.remove("a"),
        lambda: store.remove_tree("a"), lambda: store.rename("a", "b"), lambda: store.sweep("a"), store.check_writable,
    ):  # fmt: skip
        with pytest.raises(RefusedError):
            attempt()
