"""A server on loopback that answers as a test tells it, for what emulators never say (busy, clock wrong, firewall): of everything, or
of some requests on their way to a service."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit


class Asked(NamedTuple):
    """A request, and how many came before it."""

    method: str
    target: str
    headers: dict[str, str]
    number: int
    body: bytes = b""


Says = tuple[int, dict[str, str], bytes]


@contextmanager
def scripted(answer: Callable[[Asked], Says]) -> Iterator[tuple[str, list[Asked]]]:
    """Its address, and the requests that came so far. `answer` gives status, headers and body."""
    came, lock = list[Asked](), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                asked = Asked(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, len(came), body)
                came.append(asked)
            status, headers, body = answer(asked)
            if status == 0:  # the connection is lost
                self.close_connection = True
                return
            self.send_response_only(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _answer  # noqa: N815 (the names that http.server looks for)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 512

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", came
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def between(endpoint: str, answer: Callable[[Asked], Says | None]) -> Iterator[tuple[str, list[Asked]]]:
    """The same before a service at `endpoint`: where `answer` gives None, the service answers."""
    place = urlsplit(endpoint)

    def says(asked: Asked) -> Says:
        if (told := answer(asked)) is not None:
            return told
        connection = http.client.HTTPConnection(place.netloc, timeout=60)
        try:
            connection.putrequest(asked.method, asked.target, skip_host=True, skip_accept_encoding=True)
            for name, value in asked.headers.items():  # with the host that was asked, which a signature covers
                if name not in ("connection", "expect"):
                    connection.putheader(name, value)
            connection.endheaders(asked.body)
            found = connection.getresponse()
            headers = {name.title(): value for name, value in found.getheaders()}
            body = found.read()
        finally:
            connection.close()
        for name in ("Transfer-Encoding", "Connection", "Keep-Alive") + (("Content-Length",) if asked.method != "HEAD" else ()):
            headers.pop(name, None)
        return found.status, headers, body

    with scripted(says) as (address, came):
        yield address + place.path, came


def refusal(code: str, message: str = "", detail: str = "") -> bytes:
    """As Azure Blob words it."""
    more = f"<AuthenticationErrorDetail>{detail}</AuthenticationErrorDetail>" if detail else ""
    return f'\ufeff<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>'.encode()
