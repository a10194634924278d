"""A job of many tasks: the work of each is its own, however many others there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gathering import gather
from quire.formats.parquet import OwnParquet
from quire.planning import pack
from quire.spark import runner
from quire.storage import Entry, connect
from quire.storage.memory import MemoryStore

if TYPE_CHECKING:
    import pytest

SOURCE, DEST = "memory://many-tasks-in", "memory://many-tasks-out"


def work(n: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Rows of the plan's tasks that are read, and files that are listed below the jobs, by a call of so many tasks."""
    for url in (SOURCE, DEST):
        for entry in list(connect(url).walk()):
            connect(url).remove(entry.name)
    connect(SOURCE).put("big", b"".join(b"%06d\n" % i * 100 for i in range(n)))
    counts, batches, walk = Counter[str](), OwnParquet.batches, MemoryStore.walk

    def counted_batches(self: OwnParquet, columns: Sequence[str], groups: Iterable[int]) -> Iterator[Any]:
        for batch in batches(self, columns, groups):
            counts["rows"] += batch.num_rows if "task" in columns else 0
            yield batch

    def counted_walk(self: MemoryStore, folder: str = "") -> Iterator[Entry]:
        for entry in walk(self, folder):
            counts["listed"] += folder.startswith("_quire/jobs/")
            yield entry

    with monkeypatch.context() as patch:
        patch.setattr(OwnParquet, "batches", counted_batches)
        patch.setattr(MemoryStore, "walk", counted_walk)
        report: Any = gather(SOURCE, DEST, target_size="1001 B")
    assert n * 0.6 < report.data_files <= n + 1
    assert sum(len(connect(DEST).get(e.name)) for e in connect(DEST).walk() if not e.name.startswith("_quire/")) == n * 700
    return counts


def test_twice_the_tasks_are_about_twice_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "TASKS", 10)
    monkeypatch.setattr(runner, "SHARES", 4)
    monkeypatch.setattr(runner, "POLL", 60)
    few, many = work(20, monkeypatch), work(60, monkeypatch)
    assert many["rows"] < 4.5 * few["rows"]
    assert many["listed"] < 4.5 * few["listed"]


def test_a_plan_of_several_objects_is_read_whole_and_by_task() -> None:
    store, n = connect("memory://plan-of-several"), 2 * pack.TASKS + 1
    name = "_quire/jobs/0-0123456789abcdef/plan-0123456789ab.rows"
    own = name.removesuffix(".rows") + "-0.rows"
    tasks = [pack.PlannedTask("", 0, [pack.TaskRun("", 0, own, 0, i, 1, i)]) for i in range(n)]
    pack.write_head(store, name, tasks)
    assert pack.read_head(store, name, n) == tasks
    for i in (0, pack.TASKS - 1, pack.TASKS, n - 1):
        assert pack.read_task(store, name, i) == tasks[i]
