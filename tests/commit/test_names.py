"""A program that knows nothing of quire and reads `dest/**/*.parquet` takes in data files only, whatever lies below `_quire/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset
import pytest

import sim
from matrix import cases
from quire.commit import names
from quire.formats import COMPRESSIONS, FORMATS, extension
from sim.ways import Case
from sim.witness import DATA, taken_for_data

CASES = [
    *cases(["few", "parquet", "shuffle", "claim", "write", "load"], ["rename"], ["disk"]),
    *cases(["parquet", "shuffle"], ["upload"], ["s3"]),
    *cases(["raw+gzip", "write"], ["copy"], ["s3"]),
]


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    sim.forget_all()
    yield
    sim.forget_all()


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case).replace(" × ", "-"))
def test_no_object_of_quire_s_is_taken_for_data(case: Case) -> None:
    """A job that dies in the middle, and the next one, which ends: at both moments, and (see `Observer`) after each change."""
    case.fill()
    changes = [at for at, op in enumerate(case.changed(), 1) if op in ("create", "upload", "put_if_absent")]
    with case.world() as world:
        dead = sim.Actor(faults={changes[len(changes) // 2]: "after"})
        assert isinstance(sim.run(world, dead, case.work(world)), sim.Crash)
        assert [name for name in world.there() if name.startswith("_quire/jobs/")], "it died in the middle"
        assert not taken_for_data(world.there())
        case.must(world, "next", case.work(world))
        log = case.check(world)
        there = world.there()
        assert not taken_for_data(there)
        committed = {file["name"]: file for task in log.tasks(only_published=True) for file in task["data_files"]}
        assert {name for name in there if DATA.search(name)} == {*committed}, "what anybody finds by its suffix is what is committed"
        if world.disk is not None and case.pipeline.name in ("parquet", "shuffle", "claim"):
            found = [str(path) for path in Path(world.dest.removeprefix("file://")).glob("**/*.parquet")]
            rows = sum(file["records"] for file in committed.values())
            assert pyarrow.dataset.dataset(found, format="parquet").count_rows() == rows > 0


def test_no_suffix_of_quire_s_own_is_that_of_a_data_format() -> None:
    for laid_out in FORMATS:
        for compression in COMPRESSIONS:
            final = names.data_file("", f"0-{'0' * 16}", 0, "0" * 12, 0, extension(laid_out, compression))
            assert DATA.search(final), "the witness knows them all"
            assert not DATA.search(names.staged(f"0-{'0' * 16}", 0, "0" * 12, final))
    assert not [suffix for suffix in (names.ENTRY, names.ROWS, names.STAGED) if DATA.search(suffix)]
