"""The log of a destination, held from run to run of a call that goes on and on: it reads what has come since, and not all again.

Entries never change, so holding them is not a second truth; but that they are still there is looked at, as a destination may be deleted and
made again between two runs. Where a checkpoint has come, which stands for what is held, the log is opened anew: so it stays short.
"""

from __future__ import annotations

import time

from quire.commit import checkpoints
from quire.commit.log import Log
from quire.storage import Store

EVERY = 300.0  # seconds from one look at what others may have left to the next


class Held:
    """Nothing at first; then the log of the destination that was read last."""

    def __init__(self) -> None:
        self._log: Log | None = None
        self._looked = float("-inf")  # when it was time for a look

    def read(self, store: Store) -> Log:
        """The log there, read to its tip; it is the same destination each time."""
        log, self._log = self._log, None  # what fails half-way is read anew
        if log is not None:
            log.store = log.archive.store = store  # its retries are told to whoever asks now
        self._log = (log if log is not None and _current(log) else Log(store)).refresh()
        return self._log

    def drop(self) -> None:
        """Read all of it anew next time: something that its checkpoint names was not there."""
        self._log = None

    def looks(self) -> bool:
        """Whether it is time for a look at all that dead attempts may have left, which takes the longer the longer a ledger is."""
        now = time.monotonic()
        if now - self._looked < EVERY:
            return False
        self._looked = now
        return True


def _current(log: Log) -> bool:
    """Whether reading on leads to what reading anew would: its checkpoint is the newest, and its last entry stands there."""
    base = [(log.base.version, log.base.id)] if log.base else []
    return checkpoints.seek(log.store)[:1] == base and log.stands()
