"""An export keeps in step: what bringing a Delta log on costs a commit, over 1,000 commits.

    python tests/benchmarks/export.py [--commits 1000]

Each commit adds a data file. Timed is the step between `published` and the leaving of files alone: the first 100 commits, and the last 100.
Every 50th commit also puts a checkpoint of all files, and is told apart.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from common import Verdict, arguments, load, machine, median, table, workplace

LIMIT = 0.2  # seconds
SOME = 100


def measure(place: Path, commits: int) -> tuple[list[float], list[float]]:
    """Seconds of the export in each commit: those that put a checkpoint apart."""
    import quire
    from quire.engine.exports import delta, step

    took, real = list[float](), step.export

    def timed(*given: Any) -> Any:
        began = time.perf_counter()
        try:
            return real(*given)
        finally:
            took.append(time.perf_counter() - began)

    source, dest = place / "in", place / "out"
    source.mkdir(parents=True)
    step.export = timed
    try:
        for i in range(commits):
            (source / f"f{i:05}").write_bytes(b"x" * 100)
            quire.consolidate(
                source, dest, transform="raw", format="parquet", exports="delta", spark=quire.LocalRunner(), progress=False,
                include=f"f{i:05}",
            )  # fmt: skip
    finally:
        step.export = real
    assert len(took) == commits, f"{len(took)} exports for {commits} commits"
    plain = [seconds for i, seconds in enumerate(took) if not i or i % delta.EVERY]
    return plain, [seconds for i, seconds in enumerate(took) if i and not i % delta.EVERY]


def main() -> int:
    """A destination on a disk."""
    args = arguments(__doc__, commits={"type": int, "default": 1_000})
    print(f"{machine()}; load {load()}", flush=True)
    with workplace(args.at) as place:
        plain, checkpoints = measure(Path(place), args.commits)
    rows = [
        [what, len(some), f"{median(some):.4f}", f"{max(some):.4f}"]
        for what, some in (("the first ones", plain[:SOME]), ("the last ones", plain[-SOME:]), ("with a checkpoint", checkpoints)) if some
    ]  # fmt: skip
    print("\n" + table(["increments", "how many", "median, s", "longest, s"], rows))
    first, last, verdict = median(plain[:SOME]), median(plain[-SOME:]), Verdict()
    verdict.check("an increment, s", f"≤ {LIMIT}", f"{last:.3f}", last <= LIMIT)
    verdict.check("the last ones against the first ones", "≤ 2 ×", f"{last / first:.2f} ×", last <= 2 * first)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
