"""What the tests of the main job share: calls without Spark, and trees."""

from __future__ import annotations

import io
import os
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import Report
from quire.errors import QuireError

MANY = 1_000_000  # of what may be quarantined
KEY = {"key": "open sesame"}  # the options of the store `vault`


def gather(source: Any, dest: Any, **settings: Any) -> Report:
    """`quire.consolidate`, in this process and without bars; a few bad files may be all that there is."""
    settings = {"max_quarantined": MANY, **settings, "spark": settings.get("spark") or quire.LocalRunner()}
    return quire.consolidate(source, dest, progress=False, **settings)


def look(source: Any, dest: Any, **settings: Any) -> quire.Plan:
    """`quire.plan`, likewise."""
    return quire.plan(source, dest, spark=quire.LocalRunner(), progress=False, **settings)


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below a directory; their times are a minute old, so that a rewritten file always shows."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        before = time.time() - 60
        os.utime(path, (before, before))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def documents(n: int, kind: str = "txt", folders: int = 3) -> dict[str, bytes]:
    """Small files in some directories."""
    content = {"txt": "line {0}\nsecond of {0}", "xml": '<a n="{0}">\n  <b>{0}</b>\n</a>', "json": '{{"n": {0},\n "x": [1, 2]}}'}[kind]
    return {f"d{i % folders}/f{i:04}.{kind}": content.format(i).encode() for i in range(n)}


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive, the same at any time."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return sink.getvalue()


def tar(files: Mapping[str, bytes]) -> bytes:
    """A tar archive."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return sink.getvalue()


def not_taken(report: quire.Report) -> int:
    """How many files are there and were not gathered: quarantined, changed since, or unreadable."""
    return report.quarantined_count + report.changed_count + report.unreadable_count


@contextmanager
def refused(kind: type[QuireError], code: int, *words: str) -> Iterator[Any]:
    """The block raises `kind`, which is in `.value`: one line that holds the words, names no traceback and has the exit code."""
    with pytest.raises(kind) as caught:
        yield caught
    text = str(caught.value)
    assert caught.value.exit_code == code
    assert text.isprintable(), "more than one line, or control characters"
    assert len(text) < 700
    for word in words:
        assert word in text, text


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a directory, to compare with later."""
    return {os.path.relpath(p, folder): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}
