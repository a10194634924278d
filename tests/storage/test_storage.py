"""What local disk and memory promise beyond what every store does (`services/conformance.py`)."""

from __future__ import annotations

import errno
import os
import threading
import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gathering import refused
from quire.errors import FormatError, NotFoundError, QuireError, StorageError, UsageError
from quire.storage import (
    Entry,
    Files,
    Folder,
    ReadRequest,
    Store,
    Trouble,
    Unreadable,
    Vanished,
    at_once,
    bare,
    below,
    connect,
    local,
    normalise,
    remove_all,
)
from quire.storage.base import safe
from quire.storage.local import LocalStore, to_os, to_text
from quire.storage.retry import Retrying

ODD = [
    "a\nb",
    "quote'\"",
    "%41",
    "..a",
    "a..",
    "x" * 255,
    "Süd/Größe",
    " ",
    "tab\t",
    "back\\slash",
    "a=b",
    "*?[]",
    "\u202e",
    "-rf",
    "file:",
]


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return connect(normalise(tmp_path / "root"))
    return connect(f"memory://{uuid.uuid4().hex}/root")


def content(data: Any) -> bytes:
    return data if isinstance(data, bytes) else b"".join(data)


# ------------------------------------------------------------------------------------------------------------------ writing


def test_rename_moves_an_object_in_one_step(store: Store) -> None:
    store.put("_quire/a", b"1")
    store.rename("_quire/a", "new/dir/b")
    assert store.get("new/dir/b") == b"1"
    with pytest.raises(NotFoundError):
        store.rename("_quire/a", "new/dir/b")
    assert [e.name for e in store.walk()] == ["new/dir/b"]


def test_sweeping_and_cleaning_does_no_harm_to_living_writers(store: Store) -> None:
    stop, failed = threading.Event(), list[BaseException]()

    def guarded(act: Callable[[int], None]) -> Callable[[], None]:
        def run() -> None:
            number = 0
            try:
                while not stop.is_set():
                    act(number)
                    number += 1
            except BaseException as e:
                failed.append(e)

        return run

    def write(who: str) -> Callable[[int], None]:
        def act(number: int) -> None:
            store.put(f"_quire/{who}/{number}/x", b"%d" % number)
            assert store.put_if_absent(f"_quire/log/{who}-{number}", b"%d" % number)
            store.remove(f"_quire/{who}/{number}/x")

        return act

    acts = [write("a"), write("b"), lambda _: store.sweep("_quire"), lambda _: store.remove_tree("_quire/empty")]
    threads = [threading.Thread(target=guarded(act)) for act in acts]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    stop.set()
    for thread in threads:
        thread.join(20)
    assert not failed, failed
    for e in store.walk("_quire/log"):
        assert store.get(e.name) == e.name.rpartition("-")[2].encode()
    store.sweep("_quire")
    assert {e.name.split("/")[1] for e in store.walk()} == {"log"}


# -------------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../b", "a/./b", "a//b", "", "a/", "..", ".", "a\0b", "/"])
def test_no_name_leads_out_of_a_store(store: Store, name: str) -> None:
    with pytest.raises(FormatError, match="leads out of its store"):
        safe(name)
    acts: list[Callable[[], object]] = [
        lambda: store.get(name), lambda: store.put(name, b""), lambda: store.put_if_absent(name, b""), lambda: store.rename("x", name),
        lambda: store.rename(name, "x"), lambda: store.create(name), lambda: store.remove(name), lambda: store.remove_tree(name),
    ]  # fmt: skip
    store.put("x", b"1")
    for act in acts:
        if name:
            with refused(FormatError, 2, "leads out of its store"):
                act()
    assert store.get("x") == b"1"


def test_any_name_comes_back_from_a_listing_as_it_went_in(store: Store) -> None:
    for name in ODD:
        store.put(f"d/{name}", name.encode())
    assert {e.name for e in store.walk("d")} == {f"d/{name}" for name in ODD}
    for e in store.walk("d"):
        assert store.get(e.name).decode() == e.name[2:]


@given(st.binary(min_size=1, max_size=60))
def test_each_name_on_disk_has_one_text_and_each_text_one_name(name: bytes) -> None:
    text = to_text(os.fsdecode(name))
    assert os.fsencode(to_os(text)) == name
    text.encode()  # it can be written into any file


def test_bytes_that_are_not_utf8_and_the_characters_that_stand_for_them_are_told_apart(tmp_path: Path) -> None:
    names = [b"\xff", "\uf7ff".encode(), b"\xef\x9f\xbf\xff", "\uf780x".encode(), b"a\x80"]
    for i, name in enumerate(names):
        with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:
            file.write(b"%d" % i)
    store = LocalStore(str(tmp_path))
    assert {store.get(e.name): os.fsencode(to_os(e.name)) for e in store.walk()} == {b"%d" % i: name for i, name in enumerate(names)}


def test_a_place_has_one_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    url = f"file://{os.path.realpath(tmp_path)}/real"
    for text in ("real", "./real/", "link", "x/../real", f"{tmp_path}//real", f"file://{tmp_path}/real", f"file:{tmp_path}/real",
                 f"FILE://localhost{tmp_path}/link", tmp_path / "real"):  # fmt: skip
        assert normalise(text) == url, text
    assert normalise("memory:///a//b/./c/") == "memory://a/b/c"
    assert normalise("/") == "file:///"
    assert normalise("a%20b").endswith("/a%20b"), "a path is no URL: nothing is unquoted"
    assert below("file:///a/b", "file:///a")
    assert below("file:///a", "file:///")
    assert not below("file:///ab", "file:///a")
    for wrong, word in [
        ("", "expected a path"),
        (None, "expected a path"),
        (5, "5"),
        ("s3x://b/c", "unknown kind of store"),
        ("file://host/x", "host"),
        ("memory://", "needs a name"),
        ("memory://a/../b", "'..'"),
        ("a\0b", "NUL"),
    ]:
        with refused(UsageError, 2, word):
            normalise(wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------------ listing


@pytest.mark.parametrize("url", ["/data", "s3://bucket/x", "abfs://container@account/x", "webhdfs://namenode:9870/x"])
def test_options_that_are_no_dictionary_get_one_line_without_them(url: str) -> None:
    for options in ("hunter2", ["hunter2"]):
        with pytest.raises(UsageError, match="takes a dictionary") as caught:
            bare(normalise(url), options)  # type: ignore[arg-type]
        assert "hunter2" not in str(caught.value)


def test_a_scan_is_one_level_and_slices_it_by_name(store: Store) -> None:
    for i in range(20):
        store.put(f"d/f{i:02}", b"1")
    store.put("d/sub/x", b"1")
    store.put("other", b"1")
    everything = list(store.scan("d"))
    assert {i.name for i in everything if isinstance(i, Entry)} == {f"d/f{i:02}" for i in range(20)}
    assert [i for i in everything if not isinstance(i, Entry)] == [Folder("d/sub")]
    bounds = ["", "f05", "f05a", "f19", ""]
    slices = [{i.name for i in store.scan("d", after=a, until=u) if isinstance(i, Entry)} for a, u in pairwise(bounds)]
    assert sum(map(len, slices)) == 20
    assert set.union(*slices) == {f"d/f{i:02}" for i in range(20)}
    assert slices[2] == {f"d/f{i:02}" for i in range(6, 19)}
    assert sorted(store.peek("d")) == sorted([(f"f{i:02}", False) for i in range(20)] + [("sub", True)])
    assert len(list(store.walk())) == 22
    assert len(list(store.walk("d"))) == 21


@pytest.mark.parametrize("follow", [False, True])
def test_a_directory_on_disk_is_listed_column_by_column_as_file_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    monkeypatch.setattr(local, "PAGE", 3)  # files go on behind the end of a page
    (tmp_path / "d" / "sub").mkdir(parents=True)
    for i, name in enumerate(["a", "ü", ".hidden", "_x", "b c", "z", "y", "\udcff", "x"]):
        (tmp_path / "d" / name).write_bytes(b"1" * i)
    (tmp_path / "d" / "link").symlink_to("a")
    (tmp_path / "d" / "round").symlink_to(".")
    os.mkfifo(tmp_path / "d" / "pipe")
    os.utime(tmp_path / "d" / "z", ns=(0, (1 << 63) - 1))
    store = LocalStore(str(tmp_path))
    for after, until in (("", ""), ("b", "y"), ("z", "")):
        alone = list(store.scan("d", after=after, until=until, follow=follow))
        together = list(store.scan_pages("d", after=after, until=until, follow=follow))
        files = [entry for page in together if isinstance(page, Files) for entry in page.entries()]
        assert sorted([*files, *(item for item in together if not isinstance(item, Files))], key=repr) == sorted(alone, key=repr)
        looked_up = [store.stat(entry.name) for entry in files]
        assert files == looked_up
        plain = {to_text(name) for name in os.listdir(tmp_path / "d")} - {"sub", "link", "round", "pipe"}
        assert {entry.name for entry in files} == {f"d/{name}" for name in plain if name >= after and (not until or name < until)}
        assert ("d/link" in {item.name for item in together if isinstance(item, Entry)}) == (follow and after != "z")


def test_what_becomes_of_files_between_the_listing_and_the_look_at_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("deleted", "busy", "exchanged", "stays", "shut"):
        (tmp_path / name).write_bytes(b"1")
    islice = local.islice

    def later(found: Any, most: int) -> list[Any]:
        some = list(islice(found, most))
        if some:
            (tmp_path / "deleted").unlink()
            (tmp_path / "exchanged").unlink()
            os.mkfifo(tmp_path / "exchanged")
        return [Failing(item, {"busy": errno.ESTALE, "shut": errno.EACCES}.get(item.name)) for item in some]

    class Failing:
        def __init__(self, item: Any, code: int | None) -> None:
            self.item, self.code, self.name, self.path = item, code, item.name, item.path
            self.is_file, self.is_symlink = item.is_file, item.is_symlink

        def stat(self, **how: Any) -> os.stat_result:
            if self.code:
                raise OSError(self.code, os.strerror(self.code))
            found: os.stat_result = self.item.stat(**how)
            return found

    monkeypatch.setattr(local, "islice", later)
    seen = list(Retrying(LocalStore(str(tmp_path))).scan_pages())
    files = [name for page in seen if isinstance(page, Files) for name in page.names]
    assert files == ["stays"]
    assert {(item.name, item.kind) for item in seen if isinstance(item, Trouble)} == {("exchanged", "special"), ("shut", "unreadable")}
    assert [item.name for item in seen if isinstance(item, Entry)] == ["busy"], "it is looked up a moment later"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_a_directory_that_can_be_opened_and_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """As one of another machine: at its beginning it is like one that cannot be opened; later the listing fails, in one line."""
    for i in range(3):
        (tmp_path / f"{i}").write_text("x")
    pages = list[Any]()

    def fails(found: Any, count: int) -> Iterator[Any]:
        if not pages:
            raise OSError(code, os.strerror(code))
        return iter(pages.pop())

    monkeypatch.setattr(local, "islice", fails)
    (trouble,) = LocalStore(str(tmp_path)).scan()
    assert isinstance(trouble, Trouble)
    assert (trouble.kind, trouble.reason) == ("unreadable", f"cannot list the directory: {os.strerror(code)}")
    pages.append(list(os.scandir(tmp_path)))
    with pytest.raises(StorageError, match="list"):
        list(LocalStore(str(tmp_path)).scan())


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to nothing").symlink_to("nowhere")
    (tmp_path / "to itself").symlink_to("to itself")
    kinds = {t.name: t.kind for t in store.scan() if isinstance(t, Trouble)}
    assert kinds == {"pipe": "special", "to nothing": "link", "to itself": "link"}
    kinds = {t.name: t.kind for t in store.scan(follow=True) if isinstance(t, Trouble)}
    assert (kinds["pipe"], kinds["to nothing"]) == ("special", "link")
    assert kinds["to itself"] in ("unreadable", "link")
    ((_, answer),) = store.read_many([ReadRequest("pipe", "0-0", 0, 0, 0)])
    assert isinstance(answer, Vanished), "a pipe that took a file's place does not block"


# ------------------------------------------------------------------------------------------------------------------ reading


def requests(store: Store, *names: str) -> list[ReadRequest]:
    found = []
    for name in names:
        entry = store.stat(name)
        assert entry is not None
        found.append(ReadRequest(name, entry.version, entry.size, 0, entry.size))
    return found


@pytest.mark.parametrize("size", [10, 5 << 20])
def test_what_vanished_or_changed_since_it_was_planned_is_not_given(store: Store, size: int) -> None:
    for name in "abc":
        store.put(name, b"x" * size)
    wanted = requests(store, "a", "b", "c")
    time.sleep(0.02)
    store.put("a", b"y" * size)
    store.remove("b")
    found = []
    for _, answer in store.read_many(wanted):
        try:
            found.append(answer if isinstance(answer, Exception) else len(content(answer)))
        except Vanished as e:
            found.append(e)
    assert isinstance(found[0], Vanished)
    assert isinstance(found[1], Vanished)
    assert ("changed" in str(found[0]), "vanished" in str(found[1]), found[2]) == (True, True, size)


@pytest.mark.skipif(not hasattr(os, "O_NOATIME"), reason="this system notes each reading")
@pytest.mark.parametrize("own", [True, False])
def test_reading_is_not_noted_in_inodes_where_it_may_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    """Of somebody else's files nobody may ask for that: they are read all the same."""
    names = ["a", "in/b", "ü", "in/c"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
        os.utime(tmp_path / name, ns=(10**18, 10**18))
    store, opened, real = bare(f"file://{tmp_path}"), list[int](), os.open

    def opens(path: Any, flags: int, *args: Any, **more: Any) -> int:
        opened.append(flags)
        if not own and flags & os.O_NOATIME:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return real(path, flags, *args, **more)

    wanted = [ReadRequest(e.name, e.version, e.size, 0, e.size) for e in (store.stat(name) for name in names) if e]
    monkeypatch.setattr(os, "open", opens)
    assert [content for _, content in store.read_many(wanted)] == [b"12345"] * 4
    if own:
        assert [os.stat(tmp_path / name).st_atime_ns for name in names] == [10**18] * 4
    else:
        assert sum(bool(flags & os.O_NOATIME) for flags in opened) == 1, "it is asked for once"


@pytest.mark.parametrize("size", [1000, 9 << 20])
def test_a_file_that_is_rewritten_while_it_is_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a", b"x" * size)
    for call in ("read", "pread"):
        real = getattr(os, call)

        def changing(fd: int, *args: int, real: Any = real) -> bytes:
            with open(tmp_path / "a", "ab") as file:
                file.write(b"y")
            return real(fd, *args)  # type: ignore[no-any-return]

        monkeypatch.setattr(os, call, changing)
    ((_, answer),) = store.read_many(requests(store, "a"))
    with pytest.raises(Vanished, match="changed"):
        raise answer if isinstance(answer, Vanished) else AssertionError(len(content(answer)))


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_took_a_files_place_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a", b"x")
    wanted = requests(store, "a")
    (tmp_path / "a").unlink()
    make(tmp_path / "a")
    ((_, answer),) = store.read_many(wanted)
    assert isinstance(answer, Vanished)


def test_a_long_object_goes_to_the_disk_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, real, piece = list[int](), os.posix_fadvise, os.urandom(1 << 20)

    def tell(fd: int, *rest: int) -> None:
        told.append(os.fstat(fd).st_size)
        real(fd, *rest)

    monkeypatch.setattr(os, "posix_fadvise", tell)
    sink = LocalStore(str(tmp_path)).create("a")
    for _ in range(40):
        sink.write(piece)
    sink.close()
    assert (told, (tmp_path / "a").read_bytes() == piece * 40) == ([16 << 20, 32 << 20], True)


def test_an_error_of_the_disk_sets_a_file_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a", b"x")
    wanted = requests(store, "a")

    def broken(*args: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "read", broken)
    ((_, answer),) = store.read_many(wanted)
    assert isinstance(answer, Unreadable)
    assert str(answer) == "OSError: Input/output error"


# ------------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "the disk is full. Free some space"), (errno.EDQUOT, "quota"), (errno.EROFS, "read-only"), (errno.EIO, "Input/output"),
     (errno.EACCES, "no permission")],
)  # fmt: skip
def test_an_error_of_the_disk_is_one_line_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str) -> None:
    store = LocalStore(str(tmp_path))
    sink = store.create("_quire/part")

    def broken(*args: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", broken)
    acts = [lambda: store.put("_quire/a\nb", b"1"), lambda: store.put_if_absent("_quire/a", b"1"), lambda: sink.write(b"1")]
    for act in acts:
        with refused(StorageError, 3, f"cannot write file://{tmp_path}/_quire/", words):
            act()
    sink.discard()
    monkeypatch.undo()
    store.sweep("_quire")
    assert {e.name for e in store.walk()} == {"_quire/part"}, "no temporary file is left"


def test_every_error_is_one_line_whatever_name_it_is_about() -> None:
    for kind in (QuireError, UsageError, StorageError):
        assert str(kind("a\nb\x1b[31m\u202e")) == r"a\nb\x1b[31m\u202e"


def test_very_many_objects_are_deleted_in_little_memory() -> None:
    gone = list[str]()
    store: Any = SimpleNamespace(remove=gone.append)
    names = [f"{i:06}.txt" for i in range(30_000)]
    tracemalloc.start()
    try:
        remove_all(store, names)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sorted(gone) == names
    assert peak < 8_000_000  # of all that wait at once it would be 30 MB


def test_requests_that_go_together_all_end_before_an_error_of_any_is_heard() -> None:
    done = list[int]()

    def call(number: int) -> None:
        time.sleep(0.01 * number)
        done.append(number)
        if number in (1, 3):
            raise StorageError(f"{number} cannot be had")

    with pytest.raises(StorageError, match="1 cannot be had"):
        at_once(*(partial(call, number) for number in range(5)))
    assert sorted(done) == [0, 1, 2, 3, 4]
    at_once()
    with pytest.raises(StorageError, match="3 cannot be had"):
        at_once(partial(call, 3))
