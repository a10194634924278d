"""The measured example of `quire.committers.lab`: all committers and faults on this machine, then what they cost on two stores.

    python tests/benchmarks/committers.py --jars DIR                       (more than an hour)
    python tests/benchmarks/committers.py --only local --committers v1,v2

Writes `measured.json` and `costs.json` beside the lab's code: what was measured anew takes the place of what was there. `--jars` is a
directory with hadoop-aws and hadoop-azure of Spark's Hadoop version, and what they need; without it S3A's committers are as they were.

local     Spark's committers and quire's on local disk
s3        SeaweedFS: quire's uploads, S3A's committers, v1
azure     Azurite: quire's uploads, the manifest committer and v1 by ABFS, without hierarchical names
s3_costs, azure_costs     requests, bytes copied and windows there, each answer 20 ms later
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from quire.committers import lab
from quire.storage import bare
from services import s3
from services.azurite import azurite, connection_string

HERE = Path(lab.__file__).parent
LOCAL = ["v1", "v2", "v1_attempt_id", "manifest", "manifest_naive", "quire_rename", "quire_rename_v2", "quire_write"]
S3 = ["quire_upload", "quire_write_upload", "magic", "directory", "partitioned", "v1"]
AZURE = ["quire_upload", "quire_write_upload", "manifest", "v1"]


@contextmanager
def seaweedfs_store() -> Iterator[tuple[str, dict[str, Any]]]:
    with s3.seaweedfs() as endpoint:
        yield f"s3://{s3.BUCKET}", s3.options(endpoint)


@contextmanager
def azurite_store() -> Iterator[tuple[str, dict[str, Any]]]:
    with azurite() as endpoint:
        options = {"connection_string": connection_string(endpoint)}
        bare("abfs://tests", options).create_container()  # type: ignore[attr-defined]
        yield "abfs://tests", options


def keep(found: lab.Matrix) -> None:
    """Put the rows into the example, in the places of those that they repeat."""
    try:
        there = lab.Matrix.example()
    except FileNotFoundError:
        there = lab.Matrix([])
    tried = {(row.committer, row.store) for row in found.rows if row.how == "measured"}
    # Why it could not be tried before is no news any more.
    there.rows = [row for row in there.rows if (row.committer, row.store) not in tried or row.how == "measured"]
    both = there.merged(found)
    committers, faults, stores = list(lab.COMMITTERS), ["", *lab.FAULTS], ["file", "s3a", "abfs"]

    def place(row: lab.Result) -> tuple[int, ...]:
        wanted = (committers, row.committer), (stores, row.store), (faults, row.fault)
        return tuple(order.index(name) if name in order else len(order) for order, name in wanted)

    both.rows.sort(key=place)
    both.save(HERE / "measured.json")
    print(found, flush=True)


def keep_costs(found: lab.Costs) -> None:
    try:
        there = lab.Costs.example().rows
    except FileNotFoundError:
        there = []
    mine = {(row.committer, row.store, row.files) for row in found.rows}
    lab.Costs([*(row for row in there if (row.committer, row.store, row.files) not in mine), *found.rows], found.made).save(
        HERE / "costs.json"
    )
    print(found, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", help="a directory")
    parser.add_argument("--only", default="local,s3,azure,s3_costs,azure_costs", help="some of these")
    parser.add_argument("--committers", help="some of a part's, separated by commas")
    parser.add_argument("--faults", help="some of the lab's")
    args = parser.parse_args()
    faults = args.faults.split(",") if args.faults else None
    parts = args.only.split(",")

    def chosen(names: list[str]) -> list[str]:
        return [name for name in names if not args.committers or name in args.committers.split(",")]

    began = time.monotonic()
    for name in chosen(LOCAL) if "local" in parts else []:
        keep(lab.run(name, faults, jars=args.jars, progress=False))
    for part, store, names in (("s3", seaweedfs_store, S3), ("azure", azurite_store, AZURE)):
        if not {part, f"{part}_costs"} & set(parts):
            continue
        with store() as (url, options):
            for name in chosen(names):
                if part in parts:
                    keep(lab.run(name, faults, f"{url}/lab-{name}", storage_options=options, jars=args.jars, progress=False))
                if f"{part}_costs" in parts:
                    keep_costs(lab.costs(name, f"{url}/costs-{name}", storage_options=options, jars=args.jars, progress=False))
    print(f"{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
