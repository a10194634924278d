"""How objects show themselves in a notebook: small tables of facts, every name escaped, in the theme's colours."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from quire.errors import printable

_TEXT = "color: var(--jp-ui-font-color1, inherit)"
_LINE = "border-bottom: 1px solid var(--jp-border-color2, #8884)"
# The pages that say by a word of their body that their theme is dark: JupyterLab and nbconvert, and VS Code.
_DARK_PAGES = 'body[data-jp-theme-light="false"] *, body.vscode-dark *, body.vscode-high-contrast:not(.vscode-high-contrast-light) *'


class Shown:
    """A result about a destination: `_facts` and a note, as text, in a notebook, and for programs."""

    dest: str

    def _facts(self) -> Mapping[str, object]:
        raise NotImplementedError

    def _note(self) -> str:
        return ""

    def __str__(self) -> str:
        return lines(self.dest, self._facts(), self._note())

    def _repr_html_(self) -> str:
        return facts(self.dest, self._facts(), self._note())

    def as_dict(self) -> dict[str, Any]:
        """All of its fields, as JSON takes them; what is a result itself is a dictionary, too."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # the children are dataclasses


def facts(title: str, rows: Mapping[str, object], note: str = "") -> str:
    """A title, a table of two columns, and a note."""
    left, right = f'<th style="text-align:left;padding-right:16px;{_LINE}">', f'<td style="text-align:right;{_LINE}">'
    body = "".join(f"<tr>{left}{html.escape(str(k))}</th>{right}{html.escape(printable(str(v)))}</td></tr>" for k, v in rows.items())
    tail = f'<p style="white-space:pre-wrap">{html.escape(note)}</p>' if note else ""
    return f'<div class="quire" style="{_TEXT}"><strong>{html.escape(printable(title))}</strong><table>{body}</table>{tail}</div>'


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A title and a table with a header."""
    head = "".join(f'<th style="text-align:left;{_LINE}">{html.escape(h)}</th>' for h in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(v))}</td>" for v in row) + "</tr>" for row in rows)
    return f'<div class="quire" style="{_TEXT}"><strong>{html.escape(title)}</strong><table><tr>{head}</tr>{body}</table></div>'


def lines(title: str, rows: Mapping[str, object], note: str = "") -> str:
    """The same as text for a terminal."""
    width = max((len(k) for k in rows), default=0)
    body = "\n".join(f"  {k:<{width}}  {printable(str(v))}" for k, v in rows.items())
    return f"{printable(title)}\n{body}" + (f"\n{note}" if note else "")


def dark(selector: str) -> str:
    """A chart is drawn dark on white: the rule by which, on a dark page, it is light on that page's ground, and its hues stay."""
    return f"<style>{selector}:is({_DARK_PAGES}) {{filter: invert(0.93) hue-rotate(180deg)}}</style>"


def chart(svg: str, label: str) -> str:
    """A chart with a name, in the page's theme. A viewer that strips the rule, as of a notebook that is not trusted, shows it on white."""
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'{dark(".quire-chart")}<img class="quire-chart" src="data:image/svg+xml;base64,{data}" '
        f'alt="{html.escape(printable(label))}" style="max-width:100%;height:auto;display:block">'
    )
