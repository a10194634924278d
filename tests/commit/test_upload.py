"""The committer of stores that hold uploads: pieces wait under their final name, seen by nobody, until the commit completes them.

Crashes, wrong answers, expired uploads and races of it are in the matrix; here is what a single step promises.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_pitfalls import once, planned

import quire
import sim
from gathering import refused
from quire.commit import names, protocol
from quire.commit.committers import choice, serving
from quire.commit.entries import Coverage, DataFile, PlanHead, Spec, Stats, Task
from quire.commit.log import Log
from quire.commit.upload import Uploads
from quire.coverage.conflicts import conflicts
from quire.engine.attempt import attempt
from quire.errors import FormatError, StorageError, UsageError
from quire.formats.parquet import ParquetWriter
from quire.storage import connect, memory, normalise
from quire.storage.local import LocalStore
from quire.storage.memory import MemoryStore

SPEC = Spec(transform="lines", format="lines", compression="none", layout="flat")
JOB = f"0-{7:016x}"


@pytest.fixture
def world() -> Iterator[sim.World]:
    sim.forget_all()
    made = sim.World(kind=sim.KINDS["s3"])
    with made.installed():
        yield made
    sim.forget_all()


@pytest.fixture
def tree() -> sim.Tree:
    found = sim.Tree()
    found.put("a", b"one\n")
    return found


def gather(**options: Any) -> quire.Report:
    return quire.consolidate(sim.SOURCE, sim.DEST, spark=quire.LocalRunner(), progress=False, **options)


def done(world: sim.World, tree: sim.Tree) -> sim.Log:
    return sim.check(tree, "lines", uploads=world.waiting())


def uploaded(store: Any, task: int = 0, data: bytes = b"one\n") -> Task:
    """An attempt that has written a file, and no more."""
    by, attempt_id = Uploads(), names.new_id()
    final = names.data_file("", JOB, task, attempt_id, 0, "txt")
    sink = by.create(store, JOB, task, attempt_id, final)
    sink.write(data)
    sink.close()
    return Task(
        task=task,
        attempt=attempt_id,
        data_files=(DataFile(final, len(data), 1, by.handle(JOB, task, attempt_id, final, sink)),),
        coverage=Coverage(),
        stats=Stats(gathered=1),
    )


# --------------------------------------------------------------------------------------------------- what a task may touch
def test_the_loser_gives_up_its_own_upload_at_once(world: sim.World, tree: sim.Tree) -> None:
    """Two attempts of a task: the second finds a manifest, drops its pieces, and leaves the winner's alone."""
    work, again = planned(world, tree)

    def meanwhile() -> None:
        attempt(work, 0)

    assert once(world, sim.below("_quire/ledger"), meanwhile) == []
    with world.acting(sim.Actor("slow")):
        attempt(work, 0)
    assert [step[1] for step in world.history if step[0] == "slow"].count("give_up") == 1
    (winner,) = world.waiting()
    manifest = protocol.get_manifest(world.store(sim.DEST), work.head.job, 0)
    assert manifest is not None
    assert [file.name for file in manifest.data_files] == [winner]
    assert again().files == 1
    done(world, tree)


def test_an_attempt_that_fails_gives_up_its_pieces(world: sim.World, tree: sim.Tree) -> None:
    work, _ = planned(world, tree)
    for fault in (sim.doing("close"), sim.below("_quire/ledger")):  # its file is open, or closed
        with world.acting(sim.Actor(faults={1: "refused"}, only=fault)), pytest.raises(StorageError):
            attempt(work, 0)
        assert world.waiting() == []


def test_the_winner_is_not_given_up_when_nobody_answers(world: sim.World, tree: sim.Tree) -> None:
    """The manifest may be there, so the attempt touches nothing."""
    work, again = planned(world, tree)
    faults = dict.fromkeys(range(1, 99), "ambiguous")
    with world.acting(sim.Actor(faults=faults, only=sim.about("tasks/0.entry"))), pytest.raises(StorageError):
        attempt(work, 0)
    assert len(world.waiting()) == 1
    assert again().files == 1
    done(world, tree)


@pytest.mark.parametrize("when", ["upload", "write"])
def test_a_zombie_that_wakes_when_its_job_is_over_ends_in_peace(world: sim.World, tree: sim.Tree, when: str) -> None:
    """Its upload was given up by whoever ended the job: for its driver there is nothing left to do."""
    assert once(world, sim.doing(when), gather) == []
    with world.acting(sim.Actor("zombie")):
        gather()
    done(world, tree)


def test_an_upload_that_expires_while_it_is_written_is_an_error(world: sim.World, tree: sim.Tree) -> None:
    """The job is not over, so the attempt has failed, and the next one begins anew."""
    work, again = planned(world, tree)
    once(world, sim.doing("upload"), world.expire)
    with world.acting(sim.Actor("slow")), pytest.raises(StorageError, match="not open any more"):
        attempt(work, 0)
    assert again().files == 1
    done(world, tree)


def test_a_table_that_was_given_up_is_written_no_more() -> None:
    """pyarrow ends a table when its writer is collected; by then its upload is gone, or could not be given up just now."""

    class Broken:
        written = 0

        def write(self, data: bytes | memoryview) -> None:
            self.written += len(data)

        def close(self) -> None:
            pass

        def discard(self) -> None:
            raise StorageError("no answer")

    sink = Broken()
    writer = ParquetWriter(lambda _: sink, 1 << 20, "zstd")
    writer.add(pa.record_batch({"a": [1, 2, 3]}))
    before = sink.written
    with pytest.raises(StorageError):
        writer.discard()
    del writer
    gc.collect()
    assert sink.written == before


# --------------------------------------------------------------------------------------------------------- publish and clean
def test_lost_uploads_are_gathered_again(world: sim.World, tree: sim.Tree) -> None:
    """They expired between the commit and its publication: the log says so, and the same call does them again."""
    assert once(world, sim.about(names.entry(1)), world.expire) == []
    assert gather().files == 1
    assert [e.get("lost") for e in done(world, tree).entries] == [None, [0], None, []]


def test_a_store_that_loses_uploads_for_ever_ends_the_call_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = connect("memory://loses_in"), "memory://loses_out"
    settings: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False, "committer": "upload"}
    source.put("a.txt", b"one\n")
    quire.consolidate(source.url, dest, **settings)
    source.put("b.txt", b"two\n")
    said = ("5 jobs of this call", "was read is still at its source", "unfinished uploads", "_quire/", "call again")
    with monkeypatch.context() as patched:
        patched.setattr(MemoryStore, "complete", lambda *_: False)
        with refused(StorageError, 3, *said, "Nothing of this call is visible"):
            quire.consolidate(source.url, dest, **settings)
    assert quire.consolidate(source.url, dest, **settings).files == 1
    with monkeypatch.context() as patched:
        patched.setattr(MemoryStore, "complete", lambda *_: False)
        with refused(StorageError, 3, *said):
            quire.Ledger(dest).compact(**settings)
    ledger = quire.Ledger(dest)
    assert sorted(ledger.read(f"{source.url}/{name}.txt") for name in "ab") == [b"one\n", b"two\n"]
    assert ledger.compact(**settings).written == 1


def test_published_by_another_is_published(world: sim.World) -> None:
    """Completed, and the pieces are gone: the object is there, so nothing is lost, however often it is asked."""
    store = world.store(sim.DEST)
    task = uploaded(store)
    assert all(Uploads().publish(store, JOB, task, task.data_files[0]) for _ in range(3))
    assert sim.objects(sim.DEST) == {task.data_files[0].name: b"one\n"}


def test_gone_and_not_there_is_lost(world: sim.World) -> None:
    store = world.store(sim.DEST)
    task = uploaded(store)
    world.expire()
    assert not Uploads().publish(store, JOB, task, task.data_files[0])


def test_a_zombies_upload_goes_with_the_next_recover(world: sim.World, tree: sim.Tree) -> None:
    """It was begun after the last clean of its job; uploads of strangers and of open jobs stay."""
    gather()
    job = next(iter(done(world, tree).outcome))
    store = world.store(sim.DEST)
    mine, open_, strange = (
        names.data_file("d=1", job, 0, "a" * 12, 0, "txt"),
        names.data_file("", f"7-{1:016x}", 0, "a" * 12, 0, "txt"),
        "somebody/else.bin",
    )
    for name in (mine, open_, strange):
        store.upload(name).write(b"zombie")
    protocol.recover(store)
    assert sorted(world.waiting()) == sorted([open_, strange])


def test_what_is_given_up_leaves_no_upload(world: sim.World, tree: sim.Tree) -> None:
    """Also where the plan is damaged, so that nobody knows which committer wrote the output."""
    for damage in (False, True):
        work, _ = planned(world, tree)
        attempt(work, 0)
        assert len(world.waiting()) == 1
        store = world.store(sim.DEST)
        if damage:
            store.inner.put(names.plan_head(work.head.job), b"{}")
        protocol.recover(store, "open")
        assert world.waiting() == []


# ------------------------------------------------------------------------------------------------------------ forged entries
@pytest.mark.parametrize("handle", ["", "../x", "x" * 10_000, "0" * 31, '{"id": "1"}'])
def test_what_is_no_handle_is_refused(handle: str) -> None:
    store = memory.MemoryStore(sim.DEST)
    for use in (store.complete, store.give_up):
        with pytest.raises(FormatError, match="not the handle"):
            use("part", handle)


def test_a_handle_of_another_file_does_nothing(world: sim.World) -> None:
    """A forged entry names its own file with somebody else's handle: neither is that completed, nor given up."""
    store = world.store(sim.DEST)
    task, other = uploaded(store), uploaded(store, 1, b"secret")
    forged = DataFile(task.data_files[0].name, 6, 1, other.data_files[0].handle)
    assert not Uploads().publish(store, JOB, task, forged)
    store.give_up(forged.name, forged.handle)
    assert sim.objects(sim.DEST) == {}
    assert len(world.waiting()) == 2


def test_a_committer_that_cannot_work_here_is_refused(tmp_path: Path) -> None:
    """A commit by upload that is not published, on a disk: a copy made in the middle of a job, or a forgery."""
    store = LocalStore(str(tmp_path))
    head = PlanHead(job=JOB, base=0, plan=names.new_id(), tasks=1, committer="upload", spec=SPEC, intent={}, closer="")
    protocol.freeze(store, head)
    with pytest.raises(FormatError, match=r"committer 'upload', which cannot work there"):
        protocol.plan_head(store, JOB)
    removes = (names.data_file("", JOB, 0, "a" * 12, 0, "txt"),)
    task = Task(task=0, attempt=names.new_id(), data_files=(), coverage=Coverage(removes=removes), stats=Stats())
    log = Log(store)
    protocol.commit(log, head, [task], conflicts)
    with pytest.raises(FormatError, match=r"recover it where it was written"):
        protocol.recover(store)


def test_a_copy_of_a_finished_destination_works_elsewhere(world: sim.World, tree: sim.Tree, tmp_path: Path) -> None:
    """Gathered into a store with uploads, copied to a disk: there the next call goes on by renaming."""
    gather()
    for name, data in sim.objects(sim.DEST).items():
        LocalStore(str(tmp_path)).put(name, data)
    tree.put("b", b"two\n")
    report = quire.consolidate(sim.SOURCE, tmp_path, spark=quire.LocalRunner(), progress=False)
    assert report.files == 1
    assert {file.committer for file in Log(LocalStore(str(tmp_path))).refresh().outcomes()} == {"upload", "rename"}


# ------------------------------------------------------------------------------------------------------------- which of them
@pytest.mark.parametrize(
    ("kind", "auto", "others"), [("hdfs", "rename", {"rename_v2"}), ("s3", "upload", {"copy"}), ("azure", "upload", {"copy"})]
)
def test_which_committer(kind: str, auto: str, others: set[str]) -> None:
    """`auto` takes the one that fits; one that does not is refused in a line that names what does."""
    store = sim.World(kind=sim.KINDS[kind]).store(sim.DEST)
    assert choice("auto", store) == auto
    assert {by.name for by in serving(store, "auto")} == {auto} | others
    for name in {"rename", "rename_v2", "upload"} - {auto} - others:
        with pytest.raises(UsageError, match=f"committer='{name}' cannot work in memory://dest. Use '{auto}'") as caught:
            choice(name, store)
        assert caught.value.argument == "committer"


def test_a_store_that_offers_nothing(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.can_rename = False
    with pytest.raises(UsageError, match="neither rename in one step nor hold uploads"):
        choice("auto", store)


def test_upload_on_a_disk_is_refused(tmp_path: Path, tree: sim.Tree) -> None:
    with pytest.raises(UsageError, match="committer='upload' cannot work in file://"):
        quire.consolidate(sim.SOURCE, tmp_path, spark=quire.LocalRunner(), committer="upload")
    disk = LocalStore(str(tmp_path))
    for use in (disk.upload, disk.pending, lambda name: disk.complete(name, "x"), lambda name: disk.give_up(name, "x")):
        with pytest.raises(StorageError, match="holds no uploads"):
            use("a")


def test_a_store_in_memory_does_both(tree: sim.Tree) -> None:
    dest = normalise("memory://both")
    for committer in ("rename", "upload"):
        report = quire.consolidate(sim.SOURCE, f"{dest}/{committer}", spark=quire.LocalRunner(), progress=False, committer=committer)
        assert report.files == 1
    assert list(memory.MemoryStore(dest).pending()) == []
    sim.forget_all(dest)
