"""The front of fake-gcs-server (see `services.gcs`), as a process: `python gcs_front.py PORT ENDPOINT`."""

from __future__ import annotations

import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

import urllib3

BUCKET, TOKEN = "tests", "a-token-of-tests-alone"
PAGE = 1000


class _Front(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, port: int, behind: str) -> None:
        super().__init__(("127.0.0.1", port), _Request)
        self.behind, self.pool = behind, urllib3.PoolManager(maxsize=64, retries=False)
        self.writing = threading.RLock()

    def ask(self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Any:
        return self.pool.request(
            method, self.behind + target, body=body or None, headers=headers, preload_content=True, decode_content=False
        )

    def generation(self, bucket: str, key: str) -> int:
        answer = self.ask("GET", f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}")
        return int(json.loads(answer.data)["generation"]) if answer.status == 200 else 0


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: _Front

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _refuse(self, status: int, message: str) -> None:
        self._answer(status, json.dumps({"error": {"code": status, "message": message}}).encode(), {"Content-Type": "application/json"})

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        front, where = self.server, urlsplit(self.path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(401, "Invalid Credentials")
            return
        bucket, _, key = where.path.partition("/b/")[2].partition("/")
        key, _, verb = key.removeprefix("o").removeprefix("/").partition("/")
        asked = {name: values[0] for name, values in parse_qs(where.query).items()}
        key = unquote(key) or asked.get("name", "")
        if bucket != BUCKET:
            self._refuse(404, "The specified bucket does not exist.")
        elif self.command == "GET" and not key:
            self._list(bucket, asked)
        else:
            with front.writing:
                if not self._wrong(bucket, key, verb, asked, body):
                    sent = {name: self.headers[name] for name in ("Range", "Content-Type", "Accept-Encoding") if name in self.headers}
                    answer = front.ask(self.command, self.path, body, sent)
                    self._answer(answer.status, answer.data, dict(answer.headers))

    do_GET = do_POST = do_DELETE = _do  # noqa: N815 - as http.server calls them

    def _wrong(self, bucket: str, key: str, verb: str, asked: dict[str, str], body: bytes) -> bool:
        """Whether a condition does not hold, which is answered then."""
        target = unquote(verb.partition("/o/")[2]) if verb.startswith("rewriteTo") else key
        held = self.server.generation
        if "ifSourceGenerationMatch" in asked and held(bucket, key) != int(asked["ifSourceGenerationMatch"]):
            self._refuse(412 if held(bucket, key) else 404, "At least one of the pre-conditions you specified did not hold.")
            return True
        if "ifGenerationMatch" in asked and held(bucket, target) != int(asked["ifGenerationMatch"]):
            gone = not held(bucket, target) and self.command in ("GET", "DELETE")
            self._refuse(404 if gone else 412, "At least one of the pre-conditions you specified did not hold.")
            return True
        if verb == "compose" and not all(held(bucket, source["name"]) for source in json.loads(body)["sourceObjects"]):
            self._refuse(404, "Object not found.")
            return True
        return False

    def _list(self, bucket: str, asked: dict[str, str]) -> None:
        """One page: items and directories together by name, as the service has them."""
        token, most = asked.pop("pageToken", ""), min(int(asked.pop("maxResults", PAGE)), PAGE)
        after = base64.urlsafe_b64decode(token).decode() if token else ""
        items, prefixes, more = dict[str, Any](), set[str](), ""
        while True:
            query = urlencode({**asked, "fields": "", **({"pageToken": more} if more else {})})
            found = json.loads(self.server.ask("GET", f"/storage/v1/b/{bucket}/o?{query}").data)
            items |= {item["name"]: item for item in found.get("items", ())}
            prefixes |= set(found.get("prefixes", ()))
            more = found.get("nextPageToken", "")
            if not more:
                break
        names = sorted((name for name in {*items, *prefixes} if name > after), key=str.encode)
        page = names[:most]
        wanted = ("name", "size", "generation", "updated", "metadata")
        told: dict[str, Any] = {
            "items": [{key: items[name][key] for key in wanted if key in items[name]} for name in page if name in items],
            "prefixes": [name for name in page if name in prefixes],
        }
        if len(names) > most:
            told["nextPageToken"] = base64.urlsafe_b64encode(page[-1].encode()).decode()
        self._answer(200, json.dumps({key: value for key, value in told.items() if value}).encode(), {"Content-Type": "application/json"})


if __name__ == "__main__":
    _Front(int(sys.argv[1]), sys.argv[2]).serve_forever()
