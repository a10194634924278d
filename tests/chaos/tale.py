"""The tale of the kills: one line of JSON for each kill and each recovery, a line for the reader, and a table at the end.

The count knows neither ledger nor log: the lines of all data files are held against those of the source.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard
from moments import NAMES, data_files

import checker


# --------------------------------------------------------------------------------------------------------------------- the count
def documents(wave: int, files: int, rng: random.Random) -> Iterator[tuple[str, str]]:
    """New files in old and new directories; no line is there twice. Some are empty, some have no newline at their end."""
    for i in range(files):
        folder = f"d{rng.randrange(4)}" if rng.random() < 0.7 else f"w{wave}"
        n = rng.choice((0, 1, 1, 2, 5))
        text = "".join(f"wave {wave} file {i} line {k} {'x' * rng.randrange(400)}\n" for k in range(n))
        yield f"{folder}/{wave}-{i}", text[:-1] if rng.random() < 0.3 else text


def grow(source: Path, wave: int, files: int, rng: random.Random) -> None:
    """The same on local disk."""
    for name, text in documents(wave, files, rng):
        (source / name).parent.mkdir(exist_ok=True)
        # No half of a file is ever listed: a writer who is not quire renames, too.
        (source / ".new").write_text(text)
        (source / ".new").rename(source / name)


@dataclass(frozen=True)
class Count:
    """What lies in the data files, held against the source."""

    lost: int
    double: int
    files: int
    bytes: int
    of: str = "files"

    def __str__(self) -> str:
        return f"lost {self.lost}, double {self.double} ({self.files:,} {self.of}, {self.bytes:,} bytes)"


def _lines(name: str, data: bytes) -> list[bytes]:
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    elif name.endswith(".zst"):
        data = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    return data.splitlines()


def count(source: Path, dest: Path) -> Count:
    """Lines that are lost, and lines that are there twice or that never were."""
    return held(checker.tree(source).values(), {name: (dest / name).read_bytes() for name in data_files(dest)})


def held(source: Collection[bytes], data: Mapping[str, bytes]) -> Count:
    """The contents of a source against data files."""
    wanted = Counter(line for content in source for line in content.splitlines())
    found = Counter(line for name, content in data.items() for line in _lines(name, content))
    return Count((wanted - found).total(), (found - wanted).total(), len(source), sum(map(len, source)))


# ---------------------------------------------------------------------------------------------------------------------- the tale
class Tale:
    """All kills of a run of the tests."""

    def __init__(self, path: Path, seed: int, show: Callable[[str], None]) -> None:
        self.path, self.seed, self.show = path, seed, show
        self.kills: Counter[tuple[str, str]] = Counter()
        self.stops: Counter[tuple[str, str]] = Counter()
        self.recoveries = self.good = 0
        self.open: list[int] = []  # the kills since the last recovery
        self.number = 0
        self.began = time.monotonic()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        self.say(f"seed {seed} (CHAOS_SEED={seed} for the same again); each kill stands in {path}")

    def say(self, text: str) -> None:
        self.show(f"{time.monotonic() - self.began:7.1f} s  {text}")

    def rng(self, name: str) -> random.Random:
        """Chance for one story, which does not depend on what other stories draw."""
        return random.Random(f"{self.seed} {name}")

    def _write(self, **row: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(row | {"seconds": round(time.monotonic() - self.began, 2)}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def struck(self, story: str, victim: str, moment: str, call: str, lay: object, *, stopped: bool = False, pid: int = 0) -> None:
        """A kill, or a stop that was followed by SIGCONT."""
        self.number += 1
        self.open.append(self.number)
        (self.stops if stopped else self.kills)[victim, moment] += 1
        what = "stopped, and continued when others were done" if stopped else "killed"
        self._write(
            number=self.number, seed=self.seed, story=story, victim=victim, pid=pid, signal="SIGSTOP, SIGCONT" if stopped else "SIGKILL",
            moment=moment, call=call, lay=str(lay),
        )  # fmt: skip
        self.say(f"{self.number:4} {story}: {victim} {what}; {moment}: {call or 'no call yet'}; there lay {lay}")

    def recovered(self, story: str, by: str, found: Count) -> None:
        """After a recovery, and what was counted then."""
        self.recoveries += 1
        self.good += (found.lost, found.double) == (0, 0)
        self._write(recovery=self.recoveries, story=story, after=self.open, by=by, **vars(found))
        self.say(f"     {story}: after {', '.join(map(str, self.open)) or 'no kill'}, recovered by {by}: {found}")
        self.open = []

    def total(self, *victims: str) -> int:
        return sum(n for (victim, _), n in self.kills.items() if not victims or victim in victims)

    def table(self) -> list[str]:
        """Kills by victim and moment."""
        found = []
        for title, counted in (("SIGKILL", self.kills), ("SIGSTOP, later SIGCONT", self.stops)):
            if not counted:
                continue
            moments = [m for m in NAMES if any(moment == m for _, moment in counted)]
            rows = [[title, *moments, "sum"]]
            for victim in sorted({v for v, _ in counted}):
                row = [counted[victim, m] for m in moments]
                rows.append([victim, *(str(n or ".") for n in row), str(sum(row))])
            sums = [sum(counted[v, m] for v, _ in {(v, 0) for v, _ in counted}) for m in moments]
            rows.append(["sum", *map(str, sums), str(sum(sums))])
            widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
            found += ["  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))) for r in rows]
            found.append("")
        found.append(
            f"{self.total()} kills, {self.stops.total()} stops, {self.recoveries} recoveries, {self.good} of them: lost 0, double 0; "
            f"seed {self.seed}; {self.path}"
        )
        return found
