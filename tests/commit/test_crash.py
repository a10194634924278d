"""A process that dies at any operation of a run leaves nothing that a reader sees, and the next run makes it good.

This is the matrix of `make matrix` (the tables are in `matrix.py`) with fewer points: changes instead of all operations, since
between two of them a dead process and one that stopped before its next change are the same, and samples where they say so.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import sim
from matrix import COMMITTERS, KINDS, PIPELINES, cases
from quire.commit import archive
from sim import ways
from sim.ways import Case, Scenario


def slow(*found: Case) -> list[Any]:
    """For the lane of what takes long."""
    return [pytest.param(case, marks=pytest.mark.services) for case in found]


def rare(*found: Case) -> list[Any]:
    """For the nightly lane: a shorter job of the same committer is disturbed at the same places each time."""
    return [pytest.param(case, marks=pytest.mark.nightly) for case in found]


MAIN = [
    *cases(["lines"], ["rename"], ["hdfs"]),
    *cases(["few"], ["rename_v2"], ["objects"]),
    *cases(["few"], ["upload"], ["s3"]),
    *rare(*cases(["xml"], ["rename_v2"], ["objects"])),
    *rare(*cases(["lines"], ["upload"], ["s3"])),
    *cases(["few"], ["copy"], ["s3"]),
    *cases(["shuffle", "claim"], ["rename"], ["hdfs"]),
    *slow(*cases(["raw+gzip", "parquet", "xml", "directories", "by path"], ["rename"], ["hdfs"])),
    *slow(*cases(["streamed", "archives"], ["rename"], ["hdfs"])),
    *slow(*cases(["lines"], ["rename_v2"], ["objects"])),
    *slow(*cases(["parquet", "shuffle"], ["upload"], ["s3"])),
    *slow(*cases(["raw+gzip"], ["upload"], ["azure"])),
    *slow(*cases(["claim"], ["copy"], ["azure"])),
]
PROCESS = [
    *cases(["process"], ["rename"], ["hdfs"]),
    *slow(*cases(["routes"], ["rename"], ["hdfs"])),
    *slow(*cases(["process"], ["upload"], ["s3"])),
]
TAILS = [
    *cases(["tails"], ["rename"], ["hdfs"]),
    *slow(*cases(["tails"], ["upload"], ["s3"]), *cases(["streamed tails"], ["rename"], ["hdfs"])),
]
BOUNDED = [
    *cases(["bounded", "retrying"], ["rename"], ["hdfs"]),
    *slow(*cases(["bounded", "retrying"], ["upload"], ["s3"])),
]
SMALL = [*cases(["few"], ["rename", "rename_v2"], ["hdfs"]), *cases(["few"], ["upload"], ["s3"])]
UPLOADS = cases(["few"], ["upload"], ["s3", "azure"])
DISK = cases(["few"], ["rename", "rename_v2"], ["disk"])
DISK_TOO = slow(*cases(["streamed", "streamed tails", "archives"], ["rename"], ["disk"]))
TABLES = [
    *cases(["few"], ["rename"], [sim.TABLES["disk"], sim.TABLES["nfs"]]),
    *cases(["few"], ["upload"], [sim.TABLES["s3"]]),
    *slow(*cases(["lines"], ["rename"], [sim.TABLES["hdfs"]])),
    *slow(*cases(["parquet"], ["upload"], [sim.TABLES["azure"]])),
]


def plain(case: Case) -> str:
    return str(case).replace(" × ", "-")


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(archive, "BLOCK", 4)  # of the log's entries, so that short ones are archived, too
    sim.forget_all()
    yield
    sim.forget_all()


def sample(scenarios: Iterator[Scenario], n: int, seed: int) -> list[Scenario]:
    found = list(scenarios)
    return random.Random(seed).sample(found, min(n, len(found)))


@pytest.mark.nth(6)
@pytest.mark.parametrize("case", MAIN, ids=plain)
def test_crash_then_run(case: Case) -> None:
    """Dead at every change; then another run, or everything open is given up and then run."""
    for scenario in ways.crashes(case.fill(), reads=False):
        scenario()
    assert case.by.leaks == bool(case.leaked), "only rename_v2 shows what is not committed, and it does"


@pytest.mark.parametrize("case", PROCESS, ids=plain)
def test_crash_of_a_function_s_job(case: Case) -> None:
    """Ranges of lines, rejected records, their retry, a merge and an expiry: a sample of all changes."""
    for scenario in [*sample(ways.crashes(case.fill(), reads=False), 25, seed=7), *sample(ways.answers(case), 15, seed=8)]:
        scenario()


@pytest.mark.parametrize("case", cases(["reprocess"], ["rename"], ["hdfs"]), ids=plain)
def test_crash_while_a_new_version_is_no_good(case: Case) -> None:
    """Dead at a change: whoever goes on finds that nothing of a new version can be taken, and the old rows stay."""
    for scenario in [*sample(ways.crashes(case.fill(), reads=False), 4, seed=9), *sample(ways.answers(case), 2, seed=10)]:
        scenario()


@pytest.mark.parametrize("case", BOUNDED, ids=plain)
def test_crash_of_a_call_of_many_commits(case: Case) -> None:
    """Dead at a change, between two commits of one listing, or before a retry: the next call ends what is open, and lists once."""
    for scenario in [
        *sample(ways.crashes(case.fill(), reads=False), 8, seed=11),
        *sample(ways.answers(case), 4, seed=12),
        *sample(ways.expiries(case), 2, seed=13),
    ]:
        scenario()


@pytest.mark.parametrize("case", TAILS, ids=plain)
def test_crash_while_files_grow(case: Case) -> None:
    """Dead at a change, in whatever job; the next one finds files that have grown meanwhile: each line once, and none before its end."""
    for scenario in [*sample(ways.crashes(case.fill(), reads=False), 10, seed=9), *sample(ways.answers(case), 6, seed=10)]:
        scenario()


@pytest.mark.parametrize("case", cases(["purge"], ["rename"], ["hdfs"]), ids=plain)
def test_crash_while_sources_are_deleted(case: Case) -> None:
    """Dead at a change, of the ledger or of the source: what was deleted is kept for ever, and new files of old names come beside it."""
    for scenario in [*sample(ways.crashes(case.fill(), reads=False), 6, seed=9), *sample(ways.answers(case), 3, seed=10)]:
        scenario()


@pytest.mark.parametrize("case", cases(["checkpoint"], ["rename"], ["hdfs"]), ids=plain)
def test_crash_while_a_checkpoint_is_written_or_read(case: Case) -> None:
    """Dead at a change: the next one reads the same, with a checkpoint that counts, or with one that was cut off."""
    for scenario in sample(ways.crashes(case.fill(), reads=False), 30, seed=7):
        scenario()


@pytest.mark.parametrize("case", [*cases(["maintain"], ["rename"], ["hdfs"]), *slow(*cases(["maintain"], ["upload"], ["s3"]))], ids=plain)
def test_crash_in_upkeep(case: Case) -> None:
    """Dead at a change of a compaction, a checkpoint, an expiry or an archive, or a wrong answer there: a sample of all."""
    for scenario in [*sample(ways.crashes(case.fill(), reads=False), 30, seed=7), *sample(ways.answers(case), 15, seed=8)]:
        scenario()


@pytest.mark.nth(4)
@pytest.mark.parametrize("case", SMALL, ids=plain)
def test_crash_at_reads_too(case: Case) -> None:
    """Every operation of a run counts, reads and listings as well."""
    for scenario in sample(ways.crashes(case.fill()), 60, seed=2):
        scenario()


@pytest.mark.nth(4)
@pytest.mark.parametrize("case", SMALL, ids=plain)
def test_crash_in_recovery_too(case: Case) -> None:
    """Dead at change k, the next one dead at its change j, a third one ends it: a sample of the pairs."""
    for scenario in ways.some_pairs(case.fill(), 60, seed=11):
        scenario()


@pytest.mark.nth(6)
@pytest.mark.parametrize(
    "case",
    [
        *cases(["few"], ["rename"], ["hdfs"]),
        *rare(*cases(["lines", "shuffle"], ["rename"], ["hdfs"])),
        *cases(["few"], ["rename_v2"], ["objects"]),
        *UPLOADS,
        *cases(["claim"], ["copy"], ["s3"]),
    ],
    ids=plain,
)
def test_wrong_answers(case: Case) -> None:
    """One write, at each place, is answered by an error, though it happened, did not, or happens later."""
    for scenario in ways.answers(case.fill()):
        scenario()


@pytest.mark.nth(3)
@pytest.mark.parametrize("case", [*UPLOADS, *cases(["shuffle"], ["upload"], ["s3"])], ids=plain)
def test_expired_uploads(case: Case) -> None:
    """The process dies, and the store drops what it had uploaded before anybody goes on: what was committed is lost, and done again."""
    for scenario in ways.expiries(case.fill()):
        scenario()


@pytest.mark.nth(4)
@pytest.mark.parametrize("case", [SMALL[0], SMALL[2], DISK[0]], ids=plain)
def test_full(case: Case) -> None:
    """No space, and still none, and then there is some."""
    for scenario in ways.full(case.fill(), 8):
        scenario()


@pytest.mark.nth(2)
@pytest.mark.parametrize("case", [*DISK, *DISK_TOO], ids=plain)
def test_crash_on_disk(case: Case) -> None:
    """The same by the system calls of the local store: kills, errors and power cuts, which take what was not synced."""
    case.fill()
    few = 10 if case.by.leaks else 25
    for scenario in [
        *ways.some_pairs(case, 10, seed=3),
        *sample(ways.crashes(case, reads=False), 15, seed=4),
        *sample(ways.answers(case), 10, seed=5),
        *sample(ways.power(case), few, seed=6),
        *ways.lasting(case, ("rename", "link")),
    ]:
        scenario()


@pytest.mark.nth(3)
@pytest.mark.parametrize("case", TABLES, ids=plain)
def test_crash_in_the_store_of_a_table(case: Case) -> None:
    """All goes on as elsewhere, and at no moment anything of quire's lies where readers of tables look for data."""
    few = 6 if case.kind.disk else 10
    for scenario in [
        *sample(ways.crashes(case.fill(), reads=False), few, seed=12),
        *sample(ways.answers(case), few // 2, seed=13),
        *sample(ways.power(case) if case.kind.disk else iter(()), few, seed=14),
    ]:
        scenario()


INTO_TABLES = [
    *cases(["table upsert"], ["rename"], ["disk", "hdfs"]),
    *cases(["table delete"], ["upload"], ["s3"]),
    *cases(["table logs"], ["rename"], ["hdfs"]),
    *cases(["table compaction"], ["upload"], ["s3"]),
    *slow(*cases(["table compaction"], ["rename"], ["nfs"]), *cases(["table clean", "table archive"], ["rename"], ["disk"])),
    *cases(["table clean"], ["rename"], ["hdfs"]),
    *cases(["table replace"], ["upload"], ["s3"]),
    *cases(["table replace"], ["rename"], ["nfs"]),
    *cases(["table insert"], ["upload"], ["azure"]),
    *cases(["table load"], ["rename"], ["objects"]),
    *cases(["table process"], ["rename"], ["nfs"]),
    *cases(["table cluster"], ["rename"], ["hdfs"]),
    *slow(*cases(["table restore"], ["rename"], ["disk"]), *cases(["table rollback"], ["upload"], ["s3"])),
    *slow(*cases(["table cluster"], ["rename"], ["disk"]), *cases(["table cluster"], ["upload"], ["s3"])),
    *slow(*cases(["table load", "table process", "table cdc"], ["rename"], ["disk"])),
    *slow(*cases(["table upsert", "table load"], ["upload"], ["s3", "azure"])),
    *slow(*cases(["table cdc"], ["upload"], ["s3"])),
    *slow(*cases(["table of version 9", "table cdc of version 9"], ["rename"], ["hdfs"])),
    *slow(*cases(["table archive of version 9", "table restore of version 9"], ["upload"], ["s3"])),
]


@pytest.mark.nth(24)
@pytest.mark.parametrize("case", INTO_TABLES, ids=plain)
def test_crash_of_a_call_into_a_table(case: Case) -> None:
    """Readers of Hudi see all of a commit or none of it at each moment, and each call counts once."""
    for scenario in [
        *sample(ways.crashes(case.fill(), reads=False), 3, seed=15),
        *sample(ways.answers(case), 2, seed=16),
        *sample(ways.expiries(case), 2, seed=17),
        *ways.some_pairs(case, 1, seed=18),
        *sample(ways.power(case), 2, seed=19),
    ]:
        scenario()


def test_every_committer_and_kind_is_in_the_matrix() -> None:
    """A new one is tried by `make matrix` without further ado."""
    found = {(case.by.name, case.kind.name.removeprefix("table on ")) for case in cases()}
    assert found == {(by.name, kind.name) for by in COMMITTERS.values() for kind in KINDS.values() if by.needs in kind.offers}
    assert {case.pipeline.name for case in cases()} == set(PIPELINES)
