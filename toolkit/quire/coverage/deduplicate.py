"""Which records of a topic are the same, as the log says it, and the fingerprints by which they are known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.errors import FormatError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

COLUMN = "column:"


@dataclass(frozen=True)
class Deduplicate:
    """By what records are the same ("key", "header:NAME" or "column:NAME"; "": none is), and within how many milliseconds."""

    by: str
    within: int = 0

    @property
    def said(self) -> str:
        """As a commit says it."""
        return json.dumps({"by": self.by, "within": self.within})

    @property
    def column(self) -> str:
        """The column that tells it; "": the key or a header does."""
        return self.by.removeprefix(COLUMN) if self.by.startswith(COLUMN) else ""


def stored(said: str) -> Deduplicate | None:
    """The meaning of a commit's words; None: it has none, or none is left out. FormatError for what no writer of ours has written."""
    if not said:
        return None
    try:
        found = Deduplicate(**json.loads(said))
        if type(found.by) is str and type(found.within) is int and 0 <= found.within < 1 << 53 and (not found.by or found.within):
            return found if found.by else None
    except (ValueError, TypeError, RecursionError):
        pass
    raise FormatError(f"the log says {said[:100]!r} of which records are the same: it is damaged. Look who wrote it.")


class Prints(NamedTuple):
    """128 bits of each record's value and its time in milliseconds since 1970; one without any of both is not `told` from others."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    at: npt.NDArray[np.int64]
    told: npt.NDArray[np.bool_]

    def take(self, rows: npt.NDArray[Any]) -> Prints:
        """Those of some records."""
        return Prints(self.high[rows], self.low[rows], self.at[rows], self.told[rows])
