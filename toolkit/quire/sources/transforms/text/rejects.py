"""The records of a text that do not fit, told from those that do: halves are parsed again until each stands alone.

So one parser decides, whatever it is, and a file with few wrong records costs little more than one without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from quire.sources.transforms.content import BadContent

MOST, SHARE = 1_000, 10  # records of one split, or a tenth of them; a file of which more do not fit is of another kind
T = TypeVar("T")
Span = tuple[int, int]  # where a record begins and ends in the text


class DoesNotFitError(Exception):
    """A record is not one, or has a value that does not fit into its column."""


def told(
    text: bytes, records: Sequence[Span], parse: Callable[[bytes], T], why: Callable[[bytes, DoesNotFitError], str],
    rescue: Callable[[bytes], T] | None = None, before: tuple[int, int] = (0, 0),
) -> tuple[list[T], list[tuple[Span, str]]]:  # fmt: skip
    """The rows of the records that fit, in order, and the records that do not, each with the reason.

    parse   makes rows of some records that follow one another; DoesNotFitError where one of them does not fit
    why     says of one record why it does not
    rescue  makes a row of one that does not, with its values elsewhere; DoesNotFitError where that does not go either
    before  how many records of the same file come before these, and how many of them do not fit
    """
    fitting, rejected = list[T](), list[tuple[Span, str]]()
    n = before[0] + len(records)
    waiting, most = [(0, len(records))], max(MOST, n // SHARE)
    while waiting:
        first, end = waiting.pop()
        part = text[records[first][0] : records[end - 1][1]]
        try:
            fitting.append(parse(part))
        except DoesNotFitError as e:
            if end - first > 1:
                middle = (first + end) // 2
                waiting += [(middle, end), (first, middle)]
                continue
            if rescue is not None:
                try:
                    fitting.append(rescue(part))
                    continue
                except DoesNotFitError as still:
                    reason = why(part, still)
            else:
                reason = why(part, e)
            rejected.append((records[first], reason))
            if before[1] + len(rejected) > most:
                of = f"its first {n:,}" if before[0] else f"its {n:,}"
                raise BadContent(f"more than {most:,} of {of} records do not fit; of the first: {rejected[0][1]}") from None
    return fitting, rejected
