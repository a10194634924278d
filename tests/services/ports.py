"""Loopback ports for services, which nothing else takes between the choice and the service's own bind.

A port of the system's ephemeral range may become the local end of any connection at any moment, so these lie below that range; and
a lock, held as long as this process lives, keeps each from the other processes of the tests.
"""

from __future__ import annotations

import fcntl
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

__all__ = ["free_port", "free_ports"]

FIRST, LAST = 10_240, 22_000  # 10,000 above them is below the ephemeral range, too
_LOCKS = Path(tempfile.gettempdir()) / "quire-ports"
_held: list[IO[bytes]] = []
_draw = random.SystemRandom()


def free_ports(n: int, beside: int = 0) -> list[int]:
    """Loopback ports on which nobody listens, nor on those that lie so far above."""
    found = list[int]()
    for port in _draw.sample(range(FIRST, LAST), LAST - FIRST):
        if len(found) == n:
            break
        if _bindable(port) and _bindable(port + beside) and _taken(port):
            found.append(port)
    return found


def free_port() -> int:
    """A loopback port on which nobody listens."""
    return free_ports(1)[0]


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _taken(port: int) -> bool:
    """Whether this process has it now: whoever else has its lock will listen there."""
    _LOCKS.mkdir(exist_ok=True)
    lock = (_LOCKS / str(port)).open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return False
    _held.append(lock)
    return True
