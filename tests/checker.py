"""An independent witness: what lies in a destination, read with json, pyarrow and plain files, and compared with the source.

It shares no code with quire, only the promises of protocol.md: each byte of each input file is in exactly one committed data file at
the place that the ledger names, or the file is quarantined with a reason; no other data file, no temporary, no attempt is left.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import xxhash
import zstandard

from sim.witness import Log, fold, rows_of

GATHERED = ("done", "purging", "purged")
Expected = Callable[[bytes], bytes]


def with_newline(content: bytes) -> bytes:
    return content + b"\n" if content and not content.endswith(b"\n") else content


def unchanged(content: bytes) -> bytes:
    return content


@dataclass
class Found:
    """What a destination holds."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)  # of the ledger
    data: dict[str, int] = field(default_factory=dict)  # data file → bytes
    done: set[str] = field(default_factory=set)  # real paths
    quarantined: dict[str, str] = field(default_factory=dict)

    def row(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        (row,) = (r for r in self.rows if on_disk(r["path"]) == os.path.realpath(path))
        return row

    def order(self) -> dict[str, list[str]]:
        """Data file → the paths whose records it holds, in their order."""
        found = defaultdict(list)
        for row in sorted((r for r in self.rows if r["data_file"]), key=lambda r: (r["data_file"], r["offset"], r["skip"])):
            found[row["data_file"]].append(on_disk(row["path"]))
        return dict(found)


def on_disk(url: str) -> str:
    """The path that a key of the ledger means; U+F780 … U+F7FF stand for single bytes of a name."""
    assert url.startswith("file:///"), url
    return plain(url[len("file://") :])


def plain(name: str) -> str:
    """A name as quire writes it → as Python shows it."""
    escaped = "".join(chr(0xDC00 + ord(c) - 0xF700) if "\uf780" <= c <= "\uf7ff" else c for c in name)
    return escaped.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def tree(folder: str | os.PathLike[str], hidden: bool = False) -> dict[str, bytes]:
    """Every file below a directory with its content, without what is hidden."""
    found = {}
    for where, folders, names in os.walk(os.path.realpath(folder)):
        if not hidden:
            folders[:] = [f for f in folders if not f.startswith(("_", "."))]
        for name in names:
            if hidden or not name.startswith(("_", ".")):
                found[f"{where}/{name}"] = Path(where, name).read_bytes()
    return found


def check(
    source: str | os.PathLike[str] | Mapping[str, bytes],
    dest: str | os.PathLike[str],
    expected: Expected | None = with_newline,
    *,
    without: set[str] | frozenset[str] = frozenset(),
    foreign: set[str] | frozenset[str] = frozenset(),
    settled: bool = True,
) -> Found:
    """Hold a destination against its source: a directory, or path → content as it was gathered.

    `without`: paths that must not be there. `foreign`: files in the destination that are not quire's. `settled=False` allows open
    jobs and leftovers, as a crash leaves them.
    """
    dest = Path(dest)
    wanted = tree(source) if isinstance(source, str | os.PathLike) else {os.path.realpath(p): c for p, c in source.items()}
    found = look(dest)
    data = {os.path.relpath(p, dest) for p in _files(dest)} - set(foreign)
    data = {name for name in data if not name.startswith("_quire/")}
    assert data == set(found.data), f"data files: {data ^ set(found.data)}"
    if settled:
        _clean(dest, found)
    _no_byte_twice(dest, found)
    written = _records(dest, found)
    for path, content in wanted.items():
        if path in without:
            assert path not in found.done, path
            continue
        assert (path in found.done) != (path in found.quarantined), f"{path} is {'twice' if path in found.done else 'nowhere'}"
        if path in found.done and expected is not None:
            assert written[path] == expected(content), path
    assert found.done | set(found.quarantined) <= set(wanted), "the ledger names files that never were"
    return found


def look(dest: str | os.PathLike[str]) -> Found:
    """Fold the log, as the witness of the simulated stores does."""
    dest, found = Path(dest), Found()
    there = {os.path.relpath(p, dest): p.read_bytes() for p in _files(dest / "_quire")}
    log = Log(there)
    found.entries = log.entries
    assert all(entry["format"] == 1 for entry in log.entries)
    for _, tasks in log.commits():
        for name in {plain(name) for task in tasks for name in task["coverage"]["removes"]}:
            del found.data[name]
        for task in tasks:
            found.data.update({plain(file["name"]): file["size"] for file in task["data_files"]})
            new = rows_of(there[task["coverage"]["segment"]]) if task["coverage"]["segment"] else []
            again = [row for row in new if row["carried"]]
            assert len(again) == task["stats"]["carried"]
            assert (
                len(new) - len(again)
                == task["stats"]["gathered"] + task["stats"]["quarantined_files"]
                == task["stats"]["assigned"] - len(task["coverage"]["left"])
            )
            assert task["stats"]["restated"] in (0, len(new))
    folded = [row for rows in fold(there, log).values() for row in rows]
    found.rows = [{**row, "data_file": row["data_file"] and plain(row["data_file"])} for row in folded]
    for row in found.rows:
        if row["state"] == "quarantined":
            assert row["reason"], f"{row['path']} is quarantined without a reason"
            assert len(row["reason"].splitlines()) == 1
            found.quarantined[on_disk(row["path"])] = row["reason"]
        elif row["state"] in GATHERED:
            found.done.add(on_disk(row["path"]))
    return found


def _files(dest: Path) -> list[Path]:
    return [p for p in dest.rglob("*") if p.is_file()]


def _clean(dest: Path, found: Found) -> None:
    """Nothing but the log, the segments that it names and its parts is left below _quire/."""
    state = {os.path.relpath(p, dest) for p in _files(dest / "_quire")}
    decided = {e["job"] for e in found.entries if e["kind"] == "abort"} | {e["job"] for e in found.entries if e["kind"] == "published"}
    commits = [e for e in found.entries if e["kind"] == "commit" and e["job"] in decided]
    named = {task["coverage"]["segment"] for e in commits for task in e["tasks"]}
    outcomes = [e for e in found.entries if e["kind"] in ("commit", "abort")]
    named |= {v for e in outcomes for v in e.values() if isinstance(v, str) and v.startswith("_quire/log/parts/")}
    left = {name for name in state if not (name.startswith("_quire/log/") and name.count("/") == 2)} - named
    assert not left, f"left over: {sorted(left)[:5]}"
    assert {e["job"] for e in found.entries if "job" in e} == decided, "a commit was not published"


def _no_byte_twice(dest: Path, found: Found) -> None:
    """The ledger covers no byte twice and no path in two versions."""
    by_path = defaultdict[tuple[str, str], list[dict[str, Any]]](list)
    for row in found.rows:
        by_path[row["path"], row["reason"] if row["state"] in ("purging", "purged") else ""].append(row)
    for (path, _), rows in by_path.items():
        assert len({row["version"] for row in rows}) == 1, f"{path} is there in two versions"
        size, at = int(rows[0]["version"].rpartition("-")[2]), 0
        for row in sorted(rows, key=lambda r: r["start"]):
            assert row["start"] == at, f"{path}: gap or overlap at {at}"
            at += row["length"]
        assert at == size, f"{path}: {at} of {size} bytes"
        assert len(rows) == 1 or size, f"{path} is empty and there twice"
    for name, size in found.data.items():
        assert (dest / name).stat().st_size == size, name


def _records(dest: Path, found: Found) -> dict[str, bytes]:
    """Path → what was written for it, taken from the recorded places; every byte of every data file is claimed once."""
    by_file = defaultdict[str, list[dict[str, Any]]](list)
    pieces = defaultdict[str, list[tuple[int, bytes]]](list)
    for row in found.rows:
        if row["data_file"]:
            by_file[row["data_file"]].append(row)
        elif row["state"] in GATHERED:
            pieces[row["path"]].append((row["start"], b""))
    assert set(by_file) == set(found.data), "a data file without rows"
    for name, rows in by_file.items():
        rows.sort(key=lambda r: (r["offset"], r["skip"]))
        take = _parquet(dest / name, rows) if name.endswith(".parquet") else _plain(dest / name, rows)
        for row, data in zip(rows, take, strict=True):
            pieces[row["path"]].append((row["start"], data))
    return {on_disk(path): b"".join(data for _, data in sorted(found)) for path, found in pieces.items()}


def _plain(path: Path, rows: list[dict[str, Any]]) -> list[bytes]:
    data = path.read_bytes()
    frames: dict[int, bytes] = {0: data} if path.suffix in (".txt", ".bin") else _frames(data, path.suffix)
    whole, starts, at = b"".join(frames.values()), {}, 0
    for offset, content in frames.items():
        starts[offset] = at
        at += len(content)
    found, at = [], 0
    for row in rows:
        start = row["offset"] + row["skip"] if path.suffix in (".txt", ".bin") else starts[row["offset"]] + row["skip"]
        assert start == at, f"{path.name}: {row['path']} is at {start}, the one before ends at {at}"
        at += row["written"]
        found.append(whole[start:at])
        assert row["checksum"] == xxhash.xxh3_64_intdigest(found[-1])
        assert row["records"] == found[-1].count(b"\n")
    assert at == len(whole), f"{path.name} has bytes that the ledger doesn't know"
    return found


def _frames(data: bytes, suffix: str) -> dict[int, bytes]:
    """Offset → content of each gzip member or zstd frame."""
    found, offset = {}, 0
    while offset < len(data):
        unpacker: Any = zlib.decompressobj(31) if suffix == ".gz" else zstandard.ZstdDecompressor().decompressobj()
        found[offset] = unpacker.decompress(data[offset:])
        assert unpacker.eof
        assert len(found[offset]) <= 1 << 20
        offset = len(data) - len(unpacker.unused_data)
    return found


def _parquet(path: Path, rows: list[dict[str, Any]]) -> list[bytes]:
    table, found, at = pq.read_table(path), [], 0
    for row in rows:
        assert row["offset"] == at, f"{path.name}: {row['path']} is at row {row['offset']}, the one before ends at {at}"
        part = table.slice(at, row["records"])
        at += row["records"]
        if table.schema.names == ["path", "modified", "content"]:
            assert set(part.column("path").to_pylist()) <= {row["path"]}
            found.append(b"\n".join(part.column("content").to_pylist()))
            assert row["checksum"] == xxhash.xxh3_64_intdigest(b"".join(part.column("content").to_pylist()))
        else:
            found.append(repr(part.to_pylist()).encode())
    assert at == table.num_rows, f"{path.name} has rows that the ledger doesn't know"
    return found
