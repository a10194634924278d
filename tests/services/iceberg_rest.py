"""A catalog of Iceberg's behind its REST protocol: the server that Iceberg's own tests start, over a file of SQLite."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quire.spark.java import find_java
from services.ports import free_port
from services.server import Server, served

PATIENCE = 60.0  # seconds until it answers


@contextmanager
def iceberg_rest() -> Iterator[str]:
    """Its address; it ends with the block."""
    found = sorted((Path(sys.prefix) / "readers" / "rest").glob("*.jar"))
    assert len(found) == 1, "Iceberg's server is not there: `make nightly` gets it with Maven"
    port = free_port()
    address = f"http://127.0.0.1:{port}"

    def made(data: Path) -> Server:
        said = {
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog", "CATALOG_URI": f"jdbc:sqlite:file:{data}/catalog.db",
            "CATALOG_WAREHOUSE": f"file://{data}", "CATALOG_REST_PORT": str(port), "CATALOG_JDBC_USER": "user",
            "CATALOG_JDBC_PASSWORD": "password",
        }  # fmt: skip
        java = str(find_java().home / "bin" / "java")
        command = ["env", *(f"{name}={value}" for name, value in said.items()), java, "-Xmx400m", "-jar", str(found[0])]
        return Server("Iceberg's REST server", command, address, data, lambda: _answers(f"{address}/v1/config"), PATIENCE)

    with served("iceberg-rest", made) as running:
        yield running.endpoint


def _answers(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5):  # of this machine
            return ""
    except OSError as e:
        return str(e)
