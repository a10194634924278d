"""A job of a table that writes no rows of a user's: it is taken up, or planned, and closed in rounds like every other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from quire.commit import protocol
from quire.commit.entries import Abort, Commit, PlanHead
from quire.commit.log import Log
from quire.coverage import checkpoint
from quire.engine import job as jobs
from quire.engine.attempt import Work
from quire.engine.exports import step as exports
from quire.engine.take_up import Identity, take_up
from quire.errors import QuireError
from quire.progress import Progress
from quire.spark.runner import Runner
from quire.storage import connect, plain
from quire.table.writing import NO_TASKS

Plan = Callable[[Log, Identity], tuple[PlanHead, None] | None]


@dataclass
class Service:
    """The jobs of one call at the table `dest` (the URL with a table's mark); `log`: as it was read last."""

    dest: str
    options: Any = field(repr=False)
    runner: Runner
    bars: Progress
    log: Log | None = None

    def __post_init__(self) -> None:
        self.store = connect(self.dest, self.options, self.bars.again)

    def run(self, identity: Identity, plan: Plan, word: str, *, keep: bool) -> Commit | None:
        """Bring a job to its end; its commit, or None: there was nothing to do. `keep`: one that fails stays open, for the next call."""
        with self.bars.run(word, plain(self.dest)):
            return self._run(identity, plan, word, keep=keep)

    def _run(self, identity: Identity, plan: Plan, word: str, *, keep: bool) -> Commit | None:
        for losses in range(jobs.LOSSES + 1):
            taken = take_up(self.store, lambda _: identity, plan)
            self.log = taken.log
            if taken.head is None:
                exports.catch_up(self.log, self.bars.say_once)
                return None
            try:
                jobs.close(self.runner, self.log, Work(self.dest, self.options, (), taken.head, NO_TASKS), [], None, self.bars)
            except (Exception, KeyboardInterrupt):
                if not keep:
                    with suppress(QuireError):  # what goes wrong now is not what the user should hear of
                        protocol.abort(self.log.refresh(), taken.head.job, "its call failed")
                raise
            outcome = self.log.refresh().outcome(taken.head.job)
            checkpoint.keep_up(self.runner, self.dest, self.options, self.log, self.bars.say)
            if isinstance(outcome, Commit) and self.log.in_effect(outcome):
                return outcome
            if isinstance(outcome, Abort) and outcome.why != protocol.ON_REQUEST and losses < jobs.LOSSES:
                continue  # another driver of this job gave it up: where its reason still holds, the next job meets it here, and says it
            if isinstance(outcome, Abort):
                raise QuireError(f"the {word} of {plain(self.dest)} was given up: {outcome.why}. Nothing of it is visible.")
            jobs.check_losses(losses + 1, taken.head.job, plain(self.dest))
        raise AssertionError("check_losses ends it")
