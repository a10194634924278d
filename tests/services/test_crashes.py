"""The matrix on real services: a process that dies at any of its requests, in the middle of one or before its answer arrives, leaves
nothing that a reader sees, and the next run makes it good.

Of all points (`make matrix` takes each) some are drawn: CRASH_SEED=number repeats a run, CRASHES=number draws more. What was tried
stands in the summary at the end.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import matrix
import sim
from matrix import Line, cases, sample
from quire.errors import NotFoundError
from quire.storage import bare
from quire.storage.within import PLACE, marked
from services.kinds import kind
from services.outside import on_s3
from sim import ways
from sim.ways import Finding

SEED = int(os.environ.get("CRASH_SEED") or random.randrange(1_000_000))
EACH = int(os.environ.get("CRASHES") or 6)  # of each way to disturb a run


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    sim.forget_all()
    yield
    sim.forget_all()


@pytest.mark.nth(3)
@pytest.mark.services
@pytest.mark.parametrize(
    ("service", "committer", "table"),
    [
        ("azurite", "upload", False),
        ("seaweedfs", "upload", False),
        ("seaweedfs", "upload", True),
        ("hdfs-real", "rename", False),
        ("hdfs-real", "rename", True),
        pytest.param("hdfs-real", "rename_v2", False, marks=pytest.mark.nightly),
    ],
)
def test_crashes(service: str, committer: str, table: bool, request: pytest.FixtureRequest, tried: Callable[[Line], None]) -> None:
    """Each byte once, and no upload, block list or temporary file left over, whatever the request that was the last one."""
    fixture = {"azurite": "azurite_endpoint", "hdfs-real": "hdfs_cluster"}.get(service, service)
    found: Any = replace(kind(service, request.getfixturevalue(fixture)), table=table)
    (case,) = cases(["few"], [committer], [found])
    line = sample(case, EACH, SEED)
    tried(line)
    assert not line.findings, f"CRASH_SEED={SEED}: {line.findings[0]}"


@pytest.mark.parametrize("name", ["_quire/log/00000000000000000001.entry", "_quire/jobs/0-1/tasks/0.entry"])
@pytest.mark.parametrize("table", [False, True])
def test_a_write_that_ended_before_its_first_byte_is_none(name: str, table: bool, seaweedfs: str) -> None:
    """SeaweedFS keeps an empty object of it: for readers it is not there, and of those who write it again exactly one wins."""
    with on_s3(seaweedfs)() as place:
        url = marked(place.url) if table else place.url
        store = bare(url, place.options)
        place.put(f"{PLACE}/{name.partition('/')[2]}" if table else name, b"")
        assert store.stat(name) is None
        assert list(store.walk()) == []
        with pytest.raises(NotFoundError):
            store.get(name)
        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(lambda i: bare(url, place.options).put_if_absent(name, b"%d" % i), range(4)))
        assert won.count(True) == 1
        assert store.get(name) == b"%d" % won.index(True)
        assert not store.put_if_absent(name, b"late")


def test_the_matrix_would_tell(seaweedfs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were that object taken for an entry of the log, nobody could go on: a crash at the right moment shows it."""
    monkeypatch.setattr("quire.storage.s3.store.S3Store._cut_off", lambda *_: False)
    (case,) = cases(["few"], ["upload"], [kind("seaweedfs", seaweedfs)])
    scenarios = ways.crashes(case.fill(), reads=False)
    begun = next(scenario for scenario in scenarios if "begun" in scenario.said and "_quire/log/" in scenario.said)
    with pytest.raises(Finding, match="is damaged"):
        begun()


def test_every_service_is_in_the_matrix(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one is tried by `make matrix` without further ado; so is a rule that a committer breaks on it."""
    monkeypatch.setattr(matrix, "line", lambda case, *_: Line(str(case)))
    monkeypatch.setattr(matrix, "running", _not_started)
    assert matrix.main(["--races", "0", "--pipelines", "few"]) == 0
    said = capsys.readouterr().out
    for expected in ("upload × azurite", "upload × seaweedfs", "upload × moto", "rename × hdfs-real", "rename_v2 × hdfs-real"):
        assert f"few × {expected}" in said


class _not_started:  # noqa: N801 (a context)
    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> sim.Kind:
        return kind(self.name, None)

    def __exit__(self, *_: object) -> None:
        pass
