"""Jobs whose rows go into a database, as docs/together.md has them: the recipe itself is run."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import quire
from quire.storage import connect

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
_PAGE = (Path(__file__).resolve().parents[2] / "docs/together.md").read_text("utf-8")
_RECIPE = next(block for block in re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL) if "commit_token" in block)


def names_of(splits: Any) -> list[tuple[str, int]]:
    """A row for each split: its path, and its length."""
    return [(row["path"], row["length"]) for row in splits.to_pylist()]


def silent(_: str) -> None:
    """Nothing happens."""


class Database:
    """A database that a claim writes into, by the recipe.

    opened   connects
    marks    how a statement's places are written
    at       called with the name of each step: before a transaction, within it, after it
    """

    def __init__(self, opened: Callable[[], Any], marks: str = "?") -> None:
        self.opened, self.marks, self.at = opened, marks, silent

    def code(self) -> str:
        """The recipe, with a name for each step."""
        text = _RECIPE.replace("?", self.marks).replace('"s3://raw/devices", ', "source, **settings, ")
        text = re.sub(r"def connect\(\):\n    return .*\n", "", text)
        text = re.sub(r"( +)(with closing.*# one)", r'\1at("before")\n\1\2', text)
        return re.sub(r"( +)( {4})(db\.cursor\(\).*\n)", r'\1\2at("between")\n\1\2\3\1\2at("within")\n\1at("after")\n', text)

    def load(self, dest: str, source: str, **settings: Any) -> Any:
        """One call of the job; its claim."""
        found: dict[str, Any] = {
            "ledger": quire.Ledger(dest, create=True), "source": source, "settings": {**HERE, **settings}, "connect": self.opened,
            "count": names_of, "at": self.at,
        }  # fmt: skip
        exec(compile(self.code(), "docs/together.md", "exec"), found)
        return found["c"]

    def rows(self) -> list[str]:
        """The names of the splits whose rows are there."""
        return sorted(path.rpartition("/")[2] for (path,) in self.asked("SELECT device FROM counts"))

    def asked(self, question: str) -> list[Any]:
        """What it answers."""
        db = self.opened()
        try:
            return list(db.execute(question).fetchall())
        finally:
            db.close()


def sqlite(path: Path) -> Database:
    """A database in a file."""
    return Database(lambda: sqlite3.connect(path, timeout=60))


def filled(url: str, names: list[str]) -> None:
    """Files of those names."""
    for name in names:
        connect(url).put(name, name.encode())
