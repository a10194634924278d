"""How long until work begins: the first listing task, the first copying task, and the first task of Spark's own ways.

    python tests/benchmarks/first_task.py --files 400000

A listing task begins when Spark's status store has it. A copying task, quire's and the peers' alike, begins when the first output
file is there (below `_quire/jobs/*/attempts`, below `_temporary`). Each run is a process of its own whose session has just started;
`--rounds` of each way alternate.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from common import (
    PEERS,
    PROMPT,
    TUNED,
    Looker,
    Verdict,
    active_task,
    alternate,
    arguments,
    listed,
    machine,
    median,
    session,
    table,
    tree,
    workplace,
)

WAYS = ("quire", *PEERS)


def measure(way: str, source: Path, out: Path) -> dict[str, float]:
    """The moments of one run."""
    spark = session(**PROMPT, **({} if way == "quire" else TUNED))
    pattern = "_quire/jobs/*/attempts/*/*" if way == "quire" else "_temporary/**/part-*"
    looker = Looker(task=active_task(spark), output=lambda: any(f.is_file() for f in out.glob(pattern)))
    if way == "quire":
        import quire

        quire.consolidate(str(source), str(out), spark=spark, progress=False)
    else:
        PEERS[way](spark, source, out)
    return looker.end()


def main() -> int:
    """Run all ways alternately, and print the moments."""
    args = arguments(__doc__, files={"type": int, "default": 400_000}, rounds={"type": int, "default": 3})
    if args.way:
        job = json.loads(args.job)
        print(json.dumps(measure(args.way, Path(job["source"]), Path(job["out"]))))
        return 0
    print(f"{machine()}\n{args.files:,} files of 5 KB in 20 directories, {args.rounds} rounds", flush=True)
    with workplace(args.at) as place:
        source = tree(place, args.files)
        found = alternate(__file__, WAYS, args.rounds, place, source=str(source))
    task = {way: [r["task"] for r in results] for way, results in found.items()}
    output = {way: [r["output"] for r in results] for way, results in found.items()}
    rows = [
        (way, f"{median(task[way]):.1f} s", listed(task[way], "{:.1f}"), f"{median(output[way]):.1f} s", listed(output[way], "{:.1f}"))
        for way in WAYS
    ]
    print("\n" + table(["way", "first task of any kind", "rounds", "first copying task", "rounds"], rows))
    verdict = Verdict()
    verdict.check("first listing task", "< 2 s", f"{median(task['quire']):.1f} s", median(task["quire"]) < 2)
    ratio = median(output["wholeTextFiles"]) / median(output["quire"])
    if args.files >= 400_000:
        verdict.check("first copying task, sooner than wholeTextFiles'", "≥ 4 ×", f"{ratio:.1f} ×", ratio >= 4)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
