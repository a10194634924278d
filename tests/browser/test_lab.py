"""quire in a real JupyterLab in a real browser: notebooks run, and the panel is used by mouse and by keyboard.

Pictures of the widgets, in light and dark, are kept where QUIRE_PICTURES says, to be looked at.
"""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lab import Notebook
from playwright.sync_api import expect

import quire
from checker import check

SOON, LATER = 15_000, 120_000  # ms
PANEL = """\
import quire
from quire_widgets import ConsolidationPanel
ConsolidationPanel(spark=quire.session(master="local[2]"))"""
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

# Each text that a person should be able to read: nothing of it hidden, cut off or under another one.
LOOK = r"""
root => {
  const shown = e => { const b = e.getBoundingClientRect(), s = getComputedStyle(e);
    return b.width > 0 && b.height > 0 && s.visibility !== 'hidden' && e.checkVisibility() };
  const name = e => (e.className.baseVal ?? e.className) + ' ' + JSON.stringify((e.textContent || e.value || '').trim().slice(0, 40));
  const parts = [...root.querySelectorAll('label, button, input, select, textarea, p, th, td, strong, [role=alert], [role=status]')]
    .filter(shown).filter(e => !e.closest('svg'));
  const faults = [];
  for (const e of parts) {
    const scrolls = /auto|scroll/.test(getComputedStyle(e).overflowX) || ['INPUT', 'TEXTAREA', 'SELECT'].includes(e.tagName);
    if (!scrolls && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible') faults.push('cut off: ' + name(e));
  }
  for (let i = 0; i < parts.length; i++) for (let j = i + 1; j < parts.length; j++) {
    const a = parts[i], b = parts[j];
    if (a.contains(b) || b.contains(a)) continue;
    const p = a.getBoundingClientRect(), q = b.getBoundingClientRect();
    const across = Math.min(p.right, q.right) - Math.max(p.left, q.left), down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (across > 1 && down > 1) faults.push('one over the other: ' + name(a) + ' and ' + name(b));
  }
  const texts = [...root.querySelectorAll('svg text')].filter(shown);
  for (const t of texts) {
    const b = t.getBoundingClientRect(), s = t.closest('svg').getBoundingClientRect();
    if (b.left < s.left - 1 || b.right > s.right + 1 || b.top < s.top - 1 || b.bottom > s.bottom + 1) faults.push('cut off: ' + name(t));
  }
  return faults;
}
"""


def notebook(folder: Path, name: str, *cells: str) -> str:
    """A notebook of a test's own."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata.kernelspec = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    nbformat.write(made, folder / name)
    return name


class Panel:
    """A ConsolidationPanel on the page."""

    def __init__(self, page: Any) -> None:
        self.page, self.root = page, page.locator(".quire-panel").last
        expect(self.root).to_be_visible(timeout=LATER)

    def part(self, name: str) -> Any:
        return self.root.locator(f".quire-{name}")

    def button(self, name: str) -> Any:
        return self.root.get_by_role("button", name=name, exact=True)

    def fill(self, **fields: str) -> None:
        for name, value in fields.items():
            given = self.part(name.replace("_", "-")).locator("input, select").first
            if given.evaluate("e => e.tagName") == "SELECT":
                given.select_option(label=value)
            else:
                given.fill(value)
                given.blur()

    def says(self, words: str | re.Pattern[str], timeout: int = LATER) -> None:
        expect(self.root).to_contain_text(words, timeout=timeout)


def keep(page: Any, part: Any, name: str) -> None:
    """A picture for people."""
    if place := os.environ.get("QUIRE_PICTURES"):
        Path(place).mkdir(parents=True, exist_ok=True)
        part.scroll_into_view_if_needed()
        part.screenshot(path=Path(place) / f"{name}.png")


def looked_at(lab: Notebook, part: Any, name: str) -> None:
    """Nothing is cut off or lies over something else, in light and in dark."""
    for word, theme in THEMES.items():
        lab.theme(theme)
        keep(lab.page, part, f"{name}-{word}")
        assert part.evaluate(LOOK) == [], f"{name} in {theme}"
        assert part.evaluate(CONTRAST) == [], f"{name} in {theme}"


# What cannot be told from its background: WCAG's contrast of 4.5 (3 for what is disabled is not asked for at all).
CONTRAST = r"""
root => {
  const light = c => { const v = c.map(x => x / 255).map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2] };
  const parse = s => { const m = s.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m };
  const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0.5) return c }
    return [255, 255, 255, 1] };
  const faults = [];
  for (const e of root.querySelectorAll('label, button, p, th, td, strong, pre, textarea, input, [role=alert], [role=status]')) {
    if (e.closest('svg') || e.disabled || !(e.textContent || e.value || '').trim() || !e.checkVisibility()) continue;
    const a = light(parse(getComputedStyle(e).color)), b = light(behind(e));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faults.push(contrast.toFixed(1) + ': ' + (e.textContent || e.value).trim().slice(0, 40));
  }
  return faults;
}
"""


INSPECTOR = """\
import quire
from quire_widgets import LedgerInspector
inspector = LedgerInspector({dest!r}, spark={spark}, source={source!r}, page_size=10)
inspector"""


def inspected(folder: Path, name: str) -> Path:
    """A destination with a story: two runs, files forgotten, data files compacted; then files that are too large, or no XML."""
    here: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
    source, dest = folder / f"{name}-in", folder / f"{name}-out"
    for day in (20, 21):
        place = source / f"dt=2026-11-{day}"
        place.mkdir(parents=True)
        for i in range(30):
            (place / f"dev-{i:05}.xml").write_bytes(b'<reading at="%d"/>' % i)
        (place / "large.xml").write_bytes(b"<a>" + b"x" * 2000 + b"</a>")
        for i in range(6):
            (place / f"broken & <b>{i}.xml").write_bytes(b"<a>")
        quire.consolidate(source, dest, transform="xml", max_file_size="1000 B", planner="directory", **here)
    ledger = quire.Ledger(dest)
    ledger.forget([source / "dt=2026-11-20" / f"dev-{i:05}.xml" for i in range(5)], reason="a sensor was wrong", **here)
    ledger.compact(**here)
    return dest


def source_of(dest: Path) -> str:
    """Where `inspected` has gathered a destination from: a retry reads there."""
    return str(dest.with_name(dest.name.removesuffix("-out") + "-in"))


class Inspector(Panel):
    """A LedgerInspector on the page."""

    def __init__(self, page: Any) -> None:
        self.page, self.root = page, page.locator(".quire-inspector").last
        expect(self.root).to_be_visible(timeout=LATER)

    def shows(self, name: str, words: str | re.Pattern[str], timeout: int = LATER) -> None:
        expect(self.part(name)).to_contain_text(words, timeout=timeout)
        expect(self.part(name)).to_be_visible()  # words come before what hides them goes, and Tab passes over what is hidden

    def focused(self) -> str:
        found: str = self.page.evaluate("() => document.activeElement.textContent.trim()")
        return found

    def tab_to(self, name: str) -> None:
        for _ in range(20):
            if self.focused() == name:
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not lead to {name}")


SELECTOR = """\
import quire
from quire_widgets import CommitterSelector
selector = CommitterSelector({given})
selector"""


class Selector(Inspector):
    """A CommitterSelector on the page."""

    def __init__(self, page: Any) -> None:
        self.page, self.root = page, page.locator(".quire-selector").last
        expect(self.root).to_be_visible(timeout=LATER)

    def box(self, need: str) -> Any:
        return self.part(f"needs-{need}").get_by_role("checkbox")

    def opened(self, name: str) -> None:
        """Open all that opens on request."""
        for summary in self.part(name).locator("summary").all():
            summary.click()


# ------------------------------------------------------------------------------------------------------------------ the notebooks
@pytest.mark.parametrize(
    "name",
    [
        "00_quickstart.ipynb",
        "01_small_files_and_skew.ipynb",
        "02_cloud_stores.ipynb",
        "03_skip_ledger.ipynb",
        "04_committers.ipynb",
        "05_kafka_exactly_once.ipynb",
        "06_files_you_have.ipynb",
        "07_incremental_table.ipynb",
    ],
)
def test_a_notebook_runs_in_the_browser_as_it_was_kept(page: Any, address: str, folder: Path, name: str) -> None:
    kept = nbformat.read(folder / name, as_version=4)
    lab = Notebook(page, address, name)
    lab.page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    lab.run_all()
    allowed = [o for c in kept.cells if c.cell_type == "code" for o in c.outputs if o.output_type == "error"]
    assert [e.partition(":")[0] for e in lab.errors()] == [o.ename for o in allowed]
    shown = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)").inner_text()
    assert not re.search(r"Warning|IProgress|Traceback|Error displaying widget|Loading widget", shown)
    assert not [o for o in lab.outputs() if o["output_type"] == "stream" and o["name"] == "stderr"]
    assert not lab.complaints
    lab.close()


# ---------------------------------------------------------------------------------------------------------------------- the panel
def test_the_panel_by_mouse(page: Any, address: str, folder: Path, tree: Path) -> None:
    """Wrong fields, look, run, cancel in the middle, run again, read the result; the code does the same."""
    lab = Notebook(page, address, notebook(folder, "mouse.ipynb", PANEL))
    lab.run_all()
    panel = Panel(page)

    panel.button("Run").click()
    expect(panel.part("source").locator("xpath=ancestor-or-self::*[.//*[@role='alert']][1]").get_by_role("alert")).to_be_visible(
        timeout=SOON
    )
    panel.fill(source=str(tree), dest=str(folder / "out-mouse"), target_size="a lot")
    panel.button("Plan").click()
    panel.says("not a size", SOON)
    looked_at(lab, panel.root, "panel-wrong-field")

    panel.fill(target_size="256 KiB", planner="hash")
    panel.button("Plan").click()
    panel.says("even")
    expect(panel.part("skew").locator("svg")).to_be_visible()
    assert not (folder / "out-mouse" / "_quire" / "log").exists(), "looking has begun something"
    looked_at(lab, panel.root, "panel-planned")

    panel.button("Run").click()
    panel.says(re.compile(r"files/s|[0-9] files"))
    panel.button("Cancel").click()
    panel.says("abort", 30_000)
    (job,) = quire.Ledger(folder / "out-mouse").summary().open_jobs
    looked_at(lab, panel.root, "panel-cancelled")

    panel.button("Run").click()
    panel.says("files gathered")
    looked_at(lab, panel.root, "panel-result")
    assert len(check(tree, folder / "out-mouse").done) == 6_000
    assert quire.Ledger(folder / "out-mouse").inspect.history()["job"].iloc[0] == job

    panel.button("Look").click()
    panel.says("looked at")
    expect(panel.part("transform").locator("select")).to_have_value("xml")
    looked_at(lab, panel.root, "panel-looked")
    assert not lab.complaints
    lab.close()


def test_the_panel_by_keyboard_alone(page: Any, address: str, folder: Path, tree: Path) -> None:
    """Tab goes through the fields and buttons in their order; Enter plans, the space bar presses a button."""
    lab = Notebook(page, address, notebook(folder, "keyboard.ipynb", PANEL))
    lab.run_all()
    panel = Panel(page)
    panel.part("source").locator("input").focus()
    page.keyboard.type(str(tree))
    page.keyboard.press("Tab")
    page.keyboard.type(str(folder / "out-keyboard"))
    page.keyboard.press("Enter")
    panel.says("files listed")
    focus = "() => document.activeElement.textContent.trim()"
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate(focus) == "Run":
            break
    assert page.evaluate(focus) == "Run", "Tab does not lead to the button"
    page.keyboard.press("Space")
    panel.says("files gathered")
    assert len(check(tree, folder / "out-keyboard").done) == 6_000
    lab.close()


# ------------------------------------------------------------------------------------------------------------------ the inspector
def test_the_inspector_by_mouse(page: Any, address: str, folder: Path) -> None:
    """Look, search, turn pages, one file, retry for a reason, forget: asks, no, yes."""
    dest = inspected(folder, "mouse-ledger")
    cell = INSPECTOR.format(dest=str(dest), source=source_of(dest), spark='quire.session(master="local[2]")')
    lab = Notebook(page, address, notebook(folder, "inspect.ipynb", cell))
    lab.run_all()
    inspector = Inspector(page)
    inspector.shows("rows", "1–10 of 69 rows")
    inspector.shows("reasons", "Quarantined: 14 files, by reason")
    expect(inspector.part("timeline").locator("svg")).to_be_visible()
    looked_at(lab, inspector.root, "inspector-open")

    inspector.fill(path="broken", status="quarantined")
    inspector.button("Find").click()
    inspector.shows("rows", "1–10 of 12 rows")
    inspector.button("Next").click()
    inspector.shows("rows", "11–12 of 12 rows")
    expect(inspector.button("Next")).to_be_disabled()
    inspector.button("Previous").click()
    inspector.shows("rows", "1–10 of 12 rows")
    inspector.part("file").locator("select").select_option(index=3)
    inspector.button("Look").click()
    expect(inspector.part("coverage").locator("svg")).to_be_visible(timeout=SOON)
    inspector.shows("coverage", "malformed XML")
    looked_at(lab, inspector.root, "inspector-file")

    reasons = inspector.part("reason").locator("select option").all_inner_texts()
    inspector.part("reason").locator("select").select_option(
        index=next(i for i, text in enumerate(reasons) if "malformed" not in text and i)
    )
    inspector.button("Retry").click()
    inspector.shows("result", "gathered now")
    inspector.shows("reasons", "Quarantined: 12 files, by reason")
    assert quire.Ledger(dest).summary().quarantined == 12

    inspector.button("Forget").click()
    inspector.shows("question", "Forget 12 files?", SOON)
    chosen = inspector.part("reason").locator("select").evaluate("e => e.selectedOptions[0].label")
    assert chosen.split() == ["every", "reason:", "12", "files"]
    looked_at(lab, inspector.root, "inspector-question")
    inspector.button("No, keep").click()
    expect(inspector.part("question")).to_be_hidden()
    assert quire.Ledger(dest).summary().quarantined == 12

    inspector.button("Forget").click()
    inspector.fill(why="broken & <b>bold</b>")
    inspector.button("Yes, forget").click()
    inspector.shows("reasons", "Nothing is quarantined")
    inspector.shows("summary", "quarantined")
    inspector.part("timeline").locator("summary").click()
    inspector.shows("timeline", "broken & <b>bold</b>")
    looked_at(lab, inspector.root, "inspector-forgotten")
    ledger = quire.Ledger(dest)
    assert (ledger.summary().quarantined, set(ledger.rows(state="quarantined").table["path"])) == (0, set())
    assert not lab.complaints
    lab.close()


def test_the_inspector_by_keyboard_alone(page: Any, address: str, folder: Path) -> None:
    """Enter finds; Tab goes on to the buttons, which keep the focus when they are pressed; a question is answered without the mouse."""
    dest = inspected(folder, "keyboard-ledger")
    lab = Notebook(
        page, address, notebook(folder, "keys.ipynb", INSPECTOR.format(dest=str(dest), source=source_of(dest), spark="quire.LocalRunner()"))
    )
    lab.run_all()
    inspector = Inspector(page)
    inspector.part("path").locator("input").focus()
    page.keyboard.type("dev-0000")
    page.keyboard.press("Enter")
    inspector.shows("rows", "1–10 of 15 rows")
    inspector.tab_to("Find")
    page.keyboard.press("Tab")
    assert inspector.focused() == "Next", "what cannot be pressed is passed over"
    page.keyboard.press("Space")
    inspector.shows("rows", "11–15 of 15 rows")
    inspector.tab_to("Forget")
    page.keyboard.press("Space")
    inspector.shows("question", "Forget 14 files?", SOON)
    page.keyboard.press("Tab")
    page.keyboard.type("by hand")
    inspector.tab_to("No, keep")
    page.keyboard.press("Space")
    expect(inspector.part("question")).to_be_hidden()
    inspector.part("reason").locator("select").focus()
    inspector.tab_to("Forget")
    page.keyboard.press("Enter")
    inspector.shows("question", "Forget 14 files?", SOON)
    inspector.tab_to("Yes, forget")
    page.keyboard.press("Enter")
    inspector.shows("reasons", "Nothing is quarantined")
    assert "by hand" in set(quire.Ledger(dest).inspect.history()["note"])
    assert not lab.complaints
    lab.close()


# ------------------------------------------------------------------------------------------------------------------- the selector
def test_the_selector_by_mouse(page: Any, address: str, folder: Path) -> None:
    """A URL, needs, one that contradicts another, the advice; the session is looked into, and a new one has what was advised."""
    dest = str(folder / "advised")
    lab = Notebook(page, address, notebook(folder, "select.ipynb", SELECTOR.format(given='spark=quire.session(master="local[2]")')))
    lab.run_all()
    selector = Selector(page)
    selector.shows("matrix", "What the lab has found")
    expect(selector.part("settings")).to_be_hidden()

    selector.fill(url="ftp://host/out")
    selector.button("Advise").click()
    selector.says("unknown kind of store 'ftp'", SOON)
    looked_at(lab, selector.root, "selector-wrong-url")

    selector.fill(url=dest)
    expect(selector.root).not_to_contain_text("unknown kind of store", timeout=SOON)
    selector.box("append").click()
    selector.shows("advice", "FileOutputCommitter, algorithm 1", SOON)
    expect(selector.part("settings").locator("textarea")).to_have_value(re.compile("algorithm.version  1"))
    expect(selector.part("matrix").locator("tr[aria-current]")).to_contain_text("▶ v1")
    selector.box("overwrite").click()
    selector.says("append and overwrite contradict each other", SOON)
    expect(selector.part("settings")).to_be_hidden()
    looked_at(lab, selector.root, "selector-contradiction")
    selector.box("overwrite").click()
    selector.shows("advice", "FileOutputCommitter, algorithm 1", SOON)

    selector.button("Check the session").click()
    selector.shows("check", "This session would write with v1")
    selector.shows("check", "no attempt id")
    selector.shows("check", "✘ wrong")
    for name in ("advice", "matrix"):
        selector.opened(name)
    looked_at(lab, selector.root, "selector-checked")

    selector.box("visible_together").click()
    expect(selector.part("matrix").locator("tr[aria-current]")).to_contain_text("▶ quire_rename", timeout=SOON)
    selector.shows("check", "no setting decides", SOON)
    assert not Path(dest).exists(), "looking has written something"
    assert not lab.complaints
    lab.close()


def test_the_selector_by_keyboard_alone(page: Any, address: str, folder: Path) -> None:
    """Enter advises; Tab goes through the boxes, which the space bar ticks and which keep the focus; a field is copied from."""
    lab = Notebook(page, address, notebook(folder, "select-keys.ipynb", SELECTOR.format(given="")))
    lab.run_all()
    selector = Selector(page)
    selector.part("url").locator("input").focus()
    page.keyboard.type("s3a://lake/events")
    page.keyboard.press("Enter")
    selector.shows("advice", "S3A magic committer", SOON)
    page.keyboard.press("Tab")
    expect(selector.box("speculation"), "the namespace is not for S3, and is passed over").to_be_focused()
    page.keyboard.press("Space")
    expect(selector.part("settings").locator("textarea")).to_have_value(re.compile("spark.speculation  true"), timeout=SOON)
    expect(selector.box("speculation")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    selector.shows("advice", "S3A partitioned staging committer", SOON)
    expect(selector.box("dynamic_overwrite")).to_be_focused()
    page.keyboard.press("Space")
    selector.shows("advice", "S3A magic committer", SOON)
    selector.tab_to("Advise")
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.ariaLabel") == "how to write", "without a session there is nothing to check"
    expect(selector.button("Check the session")).to_be_disabled()
    assert not lab.complaints
    lab.close()


# The mean of what is seen of a chart's corner, from 0 (black) to 255.
GROUND = """
async ([data]) => {
  const image = new Image(); image.src = 'data:image/png;base64,' + data; await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), drawn = canvas.getContext('2d');
  drawn.drawImage(image, 0, 0);
  const { data: bytes } = drawn.getImageData(0, 0, 4, 4);
  return bytes.filter((_, i) => i % 4 < 3).reduce((a, b) => a + b) / 48;
}"""


def test_a_chart_of_a_cell_follows_the_theme(page: Any, address: str, folder: Path) -> None:
    """Its ground is that of the page: light in the light theme, dark in the dark one, also in VS Code's words for its theme."""
    cells = (
        "from quire import plots\nplots.partitions([2000, 1003, 998, 1001])",
        "from IPython.display import SVG\nSVG(plots.partitions([3, 4, 5]).svg())",
    )
    lab = Notebook(page, address, notebook(folder, "chart.ipynb", *cells))
    lab.run_all()
    assert lab.errors() == []
    chart = page.locator(".jp-OutputArea-output img")
    expect(chart).to_have_count(2, timeout=SOON)

    def grounds() -> list[bool]:
        """Whether each of both is light."""
        return [page.evaluate(GROUND, [base64.b64encode(one.screenshot()).decode()]) > 127 for one in chart.all()]

    for word, theme in THEMES.items():
        lab.theme(theme)
        keep(page, page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)"), f"chart-{word}")
        assert grounds() == [word == "light", True], "quire's, and another's that is left alone"
    lab.theme(THEMES["light"])
    for word, light in {"vscode-light": True, "vscode-dark": False, "vscode-high-contrast": False}.items():
        page.evaluate("word => { document.body.classList.add(word) }", word)
        assert grounds() == [light, True], word
        page.evaluate("word => { document.body.classList.remove(word) }", word)
    lab.close()


def test_what_a_notebook_shows_without_its_kernel(page: Any, address: str, folder: Path, tree: Path) -> None:
    """A notebook with widgets that comes from a colleague is a page to read before anything is run."""
    dest = inspected(folder, "static-ledger")
    cells = (
        f"from quire_widgets import ConsolidationPanel, SkewView\nConsolidationPanel({str(tree)!r}, '/data/out')",
        ("SkewView({'p0': 2000, 'p1': 1003, 'p2': 998, 'p3': 1001}, listed=8004)"),
        INSPECTOR.format(dest=str(dest), source=source_of(dest), spark="quire.LocalRunner()"),
        SELECTOR.format(given="'s3a://lake/events', {'append'}"),
    )
    lab = Notebook(page, address, notebook(folder, "static.ipynb", *cells))
    lab.run_all()
    view = page.locator(".quire-skew").last
    expect(view.locator("svg")).to_be_visible(timeout=SOON)
    looked_at(lab, view, "skew-view")
    page.evaluate("async () => { await window.jupyterapp.commands.execute('docmanager:save') }")
    page.wait_for_timeout(1_000)
    lab.close()
    saved = nbformat.read(folder / "static.ipynb", as_version=4)
    saved.cells.append(nbformat.v4.new_markdown_cell("a colleague's word"))  # so JupyterLab does not take it for its own
    for cell in saved.cells:
        for output in cell.get("outputs", ()):
            assert {"text/plain", "text/html"} <= set(output.data)
    nbformat.write(saved, folder / "static.ipynb")
    page.goto("about:blank")
    again = Notebook(page, address, "static.ipynb")
    text = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    expect(text).to_contain_text("missing abs()", timeout=SOON)
    expect(text).to_contain_text("quire.consolidate")
    looked_at(again, text.locator(".jp-OutputArea").first, "panel-static")
    expect(text).to_contain_text("Quarantined: 14 files, by reason")
    looked_at(again, text.locator(".jp-OutputArea").nth(1), "skew-view-static")
    looked_at(again, text.locator(".jp-OutputArea").nth(2), "inspector-static")
    expect(text).to_contain_text("▶ magic")
    looked_at(again, text.locator(".jp-OutputArea").last, "selector-static")
    again.close()
