"""The recipes of docs/kafka.md, as they stand there."""

from __future__ import annotations

import http.server
import io
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

import quire
from loading import load, rows, topic
from services.kafka import Mock, mock

PAGE = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text()
SCHEMA = {"type": "record", "name": "Event", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


def recipe(name: str, **settings: Any) -> Any:
    """The function of this name that a block of the page defines."""
    (block,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f"def {name}(" in block)
    made: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(block, "recipe.py", "exec"), made)
    made.update(settings)
    return made[name]


def avro(id: int, name: str | None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), {"id": id, "name": name})
    return out.getvalue()


def check(kafka: Mock, values: list[bytes | None], function: Any, dest: Path) -> None:
    """Two records are loaded, and the third is quarantined."""
    name = topic(kafka, 1, values)
    report = load(kafka, name, dest, function, function_version="1")
    assert (report.records, report.quarantined_count) == (2, 1)
    assert [(r["id"], r["name"]) for r in rows(dest).to_pylist()] == [(1, "one"), (2, None)]
    assert quire.Ledger(dest).inspect.quarantined_records()["offset"].tolist() == [2]


def test_json(kafka: Mock, tmp_path: Path) -> None:
    check(kafka, [b'{"id": 1, "name": "one"}', b'{"id": 2}', b"{broken"], recipe("of_json"), tmp_path / "out")


def test_avro_of_one_schema(kafka: Mock, tmp_path: Path) -> None:
    check(kafka, [avro(1, "one"), avro(2, None), None], recipe("of_avro"), tmp_path / "out")


def test_avro_with_a_registry(kafka: Mock, tmp_path: Path) -> None:
    class Registry(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/schemas/ids/7"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"schema": json.dumps(SCHEMA)}).encode())

        def log_message(self, *_: Any) -> None:
            """Silent."""

    with http.server.HTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        of_registry = recipe("of_registry", REGISTRY=f"http://127.0.0.1:{server.server_port}")
        framed = [b"\0\0\0\0\7" + avro(1, "one"), b"\0\0\0\0\7" + avro(2, None), avro(3, "no frame")]
        check(kafka, framed, of_registry, tmp_path / "out")
        server.shutdown()
