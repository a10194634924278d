"""Azurite for the tests: the one that the notebooks start, too."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.ports import free_port
from services.server import Server, served

sys.path.append(str(Path(__file__).parents[2] / "notebooks"))

from azurite import ACCOUNT, KEY, command, connection_string, endpoint, installed

__all__ = ["ACCOUNT", "KEY", "azurite", "azurite_server", "connection_string", "installed"]

PATIENCE = 60.0  # seconds until it answers


@contextmanager
def azurite_server() -> Iterator[Server]:
    """Run Azurite with nothing in it."""
    port = free_port()
    with served(
        "azurite", lambda data: Server("Azurite", command(data, port), endpoint(port), data, lambda: _listens(port), PATIENCE)
    ) as it:
        yield it


@contextmanager
def azurite() -> Iterator[str]:
    """The same; gives the endpoint of its one account."""
    with azurite_server() as running:
        yield running.endpoint


def _listens(port: int) -> str:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError as e:
        return str(e)
    return ""
