"""The call that compacts a merge-on-read table: it lays plans, the most urgent slices first, and carries them out.

plans that are pending → carry them out → candidates → strategy → a plan → carry it out → … until nothing is left, or the time is over
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from quire import display
from quire.arguments import format_size, parse_size, seconds
from quire.commit import names as objects
from quire.commit import protocol
from quire.commit.committers import choice
from quire.commit.entries import TABLE, UNSAID, Commit, PlanHead
from quire.commit.log import Log
from quire.engine.take_up import Identity, with_state
from quire.errors import RefusedError, UsageError, quoted
from quire.storage import Store, plain
from quire.table import file_groups, rounds, timeline
from quire.table.compaction import NothingToPlan
from quire.table.format import config
from quire.table.rounds import SCHEDULE
from quire.table.service import Plan, Service
from quire.table.settings import opened
from quire.table.timeline import COMPACTION, Timeline
from quire.table.write.commit import COMPACT
from quire.table.writing import SPEC

MOST = 1_000  # file groups of one plan


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A file group that has logs: what it would cost to compact it, and bring.

    partition, group      where it is; "" is the partition of a table without any
    base_size, log_size   bytes of its base file (0: it has none), and of its logs
    logs                  how many they are
    instant               of its base file: the older it is, the longer nobody has compacted it
    """

    partition: str
    group: str
    base_size: int
    log_size: int
    logs: int
    instant: str


Strategy = Callable[[Sequence[Candidate]], Iterable[Candidate]]
STRATEGIES: dict[str, Callable[[Candidate], Any]] = {
    "log_size": lambda one: -one.log_size,
    "logs": lambda one: -one.logs,
    "oldest": lambda one: one.instant,
}


@dataclasses.dataclass(frozen=True, repr=False)
class CompactionReport(display.Shown):
    """The result of a call that compacts a table.

    dest                 the table
    scheduled            instants of the plans that this call has laid
    completed            instants of the plans that it has carried out
    pending              those that are still to be carried out
    file_groups, logs    how many file groups were compacted, and how many logs they had
    read, written        bytes of these logs, and of the new base files
    left                 file groups that have logs and are in no plan
    version, seconds     the log's number at the end; how long it took

        report = table.compact(time_limit="10 min")
        print(report), json.dumps(report.as_dict())
    """

    dest: str
    scheduled: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    file_groups: int = 0
    logs: int = 0
    read: int = 0
    written: int = 0
    left: int = 0
    version: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        return (
            f"CompactionReport(scheduled={len(self.scheduled)}, completed={len(self.completed)}, pending={len(self.pending)}, "
            f"file_groups={self.file_groups:,}, logs={self.logs:,}, left={self.left:,}, seconds={self.seconds:.1f}, version={self.version})"
        )

    def _facts(self) -> Mapping[str, object]:
        rows: dict[str, object] = {
            "compacted": f"{self.file_groups:,} file groups, {self.logs:,} logs ({format_size(self.read)})",
            "written": format_size(self.written),
        }
        for name in ("scheduled", "completed", "pending"):
            if instants := getattr(self, name):
                rows[name] = _listed(instants)
        return rows | {"file groups left with logs": f"{self.left:,}", "version": self.version, "seconds": f"{self.seconds:.1f}"}


def _listed(instants: Sequence[str]) -> str:
    shown = ", ".join(instants[:3])
    return f"{shown} and {len(instants) - 3:,} more" if len(instants) > 3 else shown


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The arguments of a call, checked; `limit`: seconds, `size`: bytes that a plan reads."""

    order: Strategy
    size: int
    limit: float | None = None

    @classmethod
    def of(cls, strategy: str | Strategy, plan_size: str | int, time_limit: str | float | None = None) -> Wanted:
        """UsageError for what is not an argument."""
        if not callable(strategy) and not (isinstance(strategy, str) and strategy in STRATEGIES):
            raise UsageError(
                f"strategy={quoted(strategy)} is not one of {', '.join(map(repr, STRATEGIES))}, nor a function that takes a list of "
                "candidates and returns those to compact, the most urgent first."
            )
        size, limit = parse_size(plan_size, "plan_size"), None if time_limit is None else seconds(time_limit, "time_limit")
        if limit == 0:
            raise UsageError("time_limit is 0, and has to be longer: write for example '10 min'.")
        return cls(strategy if callable(strategy) else _by(STRATEGIES[strategy]), size, limit)


def _by(key: Callable[[Candidate], Any]) -> Strategy:
    return lambda found: sorted(found, key=key)


def check(store: Store) -> None:
    """RefusedError for a table without logs, and for one that quire may not write."""
    if opened(store)[0].type != config.MERGE_ON_READ:
        raise RefusedError(f"{plain(store.url)} is a copy-on-write table: it has no logs, so there is nothing to compact.")


@dataclasses.dataclass(kw_only=True)
class Compacting(Service):
    """A call that compacts a table."""

    asked: Wanted

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.store)

    def schedule(self) -> CompactionReport:
        """Lay one plan, of what is most urgent."""
        began = time.monotonic()
        with with_state("Call again."):
            self._settle()
            return self._report(began, self._schedule(frozenset()), ())

    def compact(self, *, schedule: bool) -> CompactionReport:
        """Carry out the plans that are pending; with `schedule` lay more of them, until no file group has logs that it had not met."""
        began, scheduled, completed = time.monotonic(), list[str](), list[str]()
        with with_state("What was carried out stays so; call again to go on."):
            self._settle()
            met, tried = set[tuple[str, str]](), set[str]()
            while True:
                line = timeline.current(self.store)
                met |= line.compacting().keys()
                ready = sorted(line.compactions() - self._begun(line) - tried)
                if self.asked.limit is not None and completed and time.monotonic() - began >= self.asked.limit:
                    break
                if ready:
                    tried.add(ready[0])  # where it stays pending all the same, the next call looks again
                    if self._carry_out(ready[0]):
                        completed.append(ready[0])
                    continue
                if not schedule or not (more := self._schedule(met)):
                    break
                scheduled += more
            return self._report(began, scheduled, completed)

    def _begun(self, line: Timeline) -> set[str]:
        """Compactions that another program has begun: quire's own are in flight for a moment alone, at their end."""
        return {i.time for i in line.pending if i.action == COMPACTION and i.state == "inflight"}

    def _settle(self) -> None:
        """Publish what is committed, and give up the jobs of plans that are not pending any more: other programs have carried them out."""
        self.log = protocol.recover(self.store)
        pending = timeline.current(self.store).compactions()
        for head in protocol.open_jobs(self.store, self.log):
            if head.intent.get("operation") == COMPACT and head.intent.get("batch") not in pending:
                protocol.abort(self.log, head.job, "another program has carried the plan out, or taken it back")

    # ------------------------------------------------------------------------------------------------------------------- the plans
    def _candidates(self) -> Iterator[Candidate]:
        line = timeline.current(self.store)
        planned = line.compacting()
        for one in file_groups.newest(self.store, line, logs=True):
            if one.logs and (one.partition, one.group) not in planned:
                yield Candidate(one.partition, one.group, one.size, one.logged, len(one.logs), one.instant)

    def _schedule(self, met: frozenset[tuple[str, str]] | set[tuple[str, str]]) -> list[str]:
        """Lay a plan of the most urgent candidates that were not met before; its instant, or nothing."""
        groups = self._chosen([one for one in self._candidates() if (one.partition, one.group) not in met])
        if not groups:
            return []
        named = {"verb": SCHEDULE, "operation": SCHEDULE, "dest": self.dest}
        identity = Identity({**named, "groups": groups}, SPEC, choice("auto", self.store), closer=TABLE, named=named, empty=UNSAID)
        try:
            outcome = self._job(identity, lambda log, identity: (identity.head(log.tip, objects.new_id(), 0), None))
        except NothingToPlan:
            return []
        return [rounds.round_of(outcome.tasks[-1]).instant] if outcome else []

    def _chosen(self, found: Sequence[Candidate]) -> list[list[str]]:
        """The candidates that one plan has, in the order in which the strategy gives them."""
        there, chosen, size = set(found), dict[tuple[str, str], None](), 0
        for one in self.asked.order(found) if found else ():
            if one not in there:
                raise UsageError(f"strategy has returned {quoted(one)}, which is not one of the candidates that it was given.")
            if chosen and (size + one.base_size + one.log_size > self.asked.size or len(chosen) == MOST):
                break
            chosen[one.partition, one.group] = None
            size += one.base_size + one.log_size
        return [[partition, group] for partition, group in chosen]

    def _carry_out(self, instant: str) -> bool:
        """Carry out a plan; False: another one has done so, or taken it back."""
        intent = {"verb": COMPACT, "operation": COMPACT, "dest": self.dest, "batch": instant}
        identity = Identity(intent, SPEC, choice("auto", self.store), closer=TABLE, empty=UNSAID)

        def plan(log: Log, identity: Identity) -> tuple[PlanHead, None] | None:
            done = any(log.in_effect(commit) for commit in log.ending(identity.hash))
            return None if done else (identity.head(log.tip, objects.new_id(), 0), None)

        try:
            return self._job(identity, plan) is not None
        except RefusedError:
            line = timeline.current(self.store)
            if self.store.stat(line.plan_of(instant)) is None or line.has_compacted(instant):
                return False
            raise

    def _job(self, identity: Identity, plan: Plan) -> Commit | None:
        """Bring a job to its end; its commit, or None: there was nothing to do. A plan is chosen anew by the next call."""
        return self.run(identity, plan, "compaction", keep=identity.named is None)

    def _report(self, began: float, scheduled: Sequence[str], completed: Sequence[str]) -> CompactionReport:
        assert self.log is not None
        line = timeline.current(self.store)
        runs = (at for at in line.completed if at.time in completed)
        stats = [stat for commit in line.commits(runs) for _, stat, _ in commit.files()]
        return CompactionReport(
            plain(self.dest), tuple(scheduled), tuple(completed), tuple(sorted(line.compactions())), file_groups=len(stats),
            logs=sum(stat.total_log_files_compacted for stat in stats), read=sum(stat.total_log_size_compacted for stat in stats),
            written=sum(stat.file_size_in_bytes for stat in stats), left=sum(1 for _ in self._candidates()), version=self.log.tip,
            seconds=time.monotonic() - began,
        )  # fmt: skip
