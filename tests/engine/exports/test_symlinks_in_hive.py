"""Spark SQL's Hive reads a destination of lines by its manifests: each commit as a whole, after a rerun too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gathering import gather, write

SCRIPT = """
import sys, quire
home, *places = sys.argv[1:]
spark = quire.session(
    {"spark.sql.catalogImplementation": "hive", "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:m;create=true",
     "spark.hadoop.datanucleus.schema.autoCreateTables": "true", "spark.hadoop.hive.metastore.schema.verification": "false",
     "spark.driver.extraJavaOptions": f"-Dderby.system.home={home}", "spark.sql.warehouse.dir": f"{home}/warehouse"}, master="local[1]")
for i, place in enumerate(places):
    spark.sql(f"create external table t{i} (line string) stored as inputformat 'org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat' "
              f"outputformat 'org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat' location '{place}'")
for turn in sys.stdin:
    print(*sorted(row.line for i in range(len(places)) for row in spark.table(f"t{i}").collect()), flush=True)
"""


@pytest.mark.nightly  # Hive's metastore in Derby takes its time
def test_a_table_of_manifests_has_the_lines_of_now(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"in/k={name}", {"one": f"{name}1\n".encode(), "two": f"{name}2\n".encode()})
    gather(tmp_path / "in", tmp_path / "flat", transform="lines", exports="symlinks")
    gather(tmp_path / "in", tmp_path / "parts", transform="lines", layout="directories", exports="symlinks")
    places = [f"file://{tmp_path}/flat/_symlinks", *(f"file://{tmp_path}/parts/_symlinks/k={name}" for name in "ab")]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "derby"), *places], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=tmp_path, env=os.environ | {"QUIRE_DRIVER_MEMORY": "1g"},
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    with process:
        try:
            for content, expected in (("a1", ["a1", "a2", "b1", "b2"]), ("new", ["a2", "b1", "b2", "new"])):
                write(tmp_path / "in/k=a", {"one": f"{content}\n".encode()})
                gather(tmp_path / "in", tmp_path / "flat", transform="lines", on_change="reprocess")
                gather(tmp_path / "in", tmp_path / "parts", transform="lines", layout="directories", on_change="reprocess")
                process.stdin.write("look\n")
                process.stdin.flush()
                assert process.stdout.readline().split() == sorted([*expected, *expected])
        finally:
            process.stdin.close()
            process.wait(120)
