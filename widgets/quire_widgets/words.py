"""The same pieces as plain text: what a terminal shows, and what notebooks' outputs are compared by."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from quire.errors import printable

__all__ = ["columns", "more_than"]

_LONGEST = 48  # characters of a cell


def more_than(shown: int, total: int, what: str) -> str:
    """How much of it one sees: '10 of 52 parts'; '1 part' if it is all."""
    plural = what if total == 1 else f"{what}s"
    return f"{total:,} {plural}" if shown >= total else f"{shown:,} of {total:,} {plural}"


def columns(header: Sequence[str], rows: Iterable[Sequence[object]], numbers: Collection[str] = ()) -> str:
    """A table as lines of text; the columns named in `numbers` are aligned on the right."""
    cells = [[*header], *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = (
        [cell.rjust(w) if name in numbers else cell.ljust(w) for cell, w, name in zip(row, widths, header, strict=True)] for row in cells
    )
    return "\n".join("  ".join(row).rstrip() for row in aligned)


def _cell(value: object) -> str:
    text = printable(str(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[1 - _LONGEST // 2 :]}"
