"""What tests share: one small Spark, and a store that has to be opened with options."""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd  # noqa: F401  # Arrow imports it when it is first needed: no example of a property test is to pay for that
import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from gathering import KEY
from quire.errors import RefusedError
from quire.spark.session import session
from quire.storage import STORES, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession


settings.register_profile("quire", deadline=None)  # a busy machine fails no example
settings.load_profile("quire")


@pytest.hookimpl(tryfirst=True)  # before the lanes are told apart
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send what is marked `seldom`, and all but each n-th case of a test marked `nth(n)`, to the nightly lane; mutants meet all of them."""
    if "QUIRE_EACH_CASE" in os.environ:
        return
    seen = Counter[str]()
    for item in items:
        if item.get_closest_marker("seldom"):
            item.add_marker("nightly")
        thin = item.get_closest_marker("nth")
        if thin is None or any(item.get_closest_marker(lane) for lane in ("bench", "chaos", "nightly")):
            continue
        name = item.nodeid.partition("[")[0]
        if seen[name] % thin.args[0]:
            item.add_marker("nightly")
        seen[name] += 1


class _Scheduling(LoadFileScheduling):
    """The tests of a file run in one process, and all tests on Spark in one, so that only one starts, and gets warm."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        return "spark" if test.partition("[")[0] in _on_spark(file) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    return _Scheduling(config, log)


@functools.cache
def _on_spark(file: str) -> set[str]:
    """The functions of a file that take the fixture `spark`, or another fixture of the file that does."""
    tree = ast.parse((Path(__file__).parent.parent / file).read_text("utf-8"))
    takes = {each.name: {arg.arg for arg in each.args.args} for each in tree.body if isinstance(each, ast.FunctionDef)}
    found, more = set[str](), {"spark"}
    while more:
        more = {name for name, arguments in takes.items() if arguments & (more | found)} - found
        found |= more
    return found


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A Spark of two threads for the whole run; `quire.session()` returns the same one."""
    started = session({"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2}, master="local[2]", app_name="quire tests")
    yield started
    started.stop()


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The URL of a place in a store of this process that is opened with the options `KEY`; each test has one of its own."""

    def opened(url: str, options: Mapping[str, object] | None) -> MemoryStore:
        if (options or {}).get("key") != KEY["key"]:
            raise RefusedError(f"{url} is not opened without its key")
        return MemoryStore(url)

    module = SimpleNamespace(normalise=lambda scheme, rest: f"{scheme}:{rest}", opened=opened)
    monkeypatch.setitem(sys.modules, "vault_of_a_test", module)  # type: ignore[arg-type]  # it has what a module of a store has
    monkeypatch.setitem(STORES.own, "vault", "vault_of_a_test")  # type: ignore[arg-type]  # it is a dictionary
    return f"vault://{tmp_path.name}"
