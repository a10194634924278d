"""A service in a process of its own, whose data outlive the process: started, ended and put to sleep by its id."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Server", "served"]


class Server:
    """What a test does to a service, it does by these."""

    def __init__(self, name: str, command: Sequence[str], endpoint: str, data: Path, ready: Callable[[], str], patience: float) -> None:
        self.name, self.command, self.endpoint, self.data = name, command, endpoint, data
        self.ready, self.patience = ready, patience  # asks it for something: "", or why it does not answer yet; seconds
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        with (self.data / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.data)

    def wait(self) -> None:
        assert self.process is not None
        end, said = time.monotonic() + self.patience, ""
        while time.monotonic() < end and self.process.poll() is None:
            if not (said := self.ready()):
                return
            time.sleep(0.1)
        told = (self.data / "log").read_text("utf-8", "replace")[-2000:]
        raise RuntimeError(f"{self.name} did not start ({self.process.poll()}): {said}: {told}")

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it; what it does not do within ten seconds it does not do."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def sleep(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def served(name: str, made: Callable[[Path], Server]) -> Iterator[Server]:
    """A service that runs as long as the context lasts, in a directory that goes with it."""
    data = Path(tempfile.mkdtemp(prefix=f"quire-{name}-"))
    try:
        server = made(data)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(data, ignore_errors=True)
