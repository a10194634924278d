"""A JupyterLab of the tests' own, and what a person does in it: open a notebook, run it, look."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOKEN = "quire"
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]  # of a browser in a container
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
HOW = (
    "the browser tests need Chromium, and there is none here. On Debian and Ubuntu: apt-get install chromium; elsewhere install "
    "Chromium or Chrome and set CHROMIUM to its path."
)


def chromium() -> str:
    """The browser's path."""
    places = [os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome", "/usr/bin/chromium"]
    for place in places:
        if place and (found := shutil.which(place)):
            return found
    raise RuntimeError(HOW)


@contextmanager
def server(root: Path, at: Path) -> Iterator[str]:
    """JupyterLab with its files below `root` and its own state below `at`; yields its address."""
    for name, settings in SETTINGS.items():
        extension, _, plugin = name.partition(":")
        path = at / "settings" / extension / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    own = {f"JUPYTER_{kind}_DIR": str(at / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"JUPYTERLAB_SETTINGS_DIR": str(at / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(at / "workspaces")}
    own |= {"JUPYTER_TOKEN": TOKEN, "IPYTHONDIR": str(at / "ipython"), "HOME": str(at), "QUIRE_DRIVER_MEMORY": "1g"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--LabApp.extension_manager=readonly", f"--ServerApp.root_dir={root}",
    ]  # fmt: skip
    with (at / "server.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **own}, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(address, running, at / "server.log")
        yield address
    finally:
        _shut_down(address)
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def _wait_for(address: str, running: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end and running.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text('utf-8', 'replace')[-2000:]}")


def _shut_down(address: str) -> None:
    """End the kernels first, and Spark with them: a server that is ended at once leaves them behind."""
    ask = urllib.request.Request(f"{address}/api/kernels?token={TOKEN}")
    with urllib.request.urlopen(ask, timeout=20) as answer:
        kernels = json.load(answer)
    for kernel in kernels:
        end = urllib.request.Request(f"{address}/api/kernels/{kernel['id']}?token={TOKEN}", method="DELETE")
        urllib.request.urlopen(end, timeout=30).close()


class Notebook:
    """A notebook that is open in JupyterLab."""

    def __init__(self, page: Any, address: str, path: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(f"{address}/lab/tree/{path}?reset&token={TOKEN}")
        page.locator(".jp-Notebook:visible").wait_for(timeout=60_000)
        # The circle in the toolbar says idle before the kernel has answered, and what is run then never comes back.
        page.locator("#jp-main-statusbar").get_by_text(re.compile(r"\| Idle")).wait_for(timeout=90_000)

    def theme(self, name: str) -> None:
        """`JupyterLab Light` or `JupyterLab Dark`."""
        self.page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", name)
        light = str(name == "JupyterLab Light").lower()
        self.page.locator(f"body[data-jp-theme-light={light}]").wait_for(state="attached")
        self.page.wait_for_timeout(500)

    def run_all(self, timeout: int = 240) -> None:
        """Run every cell, and wait until the last one is done."""
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            cells = [cell for cell in self.cells() if cell["cell_type"] == "code" and "".join(cell["source"]).strip()]
            if all(cell["execution_count"] for cell in cells) or self.errors():
                self.page.wait_for_timeout(300)
                return
            self.page.wait_for_timeout(200)
        raise TimeoutError(f"the cells are not done after {timeout} s")

    def cells(self) -> list[dict[str, Any]]:
        """The notebook as it would be saved."""
        found: list[dict[str, Any]] = self.page.evaluate("() => window.jupyterapp.shell.currentWidget.model.toJSON().cells")
        return found

    def outputs(self) -> list[dict[str, Any]]:
        """All outputs, in their order."""
        return [output for cell in self.cells() for output in cell.get("outputs", [])]

    def errors(self) -> list[str]:
        """What cells raised."""
        return [f"{o['ename']}: {o['evalue']}" for o in self.outputs() if o["output_type"] == "error"]

    def close(self) -> None:
        """Without saving, and with its kernel."""
        self.page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.shutdown() }")
