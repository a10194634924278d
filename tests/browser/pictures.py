"""Makes the pictures of the README: `make pictures`. What they show is real: a JupyterLab in a Chromium, and quire's own plots."""

from __future__ import annotations

import tempfile
from pathlib import Path

import lab
import nbformat
from playwright.sync_api import sync_playwright

import quire
from quire import plots

PLACE = Path(__file__).parents[2] / "notebooks" / "pictures"
CELL = """\
import quire
from quire_widgets import ConsolidationPanel
panel = ConsolidationPanel("in", "out", planner="hash", target_size="8 MiB")
panel"""


def main() -> None:
    """Write them all."""
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="quire-") as folder:
        place = Path(folder)
        files, state = place / "files", place / "state"
        state.mkdir()
        quire.populate(files / "in", 20_000, "5KB", 10, dirty=0.01, progress=False)
        _missing_abs()
        _sizes(files, place / "gathered")
        _panel(files, state)


def _missing_abs() -> None:
    """The parts of the article's bug."""
    counts = {f"part {i}": n for i, n in enumerate((5028, 2481, 2517, 2466, 2532, 2499, 2520, 2457))}
    plots.partitions(quire.skew.check(counts, listed=40_000)).save(PLACE / "missing-abs.svg")


def _sizes(files: Path, dest: Path) -> None:
    quire.consolidate(files / "in", dest, transform="xml", target_size="8 MiB", progress=False)
    plots.sizes(quire.Ledger(dest)).save(PLACE / "sizes.svg")


def _panel(files: Path, state: Path) -> None:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    made.metadata.kernelspec = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    nbformat.write(made, files / "panel.ipynb")
    with lab.server(files, state) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=lab.chromium(), args=lab.ARGUMENTS)
        page = browser.new_context(viewport={"width": 1100, "height": 2000}, device_scale_factor=1.5).new_page()
        notebook = lab.Notebook(page, address, "panel.ipynb")
        notebook.theme("JupyterLab Light")
        notebook.run_all()
        panel = page.locator(".quire-panel").last
        panel.get_by_role("button", name="Plan", exact=True).click()
        panel.locator(".quire-skew svg").wait_for(timeout=120_000)
        page.wait_for_timeout(500)
        top, end = panel.bounding_box(), panel.locator(".quire-skew svg").bounding_box()
        clip = {"x": top["x"], "y": top["y"], "width": top["width"], "height": end["y"] + end["height"] - top["y"]}
        page.screenshot(path=PLACE / "panel.png", clip=clip)
        notebook.close()
        browser.close()


if __name__ == "__main__":
    main()
