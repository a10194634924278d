"""Lives of processes that load a topic, by one of three designs: each until the topic's end, or until it dies as by kill -9.

    live("beside", cluster, "orders", dest, "between data and offsets")    # "SIGKILL"
    live("beside", cluster, "orders", dest)                                # it goes on; "ended"
    sleeper = Asleep(cluster, "orders", dest, "before the commit")         # stopped there, as when a lid is shut
    sleeper.wake()                                                         # it goes on as if nothing had happened; what it has loaded

Each is a Python of its own, and dies in the middle of its program, with no time to tidy.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import quire
from mock_kafka import PATIENCE, Kafka
from mock_kafka.designs import acknowledged, beside

__all__ = ["PLACES", "Asleep", "live"]

# design → where it can die: the data is written, and what is remembered of it is not
PLACES = {
    "acknowledged": ("in a batch", "before the acknowledgement"),
    "beside": ("between two files", "between data and offsets"),
    "quire": ("before the commit", "before publishing"),
}
HOME = Path(__file__).parents[1]


def live(design: str, cluster: Kafka, topic: str, dest: Path, dies: str = "") -> str:
    """One life, here in a process of its own; returns how it came to its end, "ended" or the signal's name."""
    process = _born(design, cluster, topic, dest, dies, "SIGKILL")
    _, problem = process.communicate()
    if process.returncode > 0:
        raise RuntimeError(f"{design} has failed: {problem[-2000:]}")
    return signal.Signals(-process.returncode).name if process.returncode else "ended"


class Asleep:
    """A life of quire's design that stops at a place, until it is woken."""

    def __init__(self, cluster: Kafka, topic: str, dest: Path, place: str) -> None:
        self._process = _born("quire", cluster, topic, dest, place, "SIGSTOP")
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise RuntimeError(f"it did not stop {place}: {self._process.communicate()[1][-2000:]}")

    def wake(self) -> str:
        """Let it go on to its end; returns what it says then."""
        self._process.send_signal(signal.SIGCONT)
        told, problem = self._process.communicate(timeout=PATIENCE)
        if self._process.returncode:
            raise RuntimeError(f"it has failed: {problem[-2000:]}")
        return told.strip()


def _born(design: str, cluster: Kafka, topic: str, dest: Path, place: str, by: str) -> subprocess.Popen[str]:
    if place and place not in PLACES[design]:
        raise ValueError(f"{design} does not die {place!r}, but {' or '.join(PLACES[design])}")
    command = [sys.executable, "-m", "mock_kafka.lives", design, cluster.address, topic, str(dest), place, by]
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH", ""))))}
    return subprocess.Popen(command, env=around, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)


def _by_quire(address: str, topic: str, dest: Path, place: str, how: Callable[[], object]) -> None:
    """The third design: it dies where its progress is told, when the data is written, or when the log has the commit."""
    dies = [place]

    def told(step: quire.Step) -> None:
        at = "before the commit" if step.phase == "gathering" and step.tasks else f"before {step.phase}"
        if at in dies:
            dies.clear()  # who only falls asleep does so once
            how()

    report = quire.load(f"kafka://{address}/{topic}", dest, format="lines", spark=quire.LocalRunner(), progress=told)
    print(f"{report.records:,} records loaded, version {report.version}")


def main(design: str, address: str, topic: str, dest: Path, place: str, by: str) -> None:
    """Be such a process."""

    def how() -> None:
        os.kill(os.getpid(), signal.Signals[by])

    if design == "acknowledged":
        acknowledged(Kafka(address), topic, dest, dies=place, after=4, how=how)  # in its second file, of which a batch was acknowledged
    elif design == "beside":
        beside(Kafka(address), topic, dest, dies=place, batch=10_000, how=how)
    else:
        _by_quire(address, topic, dest, place, how)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), *sys.argv[5:7])
