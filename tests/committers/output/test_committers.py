"""The interface for users' own jobs: the order of its calls, the states of jobs and attempts, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
import sim
from gathering import documents, gather, refused, write
from quire import committers
from quire.commit import protocol
from quire.committers import LostError, OutputCommitter, TaskAttempt
from quire.committers.output.files import PIECE
from quire.committers.output.running import drive
from quire.errors import QuireError, RefusedError, StorageError, UsageError
from quire.storage import memory

HERE = quire.LocalRunner()
DOCS = Path(__file__).parents[3] / "docs" / "committers.md"
CALLS = [
    "setup_job", "is_commit_job_repeatable", "setup_task", "needs_task_commit", "commit_task", "abort_task", "is_recovery_supported",
    "recover_task", "commit_job", "abort_job",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    sim.forget_all()
    yield
    sim.forget_all()


def lines(attempt: TaskAttempt) -> None:
    """A task that writes one line."""
    with attempt.create("x.txt") as file:
        file.write(b"%d\n" % attempt.task)


def told(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call says that is refused, in one line; else what it gives."""
    try:
        return "", call()
    except QuireError as e:
        said = str(e)
    assert said.isprintable()
    return said, None


def seen(url: str) -> list[bytes]:
    return sorted(data for name, data in sim.objects(url).items() if not name.startswith("_quire/"))


# ------------------------------------------------------------------------------------------------------- the order of calls
class Told(OutputCommitter):
    """Writes down which of its calls are made."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls = list[str]()

    def __getattribute__(self, name: str) -> Any:
        if name in CALLS:
            super().__getattribute__("calls").append(name)
        return super().__getattribute__(name)


ATTEMPT = ["setup_task", "needs_task_commit", "commit_task"]


def test_the_calls_come_in_the_article_s_order() -> None:
    by = Told("memory://out")
    drive(by, HERE, lines, 2, "nightly")
    assert by.calls == ["setup_job", *ATTEMPT, *ATTEMPT, "commit_job"]
    again = Told("memory://out")
    drive(again, HERE, lines, 2, "nightly")
    assert again.calls == ["setup_job", "is_commit_job_repeatable", "commit_job"], "committed already: no task runs"
    assert seen("memory://out") == [b"0\n", b"1\n"]
    drive(by, HERE, lines, 1, "another")
    assert (drive(again, HERE, lines, 2, "nightly").version, quire.Ledger("memory://out").version) == (2, 4)


def test_a_task_that_fails_is_aborted_and_runs_again() -> None:
    failures = [ZeroDivisionError, OSError]

    def fails(attempt: TaskAttempt) -> None:
        lines(attempt)
        if attempt.task == 0 and failures:
            raise failures.pop()

    by = Told("memory://out")
    drive(by, HERE, fails, 2, None)
    recovered = ["is_recovery_supported", "recover_task"]
    assert by.calls == [
        "setup_job", "setup_task", "abort_task", *ATTEMPT, *recovered, "setup_task", "abort_task", *recovered, *ATTEMPT, "commit_job",
    ]  # fmt: skip
    assert seen("memory://out") == [b"0\n", b"1\n"]


def test_a_job_that_fails_is_aborted() -> None:
    def fails(attempt: TaskAttempt) -> None:
        lines(attempt)
        raise ValueError(f"no orders for {attempt.task}")

    by = Told("memory://out")
    with refused(QuireError, 3, "1 of 1 tasks failed 3 times; task 0: ValueError: no orders for 0", "is visible", "call again"):
        drive(by, HERE, fails, 1, "nightly")
    assert by.calls == ["setup_job", *["setup_task", "abort_task"] * 3, "abort_job"]
    (note,) = quire.Ledger("memory://out").inspect.history()["note"]
    assert "no orders for 0" in note
    assert [*sim.objects("memory://out")] == ["_quire/log/00000000000000000001.entry"]
    drive(by, HERE, lines, 1, "nightly")
    assert seen("memory://out") == [b"0\n"], "a name that was given up may be used again"


def test_a_job_that_is_found_is_recovered_task_by_task() -> None:
    first = OutputCommitter("memory://out")
    attempt = first.setup_task(first.setup_job(2, "nightly"), 0)
    lines(attempt)
    first.commit_task(attempt)
    by = Told("memory://out")
    drive(by, HERE, lines, 2, "nightly")
    assert by.calls == ["setup_job", "is_commit_job_repeatable", "is_recovery_supported", "recover_task", *ATTEMPT, "commit_job"]
    assert seen("memory://out") == [b"0\n", b"1\n"]


def test_an_attempt_that_came_second_is_aborted() -> None:
    by = Told("memory://out")

    def slow(attempt: TaskAttempt) -> None:
        lines(attempt)
        other = OutputCommitter("memory://out")
        quick = other.setup_task(other.job(attempt.job), attempt.task)
        with quick.create("x.txt") as file:
            file.write(b"quick\n")
        other.commit_task(quick)

    drive(by, HERE, slow, 1, None)
    assert by.calls == ["setup_job", "setup_task", "needs_task_commit", "abort_task", "commit_job"]
    assert seen("memory://out") == [b"quick\n"]


def test_an_interrupted_job_goes_on_if_it_has_a_name() -> None:
    def interrupted(attempt: TaskAttempt) -> None:
        lines(attempt)
        if attempt.task:
            raise KeyboardInterrupt

    for name in ("nightly", None):
        with pytest.raises(KeyboardInterrupt):
            drive(OutputCommitter("memory://out"), HERE, interrupted, 2, name)
    assert len(quire.Ledger("memory://out").summary().open_jobs) == 1
    by = Told("memory://out")
    drive(by, HERE, lines, 2, "nightly")
    assert by.calls.count("setup_task") == 1


def test_all_of_the_article_s_calls_are_made_somewhere_and_documented() -> None:
    text = DOCS.read_text()
    assert all(f"`{call}(" in text for call in CALLS)
    assert all(getattr(OutputCommitter, call).__doc__ for call in CALLS)


def test_the_documented_calls_do_what_they_say(tmp_path: Path) -> None:
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL) if "OutputCommitter(" in block]
    for _ in range(2):
        exec(code.replace("/data/orders", str(tmp_path / "orders")), {"quire": quire})
        assert quire.Ledger(tmp_path / "orders").inspect.files()["bytes"].tolist() == [4, 4]


# ------------------------------------------------------------------------------------------------------ where things lie
def test_the_article_s_four_directories() -> None:
    by = OutputCommitter("memory://out", "rename")
    job = by.setup_job(1)
    assert [*sim.objects("memory://out")] == [f"_quire/jobs/{job.id}/plan.entry"]
    attempt = by.setup_task(job, 0)
    lines(attempt)
    waits = f"_quire/jobs/{job.id}/attempts/0-{attempt.id}/"
    assert any(name.startswith(waits) for name in sim.objects("memory://out"))
    by.commit_task(attempt)
    assert f"_quire/jobs/{job.id}/tasks/0.entry" in sim.objects("memory://out")
    assert seen("memory://out") == []
    by.commit_job(job)
    final = f"part-{job.id}-0-{attempt.id}-0.txt"
    assert sorted(sim.objects("memory://out")) == [f"_quire/log/{n:020d}.entry" for n in (1, 2)] + [final]
    text = DOCS.read_text()
    for name in (
        "[directory/]part-<job>-<task>-<attempt>-<i>.<ending>", "$dest/_quire/jobs/<job>/`, with `plan.entry`",
        "$dest/_quire/jobs/<job>/attempts/<task>-<attempt>/", "$dest/_quire/jobs/<job>/tasks/<task>.entry",
        "$dest/_quire/log/<number>.entry",
    ):  # fmt: skip
        assert name in text


# --------------------------------------------------------------------------------------------------------------- states
Arrow = tuple[str, str, str]  # from, call, to


def drawn(number: int) -> set[Arrow]:
    """The arrows of a diagram in the documentation, but for the first one."""
    block = re.findall(r"```mermaid\n(.*?)```", DOCS.read_text(), re.DOTALL)[number]
    return {(a, call, b) for a, b, call in re.findall(r"(\w+) --> (\w+): (.+)", block)}


def job_in(state: str, url: str, monkeypatch: pytest.MonkeyPatch) -> tuple[OutputCommitter, Any]:
    """A job in that state."""
    by = OutputCommitter(url, "upload")
    job = by.setup_job(1, "nightly")
    attempt = by.setup_task(job, 0)
    lines(attempt)
    by.commit_task(attempt)
    if state == "aborted":
        by.abort_job(job)
    if state in ("committed", "lost"):
        dies(by, job, monkeypatch)
    if state == "published":
        by.commit_job(job)
    if state == "lost":
        expire(url)
        with pytest.raises(LostError, match="has lost output"):
            by.commit_job(job)
    assert by.state(job) == state
    return by, job


def dies(by: OutputCommitter, job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the entry is in the log."""
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "publish", fails)
        with pytest.raises(StorageError, match="is committed: call again"):
            by.commit_job(job)


def fails(*_: object) -> bool:
    raise StorageError("the network is gone")


def expire(url: str) -> None:
    store = memory.MemoryStore(url)
    for name, handle in list(store.pending()):
        store.give_up(name, handle)


def test_the_states_of_a_job_are_those_of_the_diagram(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call in each state: it leads where an arrow does, or it is refused in one line and changes nothing."""
    calls: dict[str, Callable[[OutputCommitter, Any, str], Any]] = {
        "setup_job": lambda by, _, __: by.setup_job(1, "nightly"),
        "commit_job": lambda by, job, _: by.commit_job(job),
        "commit_job dies": lambda by, job, _: dies(by, job, monkeypatch),
        "abort_job": lambda by, job, _: by.abort_job(job),
        "recover": lambda _, __, url: quire.recover(url),
        "recover, uploads gone": lambda _, __, url: (expire(url), quire.recover(url)),
        "recover(abort)": lambda _, job, url: quire.recover(url, abort=job.id),
    }
    found = set[Arrow]()
    for state in ("open", "committed", "published", "aborted", "lost"):
        for i, (name, call) in enumerate(calls.items()):
            if (name == "recover, uploads gone" and state != "committed") or (name == "commit_job dies" and state != "open"):
                continue  # what is said of one state alone
            url = f"memory://{state}-{i}"
            by, job = job_in(state, url, monkeypatch)
            before = seen(url)
            said, answer = told(lambda: call(by, job, url))  # noqa: B023 - it is called at once
            if said:
                assert (by.state(job), seen(url)) == (state, before), f"{name} was refused, and changed what is {state}"
                continue
            after = by.state(answer if name == "setup_job" else job)
            found.add((state, name, after))
            assert seen(url) == ([b"0\n"] if after == "published" else []), f"{state}, {name}"
            assert by.is_commit_job_repeatable(job) == by.is_recovery_supported(job) == (by.state(job) not in ("aborted", "lost"))
    assert found == drawn(0)


def test_the_states_of_an_attempt_are_those_of_the_diagram(monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise; whatever happened, the job then commits one attempt of the task."""
    by = OutputCommitter("memory://out", "upload")

    def unanswered(attempt: TaskAttempt, arrived: bool) -> None:
        real = protocol.put_manifest
        with monkeypatch.context() as patch:
            patch.setattr(protocol, "put_manifest", lambda *x: fails(arrived and real(*x)))
            with pytest.raises(StorageError, match="Call again"):
                by.commit_task(attempt)

    def another(attempt: TaskAttempt) -> None:
        other = by.setup_task(by.job(attempt.job), 0)
        lines(other)
        by.commit_task(other)

    calls: dict[str, Callable[[TaskAttempt], object]] = {
        "commit_task": by.commit_task,
        "commit_task, another first": lambda attempt: (another(attempt), by.commit_task(attempt)),
        "commit_task, unanswered": lambda attempt: unanswered(attempt, False),
        "abort_task": by.abort_task,
        "abort_task, another first": lambda attempt: (another(attempt), by.abort_task(attempt)),
    }
    ways: dict[str, Callable[[TaskAttempt], object]] = {
        "open": lambda _: None,
        "committed": by.commit_task,
        "lost": calls["commit_task, another first"],
        "unknown": lambda attempt: unanswered(attempt, False),
        "unknown, arrived": lambda attempt: unanswered(attempt, True),
        "aborted": by.abort_task,
    }
    found = set[Arrow]()
    for begin, way in ways.items():
        state = begin.partition(",")[0]
        for name, call in calls.items():
            special = name not in ("commit_task", "abort_task")
            if special and (state not in ("open", "unknown") or (name == "abort_task, another first" and state == "open")):
                continue  # what is said of some states alone
            if begin == "unknown, arrived" and special:
                continue  # it has come to pass: no other one can be first
            job = by.setup_job(1)
            attempt = by.setup_task(job, 0)
            lines(attempt)
            way(attempt)
            assert attempt.state == state
            if told(lambda: call(attempt))[0]:  # noqa: B023 - it is called at once
                assert attempt.state == state
            else:
                found.add((state, name, attempt.state))
            if not by.recover_task(job, 0):
                another(attempt)
            assert by.commit_job(job).data_files == 1
    assert found == drawn(1)
    store = memory.MemoryStore("memory://out")
    assert list(store.pending()) == []
    assert set(seen("memory://out")) == {b"0\n"}


def test_an_attempt_without_an_answer_is_told_after_its_job_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it counts stands in the log then; nothing is put back among what was cleaned."""
    by = OutputCommitter("memory://out", "upload")
    for first in (True, False):
        job = by.setup_job(1)
        late, other = by.setup_task(job, 0), by.setup_task(job, 0)
        for attempt in (late, other):
            lines(attempt)
        real = protocol.put_manifest
        with monkeypatch.context() as patch:
            patch.setattr(protocol, "put_manifest", lambda *x: fails(first and real(*x)))  # noqa: B023 - it is called at once
            with pytest.raises(StorageError, match="Call again"):
                by.commit_task(late)
        assert by.commit_task(other) != first
        by.commit_job(job)
        assert by.commit_task(late) == first
        assert late.state == ("committed" if first else "lost")
    assert not [name for name in sim.objects("memory://out") if name.startswith("_quire/jobs")]
    assert list(memory.MemoryStore("memory://out").pending()) == []


# ------------------------------------------------------------------------------------------------- names, drivers, races
@pytest.mark.nth(2)
@pytest.mark.parametrize("kind", ["hdfs", "s3"])
def test_drivers_of_one_name_at_once_commit_it_once(kind: str) -> None:
    """Also where one sleeps for long, and where others commit in between, so that each would begin at another version."""

    def make(name: str) -> Callable[[], object]:
        def work() -> None:
            said, _ = told(lambda: committers.run(lines, sim.DEST, 2, name=name, spark=HERE))
            assert not said or "a job of the same name was committed first" in said

        return work

    for seed in range(25):
        sim.forget_all()
        world = sim.World(seed, kind=sim.KINDS[kind])
        world.watched[sim.DEST] = sim.Observer()
        with world.installed():
            drivers = sim.Scheduler(world, (0.2, 0.8, 0.95)[seed % 3], {"A": 5 + seed} if seed % 2 else {})
            for driver, name in (("A", "nightly"), ("B", "nightly"), ("C", "other"), ("D", "nightly")):
                drivers.add(sim.Actor(driver), make(name))
            ended = drivers.run()
            assert not any(ended.values()), ended
            quire.recover(sim.DEST)
            assert seen(sim.DEST) == [b"0\n", b"0\n", b"1\n", b"1\n"], f"seed {seed}: {world.told()}"
            assert not [name for name in sim.objects(sim.DEST) if name.startswith("_quire/jobs")]


def test_of_two_jobs_of_one_name_the_second_to_commit_is_told() -> None:
    """Begun at two versions of the log, neither seeing the other."""
    by = OutputCommitter("memory://out")
    store = memory.MemoryStore("memory://out")
    first = by.setup_job(1, "nightly")
    plan = store.get(f"_quire/jobs/{first.id}/plan.entry")
    store.remove(f"_quire/jobs/{first.id}/plan.entry")
    drive(by, HERE, lines, 1, "other")
    second = by.setup_job(1, "nightly")
    assert second.id != first.id
    store.put(f"_quire/jobs/{first.id}/plan.entry", plan)  # the first one's, which was on its way
    for job in (first, second):
        attempt = by.setup_task(job, 0)
        lines(attempt)
        by.commit_task(attempt)
    by.commit_job(second)
    with refused(QuireError, 3, "was given up", f"a job of the same name was committed first, {second.id}"):
        by.commit_job(first)
    assert len(seen("memory://out")) == 2
    assert by.setup_job(1, "nightly").id == second.id


# -------------------------------------------------------------------------------------------- what is written, and read
def test_libraries_write_to_it_and_quire_reads_it(tmp_path: Path) -> None:
    def parquet(attempt: TaskAttempt) -> None:
        with attempt.create(f"day={attempt.task}/orders.snappy.parquet") as file:
            if attempt.task:
                pd.DataFrame({"n": [attempt.task]}).to_parquet(file)
            else:
                with pq.ParquetWriter(file, pa.schema([("n", pa.int64())])) as writer:
                    for n in range(3):
                        writer.write_table(pa.table({"n": [n]}))

    for name, url in (("rename", tmp_path / "out"), ("upload", "memory://out")):
        done = committers.run(parquet, url, 2, name="orders", committer=name, spark=HERE)
        assert (done.data_files, done.records) == (2, 4)
        ledger = quire.Ledger(url)
        files = ledger.inspect.files("arrow").to_pylist()
        assert [(f["verb"], f["records"], f["task"]) for f in files] == [("write", 3, 0), ("write", 1, 1)]
        assert files[0]["data_file"].startswith("day=0/part-")
        assert files[0]["data_file"].endswith("-0.snappy.parquet")
        assert ledger.verify(spark=HERE).ok
        assert ledger.inspect.history()["note"][0] == "orders"
        assert "orders" not in repr(done) and "data files" in done._repr_html_()  # noqa: PT018


def test_text_is_written_as_to_any_file() -> None:
    def texts(attempt: TaskAttempt) -> None:
        with attempt.create("a.csv") as file:
            pd.DataFrame({"größe": [1, 2]}).to_csv(file, index=False)
        with attempt.create("b.csv") as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
            csv.writer(text).writerow(["größe", 3])

    assert committers.run(texts, "memory://out", 1, spark=HERE).data_files == 2
    assert seen("memory://out") == ["größe\n1\n2\n".encode(), "größe,3\r\n".encode()]


def test_on_spark_tasks_write_and_all_of_it_is_there(tmp_path: Path, spark: Any) -> None:
    dest, flag = tmp_path / "out", tmp_path / "failed once"

    def orders(attempt: TaskAttempt) -> None:
        with attempt.create("orders.json") as file:
            file.write(b"".join(b'{"n": %d}\n' % (10 * attempt.task + i) for i in range(3)))
        if attempt.task == 1 and not flag.exists():
            flag.touch()
            raise OSError("once")

    done = committers.run(orders, dest, 3, name="orders", spark=spark)
    assert done.data_files == 3
    found = [json.loads(bytes(row.value)) for row in quire.read(dest, spark=spark).collect()]
    assert sorted(row["n"] for row in found) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert committers.run(fails, dest, 3, name="orders", spark=spark) == done, "no task runs again"


def test_what_spark_has_written_by_path_is_committed(tmp_path: Path, spark: Any) -> None:
    by = OutputCommitter(tmp_path / "out")
    job = by.setup_job(1, "nightly")
    attempt = by.setup_task(job, 0)
    spark.range(10).selectExpr("id", "id % 2 as even").write.partitionBy("even").parquet(attempt.work_path)
    assert by.commit_task(attempt)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"_quire"}
    done = by.commit_job(job)
    assert done.records == 10
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"_quire", "even=0", "even=1"}
    assert sorted(row.id for row in quire.read(tmp_path / "out", spark=spark).collect()) == [*range(10)]


def test_the_committer_and_its_jobs_travel_and_attempts_do_not() -> None:
    by = OutputCommitter("memory://out", "upload", storage_options={"x": "1"})
    job = by.setup_job(1)
    there, same = pickle.loads(pickle.dumps((by, job)))
    assert same == job
    attempt = there.setup_task(same, 0)
    with pytest.raises(TypeError, match="stays in its process: pass the job on"):
        pickle.dumps(attempt)
    assert "storage_options" not in repr(by) and "'1'" not in repr(by)  # noqa: PT018


# ------------------------------------------------------------------------------------------------------------ bad input
def test_wrong_words_are_one_line_before_anything_is_written(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    for tasks in (0, -1, 1.5, True, "2", 100_001):
        with refused(UsageError, 2, "tasks=", "is not a whole number from 1"):
            OutputCommitter(dest).setup_job(tasks)  # type: ignore[arg-type]
    for name in ("", 7, "x" * 201, "two\nlines", "half \ud800"):
        with refused(UsageError, 2, "is not a name of a job, in one line. Write for example"):
            OutputCommitter(dest).setup_job(1, name)  # type: ignore[arg-type]
    with refused(UsageError, 2, "unknown committer 'renam'", "Did you mean 'rename'?"):
        OutputCommitter(dest, "renam")
    with refused(UsageError, 2, "committer='upload' cannot work in", "Use 'rename' or 'rename_v2'"):
        OutputCommitter(dest, "upload")
    with refused(UsageError, 2, "unknown kind of store 'nfs'"):
        OutputCommitter("nfs://x/y")
    with refused(UsageError, 2, "takes a SparkSession, not"):
        committers.run(lines, dest, 1, spark="spark")
    settings: dict[str, Any] = {"allow_nonempty": "no"}
    with refused(UsageError, 2, "allow_nonempty='no'", "neither True nor False"):
        OutputCommitter(dest, **settings)
    with refused(UsageError, 2, "write=None is not a function"):
        committers.run(None, dest, 1, spark=HERE)  # type: ignore[arg-type]
    assert not dest.exists()
    (dest / "mine").mkdir(parents=True)
    with refused(RefusedError, 2, "is not empty and not quire's", "allow_nonempty=True"):
        OutputCommitter(dest).setup_job(1)
    assert [p.name for p in dest.iterdir()] == ["mine"]
    OutputCommitter(dest, allow_nonempty=True).setup_job(1)


def test_what_quire_has_gathered_is_not_mixed_with_files_of_one_s_own(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(2)), tmp_path / "out"
    gather(source, dest)
    with refused(RefusedError, 2, "holds what quire has made itself (transform 'lines')", "Choose another destination"):
        OutputCommitter(dest).setup_job(1)
    by = OutputCommitter(tmp_path / "mine")
    job = by.setup_job(1)
    attempt = by.setup_task(job, 0)
    lines(attempt)
    by.commit_task(attempt)
    gather(source, tmp_path / "mine")  # in between
    with refused(RefusedError, 2, "holds what quire has made itself (transform 'lines')"):
        by.commit_job(job)
    by.abort_job(job)
    committers.run(lines, tmp_path / "other", 1, spark=HERE)
    with refused(RefusedError, 2, "holds transform 'claim'"):
        gather(source, tmp_path / "other")


def test_a_job_that_was_begun_otherwise_is_not_taken_for_this_one() -> None:
    job = OutputCommitter("memory://out", "rename").setup_job(2, "nightly")
    for tasks, name in ((3, "rename"), (2, "upload")):
        with refused(RefusedError, 2, f"job {job.id} ('nightly') of memory://out was begun with 2 tasks and the committer 'rename'"):
            OutputCommitter("memory://out", name).setup_job(tasks, "nightly")


@pytest.mark.parametrize("id", ["12-0123456789abcdef", "../../x", ""])
def test_an_id_that_nobody_knows_is_one_line(id: str) -> None:
    by = OutputCommitter("memory://out")
    for call in (by.job, by.abort_job):
        with refused(UsageError, 2, "knows no job" if id.startswith("12") else "is not the name of a job"):
            call(id)
    unknown = committers.Job("memory://out", "12-0123456789abcdef", 1, "rename", "x")
    assert by.state(unknown) == "unknown"
    for act in (by.commit_job, lambda job: by.setup_task(job, 0)):
        with refused(UsageError, 2, "knows no job '12-0123456789abcdef': begin one with setup_job"):
            act(unknown)
    assert sim.objects("memory://out") == {}


def test_a_forged_plan_is_one_line_and_can_be_given_up() -> None:
    by = OutputCommitter("memory://out")
    job = by.setup_job(1, "nightly")
    store, plan = memory.MemoryStore("memory://out"), f"_quire/jobs/{job.id}/plan.entry"
    for forged in ('"tasks": 1,', '"tasks": 4611686018427387904,'), ('"committer": "rename",', '"committer": "ferri",'), ("{", "["):
        real = store.get(plan)
        store.put(plan, real.replace(forged[0].encode(), forged[1].encode()))
        assert store.get(plan) != real
        for call in (
            by.commit_job,
            lambda job: by.setup_task(job, 0),
            lambda _: committers.run(lines, "memory://out", 1, name="nightly", spark=HERE),
        ):
            with refused(QuireError, 2, "memory://out"):
                call(job)
        store.put(plan, real)
    store.put(plan, b"{")
    by.abort_job(job.id)
    committers.run(lines, "memory://out", 1, name="nightly", spark=HERE)
    assert seen("memory://out") == [b"0\n"]


def test_tasks_that_are_missing_are_named_and_the_job_stays_open() -> None:
    by = OutputCommitter("memory://out")
    job = by.setup_job(9)
    attempt = by.setup_task(job, 1)
    lines(attempt)
    by.commit_task(attempt)
    with refused(RefusedError, 2, "has 9 tasks", "0, 2, 3, 4, 5 and 3 more are not committed: nothing is visible"):
        by.commit_job(job)
    assert (by.state(job), seen("memory://out")) == ("open", [])
    for number in (9, -1, "0"):
        with refused(UsageError, 2, "task=", "is not a whole number from 0 to 8"):
            by.setup_task(job, number)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/etc/x.txt", "not a name of a data file"), ("../x.txt", "not a name of a data file"), ("a//b.txt", "not a name of a data file"),
        ("", "not a name of a data file"), ("a\0b/x.txt", "not a name of a data file"),
        ("half \ud800/x.txt", "not a name of a data file"), (None, "not a name of a data file"), ("_x.txt", "readers would pass over it"),
        ("_quire/x.txt", "readers would pass over it"), ("d/.x.txt", "readers would pass over it"),
        ("x.orc", "neither Parquet nor text, CSV or JSON"), ("x", "neither Parquet nor text"),
    ],
)  # fmt: skip
def test_names_of_files_that_nobody_could_read_are_refused(name: Any, said: str) -> None:
    by = OutputCommitter("memory://out")
    attempt = by.setup_task(by.setup_job(1), 0)
    with refused(UsageError, 2, said):
        attempt.create(name)
    assert attempt.files == []


def test_files_that_do_not_go_together_are_refused_and_nothing_is_lost() -> None:
    """Within a task, between tasks, and with what is there; the job stays open."""
    by = OutputCommitter("memory://out")

    def attempt(job: committers.Job, task: int, *names: str, column: str = "a") -> TaskAttempt:
        made = by.setup_task(job, task)
        for name in names:
            with made.create(name) as file:
                if name.endswith(".parquet"):
                    pq.write_table(pa.table({column: [1]}), file)
        return made

    job = by.setup_job(2)
    with refused(RefusedError, 2, "the task has written files of two kinds"):
        by.commit_task(attempt(job, 0, "x.txt", "x.parquet"))
    by.commit_task(attempt(job, 0, "x.parquet"))
    by.commit_task(attempt(job, 1, "x.parquet", column="b"))
    with refused(RefusedError, 2, "rows of two schemas", "(`a` bigint) and (`b` bigint)", "abort_job"):
        by.commit_job(job)
    assert by.state(job) == "open"
    by.abort_job(job)
    committers.run(lines, "memory://out", 1, spark=HERE)
    job = by.setup_job(1)
    by.commit_task(attempt(job, 0, "x.parquet"))
    with refused(RefusedError, 2, "holds lines, in one directory", "has written parquet, in one directory", "abort_job"):
        by.commit_job(job)
    assert by.state(job) == "open"


def test_a_file_that_is_not_what_its_name_says_is_not_committed() -> None:
    by = OutputCommitter("memory://out", "upload")
    attempt = by.setup_task(by.setup_job(1), 0)
    file = attempt.create("x.parquet")
    file.write(b"no parquet")
    with refused(UsageError, 2, "'x.parquet' is not closed: the task was not committed"):
        by.commit_task(attempt)
    with refused(QuireError, 3, "the task has written 'x.parquet', which is not a Parquet file"):
        file.close()
    with refused(UsageError, 2, "'x.parquet' was not written to its end (QuireError)", "discard()"):
        by.commit_task(attempt)
    with pytest.raises(ValueError, match="is closed already"):
        file.write(b"more")
    file.discard()
    assert by.commit_task(attempt), "whole without it"
    with refused(UsageError, 2, "is committed: it cannot create a file any more"):
        attempt.create("y.parquet")


def test_a_file_that_lacks_a_piece_is_not_committed_though_its_writer_has_gone_on(monkeypatch: pytest.MonkeyPatch) -> None:
    by = OutputCommitter("memory://out", "upload")
    attempt = by.setup_task(by.setup_job(1), 0)
    with attempt.create("x.txt") as file:
        with monkeypatch.context() as patch:
            patch.setattr(file.sink, "write", fails)
            with pytest.raises(StorageError):
                file.write(b"1\n" * PIECE)
        file.write(b"2\n")
    with refused(UsageError, 2, "'x.txt' was not written to its end (StorageError)", "abort_task"):
        by.commit_task(attempt)


def test_what_is_written_after_a_failed_commit_of_a_task_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    by = OutputCommitter("memory://out")
    attempt = by.setup_task(job := by.setup_job(1), 0)
    lines(attempt)
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "plan_head", fails)
        with pytest.raises(StorageError):
            by.commit_task(attempt)
    lines(attempt)
    assert by.commit_task(attempt)
    assert by.commit_job(job).data_files == 2


def test_text_that_is_not_compressed_as_its_name_says_is_not_committed() -> None:
    by = OutputCommitter("memory://out", "upload")
    attempt = by.setup_task(by.setup_job(1), 0)
    with refused(QuireError, 3, "the task has written 'x.csv.gz', which is not compressed by gzip"), attempt.create("x.csv.gz") as file:
        file.write(b"a,b\n1,2\n")
    file.discard()
    with attempt.create("y.csv.gz") as file:
        file.write(gzip.compress(b"a,b\n1,2\n"))
    with attempt.create("empty.csv.gz") as file:
        pass
    assert by.commit_task(attempt)


def test_where_output_waits_as_uploads_there_is_no_path() -> None:
    by = OutputCommitter("memory://out", "upload")
    attempt = by.setup_task(by.setup_job(1), 0)
    with refused(RefusedError, 2, "'upload' takes no files that others write by path", "task.create(name)", "copy"):
        _ = attempt.work_path


def test_a_long_ending_of_a_name_is_not_in_the_way_of_its_publication(tmp_path: Path) -> None:
    committer = OutputCommitter(tmp_path / "out")
    job = committer.setup_job(tasks=1, name="long")
    attempt = committer.setup_task(job, 0)
    folder = Path(attempt.work_path.removeprefix("file://"))
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), folder / f"a.{'b' * 245}.parquet")
    with attempt.create(f"a.{'b' * 245}.parquet") as file:
        pq.write_table(pa.table({"n": [2]}), file)
    committer.commit_task(attempt)
    assert committer.commit_job(job).data_files == 2
