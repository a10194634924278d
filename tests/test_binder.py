"""Binder builds what `binder/` says, and has little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def dockerfile(folder: Path) -> subprocess.CompletedProcess[str]:
    """What repo2docker would build, without Docker and without building it."""
    command = [sys.executable, "-W", "ignore", "-m", "repo2docker", "--debug", "--no-build", "--no-run", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_repo2docker_takes_the_folder_and_all_that_is_in_it() -> None:
    made = dockerfile(ROOT)
    assert made.returncode == 0, made.stderr[-2000:]
    for step in ("openjdk-17-jre-headless", '-r "binder/requirements.txt"', "binder/postBuild", "binder/start", "3.12"):
        assert step in made.stdout + made.stderr


def test_the_dry_run_can_fail(tmp_path: Path) -> None:
    (tmp_path / "binder").mkdir()
    (tmp_path / ".binder").mkdir()
    assert dockerfile(tmp_path).returncode


def test_the_build_ends_with_all_that_the_notebooks_need() -> None:
    around = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([ROOT / "binder/postBuild"], cwd=ROOT, capture_output=True, text=True, check=False, env=around)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "azurite-" in done.stdout
    assert "[0, 1, 2, 3]" in done.stdout  # partitions of a topic of Kafka's mock cluster


def test_the_drivers_memory_is_capped_in_binder() -> None:
    shown = subprocess.run([ROOT / "binder/start", "env"], capture_output=True, text=True, check=True, env=dict(os.environ)).stdout
    assert "QUIRE_DRIVER_MEMORY=1g" in shown.splitlines()
