"""The load's widget in a real JupyterLab: by mouse and by keyboard, in a narrow and a dark one, and without its kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lab import Notebook
from playwright.sync_api import expect
from test_lab import LATER, SOON, Inspector, looked_at, notebook

import quire
from loading import load, numbered
from services.kafka import Mock, Record, mock

MONITOR = """\
import quire
from quire_widgets import LoadMonitor

def picky(batch):
    if any((value or b"").startswith(b"bad") for value in batch.column("value").to_pylist()):
        raise ValueError("a bad record")
    return batch.select(["value", "topic", "partition", "offset"])

monitor = LoadMonitor({dest!r}, {source!r}, picky, function_version="1", spark=quire.LocalRunner(),
                      every="300 ms", look_every=0.5, page_size=10)
monitor"""


class Monitor(Inspector):
    """A LoadMonitor on the page."""

    def __init__(self, page: Any) -> None:
        self.page, self.root = page, page.locator(".quire-monitor").last
        expect(self.root).to_be_visible(timeout=LATER)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


def story(kafka: Mock, folder: Path, name: str) -> tuple[Path, str]:
    """A destination with commits, records in quarantine, a heavy partition and a loss, and with records that are still to be loaded."""
    kafka.create(name, 25)
    dest, there = folder / f"{name}-out", {"__name__": "__main__"}  # as a kernel calls itself: its function is the same one
    exec(MONITOR.partition("monitor =")[0], there)
    settings: dict[str, Any] = {"function_version": "1", "on_data_loss": "record"}
    for turn in range(3):
        kafka.produce(name, [*numbered(200, 25, first=200 * turn), *(Record(b"heavy", partition=3) for _ in range(90))])
        kafka.produce(name, [Record(b"bad <b>%d</b> & \xc3\xa9" % i, partition=7) for i in range(4)])
        load(kafka, name, dest, there["picky"], **settings)
    kafka.produce(name, [Record(b"gone", partition=9)] * 6)
    kafka.delete_records(name, {9: 28})
    load(kafka, name, dest, there["picky"], **settings)
    kafka.produce(name, numbered(75, 25))
    return dest, f"kafka://{kafka.address}/{name}"


def test_the_monitor_by_mouse(page: Any, address: str, folder: Path, kafka: Mock) -> None:
    """Look, turn pages, order, open what is closed, start, watch it load, stop, resume."""
    dest, source = story(kafka, folder, "by-mouse")
    lab = Notebook(page, address, notebook(folder, "monitor.ipynb", MONITOR.format(dest=str(dest), source=source)))
    lab.run_all()
    monitor = Monitor(page)
    monitor.shows("summary", "75 offsets, in 25 of 25 partitions", SOON)
    monitor.shows("partitions", "1–10 of 25 partitions")
    monitor.button("Next").click()
    monitor.shows("partitions", "11–20 of 25 partitions", SOON)
    monitor.fill(order="records")
    monitor.shows("partitions", "1–10 of 25 partitions", SOON)
    expect(monitor.part("partitions").locator("tbody tr").first).to_contain_text("294")
    for name in ("the last commits", "records by partition", "the first records in quarantine"):
        monitor.button(f"Show {name}").click()
        expect(monitor.button(f"Hide {name}")).to_be_visible(timeout=SOON)
    monitor.shows("quarantined", "bad <b>0</b> & é", SOON)
    expect(monitor.part("skew").locator("svg")).to_be_visible(timeout=SOON)
    monitor.shows("losses", "Lost: 4 offsets")
    looked_at(lab, monitor.root, "monitor-open")
    page.set_viewport_size({"width": 800, "height": 2600})
    looked_at(lab, monitor.root, "monitor-narrow")
    page.set_viewport_size({"width": 1400, "height": 2600})

    monitor.button("Start").click()
    monitor.shows("summary", re.compile(r"lag\s*0 offsets"), SOON)
    kafka.produce("by-mouse", numbered(50, 25))
    monitor.shows("timeline", "6 commits", SOON)
    monitor.button("Stop").click()
    monitor.shows("load-message", "Stopped after a whole commit", SOON)
    monitor.shows("quarantined", "bad <b>0</b>")
    kafka.produce("by-mouse", numbered(25, 25))
    monitor.shows("summary", "25 offsets, in 25 of 25", SOON)
    monitor.button("Resume").click()
    monitor.shows("timeline", "7 commits", SOON)
    monitor.button("Stop").click()
    monitor.shows("load-message", "Stopped after a whole commit", SOON)
    assert quire.Ledger(dest).summary().open_jobs == ()
    assert quire.Ledger(dest).inspect.lag(source)["lag"].sum() == 0
    assert not lab.complaints
    lab.close()


def test_the_monitor_by_keyboard_and_without_its_kernel(page: Any, address: str, folder: Path, kafka: Mock) -> None:
    """Tab and the space bar do all of it, and keep the focus while it looks again; a colleague reads the saved page."""
    dest, source = story(kafka, folder, "by-keys")
    views = folder / "views"
    count = f"monitor.observe(lambda change: open({str(views)!r}, 'a').write(str(change['new'])), '_view_count')"
    lab = Notebook(page, address, notebook(folder, "monitor-keys.ipynb", MONITOR.format(dest=str(dest), source=source), count))
    lab.run_all()
    monitor = Monitor(page)
    monitor.button("Start").focus()
    page.keyboard.press("Tab")
    assert monitor.focused() == "Refresh", "what cannot be pressed is passed over"
    for name in ("Show the last commits", "Next", "Show the first records in quarantine"):
        monitor.tab_to(name)
        page.keyboard.press("Space")
    monitor.shows("partitions", "11–20 of 25 partitions", SOON)
    monitor.shows("quarantined", "10 of 12 records", SOON)
    page.wait_for_timeout(1_200)
    assert monitor.focused() == "Hide the first records in quarantine", "looking again takes nothing away"
    monitor.button("Start").focus()
    page.keyboard.press("Space")
    monitor.shows("timeline", "5 commits", SOON)
    monitor.button("Stop").focus()
    page.keyboard.press("Space")
    monitor.shows("load-message", "Stopped after a whole commit", SOON)
    assert not lab.complaints

    page.evaluate("async () => { await window.jupyterapp.commands.execute('docmanager:save') }")
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    page.wait_for_timeout(500)
    assert views.read_text().endswith("0"), "it knows that nobody sees it any more"
    lab.close()
    saved = nbformat.read(folder / "monitor-keys.ipynb", as_version=4)
    saved.cells.append(nbformat.v4.new_markdown_cell("a colleague's word"))  # so JupyterLab does not take it for its own
    nbformat.write(saved, folder / "monitor-keys.ipynb")
    page.goto("about:blank")
    again = Notebook(page, address, "monitor-keys.ipynb")
    text = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    for words in (
        "75 offsets, in 25 of 25 partitions",
        "1–10 of 25 partitions",
        "In quarantine: 12 records",
        "Lost: 4 offsets",
        "quire.load",
    ):
        expect(text).to_contain_text(words, timeout=SOON)
    looked_at(again, text.locator(".jp-OutputArea").first, "monitor-static")
    again.close()
