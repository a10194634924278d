"""A run that goes by events against one that lists: up to ten million names are known, a thousand are new.

    python tests/benchmarks/events.py --entries 300000,1000000,3000000,10000000 --new 1000

The source is `bucketserver.py`, a bucket of S3 whose every answer takes `--delay`, also a page of a thousand names; the queue is
`queueserver.py`, with a message for each new object. The ledger is real: its own writer writes it, as in `ledger.py`, and it is merged
into a checkpoint. New names lie at the end, as names by date do; with `--spread` they lie among all others, which is the worst case for a
look-up. Each way has a process of its own, in a session that has started. The third run by events is compared, as a loop has it: each of
two workers has had its turn before. A listing of ten million names takes minutes, so there is one of each size (`--listings`); the server
counts what is asked of it.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bucketserver import ETAG
from common import Verdict, arguments, cpu_seconds, fresh, listed, load, machine, median, serving, session, table, workplace

import ledger

BUCKET, SIZE = "landing", 500
FIRST = 10  # objects of each of the two runs before


def known(first: int, n: int, *, places: bool) -> pa.Table:
    """Rows of the ledger for the objects that are known, in the place of those of `ledger.py`."""
    from quire.coverage.segments import SCHEMA

    numbers = np.arange(first, first + n)
    if STEP:
        numbers = numbers[numbers % STEP != STEP // 2]
    m, digits = len(numbers), pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 8, "0")
    columns: dict[str, Any] = {
        "path": pc.binary_join_element_wise(f"s3://{BUCKET}/in/", digits, ""), "offset": np.arange(m) * SIZE, "checksum": numbers,
    }  # fmt: skip
    same = {
        "version": ETAG, "start": 0, "length": SIZE, "state": "done", "carried": False, "skip": 0, "written": SIZE, "records": 1,
        "data_file": f"part-0-{0:016x}-0-{first:012x}-0.txt",
    }  # fmt: skip

    def column(field: pa.Field) -> pa.Array:
        if field.name in columns:
            return pa.array(columns[field.name]).cast(field.type)
        return pa.repeat(pa.scalar(same[field.name], field.type), m) if field.name in same else pa.nulls(m, field.type)

    return pa.table([column(field) for field in SCHEMA], schema=SCHEMA)


STEP = 0  # each such object is new; 0: those at the end are


def made(place: Path, entries: int, step: int) -> Path:
    """A destination that knows so many objects."""
    global STEP
    STEP, ledger.rows = step, known  # type: ignore[assignment]
    dest = place / f"known-{step}"
    ledger.make(str(dest), entries)
    fresh(str(Path(ledger.__file__)), "merge", dest=str(dest))
    return dest


def measure(dest: str, port: int, queue: str, runs: list[list[int]]) -> dict[str, Any]:
    """Calls one after the other in one session: by events of these objects, or, where no queue is named, by a listing."""
    import quire
    from quire.commit import names
    from quire.commit.log import Log
    from quire.engine import request
    from quire.sources import sqs
    from quire.storage import connect, normalise

    endpoint = f"http://127.0.0.1:{port}"
    options = {"key": "k", "secret": "s", "endpoint_url": endpoint, "client_kwargs": {"region_name": "us-east-1"}}
    call: dict[str, Any] = {"source_options": options, "keep_versions": 0}
    spark, found = session(), dict[str, Any](seconds=[], files=[], cpu=[], asked=[])
    if queue:
        address = queue.rpartition("/123456789012/")[0]
        of_queue = {**options, "endpoint_url": address}
        call["events"] = queue, of_queue
        intent = request.build(f"s3://{BUCKET}/in", dest, source_options=options, keep_versions=0).identity.hash
        store = connect(normalise(dest))
        store.put(names.listing(intent, int(time.time() * 1000), Log(store).refresh().tip), b"listed\n")
        client = sqs.opened(queue, of_queue, []).account.beside("sqs", "us-east-1", address)
    for objects in runs:
        for at in range(0, len(objects), 10):
            client.send_message_batch(
                QueueUrl=queue,
                Entries=[{"Id": str(i), "MessageBody": message(i)} for i in objects[at : at + 10]],
            )
        before, cpu, started = asked(port), cpu_seconds(), time.monotonic()
        report = quire.consolidate(f"s3://{BUCKET}/in", dest, spark=spark, progress=False, **call)
        found["seconds"].append(round(time.monotonic() - started, 2))
        found["cpu"].append(round(cpu_seconds() - cpu, 2))
        found["asked"].append({what: n - before.get(what, 0) for what, n in asked(port).items()})
        found["files"].append(report.files)
        assert not queue or report.events.lists == 0, report
    return found


def message(i: int) -> str:
    """As S3 sends it."""
    s3 = {"bucket": {"name": BUCKET}, "object": {"key": f"in/{i:08}", "size": SIZE, "eTag": ETAG}}
    return json.dumps({"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": s3}]})


def asked(port: int) -> dict[str, int]:
    """How often the server was asked for what."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/asked") as answer:
        found: dict[str, int] = json.load(answer)
    return found


def main() -> int:
    """Make the ledgers, then measure both ways."""
    args = arguments(
        __doc__, entries={"default": "10000000"}, new={"type": int, "default": 1_000}, delay={"type": float, "default": 0.005},
        rounds={"type": int, "default": 3}, listings={"type": int, "default": 1}, spread={"action": "store_true"},
    )  # fmt: skip
    if args.way:
        print(json.dumps(measure(**json.loads(args.job))))
        return 0
    sizes = sorted(int(size) for size in args.entries.split(","))
    print(f"{machine()}\nload {load()}; {args.new:,} new, each answer after {args.delay} s", flush=True)
    rows, verdict = list[tuple[str, ...]](), Verdict()
    times = {size: compared(args, size, rows) for size in sizes}
    head = ["known", "events, first run s", "events s", "CPU s", "HEADs", "listing s", "CPU s", "pages", "ratio"]
    print("\n" + table(head, rows) + f"\nload {load()}")
    (by_events, heads, by_listing), smallest = times[sizes[-1]], times[sizes[0]][0]
    verdict.check("requests by name for each new one", "≤ 1", f"{heads / args.new:.2f}", heads <= args.new)
    if by_listing:
        ratio = by_listing / by_events
        verdict.check(f"by events against listing, {sizes[-1]:,} known", "≥ 100 ×", f"{ratio:.0f} ×", ratio >= 100)
    if len(sizes) > 1:
        grown = by_events / smallest
        verdict.check(f"by events, {sizes[-1]:,} known to {sizes[0]:,}", "≤ 1.2 ×", f"{grown:.2f} ×", grown <= 1.2)
    return verdict.end()


def compared(args: Any, entries: int, rows: list[tuple[str, ...]]) -> tuple[float, int, float]:
    """Both ways, of so many known names: the medians of the seconds, and how many names were looked up in the run by events."""
    count = args.new + 2 * FIRST
    step = entries // count if args.spread else 0
    new = list(range(step // 2, entries, step))[:count] if step else list(range(entries, entries + count))
    found = dict[str, list[dict[str, Any]]](events=[], listing=[])
    with workplace(args.at) as place, serving("queueserver.py", delay=args.delay) as queues:
        began = time.monotonic()
        dest = made(place, entries, step)
        print(f"  the ledger of {entries:,} is made in {time.monotonic() - began:.0f} s; load {load()}", flush=True)
        with serving("bucketserver.py", delay=args.delay, size=SIZE, blobs=max(entries, new[-1] + 1)) as port:
            early = new[:: count // (2 * FIRST)][: 2 * FIRST] if step else new[: 2 * FIRST]  # those of a run lie wherever the others' do
            by_events = [early[::2], early[1::2], [i for i in new if i not in set(early)]]
            for way, rounds, runs in (("events", args.rounds, by_events), ("listing", args.listings, [[]])):
                for n in range(rounds):
                    copy = place / "copy"
                    shutil.copytree(dest, copy)
                    queue = f"http://127.0.0.1:{queues}/123456789012/q{n}" if way == "events" else ""
                    result = fresh(__file__, way, dest=str(copy), port=port, queue=queue, runs=runs)
                    assert sum(result["files"]) == len(new), result
                    print(f"  {way}: {result}; load {load()}", flush=True)
                    found[way].append(result)
                    shutil.rmtree(copy)
    events, lists = found["events"], found["listing"]
    warm, heads = [one["seconds"][-1] for one in events], max(one["asked"][-1].get("head", 0) for one in events)
    by_listing = [one["seconds"][0] for one in lists]
    rows.append((
        f"{entries:,}{', spread' * bool(step)}", listed([one["seconds"][0] for one in events], "{:.2f}"), listed(warm, "{:.2f}"),
        listed([one["cpu"][-1] for one in events], "{:.1f}"), f"{heads:,}", listed(by_listing, "{:.1f}"),
        listed([one["cpu"][0] for one in lists], "{:.1f}"), f"{max((one['asked'][0]['list'] for one in lists), default=0):,}",
        f"{median(by_listing) / median(warm):.0f}" if lists else "",
    ))  # fmt: skip
    return median(warm), heads, median(by_listing) if lists else 0.0


if __name__ == "__main__":
    sys.exit(main())
