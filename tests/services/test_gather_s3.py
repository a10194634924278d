"""Gathering into S3 and out of it, on a real server: nothing is seen before the commit, each file is there once, and a process that
is killed in the middle leaves nothing that the next run does not make good."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import documents, gather, refused
from quire.commit import names, protocol
from quire.commit.log import Log
from quire.errors import UsageError
from quire.storage import Store, bare
from services import s3
from services.spark import end_session

FILES = documents(60)
LINES = sorted(line for content in FILES.values() for line in content.decode().splitlines())


@pytest.fixture
def root() -> str:
    return f"s3://{s3.BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def options(seaweedfs: str) -> dict[str, Any]:
    return s3.options(seaweedfs)


@pytest.fixture
def source(root: str, options: dict[str, Any]) -> str:
    """Small files in S3."""
    store = bare(f"{root}/in", options)
    for name, content in FILES.items():
        store.put(name, content)
    return f"{root}/in"


def dest(root: str, options: dict[str, Any]) -> Store:
    return bare(f"{root}/out", options)


def lines(store: Store) -> list[str]:
    """What readers of the log get."""
    log = Log(store).refresh()
    files = [file.name for _, c in log.commits() for task in log.in_effect(c, reader=True) for file in task.data_files]
    assert sorted(files) == sorted(e.name for e in store.walk() if not e.name.startswith("_quire/")), (
        "readers of the directory see the same"
    )
    return sorted(line for name in files for line in store.get(name).decode().splitlines())


def settled(store: Store) -> None:
    """All there, each line once, and nothing left over."""
    assert lines(store) == LINES
    assert list(store.pending()) == []
    assert {e.name.split("/")[1] for e in store.walk("_quire")} == {"log", "ledger"}


def test_gathered_by_uploads(root: str, source: str, options: dict[str, Any]) -> None:
    """`auto` is upload here; the second call finds nothing to do, and new files come once."""
    report = gather(source, f"{root}/out", storage_options=options, target_size="1000 B")
    store = dest(root, options)
    settled(store)
    assert report.files == 60
    assert {c.committer for _, c in Log(store).refresh().commits()} == {"upload"}
    assert gather(source, f"{root}/out", storage_options=options, target_size="1000 B").files == 0
    bare(source, options).put("d9/more.txt", LINES[0].encode())
    assert gather(source, f"{root}/out", storage_options=options, target_size="1000 B").files == 1
    assert lines(store) == sorted([*LINES, LINES[0]])


def test_rename_is_refused(root: str, source: str, options: dict[str, Any]) -> None:
    for committer in ("rename", "rename_v2"):
        with refused(UsageError, 2, f"committer='{committer}' cannot work in s3://", "Use 'upload'"):
            gather(source, f"{root}/out", storage_options=options, committer=committer)


def test_given_up_leaves_nothing(root: str, source: str, options: dict[str, Any]) -> None:
    """Written and not committed, then given up on request."""
    store = dest(root, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "commit", _killed)
        with suppress(KeyboardInterrupt):
            gather(source, f"{root}/out", storage_options=options, target_size="1000 B")
    assert len(list(store.pending())) > 1
    assert [e.name for e in store.walk() if not e.name.startswith("_quire/")] == []
    protocol.recover(store, "open")
    assert list(store.pending()) == []
    assert [e.name for e in store.walk()] == [names.entry(1)]


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_uploads_that_were_dropped_before_they_were_published(root: str, source: str, options: dict[str, Any]) -> None:
    """By a life-cycle rule, say: the log names the tasks as lost, and they are gathered again."""
    store = dest(root, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "publish", _killed)
        with suppress(KeyboardInterrupt):
            gather(source, f"{root}/out", storage_options=options, target_size="1000 B")
    for name, handle in list(store.pending())[:2]:
        store.give_up(name, handle)
    report = gather(source, f"{root}/out", storage_options=options, target_size="1000 B")
    settled(store)
    assert report.files > 0
    assert any(getattr(entry, "lost", ()) for entry in Log(store).refresh().entries)


SCRIPT = """
    import json, os, sys, quire
    source, dest, options = sys.argv[1], sys.argv[2], json.loads(os.environ["TESTS_OPTIONS"])
    spark = quire.session(master="local[2]")
    report = quire.consolidate(source, dest, spark=spark, storage_options=options, target_size="1000 B", progress=False)
    print(report.files)
"""


@pytest.mark.services
@pytest.mark.timeout(900)
def test_on_spark_and_killed_in_the_middle(root: str, source: str, options: dict[str, Any], tmp_path: Path) -> None:
    """The driver and all of its workers are killed when uploads wait; the next run goes on and ends it."""
    store = dest(root, options)
    with _driver(source, f"{root}/out", options, tmp_path) as first:
        until = time.monotonic() + 250
        while not list(store.pending()):
            assert first.poll() is None, (tmp_path / "log").read_text()[-2000:]
            assert time.monotonic() < until
            time.sleep(0.02)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert set(lines(store)) <= set(LINES)
    with _driver(source, f"{root}/out", options, tmp_path) as second:
        assert second.wait(200) == 0, (tmp_path / "log").read_text()[-2000:]
    settled(store)


class _driver:  # noqa: N801 (a context)
    """Spark in a process group of its own."""

    def __init__(self, source: str, dest: str, options: dict[str, Any], folder: Path) -> None:
        import json

        environment = os.environ | {"TESTS_OPTIONS": json.dumps(options)}
        with (folder / "log").open("ab") as log:
            command = [sys.executable, "-c", textwrap.dedent(SCRIPT), source, dest]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(self, *_: object) -> None:
        end_session(self.process)  # unless all of it has ended: its number may be another's by now


def test_read_on_spark(root: str, source: str, options: dict[str, Any], spark: Any) -> None:
    """What was gathered there is read by a session here."""
    gather(source, f"{root}/out", storage_options=options, target_size="1000 B")
    rows = quire.read(f"{root}/out", storage_options=options, spark=spark).collect()
    assert sorted(row.value.decode() for row in rows) == LINES
