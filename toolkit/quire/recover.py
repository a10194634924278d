"""`quire.recover`: what any job does first, and giving up unfinished work on request."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire import display
from quire.commit import names, protocol
from quire.commit.entries import Abort, Foreign, LostUpdate, Published
from quire.commit.log import Log
from quire.coverage import quarantine
from quire.engine.exports import step as exports
from quire.errors import UsageError, about, quoted
from quire.interrupts import interruptible
from quire.storage import connect, destination


@dataclass(frozen=True)
class Recovered(display.Shown):
    """The result of `recover`: jobs published, given up, and those that are still open (the next run of the same call goes on).

    A table has also what this call has found of other programs: `foreign`, the instants that they have completed, and `rolled_back`, the
    jobs whose instants they have rolled back, so that their sources will be read again. `lost_updates` has a line for each pair of
    instants of which the later one was built without the earlier one's updates, whichever call has found that: all that the log says
    since its last checkpoint. The ledger's history keeps all three.
    """

    dest: str
    published: tuple[str, ...]
    given_up: tuple[str, ...]
    open: tuple[str, ...]
    version: int
    foreign: tuple[str, ...] = ()
    rolled_back: tuple[str, ...] = ()
    lost_updates: tuple[str, ...] = ()

    def _facts(self) -> dict[str, object]:
        facts: dict[str, object] = {
            "published": ", ".join(self.published) or "nothing",
            "given up": ", ".join(self.given_up) or "nothing",
            "still open": ", ".join(self.open) or "nothing",
        }
        others = {"by other programs": self.foreign, "rolled back by others": self.rolled_back, "lost updates": self.lost_updates}
        return facts | {name: "; ".join(found) for name, found in others.items() if found} | {"version": self.version}


@interruptible
def recover(dest: str | os.PathLike[str], abort: str | None = None, storage_options: Mapping[str, Any] | None = None) -> Recovered:
    """Publish what was committed and not yet published, and delete what jobs that are over have left; return what was done.

    abort   a job's name, or "open" for all unfinished ones: give them up first. Otherwise unfinished jobs stay, and the next
            call with the same arguments goes on with them.

    `storage_options` are those of the store. Raises UsageError if the job does not exist, or nothing of quire's in `dest`.
    """
    with about("dest"):
        store = connect(destination(dest, storage_options), storage_options)
    if abort is not None and not isinstance(abort, str):
        with about("abort"):
            raise UsageError(f"abort={quoted(abort)} is not a job's name. Give one that is open, or 'open' for all of them.")
    if not store.is_folder(names.STATE):
        raise UsageError(f"{store.url} holds nothing of quire's. Check the spelling.")
    before = Log(store).refresh()
    log = protocol.recover(store, abort).refresh()
    exports.catch_up(log, warnings.warn)
    if any(commit.verb == "forget" for _, commit in log.recent()):
        quarantine.forget(store, log)
    new = log.since(before.tip)
    others = [e for e in new if isinstance(e, Foreign)]
    return Recovered(
        store.url,
        tuple(e.job for e in new if isinstance(e, Published)),
        tuple(e.job for e in new if isinstance(e, Abort)),
        tuple(h.job for h in protocol.open_jobs(store, log)),
        log.tip,
        tuple(instant for e in others for instant in e.instants),
        tuple(job for e in others for job in e.undone),
        tuple(_told(lost) for e in log.recent_of(Foreign) for lost in e.lost),
    )


def _told(lost: LostUpdate) -> str:
    return (
        f"updates of {lost.lost} are lost in {lost.groups:,} file group{'s' * (lost.groups != 1)}: {lost.by} was built without them, as "
        f"two programs wrote at once. Write the rows of {lost.lost} again, and let the programs take turns"
    )
