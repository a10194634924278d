"""The function of the job `words`: how often each word is in a file."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import quire


def rows(_: quire.Split, content: bytes) -> list[dict[str, Any]]:
    """One row a word."""
    return [{"word": word, "n": n} for word, n in Counter(content.decode().split()).items()]
