"""What a store cannot do just now is tried again and said; what lasts ends the call with one line that says how to go on."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from checker import check
from gathering import documents, gather, not_taken, write
from quire.cli import main
from quire.errors import NotFoundError, StorageError, TransientError
from quire.storage import bare, connect, normalise, retry
from quire.storage.base import WithoutUploads
from quire.storage.local import LocalStore


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses take no time, and are written down."""
    pauses = list[float]()
    monkeypatch.setattr(retry, "pause", pauses.append)
    monkeypatch.setattr(retry, "clock", lambda: sum(pauses))
    return pauses


class Fails:
    """An operation that fails at some of its calls, before or after its effect."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        where: Any,
        name: str,
        at: Callable[[int], bool],
        *,
        after: bool = False,
        code: int = errno.ETIMEDOUT,
    ) -> None:
        self.calls, self.failed = 0, 0
        real = getattr(where, name)

        def failing(*args: Any, **options: Any) -> Any:
            self.calls += 1
            fails = at(self.calls)
            if after or not fails:
                answer = real(*args, **options)
            if fails:
                self.failed += 1
                raise OSError(code, os.strerror(code))
            return answer

        patch.setattr(where, name, failing)


def first(n: int) -> Callable[[int], bool]:
    return lambda call: call <= n


# ------------------------------------------------------------------------------------------------------------ operations
def test_it_is_tried_again_longer_and_longer_apart_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: list[float]) -> None:
    told = list[str]()
    store = connect(normalise(tmp_path), on_retry=told.append)
    store.put("a", b"data")
    Fails(monkeypatch, LocalStore, "_open", first(5))
    assert store.get("a") == b"data"
    assert len(waited) == 5
    assert all(0.1 * 2**n <= pause <= 0.2 * 2**n for n, pause in enumerate(waited))
    assert len(told) == 5
    assert all("cannot read" in text and f"{tmp_path}/a" in text and "trying again in" in text for text in told)


def test_patience_ends_and_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: list[float]) -> None:
    store = connect(normalise(tmp_path))
    store.put("a", b"data")
    fails = Fails(monkeypatch, LocalStore, "_open", lambda _: True)
    with pytest.raises(TransientError, match=r"cannot read .*/a: .*timed out \(tried [0-9]+ times in [0-9]+ s\)$") as caught:
        store.get("a")
    assert f"tried {fails.calls} times" in str(caught.value)
    assert 40 <= sum(waited) <= retry.PATIENCE
    assert max(waited) <= retry.LONGEST


def test_a_store_that_says_when_to_come_again_is_obeyed(waited: list[float]) -> None:
    class Throttled(WithoutUploads):
        url, can_rename, shared, answers = "memory://x", True, False, iter([TransientError("429", wait=7.5), None])

        def get(self, name: str) -> bytes:
            if (error := next(self.answers)) is not None:
                raise error
            return b"data"

    store: Any = retry.Retrying(Throttled())  # type: ignore[arg-type]
    assert store.get("a") == b"data"
    assert waited == [7.5]


@pytest.mark.parametrize("after", [False, True], ids=["no effect", "no answer"])
def test_a_write_that_is_tried_again_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    store = connect(normalise(tmp_path))
    store.put("old", b"old")
    Fails(monkeypatch, os, "replace", first(2), after=after)
    store.put("a", b"new")
    Fails(monkeypatch, os, "link", first(2), after=after)
    assert store.put_if_absent("b", b"new") or after  # its own first try may be there: whoever calls it reads what is there
    Fails(monkeypatch, os, "rename", first(2), after=after)
    store.rename("old", "c")
    Fails(monkeypatch, os, "unlink", first(2), after=after)
    store.remove("c")
    assert {e.name: store.get(e.name) for e in store.walk() if not e.name.startswith("_quire/tmp")} == {"a": b"new", "b": b"new"}


def test_a_rename_of_what_is_not_there_fails_at_once_also_where_the_target_is(tmp_path: Path, waited: list[float]) -> None:
    store = connect(normalise(tmp_path))
    store.put("new", b"data")
    with pytest.raises(NotFoundError):
        store.rename("old", "new")
    assert not waited


def test_what_will_not_pass_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: list[float]) -> None:
    """After an EIO the system says that an fsync succeeded the second time, though the bytes are lost."""
    store = connect(normalise(tmp_path))
    for code in (errno.EIO, errno.ENOSPC, errno.EACCES):
        Fails(monkeypatch, os, "link", first(1), code=code)
        with pytest.raises(StorageError) as caught:
            store.put_if_absent("a", b"data")
        assert not isinstance(caught.value, TransientError)
    assert not waited
    assert bare(normalise(tmp_path)).stat("a") is None


# ------------------------------------------------------------------------------------------------------------- the whole job
@pytest.mark.nth(2)
@pytest.mark.parametrize("what", ["open", "scandir", "link", "replace", "rename", "fsync", "mkdir", "read"])
def test_a_job_on_a_share_that_is_away_now_and_then_gathers_everything_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    source = write(tmp_path / "in", documents(40))
    told = list[quire.ProgressEvent]()
    with monkeypatch.context() as patch:
        if what == "read":
            fails = _read_fails(patch)
        else:
            # Not for ever: in step with what tasks do, the same call of each could fail each time.
            fails = Fails(patch, os, what, lambda call: call % 7 == 1 and call < 100, after=what not in ("open", "scandir"))
        report = quire.consolidate(source, tmp_path / "out", spark=quire.LocalRunner(), progress=told.append, planner="hash", parts=3)
    assert fails.failed
    assert (report.files, not_taken(report)) == (40, 0)
    assert len(check(source, tmp_path / "out").done) == 40
    if what not in ("fsync", "mkdir"):  # of which most are in a task's files, which is done again whole
        assert report.retries
        assert re.search(rf"retries +{report.retries:,}\n", str(report))
        assert told[-1].retries == report.retries
        waits = [step.waits for step in told if step.waits]
        assert all("trying again in" in text for text in waits)


def _read_fails(patch: pytest.MonkeyPatch) -> Fails:
    """Only the answers of `read_many`: bytes of a source's files."""
    real = LocalStore.read_many
    fails = Fails.__new__(Fails)
    fails.calls = fails.failed = 0

    def read_many(self: LocalStore, requests: Any) -> Iterator[Any]:
        from quire.storage import Busy

        for request, content in real(self, requests):
            fails.calls += 1
            busy = fails.calls % 5 == 1
            fails.failed += busy
            yield request, Busy("TimeoutError: Connection timed out") if busy else content

    patch.setattr(LocalStore, "read_many", read_many)
    return fails


def test_a_file_that_cannot_be_looked_up_just_now_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quire.storage import Files, Trouble

    source = write(tmp_path / "in", documents(12))
    real = LocalStore.scan_pages

    def scan(self: LocalStore, folder: str = "", **options: Any) -> Iterator[Any]:
        found = (entry for item in real(self, folder, **options) for entry in (item.entries() if isinstance(item, Files) else (item,)))
        for item in found:
            named = item.name.endswith(("1.txt", "3.xml")) and "_quire" not in item.name
            yield Trouble(item.name, "busy", "cannot look up the file: Stale file handle") if named else item

    monkeypatch.setattr(LocalStore, "scan_pages", scan)
    report = gather(source, tmp_path / "out")
    assert (report.files, not_taken(report)) == (12, 0)


def test_the_progress_line_says_why_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quire.progress import Phase, ProgressEvent, _words

    shown = list[str]()
    phase = Phase(ProgressEvent("gathering", total=100, unit="B"), lambda step: shown.append(_words(step)))
    phase.to(10, tasks=1, files=5)
    phase.again("cannot write file:///out/a: timed out: trying again in 1.6 s")
    phase.to(20, tasks=2, files=9)
    phase.to(30, tasks=3, files=12, retries=2)
    assert shown[1:] == [
        "1 tasks, 5 files",
        "cannot write file:///out/a: timed out: trying again in 1.6 s",
        "2 tasks, 9 files, 1 retry",
        "3 tasks, 12 files, 3 retries",
    ]


# ------------------------------------------------------------------------------------------------------------ what lasts
def away_from(patch: pytest.MonkeyPatch, phase: str) -> list[quire.ProgressEvent]:
    """From the first sign of a phase on, nothing reaches the destination any more; what the caller is told."""
    told = list[quire.ProgressEvent]()
    gone = list[bool]()

    def tell(step: quire.ProgressEvent) -> None:
        told.append(step)
        if step.phase == phase and (step.done or phase == "listing"):
            gone.append(True)

    for name in ("put", "put_if_absent", "create", "rename"):
        real = getattr(LocalStore, name)

        def failing(self: LocalStore, *args: Any, real: Any = real) -> Any:
            if gone:
                raise TransientError(f"cannot write {self.url}/{args[0]}: 503 the share is away")
            return real(self, *args)

        patch.setattr(LocalStore, name, failing)
    told_to: Any = tell
    return told_to


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("listing", ["Nothing was changed", "call again"]),
        ("gathering", ["tasks failed", "are done and kept", "nothing of it is visible", "call again to go on", "recover('file:"]),
        ("publishing", ["is committed and", "data files are in their places", "call again"]),
    ],
)
def test_a_lasting_error_says_what_was_done_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, said: list[str]
) -> None:
    source = write(tmp_path / "in", documents(40))
    options: dict[str, Any] = {"planner": "hash", "parts": 3}
    with monkeypatch.context() as patch:
        tell: Any = away_from(patch, phase)
        with pytest.raises(quire.QuireError) as caught:
            quire.consolidate(source, tmp_path / "out", spark=quire.LocalRunner(), progress=tell, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert "503 the share is away" in text
    assert not [words for words in said if words not in text], text
    report = gather(source, tmp_path / "out", **options)  # the same call
    assert len(check(source, tmp_path / "out").done) == 40
    assert report.skipped + report.files == 40


def test_the_shell_is_told_the_command_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    write(tmp_path / "in", documents(3))
    (tmp_path / "out").mkdir()
    write(tmp_path / "out" / "_quire" / "log", {})
    monkeypatch.setattr(LocalStore, "walk", _away)
    command = ["recover", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["quire", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    said = capsys.readouterr().err
    assert "503" in said
    assert f"The same command: quire {' '.join(command)}" in said
    assert len(said.strip().splitlines()) == 1


def _away(self: LocalStore, folder: str = "") -> Iterator[Any]:
    raise TransientError("503 the share is away")
    yield
