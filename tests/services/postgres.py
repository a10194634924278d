"""A PostgreSQL of its own, in a directory that goes with it, reached by a socket there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import run
from typing import Any

import psycopg

from services.server import Server


def _program(name: str) -> str:
    """A server's program, which distributions keep out of the way."""
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), *map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    found = next((place / name for place in places if (place / name).exists()), None)
    if found is None:
        raise RuntimeError(f"the tests of databases need PostgreSQL's {name}: install it (apt-get install postgresql)")
    return str(found)


def _as_user() -> list[str]:
    """It refuses to be root's."""
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


@contextmanager
def postgres() -> Iterator[str]:
    """How to connect to it."""
    home = Path(tempfile.mkdtemp(prefix="quire-pg-", dir="/tmp"))
    user, url = "postgres", f"host={home} user=postgres dbname=postgres"

    def ready() -> str:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError as e:
            return str(e)
        return ""

    try:
        if os.geteuid() == 0:
            shutil.chown(home, user)
        run(
            [*_as_user(), _program("initdb"), "-D", home / "data", "-A", "trust", "-U", user, "-N"],
            check=True,
            capture_output=True,
            cwd=home,
        )
        (home / "log").touch()
        server = Server(
            "PostgreSQL",
            [*_as_user(), _program("postgres"), "-D", str(home / "data"), "-k", str(home), "-h", "", "-F"],
            url,
            home,
            ready,
            60,
        )
        server.start()
        try:
            yield url
        finally:
            _stop(home, server)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _stop(home: Path, server: Any) -> None:
    """Its process by its own word: where another user runs it, ours is the parent alone."""
    run([*_as_user(), _program("pg_ctl"), "-D", home / "data", "-m", "immediate", "stop"], check=False, capture_output=True, cwd=home)
    server.stop()
