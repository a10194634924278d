"""Tables that JVM Hudi 0.14 to 1.2 has written: test data of hudi-rs, which is in its source archive (Apache-2.0).

    python tests/table/jvm.py ARCHIVE FOLDER        unpacks them

`make` brings them into `.venv/hudi`; QUIRE_HUDI_FIXTURES names another folder. A test that needs them fails without them.
"""

from __future__ import annotations

import functools
import os
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(sys.prefix, "hudi")


@functools.cache
def _archives() -> dict[str, Path]:
    folder = Path(os.environ.get("QUIRE_HUDI_FIXTURES", HERE))
    return {path.relative_to(folder).with_suffix("").as_posix().replace("/", "-"): path for path in sorted(folder.rglob("*.zip"))}


def names() -> list[str]:
    """The tables' names. Where there is none, one that fails when it is opened: tests are collected without tables, and fail without."""
    return list(_archives()) or ["v6_none"]


def files(table: str) -> Iterator[tuple[str, bytes]]:
    """Path within the table and content of each of its files, but for checksums and what other programs left."""
    if table not in _archives():
        raise FileNotFoundError("there are no tables of Hudi: `make test` gets them, or QUIRE_HUDI_FIXTURES names where they are")
    with zipfile.ZipFile(_archives()[table]) as archive:
        for name in archive.namelist():
            top, _, path = name.partition("/")
            if path and not name.endswith(("/", ".crc")) and top != "__MACOSX" and not top.startswith("gold") and ".DS_Store" not in name:
                yield path, archive.read(name)


def unpack(archive: Path, folder: Path) -> None:
    """Take the tables out of the source archive."""
    with tarfile.open(archive) as source:
        for member in source:
            _, data, path = member.name.partition("/crates/test/data/")
            content = source.extractfile(member) if data and path.endswith(".zip") else None
            if content is not None:
                to = folder / path
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(content.read())


if __name__ == "__main__":
    (found,) = Path(sys.argv[1]).glob("hudi-*.tar.gz") if Path(sys.argv[1]).is_dir() else [Path(sys.argv[1])]
    unpack(found, Path(sys.argv[2]))
