"""A schema registry for tests: its answers over real HTTP, on a free port of this machine, and what it was asked."""

from __future__ import annotations

import base64
import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit


class Schemas:
    """The schemas of a registry. `status`: instead of any answer; `body`: likewise, as it is; `slow`: seconds before each answer."""

    def __init__(self) -> None:
        self.url, self.known = "", dict[int, dict[str, Any]]()
        self.subjects = dict[str, list[int]]()
        self.asked = list[str]()
        self.status, self.body, self.slow, self.login = 0, b"", 0.0, ""

    def add(self, text: Any, kind: str = "AVRO", subject: str = "", references: list[tuple[str, str]] | None = None) -> int:
        """Register a schema; its id. `references`: names, with their subjects."""
        number = len(self.known) + 1
        said: dict[str, Any] = {"schema": text if isinstance(text, str) else json.dumps(text)}
        said |= {} if kind == "AVRO" else {"schemaType": kind}
        if references:
            said["references"] = [{"name": name, "subject": of, "version": 1} for name, of in references]
        self.known[number] = said
        if subject:
            self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str) -> tuple[int, bytes]:
        """What it says."""
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self.known:
                return 200, json.dumps(self.known[int(number)]).encode()
            case ["schemas", "ids", _]:
                return _error(404, 40403, "Schema not found")
            case ["subjects", subject, "versions", version] if unquote(subject) in self.subjects:
                numbers = self.subjects[unquote(subject)]
                at = len(numbers) if version == "latest" else int(version)
                said = {"subject": unquote(subject), "version": at, "id": numbers[at - 1], **self.known[numbers[at - 1]]}
                return 200, json.dumps(said).encode()
            case ["subjects", *_]:
                return _error(404, 40401, "Subject not found")
        return _error(404, 404, "HTTP 404 Not Found")


def _error(status: int, code: int, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"error_code": code, "message": message}).encode()


@contextmanager
def schema_registry() -> Iterator[Schemas]:
    """Run one."""
    schemas = Schemas()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            schemas.asked.append(self.path)
            time.sleep(schemas.slow)
            status, body = schemas.answer(urlsplit(self.path).path)
            want = "Basic " + base64.b64encode(schemas.login.encode()).decode()
            if schemas.login and self.headers.get("Authorization") != want:
                status, body = _error(401, 401, "Unauthorized")
            if schemas.status:
                status, body = schemas.status, b"<html>no</html>"
            body = schemas.body or body
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        schemas.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield schemas
        server.shutdown()
        thread.join()


def framed(number: int, document: bytes, *places: int) -> bytes:
    """A record in a registry's frame; `places`: of a message of Protobuf (0 alone is the short form)."""
    head = b"\0" + number.to_bytes(4, "big")
    if not places:
        return head + document
    return head + (b"\0" if places == (0,) else bytes([2 * len(places), *(2 * place for place in places)])) + document
