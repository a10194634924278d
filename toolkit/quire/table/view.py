"""A table as a closing run finds it: settled, and the same for all that the run decides."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from quire.commit import protocol
from quire.commit.log import Log
from quire.table import file_groups, rounds, timeline
from quire.table.file_groups import Slice
from quire.table.format import names, schema
from quire.table.format.config import TableConfig
from quire.table.rounds import Round
from quire.table.timeline import Timeline
from quire.table.write.blocks import Closing
from quire.table.write.write import Written

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class View:
    """The timeline and the newest slices that are built on; `version`: of the log before; `drawn`: an instant later than all.

    ended   when it ends, in layout 2
    """

    log: Log
    version: int
    line: Timeline
    slices: Sequence[Slice]
    drawn: str
    ended: str = ""


def there(line: Timeline, has: TableConfig) -> pa.Schema | None:
    """The columns of a table; None: nothing has been written yet, and its settings name none."""
    text = line.schema() or has.schema
    return schema.from_avro(text, f"the schema of {line.store.url}") if text else None


def look(log: Log, *, logs: bool) -> View:
    """Publish what the log has committed, and look then; `logs`: slices with those that change them.

    Raises TransientError where listings lag behind the log.
    """
    log.append(rounds.unknown)
    version = log.tip
    for commit in log.unpublished():
        protocol.publish(log, commit)  # a round is built on published slices only
    line = timeline.current(log.store)
    slices = file_groups.newest(log.store, line, logs=logs)
    rounds.check_listed(log, line, slices)
    taken = (
        {instant for instant, *_ in log.instant_rows()}
        | {instant.time for instant in (*line.completed, *line.pending, *line.others)}
        | line.cleans
    )
    now = dt.datetime.now(dt.UTC)
    if line.folder == names.FOLDER:
        return View(log, version, line, slices, names.next_instant(taken, now))
    # Whatever ends, ends before the next one begins: the log's order is that of instants, and that in which they end.
    taken |= {instant.ended for instant in (*line.completed, *line.others) if instant.ended} | rounds.ends(log)
    drawn = names.next_instant(taken, now)
    return View(log, version, line, slices, drawn, names.after(drawn))


class Body(Protocol):
    """The work of a closing run."""

    def write(self, view: View, closing: Closing) -> list[Written]:
        """Write the files of the round where nobody sees them."""
        ...

    def say(self, view: View, closing: Closing, written: list[Written]) -> tuple[Round, bytes]:
        """The words of the round about itself, and the content of what publication puts onto the timeline; b"": nothing is to appear."""
        ...
