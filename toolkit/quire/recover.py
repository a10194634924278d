"""`quire.recover`: what any job does first, and giving up unfinished work on request."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire import display
from quire.commit import names, protocol
from quire.commit.entries import Abort, Published
from quire.commit.log import Log
from quire.errors import UsageError
from quire.interrupts import interruptible
from quire.storage import canonical, connect


@dataclass(frozen=True)
class Recovered(display.Shown):
    """The result of `recover`: jobs published, given up, and those that are still open (the next run of the same call goes on)."""

    dest: str
    published: tuple[str, ...]
    given_up: tuple[str, ...]
    open: tuple[str, ...]
    version: int

    def _facts(self) -> dict[str, object]:
        return {
            "published": ", ".join(self.published) or "nothing",
            "given up": ", ".join(self.given_up) or "nothing",
            "still open": ", ".join(self.open) or "nothing",
            "version": self.version,
        }


@interruptible
def recover(dest: str | os.PathLike[str], abort: str | None = None, storage_options: Mapping[str, Any] | None = None) -> Recovered:
    """Publish what was committed and not yet published, and delete what jobs that are over have left; return what was done.

    abort   a job's name, or "open" for all unfinished ones: give them up first. Otherwise unfinished jobs stay, and the next
            call with the same arguments goes on with them.

    `storage_options` are those of the store. Raises UsageError if the job does not exist, or nothing of quire's in `dest`.
    """
    store = connect(canonical(dest, storage_options), storage_options)
    if not store.is_folder(names.STATE):
        raise UsageError(f"{store.url} holds nothing of quire's. Check the spelling.")
    before = Log(store).refresh()
    log = protocol.recover(store, abort).refresh()
    new = log.since(before.tip)
    return Recovered(
        store.url,
        tuple(e.job for e in new if isinstance(e, Published)),
        tuple(e.job for e in new if isinstance(e, Abort)),
        tuple(h.job for h in protocol.open_jobs(store, log)),
        log.tip,
    )
