"""A log of which somebody has deleted entries does not pass for a shorter one, and one that nothing was written to yet is not lost."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import quire
from checker import tree
from gathering import gather, refused, write
from quire.commit import names, protocol
from quire.commit.entries import Pin
from quire.commit.held import Held
from quire.commit.log import Log
from quire.errors import FormatError
from quire.storage import Store, connect

sys.path.append(str(Path(__file__).parents[1] / "table"))

from test_into import process, put
from test_writes import create


def store_of(dest: Path) -> Store:
    return connect(f"file://{dest}")


def cut_off(dest: Path, after: int) -> None:
    """Delete the entries of the log after a number."""
    for path in (dest / names.LOG).glob(f"*{names.ENTRY}"):
        if int(path.name.removesuffix(names.ENTRY)) > after:
            path.unlink()


CALLS: dict[str, Callable[[Path, Path], object]] = {
    "consolidate": gather,
    "recover": lambda _source, dest: quire.recover(dest),
    "giving up": lambda _source, dest: quire.recover(dest, abort="open"),
    "expire": lambda _source, dest: quire.Ledger(dest).expire(),
    "claim": lambda source, dest: quire.Ledger(dest).claim(source, spark=quire.LocalRunner()).__enter__(),
    "a loop": lambda _source, dest: protocol.recovered(store_of(dest), held=Held()),
}


@pytest.mark.nth(6)
@pytest.mark.parametrize("after", [0, 2, 4])
@pytest.mark.parametrize("call", CALLS)
def test_a_log_that_is_gone_or_cut_off_is_said_and_nothing_is_touched(tmp_path: Path, call: str, after: int) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    for i in range(4):
        gather(write(source, {f"{i}.txt": b"one\n"}), dest)
    cut_off(dest, after)
    before = tree(dest, hidden=True)
    with refused(FormatError, 2, f"entries are gone from the log file://{dest}/_quire/log", f"ends with entry {after}", "put the log back"):
        CALLS[call](source, dest)
    assert tree(dest, hidden=True) == before, "not the ledger, either"


def test_a_log_that_was_lost_after_a_checkpoint_is_said(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.txt": b"one\n"}), tmp_path / "out"
    gather(source, dest)
    quire.Ledger(dest).checkpoint(spark=quire.LocalRunner())
    ends = Log(store_of(dest)).refresh().tip
    gather(write(source, {"b.txt": b"two\n"}), dest)
    cut_off(dest, ends)
    with refused(FormatError, 2, "entries are gone", f"ends with entry {ends}"):
        gather(source, dest)
    shutil.rmtree(dest / names.LOG)
    with refused(FormatError, 2, "entries are gone", f"ends with entry {ends}"):
        gather(source, dest)


@pytest.mark.parametrize("more", [{}, {"b.txt": b"two\n"}], ids=["nothing new", "a new file"])
def test_a_log_that_was_lost_with_all_that_a_checkpoint_has_merged_is_said(tmp_path: Path, more: dict[str, bytes]) -> None:
    source, dest = write(tmp_path / "in", {"a.txt": b"one\n"}), tmp_path / "out"
    gather(source, dest)
    quire.Ledger(dest).checkpoint(spark=quire.LocalRunner())
    shutil.rmtree(dest / names.LOG)
    write(source, more)
    with refused(FormatError, 2, f"{names.entry(1)} is gone"):
        gather(source, dest)


def test_a_first_entry_that_is_gone_is_said(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.txt": b"one\n"}), tmp_path / "out"
    gather(source, dest)
    (dest / names.entry(1)).unlink()
    with refused(FormatError, 2, f"{names.entry(1)} is gone"):
        gather(source, dest)


def test_a_loop_that_holds_the_log_sees_that_it_is_gone(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.txt": b"one\n"}), tmp_path / "out"
    gather(source, dest)
    held = Held()
    protocol.recovered(store_of(dest), held=held)
    gather(write(source, {"b.txt": b"two\n"}), dest)
    shutil.rmtree(dest / names.LOG)
    with refused(FormatError, 2, "entries are gone"):
        protocol.recovered(store_of(dest), held=held)


def test_what_a_reader_has_written_meanwhile_does_not_hide_it(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.txt": b"one\n"}), tmp_path / "out"
    gather(source, dest)
    shutil.rmtree(dest / names.LOG)
    Log(store_of(dest)).append(lambda log: None if log.tip else Pin(version=0, id="a" * 32, time=protocol.now()))
    with refused(FormatError, 2, "entries are gone"):
        gather(source, dest)


def test_a_table_whose_log_is_gone_is_not_filled_again(tmp_path: Path) -> None:
    source, table = tmp_path / "in", create(tmp_path / "trips")
    put(source, "1.json", ("a", "sf", 1, 1.0))
    process(source, table)
    shutil.rmtree(tmp_path / "trips" / ".hoodie" / names.LOG)
    before = tree(tmp_path / "trips", hidden=True)
    with refused(FormatError, 2, "entries are gone"):
        process(source, table)
    assert tree(tmp_path / "trips", hidden=True) == before


@pytest.mark.parametrize("runs", [0, 1])
def test_a_job_that_was_killed_before_its_commit_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    for i in range(runs):
        gather(write(source, {f"{i}.txt": b"one\n"}), dest)
    write(source, {"a.txt": b"one\n"})

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(protocol, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            gather(source, dest)
    store = store_of(dest)
    assert len(list(store.walk(names.LEDGER))) == runs + 1, "its segment is there"
    assert Log(store).refresh().tip == 2 * runs
    assert gather(source, dest).files == 1
