"""The lab's results, as files of JSON: rows, each a dataclass, and their origin."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from quire.errors import FormatError, UsageError, scrub
from quire.formats.damage import ARROW

MOST = 16 << 20  # bytes of a file of results
R = TypeVar("R")


class Results(Generic[R]):
    """Rows, and what made them: `save`, `load`, and the `example` that comes with quire."""

    KIND: ClassVar[str]  # stands in each file
    NAME: ClassVar[str]  # what a file holds, in messages
    MAKER: ClassVar[str]  # what makes it
    EXAMPLE: ClassVar[str]  # the file beside this module
    ROW: ClassVar[type]

    def __init__(self, rows: Iterable[R], made: Mapping[str, Any] | None = None) -> None:
        self.rows, self.made = list(rows), dict(made or {})

    def check(self) -> None:
        """ValueError, TypeError or Arrow's own for rows that cannot be."""

    @property
    def json(self) -> str:
        """All of it; `load` reads it."""
        rows = [{key: value for key, value in asdict(row).items() if value not in (None, "", {})} for row in self.rows]  # type: ignore[call-overload]
        return json.dumps({"kind": self.KIND, "made": self.made, "rows": rows}, indent=1, ensure_ascii=False) + "\n"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the JSON in one step, so that what was saved before stays until all of it is there; return the path."""
        target = Path(path)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            draft.write_text(self.json, encoding="utf-8")
            draft.replace(target)
        except OSError as e:
            draft.unlink(missing_ok=True)
            raise UsageError(f"{scrub(str(target))} cannot be written: {e.strerror}. Look at its directory.") from e
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The results that `save` has written; FormatError for anything else."""
        try:
            with Path(path).open("rb") as opened:
                text = opened.read(MOST)
        except OSError as e:
            raise UsageError(f"{scrub(os.fspath(path))} cannot be read: {e.strerror}. Look at its path.") from e
        return cls.parse(text, scrub(os.fspath(path)))

    @classmethod
    def parse(cls, text: bytes | str, name: str = "the text") -> Self:
        """The JSON itself."""
        try:
            found = json.loads(text)
            if found["kind"] != cls.KIND:
                raise ValueError(f"its kind is {str(found['kind'])[:40]!r}")
            made = cls([cls.ROW(**row) for row in found["rows"]], found["made"])
            made.check()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, *ARROW) as e:
            raise FormatError(f"{name} holds no {cls.NAME} of the lab: {scrub(str(e), 120)}. Make them with {cls.MAKER}.") from e
        return made

    @classmethod
    def example(cls) -> Self:
        """The results that come with quire: measured by this lab, on the machine and at the date that `made` says."""
        return cls.parse((resources.files("quire.committers.lab") / cls.EXAMPLE).read_bytes(), "quire's own example")
