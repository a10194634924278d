"""Makes the pictures of the README: `make pictures`. What they show is real: a JupyterLab in a Chromium, and quire's own plots."""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lab
import nbformat
import pyarrow as pa
from playwright.sync_api import sync_playwright

import quire
from quire import committers, plots

sys.path.insert(0, str(Path(__file__).parents[1]))
from services.kafka import Mock, Record, mock  # where the tests find it

PLACE = Path(__file__).parents[2] / "notebooks" / "pictures"
DOCS = Path(__file__).parents[2] / "docs" / "pictures"
CELL = """\
import quire
from quire_widgets import ConsolidationPanel
panel = ConsolidationPanel("in", "out", planner="hash", target_size="8 MiB")
panel"""
INSPECTOR = """\
import quire
from quire_widgets import LedgerInspector
LedgerInspector("gathered", spark=quire.LocalRunner(), page_size=8)"""
SELECTOR = """\
from quire_widgets import CommitterSelector
CommitterSelector("s3a://lake/events", {"append", "speculation"})"""

TIMELINE = """\
from quire_widgets import TableTimeline
TableTimeline("trips", last=13, page_size=6)"""

MONITOR = """\
from quire_widgets import LoadMonitor
LoadMonitor("events", {source!r}, page_size=8, watch=False)"""

STATUS = """\
from quire_widgets import StatusPage
StatusPage({"gathered": None, "drops": "drop", "trips": None}, watch=False)"""


def main() -> None:
    """Write them all."""
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="quire-") as folder:
        place = Path(folder)
        files, state = place / "files", place / "state"
        state.mkdir()
        quire.populate(files / "in", 20_000, "5KB", 10, dirty=0.01, progress=False)
        _missing_abs()
        _exactly_once()
        _committers()
        _sizes(files, place / "gathered")
        _story(files)
        with lab.server(files, state) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=lab.chromium(), args=lab.ARGUMENTS)
            _panel(files, address, browser)
            _inspector(files, address, browser)
            _selector(files, address, browser)
            _monitor(files, address, browser)
            _timeline(files, address, browser)
            _status(files, address, browser)
            browser.close()


def _missing_abs() -> None:
    """The parts of the article's bug."""
    counts = {f"part {i}": n for i, n in enumerate((5028, 2481, 2517, 2466, 2532, 2499, 2520, 2457))}
    plots.partitions(quire.skew.check(counts, listed=40_000)).save(PLACE / "missing-abs.svg")


def _exactly_once() -> None:
    """Three designs of loading Kafka, killed at the same place: as the notebook has counted."""
    cells = nbformat.read(PLACE.parent / "05_kafka_exactly_once.ipynb", as_version=4).cells
    (drawn,) = (cell for cell in cells if cell.source == "plots.accounts(counted)")
    (PLACE / "exactly-once.svg").write_text(drawn.outputs[0].data["image/svg+xml"], "utf-8")


def _committers() -> None:
    """What the lab has measured."""
    matrix = committers.lab.Matrix.example()
    matrix.plot().save(DOCS / "committers.png")
    matrix.plot("windows").save(DOCS / "committers-windows.png")
    costs = committers.lab.Costs.example()
    for store in dict.fromkeys(row.store for row in costs.rows):
        costs.plot(store).save(DOCS / f"committers-costs-{store}.png")


def _sizes(files: Path, dest: Path) -> None:
    quire.consolidate(files / "in", dest, transform="xml", target_size="8 MiB", progress=False)
    plots.sizes(quire.Ledger(dest)).save(PLACE / "sizes.svg")


def _story(files: Path) -> None:
    """A ledger with some commits."""
    here: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
    quire.populate(files / "devices", 2_000, "2KB", 5, dirty=0.01, progress=False)
    settings = {"transform": "xml", "planner": "directory", "max_file_size": "8 KiB", **here}
    for folder in (["site-00", "site-01"], ["site-02"], ["site-03", "site-04"]):
        quire.consolidate([files / "devices" / one for one in folder], files / "gathered", **settings)
    ledger = quire.Ledger(files / "gathered")
    ledger.forget(files / "devices" / "site-02", reason="its clock was wrong", **here)
    ledger.compact(**here)


def _opened(files: Path, address: str, browser: Any, name: str, cell: str, width: int) -> tuple[lab.Notebook, Any]:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    made.metadata.kernelspec = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    nbformat.write(made, files / f"{name}.ipynb")
    page = browser.new_context(viewport={"width": width, "height": 2400}, device_scale_factor=1.5).new_page()
    notebook = lab.Notebook(page, address, f"{name}.ipynb")
    notebook.theme("JupyterLab Light")
    notebook.run_all()
    return notebook, page


def _panel(files: Path, address: str, browser: Any) -> None:
    notebook, page = _opened(files, address, browser, "panel", CELL, 1100)
    panel = page.locator(".quire-panel").last
    panel.get_by_role("button", name="Plan", exact=True).click()
    panel.locator(".quire-skew svg").wait_for(timeout=120_000)
    page.wait_for_timeout(500)
    _save(page, panel, panel.locator(".quire-skew svg"), "panel.png")
    notebook.close()


def _inspector(files: Path, address: str, browser: Any) -> None:
    notebook, page = _opened(files, address, browser, "inspector", INSPECTOR, 1240)
    inspector = page.locator(".quire-inspector").last
    inspector.locator(".quire-status select").select_option(label="quarantined")
    inspector.get_by_role("button", name="Find", exact=True).click()
    inspector.locator(".quire-rows").get_by_text("malformed").first.wait_for(timeout=60_000)
    page.wait_for_timeout(500)
    _save(page, inspector, inspector.get_by_role("button", name="Forget", exact=True), "inspector.png")
    notebook.close()


def _selector(files: Path, address: str, browser: Any) -> None:
    notebook, page = _opened(files, address, browser, "selector", SELECTOR, 1100)
    selector = page.locator(".quire-selector").last
    settings = selector.locator(".quire-settings textarea")
    settings.wait_for(timeout=60_000)
    page.wait_for_timeout(500)
    _save(page, selector, selector.locator(".quire-matrix table").first, "selector.png")
    notebook.close()


def _monitor(files: Path, address: str, browser: Any) -> None:
    with mock(brokers=1) as kafka:
        _loads(files, kafka)
        notebook, page = _opened(files, address, browser, "monitor", MONITOR.format(source=f"kafka://{kafka.address}/events"), 1000)
        monitor = page.locator(".quire-monitor").last
        monitor.get_by_role("button", name="Show records by partition").click()
        monitor.locator(".quire-skew svg").wait_for(timeout=60_000)
        page.wait_for_timeout(500)
        _save(page, monitor, monitor.locator(".quire-reasons table"), "monitor.png", DOCS)
        notebook.close()


def _timeline(files: Path, address: str, browser: Any) -> None:
    _trips(files / "trips")
    notebook, page = _opened(files, address, browser, "timeline", TIMELINE, 1240)
    timeline = page.locator(".quire-timeline").last
    timeline.locator('.quire-slice.quire-with-logs[title^="city=la"]').first.click()
    timeline.locator(".quire-key input").fill("trip-00007")
    timeline.get_by_role("button", name="History", exact=True).click()
    timeline.locator(".quire-history table").wait_for(timeout=60_000)
    page.wait_for_timeout(500)
    _save(page, timeline, timeline.locator(".quire-history"), "timeline.png")
    notebook.close()


def _trips(place: Path) -> None:
    """A merge-on-read table with some days behind it."""
    here: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
    chance = random.Random(1)
    more: dict[str, Any] = {"partition_by": "city", "ordering": "at", "type": "merge_on_read", "target_size": "80 KiB"}
    table = quire.Table.create(place, key="id", **more)

    def trips(numbers: Sequence[int], at: int) -> pa.Table:
        cities = [("la", "ny", "sf")[n % 7 % 3] for n in numbers]
        columns = {"fare": [round(chance.uniform(3, 90), 2) for _ in numbers], "phone": [f"{n * 7_919_273 % 10**9:09}" for n in numbers]}
        return pa.table({"id": [f"trip-{n:05}" for n in numbers], "city": cities, "at": [at] * len(numbers), **columns})

    table.upsert(trips(range(9_000), 0), **here)
    for at in range(1, 4):
        table.upsert(trips([7, *chance.sample(range(8, 9_000), 300 * at)], at), **here)
    table.compact(**here)
    table.savepoint(comment="before the new tariff")
    table.upsert(trips(range(9_000, 15_000), 4), **here)
    table.delete(trips(range(8_700, 9_300), 5), **here)
    wrong = table.upsert(trips(chance.sample(range(8_000), 900), 6), **here)
    table.rollback(wrong.instant)
    table.compact(**here)
    table.clean(versions=1)
    for at in (7, 8):
        table.upsert(trips([7, *chance.sample(range(8, 8_700), 700)], at), **here)
    table.schedule_compaction()
    table.upsert(trips([7, *chance.sample(range(8, 4_000), 90)], 9), **here)


def _loads(files: Path, kafka: Mock) -> None:
    """A topic that is loaded while it grows, one of its partitions more than the others."""
    kafka.create("events", 12)

    def readings(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = [json.loads(value) for value in batch.column("value").to_pylist()]
        columns = [pa.array([one["device"] for one in found], pa.int64()), pa.array([one["value"] for one in found], pa.float64())]
        return pa.RecordBatch.from_arrays([*columns, batch.column("timestamp")], ["device", "value", "timestamp"])

    settings: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False, "on_data_loss": "record"}
    chance = random.Random(1)
    for turn in range(9):
        many = 4_000 + chance.randrange(3_000)
        values = (b'{"device": %d, "value": %.3f}' % (chance.randrange(500), chance.random()) for _ in range(many))
        kafka.produce("events", (Record(value, partition=5 if chance.random() < 0.2 else chance.randrange(12)) for value in values))
        if turn in (2, 6):
            kafka.produce("events", [Record(b"no JSON", partition=turn) for _ in range(5 * turn)])
        if turn == 7:
            kafka.delete_records("events", {3: kafka.ends("events")[3][1] - 100})
        if turn < 8:
            quire.load(f"kafka://{kafka.address}/events", files / "events", readings, **settings)
            time.sleep(1.5 + chance.random())


def _status(files: Path, address: str, browser: Any) -> None:
    """A destination that is well, one of which many files are small, and a table with a plan that nobody has carried out."""
    here: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
    for i in range(24):
        (files / "drop").mkdir(exist_ok=True)
        (files / "drop" / f"{i:02}.csv").write_text(f"id,name\n{i},n{i}\n")
        quire.consolidate(files / "drop", files / "drops", transform="csv", **here)
    notebook, page = _opened(files, address, browser, "status", STATUS, 1000)
    status = page.locator(".quire-status-page").last
    status.locator(".quire-status-line").nth(2).get_by_text("plan").wait_for(timeout=60_000)
    status.get_by_role("button", name="Show all that is known").nth(1).click()
    status.locator(".quire-facts table").first.wait_for(timeout=60_000)
    page.wait_for_timeout(500)
    status.evaluate(
        "(e, place) => { for (const one of e.querySelectorAll('*')) for (const text of one.childNodes) "
        "if (text.nodeType === 3) text.data = text.data.replaceAll(place, '/lake') }",
        str(files),
    )
    _save(page, status, status.locator(".quire-status-row").last, "status.png", DOCS)
    notebook.close()


def _save(page: Any, part: Any, last: Any, name: str, place: Path = PLACE) -> None:
    """A widget, down to the last of its parts that is to be seen."""
    top, end = part.bounding_box(), last.bounding_box()
    clip = {"x": top["x"], "y": top["y"], "width": top["width"], "height": end["y"] + end["height"] + 4 - top["y"]}
    page.screenshot(path=place / name, clip=clip)


if __name__ == "__main__":
    main()
