"""Makes the pictures of the README: `make pictures`. What they show is real: a JupyterLab in a Chromium, and quire's own plots."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import lab
import nbformat
from playwright.sync_api import sync_playwright

import quire
from quire import committers, plots

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
LedgerInspector("gathered", spark=quire.InProcess(), page_size=8)"""
SELECTOR = """\
from quire_widgets import CommitterSelector
CommitterSelector("s3a://lake/events", {"append", "speculation"})"""


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
    here: dict[str, Any] = {"spark": quire.InProcess(), "progress": False}
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
    inspector.locator(".quire-status select").select_option(label="bad")
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


def _save(page: Any, part: Any, last: Any, name: str) -> None:
    """A widget, down to the last of its parts that is to be seen."""
    top, end = part.bounding_box(), last.bounding_box()
    clip = {"x": top["x"], "y": top["y"], "width": top["width"], "height": end["y"] + end["height"] + 4 - top["y"]}
    page.screenshot(path=PLACE / name, clip=clip)


if __name__ == "__main__":
    main()
