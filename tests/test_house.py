"""What importing quire costs, and what it does not bring along."""

from __future__ import annotations

import subprocess
import sys


def loaded_by(statement: str) -> set[str]:
    command = [sys.executable, "-W", "error", "-c", f"{statement}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_import_quire_draws_nothing() -> None:
    assert not loaded_by("import quire") & {"ipywidgets", "IPython", "jupyterlab", "matplotlib"}


def test_asking_for_a_session_is_what_loads_pyspark() -> None:
    assert "pyspark" not in loaded_by("import quire.spark.session")
