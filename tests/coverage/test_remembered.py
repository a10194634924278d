"""What a process remembers of checkpoints' pieces: of each destination the newest few, and never more than so many."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor

from quire.commit import names
from quire.coverage.remembered import CHECKPOINTS, Remembered


class Place:
    """What was found."""


def piece(version: int, number: int = 0) -> str:
    return names.checkpoint_piece(version, "a" * 12, "rows", number)


def test_the_same_place_comes_for_the_same_piece_and_key() -> None:
    places = Remembered(Place, 10)
    first = places.of("file:///a", piece(1))
    assert places.of("file:///a", piece(1)) is first
    others = [("file:///b", piece(1)), ("file:///a", piece(2)), ("file:///a", piece(1, 1)), ("file:///a", piece(1), "key")]
    assert len({id(place) for place in (first, *(places.of(*other) for other in others))}) == 5


def test_places_of_older_checkpoints_end_with_them_and_only_in_their_destination() -> None:
    places = Remembered(Place, 1_000)
    asked = [(url, version, key) for url in ("file:///a", "file:///b") for version in (1, 2) for key in (0, 1)]
    held = {(url, version, key): weakref.ref(places.of(url, piece(version), key)) for url, version, key in asked}
    assert CHECKPOINTS == 2
    newer = [weakref.ref(places.of("file:///a", piece(version))) for version in (3, 4, 5)]
    assert {at for at, place in held.items() if place() is not None} == {at for at in asked if at[0] == "file:///b"}
    assert [place() is None for place in newer] == [True, False, False]
    older = places.of("file:///a", piece(4))  # who reads an older version goes on beside a loop
    assert places.of("file:///a", piece(5)) is newer[2]()
    assert places.of("file:///a", piece(4)) is older


def test_copies_have_the_place_of_what_they_are_copies_of_as_long_as_anybody_asks_for_them() -> None:
    places = Remembered(Place, 1_000)
    content, other = piece(1, 7), weakref.ref(places.of("file:///a", piece(1, 8), content="x"))
    first = places.of("file:///a", piece(1, 7), content=content)
    assert all(places.of("file:///a", piece(version, version % 3), content=content) is first for version in range(2, 9))
    assert other() is None, "no newer checkpoint has it"
    assert places.of("file:///b", piece(1, 7), content=content) is not first


def test_the_places_that_were_asked_for_last_stay() -> None:
    places = Remembered(Place, 3)
    held = [places.of("file:///a", piece(1), n) for n in range(3)]
    assert places.of("file:///a", piece(1), 0) is held[0]
    places.of("file:///a", piece(1), 3)
    assert [places.of("file:///a", piece(1), n) is held[n] for n in (0, 2)] == [True, True]
    assert places.of("file:///a", piece(1), 1) is not held[1]


def test_threads_share_places() -> None:
    places = Remembered(Place, 4)
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda n: places.of(f"file:///{n % 2}", piece(1 + n // 2_000), n % 3), range(8_000))]
    assert all(isinstance(place, Place) for place in found)
