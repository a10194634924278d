"""Transforms of a file's content on its way to a data file: one of the built-in transforms, or a function of the user's.

    lines   the file's lines, byte for byte, each ended by one newline
    raw     the content as it is
    xml     one document, as one line
    json    one document or JSON lines, one line a record

Content that cannot be parsed raises BadContent, which quarantines the file.
"""

from __future__ import annotations

from quire.sources.transforms.content import BadContent
from quire.sources.transforms.functions import UserFunction, call, identity
from quire.sources.transforms.json import json
from quire.sources.transforms.xml import xml

__all__ = ["NAMES", "BadContent", "UserFunction", "call", "identity", "json", "lines", "raw", "xml"]

NAMES = ("lines", "raw", "xml", "json")


def lines(content: bytes) -> bytes:
    r"""Return the content with a newline after its last line; nothing is decoded, and `\r` stays. An empty file has no lines."""
    return content if not content or content.endswith(b"\n") else content + b"\n"


def raw(content: bytes) -> bytes:
    """Return the content."""
    return content
