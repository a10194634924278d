"""A log that somebody has deleted does not pass for an empty one, and one that nothing was written to yet is none that is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import quire
from checker import tree
from gathering import gather, refused, write
from quire.commit import names, protocol
from quire.errors import FormatError
from quire.storage import connect


@pytest.mark.parametrize("runs", [1, 2])
def test_a_log_that_is_gone_is_said_and_nothing_is_gathered_again(tmp_path: Path, runs: int) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    for i in range(runs):
        gather(write(source, {f"{i}.txt": b"one\n"}), dest)
    shutil.rmtree(dest / names.LOG)
    before = tree(dest, hidden=True)
    with refused(FormatError, 2, f"the log file://{dest}/_quire/log is gone", "put the log back"):
        gather(source, dest)
    with refused(FormatError, 2, "is gone"):
        quire.recover(dest)
    assert tree(dest, hidden=True) == before, "not the ledger, either"


def test_a_job_that_was_killed_before_its_commit_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a.txt": b"one\n"}), tmp_path / "out"

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(protocol, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            gather(source, dest)
    store = connect(f"file://{dest}")
    assert list(store.walk(names.LEDGER)), "its segment is there"
    assert not list(store.walk(names.LOG))
    assert gather(source, dest).files == 1
