"""The one form in which notebooks are kept, and the rules for what may stand in them.

Notebooks are kept executed, with what nbval compares and nothing else: the same run gives the same bytes, so a diff shows what
changed, and a cell that nobody ran, or that shows nothing, cannot pass for one that is tested.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbval.plugin import coalesce_streams, comment_markers, get_sanitize_patterns, metadata_tags

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CONFIG = NOTEBOOKS / "nbval.cfg"
RAISES = "raises-exception"
PICTURE = "image/svg+xml"
NOT_COMPARED = ("image/png", "image/jpeg", "application/vnd.jupyter.widget-view+json")
SHORTEST = 60  # characters of text that stand for a picture
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_MACHINE = re.compile(
    r"(?<![\w./-])(?:file://)?/(?:home|root|Users|work|workspace|builds|var|private|opt|mnt|srv|usr|tmp(?!/quire\b))/[\w.-]+"
)


def notebooks() -> list[Path]:
    """All that are kept."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    """A notebook as it stands on disk."""
    return nbformat.read(path, as_version=4)


# ------------------------------------------------------------------------------------------------------------------ the form
def normalised(notebook: NotebookNode, kept: NotebookNode | None = None) -> str:
    """The notebook's text on disk: sanitized as nbval does it, with nothing that is not compared.

    Pictures alone are kept as they were drawn, with the text beside them: without its points one would show nothing. Where such a
    cell differs from what was `kept` before in nothing that is compared, what was kept stays.
    """
    patterns = list(get_sanitize_patterns(CONFIG.read_text("utf-8")))
    found = copy.deepcopy(notebook)
    found.metadata = nbformat.from_dict(METADATA)
    found.nbformat, found.nbformat_minor = 4, 5
    count = 0
    for number, cell in enumerate(found.cells, 1):
        cell.id = f"cell-{number:02d}"
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            if cell.execution_count is not None:
                count += 1
                cell.execution_count = count
            cell.outputs = [_output(output, cell.execution_count, patterns) for output in coalesce_streams(cell.outputs)]
    before = nbformat.reads(normalised(kept), as_version=4).cells if kept else ()
    for cell, old in zip(found.cells, before, strict=False):
        if cell.cell_type == old.cell_type == "code" and _compared(cell, patterns) == _compared(old, patterns):
            cell.outputs = old.outputs
    return nbformat.writes(found).rstrip("\n") + "\n"


def _output(output: NotebookNode, count: int | None, patterns: list[tuple[str, str]]) -> NotebookNode:
    kind = output.output_type
    if kind == "stream":
        return nbformat.v4.new_output(kind, name=output.name, text=_sanitized(output.text, patterns))
    if kind == "error":  # of which nbval compares these two
        return nbformat.v4.new_output(kind, ename=output.ename, evalue=_sanitized(output.evalue, patterns), traceback=[])
    drawn = PICTURE in output.data
    data = {mime: value if drawn else _sanitized(value, patterns) for mime, value in output.data.items() if mime not in NOT_COMPARED}
    return nbformat.v4.new_output(kind, data=data, **({"execution_count": count} if kind == "execute_result" else {}))


def _compared(cell: NotebookNode, patterns: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """A cell's outputs, flat, with all that differs from run to run replaced."""
    flat = ({**output, **output.get("data", {}), "data": None} for output in cell.outputs)
    return [{name: _sanitized(value, patterns) for name, value in output.items()} for output in flat]


def _sanitized(value: Any, patterns: list[tuple[str, str]]) -> Any:
    if isinstance(value, str):  # as nbval, which leaves JSON alone
        for regex, replacement in patterns:
            value = re.sub(regex, replacement, value)
    return value


# ----------------------------------------------------------------------------------------------------------------- the rules
def faults(notebook: NotebookNode) -> list[str]:
    """What would let a notebook pass although nothing of it is tested, or makes its diff depend on a machine."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = [] if cells else ["it has no code cell"]
    for number, cell in enumerate(cells, 1):
        found += [f"code cell {number}: {fault}" for fault in (*_of_run(cell, number), *_of_source(cell), *_of_outputs(cell))]
    if 2 * sum(bool(cell.outputs) for cell in cells) < len(cells):
        found.append("fewer than half of the code cells show anything")
    found += [f"a cell names a place on one machine: {place[0]}" for cell in notebook.cells if (place := _MACHINE.search(cell.source))]
    if set(notebook.metadata) - set(METADATA):
        found.append(f"the notebook's metadata holds {', '.join(sorted(set(notebook.metadata) - set(METADATA)))}")
    return found


def _of_run(cell: NotebookNode, number: int) -> Iterator[str]:
    if cell.execution_count is None:
        yield "it was not run, and nbval compares nothing of a cell that was not run"
    elif cell.execution_count != number:
        yield f"it was run as number {cell.execution_count}: the cells were not run once, one after the other"


def _of_source(cell: NotebookNode) -> Iterator[str]:
    tags = set(cell.metadata.get("tags", ()))
    turned = (tags & set(metadata_tags)) - {RAISES}
    turned |= {mark for mark in comment_markers if re.search(rf"^\s*#\s*{mark}\s*$", cell.source, re.MULTILINE)}
    if turned:
        yield f"{', '.join(sorted(turned))} turns its comparison off"
    if cell.source.rstrip().endswith(";"):
        yield "it ends with a semicolon, which hides the output in JupyterLab and not in nbval"
    if RAISES in tags and not any(output.output_type == "error" for output in cell.outputs):
        yield f"it is tagged {RAISES} and raises nothing"
    try:
        body = ast.parse(cell.source).body
    except SyntaxError:
        yield "it is not plain Python"
        return
    if not body:
        yield "it is empty"
    elif isinstance(body[-1], ast.Expr) and not cell.outputs:
        yield "its last line is an expression, and no output is kept"


def _of_outputs(cell: NotebookNode) -> Iterator[str]:
    for output in cell.outputs:
        kind = output.output_type
        if kind == "stream" and output.name == "stderr":
            yield f"it writes to stderr: {output.text[:60]!r}"
        if kind == "error" and RAISES not in cell.metadata.get("tags", ()):
            yield f"it raises {output.ename}"
        data = output.get("data", {})
        if data and not data.get("text/plain"):
            yield f"its output has no text: {', '.join(data)}"
        if ("image/svg+xml" in data or "<svg" in data.get("text/html", "")) and len(data.get("text/plain", "")) < SHORTEST:
            yield f"the text beside its picture is shorter than {SHORTEST} characters"
        for mime in NOT_COMPARED:
            if mime in data:
                yield f"nbval does not compare {mime}"
        for text in (*data.values(), output.get("text", ""), output.get("evalue", "")):
            if isinstance(text, str) and (place := _MACHINE.search(text)):
                yield f"its output holds a path of one machine: {place[0]}"
