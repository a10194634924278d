"""Slices of a directory: whatever the order and the manners of a service, each name is in one of them; and they are of about one size."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import StorageError
from quire.planning import listing, pieces
from quire.planning.cuts import cuts
from quire.planning.deleted import ListedNames
from quire.sources.files import Root, Selection
from quire.storage import Entry, Folder, Seeking, Store, Trouble
from quire.storage.memory import MemoryStore
from quire.storage.slices import Item, behind, first_of, just_before, plain, within

# Characters about which services, or those who read their lists, may disagree.
LETTERS = st.sampled_from(list("aab!-.019AZ~ \u00e9\ud7a3\ue000\uffee😀"))
NAMES = st.text(LETTERS, min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))

ORDERS: dict[str, Callable[[str], object]] = {
    "UTF-8": lambda key: key.encode(),
    "UTF-16": lambda key: key.encode("utf-16-be"),
    "real directories": lambda key: key.rstrip("/").encode(),
}


class Service:
    """One level of a store: names of files, and of directories with a slash; listed in some order, and from some place on."""

    def __init__(self, files: set[str], folders: set[str], order: Callable[[str], object], page: int) -> None:
        self.keys = sorted([*files, *(f"{name}/" for name in folders)], key=order)
        self.order, self.page = order, page
        self.folders = folders
        self.pages = 0

    def listed(self, begins: Callable[[str], bool]) -> Iterator[list[tuple[str, Item]]]:
        found = [key for key in self.keys if begins(key)]
        for at in range(0, len(found) or 1, self.page):
            self.pages += 1
            some = found[at : at + self.page]
            folders = [(key[:-1], Folder(key[:-1])) for key in some if key.endswith("/")]
            yield [*folders, *((key, Entry(key, 1, "v", 0)) for key in some if not key.endswith("/"))]

    def behind(self, after: str) -> Iterator[list[tuple[str, Item]]]:
        """As S3 does: what is greater than the name that is just before."""
        before = just_before(after) if plain(after) else ""
        return self.listed(lambda key: not before or self.order(key) > self.order(before))  # type: ignore[operator]

    def at(self, after: str) -> Iterator[list[tuple[str, Item]]]:
        """As Azure does."""
        return self.listed(lambda key: not plain(after) or self.order(key) >= self.order(after))  # type: ignore[operator]

    def everything(self, after: str) -> Iterator[list[tuple[str, Item]]]:
        """As a service that does not know where to begin."""
        return self.listed(lambda _: True)


@pytest.mark.nth(12)
@pytest.mark.parametrize("manner", ["behind", "at", "everything"])
@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=400, deadline=None)
@given(files=st.sets(NAMES), folders=st.sets(NAMES), bounds=st.sets(NAMES, max_size=5), page=st.integers(1, 5))
def test_each_name_is_in_one_slice(manner: str, order: str, files: set[str], folders: set[str], bounds: set[str], page: int) -> None:
    folders -= files if order == "real directories" else set()
    service = Service(files, folders, ORDERS[order], page)
    found = list[Item]()
    for after, until in pairwise(("", *sorted(bounds), "")):
        some = list(within(getattr(service, manner)(after), "", after, until, folders.__contains__))
        assert all(item.name >= after and (not until or item.name < until) for item in some)
        found += some
    assert sorted(item.name for item in found if isinstance(item, Entry)) == sorted(files)
    assert sorted(item.name for item in found if isinstance(item, Folder)) == sorted(folders)


@given(st.text(LETTERS, max_size=6), NAMES)
def test_just_before_a_name_is_before_it_in_every_order(name: str, other: str) -> None:
    before = just_before(name)
    for order in ORDERS.values():
        if plain(name) and name:
            assert order(before) < order(name)  # type: ignore[operator]
    assert "/" not in before
    assert set(behind("", other)) <= {other[:n] for n in range(1, len(other))}


def test_a_slice_asks_for_no_more_pages_than_it_has() -> None:
    names = {f"{i:06}" for i in range(100_000)}
    service = Service(names, set(), ORDERS["UTF-8"], 1000)
    some = list(within(service.behind("050000"), "", "050000", "053000", lambda _: False))
    assert (len(some), service.pages) == (3000, 4)


# ------------------------------------------------------------------------------------------------------------------ where to cut
def digits(n: int) -> list[str]:
    return [f"{i:08}" for i in range(n)]


def hashes(n: int) -> list[str]:
    draw = random.Random(1)
    return sorted(f"{draw.getrandbits(128):032x}" for _ in range(n))


def times(n: int) -> list[str]:
    return sorted(f"log-2026-{i % 12 + 1:02}-{i // 12 % 28 + 1:02}T{i // 336 % 24:02}:{i:07}.json" for i in range(n))


def people(n: int) -> list[str]:
    draw = random.Random(1)
    return sorted({f"{draw.choice(['Ann', 'Bob', 'carl', 'Émile', 'zoë', '文件'])}-{draw.randrange(10**7)}.txt" for _ in range(n)})


def signs(n: int) -> list[str]:
    draw = random.Random(1)
    return sorted({"".join(chr(draw.randrange(0x4E00, 0x9FA5)) for _ in range(4)) + ".txt" for _ in range(n)})


def mostly_one(n: int) -> list[str]:
    return sorted([f"a{i}" for i in range(500)] + [f"log-{i:09}" for i in range(n)] + [f"z{i}" for i in range(20)])


@pytest.mark.nth(6)
@pytest.mark.parametrize("wanted", [16, 100])
@pytest.mark.parametrize("kind", [digits, hashes, times, people, signs, mostly_one])
def test_a_large_directory_is_cut_evenly_without_a_look_at_all_names(kind: Callable[[int], list[str]], wanted: int) -> None:
    names = kind(100_000)
    asked = 0

    def first(after: str, most: int) -> list[str]:
        nonlocal asked
        asked += 1
        at = bisect_left(names, after)
        return names[at : at + most]

    with ThreadPoolExecutor(4) as pool:
        found = cuts(first, names[:5000], wanted, pool)
    assert found == sorted(set(found))
    assert set(found) <= set(names)
    bounds = [0, *(bisect_left(names, name) for name in found), len(names)]
    largest = max(b - a for a, b in pairwise(bounds))
    assert largest * wanted / len(names) < 5, "nobody has much more to do than the others"
    assert len(found) < 2 * wanted
    assert asked < 40 * wanted


# ---------------------------------------------------------------------------------------------------------------- in a listing
class Far(MemoryStore):
    """Counts what is asked; `begins`: whether it lists from where it is asked to."""

    def __init__(self, url: str, begins: bool = True) -> None:
        super().__init__(url)
        self.begins, self.firsts, self.peeks = begins, 0, 0

    def first(self, folder: str, after: str, most: int) -> list[tuple[str, bool]] | None:
        self.firsts += 1
        found = sorted(super().peek(folder))
        return [item for item in found if not self.begins or item[0] >= after][:most]

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        self.peeks += 1
        return super().peek(folder, follow=follow)


def listed(store: Store, monkeypatch: pytest.MonkeyPatch, parallelism: int = 4) -> list[list[str]]:
    """What each piece of a store has, as its task lists it."""
    monkeypatch.setattr(Root, "store", lambda *_: store)
    root, selection = Root(store.url), Selection()
    found = []
    for piece in pieces.pieces((root,), selection, parallelism):
        job = listing.Listing("memory://out", None, "", "", (root,), selection, None, None)  # type: ignore[arg-type]
        found.append(
            [
                name
                for chunk in listing._chunks(job, piece, listing.Listed(), ListedNames(root, selection, piece))
                for name in chunk.column("name").to_pylist()
            ]
        )
    return found


@pytest.mark.parametrize("begins", [True, False])
def test_a_listing_cuts_a_flat_directory_and_gives_each_file_once(begins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "GLANCE", 100)
    monkeypatch.setattr(pieces, "SLICE", 500)
    store = Far(f"memory://slices-{begins}", begins)
    names = {f"flat/{i:05}" for i in range(3000)} | {f"flat/0{i}/deep/{j}" for i in range(9) for j in range(5)} | {"top", "a/b/c"}
    for name in names:
        store.put(name, b"")
    found = listed(store, monkeypatch)
    assert sorted(name for some in found for name in some) == sorted(names)
    assert max(map(len, found)) < 1500, "the directory was cut"
    assert isinstance(store, Seeking)
    assert (store.peeks == 0) == begins, "all names are looked at only where the store begins elsewhere than it was asked to"


def test_many_large_directories_share_the_slices_that_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a plan would have hundreds of pieces for each of hundreds of directories, and a listing of its own for each piece."""
    monkeypatch.setattr(pieces, "GLANCE", 100)
    store = Far("memory://many")
    names = {f"{d:02}/{i:04}" for d in range(30) for i in range(300)}
    for name in names:
        store.put(name, b"")
    found = listed(store, monkeypatch)
    assert sorted(name for some in found for name in some) == sorted(names)
    assert len(found) < 2 * 30 + 8 * 4, "8 slices for each of four tasks at once, and no more because there are many directories"


def test_a_listing_holds_a_bounded_number_of_files_and_keeps_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "CHUNK", 700)
    store = Far("memory://chunks")
    for i in range(4000):
        store.put(f"{i:05}", b"")
    root = Root(store.url)
    job = listing.Listing("memory://out", None, "", "", (root,), Selection(), None, None)  # type: ignore[arg-type]
    monkeypatch.setattr(Root, "store", lambda *_: store)
    piece = pieces.Piece(0, "", True)
    chunks = [
        chunk.column("name").to_pylist() for chunk in listing._chunks(job, piece, listing.Listed(), ListedNames(root, Selection(), piece))
    ]
    assert [len(chunk) for chunk in chunks] == [700] * 5 + [500]
    assert [name for chunk in chunks for name in chunk] == [f"{i:05}" for i in range(4000)]


def test_a_directory_that_cannot_be_looked_at_is_left_to_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Far):
        def first(self, folder: str, after: str, most: int) -> list[tuple[str, bool]] | None:
            if folder == "bad":
                raise StorageError("no permission")
            return super().first(folder, after, most)

    store = Broken("memory://broken")
    for name in ("bad/x", "good/y"):
        store.put(name, b"")
    assert sorted(name for some in listed(store, monkeypatch) for name in some) == ["bad/x", "good/y"]


def test_what_is_first_is_in_order_and_no_more_than_asked_for() -> None:
    page: list[tuple[str, Item]] = [
        ("b", Folder("b")),
        ("?", Trouble("?", "unreadable", "odd")),
        ("a", Entry("a", 1, "v", 0)),
        ("c", Entry("c", 1, "v", 0)),
    ]
    assert first_of([page], "", 3) == [(".", False), ("a", False), ("b", True)], "what no path can say counts, under no name"
    assert first_of([page], "b", 9) == [("b", True), ("c", False)]


def test_of_a_directory_that_cannot_be_looked_at_just_now_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time its task lists it the service may be there again: then what lies below it must be listed too."""

    class Away(Far):
        def first(self, folder: str, after: str, most: int) -> list[tuple[str, bool]] | None:
            if folder == "b":
                raise StorageError("busy")
            return super().first(folder, after, most)

    store = Away("memory://away")
    for name in ("a/1", "b/1", "b/deep/2", "b/deep/er/3"):
        store.put(name, b"")
    assert sorted(name for some in listed(store, monkeypatch) for name in some) == ["a/1", "b/1", "b/deep/2", "b/deep/er/3"]
