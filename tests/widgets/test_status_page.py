"""The page of destinations: whether each is well and what to do, in one line, whatever is wrong with the others."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quire
from gathering import gather, refused, write
from pages import Balanced, click, everything, markup, one, text_of, walk
from quire.errors import StorageError, UsageError
from quire_widgets import StatusPage, form, status_page

SECRET = "hunter2hunter2"


@pytest.fixture
def made() -> Iterator[Callable[..., StatusPage]]:
    """Makes pages that end with the test."""
    pages = list[StatusPage]()

    def make(dests: Any, **settings: Any) -> StatusPage:
        pages.append(StatusPage(dests, **{"watch": False, **settings}))
        assert pages[-1].wait(20)
        return pages[-1]

    yield make
    for page in pages:
        page.close()
        page.wait(20)


def story(folder: Path) -> tuple[Path, Path, Path]:
    """A source, a destination that is well, and one of which much is quarantined."""
    source = write(folder / "in", {f"{i}.xml": b"<a>%d</a>" % i for i in range(10)})
    bad = write(folder / "bad", {f"{i}.xml": b"<a>" if i % 2 else b"<a/>" for i in range(10)})
    gather(source, folder / "well", transform="xml")
    gather(bad, folder / "ill", transform="xml", max_quarantined=9)
    return source, folder / "well", folder / "ill"


def shows(page: StatusPage, name: str) -> str:
    return text_of(one(page, f"quire-{name}").value)


def said_of(page: StatusPage) -> list[str]:
    return [text_of(w.value) for w in walk(page) if "quire-status-line" in w._dom_classes]


def test_a_line_for_each_says_whether_it_is_well_and_what_to_do(tmp_path: Path, made: Callable[..., StatusPage]) -> None:
    source, well, ill = story(tmp_path)
    page = made({str(well): str(source), str(ill): None})
    first, second = said_of(page)
    assert first.startswith(f"✓ file://{well}: well, 10 records in 1 data file")
    assert f"file://{ill}: 5 quarantined (50.00% of what was read" in second
    assert f"See why: quire ledger quarantined {ill}" in second
    assert shows(page, "verdict").startswith("2 destinations: 1 well, 1 to look after (2")
    assert page.ok is False
    assert page.seen[str(well)].unprocessed == 0
    assert page.troubles == {}
    write(source, {"more.xml": b"<a/>"})
    click(page, "refresh")
    assert page.wait(20)
    assert page.seen[str(well)].unprocessed == 1
    made_again = made([well])
    assert made_again.ok is True
    assert shows(made_again, "verdict").startswith("1 destination: 1 well (")


def test_what_does_not_answer_is_told_and_the_others_are_looked_at(
    tmp_path: Path, made: Callable[..., StatusPage], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, well, _ = story(tmp_path)
    page = made([tmp_path / "nothing", well])
    assert "holds no ledger" in said_of(page)[0]
    assert said_of(page)[1].startswith("✓")
    assert page.ok is None
    assert list(page.troubles) == [str(tmp_path / "nothing")]
    monkeypatch.setattr(status_page.quire, "status", lambda *_, **__: (_ for _ in ()).throw(StorageError(f"it is away. key={SECRET}")))
    page.refresh()
    assert page.wait(20)
    assert "it is away" in said_of(page)[1]
    assert page.seen[str(well)].files == 10, "what was seen before stays"
    next(w for w in walk(page) if "quire-facts-button" in w._dom_classes and w.layout.display is None).click()
    assert "10" in text_of(next(w for w in walk(page) if "quire-facts" in w._dom_classes and w.value).value)
    monkeypatch.undo()
    page.refresh()
    assert page.wait(20)
    assert said_of(page)[1].startswith("✓")
    assert shows(page, "verdict").startswith("2 destinations: 1 well, 1 not known")


def test_one_that_does_not_answer_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, well, ill = story(tmp_path)
    whole, answers = status_page.quire.status, threading.Event()

    def status(dest: str, *args: Any, **more: Any) -> Any:
        assert dest != str(ill) or answers.wait(20)
        return whole(dest, *args, **more)

    monkeypatch.setattr(form, "FIRST", 0.1)
    monkeypatch.setattr(status_page.quire, "status", status)
    page = StatusPage([ill, well], watch=False)
    try:
        for _ in range(2):
            page.refresh()
            deadline = time.monotonic() + 20
            before = page.seen.get(str(well))
            while page.seen.get(str(well)) is before and time.monotonic() < deadline:
                time.sleep(0.02)
            assert list(page.seen) == [str(well)]
        assert not page.wait(0.1)
        assert page.ok is None
    finally:
        answers.set()
        assert page.wait(20)
        page.close()
    assert page.ok is False


def test_an_observer_that_fails_is_told_and_the_next_look_comes(tmp_path: Path, made: Callable[..., StatusPage]) -> None:
    source, well, _ = story(tmp_path)
    page, heard = made({str(well): str(source)}), list[Any]()

    def fails(change: Any) -> None:
        heard.append(change["new"])
        raise ValueError("mine")

    page.observe(fails, "ok")
    write(source, {"more.xml": b"<a>", "less.xml": b"<a>"})
    gather(source, well, transform="xml", max_quarantined=9)
    click(page, "refresh")
    assert page.wait(20)
    assert "ValueError: mine" in shows(page, "trouble")
    page.unobserve(fails, "ok")
    click(page, "refresh")
    assert page.wait(20)
    assert shows(page, "trouble") == ""
    assert heard == [False]


def test_it_looks_by_itself_while_it_is_shown(tmp_path: Path, made: Callable[..., StatusPage]) -> None:
    source, well, _ = story(tmp_path)
    page = made({str(well): str(source)}, look_every=0.05, watch=True)
    write(source, {"more.xml": b"<a>"})
    gather(source, well, transform="xml", max_quarantined=9)
    deadline = time.monotonic() + 20
    while page.ok is not False and time.monotonic() < deadline:
        time.sleep(0.02)
    assert page.seen[str(well)].quarantined == 1
    assert page.ok is False
    page._view_count = 1
    page._view_count = 0  # nobody sees it
    assert page.wait(20)
    time.sleep(0.2)
    before = page._looked, page.seen[str(well)].time
    time.sleep(0.3)
    assert (page._looked, page.seen[str(well)].time) == before
    page._view_count = 1
    assert page.wait(20)
    assert page.seen[str(well)].time > before[1]


def test_without_a_kernel_the_page_says_the_same_and_no_secret(tmp_path: Path, made: Callable[..., StatusPage]) -> None:
    evil = tmp_path / "<b>x & y"
    source, well, ill = story(evil)
    page = made({str(well): str(source), str(ill): None}, max_age="1 h", storage_options={"account_key": SECRET})
    told = everything(page)
    assert SECRET not in told
    assert "<b>x" not in markup(page)
    assert html.escape("<b>x & y") in markup(page)
    assert Balanced(page._repr_mimebundle_()["text/html"]).open == []
    assert "storage_options=storage_options" in page.code
    assert repr(page).splitlines()[0].startswith("2 destinations: 1 well, 1 to look after")
    found = dict[str, Any]()
    exec(page.code.replace("storage_options=storage_options", "storage_options=None"), found)
    assert found["status"].quarantined == 5


def trips(place: Path) -> quire.Table:
    """A table with a commit."""
    table = quire.Table.create(place, key="id")
    upsert(table, "trip-0", "trip-1")
    return table


def upsert(table: quire.Table, *keys: str) -> str:
    report = table.upsert(pa.table({"id": keys, "fare": [1.5] * len(keys)}), spark=quire.LocalRunner(), progress=False)
    return str(report.instant)


def parts(page: StatusPage, css: str) -> list[Any]:
    return [w for w in walk(page) if f"quire-{css}" in w._dom_classes]


def test_a_button_below_the_line_of_a_table_shows_its_timeline(tmp_path: Path, made: Callable[..., StatusPage]) -> None:
    _, well, _ = story(tmp_path)
    table = trips(tmp_path / "trips")
    page = made([well, tmp_path / "trips"])
    buttons = parts(page, "table-button")
    assert [b.layout.display for b in buttons] == ["none", None], "the other one is not a table"
    assert buttons[1].description == "Show the timeline"
    buttons[1].click()
    assert page.wait(20)
    (timeline,) = page.timelines.values()
    assert buttons[1].description == "Hide the timeline"
    assert "instants 1–1 of 1" in shows(page, "where")
    page.show_timeline(tmp_path / "trips")  # it is open
    assert page.wait(20)
    assert list(page.timelines.values()) == [timeline]
    timeline.look("trip-1")
    assert page.wait(20)
    assert timeline.result.key == "trip-1"
    assert "Record trip-1" in markup(page)
    assert Balanced(page._repr_mimebundle_()["text/html"]).open == []
    last = upsert(table, "trip-1")
    parts(page, "refresh-button")[0].click()
    assert page.wait(20)
    assert "instants 1–2 of 2" in shows(page, "where"), "it follows the table"
    assert timeline.result["instant"].tolist()[-1] == last
    assert "instants 1–2 of 2" in repr(page)
    timeline.show_instant(last)
    parts(page, "refresh-button")[0].click()
    assert page.wait(20)
    assert last in shows(page, "details"), "what was chosen stays"
    buttons[1].click()
    assert page.timelines == {}
    assert buttons[1].description == "Show the timeline"
    assert "instants" not in repr(page)


def test_a_timeline_that_cannot_be_read_is_one_line_and_the_page_stays(tmp_path: Path, made: Callable[..., StatusPage]) -> None:
    _, well, _ = story(tmp_path)
    trips(tmp_path / "trips")
    page = made([well, tmp_path / "trips"])
    page.show_timeline(well)
    assert page.wait(20)
    assert page.timelines == {}
    told = [text_of(w.value) for w in parts(page, "table-message")]
    assert "is not a table" in told[0]
    assert told[1] == ""
    (damaged,) = (tmp_path / "trips/.hoodie").glob("*.commit")
    content = damaged.read_bytes()
    damaged.write_bytes(b"{")
    page.show_timeline(tmp_path / "trips")
    assert page.wait(20)
    assert f"{damaged.name} is damaged" in text_of(parts(page, "table-message")[1].value)
    damaged.write_bytes(content)
    page.show_timeline(tmp_path / "trips")
    assert page.wait(20)
    assert list(page.timelines) == [str(tmp_path / "trips")]
    with refused(UsageError, 2, f"'/none' is not on this page, which has '{well}', '{tmp_path}/trips'."):
        page.show_timeline("/none")


def test_a_store_that_does_not_answer_holds_up_neither_the_page_nor_the_kernel(
    tmp_path: Path, made: Callable[..., StatusPage], monkeypatch: pytest.MonkeyPatch
) -> None:
    trips(tmp_path / "trips")
    page, answers, opens = made([tmp_path / "trips"]), threading.Event(), status_page.TableTimeline

    def slow(*given: Any) -> Any:
        assert answers.wait(20)
        return opens(*given)

    monkeypatch.setattr(status_page, "TableTimeline", slow)
    page.show_timeline(tmp_path / "trips")
    assert not page.wait(0.1)
    assert shows(page, "table-message") == "Looking at the table …"
    assert page.timelines == {}
    click(page, "table")  # impatience opens it once
    answers.set()
    assert page.wait(20)
    assert len(page.timelines) == 1
    assert shows(page, "table-message") == ""


@pytest.mark.parametrize(
    ("dests", "settings", "words"),
    [
        ([], {}, "a page is about destinations, and none is named"),
        ({}, {}, "none is named"),
        (5, {}, "none is named"),
        ([""], {}, "'' is not one"),
        ([None], {}, "None is not one"),
        (["/x"], {"look_every": "abc"}, "look_every='abc' is not a time span"),
        (["/x"], {"max_age": "soon"}, "max_age='soon' is not a time span"),
    ],
)
def test_wrong_words(dests: Any, settings: dict[str, Any], words: str) -> None:
    with refused(UsageError, 2, words):
        StatusPage(dests, **settings)
