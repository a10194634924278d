"""The page of destinations in a real JupyterLab: by mouse and by keyboard, in a narrow and a dark one, and without its kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from lab import Notebook
from playwright.sync_api import expect
from test_lab import LATER, SOON, Inspector, looked_at, notebook
from test_lab_timeline import Timeline, trips

import quire
from gathering import gather, write

STATUS = """\
from quire_widgets import StatusPage
page = StatusPage({dests!r}, look_every=0.5)
page"""


class Status(Inspector):
    """A StatusPage on the page."""

    def __init__(self, page: Any) -> None:
        self.page, self.root = page, page.locator(".quire-status-page").last
        expect(self.root).to_be_visible(timeout=LATER)


def story(folder: Path, name: str) -> tuple[Path, list[str]]:
    """A source, a destination that is well, one with much in quarantine, and none."""
    source, place = write(folder / f"{name}-in", {f"{i}.xml": b"<a>%d</a>" % i for i in range(10)}), folder / name
    bad = write(folder / f"{name}-bad", {f"{i}.xml": b"<a>" if i % 2 else b"<a/>" for i in range(10)})
    gather(source, place / "well", transform="xml")
    gather(bad, place / "<b>ill & so", transform="xml", max_quarantined=9)
    return source, [str(place / "well"), str(place / "<b>ill & so"), str(place / "none")]


def test_the_timeline_of_a_table_opens_below_its_line_by_mouse_and_by_keyboard(page: Any, address: str, folder: Path) -> None:
    _, (well, *_) = story(folder, "tables")
    table = trips(folder, "tables-trips")
    lab = Notebook(page, address, notebook(folder, "status-table.ipynb", STATUS.format(dests=[well, str(folder / "tables-trips")])))
    lab.run_all()
    status = Status(page)
    show = status.root.get_by_role("button", name="Show the timeline")
    expect(show).to_have_count(1, timeout=SOON)  # the other one is not a table
    show.click()
    timeline = Timeline(page)
    timeline.shows("where", "instants 1–10 of 10, file groups 1–6 of 6", SOON)
    timeline.slice("city=la").last.click()
    timeline.shows("details", "Slice of city=la", SOON)
    expect(timeline.part("record-list").locator("option")).to_have_count(2, timeout=SOON)
    timeline.part("record-list").locator("select").select_option(label="trip-0")
    timeline.shows("history", "Record trip-0", SOON)
    looked_at(lab, status.root, "status-timeline")
    page.set_viewport_size({"width": 800, "height": 2600})
    looked_at(lab, status.root, "status-timeline-narrow")
    page.set_viewport_size({"width": 1400, "height": 2600})
    table.upsert(pa.table({"id": ["new"], "city": ["oslo"], "ts": [1], "fare": [1.0]}), spark=quire.LocalRunner(), progress=False)
    timeline.shows("where", "instants 1–11 of 11, file groups 1–7 of 7", SOON)  # it looks by itself
    timeline.shows("history", "Record trip-0")

    status.root.get_by_role("button", name="Hide the timeline").focus()
    page.keyboard.press("Space")
    expect(status.root.locator(".quire-timeline")).to_have_count(0, timeout=SOON)
    page.keyboard.press("Space")
    timeline = Timeline(page)
    timeline.shows("where", "instants 1–11 of 11", SOON)
    assert status.focused() == "Hide the timeline", "it keeps the focus"
    timeline.tab_into("instant-list")
    timeline.choose_next()
    timeline.shows("details", "deltacommit", SOON)
    assert not lab.complaints
    lab.close()


def test_the_page_by_mouse_and_by_keyboard(page: Any, address: str, folder: Path) -> None:
    source, (well, ill, none) = story(folder, "status")
    lab = Notebook(page, address, notebook(folder, "status.ipynb", STATUS.format(dests={well: str(source), ill: None, none: None})))
    lab.run_all()
    status = Status(page)
    status.shows("verdict", "3 destinations: 1 well, 1 to look after, 1 not known", SOON)
    lines = status.root.locator(".quire-status-line")
    expect(lines.nth(0)).to_contain_text("✓")
    expect(lines.nth(1)).to_contain_text("<b>ill & so: 5 quarantined (50.00%")
    expect(lines.nth(2)).to_contain_text("holds no ledger")
    status.root.get_by_role("button", name="Show all that is known").nth(1).click()
    expect(status.root.locator(".quire-facts table").first).to_be_visible(timeout=SOON)
    looked_at(lab, status.root, "status-page")
    page.set_viewport_size({"width": 700, "height": 2600})
    looked_at(lab, status.root, "status-page-narrow")
    page.set_viewport_size({"width": 1400, "height": 2600})
    write(source, {f"bad{i}.xml": b"<a>" for i in range(9)})
    gather(source, Path(well), transform="xml", max_quarantined=9)
    status.shows("verdict", "2 to look after", SOON)  # it looks by itself
    status.button("Refresh").focus()
    page.keyboard.press("Space")
    status.tab_to("Hide all that is known")
    page.wait_for_timeout(1_200)
    assert status.focused() == "Hide all that is known", "looking again takes nothing away"
    page.keyboard.press("Space")
    expect(status.root.locator(".quire-facts table")).to_have_count(0, timeout=SOON)
    assert not lab.complaints
    lab.close()
