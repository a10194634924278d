"""Rollbacks and restores by quire: JVM Hudi 0.15.0 and 1.2.0 read the table after each, and write on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import quire
from quire.table import timeline
from services import jvm_hudi
from services.jvm_hudi import VERSIONS, Session
from services.test_table_jvm import by_id, frame, row
from services.test_table_jvm_cleans import NEVER, begun
from services.test_table_jvm_logs import WRITE

pytestmark = pytest.mark.services

LOCAL = quire.LocalRunner()


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    with jvm_hudi.sessions() as found:
        yield found


FORMS = [*itertools.product(VERSIONS, ["copy_on_write", "merge_on_read"]), ("1.2.0", "version 9"), ("1.2.0", "version 9, merge_on_read")]


@pytest.mark.nth(3)
@pytest.mark.parametrize(("version", "type"), FORMS)
def test_the_jvm_reads_and_writes_on_after_each(tmp_path: Path, sessions: dict[str, Session], version: str, type: str) -> None:
    jvm = sessions[version]
    table, options = begun(tmp_path / "t", type)
    options |= {**NEVER, f"{WRITE}.operation": "upsert"}
    states = list[tuple[str, dict[str, object]]]()

    def bring(who: str, n: int) -> None:
        rows = [row("a", n), row(f"{who}{n}", n), row("l", n, "la")]
        if who == "quire":
            table.upsert(frame(*rows), spark=LOCAL, progress=False)
        else:
            jvm.write(table.url, frame(*rows), options)
        now = (states[-1][1] if states else {}) | {each["id"]: each for each in rows}
        states.append((timeline.current(quire.storage.connect(table.url)).completed[-1].time, now))
        agree()

    def agree() -> None:
        assert by_id(table.snapshot(spark=LOCAL)) == states[-1][1]
        assert by_id(jvm.read(table.url)) == states[-1][1]

    for n in range(1, 4):
        bring("quire", n)
    table.rollback(progress=False)
    states.pop()
    agree()
    bring("jvm", 4)
    bring("quire", 5)
    bring("jvm", 6)
    report = table.restore(states[1][0], progress=False)
    assert report.taken_back == tuple(time for time, _ in reversed(states[2:]))
    del states[2:]
    agree()
    bring("jvm", 7)
    table.rollback(progress=False)
    states.pop()
    agree()
    bring("quire", 8)
    bring("jvm", 9)
    assert not quire.recover(table.url).lost_updates
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok
