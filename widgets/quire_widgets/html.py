"""Pieces of HTML for the widgets: every text escaped, in the theme's colours, and nothing told by colour alone.

The colours are JupyterLab's variables, with fallbacks for everywhere else.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from quire.display import dark
from quire.errors import printable

_FONT = "color:var(--jp-ui-font-color1, inherit);font-family:var(--jp-ui-font-family, sans-serif);font-size:var(--jp-ui-font-size1, 13px)"
_MONO = "font-family:var(--jp-code-font-family, monospace);font-size:var(--jp-code-font-size, 13px);line-height:1.4"
_BOX = (
    "color:var(--jp-ui-font-color1, inherit);background:var(--jp-layout-color2, transparent);"
    "border:1px solid var(--jp-border-color1, #8888);border-radius:2px"
)
_ROOM = 80  # characters that surely stand side by side
_FITTING = "max-width:100%;height:auto;display:block"
_LINE = "border-bottom:1px solid var(--jp-border-color2, #8884)"
_MARKED = ' aria-current="true" style="font-weight:bold;background:var(--jp-layout-color2, #8882)"'


def text(value: object) -> str:
    """Any value as one line of escaped text."""
    return html.escape(printable(str(value)))


def lines(value: str) -> str:
    """Several lines of escaped text."""
    return "\n".join(map(text, value.split("\n")))


def block(*parts: str) -> str:
    """Pieces of HTML, one below the other, in the theme's font and colour; nothing for nothing."""
    inside = "".join(part for part in parts if part)
    return f'<div class="quire" style="{_FONT};line-height:1.4;overflow-wrap:anywhere">{inside}</div>' if inside else ""


def alert(message: str, *, then: str = "") -> str:
    """A problem, in words; read aloud at once. `then` is HTML that follows."""
    return _said("alert", "--jp-error-color1, #b00020", f"<strong>⚠ </strong>{text(message)}", then)


def status(message: str, *, then: str = "") -> str:
    """An event, in words; read aloud when nothing else is."""
    return _said("status", "--jp-brand-color1, #1976d2", text(message), then)


def _said(role: str, colour: str, words: str, then: str) -> str:
    # The colour is the edge's alone: letters in a theme's red are hard to read in the dark one.
    style = f"{_FONT};line-height:1.4;border-left:3px solid var({colour});padding:1px 8px;margin:2px 0;overflow-wrap:anywhere"
    return f'<div role="{role}" style="{style}">{words}{then}</div>'


def table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[object]], numbers: Collection[str] = (), *,
    marked: int | None = None, short: Collection[str] = (),
) -> str:  # fmt: skip
    """A table with a caption; the columns named in `numbers` are aligned on the right, those in `short` are words that do not break.

    One row can be marked, for screen readers, too.
    """
    sides = ["right" if name in numbers else "left" for name in header]
    # Names break wherever the line ends; a number or a heading never does, or a narrow table would stand each letter on its own.
    cell, whole = "padding:2px 12px 2px 0", "white-space:nowrap;overflow-wrap:normal"
    unbroken = [name in numbers or name in short for name in header]
    breaks = [whole if one else "white-space:normal;overflow-wrap:anywhere" for one in unbroken]
    head = "".join(
        f'<th scope="col" style="text-align:{side};{cell};{whole};{_LINE}">{text(name)}</th>'
        for name, side in zip(header, sides, strict=True)
    )
    body = "".join(
        f"<tr{_MARKED if at == marked else ''}>"
        + "".join(f'<td style="text-align:{s};{cell};{b}">{text(v)}</td>' for v, s, b in zip(row, sides, breaks, strict=True))
        + "</tr>"
        for at, row in enumerate(rows)
    )
    title = f'<caption style="text-align:left;caption-side:top;padding:4px 0;color:inherit"><strong>{text(caption)}</strong></caption>'
    title = title if caption else ""
    return f'<table style="border-collapse:collapse;margin:4px 0">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def said(picture: Any) -> str:
    """A picture of quire.plots in words."""
    return f"{picture.title}. {picture.note}"


def note(message: str) -> str:
    """Several lines of text as a paragraph; nothing for nothing."""
    return f'<p style="white-space:pre-wrap">{lines(message)}</p>' if message else ""


def same(source: str, before: str = "The same as Python:") -> str:
    """A call as Python to copy, with what it is."""
    return block(before, copyable(source, before[0].lower() + before[1:-1])) if source else ""


def details(summary: str, inside: str) -> str:
    """Something that opens on request, by mouse or keyboard."""
    return f'<details style="margin:4px 0"><summary style="cursor:pointer">{text(summary)}</summary>{inside}</details>'


def scrolling(inside: str, label: str) -> str:
    """Content that may be wider than a narrow cell, to be scrolled sideways by mouse or keyboard."""
    return f'<div role="region" aria-label="{text(label)}" tabindex="0" style="overflow-x:auto">{inside}</div>' if inside else ""


def code(source: str) -> str:
    """Python to read, for a page without a kernel."""
    return (
        f'<pre style="{_MONO};{_BOX};padding:6px 8px;margin:4px 0;white-space:pre-wrap;overflow-wrap:anywhere">{html.escape(source)}</pre>'
    )


def copyable(source: str, label: str) -> str:
    """A field to select and copy from, by mouse or keyboard, and not to type in."""
    # Without the attribute, JupyterLab takes Ctrl+A or C in a read-only field for the notebook's own shortcuts.
    style = f"{_MONO};{_BOX};box-sizing:border-box;width:100%;padding:6px 8px;margin:2px 0;resize:vertical;white-space:pre;overflow:auto"
    lines = source.split("\n")
    rows = len(lines) + (max(map(len, lines)) > _ROOM)  # a scroll bar must not cover the last line
    return (
        f'<textarea readonly spellcheck="false" data-lm-suppress-shortcuts="true" rows="{rows}" aria-label="{text(label)}" '
        f'style="{style}">\n{html.escape(source)}</textarea>'
    )


def progress(done: int, total: int | None, words: str) -> str:
    """A bar, and the same in words; a bar without an end if the total is not known."""
    known = f' value="{done}" max="{max(total, 1)}"' if total is not None else ""
    style = "width:100%;max-width:48em;height:14px;accent-color:var(--jp-brand-color1, #1976d2)"
    return f'<div style="{_FONT}"><progress{known} aria-label="{text(words)}" style="{style}"></progress><div>{text(words)}</div></div>'


def picture(svg: str, label: str, key: str) -> str:
    """An SVG as one picture with a name, as wide as there is room.

    All pictures of a page share one space of ids: `key` is the prefix that tells this one's from the others'.
    """
    own = f"q{key}"
    inside = re.sub(r"<[^<>]+>", lambda tag: re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>{own}-", tag[0]), svg[svg.index("<svg") :])
    inside = re.sub(r"(<style[^>]*>)\s*\*", rf"\g<1>#{own} *", inside)  # its rules are about this picture, not about the page
    inside = inside.replace("<svg", f'<svg id="{own}" style="{_FITTING}" aria-hidden="true"', 1)
    return f'<div role="img" aria-label="{text(label)}" style="max-width:100%">{dark(f"#{own}")}{inside}</div>'


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
