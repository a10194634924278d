"""A program that knows nothing of quire and reads `dest/**/*.parquet` takes in data files only, whatever lies below `_quire/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset
import pytest

import sim
from gathering import refused
from matrix import cases
from quire.commit import names
from quire.errors import FormatError
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


@pytest.mark.nth(2)
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


@pytest.mark.parametrize(
    ("folder", "there"),
    [("_iceberg", "__iceberg/"), ("_delta_log/k=1", "__delta_log/k=1/"), ("a/_symlinks", "a/_symlinks/"), ("_delta", "_delta/"), ("", "")],
)  # fmt: skip
def test_no_data_file_lies_where_exports_do(folder: str, there: str) -> None:
    assert names.data_file(folder, f"0-{'0' * 16}", 0, "0" * 12, 0, "txt") == f"{there}part-0-{'0' * 16}-0-{'0' * 12}-0.txt"


GROUP, MINE, OTHER = "aaaaaaaa-0000-0000-0000-000000000000-0", "0000010000ff", "0000010000fe"
TOKEN, AT = "7-1-255", "20261122103000000"


@pytest.mark.parametrize(
    "name",
    [
        f"{GROUP}_{TOKEN}_{AT}.parquet",
        f"city=sf/day=1/{GROUP}_{TOKEN}_{AT}.parquet",
        f"_quire/changes/{AT}/city=sf/{GROUP}_{TOKEN}.rows",
    ],
)
def test_a_base_file_of_a_table_and_what_it_has_changed_are_data_files_of_their_attempt(name: str) -> None:
    names.check_data_file(name, "1-0123456789abcdef", 3, MINE)
    with refused(FormatError, 2, "is not a data file of task 3", "nothing was touched"):
        names.check_data_file(name, "1-0123456789abcdef", 3, OTHER)


@pytest.mark.parametrize(
    "name",
    [
        f".hoodie/{GROUP}_{TOKEN}_{AT}.parquet",
        f"_quire/log/{GROUP}_{TOKEN}_{AT}.parquet",
        f"_quire/changes/{AT}/../log/{GROUP}_{TOKEN}.rows",
        f"_quire/changes/now/{GROUP}_{TOKEN}.rows",
        f"../{GROUP}_{TOKEN}_{AT}.parquet",
        f"/{GROUP}_{TOKEN}_{AT}.parquet",
        f"{GROUP}_{TOKEN}_2026.parquet",
        f".hoodie/{AT}.commit",
    ],
)
def test_no_entry_names_the_timeline_or_an_object_of_quire_s_as_a_table_s_data(name: str) -> None:
    with refused(FormatError, 2, "nothing was touched"):
        names.check_data_file(name, "1-0123456789abcdef", 3, MINE)
