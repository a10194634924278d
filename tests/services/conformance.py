"""The promises of `storage.base.Store`, as tests that any store can be put under.

Whoever writes a store gives one fixture and takes the tests in (docs/stores.md has the whole of it):

    # conftest.py
    @pytest.fixture
    def store() -> Store:             # a new and empty place, by `quire.storage.bare` or by the store's own class
        return bare(f"abfs://tests/{uuid.uuid4().hex}", OPTIONS)

    # test_mine.py
    from services.conformance import *

A store whose uploads' pieces nobody can drop, because the service does after some time, says so by `pieces_expire = True`.
"""

from __future__ import annotations

import os
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from quire.errors import FormatError, NotFoundError, StorageError
from quire.storage import Copying, Entry, Folder, ReadRequest, Replacing, Seeking, Store, Trouble, Vanished, remove_all, remove_version
from quire.storage.retry import again
from quire.storage.within import Within

MiB = 1 << 20

# Each of them is a name of its own in every store. (What a store cannot hold at all it refuses with one line.)
ODD = [
    " ",
    " leading and trailing ",
    "#fragment",
    "%",
    "%2F",
    "%41",
    "&amp;<tag>",
    "*?[]{}",
    "+plus+",
    "-rf",
    "..a",
    "=a=b;c,d",
    "?query=1&sig=2",
    "A",
    "Süd/Größe",
    "Su\u0308d",  # decomposed: another name than Süd
    "a",
    "a..",
    "back\\slash",
    "file:",
    "quote'\"`",
    "trailing space ",
    "trailing.",
    "\u202e",
    "日本語",
    "😀",
]


def content(data: Any) -> bytes:
    """An answer's bytes, be they given at once or as a stream."""
    if isinstance(data, Exception):
        raise data
    return data if isinstance(data, bytes) else b"".join(data)


def asked(store: Store, *names: str) -> list[ReadRequest]:
    """Requests for whole files in the versions that they have now."""
    found = []
    for name in names:
        entry = store.stat(name)
        assert entry is not None, name
        found.append(ReadRequest(name, entry.version, entry.size, 0, entry.size))
    return found


def shown(store: Store) -> list[tuple[str, bool]]:
    """What one sees at the root, but for the store's own temporary files."""
    own = {"_quire", getattr(store, "state", "_quire").partition("/")[0]}
    return sorted(item for item in store.peek() if item[0] not in own)


def pieces_expire(store: Store) -> bool:
    """Whether nobody can drop an upload's pieces, and the service does it after some time."""
    return store.pieces_expire


def held(store: Store, name: str) -> bool:
    """Whether the store can hold an object of that name; if not, it says so in one line and writes nothing."""
    said = ""
    try:
        store.put(name, b"")
    except StorageError as e:
        said = str(e)
    assert not said or ("cannot write" in said and "\n" not in said)
    return not said


def has_uploads(store: Store) -> bool:
    """A store without uploads refuses them in one line; there is nothing else to test of them."""
    if not store.can_upload:
        with pytest.raises(StorageError, match="holds no uploads"):
            store.upload("a")
    return store.can_upload


# ------------------------------------------------------------------------------------------------------------------ objects
def test_what_is_put_is_what_is_got(store: Store) -> None:
    assert store.stat("d/a") is None
    assert not store.is_folder("d")
    store.put("d/a", b"12345")
    assert store.get("d/a") == b"12345"
    found = store.stat("d/a")
    assert found is not None
    assert (found.name, found.size) == ("d/a", 5)
    assert store.is_folder()
    assert store.is_folder("d")
    assert not store.is_folder("d/a")
    assert store.stat("d") is None
    assert store.stat("d/a/b") is None
    store.put("d/a", b"2")
    assert store.get("d/a") == b"2"
    again = store.stat("d/a")
    assert again is not None
    assert again.version != found.version
    store.put("empty", b"")
    assert store.get("empty") == b""


def test_a_range_ends_where_the_object_ends(store: Store) -> None:
    store.put("a", b"12345")
    store.put("empty", b"")
    assert [store.get_range("a", start, length) for start, length in [(0, 5), (1, 3), (3, 100), (5, 1), (9, 1)]] == [
        b"12345",
        b"234",
        b"45",
        b"",
        b"",
    ]
    assert store.get_range("empty", 0, 10) == b""


def test_what_is_not_there_is_said_so(store: Store) -> None:
    for act in (lambda: store.get("no"), lambda: store.get_range("no", 0, 1), lambda: store.get("no/such/folder/x")):
        with pytest.raises(NotFoundError, match="is not there") as caught:
            act()
        assert "\n" not in str(caught.value)
    store.remove("no")
    store.remove_tree("no")
    assert list(store.walk("no")) == list(store.walk()) == list(store.scan("no")) == []


@pytest.mark.nth(3)
def test_of_many_writers_who_put_if_absent_one_wins_and_nobody_sees_a_part(store: Store) -> None:
    wrong = []

    def race(number: int) -> None:
        barrier, data = threading.Barrier(16), [bytes([i]) * 100_000 for i in range(16)]

        def one(i: int) -> bool:
            barrier.wait()
            won = store.put_if_absent(f"log/{number}", data[i])
            there = store.get(f"log/{number}")
            if there not in data or (won and there != data[i]):
                wrong.append((number, i))
            return won

        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(one, range(16))) == 1

    for number in range(5):
        race(number)
    assert not wrong
    assert {e.name for e in store.walk()} == {f"log/{n}" for n in range(5)}, "nothing temporary is left"


def test_put_if_absent_leaves_what_is_there(store: Store) -> None:
    assert store.put_if_absent("a", b"")
    assert not store.put_if_absent("a", b"2")
    assert store.get("a") == b""
    store.remove("a")
    assert store.put_if_absent("a", b"3")
    assert store.get("a") == b"3"


def test_a_new_object_is_complete_after_close_and_may_be_discarded(store: Store) -> None:
    sink = store.create("_quire/jobs/x/part")
    sink.write(b"123")
    sink.write(memoryview(b"45"))
    sink.close()
    assert store.get("_quire/jobs/x/part") == b"12345"
    store.create("_quire/jobs/x/empty").close()
    assert store.get("_quire/jobs/x/empty") == b""
    given_up = store.create("_quire/jobs/x/other")
    given_up.write(b"1")
    given_up.discard()
    given_up.discard()
    store.remove_tree("_quire/jobs/x")
    assert list(store.walk()) == []


def test_a_long_object_is_written_and_read_piece_by_piece(store: Store) -> None:
    piece, pieces = os.urandom(MiB), 37
    sink = store.create("long")
    for i in range(pieces):
        sink.write(memoryview(piece)[i:])
        sink.write(piece[:i])
    sink.close()
    expected = b"".join(piece[i:] + piece[:i] for i in range(pieces))
    (request,) = asked(store, "long")
    assert request.size == len(expected)
    assert [content(answer) for _, answer in store.read_many([request])] == [expected]
    assert store.get_range("long", 20 * MiB - 3, 7) == expected[20 * MiB - 3 :][:7]


def test_odd_names_hold_what_was_put_there(store: Store) -> None:
    odd = [name for name in ODD if held(store, name)]
    names = [*odd, *(f"dir/{name}/x" for name in odd), "é" * 127, "/".join(["x" * 200] * 4)]
    for number, name in enumerate(names):
        store.put(name, b"%d" % number)
    for number, name in enumerate(names):
        assert store.get(name) == b"%d" % number, name
        assert store.stat(name), name
    assert sorted(e.name for e in store.walk()) == sorted(names)
    assert {i.name for i in store.scan("dir") if isinstance(i, Folder)} == {f"dir/{name.partition('/')[0]}" for name in odd}
    answers = [content(answer) for _, answer in store.read_many(asked(store, *names))]
    assert answers == [b"%d" % number for number in range(len(names))]
    for name in names:
        assert store.is_folder(f"dir/{name}") == (name in odd)
        store.remove(name)
    assert sorted(e.name for e in store.walk()) == []


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "a/../b", ".", "a/.", "a/", "x" * 5000, "nul\0"])
def test_no_name_leads_out_of_the_store(store: Store, name: str) -> None:
    acts = (lambda: store.put(name, b""), lambda: store.get(name), lambda: store.remove(name), lambda: store.put_if_absent(name, b""))
    for act in acts:
        with pytest.raises(FormatError):
            act()


def test_remove_and_remove_tree_take_what_is_named_alone(store: Store) -> None:
    for name in ("a/b/c", "a/b/d/e", "a/bc", "ab", "a/b.c"):
        store.put(name, b"")
    store.remove("a/bc")
    store.remove_tree("a/b")
    assert sorted(e.name for e in store.walk()) == ["a/b.c", "ab"]
    store.sweep("_quire")
    store.check_writable()


def test_an_object_is_removed_on_condition_of_its_version(store: Store) -> None:
    for name in ("a", "dir/b ü"):
        store.put(name, b"1")
        before = store.stat(name)
        assert before is not None
        store.put(name, b"other")
        assert not remove_version(store, name, before.version)
        assert store.get(name) == b"other"
        there = store.stat(name)
        assert there is not None
        assert remove_version(store, name, there.version)
        assert store.stat(name) is None
        assert remove_version(store, name, there.version), "what is gone is gone"


def test_an_object_is_replaced_on_condition_of_its_version(store: Store) -> None:
    if not isinstance(store, Replacing):
        return
    assert not store.put_if("dir/b ü", b"1", "gone"), "nothing is made"
    assert store.stat("dir/b ü") is None
    store.put("dir/b ü", b"1")
    before = store.stat("dir/b ü")
    assert before is not None
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda i: again(lambda: store.put_if("dir/b ü", f"of {i}".encode(), before.version)), range(8)))
    assert sum(won) == 1
    assert store.get("dir/b ü") == f"of {won.index(True)}".encode()
    assert not store.put_if("dir/b ü", b"late", before.version)
    assert store.get("dir/b ü") == f"of {won.index(True)}".encode()


def test_rename_moves_an_object_in_one_step_or_is_refused(store: Store) -> None:
    store.put("_quire/a", b"1")
    if not store.can_rename:
        with pytest.raises(StorageError, match="rename"):
            store.rename("_quire/a", "b")
        assert store.get("_quire/a") == b"1"
        return
    store.rename("_quire/a", "new/dir/b")
    assert store.get("new/dir/b") == b"1"
    for new in ("new/dir/b", "other"):
        with pytest.raises(NotFoundError):
            store.rename("_quire/a", new)
    assert [e.name for e in store.walk()] == ["new/dir/b"]


def test_a_stores_own_files_lie_with_those_of_quire(store: Store) -> None:
    """In a table that is another directory: in any other, readers of tables take a temporary file for data."""
    table = store if isinstance(store, Within) else Within(store)
    table.put("a", b"1")
    assert table.put_if_absent("_quire/log/b", b"2")
    assert not table.put_if_absent("_quire/log/b", b"3")
    sink = table.create("c/d")
    sink.write(b"4")
    sink.close()
    assert sorted(e.name for e in table.inner.walk()) == [".hoodie/_quire/log/b", "a", "c/d"]
    assert not table.inner.is_folder("_quire"), "what the store makes by itself lies below its `state`"
    table.remove("_quire/log/b")
    table.sweep("_quire")
    assert sorted(e.name for e in table.inner.walk()) == ["a", "c/d"]


# ------------------------------------------------------------------------------------------------------------------ listing
def test_one_level_is_listed_as_files_and_folders(store: Store) -> None:
    for i in range(20):
        store.put(f"d/f{i:02}", b"x" * i)
    store.put("d/sub/y", b"")
    store.put("d/sub/z/zz", b"")
    store.put("dd", b"")
    found = list(store.scan("d"))
    files = {i.name: i for i in found if isinstance(i, Entry)}
    assert {name: e.size for name, e in files.items()} == {f"d/f{i:02}": i for i in range(20)}
    assert [i.name for i in found if isinstance(i, Folder)] == ["d/sub"]
    assert not [i for i in found if isinstance(i, Trouble)]
    for name, entry in files.items():
        assert store.stat(name) == entry, "a listing and a look say the same of a file"
    some = {i.name for i in store.scan("d", after="f06", until="f19") if isinstance(i, Entry)}
    assert some == {f"d/f{i:02}" for i in range(6, 19)}
    assert [i.name for i in store.scan("d", after="g") if not isinstance(i, Entry)] == ["d/sub"]
    assert sorted(store.peek("d")) == sorted([(f"f{i:02}", False) for i in range(20)] + [("sub", True)])
    assert shown(store) == [("d", True), ("dd", False)]
    assert sorted(e.name for e in store.walk("d")) == sorted([*files, "d/sub/y", "d/sub/z/zz"])
    assert len(list(store.walk())) == 23


def test_slices_of_a_directory_have_each_name_once(store: Store) -> None:
    """Also where a directory `a` stands behind the file `a!`, as `a/`."""
    files = ["c!!", "c-", "c-0", "c.x", "c0", "c00", "cd!", "d", "é!", "日本", "😀", *(f"x{i:03}" for i in range(40))]
    folders = ["c", "c!", "c-d", "cd", "é", "x00", "x01", "x02-"]
    for name in (*(f"d/{name}" for name in files), *(f"d/{name}/deep/file" for name in folders)):
        store.put(name, b"")
    bounds = sorted({*files, *folders, "c-c", "x0", "x02", "zz"})
    for some in (bounds, bounds[1::2], bounds[2::7], bounds[5:6]):
        found = list[str]()
        for after, until in pairwise(("", *some, "")):
            for item in store.scan("d", after=after, until=until):
                last = item.name.removeprefix("d/")
                inside = last >= after and (not until or last < until)
                assert inside or isinstance(item, Folder), "directories beyond a slice are passed over, files are not given"
                found += [last] if inside else []
        assert sorted(found) == sorted([*files, *folders]), some


def test_a_listing_that_begins_anywhere_gives_the_first_names_from_there(store: Store) -> None:
    if not isinstance(store, Seeking):
        return  # it does not say so
    names = [f"{i:03}" for i in range(150)]
    for name in names:
        store.put(f"d/{name}", b"")
    store.put("d/150/x", b"")
    assert store.first("d", "", 1000) == [(name, False) for name in names] + [("150", True)]
    assert store.first("d", "", 3) == [("000", False), ("001", False), ("002", False)]
    begins = store.first("d", "100", 1) == [("100", False)]
    for after, expected in [("050", "050"), ("0505", "051"), ("149", "149"), ("15", "150")]:
        found = store.first("d", after, 2)
        assert found is not None
        assert found[0][0] == (expected if begins else "000"), "a service that passes over where to begin, begins at the beginning"
    assert not begins or store.first("d", "2", 5) == []
    assert store.first("nothing", "", 5) == []


@pytest.mark.nth(3)
def test_a_listing_has_many_pages(store: Store) -> None:
    names = [f"{i % 3}/{i:05}" for i in range(2400)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: store.put(name, b""), names))
    assert sorted(e.name for e in store.walk()) == sorted(names)
    assert sorted(i.name for i in store.scan("1")) == sorted(n for n in names if n.startswith("1/"))
    assert shown(store) == [("0", True), ("1", True), ("2", True)]
    assert next(iter(store.walk("2"))).name.startswith("2/"), "a listing may be left"
    store.remove_tree("1")
    assert shown(store) == [("0", True), ("2", True)]
    assert len(list(store.walk())) == len(names) - len([n for n in names if n.startswith("1/")])


# ------------------------------------------------------------------------------------------------------------- reading many
@pytest.mark.parametrize("size", [0, 1, MiB, MiB + 1, 9 * MiB])
def test_many_are_read_in_their_order_whole_and_in_ranges(store: Store, size: int) -> None:
    data = os.urandom(size)
    store.put("a", data)
    store.put("b", b"2")
    wanted = asked(store, "a", "b", "a")
    wanted += [r._replace(start=size // 3, length=size // 2) for r in wanted[:1]]
    answers = [(request, content(answer)) for request, answer in store.read_many(wanted)]
    assert answers == [(wanted[0], data), (wanted[1], b"2"), (wanted[2], data), (wanted[3], data[size // 3 : size // 3 + size // 2])]


@pytest.mark.nth(3)
def test_hundreds_are_read_in_their_order(store: Store) -> None:
    names = [f"f{i:04}" for i in range(1500)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: store.put(name, name.encode() * (1 + int(name[1:]) % 40)), names))
    wanted = [ReadRequest(e.name, e.version, e.size, 0, e.size) for e in sorted(store.walk())]
    pulled = 0

    def slowly() -> Iterator[ReadRequest]:
        nonlocal pulled
        for request in wanted:
            pulled += 1
            yield request

    answers = store.read_many(slowly())
    assert next(answers)[0] == wanted[0]
    found = [(request.name, content(answer)) for request, answer in answers]
    assert found == [(name, name.encode() * (1 + int(name[1:]) % 40)) for name in names[1:]]
    assert pulled == len(wanted)
    assert list(store.read_many([])) == []


def test_reading_may_be_left_and_leaves_no_thread(store: Store) -> None:
    names = [f"f{i:03}" for i in range(100)]
    for name in names:
        store.put(name, b"x" * 1000)
    store.put("long", os.urandom(12 * MiB))
    before = threading.active_count()
    answers = store.read_many(asked(store, *names))
    assert content(next(answers)[1]) == b"x" * 1000
    answers.close()  # type: ignore[attr-defined]
    never = store.read_many(asked(store, *names))
    del never
    for request, answer in store.read_many(asked(store, "long", "f000")):
        if request.name == "long" and not isinstance(answer, bytes):
            assert not isinstance(answer, Exception)
            assert next(answer), "a stream may be left, too"
        else:
            assert len(content(answer)) in (1000, 12 * MiB)
    assert threading.active_count() <= before


@pytest.mark.parametrize("size", [0, 10, 5 * MiB])
def test_what_vanished_or_changed_since_it_was_listed_is_not_given(store: Store, size: int) -> None:
    for name in "abc":
        store.put(name, b"x" * size)
    wanted = asked(store, "a", "b", "c")
    threading.Event().wait(0.02)  # a store whose version is size and time: let the time be another
    store.put("a", b"y" * size)
    store.remove("b")
    found = list[Any]()
    for _, answer in store.read_many(wanted):
        try:
            found.append(len(content(answer)))
        except Vanished as e:
            found.append(str(e))
    again = store.stat("a")
    same = again is not None and again.version == wanted[0].version  # where the version is of the content alone
    assert same == (size == 0 and found[0] == 0)
    assert (same or "changed" in found[0], "vanished" in found[1], found[2]) == (True, True, size)


def test_a_request_for_no_bytes_tells_of_the_version_and_moves_no_content(store: Store) -> None:
    for name in "abc":
        store.put(name, os.urandom(9 * MiB))
    wanted = [request._replace(length=0) for request in asked(store, "a", "b", "c")]
    assert [content(answer) for _, answer in store.read_many(wanted)] == [b""] * 3  # nothing is loaded for the first time below
    threading.Event().wait(0.02)
    store.put("b", b"changed")
    store.remove("c")
    tracemalloc.start()
    try:
        found = list[Any]()
        for _, answer in store.read_many(wanted):
            try:
                found.append(content(answer))
            except Vanished as e:
                found.append(str(e))
        assert tracemalloc.get_traced_memory()[1] < 2 * MiB
    finally:
        tracemalloc.stop()
    assert (found[0], "changed" in found[1], "vanished" in found[2]) == (b"", True, True)


# ---------------------------------------------------------------------------------------------------------- many deletions
def test_many_objects_are_deleted_at_once_whatever_their_names(store: Store) -> None:
    kept, gone = [f"out/kept{i}" for i in range(3)], ["a/b", *(f"out/{i}" for i in range(30))]
    for name in ODD:
        try:
            store.put(f"odd/{name}", b"x")
        except (StorageError, FormatError):
            continue
        gone.append(f"odd/{name}")
    for name in [*kept, *gone]:
        store.put(name, b"x")
    remove_all(store, [*gone, "never/there"])
    assert sorted(entry.name for entry in store.walk()) == kept
    remove_all(store, gone)
    remove_all(store, [])
    assert sorted(entry.name for entry in store.walk()) == kept


# ------------------------------------------------------------------------------------------------------------------- copies
def test_a_copy_is_whole_and_of_the_version_that_is_meant_or_is_not_made(store: Store) -> None:
    if not isinstance(store, Copying):
        assert store.can_rename, "what a user's own job has written could not be published there"
        return
    name, data = "_quire/jobs/x/a b+%41/ü.txt", os.urandom(9 * MiB)
    store.put(name, data)
    store.put("empty", b"")
    there = store.stat(name)
    assert there is not None
    assert not store.copy(name, "new/dir/ü", "another")
    assert store.stat("new/dir/ü") is None
    with ThreadPoolExecutor(4) as pool:
        copies = pool.map(lambda _: again(lambda: store.copy(name, "new/dir/ü", there.version)), range(8))
        assert set(copies) == {True}
    assert store.get("new/dir/ü") == data
    assert store.copy("empty", "new/empty")
    assert store.get("new/empty") == b""
    assert store.get(name) == data, "what was copied stays"
    store.remove(name)
    assert not store.copy(name, "other")
    assert store.stat("other") is None
    assert sorted(e.name for e in store.walk()) == ["empty", "new/dir/ü", "new/empty"]


# ------------------------------------------------------------------------------------------------------------------ uploads
def uploaded(store: Store, name: str, *pieces: bytes) -> str:
    """The handle of an upload that waits."""
    upload = store.upload(name)
    assert upload.handle == ""
    for piece in pieces:
        upload.write(piece)
    upload.close()
    return upload.handle


def test_an_upload_is_seen_by_nobody_until_it_is_completed(store: Store) -> None:
    if not has_uploads(store):
        return
    handle = uploaded(store, "out/a", b"123", memoryview(b"45"))  # type: ignore[arg-type]
    assert handle
    assert len(handle) < 2000
    assert store.stat("out/a") is None
    assert list(store.walk()) == list(store.scan("out")) == []
    with pytest.raises(NotFoundError):
        store.get("out/a")
    assert [name for name, _ in store.pending()] == [name for name, _ in store.pending("out")] == ["out/a"]
    assert list(store.pending("ou")) == []
    assert [store.complete("out/a", handle) for _ in range(3)] == [True] * 3
    assert store.get("out/a") == b"12345"
    assert list(store.pending()) == []
    store.give_up("out/a", handle)
    assert store.get("out/a") == b"12345", "what was completed stays"
    assert [e.name for e in store.walk()] == ["out/a"]


def test_an_upload_of_many_pieces_or_of_none_is_completed_by_anyone(store: Store) -> None:
    if not has_uploads(store):
        return
    piece = os.urandom(MiB)
    long, empty = uploaded(store, "long", *[piece] * 21), uploaded(store, "empty")
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: store.complete("long", long), range(8))) == {True}
        assert set(pool.map(lambda _: store.complete("empty", empty), range(8))) == {True}
    assert store.get("long") == piece * 21
    assert store.get("empty") == b""


def test_an_upload_that_was_given_up_is_no_object(store: Store) -> None:
    if not has_uploads(store):
        return
    handle = uploaded(store, "a", b"1")
    for _ in range(2):
        store.give_up("a", handle)
    assert store.stat("a") is None
    if not pieces_expire(store):
        assert list(store.pending()) == []
        assert not store.complete("a", handle)
        assert store.stat("a") is None
    discarded = store.upload("b")
    discarded.write(b"1")
    discarded.discard()
    discarded.discard()
    assert store.stat("b") is None
    for name, pending in list(store.pending()):
        store.give_up(name, pending)
    assert list(store.walk()) == []
    if not pieces_expire(store):
        assert list(store.pending()) == []


def test_two_uploads_wait_beside_each_other(store: Store) -> None:
    if not has_uploads(store):
        return
    handles = {name: uploaded(store, name, name.encode()) for name in ("out/1", "out/2", "out/3/4")}
    assert sorted(name for name, _ in store.pending()) == sorted(handles)
    store.give_up("out/2", handles["out/2"])
    for name in ("out/1", "out/3/4"):
        assert store.complete(name, handles[name])
        assert store.get(name) == name.encode()
    assert sorted(e.name for e in store.walk()) == ["out/1", "out/3/4"]


def test_a_handle_that_is_none_is_refused(store: Store) -> None:
    if not has_uploads(store):
        return
    for act in (lambda: store.complete("a", "no handle\n"), lambda: store.complete("a", ""), lambda: store.complete("a", '{"x": 1}')):
        with pytest.raises(FormatError):
            act()
    assert list(store.walk()) == []
