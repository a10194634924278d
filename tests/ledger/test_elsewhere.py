"""Claims whose rows go into a database: at least once, or by a token exactly once, whatever dies, and whoever works at the same time."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from databases import HERE, Database, filled, sqlite

import quire
from gathering import documents, refused, write
from quire.errors import QuireError, RefusedError, UsageError
from sim.drivers import Scheduler, run
from sim.witness import forget_all
from sim.world import DEST, SOURCE, Actor, Crash, World

FILES = [f"d{i % 2}/f{i}" for i in range(6)]
SHOWN = [f"f{i}" for i in range(6)]


@pytest.fixture(autouse=True)
def _empty() -> None:
    """Stores in memory that tests before have filled."""
    forget_all()


def todo(dest: Any, source: Any) -> int:
    return int(quire.Ledger(dest, create=True).inspect.unprocessed(source, "arrow", spark=HERE["spark"]).num_rows)


def test_at_least_once_the_ledger_commits_after_the_block(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "ledger"
    ledger, there = quire.Ledger(dest, create=True), list[str]()
    with ledger.claim(source, elsewhere=True, **HERE) as c:
        assert (c.files, c.path, c.commit_number) == (4, "", 0)
        there += c.splits.column("path").to_pylist()
    assert (len(there), c.version, c.data_files) == (4, 2, 0)
    assert todo(dest, source) == 0
    assert [p.name for p in dest.iterdir()] == ["_quire"]
    assert not list((dest / "_quire/jobs").glob("*"))
    write(source, {"new": b"1"})
    with pytest.raises(ZeroDivisionError), ledger.claim(source, elsewhere=True, **HERE) as c:  # noqa: PT012 - what this is about
        there += c.splits.column("path").to_pylist()
        raise ZeroDivisionError
    with ledger.claim(source, elsewhere=True, **HERE) as c:
        there += c.splits.column("path").to_pylist()
    assert len(there) == 6, "the new file's rows are there twice, as it is said"
    assert ledger.summary().files == 5
    with ledger.claim(source, elsewhere=True, **HERE) as c:
        assert c.files == 0
    assert quire.Ledger(dest).inspect.files().empty


def test_of_two_claims_at_least_once_the_second_is_told_that_its_rows_stay(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "ledger"
    first = quire.Ledger(dest, create=True).claim(source, elsewhere=True, **HERE)
    first.__enter__()
    with quire.Ledger(dest).claim(source, elsewhere=True, **HERE):
        pass
    with refused(QuireError, 3, "another claim", "stays there", "committed="):
        first.__exit__(None, None, None)


def test_exactly_once_by_the_recipe(tmp_path: Path) -> None:
    source, dest, db = write(tmp_path / "in", documents(4)), tmp_path / "ledger", sqlite(tmp_path / "db")
    c = db.load(str(dest), str(source))
    assert (c.files, c.commit_number, c.path) == (4, 1, "")
    assert c.commit_token.startswith(f"{c.job}-")
    assert db.asked("SELECT number, token FROM quire_claims") == [(1, c.commit_token)]
    assert (db.rows(), todo(dest, source)) == ([f"f000{i}.txt" for i in range(4)], 0)
    assert db.load(str(dest), str(source)).files == 0
    write(source, {"new": b"1"})
    assert db.load(str(dest), str(source)).commit_number == 2
    assert len(db.rows()) == 5


@pytest.mark.parametrize("step", ["before", "between", "within", "after"])
@pytest.mark.parametrize("kind", [Crash, ZeroDivisionError])
def test_a_job_that_ends_at_any_step_of_its_transaction_is_gone_on_with(tmp_path: Path, step: str, kind: type[BaseException]) -> None:
    source, dest, db = write(tmp_path / "in", documents(4)), tmp_path / "ledger", sqlite(tmp_path / "db")

    def dies(at: str) -> None:
        if at == step:
            raise kind

    db.at = dies
    with pytest.raises(kind):
        db.load(str(dest), str(source))
    db.at = lambda _: None
    assert len(quire.Ledger(dest).summary().open_jobs) == 1, "nothing is given up"
    assert len(db.rows()) == (4 if step == "after" else 0)
    write(source, {"new": b"1"})
    c = db.load(str(dest), str(source))
    assert c.files == (1 if step == "after" else 4), "the same splits, or those that are left"
    db.load(str(dest), str(source))
    assert db.rows() == [*(f"f000{i}.txt" for i in range(4)), "new"]
    assert todo(dest, source) == 0


@pytest.mark.parametrize("fault", ["before", "after"])
def test_killed_at_each_operation_of_the_store_each_row_is_there_once(tmp_path: Path, fault: str) -> None:
    for n in itertools.count(1):
        world, db = World(n), sqlite(tmp_path / f"{fault}-{n}")
        with world.installed():
            filled(SOURCE, FILES)
            actor = Actor("killed", {n: fault})
            run(world, actor, lambda db=db: db.load(DEST, SOURCE))
            run(world, Actor("next"), lambda db=db: db.load(DEST, SOURCE))
            run(world, Actor("last"), lambda db=db: db.load(DEST, SOURCE))
            assert db.rows() == SHOWN, (n, actor.hit)
            assert todo(DEST, SOURCE) == 0, (n, actor.hit)
        forget_all()
        if not actor.hit:
            break
    assert n > 10


@pytest.mark.nth(4)
@pytest.mark.parametrize("seed", range(40))
def test_jobs_at_the_same_time_that_share_splits_or_not_write_each_row_once(tmp_path: Path, seed: int) -> None:
    world, db = World(seed), sqlite(tmp_path / "db")
    with world.installed():
        filled(SOURCE, FILES)
        db.asked("CREATE TABLE counts (device TEXT, n BIGINT)")
        db.asked("CREATE TABLE quire_claims (number BIGINT PRIMARY KEY, token TEXT NOT NULL)")
        store = world.store(SOURCE)

        def at(step: str) -> None:
            if step in ("before", "after"):
                store.stat("nothing")  # others have their turn

        db.at = at
        drivers = Scheduler(world, 0.7, {"a": world.random.randrange(5, 80), "b": world.random.randrange(5, 80)})
        for name, settings in (("a", {}), ("b", {"include": "d0/*"}), ("c", {}), ("d", {"include": "*/f[0-3]"})):
            dies = {world.random.randrange(1, 30): "before"} if name == "c" else {}
            drivers.add(Actor(name, dies), lambda settings=settings: _again(db, settings))
        ended = drivers.run()
        assert all(e is None or isinstance(e, Crash) for e in ended.values()), ended
        for settings in ({}, {}, {"include": "d0/*"}, {"include": "*/f[0-3]"}, {}):
            _again(db, settings)
        assert db.rows() == SHOWN
        assert todo(DEST, SOURCE) == 0
    forget_all()


def _again(db: Database, settings: dict[str, Any]) -> None:
    """A job that tries again when another has taken its number."""
    for _ in range(20):
        try:
            db.load(DEST, SOURCE, **settings)
        except RefusedError:
            raise
        except (sqlite3.IntegrityError, QuireError):
            continue
        else:
            return
    raise AssertionError("it never ends")


# ------------------------------------------------------------------------------------------------------------------ wrong uses
def test_a_block_that_forgets_its_token_is_told_so_and_stays_open(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(2)), tmp_path / "ledger"
    ledger = quire.Ledger(dest, create=True)
    words = "does not hold its token", "gave None, and expected was (1, '", "commit_number"
    with refused(QuireError, 3, *words), ledger.claim(source, committed=lambda: None, **HERE):
        pass
    assert ledger.refresh().summary().open_jobs


@pytest.mark.parametrize(
    "wrong", [1, "last", ("x",), lambda: 7, lambda: (0, "x"), lambda: (True, "x"), lambda: (1, None), lambda: (1, "x", 2)]
)
def test_what_does_not_ask_a_database_is_refused(tmp_path: Path, wrong: Any) -> None:
    source, dest = write(tmp_path / "in", documents(2)), tmp_path / "ledger"
    with refused(UsageError, 2, "committed"), quire.Ledger(dest, create=True).claim(source, committed=wrong, **HERE):
        raise AssertionError
    assert not dest.exists()


def test_rows_of_a_claim_that_the_ledger_has_given_up_or_never_knew_are_named(tmp_path: Path) -> None:
    source, dest, db = write(tmp_path / "in", documents(4)), tmp_path / "ledger", sqlite(tmp_path / "db")

    def dies(at: str) -> None:
        if at == "after":
            raise ZeroDivisionError

    db.at = dies
    with pytest.raises(ZeroDivisionError):
        db.load(str(dest), str(source))
    (job,) = quire.Ledger(dest).summary().open_jobs
    quire.recover(dest, abort=job)
    db.at = lambda _: None
    with refused(RefusedError, 2, job, "has given up", "'given up'"):
        db.load(str(dest), str(source))
    with refused(RefusedError, 2, job, "does not know"):
        db.load(str(tmp_path / "other"), str(source))
    assert len(db.rows()) == 4
    con = db.opened()
    with con:
        con.execute("DELETE FROM counts")
        con.execute("UPDATE quire_claims SET token = 'given up'")
    assert db.load(str(dest), str(source)).commit_number == 2
    assert len(db.rows()) == 4


def test_a_ledger_that_was_begun_anew_takes_no_old_token_for_its_own(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "ledger"
    old, new = sqlite(tmp_path / "old"), sqlite(tmp_path / "new")
    job = old.load(str(dest), str(source)).job
    shutil.rmtree(dest)
    new.at = lambda _: 1 / 0
    with pytest.raises(ZeroDivisionError):
        new.load(str(dest), str(source))
    assert quire.Ledger(dest).summary().open_jobs == (job,), "the same name"
    with refused(RefusedError, 2, job, "does not know"):
        old.load(str(dest), str(source))


def test_a_number_that_is_taken_gives_a_claim_up_before_its_rows_come(tmp_path: Path) -> None:
    source, dest, db = write(tmp_path / "in", documents(4)), tmp_path / "ledger", sqlite(tmp_path / "db")

    def given_up(at: str) -> None:
        if at == "before":
            con = db.opened()
            with con:
                con.execute("INSERT INTO quire_claims VALUES (1, 'given up')")
            quire.recover(dest, abort="open")

    db.at = given_up
    with pytest.raises(sqlite3.IntegrityError):
        db.load(str(dest), str(source))
    assert db.rows() == []
    db.at = lambda _: None
    assert db.load(str(dest), str(source)).commit_number == 2
    assert len(db.rows()) == 4
