"""The table's widget in a real JupyterLab: by mouse and by keyboard, in a narrow and a dark one, and without its kernel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from lab import Notebook
from playwright.sync_api import expect
from test_lab import LATER, SOON, Inspector, looked_at, notebook

import quire

TIMELINE = """\
from quire_widgets import TableTimeline
timeline = TableTimeline({place!r}, last=8, page_size=4)
timeline"""
EVIL = "<b>x & y"


class Timeline(Inspector):
    """A TableTimeline on the page."""

    def __init__(self, page: Any) -> None:
        self.page, self.root = page, page.locator(".quire-timeline").last
        expect(self.root).to_be_visible(timeout=LATER)

    def slice(self, words: str) -> Any:
        """The slices of the picture whose description begins so."""
        return self.root.locator(f'.quire-slice[title^="{words}"]')

    def tab_into(self, name: str) -> None:
        for _ in range(12):
            if self.part(name).evaluate("e => e.contains(document.activeElement)"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not lead into {name}")

    def choose_next(self) -> None:
        """In a list that has the focus: JupyterLab takes the arrows for its cells, unless the list is open."""
        for key in ("Space", "ArrowDown", "Enter"):
            self.page.keyboard.press(key)
            self.page.wait_for_timeout(300)

    def chosen(self, name: str) -> str:
        found: str = self.part(name).locator("select").evaluate("e => e.selectedOptions[0].label")
        return found


def trips(folder: Path, name: str) -> quire.Table:
    """A table with ten instants, six file groups, updates in logs, and one partition with a hostile name."""
    here: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
    table = quire.Table.create(folder / name, key="id", partition_by="city", ordering="ts", type="merge_on_read")

    def rows(cities: list[str], ts: int) -> pa.Table:
        numbers = range(len(cities))
        return pa.table(
            {"id": [f"trip-{i}" for i in numbers], "city": cities, "ts": [ts] * len(cities), "fare": [1.5 * ts + i for i in numbers]}
        )

    cities = ["la", "ny", "paris", "rome", "sf", EVIL]
    for ts in range(3):
        table.upsert(rows(cities, ts), **here)
    table.compact(**here)
    table.savepoint()
    for ts in range(3, 8):
        table.upsert(rows(cities[: ts - 1], ts), **here)
    table.schedule_compaction()
    return table


def test_the_timeline_by_mouse(page: Any, address: str, folder: Path) -> None:
    """Look, go back in time, turn pages, click an instant, a slice and a record; a commit of another program is shown on request."""
    table = trips(folder, "trips-mouse")
    lab = Notebook(page, address, notebook(folder, "timeline.ipynb", TIMELINE.format(place=str(folder / "trips-mouse"))))
    lab.run_all()
    timeline = Timeline(page)
    timeline.shows("where", "instants 3–10 of 10, file groups 1–4 of 6")
    timeline.shows("lanes", "deltacommit")
    timeline.shows("lanes", "compaction")
    areas = timeline.root.locator(".quire-instant").evaluate_all("all => all.map(e => Math.round(e.getBoundingClientRect().left))")
    assert len(set(areas)) == 8, "each instant stands below its time"
    looked_at(lab, timeline.root, "timeline-open")

    timeline.root.locator(".quire-instant").first.click()
    timeline.shows("details", "deltacommit", SOON)
    newest = timeline.slice("city=la").last
    before, after = (timeline.slice("city=la").nth(i).bounding_box() for i in (0, 1))
    assert before["x"] + before["width"] <= after["x"] + 3, "a slice ends where the next one begins"
    newest.click()
    timeline.shows("details", "Slice of city=la", SOON)
    timeline.shows("details", ".log.")
    expect(timeline.part("record-list").locator("option")).to_have_count(2, timeout=SOON)
    timeline.part("record-list").locator("select").select_option(label="trip-0")
    timeline.shows("history", "Record trip-0", SOON)
    timeline.shows("history", "fare: 3.0 → 4.5")
    expect(timeline.slice("city=la").last).to_contain_text("◆", timeout=SOON)
    expect(timeline.slice("city=ny").last).not_to_contain_text("◆")
    looked_at(lab, timeline.root, "timeline-history")
    page.set_viewport_size({"width": 800, "height": 2600})
    looked_at(lab, timeline.root, "timeline-narrow")
    page.set_viewport_size({"width": 1400, "height": 2600})

    timeline.button("Older").click()
    timeline.shows("where", "instants 1–8 of 10", SOON)
    expect(timeline.button("Older")).to_be_disabled(timeout=SOON)
    timeline.button("Last").click()
    timeline.shows("where", "instants 3–10 of 10", SOON)
    timeline.button("Next").click()
    timeline.shows("where", "file groups 5–6 of 6", SOON)
    timeline.fill(partition="<b>")
    timeline.shows("where", "file groups 1–1 of 1", SOON)
    timeline.slice("city=<b>").last.click()
    timeline.shows("details", "<b>x", SOON)
    assert timeline.root.locator(".quire-lanes b").count() == 0, "it is text"

    table.upsert(pa.table({"id": ["new"], "city": ["oslo"], "ts": [1], "fare": [1.0]}), spark=quire.LocalRunner(), progress=False)
    timeline.fill(partition="")
    timeline.button("Refresh").click()
    timeline.shows("where", "of 11, file groups", SOON)
    timeline.shows("where", "file groups 1–4 of 7")
    assert not lab.complaints
    lab.close()


def test_the_timeline_by_keyboard_alone(page: Any, address: str, folder: Path) -> None:
    """Tab passes over the picture; lists choose an instant, a slice and a record, buttons keep the focus, Enter reads a history."""
    trips(folder, "trips-keys")
    lab = Notebook(page, address, notebook(folder, "timeline-keys.ipynb", TIMELINE.format(place=str(folder / "trips-keys"))))
    lab.run_all()
    timeline = Timeline(page)
    timeline.button("Refresh").focus()
    timeline.tab_to("Older")
    page.keyboard.press("Space")
    timeline.shows("where", "instants 1–8 of 10", SOON)
    timeline.button("Refresh").focus()
    timeline.tab_into("instant-list")
    timeline.choose_next()
    timeline.shows("details", "deltacommit", SOON)
    assert timeline.chosen("instant-list").startswith("20")
    timeline.tab_into("slice-list")
    timeline.choose_next()
    timeline.shows("details", "Slice of", SOON)
    expect(timeline.part("record-list").locator("option")).to_have_count(2, timeout=SOON)
    timeline.tab_into("record-list")
    timeline.choose_next()
    timeline.shows("history", re.compile(r"Record trip-\d"), SOON)
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("trip-3")
    page.keyboard.press("Enter")
    timeline.shows("history", "Record trip-3", SOON)
    page.keyboard.press("Control+A")
    page.keyboard.type("nobody")
    timeline.tab_to("History")
    page.keyboard.press("Space")
    timeline.shows("history", "The record is not in the table", SOON)
    assert timeline.focused() == "History", "it keeps the focus"
    assert not lab.complaints
    lab.close()


def test_without_its_kernel_the_timeline_is_a_page(page: Any, address: str, folder: Path) -> None:
    """A notebook that was saved and opened again shows the picture as a table."""
    trips(folder, "trips-page")
    cell = TIMELINE.format(place=str(folder / "trips-page")).rpartition("\n")[0]
    shown = "from IPython.display import HTML\nHTML(timeline._repr_mimebundle_()['text/html'])"
    lab = Notebook(page, address, notebook(folder, "timeline-page.ipynb", f"{cell}\n{shown}"))
    lab.run_all()
    part = page.locator(".jp-OutputArea .jp-RenderedHTMLCommon").last
    expect(part).to_contain_text("instants 3–10 of 10", timeout=LATER)
    expect(part.locator('td[colspan]:not([colspan="1"])').first).to_be_visible()
    looked_at(lab, part, "timeline-page")
    lab.close()
