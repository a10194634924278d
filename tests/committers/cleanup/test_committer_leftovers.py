"""What jobs have left is found and what it costs; sweeping it takes nothing else, and nothing while a job may be running."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from gathering import documents, gather, write
from quire.committers import inspect_success, sweep
from quire.errors import RefusedError, UsageError

ONE, TWO = "11111111-2222-3333-4444-555555555555", "99999999-8888-7777-6666-555555555555"
JOB = "202611220609463300_0001"
LEFT = {
    f"_temporary/0/_temporary/attempt_{JOB}_m_000003_7/part-00003-{ONE}-c000.json": b"abc",
    f"_temporary/0/task_{JOB}_m_000001/part-00001-{ONE}-c000.json": b"abcd",
    f".spark-staging-{TWO}/p=1/part-00000-{TWO}.c000.json": b"ab",
    f"__magic_job-{TWO}/tasks/0/x.pending": b"{}",
}
DATA = {
    f"part-00000-{ONE}-c000.json": b'{"id":1}\n', f"p=1/part-00000-{ONE}.c000.json": b'{"id":2}\n', "_SUCCESS": b"",
    "._SUCCESS.crc": b"crc",
    "_hidden/x.json": b"x", "_part=1/part-00000-x.json": b"yy", "_quire/log/00000000000000000001.entry": b"{}", "notes.txt": b"hello",
}  # fmt: skip
MARKER = {
    "name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1", "committer": "magic", "jobId": ONE, "filenames": [],
    "diagnostics": {"fs.s3a.committer.magic.enabled": "true"},
}  # fmt: skip


def old(place: Path, hours: float = 5) -> None:
    """As if nothing had been touched for a while."""
    then = time.time() - hours * 3600
    for path in [place, *place.rglob("*")]:
        os.utime(path, (then, then))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    write(tmp_path / "out", {**DATA, **LEFT})
    old(tmp_path / "out")
    return tmp_path / "out"


def names(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


# ----------------------------------------------------------------------------------------------------------------------- sweep
def test_sweep_says_what_would_go_and_touches_nothing(out: Path) -> None:
    before = names(out)
    told = sweep(str(out))
    assert told.dry_run
    assert {(item.name, item.kind, item.files, item.bytes, item.job) for item in told.folders} == {
        ("_temporary", "_temporary", 2, 7, JOB), (f".spark-staging-{TWO}", "staging", 1, 2, TWO),
        (f"__magic_job-{TWO}", "magic", 1, 2, TWO),
    }  # fmt: skip
    assert told.bytes == 11
    assert all(4.9 * 3600 < item.age < 5.1 * 3600 for item in told.folders)
    assert "nothing was removed" in str(told)
    assert JOB in told._repr_html_()
    assert json.loads(json.dumps(told.as_dict()))["bytes"] == 11
    assert names(out) == before


def test_sweep_takes_what_was_left_and_nothing_else(out: Path) -> None:
    sweep(str(out), dry_run=False)
    assert names(out) == set(DATA)
    assert {path.name for path in out.iterdir()} == {name.split("/")[0] for name in DATA}
    assert sweep(str(out), dry_run=False).folders == ()


@pytest.mark.parametrize("fresh", [name for name in LEFT if "magic" not in name])
def test_sweep_refuses_where_a_job_may_be_running_and_says_which_and_since_when(out: Path, fresh: str) -> None:
    then = time.time() - 130
    os.utime(out / fresh, (then, then))
    before = names(out)
    for dry_run in (True, False):
        with pytest.raises(RefusedError, match=r"2 min ago, so a job may be running") as caught:
            sweep(str(out), dry_run)
        assert (JOB if "_temporary" in fresh else TWO) in str(caught.value)
        assert "min_age=0" in str(caught.value)
    assert names(out) == before
    sweep(str(out), dry_run=False, min_age="1 min")
    assert names(out) == set(DATA)


def test_a_job_that_has_only_made_its_directory_counts_as_running(tmp_path: Path) -> None:
    (tmp_path / "out/_temporary/0").mkdir(parents=True)
    with pytest.raises(RefusedError, match="may be running"):
        sweep(str(tmp_path / "out"), dry_run=False)
    old(tmp_path / "out")
    sweep(str(tmp_path / "out"), dry_run=False)
    assert list((tmp_path / "out").iterdir()) == []


def test_where_it_is_not_known_when_something_changed_sweep_refuses(tmp_path: Path) -> None:
    from quire.storage import memory, normalise

    store = memory.MemoryStore(normalise("memory://sweeping"))
    store.put("_temporary/0/x", b"x")
    with pytest.raises(RefusedError, match="may be running"):
        sweep("memory://sweeping", dry_run=False)
    assert sweep("memory://sweeping", dry_run=False, min_age=0).folders[0].files == 1
    assert list(store.walk()) == []


def test_sweep_leaves_a_destination_of_quires_own_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "in", documents(3, "xml"))
    gather(tmp_path / "in", tmp_path / "out", transform="xml")
    before = names(tmp_path / "out")
    assert sweep(str(tmp_path / "out"), dry_run=False, min_age=0).folders == ()
    assert names(tmp_path / "out") == before


def test_a_link_is_not_followed_out_of_the_destination(tmp_path: Path) -> None:
    write(tmp_path / "else", {"precious": b"x"})
    (tmp_path / "out").mkdir()
    (tmp_path / "out/_temporary").symlink_to(tmp_path / "else")
    sweep(str(tmp_path / "out"), dry_run=False, min_age=0)
    assert (tmp_path / "else/precious").exists()


@pytest.mark.parametrize(
    ("url", "more", "words"),
    [
        ("nope://x", {}, "kind of store"),
        ("ftp://x", {}, "can be a source alone"),
        ("/x", {"min_age": "soon"}, "min_age"),
        ("/x", {"dry_run": None}, "dry_run"),
        (7, {}, "path"),
    ],
)
def test_a_wrong_question_to_sweep_gets_one_line(url: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sweep(url, **more)


# --------------------------------------------------------------------------------------------------------------------- inspect
def test_an_empty_marker_is_of_the_old_committers_and_left_overs_are_counted(out: Path) -> None:
    told = inspect_success(str(out))
    assert (told.state, told.claimed) == ("committed", "")
    assert "FileOutputCommitter" in told.committer
    assert (told.files, told.jobs) == (4, 1), "with notes.txt and _part=1, without what readers pass over"
    assert told.cost == 11
    assert not told.ok
    assert any(JOB in warning and "sweep(" in warning for warning in told.warnings)
    assert "11 B" in str(told)
    sweep(str(out), dry_run=False)
    assert inspect_success(str(out)).ok


def test_no_marker_is_said(tmp_path: Path) -> None:
    write(tmp_path, {f"part-00000-{ONE}.json": b"x"})
    told = inspect_success(str(tmp_path))
    assert (told.state, told.committer, told.ok) == ("no marker", "not known", False)
    assert "no job has ended well" in told.warnings[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not JSON"), (b"\xff\xfe", "not JSON"), (b" \n", "not JSON"), (b"[" * 100_000, "not JSON"),
        (b"[]", "names no committer"), (b"7", "names no committer"), (b"{}", "names no committer"),
        (b'{"committer": null, "filenames": []}', "names no committer"), (b'{"committer": NaN}', "names no committer"),
        (b'{"committer": "magic", "filenames": 7}', "not a list of names"),
        (b'{"committer": "magic", "filenames": "abc"}', "not a list of names"),
        (b'{"committer": "magic", "filenames": [null]}', "not a list of names"),
    ],
)  # fmt: skip
def test_a_damaged_marker_is_said_and_ends_nothing(tmp_path: Path, content: bytes, words: str) -> None:
    write(tmp_path, {"_SUCCESS": content})
    told = inspect_success(str(tmp_path))
    assert told.state == "damaged"
    assert told.warnings[0].startswith("_SUCCESS is neither empty nor a committer's")
    assert words in told.warnings[0]


@pytest.mark.parametrize("odd", [{"jobId": None}, {"diagnostics": None}, {"diagnostics": 3}, {"jobId": 7}])
def test_what_a_marker_says_beside_committer_and_files_decides_nothing(tmp_path: Path, odd: dict[str, Any]) -> None:
    name = f"part-00000-{ONE}-c000.json"
    write(tmp_path, {name: b"x", "_SUCCESS": json.dumps({**MARKER, "filenames": [name], **odd}).encode()})
    told = inspect_success(str(tmp_path))
    assert (told.state, told.committer, told.ok) == ("committed", "magic", True)
    assert told.job == ("" if "jobId" in odd else ONE)


def test_a_destination_that_holds_nothing_is_told_from_one_without_a_marker(tmp_path: Path) -> None:
    assert "the URL that was written to" in inspect_success(str(tmp_path / "typo")).warnings[1]
    write(tmp_path, {"x.json": b"1"})
    assert len(inspect_success(str(tmp_path)).warnings) == 1


def test_a_marker_that_names_its_files_is_believed(tmp_path: Path) -> None:
    name = f"part-00000-{ONE}-c000.json"
    write(tmp_path, {name: b"x", "_SUCCESS": json.dumps({**MARKER, "filenames": [f"s3a://b/x/{name}"]}).encode()})
    told = inspect_success(str(tmp_path))
    assert (told.committer, told.claimed, told.job, told.ok) == ("magic", "magic", ONE, True)
    (tmp_path / name).rename(tmp_path / f"part-00001-{ONE}-c000.json")
    assert "not there any more" in inspect_success(str(tmp_path)).warnings[0]


def test_a_marker_that_names_no_file_is_not_believed(tmp_path: Path) -> None:
    write(tmp_path, {f"part-00000-{ONE}-c000.json": b"x", "_SUCCESS": json.dumps(MARKER).encode()})
    told = inspect_success(str(tmp_path))
    assert told.claimed == "magic"
    assert told.committer.startswith("not magic")
    assert "advise.check" in told.warnings[0]
    (tmp_path / f"part-00000-{ONE}-c000.json").unlink()
    assert inspect_success(str(tmp_path)).committer == "magic", "a job without rows names no file either"


def test_what_a_marker_says_cannot_speak_to_the_terminal_or_hold_a_secret(tmp_path: Path) -> None:
    planted = {**MARKER, "committer": "x\x1b[31m\n", "diagnostics": {"fs.azure.account.key": "password=hunter2"}}
    write(tmp_path, {"_SUCCESS": json.dumps(planted).encode()})
    told = inspect_success(str(tmp_path))
    assert told.claimed.isprintable()
    assert "hunter2" not in repr(told) + str(told) + json.dumps(told.as_dict())


def test_files_that_a_zombie_has_doubled_are_found(tmp_path: Path) -> None:
    rows = [b'{"id":%d}\n' % i for i in range(3)]
    write(tmp_path, {"_SUCCESS": b""})
    write(tmp_path / "p=0", {f"part-{i:05}-{job}.c000.json": row for i, row in enumerate(rows) for job in (ONE, TWO)})
    write(tmp_path / "p=1", {f"part-00000-{ONE}.c000.json": b"a", f"part-00000-{TWO}.c000.json": b"b", f"part-00001-{ONE}.c000.json": b"a"})
    told = inspect_success(str(tmp_path))
    assert told.doubled == tuple((f"p=0/part-{i:05}-{ONE}.c000.json", f"p=0/part-{i:05}-{TWO}.c000.json") for i in range(3))
    assert told.doubled_bytes == told.cost == sum(map(len, rows))
    assert "committed what a killed one had left" in told.warnings[-1]
    assert told.jobs == 2
