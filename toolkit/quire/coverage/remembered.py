"""The memory of a process for pieces of checkpoints, which never change: a loop looks at the same ones in each of its runs.

A loop asks for the pieces of the newest checkpoint, and somebody beside it perhaps for those of an older version. So of each destination a
few checkpoints are remembered: else a loop would hold the dead ones, too, each as large as its ledger was. A piece that is a copy of one in
the checkpoint before has the same `content`, and the same place.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from quire.commit import names

T = TypeVar("T")
CHECKPOINTS = 2  # of a destination
DESTINATIONS = 1_024


class Remembered(Generic[T]):
    """A place for each piece and `key`, made by `make`: at most so many, those that were asked for last."""

    def __init__(self, make: Callable[[], T], most: int) -> None:
        self._make, self._most, self._lock = make, most, threading.Lock()
        self._places = OrderedDict[tuple[str, str, Hashable], tuple[str, T]]()  # each with the checkpoint that it was asked for last
        self._checkpoints = OrderedDict[str, tuple[str, ...]]()  # those of each destination, the one that came last first

    def of(self, url: str, piece: str, key: Hashable = None, content: str = "") -> T:
        """The place for a piece of the destination at `url`, or for all that have its `content`, to fill and to look into."""
        checkpoint = names.head_of_piece(piece) or piece
        at = url, content or piece, key
        with self._lock:
            if checkpoint not in self._checkpoints.get(url, ()):
                self._came(url, checkpoint)
            place = self._places.pop(at)[1] if at in self._places else self._make()
            self._places[at] = checkpoint, place
            if len(self._places) > self._most:
                self._places.popitem(last=False)
            return place

    def _came(self, url: str, checkpoint: str) -> None:
        """Forget what a destination's older checkpoints have."""
        kept = (checkpoint, *self._checkpoints.pop(url, ()))[:CHECKPOINTS]
        self._checkpoints[url] = kept
        for at in [at for at, (asked, _) in self._places.items() if at[0] == url and asked not in kept]:
            del self._places[at]
        if len(self._checkpoints) > DESTINATIONS:
            self._checkpoints.popitem(last=False)
