"""All kinds of input that are files have this in common: how they are listed, and what a report says of them."""

from __future__ import annotations

from collections.abc import Sequence

from quire.commit.log import Log
from quire.engine.kinds import Calling, nothing_useful
from quire.planning.listing import Listed
from quire.planning.plan import Look, list_files
from quire.sources.files import Root
from quire.sources.kafka.topics import is_kafka


class OfFiles:
    """Lists files, and tells of them; how they are read is each kind's own."""

    phase, noun = "gathering", "files"

    def plan(self, look: Look) -> tuple[Listed, float]:
        """List the files that are not done."""
        return list_files(look)

    def owns(self, path: str) -> bool:
        """Whether a path of the ledger is a file's."""
        return not is_kafka(path)

    def split(self, path: str, start: int) -> str:
        """A file is named by its path."""
        return path

    def taken(self, files: int, records: int) -> str:
        """How much a call has taken."""
        return f"{files:,} files were gathered"

    def report(self, roots: Sequence[Root], call: Calling, log: Log) -> dict[str, str]:
        """Where files come from, and whether all of them are quarantined."""
        failure = nothing_useful(call, call.stats.quarantined_files, call.stats.quarantined_records) if call.jobs else ""
        if not call.jobs and 0 < call.quarantined == call.skipped:
            failure = f"nothing is new, and of {call.skipped:,} file{'s' * (call.skipped != 1)} that were read before all are quarantined"
        return {"source": ", ".join(root.url for root in roots), "failure": failure}
