"""Spark with Delta's and Iceberg's own jars reads the exports of destinations and tables, and does not write into them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_writes import create, frame, ours
from test_writes import write as upsert

import quire
from gathering import documents, write

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
HOME = Path(sys.prefix)

pytestmark = pytest.mark.nightly


def read(*tasks: str) -> dict[str, Any]:
    """What Spark 3.5 with these jars finds."""
    jars = sorted((HOME / "readers" / "jars").glob("*.jar"))
    assert len(jars) == 3, "Delta and Iceberg are not there: `make nightly` gets them with Maven"
    python = HOME / "spark35" / "bin" / "python"
    script = Path(__file__).with_name("export_readers") / "reads.py"
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, "-W", "ignore", script, ",".join(map(str, jars)), *tasks], capture_output=True, text=True, env=environment, timeout=280
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_spark_reads_exports_of_files_and_tables_after_each_verb(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(30)), tmp_path / "out"
    quire.consolidate(source, dest, transform="raw", format="parquet", exports=("delta", "iceberg"), on_change="reprocess", **HERE)
    some = sorted(path for path in source.rglob("*") if path.is_file())
    some[0].write_bytes(b"another content")
    quire.consolidate(source, dest, transform="raw", format="parquet", on_change="reprocess", **HERE)
    ledger = quire.Ledger(dest)
    ledger.forget(some[1], **HERE)
    ledger.compact(**HERE)
    trips = create(tmp_path / "trips")
    upsert(trips, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    for name in ("delta", "iceberg"):
        quire.Ledger(tmp_path / "trips").export(name)
    first = upsert(trips, "upsert", frame(("b", "la", 2, 2.5), ("c", "ny", 2, 2.0)))
    upsert(trips, "delete", frame(("a", "sf", 9, 0.0)))
    trips.restore(first.instant, progress=False)
    found = read(f"delta={dest}", f"iceberg={dest}", f"delta={tmp_path / 'trips'}", f"iceberg={tmp_path / 'trips'}", f"refused={dest}")
    paths = sorted(f"file://{path}" for path in some if path != some[1])
    rows = sorted([key, row["city"], str(row["fare"])] for key, row in ours(trips).items())
    for name in ("delta", "iceberg"):
        assert [row[0] for row in found[f"{name}={dest}"]] == paths, name
        assert found[f"{name}={tmp_path / 'trips'}"] == rows, name
    assert "quireExport" in found[f"refused={dest}"]
    assert ledger.verify(spark=HERE["spark"]).ok
