"""HDFS by Hadoop's own protocol, against a stand-in for libhdfs: the store's own part, and what is said where libhdfs is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import gather, refused
from quire.errors import QuireError, StorageError, TransientError, UsageError
from quire.storage import bare, normalise
from services.example import HOME, hdfs_native
from services.standin import Namenode


def test_the_main_job_runs_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Namenode(tmp_path / "hdfs")
    monkeypatch.setattr(hdfs_native, "_connect", lambda *_: node)
    store = bare("hdfs://node:8020/data")
    for i in range(9):
        store.put(f"in/d{i % 3}/f{i}", b"file %d\n" % i)
    report = gather("hdfs://node:8020/data/in", "hdfs://node:8020/data/out")
    assert (report.files, report.data_files) == (9, 1)
    assert gather("hdfs://node:8020/data/in", "hdfs://node:8020/data/out").files == 0
    ledger = quire.Ledger("hdfs://node:8020/data/out")
    assert ledger.read("hdfs://node:8020/data/in/d1/f4") == b"file 4\n"
    assert ledger.verify(spark=quire.LocalRunner()).ok
    assert not [e.name for e in store.walk("out/_quire") if "/jobs/" in e.name or "/tmp/" in e.name]


def test_a_clean_up_may_take_the_directory_of_temporary_files_away_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job that has ended sweeps it: before the file is opened, and before it gets its name."""
    node = Namenode(tmp_path / "hdfs")
    monkeypatch.setattr(hdfs_native, "_connect", lambda *_: node)
    store, swept = bare("hdfs://node:8020/data"), []

    def sweeping(name: str) -> Callable[[str], Any]:
        def call(path: str, *args: Any) -> Any:
            if "/_quire/tmp/" in path and name not in swept:
                swept.append(name)
                node.delete_dir("/data/_quire/tmp")
            return getattr(node.disk, name)(path, *args)

        return call

    for name in ("open_output_stream", "move"):
        monkeypatch.setattr(node, name, sweeping(name), raising=False)
        assert store.put_if_absent(f"_quire/{name}", b"kept")
        assert store.get(f"_quire/{name}") == b"kept"
    assert swept == ["open_output_stream", "move"]


def test_without_libhdfs_it_says_what_is_missing_and_what_to_take_instead() -> None:
    store = bare("hdfs://127.0.0.1:8020/data")
    with refused(StorageError, QuireError.exit_code, "libhdfs", "webhdfs://127.0.0.1:9870"):
        store.stat("a")


@pytest.mark.parametrize("url", ["hdfs://", "hdfs:///a", "hdfs://n:99999/a", "hdfs://n/a/../b", "hdfs://n/a//b", "hdfs://n/a:b"])
def test_urls_that_name_no_place_are_refused(url: str) -> None:
    with refused(UsageError, 2, "hdfs://"):
        normalise(url)


def test_one_place_has_one_url() -> None:
    assert normalise("hdfs://Node:8020/data/") == "hdfs://node/data", "the usual port"
    assert normalise("hdfs://cluster/data") == "hdfs://cluster/data"


def test_libhdfs_that_does_not_know_a_host_is_not_asked_again() -> None:
    store = hdfs_native.opened("hdfs://mispelt/x", {})
    said = "HDFS list directory failed, errno: 255 (Unknown error 255). Detail: UnknownHostException: mispelt"
    with refused(StorageError, StorageError.exit_code, "DNS does not know a host", "mispelt") as caught, store.explained("list", "a"):
        raise OSError(255, said)
    assert not isinstance(caught.value, TransientError)


def test_without_the_package_its_urls_say_what_to_install_and_what_to_take_instead() -> None:
    script = "import quire, sys; sys.argv[1:] and quire.plan(sys.argv[1], 'out')"
    done = subprocess.run([sys.executable, "-c", script, "hdfs://node/in"], capture_output=True, text=True)
    line = done.stderr.splitlines()[-1]
    for words in ("webhdfs://namenode:9870/path", "examples/hdfs_native", "an entry point of the group quire.stores (docs/stores.md)"):
        assert words in line, line


def test_nothing_in_quire_knows_the_package() -> None:
    sources = (HOME.parents[1] / "toolkit").rglob("*.py")
    assert not [path for path in sources if "quire_hdfs_native" in path.read_text()]
