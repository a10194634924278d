"""A store of somebody else: found by its entry point, under the promises of all stores, and a job runs on it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gathering import documents, gather, refused
from quire.errors import UsageError
from quire.storage import Store, bare, normalise
from services.conformance import *  # noqa: F403 (the tests, by whatever names they have)

HERE = Path(__file__).parent
SCRIPT = """
    import sys, quire
    source, dest = sys.argv[1:]
    spark = quire.session(master="local[2]")
    for _ in range(2):
        report = quire.consolidate(source, dest, spark=spark, target_size="200 B", progress=False)
        print(report.files, report.skipped)
    print(quire.read(dest, spark=spark).count())
"""


@pytest.mark.services
def test_a_job_runs_on_it_on_spark(store: Store, tmp_path: Path) -> None:
    """Each process finds the store where it is installed: the driver and the workers."""
    for name, content in documents(30).items():
        store.put(f"in/{name}", content)
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), f"{store.url}/in", f"{store.url}/out"],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.stdout.split("\n")[:3] == ["30 0", "0 30", "60"], done.stderr[-2000:]
    out = bare(f"{store.url}/out")
    lines = b"".join(out.get(e.name) for e in out.walk() if not e.name.startswith("_quire/")).splitlines()
    assert sorted(lines) == sorted(line for content in documents(30).values() for line in content.splitlines())


def test_wrong_urls_of_it_and_of_nobody_are_one_line(tmp_path: Path) -> None:
    with refused(UsageError, 2, "names no cupboard. Write cupboard:///data"):
        normalise("cupboard://x")
    with refused(UsageError, 2, "unknown kind of store 'cupbord'", "Did you mean 'cupboard'?"):
        gather("cupbord:///x.cupboard", tmp_path)


def test_a_store_that_cannot_be_loaded_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[quire.stores]\nbroken = no_such_module_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with refused(UsageError, 2, "the store broken:// of the package broken cannot be loaded", "no_such_module_anywhere"):
        gather("broken://x", tmp_path / "out")
