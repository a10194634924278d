"""What the driver holds while it plans and loads topics of a hundred and of ten thousand partitions.

    python tests/benchmarks/kafka_memory.py --partitions 100 10000

librdkafka's mock cluster stands in for brokers, so what is measured is the driver alone: its Python process, in which Kafka's client is,
too. Each number of partitions has a process of its own. It loads once from another topic of a hundred partitions, since what is loaded
once is no growth; then the kernel's mark of the highest memory is set back, and the topic is loaded twice, the second time with the
ledger of the first one. Every partition has as many records as makes the same number in all.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from common import Result, Verdict, arguments, fresh, load, machine, session, table, workplace
from memory import MB, status

sys.path.insert(0, str(Path(__file__).parents[1]))
from services.kafka import Record, mock

RECORDS = 40_000  # in all, before each load
MOST = 64  # MB more
TURNS = ("first", "second")


def measure(address: str, out: Path, partitions: int) -> Result:
    """Both loads."""
    import quire

    spark = session()
    quire.load(f"kafka://{address}/few", out / "few", spark=spark, progress=False)
    found: Result = {"before": round(status("VmRSS") / MB)}
    for turn in TURNS:
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
        rss, began = status("VmRSS"), time.monotonic()
        report = quire.load(f"kafka://{address}/{turn}", out / "many", spark=spark, progress=False, allow_nonempty=True)
        assert report.records == RECORDS, report
        found |= {f"{turn}_more": round((status("VmHWM") - rss) / MB, 1), f"{turn}_s": round(time.monotonic() - began, 1)}
    return found


def main() -> int:
    """One number of partitions after the other."""
    args = arguments(__doc__, partitions={"type": int, "nargs": "*", "default": [100, 10_000]})
    if args.way:
        job = json.loads(args.job)
        print(json.dumps(measure(job["address"], Path(job["out"]), job["partitions"])))
        return 0
    print(f"{machine()}; load {load()}", flush=True)
    found = dict[int, Result]()
    for n in args.partitions:
        with workplace(args.at) as place, mock() as kafka:
            for topic, partitions in (("few", 100), ("first", n), ("second", n)):
                kafka.create(topic, partitions)
                kafka.produce(topic, (Record(b"v%d" % i, partition=i % partitions) for i in range(RECORDS)))
            found[n] = fresh(__file__, "quire", address=kafka.address, out=str(place), partitions=n)
        print(f"  {n:,} partitions: {found[n]}; load {load()}", flush=True)
    rows = [[f"{n:,}", *(f"{r[t + '_more']:+.1f} MB" for t in TURNS), *(f"{r[t + '_s']} s" for t in TURNS)] for n, r in found.items()]
    print("\n" + table(["partitions", "Python, peak: first load", "second load", "first took", "second took"], rows))
    verdict, least = Verdict(), found[min(found)]
    for n in found.keys() - {min(found)}:
        more = max(found[n][f"{turn}_more"] - least[f"{turn}_more"] for turn in TURNS)
        verdict.check(f"peak, {min(found):,} → {n:,} partitions", f"< {MOST} MB more", f"{more:+.1f} MB", more < MOST)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
