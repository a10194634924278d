"""An export keeps in step: the cost of bringing it on in a commit, over 1,000 commits.

    python tests/benchmarks/export.py [--format iceberg] [--commits 1000]

Each commit adds a data file, of a source directory of its own. Timed is the step between `published` and the leaving of files alone: the
first 100 commits, and the last 100. Every 50th commit of Delta also puts a checkpoint of all files, each tenth of Iceberg makes ten
manifests one: these are told apart. What all commits have left in the export's directory is told, too.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from common import Verdict, arguments, load, machine, median, table, workplace

LIMIT = 0.2  # seconds
SOME = 100


EVERY = {"delta": 50, "iceberg": 10, "symlinks": 0}
FOLDER = {"delta": "_delta_log", "iceberg": "_iceberg", "symlinks": "_symlinks"}


def measure(place: Path, format: str, commits: int) -> tuple[list[float], list[float]]:
    """Seconds of the export in each commit: those that do more than add a file apart."""
    import quire
    from quire.engine.exports import step

    took, real = list[float](), step.export

    def timed(*given: Any) -> Any:
        began = time.perf_counter()
        try:
            return real(*given)
        finally:
            took.append(time.perf_counter() - began)

    step.export = timed
    try:
        for i in range(commits):
            source = place / f"in/{i:05}"
            source.mkdir(parents=True)
            (source / "f").write_bytes(b"x" * 100)
            quire.consolidate(
                source, place / "out", transform="raw", format="parquet", exports=format, spark=quire.LocalRunner(), progress=False
            )
    finally:
        step.export = real
    assert len(took) == commits, f"{len(took)} exports for {commits} commits"
    more = [i > 0 and bool(EVERY[format]) and i % EVERY[format] == 0 for i in range(commits)]
    return [s for s, extra in zip(took, more, strict=True) if not extra], [s for s, extra in zip(took, more, strict=True) if extra]


def main() -> int:
    """A destination on a disk."""
    args = arguments(__doc__, commits={"type": int, "default": 1_000}, format={"choices": [*EVERY], "default": "delta"})
    print(f"{machine()}; load {load()}", flush=True)
    with workplace(args.at) as place:
        plain, larger = measure(Path(place), args.format, args.commits)
        left = [path.stat().st_size for path in (Path(place) / "out" / FOLDER[args.format]).rglob("*") if path.is_file()]
    rows = [
        [what, len(some), f"{median(some):.4f}", f"{max(some):.4f}"]
        for what, some in (("the first ones", plain[:SOME]), ("the last ones", plain[-SOME:]), ("larger ones", larger)) if some
    ]  # fmt: skip
    print("\n" + table(["increments", "how many", "median, s", "longest, s"], rows))
    print(f"metadata: {len(left):,} objects of {sum(left):,} bytes, {sum(left) / args.commits:,.0f} bytes a commit; load {load()}")
    first, last, verdict = median(plain[:SOME]), median(plain[-SOME:]), Verdict()
    verdict.check("an increment, s", f"≤ {LIMIT}", f"{last:.3f}", last <= LIMIT)
    verdict.check("the last ones against the first ones", "≤ 2 ×", f"{last / first:.2f} ×", last <= 2 * first)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
