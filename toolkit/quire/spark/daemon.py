"""Spark's daemon on this machine, from which each Python worker is forked, with what quire's tasks load in it: no worker loads it again.

    python -m quire.spark.daemon        # as Spark starts it, for `spark.python.daemon.module`

Without it every worker takes a second of a core for that in its first task, and small jobs consist mostly of it.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

WORKERS = ("pyspark.worker", "pyspark.sql.pandas.serializers")
# By their names, as they stand above this room; those of a store are loaded if its packages are there.
MODULES = (
    "quire.engine.driver", "quire.write.spark", "pandas",  # for which Arrow looks as soon as it makes an array
    "boto3", "botocore.httpsession", "quire.storage.s3.store", "requests", "quire.storage.azure.store",
)  # fmt: skip


def load(*more: str) -> None:
    """Load what quire's tasks need, and `more`; who needs a module that does not load says what is wrong with it."""
    for name in (*MODULES, *more):
        with suppress(Exception):  # whatever a package's own code raises
            importlib.import_module(name)
    with suppress(Exception):  # boto3's first client reads its descriptions of the service, which takes a quarter of a second
        from quire.storage.s3.account import account

        account({"key": "none", "secret": "none", "endpoint_url": "http://localhost", "client_kwargs": {"region_name": "none"}}).client()


def main() -> None:
    """Load it, and serve Spark."""
    sys.path[:] = installed_first(sys.path)
    from pyspark.daemon import manager

    for name in WORKERS:
        with suppress(Exception):
            importlib.import_module(name)
    load()
    os.register_at_fork(after_in_child=_draw_anew)
    gc.collect()
    gc.freeze()  # else the collector of each worker would copy the pages that all share
    manager()


def installed_first(path: Sequence[str]) -> list[str]:
    """Where modules are looked for, with Spark's own archives last where the same pyspark is installed: of an archive no bytecode is kept,
    so that each daemon would compile it, for most of a second.
    """
    imported = next((each for each in path if os.path.isfile(os.path.join(each, "pyspark", "__init__.py"))), "")
    lib = os.path.realpath(os.path.join(imported, "pyspark", "python", "lib"))
    # Of pyspark and of py4j: both are copies of what the package manager has installed.
    copies = {each for each in path if each.endswith(".zip") and os.path.realpath(os.path.dirname(each)) == lib}
    return [*(each for each in path if each not in copies), *(each for each in path if each in copies)]


def _draw_anew() -> None:
    """Forks would draw the same numbers from numpy's generator; Python's own is seeded anew by itself."""
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed()


if __name__ == "__main__":
    main()
