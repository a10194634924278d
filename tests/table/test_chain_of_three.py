"""Three tables in a row, in which calls die at random: the last one is what a recomputation of the first gives, deletes carried through."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_chain import passed, plainly, small
from test_writes import LOCAL, write

import quire
import sim
from quire.storage.within import marked
from quire.table.table import Table

ROOT = Path(__file__).parents[2]
PASSING = """
import sys, pyarrow as pa, pyarrow.compute as pc, quire

def plainly(split, found):
    rows = pa.Table.from_struct_array(pc.coalesce(found["after"], found["before"]).combine_chunks())
    return rows.append_column("_hoodie_is_deleted", pc.equal(found["op"], "d"))

a, b, c = sys.argv[1:]
print("ready", flush=True)
while True:
    for source, dest in ((a, b), (b, c)):
        quire.process(quire.Table(source), dest, plainly, spark=quire.LocalRunner(), progress=False, function_version="1")
    print("round", flush=True)
"""


def created(url: str, **more: Any) -> Table:
    return Table.create(url, key="id", partition_by="city", index="simple", **more)


def there(table: Table) -> dict[str, int]:
    return {f"{row['id']} {row['city']}": row["n"] for row in table.snapshot(spark=LOCAL).to_pylist()}


def changed(table: Table, draw: random.Random, n: int, rows: dict[str, int]) -> None:
    """A random commit: rows that are new, or changed, or deleted."""
    those = {(draw.choice("abcdefgh"), draw.choice(("sf", "la"))) for _ in range(draw.randint(1, 4))}
    if rows and draw.random() < 0.4:
        write(table, "delete", small(*((key, city, n) for key, city in sorted(those))))
        for key, city in those:
            rows.pop(f"{key} {city}", None)
    else:
        write(table, "upsert", small(*((key, city, n) for key, city in sorted(those))))
        rows.update({f"{key} {city}": n for key, city in those})


@pytest.mark.nth(2)
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.chaos if seed > 2 else ()) for seed in range(1, 40)])
def test_three_tables_in_a_row_whose_calls_die_end_equal_to_a_recomputation(seed: int) -> None:
    draw, deaths = random.Random(seed), 0
    sim.forget_all()
    world = sim.World(kind=sim.TABLES[draw.choice(["hdfs", "s3"])], observe=False)
    with world.installed():
        logs: dict[str, Any] = {"type": "merge_on_read", "ordering": "n"} if seed % 2 else {}
        tables = [created("memory://one", **logs), created("memory://two", **logs), created(world.dest)]
        rows = dict[str, int]()
        write(tables[0], "upsert", small(("z", "sf", 0)))
        rows["z sf"] = 0

        def step(i: int) -> Any:
            return passed(tables[i], marked(tables[i + 1].url), plainly, function_version="1", operation="upsert")

        for n in range(1, 7):
            changed(tables[0], draw, n, rows)
            step(0)
            dead = sim.Actor(f"dead{n}", faults={draw.randint(1, 60): draw.choice(["before", "after", "ambiguous"])})
            sim.run(world, dead, lambda: step(1))
            deaths += bool(dead.hit)
        with world.acting(sim.Actor("next")):
            for i in (0, 1):
                step(i)
            assert there(tables[0]) == rows
            assert there(tables[1]) == rows
            assert there(tables[2]) == rows, (seed, world.told())
    assert deaths > 1


@pytest.mark.chaos
def test_three_tables_in_a_row_whose_processes_are_killed_end_equal_to_a_recomputation(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))
    draw, rows, kills = random.Random(seed), dict[str, int](), 0
    tables = [created(str(tmp_path / name)) for name in "abc"]
    for n in range(1, 1 + int(os.environ.get("CHAIN_KILLS") or 20)):
        command = [sys.executable, "-c", PASSING, *(table.url for table in tables)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(draw.randint(1, 3)):
                changed(tables[0], draw, n, rows)
            time.sleep(draw.random() * 1.5)
            process.kill()
            kills += process.wait() < 0
    for source, dest in (tables[:2], tables[1:]):
        passed(source, dest, plainly, function_version="1")
    assert kills == n
    for table in tables:
        assert there(table) == rows, f"CHAOS_SEED={seed}"
        assert quire.Ledger(table.url).verify(spark=LOCAL).ok
