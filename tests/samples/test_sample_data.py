"""The sample data is what its script makes and what its README says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from lxml import etree

from quire.samples.devices import DIRT

SAMPLE = Path(__file__).parents[2] / "sample_data"
ROOT = SAMPLE / "devices"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_sample_data", SAMPLE / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found() -> dict[str, bytes]:
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in ROOT.rglob("*") if path.is_file()}


def is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def encoding_of(content: bytes) -> str | None:
    try:
        return etree.fromstring(content).getroottree().docinfo.encoding
    except etree.XMLSyntaxError:
        return None


def test_the_script_makes_exactly_what_lies_here(make: ModuleType, found: dict[str, bytes]) -> None:
    assert sorted(make.contents()) == sorted(found)
    assert make.contents() == found


def test_the_script_makes_the_drop_that_lies_here(make: ModuleType) -> None:
    assert make.drop() == {path.name: path.read_bytes() for path in (SAMPLE / "drop").iterdir()}


def test_the_tree_is_small(found: dict[str, bytes]) -> None:
    assert 200 <= len(found) <= 500
    assert sum(map(len, found.values())) < 1_000_000


def test_the_readme_counts_right(found: dict[str, bytes]) -> None:
    text = (SAMPLE / "README.md").read_text(encoding="utf-8")
    rows = {folder: int(number) for folder, number in re.findall(r"^\| `(.+)/` \| (\d+) \|", text, re.MULTILINE)}
    assert rows == Counter(path.rpartition("/")[0] for path in found)
    assert f"{len(found)} files, {sum(map(len, found.values())):,} bytes" in text

    seen = {path: content for path, content in found.items() if not is_hidden(path)}
    assert f"**{len(found) - len(seen)} are hidden**" in text
    assert f"**{len(seen)} files** are input" in text
    encodings = Counter(encoding_of(content) for content in seen.values())
    damaged = encodings.pop(None)
    kinds = Counter(kind for path in seen for kind in DIRT if f" {kind}.xml" in path)
    assert f"**{damaged} are damaged**" in text
    assert damaged == kinds.total()
    assert f"**{encodings.total()} files** are XML" in text
    for kind, number in kinds.items():
        assert f"{number} {kind}" in text
    assert f"**{encodings['UTF-16']} are in UTF-16**" in text
    assert f"{encodings['ISO-8859-1']} in ISO-8859-1" in text
    assert max(Counter(content for content in seen.values() if content).values()) == 3
    ends = ("\n".encode("utf-16-le"), b"\n")
    assert f"**{sum(bool(c) and not c.endswith(ends) for p, c in seen.items() if encoding_of(c))} do not end" in text


def test_the_script_never_writes_over_anything(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    code = f"import sys; sys.path.insert(0, {str(Path(sys.modules['quire'].__path__[0]).parent)!r}); import runpy\n"
    code += f"sys.argv = ['make.py', {str(tmp_path)!r}]; runpy.run_path({str(SAMPLE / 'make.py')!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
