"""Pages of listings, read column by column: a page in XML as services write it, without an event for each of its elements.

All between the first file of a page and its last one is matched by one pattern, and the rest is read as XML. A page that is written
otherwise (other elements or another order, comments, numbered characters) is not matched, and is read as XML as a whole: `None`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.sax.saxutils import unescape

from quire.storage.base import Files

ENTITIES = {"&quot;": '"', "&apos;": "'"}


def split(body: bytes, tag: bytes, pattern: re.Pattern[bytes], end: bytes) -> tuple[list[tuple[bytes, ...]], bytes] | None:
    """The finds of `pattern` in each element `tag`, and the page without them, which ends with `end`; None: it is not written so."""
    # One byte is looked for many times faster than two of which the first stands everywhere.
    numbered = b"#" in body
    if numbered:  # as some write quotes
        body = body.replace(b"&#34;", b"&quot;").replace(b"&#39;", b"&apos;")
    begin, close = b"<" + tag + b">", b"</" + tag + b">"
    first, last = body.find(begin), body.rfind(close) + len(close)
    if first < 0 or last < first or not body.rstrip().endswith(end):
        return None
    # A declaration or a comment could hold what looks like an element, and XML makes one character of other ends of lines.
    if (b"!" in body and b"<!" in body) or (numbered and b"&#" in body) or b"\r" in body or b"\0" in body:
        return None
    found: list[tuple[bytes, ...]] = pattern.findall(body, first, last)
    if not len(found) == body.count(begin) == body.count(close):
        return None
    return found, body[:first] + body[last:]


def files(found: list[tuple[bytes, ...]], moment: Callable[[str], int], decode: Callable[[str], str] | None = None) -> Files | None:
    """The columns of (name, last change, etag, size); `decode`: of names that are encoded once more. None: it is not UTF-8."""
    names, changed, etags, sizes = zip(*found, strict=True)
    try:
        named, versions = b"\0".join(names).decode(), b"\0".join(etags).decode().split("\0")
    except UnicodeDecodeError:
        return None
    keys = named.split("\0")
    if "&" in named:
        keys = [unescape(key, ENTITIES) if "&" in key else key for key in keys]
    if decode is not None:
        keys = [decode(key) if "%" in key or "+" in key else key for key in keys]
    at = {text: moment(text.decode()) for text in set(changed)}
    return Files(keys, list(map(int, sizes)), versions, [at[text] for text in changed])
