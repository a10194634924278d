"""Single requests, as commits and claims make them: processor time of each, beside the services' own clients.

    python tests/benchmarks/single.py [--requests 1000]

The server answers at once, whatever is asked, with 500 bytes; it runs in another process. Each way does the same in turns, twice, and the
better round counts.
"""

from __future__ import annotations

import base64
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from common import arguments, machine, table

ANSWER = b'HTTP/1.1 %d OK\r\nETag: "abc"\r\nLast-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\nContent-Range: bytes 0-499/500\r\n'
ANSWER += b"Content-Length: %d\r\n\r\n"
SIZE, WARM = 500, 30


def serve() -> None:
    """Answer until the input ends."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listening.getsockname()[1], flush=True)

    def one(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                if not (more := sock.recv(65536)):
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            if b"100-continue" in head:
                sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            while len(data) < (int(length[1]) if length else 0):
                data += sock.recv(65536)
            data = b""
            reads, changes = head.startswith((b"GET", b"HEAD")), head.startswith(b"PUT")
            body = b"x" * SIZE if head.startswith(b"GET") else b""
            sock.sendall(ANSWER % (201 if changes and b"x-ms" in head else 200, SIZE if reads else 0) + body)

    def accept() -> None:
        while True:
            threading.Thread(target=one, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


def ways(origin: str) -> dict[tuple[str, str], dict[str, Callable[[], Any]]]:
    """What each way does, by service and way."""
    import boto3
    from azure.storage.blob import BlobClient
    from botocore.config import Config

    from quire.storage import bare

    key, data = base64.b64encode(b"k" * 32).decode(), b"x" * SIZE
    s3 = bare("s3://bucket/x", {"endpoint_url": origin, "key": "k", "secret": "s", "client_kwargs": {"region_name": "us-east-1"}})
    config = Config(request_checksum_calculation="when_required", response_checksum_validation="when_required")
    names = {"region_name": "us-east-1", "aws_access_key_id": "k", "aws_secret_access_key": "s"}
    client: Any = boto3.client("s3", endpoint_url=origin, config=config, **names)  # type: ignore[call-overload]
    place = {"Bucket": "bucket", "Key": "x/a"}
    azure = bare("abfs://bucket/x", {"account_name": "acc", "account_host": origin, "account_key": key})
    blob = BlobClient(origin, "bucket", "x/a", credential={"account_name": "acc", "account_key": key})
    return {
        ("S3", "quire"): {"put": lambda: s3.put("a", data), "get": lambda: s3.get("a"), "look up": lambda: s3.stat("a")},
        ("S3", "boto3"): {
            "put": lambda: client.put_object(Body=data, **place),
            "get": lambda: client.get_object(**place)["Body"].read(),  # noqa: PLW0108  # another object each time
            "look up": partial(client.head_object, **place),
        },
        ("Azure", "quire"): {"put": lambda: azure.put("a", data), "get": lambda: azure.get("a"), "look up": lambda: azure.stat("a")},
        ("Azure", "azure-storage-blob"): {
            "put": lambda: blob.upload_blob(data, overwrite=True),
            "get": lambda: blob.download_blob().readall(),
            "look up": blob.get_blob_properties,
        },
    }


def measured(act: Callable[[], Any], n: int) -> float:
    """Microseconds of processor time each takes."""
    for _ in range(WARM):
        act()
    began = time.process_time()
    for _ in range(n):
        act()
    return (time.process_time() - began) / n * 1e6


def main() -> None:
    """Print the table."""
    args = arguments(__doc__ or "", requests={"type": int, "default": 1_000})
    server = subprocess.Popen([sys.executable, __file__, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        origin, found = f"http://127.0.0.1:{int(server.stdout.readline())}", dict[tuple[str, str, str], float]()
        all_ways = ways(origin)
        for _ in range(2):
            for (service, way), acts in all_ways.items():
                for name, act in acts.items():
                    found[service, way, name] = min(measured(act, args.requests), found.get((service, way, name), 1e9))
        rows = [[*at, *(f"{found[*at, name]:,.0f} µs" for name in acts)] for at, acts in all_ways.items()]
        print(machine(), table(["service", "way", *next(iter(all_ways.values()))], rows), sep="\n\n")
    finally:
        server.communicate("")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
