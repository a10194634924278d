"""Notebooks are tests: none may pass without having been compared, and a bug in quire makes them fail."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output
from normal import CONFIG, METADATA, NOTEBOOKS, faults, normalised, notebooks, read

from quire import committers
from quire.display import chart

REPO = Path(__file__).parents[2]
KEPT = pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)


# ------------------------------------------------------------------------------------------------------ the notebooks kept here
def test_there_are_notebooks() -> None:
    expected = {
        "00_quickstart.ipynb", "01_small_files_and_skew.ipynb", "02_cloud_stores.ipynb", "03_skip_ledger.ipynb", "04_committers.ipynb",
        "05_kafka_exactly_once.ipynb", "06_files_you_have.ipynb", "07_incremental_table.ipynb",
    }  # fmt: skip
    assert expected <= {path.name for path in notebooks()}


@KEPT
def test_nothing_in_it_passes_without_being_compared(path: Path) -> None:
    assert faults(read(path)) == []


@KEPT
def test_it_is_kept_in_the_form_that_make_notebooks_gives_it(path: Path) -> None:
    assert path.read_text("utf-8") == normalised(read(path))


def test_the_main_job_is_five_cells() -> None:
    source = (NOTEBOOKS / "00_quickstart.ipynb").read_text("utf-8")
    numbered = re.findall(r'"source": \[\s*"\*\*(\d)\. ', source)
    assert numbered == ["1", "2", "3", "4", "5"]
    kinds = [cell.cell_type for cell in nbformat.reads(source, 4).cells]
    assert kinds[1:11] == ["markdown", "code"] * 5


def test_the_first_notebook_begins_with_the_sample_data_and_keeps_it_until_its_panel_was_used() -> None:
    """*Run All* must leave the source of the panel there: whoever presses its buttons does so later."""
    code = [cell.source for cell in read(NOTEBOOKS / "00_quickstart.ipynb").cells if cell.cell_type == "code"]
    assert 'shutil.copytree("../sample_data/devices", source)' in code[1]
    assert (REPO / "sample_data/devices").is_dir()
    assert any("ConsolidationPanel(source," in cell for cell in code)
    assert not re.findall(r"cleanup|rmtree|unlink|rmdir|os\.remove|spark\.stop", "\n".join(code))


def test_the_notebook_on_the_ledger_starts_spark() -> None:
    code = [cell.source for cell in read(NOTEBOOKS / "03_skip_ledger.ipynb").cells if cell.cell_type == "code"]
    assert any("spark = quire.session()" in cell for cell in code)
    assert any("spark=spark" in cell for cell in code), "and uses it"


# ----------------------------------------------------------------------------------------------------- each rule finds its fault
def good() -> NotebookNode:
    """A notebook that follows all rules: a cell without a value, one that prints, one that shows, one that fails on purpose."""
    picture = {"image/svg+xml": "<svg/>", "text/plain": "files of each part\n" + "0  521\n1  247\n" * 5}
    cells = [
        new_code_cell("x = 1", execution_count=1),
        new_code_cell("print(x)", execution_count=2, outputs=[new_output("stream", name="stdout", text="1\n")]),
        new_code_cell("picture(x)", execution_count=3, outputs=[new_output("execute_result", data=picture, execution_count=3)]),
        new_code_cell(
            "1 / 0",
            execution_count=4,
            metadata={"tags": ["raises-exception"]},
            outputs=[new_output("error", ename="ZeroDivisionError", evalue="division by zero", traceback=[])],
        ),
    ]
    return new_notebook(cells=cells, metadata=copy.deepcopy(METADATA))


def shown(book: NotebookNode) -> NotebookNode:
    return book.cells[2].outputs[0].data


BAD: dict[str, tuple[Callable[[NotebookNode], object], str]] = {
    "no code": (lambda b: b.update(cells=[]), "no code cell"),
    "not run": (lambda b: b.cells[0].update(execution_count=None), "was not run"),
    "out of order": (lambda b: b.cells[0].update(execution_count=7), "run as number 7"),
    "no output of an expression": (lambda b: b.cells[2].update(outputs=[]), "no output is kept"),
    "no output of a print": (lambda b: b.cells[1].update(outputs=[]), "no output is kept"),
    "hardly any outputs": (lambda b: b.cells.extend(new_code_cell("x = 2", execution_count=i) for i in (5, 6, 7)), "fewer than half"),
    "empty cell": (lambda b: b.cells[0].update(source=" "), "it is empty"),
    "magic": (lambda b: b.cells[0].update(source="%matplotlib inline"), "not plain Python"),
    "semicolon": (lambda b: b.cells[2].update(source="picture(x);"), "semicolon"),
    "comparison off by a comment": (lambda b: b.cells[1].update(source="# NBVAL_IGNORE_OUTPUT\nprint(x)"), "NBVAL_IGNORE_OUTPUT turns"),
    "comparison off by a tag": (lambda b: b.cells[1].metadata.update(tags=["nbval-skip"]), "nbval-skip turns"),
    "an error": (lambda b: b.cells[3].metadata.update(tags=[]), "raises ZeroDivisionError"),
    "no error where one is meant": (lambda b: b.cells[1].metadata.update(tags=["raises-exception"]), "raises nothing"),
    "stderr": (lambda b: b.cells[1].outputs[0].update(name="stderr"), "writes to stderr"),
    "picture without text": (lambda b: shown(b).pop("text/plain"), "has no text"),
    "picture with too little text": (lambda b: shown(b).update({"text/plain": "<Picture>"}), "shorter than"),
    "widget's picture with too little text": (
        lambda b: b.cells[2].outputs[0].update(data={"text/html": "<div><svg/></div>", "text/plain": "SkewView()"}),
        "shorter than",
    ),
    "png": (lambda b: shown(b).update({"image/png": "iVBORw0KGgo="}), "does not compare image/png"),
    "widget": (lambda b: shown(b).update({"application/vnd.jupyter.widget-view+json": {"model_id": "1"}}), "widget-view"),
    "widgets' state": (lambda b: b.metadata.update(widgets={}), "metadata holds widgets"),
    "a machine's path": (lambda b: shown(b).update({"text/plain": "/home/me/quire/in " * 5}), "/home/me"),
    "a machine's path in HTML": (lambda b: shown(b).update({"text/html": "<b>file:///tmp/tmpab12/in</b>"}), "/tmp/tmpab12"),
    "a machine's path printed": (lambda b: b.cells[1].outputs[0].update(text="in /work/main\n"), "/work/main"),
    "a machine's path in the source": (lambda b: b.cells[0].update(source='x = "/home/me/in"'), "names a place on one machine: /home/me"),
}


def test_a_good_notebook_has_no_faults() -> None:
    assert faults(good()) == []


@pytest.mark.parametrize(("spoil", "fault"), BAD.values(), ids=BAD.keys())
def test_a_fault_is_found(spoil: Callable[[NotebookNode], object], fault: str) -> None:
    book = good()
    spoil(book)
    assert fault in "\n".join(faults(book))


# ------------------------------------------------------------------------------------------------------------- the form, refresh
DIFFERS = [
    ("PopulateReport(2,000 files, 9.5 MiB; dirty: none; 1.2 s, 1,667 files/s)", "1.2 s, 1,667", "? s, ?"),
    ("Report(files=1,980, quarantined=20, seconds=13.4, version=2)", "13.4", "?"),
    ("<td>1.2 (1,234 files/s)</td>", "1.2 (1,234", "? (?"),
    ("file:///var/folders/x-1/T/quire-ab1_cd2e/out and 1,980", "/var/folders/x-1/T/quire-ab1_cd2e", "/tmp/quire"),
    ("quire ledger quarantined /tmp/quire-ab1_cd2e/out", "/tmp/quire-ab1_cd2e", "/tmp/quire"),
    ("the last one 2026-11-21T17:25:06.123+00:00", "2026-11-21T17:25:06.123+00:00", "?"),
    ("        1     20      7.14     2.90              6.90", "     2.90              6.90", "  ?  ?"),
    ("  upsert  instant 20261123172946585", "20261123172946585", "?"),
    ("<th>seconds</th><td style='x'>3.3</td>", ">3.3<", ">?<"),
    ("TableReport(upsert, data_files=2, seconds=3.3, version=2)", "3.3", "?"),
    ("an upsert  1,200,000  ≈ 0.24 s\n", "0.24", "?"),
    ("an upsert  1,200,000  ≈ 1e-09 s", "1e-09", "?"),
    ("      256  1,000  1,828.57        2          1,000.25\n", "        2          1,000.25", "  ?  ?"),
]


@pytest.mark.parametrize(("text", "part", "replacement"), DIFFERS)
def test_what_differs_from_run_to_run_is_replaced_and_nothing_beside_it(text: str, part: str, replacement: str) -> None:
    book = new_notebook(cells=[new_code_cell("x", execution_count=1, outputs=[new_output("stream", text=text)])])
    [once] = nbformat.reads(normalised(book), 4).cells
    assert once.outputs[0].text == text.replace(part, replacement)
    assert normalised(nbformat.reads(normalised(book), 4)) == normalised(book)


COMPARED = [
    "4,000 files", "tasks  64", "missing abs(): Part 0 has 2.08 times", "42.6%", "p = 0.91", "1,980", "version=2", "9.5 MiB (512 KiB)",
    "dt=2026-11-21/part", "chi-square 219.0, 7 degrees", "1.5 s", "http://localhost/quire-ab1_cd2e",
    "0  1,988,904  2,248,642.12   0.88  1.07", "20261123172946", "17.9 MiB)</td>", "<th>inserted</th><td>2.4</td>", "≈ 1,024 files",
]  # fmt: skip


@pytest.mark.parametrize("text", COMPARED)
def test_what_is_compared_stays(text: str) -> None:
    book = new_notebook(cells=[new_code_cell("x", execution_count=1, outputs=[new_output("stream", text=text)])])
    assert nbformat.reads(normalised(book), 4).cells[0].outputs[0].text == text


def test_what_is_not_compared_is_not_kept() -> None:
    book = good()
    shown(book).update({"image/png": "iVBORw0KGgo=", "application/vnd.jupyter.widget-view+json": {"model_id": "1"}})
    book.cells[3].outputs[0].traceback = ["\x1b[31mZeroDivisionError\x1b[0m"]
    book.cells[0].metadata = nbformat.from_dict({"execution": {"iopub.status.busy": "2026-11-21"}, "trusted": True})
    book.metadata.update(widgets={"state": {}}, language_info={"name": "python", "version": "3.11.2"})
    for cell in book.cells:
        cell.execution_count += 40
    assert normalised(book) == normalised(good())


MEASURED = """<svg>
 <g id="figure_1">
  <g id="axes_1"><text>{word}</text></g>
  <g id="measured">
   <g><use y="{place}"/></g>
  </g>
 </g>
</svg>"""


def measured(word: str, place: int) -> NotebookNode:
    book = good()
    svg = MEASURED.format(word=word, place=place)
    shown(book).update({"image/svg+xml": svg, "text/html": chart(svg, "points")})
    return book


def test_a_picture_is_kept_with_its_points_and_stays_until_more_than_they_change() -> None:
    first, second, other = measured("n", 1), measured("n", 2), measured("m", 2)
    assert shown(nbformat.reads(normalised(first), 4)) == shown(first)
    assert normalised(second, kept=nbformat.reads(normalised(first), 4)) == normalised(first)
    assert normalised(other, kept=first) == normalised(other)
    shown(second)["text/plain"] += "0"
    assert normalised(second, kept=first) == normalised(second)


def write(path: Path, *sources: str) -> Path:
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources]), path)
    return path


def run_refresh(book: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(__file__).with_name("refresh.py")), str(book)]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=200)


@pytest.mark.services
def test_refresh_gives_the_same_bytes_twice_on_this_interpreter(tmp_path: Path) -> None:
    # A kernel of the user's own, of the same name, is not taken.
    kernel = tmp_path / "jupyter/kernels/python3/kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text('{"argv": ["false"], "display_name": "mine", "language": "python"}')
    book = write(tmp_path / "book.ipynb", "import os, sys\nsys.executable == os.environ['MINE']", "os.listdir()")
    first = run_refresh(book, JUPYTER_PATH=str(tmp_path / "jupyter"), MINE=sys.executable)
    assert (first.returncode, first.stdout[:19], first.stderr) == (0, "book.ipynb: changed", "")
    before = book.read_bytes()
    again = run_refresh(book, MINE=sys.executable)
    assert (again.returncode, again.stdout[:20], again.stderr) == (0, "book.ipynb: the same", "")
    assert book.read_bytes() == before
    run, listed = read(book).cells
    assert run.outputs[0].data["text/plain"] == "True"
    assert "'book.ipynb'" in listed.outputs[0].data["text/plain"]  # it runs where it lies


def test_refresh_says_which_notebook_raised_what_and_leaves_it(tmp_path: Path) -> None:
    book = write(tmp_path / "book.ipynb", "1 / 0")
    before = book.read_bytes()
    done = run_refresh(book)
    assert (done.returncode, done.stderr) == (1, "book.ipynb: a cell raised ZeroDivisionError: division by zero\n")
    assert book.read_bytes() == before


def test_refresh_fails_where_a_rule_is_broken(tmp_path: Path) -> None:
    done = run_refresh(write(tmp_path / "book.ipynb", "import sys\nprint(1, file=sys.stderr)"))
    assert (done.returncode, done.stderr) == (1, "book.ipynb: code cell 1: it writes to stderr: '1\\n'\n")


# -------------------------------------------------------------------------------------------------------------- a bug is noticed
# file → what is added to its end, the notebook, and what the failing cell holds
PLANTED = {
    "none": ("report.py", "", "00_quickstart", ""),
    "a task is dropped": (
        "planning/pack.py",
        """
_packed = pack
def pack(*given): return _packed(*given)[:-1]
def check_complete(*given): pass
""",
        "00_quickstart",
        "plan = quire.plan(",
    ),
    "every verdict is even": (
        "planning/skew.py",
        """
def _verdict(found): return "even"
""",
        "01_small_files_and_skew",
        "plan.skew().verdict",
    ),
    "the report counts one too many": (
        "report.py",
        """
_counted = Report._facts
def _facts(self): return {**_counted(self), "files gathered": f"{self.files + 1:,}"}
Report._facts = _facts
""",
        "00_quickstart",
        "report = quire.consolidate(",
    ),
}


@pytest.mark.chaos
@pytest.mark.parametrize(("module", "bug", "book", "cell"), PLANTED.values(), ids=PLANTED.keys())
def test_a_bug_in_quire_makes_a_notebook_fail(tmp_path: Path, module: str, bug: str, book: str, cell: str) -> None:
    shutil.copytree(REPO / "toolkit/quire", tmp_path / "quire", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "quire" / module).open("a") as file:
        file.write(bug)
    command = [
        sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "--nbval-sanitize-with", str(CONFIG),
        "--nbval-cell-timeout", "300", "--nbval-kernel-startup-timeout", "180", "--color", "no", "-p", "no:cacheprovider",
        str(NOTEBOOKS / f"{book}.ipynb"),
    ]  # fmt: skip
    # Before the installed quire on the path, also of the kernel and of Spark's workers
    changed = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=REPO, env=changed, capture_output=True, text=True, timeout=280)
    assert done.returncode == bool(bug), done.stdout
    if bug:
        first = done.stdout.partition("Notebook cell execution failed")[2].partition("Traceback:")[0]
        assert "Cell outputs differ" in first, done.stdout  # and not an error for another reason
        assert cell in first


def test_no_heading_calls_a_committer_safe_that_the_lab_saw_break_a_guarantee() -> None:
    """Its figures stand above the heading."""
    found = committers.lab.Matrix.example().guarantees
    headings = re.findall(
        r"^## (\w+): (.*)$", "\n".join(cell.source for cell in read(NOTEBOOKS / "04_committers.ipynb").cells), re.MULTILINE
    )
    said = {name: words for name, words in headings if name in found}
    assert said
    for name, words in said.items():
        assert "safe" not in words or all(mark is not False for mark in found[name].as_dict().values()), f"{name}: {words}"
