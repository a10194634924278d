"""A run that goes by events against one that lists: ten million names are known, a thousand are new.

    flock /tmp/heavy.lock python tests/benchmarks/events.py --entries 10000000 --new 1000

The source is `bucketserver.py`, a bucket of S3 within the region; the queue is SQS as moto has it, with a message for each new object. The
ledger is written by its own writer, as in `ledger.py`, and merged into a checkpoint. New names lie at the end, as names by date do; with
`--spread` they lie among all others, which is the worst case for a look-up. Each way has a process of its own, in a session that has
started; of events the second run is compared, as a loop has them.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from bucketserver import ETAG
from common import Verdict, arguments, fresh, listed, load, machine, median, serving, session, table, workplace

import ledger

sys.path.append(str(Path(__file__).parents[1]))

BUCKET, SIZE = "landing", 500
FIRST = 10  # objects of the run before


def known(first: int, n: int, *, places: bool) -> pa.Table:
    """Rows of the ledger for the objects that are known, in the place of those of `ledger.py`."""
    from quire.coverage.segments import SCHEMA

    names = [f"s3://{BUCKET}/in/{i:08}" for i in range(first, first + n) if not is_new(i)]
    m = len(names)
    columns: dict[str, Any] = {
        "path": names, "version": [ETAG] * m, "start": [0] * m, "length": [SIZE] * m, "state": ["done"] * m, "carried": [False] * m,
        "data_file": [f"part-0-{0:016x}-0-{first:012x}-0.txt"] * m, "offset": [SIZE * i for i in range(m)], "skip": [0] * m,
        "written": [SIZE] * m, "records": [1] * m, "checksum": [first + i for i in range(m)],
    }  # fmt: skip
    return pa.table([pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(m, f.type) for f in SCHEMA], schema=SCHEMA)


STEP = 0  # each such object is new; 0: those at the end are


def is_new(i: int) -> bool:
    """Whether an object is not in the ledger."""
    return bool(STEP) and i % STEP == STEP // 2


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
    spark, found = session(), dict[str, Any](seconds=[], files=[])
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
        started = time.monotonic()
        report = quire.consolidate(f"s3://{BUCKET}/in", dest, spark=spark, progress=False, **call)
        found["seconds"].append(round(time.monotonic() - started, 2))
        found["files"].append(report.files)
        assert not queue or report.events.lists == 0, report
    return found


def message(i: int) -> str:
    """As S3 sends it."""
    s3 = {"bucket": {"name": BUCKET}, "object": {"key": f"in/{i:08}", "size": SIZE, "eTag": ETAG}}
    return json.dumps({"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": s3}]})


def main() -> int:
    """Make the ledgers, then measure both ways."""
    args = arguments(
        __doc__, entries={"type": int, "default": 10_000_000}, new={"type": int, "default": 1_000}, delay={"type": float, "default": 0.02},
        rounds={"type": int, "default": 2}, spread={"action": "store_true"},
    )  # fmt: skip
    if args.way:
        print(json.dumps(measure(**json.loads(args.job))))
        return 0
    from services.s3 import moto

    print(f"{machine()}\nload {load()}; {args.entries:,} objects known, {args.new:,} new, answers after {args.delay} s", flush=True)
    verdict, count = Verdict(), args.new + FIRST
    first, warm, by_listing = list[float](), list[float](), list[float]()
    with workplace(args.at) as place, moto() as queues:
        step = args.entries // count if args.spread else 0
        new = list(range(step // 2, args.entries, step)) if step else list(range(args.entries, args.entries + count))
        began = time.monotonic()
        dest = made(place, args.entries, step)
        print(f"  the ledger is made in {time.monotonic() - began:.0f} s; load {load()}", flush=True)
        with serving("bucketserver.py", delay=args.delay, size=SIZE, blobs=max(args.entries, new[-1] + 1)) as port:
            for n in range(args.rounds):
                for way, runs in (("events", [new[:FIRST], new[FIRST:]]), ("listing", [[]])):
                    copy = place / "copy"
                    shutil.copytree(dest, copy)
                    queue = made_queue(queues, f"q{n}") if way == "events" else ""
                    result = fresh(__file__, way, dest=str(copy), port=port, queue=queue, runs=runs)
                    assert sum(result["files"]) == len(new), result
                    print(f"  {way}: {result}; load {load()}", flush=True)
                    if way == "listing":
                        by_listing += result["seconds"]
                    else:
                        first, warm = first + result["seconds"][:1], warm + result["seconds"][1:]
                    shutil.rmtree(copy)
    ratio = median(by_listing) / median(warm)
    row = (
        "spread" if step else "at the end",
        listed(first, "{:.2f}"),
        listed(warm, "{:.2f}"),
        listed(by_listing, "{:.1f}"),
        f"{ratio:.0f}",
    )
    print("\n" + table(["new names", "events, first run s", "events s", "listing s", "ratio"], [row]) + f"\nload {load()}")
    verdict.check("by events against listing", "≥ 100 ×", f"{ratio:.0f} ×", ratio >= 100)
    return verdict.end()


def made_queue(endpoint: str, name: str) -> str:
    """A queue of moto's."""
    import boto3

    made = boto3.client("sqs", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s")
    made.create_queue(QueueName=name)
    return f"{endpoint}/123456789012/{name}"


if __name__ == "__main__":
    sys.exit(main())
