"""The mistakes that protocol.md §11 lists, each the counter-example of a model checker, as histories that this code must survive.

A test has its pitfall's name there. Not here, for want of what they are about: Azure and S3 (azure_*, no_if_match of a store that has
it), expire, pins, checkpoints, copies, and verbs that rewrite data files (rewrite_*, retry_takes_old_job).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import quire
import sim
from gathering import not_taken
from quire.commit import names, protocol
from quire.commit.committers import committer as the_committer
from quire.commit.entries import Abort, Commit, Coverage, DataFile, Deferred, PlanHead, Published, Spec, Stats, Task, Uncover
from quire.commit.log import Log
from quire.coverage.antijoin import remaining
from quire.coverage.conflicts import conflicts
from quire.coverage.fold import fold
from quire.coverage.segments import SCHEMA, SegmentWriter
from quire.engine.attempt import Work, attempt
from quire.errors import FormatError, QuireError, StorageError

SPEC = Spec(transform="lines", format="lines", compression="none", layout="flat")
Row = tuple[str, str, int, int]  # path, version, start, length


@pytest.fixture
def world() -> Iterator[sim.World]:
    sim.forget_all()
    made = sim.World()
    with made.installed():
        yield made
    sim.forget_all()


@pytest.fixture
def store(world: sim.World) -> sim.SimStore:
    """The destination; what fails in it is not tried again."""
    return world.store(sim.DEST).inner


@pytest.fixture
def tree() -> sim.Tree:
    return sim.Tree()


# ----------------------------------------------------------------------------------------------------- histories, step by step
def gather(source: Any = sim.SOURCE, **options: Any) -> quire.Report:
    return quire.consolidate(
        source, sim.DEST, spark=quire.LocalRunner(), progress=False, **{"target_size": "1000 B", "max_quarantined": 1000, **options}
    )


def look(**options: Any) -> quire.Plan:
    return quire.plan(sim.SOURCE, sim.DEST, spark=quire.LocalRunner(), progress=False, **{"target_size": "1000 B", **options})


def job_of(n: int, base: int = 0) -> str:
    return f"{base}-{n:016x}"


def frozen(store: sim.SimStore, n: int, base: int = 0, tasks: int = 1, committer: str = "rename", spec: Spec = SPEC) -> PlanHead:
    """A job with a plan that counts."""
    head = PlanHead(
        job=job_of(n, base), base=base, plan=names.new_id(), tasks=tasks, committer=committer, spec=spec, intent={"n": n}, closer=""
    )
    store.put(names.plan_parquet(head.job, head.plan), b"parquet")
    protocol.freeze(store, head)
    return head


def worked(store: sim.SimStore, head: PlanHead, rows: list[Row], task: int = 0, data: bytes | None = b"data\n", state: str = "done",
           manifest: bool = True, left: tuple[Deferred, ...] = (), removes: tuple[str, ...] = (),
           uncovers: tuple[Uncover, ...] = ()) -> Task:  # fmt: skip
    """What an attempt does: output, segment, manifest."""
    attempt_id, by = names.new_id(), the_committer(head.committer, store)
    files = []
    if data is not None:
        final = names.data_file("", head.job, task, attempt_id, 0, "txt")
        sink = by.create(store, head.job, task, attempt_id, final)
        sink.write(data)
        sink.close()
        files.append(DataFile(final, len(data), 1, by.handle(head.job, task, attempt_id, final, sink)))
    writer = SegmentWriter()
    row = dict.fromkeys(SCHEMA.names) | {"state": state, "reason": None if state == "done" else "no", "carried": False}
    found = [row | {"path": p, "version": v, "start": s, "length": n, "data_file": files[0].name if files else None} for p, v, s, n in rows]
    writer.add(pa.Table.from_pylist(found, SCHEMA))
    segment = writer.finish()
    name = names.segment(head.job, task, attempt_id) if segment else None
    if name and segment:
        store.put(name, segment)
    done = Task(
        task=task,
        attempt=attempt_id,
        data_files=tuple(files),
        coverage=Coverage(segment=name, first=writer.first, last=writer.last, left=left, removes=removes, uncovers=uncovers),
        stats=Stats(
            assigned=len(rows) + len(left),
            gathered=len(rows) if state == "done" else 0,
            quarantined_files=0 if state == "done" else len(rows),
        ),
    )
    by.commit_task(store, head.job, done)
    if manifest:
        assert protocol.put_manifest(store, head.job, done)
    return done


def commit(store: sim.SimStore, head: PlanHead, *tasks: Task) -> Commit | Abort:
    log = Log(store).refresh()
    protocol.commit(log, head, list(tasks), conflicts)
    outcome = log.outcome(head.job)
    assert outcome is not None
    return outcome


def committed(store: sim.SimStore, n: int, rows: list[Row], base: int = 0, publish: bool = True, **more: Any) -> tuple[PlanHead, Task]:
    """A job of one task, from its plan to its end."""
    head = frozen(store, n, base)
    task = worked(store, head, rows, **more)
    assert isinstance(commit(store, head, task), Commit)
    if publish:
        protocol.recover(store)
    return head, task


def entries(store: sim.SimStore) -> list[Any]:
    return Log(store).refresh().entries


def covered(store: sim.SimStore, version: int | None = None) -> list[Row]:
    rows = fold(Log(store).refresh(), version).rows(store, ["path", "version", "start", "length"]).to_pylist()
    return sorted((r["path"], r["version"], r["start"], r["length"]) for r in rows)


def once(world: sim.World, when: Callable[[str, str], bool], then: Callable[[], object], who: str = "other") -> list[str]:
    """Let another process act right after the first change that `when` describes."""
    happened: list[str] = []

    def on(op: str, name: str) -> None:
        if not happened and when(op, name):
            happened.append(f"{op} {name}")
            with world.acting(sim.Actor(who)):
                then()

    world.on = on
    return happened


def data_files() -> dict[str, bytes]:
    return {name: data for name, data in sim.objects(sim.DEST).items() if not name.startswith("_quire/")}


A: Row = ("p/a", "v1", 0, 10)
B: Row = ("p/b", "v1", 0, 10)


# ------------------------------------------------------------------------------------------------------------------------ plans
def test_plan_overwrite(store: sim.SimStore) -> None:
    first, second = frozen(store, 1), frozen(store, 1)
    assert first.plan != second.plan
    there = protocol.plan_head(store, first.job)
    assert there is not None
    assert there.plan == first.plan


def test_plan_put_is_repeated(world: sim.World) -> None:
    """A put without an answer is put again, whether it came to pass or not."""
    store = world.store(sim.DEST)
    for n, fault in enumerate(("ambiguous", "transient")):
        with world.acting(sim.Actor(faults={1: fault}, only=sim.about("plan.entry"))):
            head = frozen(store, n)
        assert protocol.plan_head(store, head.job) == head


def test_plan_parts_shared_name(world: sim.World, tree: sim.Tree) -> None:
    """Two planners of one job write into names of their own."""
    tree.put("a", b"one\n")
    look()
    tree.put("b", b"two\n")
    look()
    plans = [name for name in sim.objects(sim.DEST) if "/plan-" in name]
    assert len(plans) == 4
    assert len({name.split("/")[2] for name in plans}) == 1


def test_base_read_later(world: sim.World, tree: sim.Tree) -> None:
    """Another job commits between our look at the ledger and the freeze of our plan."""
    tree.put("a", b"one\n")
    tree.put("b", b"two\n")
    happened = once(world, lambda *step: "/plan-" in step[1], lambda: gather(target_size="2000 B"))
    report = gather()
    assert happened
    sim.check(tree, "lines")
    assert report.files == 0


def test_conflict_since_restart(world: sim.World, tree: sim.Tree) -> None:
    """A job goes on after a crash: what was committed since its plan counts, not only since its restart."""
    tree.put("a", b"one\n")
    dead = sim.Actor("dead", {1: "before"}, only=lambda op, name: name.startswith(names.LOG) and op == "put_if_absent")
    assert isinstance(sim.run(world, dead, gather), sim.Crash)
    gather(target_size="2000 B")
    gather()
    sim.check(tree, "lines")


def test_job_id_by_intent(world: sim.World, tree: sim.Tree) -> None:
    tree.put("a", b"one\n")
    first = gather()
    tree.put("b", b"two\n")
    second = gather()
    assert (first.files, second.files) == (1, 1)
    assert first.jobs != second.jobs


def test_abort_parts_unlogged(world: sim.World, store: sim.SimStore, tree: sim.Tree) -> None:
    """A slow planner's plan is given up before it is frozen: the log says so, and the planner plans again."""
    tree.put("a", b"one\n")
    plan = look()
    protocol.recover(store, "open")
    assert [type(e) for e in entries(store)] == [Abort]
    assert plan.run(progress=False).files == 1
    sim.check(tree, "lines")


def test_abort_parts_unlogged_by_discard(world: sim.World, tree: sim.Tree) -> None:
    """A plan that its own caller discarded is no plan; and discarding takes nothing of another planner's."""
    tree.put("a", b"one\n")
    plan, other = look(), look()
    plan.discard()
    assert plan.run(progress=False).files == 1
    assert other.run(progress=False).files == 0
    sim.check(tree, "lines")


def test_plan_run_new_base(world: sim.World, tree: sim.Tree) -> None:
    tree.put("a", b"one\n")
    plan = look()
    gather(target_size="2000 B")
    assert plan.run(progress=False).files == 0
    sim.check(tree, "lines")


def test_look_unsettled(world: sim.World, store: sim.SimStore) -> None:
    """plan() folds the newest settled version: what is not published may still be lost."""
    committed(store, 1, [A])
    committed(store, 2, [B], base=2, publish=False)
    log = Log(store).refresh()
    assert (log.tip, log.settled_version()) == (3, 2)
    assert covered(store, log.settled_version()) == [A]


def test_settled_version_of_overlapping_jobs(store: sim.SimStore) -> None:
    """commit 1, commit 2, published 2: nothing from commit 1 on is settled."""
    for n, row in enumerate((A, B)):
        commit(store, head := frozen(store, n), worked(store, head, [row]))
    log = Log(store).refresh()
    protocol.publish(log, log.unpublished()[1])
    assert (log.refresh().tip, log.settled(), log.settled_version()) == (3, False, 0)


def test_plan_before_roll_forward(world: sim.World, store: sim.SimStore, tree: sim.Tree) -> None:
    """A committed job whose output is lost is published first (as lost), and only then is the ledger read for a plan."""
    tree.put("a", b"one\n")
    dead = sim.Actor("dead", {1: "before"}, only=sim.doing("rename"))
    assert isinstance(sim.run(world, dead, gather), sim.Crash)
    for name in [n for n in sim.objects(sim.DEST) if "/attempts/" in n]:
        store.inner.remove(name)
    assert gather().files == 1
    sim.check(tree, "lines")


def test_base_unpublished(world: sim.World, tree: sim.Tree) -> None:
    """Another's commit appears between recover and the listing: its base would not be settled, so it is published first."""
    tree.put("d/a", b"one\n")
    tree.put("e/b", b"two\n")
    settled: list[bool] = []
    dead = sim.Actor("dead", {1: "before"}, only=sim.doing("rename"))
    turns = iter(range(10_000))

    def turn(actor: sim.Actor, op: str, name: str) -> None:
        if actor.name == "us" and op == "get" and name == names.entry(1) and next(turns) == 1:
            assert isinstance(sim.run(world, dead, lambda: gather(f"{sim.SOURCE}/d")), sim.Crash)
        if actor.name == "us" and name.endswith("plan.entry") and op == "put_if_absent":
            settled.append(Log(sim.memory.MemoryStore(sim.DEST)).refresh().settled())

    world.turn = turn
    with world.acting(sim.Actor("us")):
        gather()
    assert dead.dead
    assert settled == [True]
    sim.check(tree, "lines")


# ------------------------------------------------------------------------------------------------------------------ conflicts
def overlapping(store: sim.SimStore, first: list[Row], second: list[Row]) -> Commit | Abort:
    """Two jobs from one base; the outcome of the second."""
    a, b = frozen(store, 1), frozen(store, 2)
    commit(store, a, worked(store, a, first))
    return commit(store, b, worked(store, b, second))


def test_split_id_conflict(store: sim.SimStore) -> None:
    assert isinstance(overlapping(store, [("p", "v1", 0, 2)], [("p", "v1", 0, 1)]), Abort)


def test_neighbours_do_not_conflict(store: sim.SimStore) -> None:
    assert isinstance(overlapping(store, [("p", "v1", 0, 2)], [("p", "v1", 2, 2)]), Commit)


def test_conflict_by_version(store: sim.SimStore) -> None:
    assert isinstance(overlapping(store, [("p", "v1", 0, 2)], [("p", "v2", 5, 2)]), Abort)


def test_empty_no_conflict(store: sim.SimStore) -> None:
    assert isinstance(overlapping(store, [("p", "v1", 0, 0)], [("p", "v1", 0, 0)]), Abort)


def test_empty_not_covered(store: sim.SimStore) -> None:
    committed(store, 1, [("p", "v1", 0, 0)], data=None)
    listing = pa.table({"path": ["p"], "size": pa.array([0], pa.int64()), "version": ["v1"], "modified": pa.array([0], pa.int64())})
    found = remaining(listing, fold(Log(store).refresh()), store)
    assert (found.files.num_rows, found.done) == (0, 1)


def test_the_order_of_a_listing_does_not_matter(store: sim.SimStore) -> None:
    """Looking up goes by the order of paths, which is not the order of a tree: `a-b` comes before `a/b`."""
    committed(store, 1, [("p/a/b", "v1", 0, 1), ("p/a-b", "v1", 0, 1), ("p/c", "v1", 0, 1)])
    paths = ["p/c", "p/a/b", "p/new", "p/a-b"]
    listing = pa.table({"path": paths, "size": pa.array([1] * 4, pa.int64()), "version": ["v1"] * 4, "modified": pa.array([0] * 4)})
    found = remaining(listing, fold(Log(store).refresh()), store)
    assert (found.files.column("path").to_pylist(), found.done) == (["p/new"], 3)


def test_partial_drop(store: sim.SimStore) -> None:
    """A task that overlaps in one split is dropped with all of its splits, for its file holds the other bytes too."""
    a, b = frozen(store, 1), frozen(store, 2, tasks=2)
    commit(store, a, worked(store, a, [A]))
    outcome = commit(store, b, worked(store, b, [A, B]), worked(store, b, [("p/c", "v1", 0, 1)], task=1))
    assert isinstance(outcome, Commit)
    assert [t.task for t in outcome.tasks] == [1]
    assert outcome.dropped == (0,)
    protocol.recover(store)
    assert covered(store) == [A, ("p/c", "v1", 0, 1)]


def test_retry_when_empty(store: sim.SimStore) -> None:
    """Nothing is left to commit: an abort in the log ends the job."""
    assert isinstance(overlapping(store, [A], [A]), Abort)
    protocol.recover(store)
    assert protocol.jobs(store) == {}


def test_commit_blind_retry(world: sim.World, store: sim.SimStore) -> None:
    """The slot is taken just before our put: the entry is computed anew from what stands there."""
    a, b = frozen(store, 1), frozen(store, 2)
    ours, theirs = worked(store, a, [A]), worked(store, b, [A, B])

    def turn(actor: sim.Actor, op: str, name: str) -> None:
        if actor.name == "us" and op == "put_if_absent" and name == names.entry(1):
            with world.acting(None):
                commit(store, b, theirs)

    world.turn = turn
    with world.acting(sim.Actor("us")):
        assert isinstance(commit(store, a, ours), Abort)
    assert [e.job for e in entries(store)] == [b.job, a.job]


def test_unnumbered_log(world: sim.World, tree: sim.Tree) -> None:
    for i in range(3):
        tree.put(f"f{i}", b"line\n")
        gather()
    there = sorted(name for name in sim.objects(sim.DEST) if name.startswith(names.LOG))
    assert there == [names.entry(i) for i in range(1, 7)]


def test_conflict_net(store: sim.SimStore) -> None:
    """Covered and uncovered again since the base is touched all the same."""
    late = frozen(store, 9)
    ours = worked(store, late, [A])
    _, task = committed(store, 1, [A])
    committed(store, 2, [], base=2, data=None, removes=(task.data_files[0].name,), uncovers=(Uncover("p/a", "v1", ((0, 10),)),))
    assert covered(store) == []
    assert isinstance(commit(store, late, ours), Abort)


def test_uncover_no_conflict(store: sim.SimStore) -> None:
    committed(store, 1, [A], data=None, state="quarantined")
    a, b = frozen(store, 2, base=2), frozen(store, 3, base=2)
    uncovers = (Uncover("p/a", "v1", ((0, 10),)),)
    commit(store, a, worked(store, a, [], data=None, uncovers=uncovers))
    assert isinstance(commit(store, b, worked(store, b, [("p/a", "v1", 0, 10)], uncovers=uncovers)), Abort)


def test_uncover_whole_key(store: sim.SimStore) -> None:
    """Only the uncovered range leaves; the path's other half stays covered."""
    halves = [("p/a", "v1", 0, 5), ("p/a", "v1", 5, 5)]
    committed(store, 1, halves)
    committed(store, 2, [], base=2, data=None, uncovers=(Uncover("p/a", "v1", ((5, 5),)),))
    assert covered(store) == halves[:1]


def test_remove_no_conflict(store: sim.SimStore) -> None:
    _, task = committed(store, 1, [A])
    a, b = frozen(store, 2, base=2), frozen(store, 3, base=2)
    removes = (task.data_files[0].name,)
    assert isinstance(commit(store, a, worked(store, a, [], data=None, removes=removes)), Commit)
    assert isinstance(commit(store, b, worked(store, b, [], data=None, removes=removes)), Abort)


def test_drop_part(store: sim.SimStore) -> None:
    """A job that removes files is all or nothing."""
    _, task = committed(store, 1, [A])
    a, b = frozen(store, 2, base=2), frozen(store, 3, base=2, tasks=2)
    commit(store, a, worked(store, a, [B]))
    tasks = worked(store, b, [B]), worked(store, b, [], task=1, data=None, removes=(task.data_files[0].name,))
    assert isinstance(commit(store, b, *tasks), Abort)


def test_lost_by_task_and_removes_despite_lost(store: sim.SimStore) -> None:
    """A removing job that lost one task's output is void: the removed file's rows count again, and none of its own."""
    _, old = committed(store, 1, [A])
    head = frozen(store, 2, base=2, tasks=2)
    first = worked(store, head, [("p/a", "v2", 0, 9)], removes=(old.data_files[0].name,), uncovers=(Uncover("p/a", "v1", ((0, 10),)),))
    second = worked(store, head, [B], task=1)
    assert isinstance(commit(store, head, first, second), Commit)
    store.inner.remove(second.data_files[0].handle)
    protocol.recover(store)
    published = next(entry for entry in reversed(entries(store)) if isinstance(entry, Published))
    assert published.lost == (1,)
    assert store.stat(first.data_files[0].name) is None, "nor does a reader of the directory see it"
    assert covered(store) == [A]


def test_other_words_meanwhile(world: sim.World, tree: sim.Tree) -> None:
    """Two jobs of different kinds start in an empty destination: one commits, the other ends with an error, and does end."""
    tree.put("d/a", b"one\n")
    tree.put("e/b", b"two\n")
    once(world, sim.about("tasks/0.entry"), lambda: gather(f"{sim.SOURCE}/d", transform="raw"))
    with world.acting(sim.Actor("us")), pytest.raises(QuireError, match="raw"):
        gather(f"{sim.SOURCE}/e")
    sim.check(tree, "raw", all_taken=False)


def test_segment_gone_while_comparing(world: sim.World, store: sim.SimStore) -> None:
    """The job is given up and cleaned while its driver compares segments: no error, the log says what became of it."""
    committed(store, 1, [A, B])
    head = frozen(store, 2)
    task = worked(store, head, [A])

    def turn(actor: sim.Actor, op: str, name: str) -> None:
        if actor.name == "us" and op == "get" and name == task.coverage.segment:
            with world.acting(None):
                protocol.recover(store, head.job)

    world.turn = turn
    with world.acting(sim.Actor("us")):
        assert isinstance(commit(store, head, task), Abort)


def test_segment_missing_is_an_error(world: sim.World, store: sim.SimStore, tree: sim.Tree) -> None:
    """A segment that the log names and that is gone is never an empty one."""
    tree.put("a", b"one\n")
    gather()
    for name in [n for n in sim.objects(sim.DEST) if n.startswith(names.LEDGER)]:
        store.inner.remove(name)
    with pytest.raises(QuireError, match="missing"):
        gather()


# ------------------------------------------------------------------------------------------------------------------- attempts
def planned(world: sim.World, tree: sim.Tree, **options: Any) -> tuple[Work, Callable[[], quire.Report]]:
    """A job that is frozen, of which no attempt has begun."""
    made = quire.engine.request.build(sim.SOURCE, sim.DEST, target_size="1000 B", **options)  # type: ignore[attr-defined]
    dead = sim.Actor("dead", {1: "before"}, only=lambda *step: step[0] in ("create", "upload") or "/ledger/" in step[1])
    assert isinstance(sim.run(world, dead, lambda: gather(**options)), sim.Crash)
    (head,) = protocol.open_jobs(world.store(sim.DEST), Log(world.store(sim.DEST)))
    return Work(made.dest, None, made.roots, head, made.convert), lambda: gather(**options)


def test_attempt_number(world: sim.World, tree: sim.Tree) -> None:
    """Two drivers' attempts of one task write into different places; the one without the manifest removes its own."""
    tree.put("a", b"one\n")
    work, again = planned(world, tree)
    folders: list[set[str]] = []
    once(world, sim.doing("close"), lambda: attempt(work, 0))
    on = world.on

    def watch(op: str, name: str) -> None:
        on(op, name)
        folders.append({n.split("/attempts/")[1].split("/")[0] for n in sim.objects(sim.DEST) if "/attempts/" in n})

    world.on = watch
    attempt(work, 0)
    assert max(map(len, folders)) == 2
    winner = protocol.get_manifest(world.store(sim.DEST), work.head.job, 0)
    assert winner is not None
    assert folders[-1] == {f"0-{winner.attempt}"}
    again()
    sim.check(tree, "lines")


def test_manifest_overwrite(store: sim.SimStore) -> None:
    head = frozen(store, 1)
    first, second = worked(store, head, [A]), worked(store, head, [A], manifest=False)
    assert not protocol.put_manifest(store, head.job, second)
    assert protocol.get_manifest(store, head.job, 0) == first


@pytest.mark.parametrize("fault", ["ambiguous", "transient", "late"])
def test_ambiguous_loses_and_get_absent_loses(world: sim.World, tree: sim.Tree, fault: str) -> None:
    """A manifest's put without an answer: the attempt neither deletes its output nor gives up."""
    tree.put("a", b"one\n")
    work, again = planned(world, tree)
    with world.acting(sim.Actor(faults={1: fault}, only=sim.about("tasks/0.entry"))):
        attempt(work, 0)
    world.land(everything=True)
    task = protocol.get_manifest(world.store(sim.DEST), work.head.job, 0)
    assert task is not None
    assert all(file.handle in sim.objects(sim.DEST) for file in task.data_files)
    assert again().files == 1
    sim.check(tree, "lines")


@pytest.mark.parametrize("committer", ["rename", "rename_v2"])
def test_never_answered_manifest_keeps_its_output(world: sim.World, tree: sim.Tree, committer: str) -> None:
    """The store never answers: the attempt fails, and touches nothing, for the manifest may be there."""
    tree.put("a", b"one\n")
    work, again = planned(world, tree, committer=committer)
    faults = dict.fromkeys(range(1, 99), "ambiguous")
    with world.acting(sim.Actor(faults=faults, only=sim.about("tasks/0.entry"))), pytest.raises(StorageError):
        attempt(work, 0)
    assert again().files == 1
    sim.check(tree, "lines")


def test_manifest_gone_is_not_lost(world: sim.World, store: sim.SimStore) -> None:
    """The name is taken, and free again when we look whose it is: the job is over, so nothing may be touched."""
    head = frozen(store, 1)
    worked(store, head, [A])
    second = worked(store, head, [A], manifest=False)

    def turn(actor: sim.Actor, op: str, name: str) -> None:
        if op == "get":
            store.inner.remove(names.manifest(head.job, 0))

    world.turn = turn
    with world.acting(sim.Actor()):
        assert protocol.put_manifest(store, head.job, second)


def test_segment_shared_name(store: sim.SimStore) -> None:
    head = frozen(store, 1)
    first, second = (worked(store, head, [A], manifest=False) for _ in range(2))
    assert first.coverage.segment != second.coverage.segment


@pytest.mark.parametrize("committer", ["rename", "rename_v2"])
def test_loser_deletes_segment_or_final(world: sim.World, store: sim.SimStore, tree: sim.Tree, committer: str) -> None:
    """An attempt had won without knowing; its job is over, a zombie's manifest is in the free name: what the log names stays."""
    tree.put("a", b"one\n")
    work, again = planned(world, tree, committer=committer)

    def meanwhile() -> None:
        again()
        zombie = Task(task=0, attempt=names.new_id(), data_files=(), coverage=Coverage(), stats=Stats())
        assert protocol.put_manifest(store, work.head.job, zombie)

    once(world, sim.about("tasks/0.entry"), meanwhile)
    with world.acting(sim.Actor("slow", {1: "ambiguous"}, only=sim.about("tasks/0.entry"))):
        attempt(work, 0)
    protocol.recover(store)
    sim.check(tree, "lines")


def test_no_if_match(world: sim.World, tree: sim.Tree) -> None:
    """A file is rewritten between the plan and its reading: the ledger never says one version where the file holds another."""
    tree.put("a", b"one\n")
    tree.put("b", b"two\n")
    plan = look()
    tree.put("a", b"ONE, longer\n")
    assert plan.run(progress=False).files == 2
    sim.check(tree, "lines")
    assert b"".join(data_files().values()).count(b"ONE") == 1


def test_manifest_after_segment_and_output(world: sim.World, tree: sim.Tree) -> None:
    """Whoever sees a manifest sees all that it names."""
    tree.put("a", b"one\n")

    def complete() -> None:
        task = protocol.get_manifest(world.store(sim.DEST), next(iter(protocol.jobs(world.store(sim.DEST)))), 0)
        assert task is not None
        assert {task.coverage.segment, *(f.handle for f in task.data_files)} <= set(sim.objects(sim.DEST))

    assert once(world, sim.about("tasks/0.entry"), complete) == []
    gather()


# ----------------------------------------------------------------------------------------------------------- commit and publish
def test_commit_failure_aborts(world: sim.World, tree: sim.Tree) -> None:
    """The commit's put fails or times out: nothing is deleted, the next run finds it committed, or commits it."""
    for n, fault in enumerate(("transient", "ambiguous", "late")):
        tree.put(f"f{n}", b"one\n")
        with world.acting(sim.Actor(faults={1: fault}, only=lambda op, name: name.startswith(names.LOG) and op == "put_if_absent")):
            try:
                gather()
            except StorageError:
                assert any("/attempts/" in name for name in sim.objects(sim.DEST))
        world.land(everything=True)
        gather()
        sim.check(tree, "lines")


def test_clean_before_publish(store: sim.SimStore) -> None:
    head = frozen(store, 1)
    task = worked(store, head, [A])
    commit(store, head, task)
    before = sim.objects(sim.DEST)
    protocol.clean(Log(store).refresh(), head.job)
    assert sim.objects(sim.DEST) == before
    protocol.recover(store)
    assert list(data_files()) == [task.data_files[0].name]


def test_clean_open_job(store: sim.SimStore) -> None:
    head = frozen(store, 1)
    worked(store, head, [A])
    before = sim.objects(sim.DEST)
    protocol.clean(Log(store).refresh(), head.job)
    protocol.recover(store)
    assert sim.objects(sim.DEST) == before


def test_plan_json_goes_last(world: sim.World, tree: sim.Tree) -> None:
    """Whoever finds a plan.entry finds the plan that it names, or the job's outcome in the log."""
    tree.put("a", b"one\n")
    removed: list[str] = []
    world.on = lambda *step: removed.append(step[1]) if step[0] == "remove" and step[1].startswith(names.JOBS) else None
    gather()
    assert [name.endswith("plan.entry") for name in removed].index(True) == len(removed) - 1
    assert len(removed) > 3


def test_abort_not_logged(store: sim.SimStore) -> None:
    """A driver that was given up while it slept finds that in the log, and commits nothing."""
    head = frozen(store, 1)
    task = worked(store, head, [A])
    log = Log(store).refresh()
    protocol.recover(store, head.job)
    protocol.commit(log, head, [task], conflicts)
    assert isinstance(log.outcome(head.job), Abort)
    assert [type(e) for e in entries(store)] == [Abort]


def test_abort_of_a_committed_job(store: sim.SimStore) -> None:
    head = frozen(store, 1)
    commit(store, head, worked(store, head, [A]))
    protocol.abort(Log(store).refresh(), head.job, "too late")
    protocol.recover(store)
    assert covered(store) == [A]
    assert len(data_files()) == 1


def test_abort_before_the_plan_was_there(world: sim.World, store: sim.SimStore) -> None:
    """Giving up looks, finds no plan.entry, sleeps; a rename_v2 job is frozen and writes; then it is given up: nothing stays."""
    job, head = job_of(1), None
    store.put(names.plan_parquet(job, names.new_id()), b"parquet")

    def turn(actor: sim.Actor, op: str, name: str) -> None:
        nonlocal head
        if head is None and op == "put_if_absent" and name == names.entry(1):
            with world.acting(None):
                head = frozen(store, 1, committer="rename_v2")
                worked(store, head, [A])

    world.turn = turn
    with world.acting(sim.Actor("operator")):
        protocol.recover(store, "open")
    assert head is not None
    assert data_files() == {}
    with world.acting(None):
        worked(store, head, [A])  # a zombie's
        protocol.recover(store)
    assert list(sim.objects(sim.DEST)) == [names.entry(1)]


@pytest.mark.parametrize("pitfall", ["log_truncate", "trust_put"])
def test_log_is_never_rewritten(world: sim.World, tree: sim.Tree, pitfall: str) -> None:
    """No entry ever leaves the log, so a put at an old tip finds its slot taken."""
    store = world.store(sim.DEST)
    world.watched[sim.DEST] = sim.Observer(sim.DEST)
    for i in range(3):
        tree.put(f"f{i}", b"line\n")
        gather()
    protocol.recover(store, "open")
    for number in range(1, 7):
        assert not store.put_if_absent(names.entry(number), b"{}")
    sim.check(tree, "lines")


def test_published_early_and_reader_before_publish(world: sim.World, tree: sim.Tree) -> None:
    """A reader of the log sees a commit's files only when all are in their places."""
    for i in range(6):
        tree.put(f"f{i}", b"line\n" * 100)
    world.watched[sim.DEST] = sim.Observer(sim.DEST)
    seen = set()

    def on(op: str, name: str) -> None:
        log = Log(sim.memory.MemoryStore(sim.DEST)).refresh()
        seen.add((len(fold(log).sources), len(fold(log, reader=True).sources), len(data_files())))

    world.on = on
    gather()
    n = len(data_files())
    assert n >= 2
    assert {(k, n) for _, k, n in seen if k} == {(n, n)}
    assert {k for _, k, _ in seen} == {0, n}
    assert {(n, 0, i) for i in range(n + 1)} <= seen


def test_publish_from_manifest(store: sim.SimStore) -> None:
    """The manifests are cleaned, a zombie puts its own: a late publisher publishes what the entry names, nothing else."""
    head = frozen(store, 1)
    task = worked(store, head, [A])
    entry = commit(store, head, task)
    assert isinstance(entry, Commit)
    late = Log(store).refresh()
    protocol.recover(store)
    zombie = worked(store, head, [A])
    protocol.publish(late, entry)
    assert list(data_files()) == [task.data_files[0].name]
    protocol.recover(store)
    assert zombie.data_files[0].handle not in sim.objects(sim.DEST)


def test_late_publisher_asks_the_log(world: sim.World, store: sim.SimStore) -> None:
    """Two publishers at once: the second finds its sources gone and the files there, so nothing is lost."""
    head = frozen(store, 1)
    task = worked(store, head, [A])
    entry = commit(store, head, task)
    assert isinstance(entry, Commit)
    happened: list[str] = []

    def turn(actor: sim.Actor, op: str, name: str) -> None:
        if op == "rename" and not happened:
            happened.append(name)
            with world.acting(None):
                protocol.recover(store)

    world.turn = turn
    with world.acting(sim.Actor("late")):
        protocol.publish(Log(store).refresh(), entry)
    assert happened
    assert [type(e) for e in entries(store)] == [Commit, Published]
    assert covered(store) == [A]


@pytest.mark.parametrize("committer", ["rename", "rename_v2"])
def test_gone_is_fatal_gone_is_done_lost_not_logged(store: sim.SimStore, committer: str) -> None:
    """Committed output is gone for good: the job is published, the entry names the task as lost, and its splits count no more."""
    head = frozen(store, 1, tasks=2, committer=committer)
    first, second = worked(store, head, [A]), worked(store, head, [B], task=1)
    commit(store, head, first, second)
    store.inner.remove(first.data_files[0].handle if committer == "rename" else first.data_files[0].name)
    protocol.recover(store)
    published = entries(store)[-1]
    assert isinstance(published, Published)
    assert published.lost == (0,)
    assert covered(store) == [B]
    assert list(data_files()) == [second.data_files[0].name]
    assert first.coverage.segment not in sim.objects(sim.DEST)


def test_lost_is_gathered_again(world: sim.World, store: sim.SimStore, tree: sim.Tree) -> None:
    """In the same call."""
    tree.put("a", b"one\n")

    def lose() -> None:
        for name in [n for n in sim.objects(sim.DEST) if "/attempts/" in n]:
            store.inner.remove(name)

    assert once(world, sim.about(names.entry(1)), lose) == []
    assert gather().files == 1
    log = sim.check(tree, "lines")
    assert [e.get("lost") for e in log.entries] == [None, [0], None, []]


def test_ledger_lists_segments(store: sim.SimStore) -> None:
    """The segments of a job that was given up, or that lies open, cover nothing."""
    a, b = frozen(store, 1), frozen(store, 2)
    worked(store, a, [A])
    task = worked(store, b, [B])
    protocol.abort(Log(store).refresh(), b.job, "no")
    assert task.coverage.segment not in sim.objects(sim.DEST)
    worked(store, b, [B])  # a zombie's
    assert covered(store) == []


def test_zombie_leftovers_are_found(store: sim.SimStore) -> None:
    """What a zombie creates after the last clean is invisible, and goes with the next recover."""
    for committer in ("rename", "rename_v2"):
        head = frozen(store, len(committer), committer=committer)
        task = worked(store, head, [A])
        protocol.recover(store, "open")
        worked(store, head, [A])
        assert sim.objects(sim.DEST)
        protocol.recover(store)
        assert all(name.startswith(names.LOG) for name in sim.objects(sim.DEST)), task


def test_long_entries_keep_their_tasks_beside(store: sim.SimStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that no entry names is cleaned, the one that is named stays and is read."""
    monkeypatch.setattr("quire.commit.parts.LONGEST", 100)
    a, b = frozen(store, 1), frozen(store, 2)
    task = worked(store, a, [A])
    with (
        store.world.acting(sim.Actor(faults={2: "refused"}, only=sim.below(names.LOG))),
        pytest.raises(StorageError),
    ):
        commit(store, a, task)  # the part is written, its entry is not
    entry = commit(store, a, task)
    assert isinstance(entry, Commit)
    assert entry.tasks == (task,)
    commit(store, b, worked(store, b, [B]))
    protocol.recover(store)
    parts = [name for name in sim.objects(sim.DEST) if name.startswith(names.PARTS)]
    assert len(parts) == 2
    assert covered(store) == [A, B]


def test_newer_format_is_refused(store: sim.SimStore) -> None:
    store.put(names.entry(1), b'{"kind":"commit","format":2,"job":"0-0000000000000001","colour":"blue"}')
    with pytest.raises(FormatError, match="newer quire"):
        Log(store).refresh()


# ------------------------------------------------------------------------------------------------------------- files that are odd
def broken(i: int) -> bytes:
    return b"<d n='%d'>BROKEN" % i


def test_quarantine_not_covered(world: sim.World, tree: sim.Tree) -> None:
    """A broken file is quarantined once, and not read by the next call."""
    tree.put("a", broken(1))
    tree.put("b", b"<d/>")
    first, second = gather(transform="xml"), gather(transform="xml")
    assert (first.files, not_taken(first)) == (1, 1)
    assert (second.files, second.jobs, second.skipped) == (0, (), 2)
    sim.check(tree, "xml")


def test_quarantine_by_path(world: sim.World, tree: sim.Tree) -> None:
    """A broken file that changes is read again."""
    tree.put("a", broken(1))
    gather(transform="xml")
    tree.put("a", b"<d n='now'/>")
    assert gather(transform="xml").files == 1
    sim.check(tree, "xml")
    assert gather(transform="xml").jobs == ()


def test_changed_is_quarantined(world: sim.World, tree: sim.Tree) -> None:
    """A file that changes under the reader is left out and read again, not quarantined."""
    tree.put("a", b"<d n='1'/>")
    assert once(world, sim.about("plan.entry"), lambda: tree.put("a", b"<d n='22'/>")) == []
    report = gather(transform="xml")
    assert (report.files, not_taken(report), report.deferred) == (1, 0, ())
    sim.check(tree, "xml")


def test_left_out_for_ever(world: sim.World, tree: sim.Tree) -> None:
    """A file that changes whenever it is planned is tried twice in a call, then reported."""
    tree.put("a", b"0")
    tree.put("b", b"fine\n")

    def on(op: str, name: str) -> None:
        if name.endswith("plan.entry") and op == "put_if_absent":
            tree.put("a", tree.now[f"{sim.SOURCE}/a"][1] + b"0")

    world.on = on
    with world.acting(sim.Actor("us")):
        report = gather()
    assert [path for path, _ in report.deferred] == [f"{sim.SOURCE}/a"]
    assert report.files == 1
    world.on = sim.never
    assert gather().files == 1
    sim.check(tree, "lines")


def test_replaced_for_ever(world: sim.World, tree: sim.Tree) -> None:
    """A broken file that is rewritten, broken again, after each commit: the call ends."""
    tree.put("a", broken(0))
    gather(transform="xml")
    edition = iter(range(1, 1000))

    def on(op: str, name: str) -> None:
        if name.startswith(names.LOG) and op == "put_if_absent":
            tree.put("a", broken(next(edition)))

    tree.put("a", broken(1000))
    world.on = on
    with world.acting(sim.Actor("us")):
        report = gather(transform="xml")
    assert len(report.jobs) <= 2


def test_vanished_file_is_left_out(world: sim.World, tree: sim.Tree) -> None:
    """The only file of a task vanishes: nothing is committed, the log says so, the call ends."""
    tree.put("a", b"one\n")
    once(world, sim.about("plan.entry"), lambda: tree.remove("a"))
    with world.acting(sim.Actor("us")):
        assert gather().files == 0
    sim.check(tree, "lines")
    assert sim.objects(sim.DEST).keys() == {names.entry(1)}


def test_abort_without_files_and_no_file_is_lost(world: sim.World, tree: sim.Tree) -> None:
    """A task without a data file (all of it quarantined, or empty) is committed and is not lost."""
    tree.put("a", broken(1))
    report = gather(transform="xml")
    assert (not_taken(report), len(report.jobs), report.data_files) == (1, 1, 0)
    log = sim.check(tree, "xml")
    assert [e.get("lost") for e in log.entries] == [None, []]


def test_too_many_failures_gives_up(world: sim.World, tree: sim.Tree) -> None:
    """max_quarantined: an abort in the log, nothing left; unless another driver of the job has committed meanwhile."""
    tree.put("a", broken(1))
    with pytest.raises(quire.TooManyQuarantined, match="a: "):
        gather(transform="xml", max_quarantined=0)
    assert sim.objects(sim.DEST).keys() == {names.entry(1)}
    once(world, sim.about("tasks/0.entry"), lambda: gather(transform="xml"))
    with world.acting(sim.Actor("strict")):
        gather(transform="xml", max_quarantined=0)
    sim.check(tree, "xml")


def test_missing_plan_is_said(world: sim.World, store: sim.SimStore, tree: sim.Tree) -> None:
    """Somebody deletes a frozen plan's Parquet: the call says so, and does not go on for ever."""
    tree.put("a", b"one\n")
    work, again = planned(world, tree)
    store.inner.remove(names.plan_parquet(work.head.job, work.head.plan))
    with world.acting(sim.Actor()), pytest.raises(QuireError, match="recover"):
        again()
    protocol.recover(store, work.head.job)
    assert again().files == 1
    sim.check(tree, "lines")


def test_job_over_while_tasks_fail(world: sim.World, store: sim.SimStore, tree: sim.Tree) -> None:
    """Another driver ends the job during our last tries, which therefore fail: that is no failure."""
    tree.put("a", b"one\n")
    _, again = planned(world, tree)
    faults = dict.fromkeys((1, 2, 3), "refused")
    tries: list[str] = []

    def turn(actor: sim.Actor, op: str, name: str) -> None:
        if actor.name == "us" and op == "create":
            tries.append(name)
            if len(tries) == 3:
                with world.acting(sim.Actor("other")):
                    again()

    world.turn = turn
    with world.acting(sim.Actor("us", faults, only=sim.doing("create"))):
        again()
    assert len(tries) == 3
    sim.check(tree, "lines")


def test_no_commit_without_a_result_of_each_task(store: sim.SimStore) -> None:
    head = frozen(store, 1, tasks=2)
    first = worked(store, head, [A])
    for results in ([], [first], [first, first]):
        with pytest.raises(QuireError, match=rf"has 2 tasks, and {len(results)} results have come: nothing was committed"):
            protocol.commit(Log(store).refresh(), head, results, conflicts)
    assert entries(store) == []
