"""A table looked into: its timeline with cleans, and its health in numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_clean import clean, files, written
from test_compaction import compact, table_with_logs
from test_writes import create

import quire
from quire.errors import UsageError
from quire.storage import connect
from quire.table import overview, timeline
from quire.table.table import Table


def test_the_timeline_has_writes_and_cleans(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 3)
    clean(table)
    found = table.timeline()
    assert found["instant"].tolist()[:3] == instants
    assert found["action"].tolist() == ["commit"] * 3 + ["clean"]
    assert found["state"].tolist() == ["completed"] * 4
    assert found["inserted"].tolist()[:3] == [3, 1, 1]
    assert found["deleted_files"].tolist()[3] == 4
    assert table.timeline(last=1)["action"].tolist() == ["clean"]
    assert table.as_of(instants[0]).timeline()["instant"].tolist() == instants[:1]
    for wrong in (-1, "2", True):
        with pytest.raises(UsageError, match="last takes"):
            table.timeline(last=wrong)  # type: ignore[arg-type]


def test_the_timeline_has_savepoints_rollbacks_and_restores(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 4)
    table.rollback(progress=False)
    held = table.savepoint(instants[0])
    table.restore(instants[1], progress=False)
    found = table.timeline()
    assert found["action"].tolist() == ["commit", "savepoint", "commit", "rollback", "restore"]
    assert found["operation"].tolist()[1:] == ["savepoint", "upsert", "rollback", "restore"]
    assert found["instant"].tolist()[1] == held == instants[0]
    assert set(found["state"]) == {"completed"}
    assert table.as_of(instants[0]).timeline()["action"].tolist() == ["commit", "savepoint"]


def test_a_clean_that_is_under_way_is_there_once(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 2)
    (tmp_path / "trips/.hoodie/20990101000000000.clean.requested").touch()
    found = table.timeline()
    assert found["instant"].tolist() == [*instants, "20990101000000000"]
    assert found["state"].tolist()[-1] == "requested"


def test_the_health_of_a_table(tmp_path: Path) -> None:
    table, _ = written(tmp_path / "trips", 4)
    stats = table.stats()
    there = [path for path in files(tmp_path / "trips") if path.endswith(".parquet")]
    assert (stats.rows, stats.files, stats.small_files, stats.logs, stats.log_ratio) == (6, 2, 2, 0, 0.0)
    assert (stats.superseded, stats.commits, stats.changed) == (6, 4, 12)
    assert repr(stats).startswith("TableStats(rows=6, files=2, small_files=2, logs=0, bytes=")
    assert stats.bytes + stats.superseded_bytes == stats.written == sum((tmp_path / "trips" / name).stat().st_size for name in there)
    assert stats.write_amplification == pytest.approx(stats.written / (12 * stats.bytes / 6))
    parts = stats.partitions.set_index("partition")
    assert parts["rows"].to_dict() == {"city=la": 1, "city=sf": 5}
    assert parts["times_mean"].mean() == pytest.approx(1)
    assert "The heaviest partition is 'city=sf'" in str(stats)
    said = json.loads(json.dumps(stats.as_dict()))
    assert said["partitions"][0]["partition"] == "city=la"
    clean(table)
    assert (table.stats().superseded, table.stats().superseded_bytes) == (0, 0)


def test_the_health_of_a_table_with_logs_and_of_an_empty_one(tmp_path: Path) -> None:
    table = table_with_logs(tmp_path / "trips")
    stats = table.stats()
    assert (stats.logs, stats.rows, stats.write_amplification) == (2, None, None)
    assert repr(stats).startswith("TableStats(rows=not known, files=")
    assert stats.log_ratio == pytest.approx(stats.log_bytes / stats.bytes)
    assert "write amplification" in str(stats)
    compact(table)
    after = table.stats()
    assert (after.logs, after.rows, after.changed) == (0, 2, stats.changed), "a compaction changes no row"
    assert after.written > stats.written
    empty = create(tmp_path / "empty").stats()
    assert (empty.rows, empty.files, empty.write_amplification, len(empty.partitions)) == (0, 0, None, 0)
    json.dumps(empty.as_dict())
    assert str(empty)


def test_looking_in_costs_one_request_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = written(tmp_path / "trips", 8)
    asked = list[str]()
    commit = timeline.Timeline.commit

    def counted(self: timeline.Timeline, instant: timeline.Instant) -> object:
        asked.append(instant.time)
        return commit(self, instant)

    monkeypatch.setattr(timeline.Timeline, "commit", counted)
    table.timeline()
    assert len(asked) == 8
    asked.clear()
    table.stats()
    assert len(asked) == 8, "each says what it wrote, and how many rows"
    assert overview.rows_in(timeline.read(connect(table.url)), []) == []
    assert isinstance(Table(table.url).stats(), quire.TableStats)
