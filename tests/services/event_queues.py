"""Real queues for the tests of events: Azurite's, and the emulator of Pub/Sub, with a small stand-in that holds what it was promised."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from azurite import ACCOUNT, command, installed

from services.ports import free_port
from services.server import Server, served

EMULATOR = Path("/usr/lib/google-cloud-sdk/platform/pubsub-emulator/lib")


@contextmanager
def azurite_queues() -> Iterator[str]:
    """Azurite's queues, with nothing in them; gives the endpoint of its one account."""
    port = free_port()
    program = installed() / "node_modules/azurite/dist/src/queue/main.js"

    def made(data: Path) -> Server:
        node = command(data, port)[0]
        line = [node, str(program), "--location", str(data), "--queueHost", "127.0.0.1", "--queuePort", str(port), "--silent"]
        line += ["--skipApiVersionCheck", "--disableTelemetry"]
        return Server("Azurite's queues", line, f"http://127.0.0.1:{port}/{ACCOUNT}", data, lambda: _answers(port), 60.0)

    with served("azurite-queues", made) as running:
        yield running.endpoint


@contextmanager
def pubsub_emulator() -> Iterator[str]:
    """The emulator of Pub/Sub, a program in Java that Google's packages for Debian bring; gives its address."""
    jars = sorted(EMULATOR.glob("cloud-pubsub-emulator-*-all.jar"))
    java = shutil.which("java")
    if not jars or java is None:
        raise RuntimeError(
            "there is no emulator of Pub/Sub: apt-get install google-cloud-cli-pubsub-emulator, from Google's packages, and Java"
        )
    port = free_port()

    def made(data: Path) -> Server:
        line = [java, "-Xmx256m", "-jar", str(jars[-1]), "--host=127.0.0.1", f"--port={port}"]
        return Server("Pub/Sub", line, f"http://127.0.0.1:{port}", data, lambda: _answers(port), 60.0)

    with served("pubsub", made) as running:
        yield running.endpoint


def _answers(port: int) -> str:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except urllib.error.HTTPError:
        return ""
    except OSError as e:
        return str(e)
    return ""


def ask(url: str, body: object, method: str = "POST") -> Any:
    """A request with JSON."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


class StandIn:
    """Topics and subscriptions, as REST has them."""

    def __init__(self) -> None:
        self.topics, self.held = dict[str, list[str]](), dict[str, dict[str, Any]]()  # topic → subscriptions; of each its messages

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name, _, verb = path.removeprefix("/v1/").partition(":")
        if method == "PUT":
            self.topics.setdefault(name, []) if "/topics/" in name else self.topics[body["topic"]].append(name)
            self.held[name] = {}
            return 200, {}
        if verb == "publish":
            for subscription in self.topics[name]:
                for each in body["messages"]:
                    n = f"{len(self.held[subscription]):05}"
                    self.held[subscription][n] = {"at": 0.0, "tries": 0, "message": {"messageId": n, **each}}
            return 200, {}
        if name not in self.held:
            return 404, {"error": {"code": 404, "status": "NOT_FOUND"}}
        found = getattr(self, verb)(self.held[name], body)
        return 200, found or {}

    def pull(self, held: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        ready = [n for n, one in held.items() if one["at"] <= time.monotonic()][: body["maxMessages"]]
        for n in ready:
            held[n] |= {"at": time.monotonic() + 10, "tries": held[n]["tries"] + 1}
        found = [{"ackId": f"{n}-{held[n]['tries']}", "message": held[n]["message"]} for n in ready]
        return {"receivedMessages": found} if found else {}

    def modifyAckDeadline(self, held: dict[str, Any], body: dict[str, Any]) -> None:  # noqa: N802  as REST calls it
        assert 0 <= body["ackDeadlineSeconds"] <= 600
        for n in (given.partition("-")[0] for given in body["ackIds"]):
            held[n]["at"] = time.monotonic() + body["ackDeadlineSeconds"]

    def acknowledge(self, held: dict[str, Any], body: dict[str, Any]) -> None:
        for given in body["ackIds"]:
            held.pop(given.partition("-")[0], None)


@contextmanager
def pubsub_stand_in() -> Iterator[str]:
    """As much of Pub/Sub as a subscription asks for, and no more; gives its address."""
    service, lock = StandIn(), threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                status, answer = service.answer(self.command, self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_PUT = do_POST  # noqa: N815  as the class calls it

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
