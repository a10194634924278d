"""The retry of a run: it takes what is quarantined, lies in the run's sources, and has waited for long enough since it was read last.

When a row was read last is the time of the commit that brought it, and how often stands in the row: so any process finds the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from quire.commit.entries import Commit
from quire.commit.log import Log
from quire.coverage import segments
from quire.coverage.fold import Fold, fold
from quire.engine import kinds
from quire.engine.driver import check_spec
from quire.engine.request import Request
from quire.engine.retrying import Retried, Retries
from quire.errors import about
from quire.ledger.job import Dest
from quire.ledger.retry import quarantined_rows, retry
from quire.planning.listing import EXAMPLES
from quire.progress import Progress
from quire.sources.files import located
from quire.sources.kafka.topics import Topics, key_of
from quire.sources.members import identified
from quire.spark.runner import Runner


def retry_due(request: Request, retries: Retries, runner: Runner, bars: Progress) -> Retried:
    """Read once more what is due, in one commit; nothing is planned or written where nothing is."""
    log = request.held.read(request.store(bars.again))
    if log.spec() is None or not _due(log, fold(log, log.settled_version()), request.roots, retries).num_rows:
        return Retried()
    with about("dest"):
        check_spec(log, request)
    convert, loading = request.convert, request.convert.loading
    function: Any = convert.function if loading is None else loading.function

    def chosen(folded: Fold) -> pa.Table:
        return _due(Log(request.store(bars.again)).refresh(), folded, request.roots, retries)

    said = {"within": "run", "wait": retries.wait, "max_attempts": retries.attempts, "max_file_size": convert.max_file_size}
    dest = Dest(request.dest, request.dest_options, runner, bars, request.identity.committer, held=request.held)
    done = retry(dest, chosen, said, request.roots, request.cut.target, function, request.reduce, convert.evolves)
    given_up = _given_up(log.refresh(), done.jobs, request.spec.kind, retries)
    found = Retried(done.quarantined_out, done.gathered - done.vain, tuple(given_up[:EXAMPLES]), len(given_up), done.jobs)
    if done.jobs:
        bars.say(f"{found.count:,} tried again of the quarantine, {found.taken:,} gathered; version {done.version}")
    return found


def _due(log: Log, folded: Fold, sources: Sequence[Any], retries: Retries) -> pa.Table:
    """The rows of the quarantine that are due. One that a clock far ahead has dated is due, too: it would wait for ever."""
    rows, now, times, mine = quarantined_rows(log, folded, folded.version), time.time(), dict[int, float](), _within(sources)

    def due(path: str, tries: int | None, number: int) -> bool:
        tries = tries or 1
        if tries >= retries.attempts or not mine(path):
            return False
        if number not in times:
            times[number] = _moment(log.commit(number).time)
        return abs(now - times[number]) >= retries.after(tries)

    values = zip(*(rows.column(name).to_pylist() for name in ("path", "tries", "commit")), strict=True)
    return rows.filter(pa.array([due(*row) for row in values], pa.bool_()))


def _within(sources: Sequence[Any]) -> Callable[[str], bool]:
    """Whether a path of the ledger lies in what this call reads."""
    if sources and isinstance(topics := sources[0], Topics):
        return lambda path: path.startswith(f"{topics.url}/") and topics.matches(key_of(path).topic)
    find = located(sources)
    return lambda path: find(path) is not None


def _moment(text: str) -> float:
    """The time of an entry; one that says none is long ago."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _given_up(log: Log, jobs: Sequence[str], kind: str, retries: Retries) -> list[tuple[str, str]]:
    """The rows that these jobs have read for the last time, each as its path, and why it is still in quarantine."""
    found, named = list[tuple[str, str]](), kinds.named(kind)
    for job in jobs:
        outcome = log.outcome(job)
        for task in log.in_effect(outcome) if isinstance(outcome, Commit) else ():
            if task.stats.quarantined and task.coverage.segment:
                rows = segments.read(log.store, task.coverage.segment, ["path", "start", "state", "reason", "tries", "member"]).to_pylist()
                last = [r for r in rows if r["state"] == "quarantined" and (r["tries"] or 1) >= retries.attempts]
                found += [(identified(named.split(r["path"], r["start"]), r["member"]), r["reason"]) for r in last]
    return found
