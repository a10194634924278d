"""README is one short page in a fixed order, its code gives the output that it shows, and every page can be reached from it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

import quire

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = sorted(
    {ROOT / "README.md", *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.md"), *ROOT.glob("sample_data/*.md")}
)


def test_it_has_at_most_150_lines_in_this_order() -> None:
    assert README.count("\n") <= 150
    first, picture, *_ = README.partition("## ")[0].removeprefix("# quire\n\n").strip().split("\n\n")
    assert first.count(".") == 1
    assert picture.startswith("![")
    assert re.findall(r"(?m)^## (.*)$", README) == [
        "Install", "Five lines", "What goes in, what comes out?", "Who may read the result, and how?", "Limits", "How fast?", "Links",
    ]  # fmt: skip


def test_its_five_lines_give_the_output_that_it_shows(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, shown = re.search(r"## Five lines\n\n```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", README, re.DOTALL).groups()
    assert len([line for line in code.splitlines() if line]) == 5
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert said.getvalue() == re.sub("(?m)^    ", "", shown)


def test_its_second_example_gives_the_output_that_it_shows(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, shown = re.search(r"become rows.*?```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", README, re.DOTALL).groups()
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "README.md", "exec"), {"__name__": "readme", "quire": quire})
    assert said.getvalue() == re.sub("(?m)^    ", "", shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_their_anchors_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?ms)^```.*?^```", "", page.read_text())):
        if re.match(r"https?:|kafka:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        if anchor:
            assert anchor in {slug(heading) for heading in re.findall(r"(?m)^#+ (.*)$", target.read_text())}, link


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_every_page_of_docs_is_linked_from_it() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", README.partition("## Links")[2]))
    assert linked == {path.name for path in (ROOT / "docs").glob("*.md")}
