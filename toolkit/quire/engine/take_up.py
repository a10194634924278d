"""How every job begins, whoever asks for it: a run, a load, a claim, a change of the ledger, a committer's job.

    recover → an open job of the same intent | plan → freeze

A call that was killed is resumed here: its job is open, and its frozen plan is the one that counts. The log decides; whoever is told of a
job goes on with it, and is told by the log when another has ended it meanwhile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from quire.commit import checkpoints, names, protocol
from quire.commit.entries import WRITE, PlanHead, Spec
from quire.commit.held import Held
from quire.commit.log import Log
from quire.errors import FormatError, StorageError
from quire.storage import Store


@dataclass(frozen=True)
class Identity:
    """The name of a job, by which two calls are the same, and what its commit will say.

    intent  what the call asks for, without secrets; `named`, where it is given, is the part of it that names the job
    empty   what an open job may say of its output, too, if it was planned when the log said nothing of it
    """

    intent: Mapping[str, Any]
    spec: Spec
    committer: str
    closer: str = ""
    source: str = ""
    named: Mapping[str, Any] | None = None
    empty: Spec | None = None

    @property
    def hash(self) -> str:
        """16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.named or self.intent, sort_keys=True).encode()).hexdigest()[:16]

    def job(self, base: int) -> str:
        """The job that a call is at a version: the same for every driver of it."""
        return f"{base}-{self.hash}"

    def head(self, base: int, plan: str, tasks: int) -> PlanHead:
        """A plan of it, to be frozen."""
        return PlanHead(
            job=self.job(base), base=base, plan=plan, tasks=tasks, committer=self.committer, spec=self.spec, intent=dict(self.intent),
            source=self.source, closer=self.closer,
        )  # fmt: skip

    def names(self, head: PlanHead) -> bool:
        """Whether an open job has the name of this one."""
        return head.job.partition("-")[2] == self.hash

    def check(self, head: PlanHead, dest: str) -> None:
        """Refuse a plan under our job's name that does not say what the name says: somebody forged it."""
        said = head.intent if self.named is None else {key: head.intent.get(key) for key in self.named}
        same = said == (self.intent if self.named is None else self.named) and head.closer == self.closer
        if not same or head.spec not in (self.spec, self.empty) or head.intent.get("committer", head.committer) != head.committer:
            raise FormatError(
                f"the plan of job {head.job} in {dest} does not say what this call says, and has its name: it is damaged or forged. Give "
                f"the job up with recover(dest, abort={head.job!r}), and look who wrote it."
            )


P = TypeVar("P")


@dataclass(frozen=True)
class TakenUp(Generic[P]):
    """An open job, or none, where there is nothing to do, and the log as it was then; `planned` where the call has planned the job."""

    log: Log
    head: PlanHead | None
    planned: P | None


def take_up(
    store: Store, identify: Callable[[Log], Identity], plan: Callable[[Log, Identity], tuple[PlanHead, P] | None], *,
    held: Held | None = None, other: Callable[[str], object] = lambda _: None,
    resume: Callable[[Log, PlanHead], bool] = lambda *_: True,
) -> TakenUp[P]:  # fmt: skip
    """The open job of a call, or a new one, planned and frozen.

    identify  checks that the call goes with what the log says, and names its job
    plan      plans from the log's tip, which is settled, and writes what the tasks read; None: there is nothing to do
    held      of a call that begins again and again
    other     is told the names of open jobs of other calls
    resume    whether the call resumes its open job; if not, it plans one of its own

    Raises FormatError for a plan that is not what its name says.
    """
    while True:
        log, listed = protocol.recovered(store, held=held)
        try:
            taken = _taken_up(log, listed, identify, plan, other, resume)
        except FormatError:
            if not checkpoints.replaced(store, log.base):
                raise
            if held is not None:
                held.drop()
            continue  # another checkpoint stands for what the plan was to read, and upkeep has deleted that
        if taken is not None:
            return taken


def _taken_up(
    log: Log, listed: dict[str, set[str]], identify: Callable[[Log], Identity],
    plan: Callable[[Log, Identity], tuple[PlanHead, P] | None], other: Callable[[str], object], resume: Callable[[Log, PlanHead], bool],
) -> TakenUp[P] | None:  # fmt: skip
    """The same, at the log as it is; None: others have changed it meanwhile, so the call looks again."""
    store, identity = log.store, identify(log)
    head: PlanHead | None = None
    found: tuple[PlanHead, P] | None = None
    for there in protocol.open_jobs(store, log, listed):
        if not identity.names(there):
            other(there.job)
        elif head is None and resume(log, there):
            head = there
    if head is not None:
        identity.check(head, store.url)
    elif not log.settled():
        return None  # what is not published may still be lost, and no plan may rest on it
    elif (found := plan(log, identity)) is None:
        return TakenUp(log, None, None)
    else:
        head = _freeze(store, identity, found[0])
    if head is not None and log.read_on().outcome(head.job) is None:
        return TakenUp(log, head, found[1] if found is not None and found[0].plan == head.plan else None)
    if head is not None:
        protocol.clean(log, head.job)
    return None


def _freeze(store: Store, identity: Identity, head: PlanHead) -> PlanHead | None:
    """The plan that counts now, ours or another driver's; None where the job has ended meanwhile."""
    if not _stands(store, head):
        return None  # it was discarded, or another driver has ended the job and cleaned
    protocol.freeze(store, head)
    there = protocol.plan_head(store, head.job)
    if there is None:
        return None
    identity.check(there, store.url)
    return there if _stands(store, there) else None  # else the job ended between the two looks


def _stands(store: Store, head: PlanHead) -> bool:
    """Whether what its tasks read is there; a user's own job, and one without planned tasks, has nothing of the kind."""
    return head.verb == WRITE or not head.tasks or store.stat(names.plan_parquet(head.job, head.plan)) is not None


@contextmanager
def with_state(state: Callable[[], str] | str) -> Iterator[None]:
    """A store's error says how far the call has come, and how to go on."""
    try:
        yield
    except StorageError as e:
        raise type(e)(f"{str(e).rstrip('.')}. {state if isinstance(state, str) else state()}") from e
