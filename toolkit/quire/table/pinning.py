"""Whether a table can still be read as it was at a version of its log: a pin of one that is gone would hold nothing."""

from __future__ import annotations

from quire.commit.log import Log
from quire.errors import RefusedError
from quire.storage import plain
from quire.table import cleaning, retention, rounds, timeline


def check_readable(log: Log, version: int) -> None:
    """RefusedError where what a version has seen was taken back, cleaned or archived since, by whatever program.

    The log says it before quire's own upkeep takes anything (`cleaning.expired`); this looks at the table, whoever has taken it.
    """
    there = cleaning.seen(log, version)
    if back := sorted(there & rounds.taken_back(log, version)):
        raise RefusedError(
            f"version {version} of {plain(log.store.url)} cannot be pinned: its write {back[0]} was rolled back since. Pin a later one; "
            "ledger.inspect.history() lists them."
        )
    newest, line = max(there, default="0"), timeline.current(log.store)
    try:
        retention.check_not_archived(line, newest)
        if any(clean > newest for clean in line.cleans):
            cleaning.held(log.store, line, newest)
    except RefusedError as e:
        raise RefusedError(f"version {version} cannot be pinned: {e}") from e
