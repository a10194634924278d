"""The archive that executors get: each module with the bytecode that Python has kept of it, which another Python passes over."""

from __future__ import annotations

import compileall
import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import quire
from quire.spark.shipping import _packed

LOADS = "import quire.errors, quire.storage; print(quire.errors.__file__, quire.storage.__file__, quire.errors.scrub('a'), sep='\\n')"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """quire, with bytecode beside each module."""
    where = tmp_path_factory.mktemp("compiled") / "quire"
    shutil.copytree(Path(quire.__file__).parent, where, ignore=shutil.ignore_patterns("__pycache__"))
    assert compileall.compile_dir(where, quiet=2)
    return where


@pytest.fixture
def package(compiled: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(compiled, tmp_path / "quire"))


def packed(package: Path) -> Path:
    path = package.parent / "quire.zip"
    path.write_bytes(_packed(package))
    return path


def loaded(archive: Path) -> list[str]:
    """The places of two modules as a worker finds them that has the archive alone, and what one of them does."""
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); {LOADS}"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line.removeprefix(f"{archive}/") for line in done.stdout.split()]


def test_workers_load_bytecode_and_compile_nothing(package: Path) -> None:
    archive = packed(package)
    with zipfile.ZipFile(archive) as held:
        names = set(held.namelist())
        sources = {name for name in names if name.endswith(".py")}
        assert names == sources | {f"{name}c" for name in sources}
        assert all(held.read(f"{name}c")[8:16] == importlib.util.source_hash(held.read(name)) for name in sources)
    assert loaded(archive) == ["quire/errors.pyc", "quire/storage/__init__.pyc", "a"]


def test_bytecode_of_another_source_is_not_sent(package: Path) -> None:
    """A worker does not look whether it is that of its source."""
    errors = package / "errors.py"
    errors.write_text(errors.read_text() + "\n\ndef scrub(text: str) -> str:\n    return 'newer'\n")
    (package / "storage" / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc").unlink()
    assert loaded(packed(package)) == ["quire/errors.py", "quire/storage/__init__.py", "newer"]


def test_a_worker_of_another_python_takes_the_source(package: Path) -> None:
    other = package.parent / "other.zip"
    with zipfile.ZipFile(packed(package)) as archive, zipfile.ZipFile(other, "w") as changed:
        for name in archive.namelist():
            content = archive.read(name)
            changed.writestr(name, b"\x00\x01\r\n" + content[4:] if name.endswith(".pyc") else content)
    assert loaded(other) == ["quire/errors.py", "quire/storage/__init__.py", "a"]
