"""The recipe of docs/together.md with a real PostgreSQL: rows and token in one transaction, whatever dies, and whoever works at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from databases import HERE, Database, filled

import quire
from gathering import documents, write
from quire.errors import QuireError, RefusedError
from services.postgres import postgres
from sim.drivers import Scheduler
from sim.witness import forget_all
from sim.world import DEST, SOURCE, Actor, Crash, World

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(autouse=True)
def _empty() -> None:
    """Stores in memory that tests before have filled."""
    forget_all()


@pytest.fixture
def db(server: str) -> Database:
    """An empty database."""
    found = Database(lambda: psycopg.connect(server), "%s")
    with psycopg.connect(server) as empty:
        empty.execute("DROP TABLE IF EXISTS counts, quire_claims")
        empty.execute("CREATE TABLE counts (device TEXT, n BIGINT)")
        empty.execute("CREATE TABLE quire_claims (number BIGINT PRIMARY KEY, token TEXT NOT NULL)")
    return found


def todo(dest: Any, source: Any) -> int:
    return int(quire.Ledger(dest, create=True).inspect.unprocessed(source, "arrow", spark=HERE["spark"]).num_rows)


@pytest.mark.parametrize("step", ["before", "between", "within", "after"])
def test_a_job_that_ends_at_any_step_of_its_transaction_is_gone_on_with(tmp_path: Path, db: Database, step: str) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "ledger"

    def dies(at: str) -> None:
        if at == step:
            raise Crash

    db.at = dies
    with pytest.raises(Crash):
        db.load(str(dest), str(source))
    db.at = lambda _: None
    assert len(db.rows()) == (4 if step == "after" else 0)
    db.load(str(dest), str(source))
    db.load(str(dest), str(source))
    assert db.rows() == [f"f000{i}.txt" for i in range(4)]
    assert todo(dest, source) == 0


def test_a_connection_that_the_server_ends_before_the_commit_leaves_nothing(tmp_path: Path, db: Database) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "ledger"

    def ended(at: str) -> None:
        if at == "within":
            db.asked("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state LIKE 'idle in%'")

    db.at = ended
    with pytest.raises(psycopg.OperationalError):
        db.load(str(dest), str(source))
    db.at = lambda _: None
    assert db.rows() == []
    assert db.load(str(dest), str(source)).commit_number == 1
    assert len(db.rows()) == 4


@pytest.mark.parametrize("seed", range(12))
def test_jobs_at_the_same_time_write_each_row_once(db: Database, seed: int) -> None:
    names, world = [f"d{i % 2}/f{i}" for i in range(6)], World(seed)
    with world.installed():
        filled(SOURCE, names)
        store = world.store(SOURCE)
        db.at = lambda step: store.stat("nothing") if step in ("before", "after") else None  # others have their turn
        drivers = Scheduler(world, 0.7, {"a": world.random.randrange(5, 80), "b": world.random.randrange(5, 80)})
        for name, settings in (("a", {}), ("b", {"include": "d0/*"}), ("c", {})):
            dies = {world.random.randrange(1, 30): "before"} if name == "c" else {}
            drivers.add(Actor(name, dies), lambda settings=settings: _again(db, settings))
        ended = drivers.run()
        assert all(e is None or isinstance(e, Crash) for e in ended.values()), ended
        for settings in ({}, {"include": "d0/*"}, {}):
            _again(db, settings)
        assert db.rows() == [f"f{i}" for i in range(6)]
        assert todo(DEST, SOURCE) == 0
    forget_all()


def _again(db: Database, settings: dict[str, Any]) -> None:
    for _ in range(20):
        try:
            db.load(DEST, SOURCE, **settings)
        except RefusedError:
            raise
        except (psycopg.IntegrityError, QuireError):
            continue
        else:
            return
    raise AssertionError("it never ends")
