"""Spark's daemon on this machine, from which each Python worker is forked, with what quire's tasks load in it: no worker loads it again.

    python -m quire.spark.daemon        # as Spark starts it, for `spark.python.daemon.module`

Without it every worker takes a second of a core for that in its first task, and small jobs consist mostly of it.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from contextlib import suppress

WORKERS = ("pyspark.worker", "pyspark.sql.pandas.serializers")
# By their names, as they stand above this room; those of a store are loaded if its packages are there.
MODULES = (
    "quire.engine.driver", "quire.write.spark", "pandas",  # for which Arrow looks as soon as it makes an array
    "boto3", "botocore.httpsession", "quire.storage.s3.store", "requests", "quire.storage.azure.store",
)  # fmt: skip


def load() -> None:
    """Load what quire's calls and their tasks need; who needs a module that does not load says what is wrong with it."""
    for name in MODULES:
        with suppress(Exception):  # whatever a package's own code raises
            importlib.import_module(name)
    with suppress(Exception):  # boto3's first client reads its descriptions of the service, which takes a quarter of a second
        from quire.storage.s3.account import account

        account({"key": "none", "secret": "none", "endpoint_url": "http://localhost", "client_kwargs": {"region_name": "none"}}).client()


def main() -> None:
    """Load it, and serve Spark."""
    from pyspark.daemon import manager

    for name in WORKERS:
        with suppress(Exception):
            importlib.import_module(name)
    load()
    os.register_at_fork(after_in_child=_draw_anew)
    gc.collect()
    gc.freeze()  # else the collector of each worker would copy the pages that all share
    manager()


def _draw_anew() -> None:
    """Forks would draw the same numbers from numpy's generator; Python's own is seeded anew by itself."""
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed()


if __name__ == "__main__":
    main()
