"""The check of the project's English finds what it should, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import english


def found(kind: str, text: str) -> list[int]:
    """The lines of the breaches."""
    return [
        breach.line for breach in english.breaches({"md": english.markdown, "py": english.python, "ipynb": english.notebook}[kind](text))
    ]


@pytest.mark.parametrize(
    "page",
    [
        "What is new is read.",
        "It ends. Whose manifest is there has won.",
        "**Out.** What is done goes.",
        "- one\n- Of two attempts the first wins",
        "| who | what |\n|---|---|\n| a | That misses a file |",
        "# What it does",
        "a\nfile is\nno link",
        "There are no files.",
        "(Who reads it, sees it.)",
        "See [it](docs/x.md). That one",
        '"What is said" counts',
    ],
)
def test_a_breach_on_a_page_is_found(page: str) -> None:
    assert len(found("md", page)) == 1


@pytest.mark.parametrize(
    "page",
    [
        "# What does it do?",
        "Whatever fits is read, by whoever asks, and offline.",
        "It is what it is: of one file, that of another.",
        "```text\nWhat is this? There is no end.\n```",
        "    What is no code\n",
        "`is no` is refused, see [a page](docs/is no.md).",
        "Whose-ever",
        "There are not any; the answer is no.",
        "| what | who |\n|---|---|",
    ],
)
def test_what_is_right_or_no_prose_passes(page: str) -> None:
    assert not found("md", page)


def test_a_breach_has_its_line() -> None:
    assert found("md", "# Title\n\nFirst line\nof a paragraph. It is\nno\nlink.\n\n```\nWhat\n```\n\n- Of these") == [4, 12]


def test_docstrings_comments_and_strings_are_looked_at() -> None:
    source = '''"""Fine.

    What is here is a breach.

    - Whose is a breach
    """

def f(name):  # this is no comment
    """Of one line."""
    x = "What is a string: such beginnings are not looked at"
    return f"{name} is no file", "there are "
    '''
    assert sorted(found("py", source)) == [3, 5, 8, 9, 11]


def test_a_notebooks_markdown_is_looked_at_and_its_code_is_not() -> None:
    cells = [{"cell_type": "code", "source": ["# is no prose"]}, {"cell_type": "markdown", "source": ["Well.\n", "What is this is wrong."]}]
    assert found("ipynb", json.dumps({"cells": cells})) == [2]


def test_a_breach_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(english, "ROOT", tmp_path)
    monkeypatch.setattr(english, "ROOMS", ("room",))
    (tmp_path / "docs").mkdir()
    (tmp_path / "room").mkdir()
    (tmp_path / "docs/page.md").write_text("Fine.\n")
    (tmp_path / "room/module.py").write_text('"""Fine."""\n')
    assert english.main([]) == 0
    (tmp_path / "docs/page.md").write_text("There is no end.\n")
    (tmp_path / "room/module.py").write_text('"""What is this."""\n')
    assert english.main([]) == 1
    said = capsys.readouterr().err
    assert "docs/page.md:1: There is no end." in said
    assert "room/module.py:1: What is this." in said
    assert english.main(["room"]) == 1


def test_the_check_looks_at_every_page() -> None:
    pages = {path.stem for path in english.files([])}
    assert {"README", "protocol", "CONTRIBUTING", "SECURITY", "00_quickstart", "RESULTS"} <= pages
