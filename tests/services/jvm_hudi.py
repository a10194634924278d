"""JVM Hudi: a session of Spark 3.5 for each version, a process each. `make test-services` got Spark and the bundles."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from quire.spark.java import find_java

VERSIONS = ("0.15.0", "1.2.0")
HERE = Path(os.environ.get("QUIRE_SPARK35", Path(sys.prefix, "spark35")))
# Without these a writer of 1.x upgrades the table; docs/table.md has them for users to paste.
TURNS = {"hoodie.metadata.enable": "false", "hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}


class Session:
    """One version of JVM Hudi."""

    def __init__(self, version: str, place: Path, settings: Mapping[str, str] | None = None) -> None:
        self.place, self.numbers = place, itertools.count()
        bundle = HERE / "jars" / f"hudi-spark3.5-bundle_2.12-{version}.jar"
        if not bundle.is_file():
            raise RuntimeError("JVM Hudi is not there: `make test-services` gets it with Maven")
        known = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
        known |= {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
        self.log, said = place / "log", json.dumps(dict(settings or {}))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [HERE / "bin" / "python", Path(__file__).with_suffix("") / "session.py", bundle, said], env=known,
                cwd=place, text=True, stderr=log, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip

    def read(self, url: object, options: Mapping[str, str] | None = None) -> pa.Table:
        """The rows of a query, by default of a snapshot."""
        to = self.place / f"{next(self.numbers)}"
        self._ask(do="read", url=str(url), options=dict(options or {}), to=str(to))
        return pq.read_table(to)

    def sql(self, query: str) -> pa.Table:
        """The rows of a query in SQL; statements before it are divided by semicolons."""
        to = self.place / f"{next(self.numbers)}"
        self._ask(do="sql", query=query, to=str(to))
        return pq.read_table(to)

    def write(self, url: object, rows: pa.Table, options: Mapping[str, str]) -> None:
        """Write rows into the table."""
        file = self.place / f"{next(self.numbers)}.parquet"
        pq.write_table(rows, file)
        self._ask(do="write", url=str(url), options=dict(options), rows=str(file))

    def archived(self, url: str) -> dict[str, int]:
        """The instants that have left the timeline, and of each how many bytes are known about it."""
        found: dict[str, int] = self._ask(do="archived", url=url)["archived"]
        return found

    def _ask(self, **question: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        question["number"] = next(self.numbers)
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        while answer and json.loads(answer)["of"] != question["number"]:  # the one who asked was interrupted, and is gone
            answer = self.process.stdout.readline()
        if not answer or "failed" in (said := json.loads(answer)):
            raise RuntimeError(f"{question}: {said['failed'] if answer else 'it ended'}\n{self.log.read_text('utf-8', 'replace')[-4000:]}")
        found: dict[str, Any] = said
        return found

    def end(self) -> None:
        """Wait until it has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@contextmanager
def sessions(settings: Mapping[str, str] | None = None) -> Iterator[dict[str, Session]]:
    """A session of each version; they start at once. `settings` are Spark's, beside those of all."""
    place = Path(tempfile.mkdtemp(prefix="quire-jvm-hudi-"))
    found = dict[str, Session]()
    try:
        for version in VERSIONS:
            (place / version).mkdir()
            found[version] = Session(version, place / version, settings)
        yield found
    finally:
        for session in found.values():
            session.end()
        shutil.rmtree(place, ignore_errors=True)
