"""How fast the populator writes its trees.

    python tests/benchmarks/populate.py --files 100000

Nothing is deleted before the end, and no large tree should have been deleted on the same file system in the minutes before: ext4 does
not hand out an inode again for some minutes after its file was deleted, and steps over all such inodes one by one at each new
file, which makes the kernel ten times slower.
"""

from __future__ import annotations

import os
import sys

from common import CORES, Verdict, arguments, listed, machine, median, table, workplace


def main() -> int:
    """Each shape, dirty files and all."""
    args = arguments(__doc__, files={"type": int, "default": 100_000}, rounds={"type": int, "default": 2})
    import quire

    print(f"{machine()}\n{args.files:,} files of 5 KB, 1 % dirty, {CORES} processes, {args.rounds} rounds", flush=True)
    speeds: dict[str, list[float]] = {"even": [], "skewed": [], "deep": [], "flat": []}
    with workplace(args.at) as place:
        for r in range(args.rounds):
            for shape, found in speeds.items():
                os.sync()
                report = quire.populate(place / f"{shape}-{r}", args.files, "5KB", 20, shape, processes=CORES, progress=False)
                found.append(report.files_per_second)
    rows = [(shape, f"{median(found):,.0f}", listed(found)) for shape, found in speeds.items()]
    print("\n" + table(["shape", "files/s (median)", "rounds"], rows))
    verdict, slowest = Verdict(), min(median(found) for found in speeds.values())
    verdict.check("files/s, the slowest shape", "≥ 20,000", f"{slowest:,.0f}", slowest >= 20_000)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
