"""Finds plain breaches of the project's English, with file and line, and fails where there is one.

    python tests/english.py              all pages, and all Python of the library and its widgets
    python tests/english.py docs/kafka.md toolkit/quire/engine

Two rules are checked:

- A sentence of a page or docstring begins with its subject, and not with What, Who, Whose, Of or That. A heading may be a question.
  "That" is refused as pronoun and as article alike: "This" or the noun itself says it as well, and a reader need not look back.
- Text says "is not a", "has no" or "without", and never "is no" or "are no": in pages, docstrings, comments and strings.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/*.md", "examples/*/*.md", "notebooks/*.md", "notebooks/*.ipynb", "sample_data/*.md", "tests/benchmarks/*.md")
# Python that is held to the rules.
ROOMS = ("toolkit", "widgets")

BEGINS = re.compile(
    r"(?:^|[.!?:][\"'”’)\]*_]*\s)\s*"  # the beginning, or the end of a sentence and what closes with it
    r"[\"'“‘(\[*_]*(What|Who|Whose|Of|That)(?:'s)?(?![\w’'-])"
)
IS_NO = re.compile(r"\b(?:is|are)\s+no\b(?!\.)", re.IGNORECASE)


class Text(NamedTuple):
    """A paragraph, a cell, a docstring's paragraph, a comment or a string, with the line on which it begins."""

    line: int
    text: str
    sentences: bool  # whether it is prose, of which the sentences' beginnings count


class Breach(NamedTuple):
    line: int
    text: str


def breaches(texts: Iterator[Text]) -> Iterator[Breach]:
    for line, text, sentences in texts:
        found = [(match.start(1), match.end()) for match in BEGINS.finditer(text)] if sentences else []
        found += [match.span() for match in IS_NO.finditer(text)]
        for start, end in sorted(found):
            yield Breach(line + text.count("\n", 0, start), " ".join(text[max(0, start - 20) : end + 40].split()))


# ---------------------------------------------------------------------------------------------------------------------------- Markdown


def markdown(page: str, first: int = 1) -> Iterator[Text]:
    """The prose of a page: paragraphs, list items, table cells; no code, no link's address. Headings' questions are left out."""
    page = re.sub(r"(?ms)^( *)(```|~~~).*?^ *\2[^\n]*$|<!--.*?-->", _blank, page)
    held: list[str] = []
    begun = first
    for number, line in enumerate([*page.split("\n"), ""], first):
        stripped = line.strip()
        alone = not stripped or re.match(r"#|\||!\[|[-*+] |\d+[.)] ", stripped) or (line.startswith("    ") and not held)
        if alone and held:
            yield Text(begun, _prose("\n".join(held)), True)
            held = []
        if not stripped or (line.startswith("    ") and not held and not re.match(r"[-*+] |\d+[.)] ", stripped)):
            continue
        if stripped.startswith("#"):
            heading = stripped.lstrip("# ")
            yield Text(number, _prose(heading), not heading.endswith("?"))
        elif stripped.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", stripped.strip("|")):
                yield Text(number, _prose(cell.strip()), True)
        else:
            begun = begun if held else number
            held.append(re.sub(r"^ *(?:[-*+]|\d+[.)]) +|^ *> ?", "", line) if not held else line)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _prose(text: str) -> str:
    text = re.sub(r"``.+?``|`[^`]*`", lambda code: "x" + _blank(code), text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", lambda link: "]" + _blank(link), text)


def notebook(page: str) -> Iterator[Text]:
    """The Markdown cells; a cell's number stands in the place of a line's."""
    for number, cell in enumerate(json.loads(page)["cells"], 1):
        if cell["cell_type"] == "markdown":
            for text in markdown("".join(cell["source"])):
                yield Text(number, text.text.replace("\n", " "), text.sentences)


# ------------------------------------------------------------------------------------------------------------------------------ Python


def python(source: str) -> Iterator[Text]:
    """The docstrings, the comments and the strings of a module."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and ast.get_docstring(node) is not None}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in docstrings:
                yield Text(node.lineno, node.value, False)
            else:
                yield from _paragraphs(node.value, node.lineno)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], token.string, False)


def _paragraphs(docstring: str, first: int) -> Iterator[Text]:
    """A docstring's paragraphs and list items, without code."""
    for match in re.finditer(r"(?:(?!\n\s*\n|\n\s*[-*] )[\s\S])+", docstring):
        begun = len(match[0]) - len(match[0].lstrip())
        text = re.sub(r"^[-*] ", "", match[0].strip())
        yield Text(first + docstring.count("\n", 0, match.start() + begun), _prose(text), True)


# -------------------------------------------------------------------------------------------------------------------------- the whole


def read(path: Path) -> Iterator[Breach]:
    """The breaches of one file, by its kind."""
    kinds = {".md": markdown, ".ipynb": notebook, ".py": python}
    return breaches(kinds[path.suffix](path.read_text(encoding="utf-8")))


def files(arguments: list[str]) -> Iterator[Path]:
    if not arguments:
        for pattern in PAGES:
            yield from sorted(ROOT.glob(pattern))
        arguments = list(ROOMS)
    for name in arguments:
        path = ROOT / name
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def main(arguments: list[str]) -> int:
    found = 0
    for path in files(arguments):
        for line, text in read(path):
            print(f"{path.relative_to(ROOT)}:{line}: {text}", file=sys.stderr)
            found += 1
    if found:
        print(f"{found} breaches of the project's English: the first lines of tests/english.py say the two rules.", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
