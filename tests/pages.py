"""What tests of widgets share: to find a part, to press a button, and to read what reaches the browser."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import ipywidgets


def one(panel: Any, css: str) -> Any:
    """The widget with a class."""
    (found,) = (w for w in walk(panel) if css in w._dom_classes)
    return found


def walk(widget: Any) -> Iterator[Any]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from walk(child)


def click(panel: Any, name: str) -> None:
    one(panel, f"quire-{name}-button").click()


def everything(panel: Any) -> str:
    """All HTML and text that can reach a browser or a saved notebook."""
    bundle = panel._repr_mimebundle_()
    values = [str(getattr(w, "value", "")) for w in walk(panel)]
    return "\n".join([*values, bundle["text/html"], bundle["text/plain"], repr(panel), panel.code])


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", page)).strip()


def markup(panel: Any) -> str:
    """What is given to a browser as HTML."""
    return "\n".join([w.value for w in walk(panel) if isinstance(w, ipywidgets.HTML)] + [panel._repr_mimebundle_()["text/html"]])


class Balanced(HTMLParser):
    """Every element that is opened is closed."""

    EMPTY = ("img", "br", "hr")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.seen = list[str](), set[str]()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag
