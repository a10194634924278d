"""The service of a Hive metastore, of the Hive that Spark 3.5 brings along, over a database in memory."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

from quire.spark.java import find_java
from services import jvm_hudi
from services.ports import free_port

PATIENCE = 120
_MAIN = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_OPENS = ("java.base/java.net=ALL-UNNAMED", "java.base/java.lang=ALL-UNNAMED")


@contextmanager
def metastore(place: Path) -> Iterator[str]:
    """Its address; it ends with the block."""
    (jars,) = jvm_hudi.HERE.glob("lib/python3*/site-packages/pyspark/jars")
    settings = {
        "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:hive;create=true", "hive.metastore.warehouse.dir": str(place / "warehouse"),
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver", "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false", "hive.async.log.enabled": "false",
    }  # fmt: skip
    lines = [f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()]
    (place / "hive-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
    port, log = free_port(), place / "log"
    options = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *(f"--add-opens={each}" for each in _OPENS)]
    with log.open("wb") as to:
        process = subprocess.Popen(
            [find_java().home / "bin" / "java", *options, "-cp", f"{place}:{jars}/*", _MAIN, "-p", str(port)], cwd=place, stdout=to,
            stderr=to, env={"PATH": os.environ["PATH"], "HOME": str(place), "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    try:
        until = time.monotonic() + PATIENCE
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the metastore has not come up:\n{log.read_text('utf-8', 'replace')[-4000:]}")
            time.sleep(0.2)
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
