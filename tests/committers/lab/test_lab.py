"""What the lab of committers promises, as far as it needs no Spark: it counts what is there, and says no more than it has seen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from quire import committers, plots
from quire.cli import main
from quire.committers import lab
from quire.committers.guarantees import BESIDE, FOUR, Guarantees
from quire.committers.lab import tested, wire
from quire.committers.lab.bench import Bench, BenchRun, Setting
from quire.committers.lab.places import place_of
from quire.committers.lab.processes import Asleep, end_session, members
from quire.committers.lab.readings import untried
from quire.committers.lab.watch import Watcher, count
from quire.errors import FormatError, RefusedError, UsageError
from quire.sources.files import is_shown


def write(path: Path, *ids: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'{{"id": {n}, "task": 0}}\n' for n in ids))


def measured(committer: str, fault: str, guarantee: str, **counts: Any) -> lab.Result:
    return lab.Result(committer, "file", fault, guarantee, **counts)


# ------------------------------------------------------------------------------------------------------------ what is counted
def test_rows_are_counted_as_a_reader_of_the_directory_finds_them(tmp_path: Path) -> None:
    place = place_of(None, tmp_path, None)
    root = tmp_path / "store"
    write(root / "part-0.json", 0, 1, 2)
    write(root / "by=attempt1" / "part-1.json", 2, 3)  # 2 is there again
    write(root / "_temporary" / "0" / "task_1" / "part-2.json", 4, 5)
    write(root / ".hidden" / "part-3.json", 6)
    found = count(place, {0, 1, 2, 3, 7})
    assert (found.files, found.rows, found.doubled, found.lost, found.remains) == (2, 5, 1, 1, 1)


@pytest.mark.parametrize("name", ["_SUCCESS", "a/_temporary/x", ".part.crc", "_quire/log/1.entry", ".by=1/x", "x._COPYING_"])
def test_what_spark_does_not_read_is_not_visible(name: str) -> None:
    assert not is_shown(name)
    assert is_shown("by=1/part_0.json")
    assert is_shown("_by=1/part_0.json")


def test_files_that_come_one_by_one_are_seen_as_a_window_and_files_that_come_together_are_not(tmp_path: Path) -> None:
    place = place_of(None, tmp_path, None)
    with Watcher(place) as slow:
        for i in range(5):
            write(tmp_path / "store" / f"part-{i}.json", i)
            time.sleep(0.05)
    assert slow.partial(5) >= 3
    assert 150 <= (slow.window(5) or 0) <= 2000
    for i in range(5):
        write(tmp_path / "aside" / f"part-{i}.json", i)
    (tmp_path / "store").rename(tmp_path / "old")
    with Watcher(place) as fast:
        (tmp_path / "aside").rename(tmp_path / "store")
    assert (fast.partial(5), fast.window(5)) == (0, 0.0)


def test_the_watcher_acts_at_the_first_sign(tmp_path: Path) -> None:
    place = place_of(None, tmp_path, None)
    with Watcher(place, sign=r"_temporary/[^/]+/task_", then=lambda: len(place.visible())) as seen:
        write(tmp_path / "store" / "part-0.json", 0)
        write(tmp_path / "store" / "_temporary" / "0" / "_temporary" / "attempt_1" / "x.json", 1)
        time.sleep(0.1)
        assert not seen.met.is_set()
        write(tmp_path / "store" / "_temporary" / "0" / "task_1" / "x.json", 1)
        assert seen.met.wait(10)
    assert seen.caught == 1


def test_what_goes_wrong_in_the_watcher_is_raised(tmp_path: Path) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    seen = Watcher(place_of(None, tmp_path, None), sign="", then=broken)
    seen.__enter__()
    write(tmp_path / "store" / "part-0.json", 0)
    assert seen.met.wait(10)
    with pytest.raises(ZeroDivisionError):
        seen.__exit__(None)


# -------------------------------------------------------------------------------------------------------------- what is concluded
def test_guarantees_are_what_the_counts_say_and_no_more() -> None:
    rows = [
        measured("a", "none", "hidden", files=40, early=0),
        measured("a", "window_1000", "visible", files=1000, partial=7, window_ms=120.0),
        measured("a", "task_fails", "clean", files=40, early=0, left=0),
        measured("a", "task_raises", "one_copy", doubled=0, lost=0),
        measured("a", "driver_in_job", "restart", left=0, doubled=3000, lost=0),
        measured("b", "none", "hidden", files=40, early=30, jobs=1),
        measured("b", "window_10", "visible", files=10, partial=0, window_ms=0.0),
        measured("b", "task_raises", "one_copy", doubled=0, lost=0),
        measured("b", "executor_in_commit", "one_copy", doubled=0, lost=5),
        lab.Result("b", "file", "speculation", "one_copy", "not run", note="no second attempt"),
    ]
    matrix = lab.Matrix(rows)
    assert matrix.guarantees["a"] == Guarantees(hidden=True, visible=False, clean=True, one_copy=True, restart=False)
    # Not to have seen a part of ten files proves nothing; a fault that did not come about neither.
    assert matrix.guarantees["b"] == Guarantees(hidden=False, one_copy=False)
    failed = lab.Matrix([measured("c", "task_raises", "one_copy", doubled=0, lost=0, said="the file is there already")])
    assert failed.guarantees["c"].one_copy is False
    assert failed.why("c", "one_copy") == "task_raises: the job fails"
    assert matrix.why("b", "hidden") == "none: 30 of 40 files early"
    assert matrix.why("b", "one_copy") == "executor_in_commit: 5 rows lost"
    assert "no second attempt" in str(matrix)


def test_what_was_read_says_where_and_is_not_taken_for_measured() -> None:
    read = lab.Result("emrfs", "s3", how="read", source="a guide", read={"hidden": False})
    matrix = lab.Matrix([read])
    assert matrix.how("emrfs") == "read"
    assert matrix.guarantees["emrfs"].hidden is False
    assert "read, not measured. a guide" in str(matrix)
    assert "a guide" in matrix._repr_html_()


def test_a_matrix_goes_through_json_and_has_fixed_columns(tmp_path: Path) -> None:
    matrix = lab.Matrix([measured("<b>", "none", "hidden", files=40, early=3, seconds=1.5)], {"date": "today"})
    again = lab.Matrix.load(matrix.save(tmp_path / "m.json"))
    assert (again.json, again.made) == (matrix.json, {"date": "today"})
    assert again.arrow.schema == lab.SCHEMA == lab.Matrix([]).arrow.schema
    assert again.table["early"].tolist() == [3]
    assert again.table["left"].isna().all()
    assert "&lt;b&gt;" in again._repr_html_()
    assert "<b>" not in again._repr_html_()


HEAD = b'{"kind": "quire lab 1", "made": {}, "rows": '
GUESSED = HEAD + b'[{"committer": "x", "store": "file", "how": "guessed"}]}'


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", HEAD + b'[{"x": 1}]}', GUESSED, b"\xff", b"[" * 100_000])
def test_other_files_are_no_results(text: bytes) -> None:
    with pytest.raises(FormatError, match=r"holds no (results|costs) of the lab"):
        lab.Matrix.parse(text)
    with pytest.raises(FormatError, match="holds no costs of the lab"):
        lab.Costs.parse(text)


# ------------------------------------------------------------------------------------------------- the results that come with quire
KNOWN = {  # hidden, clean, one copy, restart, concurrent, of the article and of what others have found; None: nobody has said
    "v1": (True, True, True, False, False), "v2": (False, False, False, False, False), "v1_attempt_id": (True, True, True, False, False),
    "manifest": (True, True, True, False, False), "manifest_naive": (False, False, False, False, None),
    "magic": (True, True, True, False, True), "directory": (True, True, True, False, True), "partitioned": (True, True, True, False, True),
    "quire_rename": (True,) * 5, "quire_rename_v2": (False, False, True, True, True), "quire_upload": (True,) * 5,
    "quire_write": (True,) * 5, "quire_write_upload": (True,) * 5,
}  # fmt: skip


def test_the_measured_example_agrees_with_what_is_known() -> None:
    """Of each committer, on every store that it was tried on but v1 on S3; no directory shows all files of a job at once."""
    matrix = lab.Matrix.example()
    assert {"command", "date", "machine", "load"} <= matrix.made.keys()
    assert list(KNOWN) == list(lab.COMMITTERS)
    for name, known in KNOWN.items():
        found = (matrix.on("file") if name == "v1" else matrix).guarantees[name]
        assert matrix.how(name) == "measured"
        for key, value in zip(("hidden", "clean", "one_copy", "restart", "concurrent"), known, strict=True):
            assert value is None or getattr(found, key) is value, (name, key, matrix.why(name, key))
        assert found.visible is False, name
        assert found.visible_in_log is (True if name.startswith("quire") else None), name


def test_what_the_article_says_of_v1_and_v2_was_counted() -> None:
    """A window that grows with the files, files of jobs that have not ended, and rows that are there twice."""
    matrix = lab.Matrix.example()
    windows = [matrix.row("v1", f"window_{n}").window_ms or 0 for n in (10, 1000)]
    assert windows[1] > 5 * windows[0] > 0
    assert [matrix.row("v1", "driver_in_job").left, matrix.row("v1", "driver_in_job").doubled] == [0, 3000]
    assert [matrix.row("v2", "none").early, matrix.row("v2", "task_fails").left] == [30, 30]
    assert matrix.row("v2", "driver_in_job").doubled == 3000
    assert (matrix.row("v2", "executor_in_commit").doubled or 0) > 0


def test_on_s3_v1_is_slower_and_no_safer() -> None:
    """A rename there is a copy and a delete: the window is longer, and what a dead executor has half copied makes the job fail."""
    matrix = lab.Matrix.example()
    s3 = matrix.on("s3a")
    assert (s3.row("v1", "window_1000").window_ms or 0) > 10 * (matrix.row("v1", "window_1000", "file").window_ms or 0)
    assert s3.guarantees["v1"].one_copy is False
    assert (s3.row("v1", "executor_in_commit").doubled, s3.row("v1", "driver_in_job").doubled) == (0, 3000)
    assert "the job fails" in s3.why("v1", "one_copy")


def test_to_readers_of_the_log_there_is_no_window_however_many_files() -> None:
    matrix = lab.Matrix.example()
    for name in ("quire_rename", "quire_upload", "quire_write", "quire_write_upload"):
        rows = [row for row in matrix.of(name) if row.fault.startswith("window_") and row.how == "measured"]
        assert {row.files for row in rows} == {10, 100, 1000}
        assert {(row.window_log_ms, row.partial_log) for row in rows} == {(0.0, 0)}


def test_the_example_is_shown_without_a_run(capfd: pytest.CaptureFixture[str]) -> None:
    main(["committer", "lab", "--example"])
    assert "quire_rename" in capfd.readouterr().out
    main(["committer", "lab", "--example", "--json"])
    assert json.loads(capfd.readouterr().out)["kind"] == "quire lab 1"


def test_the_lab_is_where_the_library_says_and_costs_nothing_until_then() -> None:
    program = (
        "import sys, quire; quire.committers; assert 'quire.committers.lab' not in sys.modules; print(quire.committers.lab.COMMITTERS)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "quire_upload" in done.stdout
    with pytest.raises(AttributeError, match="no attribute 'lap'"):
        _ = committers.lap


def test_nobody_has_typed_the_example() -> None:
    """Each measured row has the time that it took, and the whole what made it."""
    matrix = lab.Matrix.example()
    assert all(row.seconds for row in matrix.rows if row.how == "measured")
    assert all(row.note for row in matrix.rows if row.how == "not run")
    assert all(row.source for row in matrix.rows if row.how == "read")


# ----------------------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"committers": "v3"}, "unknown committer 'v3'"),
        ({"committers": []}, "given no committer"),
        ({"committers": ["v1", "v1"]}, "twice"),
        ({"committers": lab.UnderTest("../x")}, "letters, digits and _"),
        ({"committers": lab.UnderTest("mine", jars=("/nowhere.jar",))}, "/nowhere.jar of the committer 'mine' is not there"),
        ({"faults": "fire"}, "unknown fault 'fire'"),
        ({"faults": []}, "given no fault"),
        ({"store": "memory://x"}, "works on local disk, S3 and Azure Blob"),
        ({"store": "gopher://x"}, "unknown kind of store"),
        ({"storage_options": 3}, "storage_options is a dictionary"),
        ({"jars": "/nowhere"}, "is not there"),
        ({"jars": 7}, "jars= takes one of them or a list, not 7"),
        ({"committers": 7}, "committers= takes"),
        ({"faults": 7.5}, "faults= takes"),
        ({"save": "/nowhere/mine.json", "store": "gopher://x"}, "/nowhere/mine.json cannot be written, and nothing was begun"),
        ({"save": "/", "store": "gopher://x"}, "cannot be written"),
    ],
)
def test_wrong_words_are_said_before_anything_is_started(arguments: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said) as e:
        lab.run(**{"committers": "v1", "faults": "none", "progress": False, **arguments})
    assert "\n" not in str(e.value)


def test_a_destination_with_anything_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("1")
    with pytest.raises(RefusedError, match="holds files already"):
        lab.run("v1", "none", tmp_path, progress=False)
    assert (tmp_path / "mine.csv").read_text() == "1"


def test_what_runs_wrote_is_deleted_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(tmp_path / "scratch")
    setting.scratch.mkdir()
    bench = Bench(setting, lab.COMMITTERS["v1"], place_of(tmp_path / "lake", setting.scratch, None))
    run = BenchRun(bench, "none")
    run.place.store().put("_temporary/0/part", b"1")
    (tmp_path / "lake" / "theirs.csv").write_text("1")
    with monkeypatch.context() as broken:
        broken.setattr("quire.committers.lab.watch.connect", Mock(side_effect=OSError("no room.")))
        with pytest.warns(UserWarning, match="not all deleted: no room"):
            setting.clear()
    setting.clear()
    assert [path.name for path in (tmp_path / "lake").iterdir()] == ["theirs.csv"]


def test_earlier_results_stay_until_the_new_ones_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "found.json"
    lab.Matrix.example().save(target)
    before = target.read_bytes()
    monkeypatch.setattr(Path, "replace", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(UsageError, match=r"found\.json cannot be written: No space left"):
        lab.Matrix([]).save(target)
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_a_jar_of_another_hadoop_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "hadoop-aws-3.3.4.jar", "w"):
        pass
    with pytest.raises(UsageError, match=r"hadoop-aws-3\.3\.4\.jar is of another Hadoop than this Spark's"):
        tested.jars_of(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "some.jar").write_text("no zip")
    with pytest.raises(UsageError, match="is not a jar"):
        tested.jars_of(tmp_path / "other")


def test_jars_may_be_named_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "mine.jar", "w"):
        pass
    monkeypatch.chdir(tmp_path)
    assert tested.jars_of(".") == tested.jars_of("mine.jar") == tested.jars_of(["mine.jar"]) == [tmp_path / "mine.jar"]
    ready, _ = tested.with_jars(lab.UnderTest("mine", jars=("mine.jar",)), [], tmp_path)
    assert ready.jars == (str(tmp_path / "mine.jar"),)


def test_what_cannot_run_here_says_why_and_what_was_read(tmp_path: Path) -> None:
    matrix = lab.run(["magic", "quire_upload"], "none", progress=False, save=tmp_path / "found.json")
    assert lab.Matrix.load(tmp_path / "found.json").json == matrix.json
    assert [row.how for row in matrix.of("magic")] == ["not run", "read"]
    assert "is for s3a, and this is file" in matrix.of("magic")[0].note
    assert "S3A Committers" in matrix.of("magic")[1].source
    assert "does not work on this kind of store" in matrix.of("quire_upload")[0].note


def test_services_that_no_lab_can_try_are_there_with_their_sources() -> None:
    found = untried(["v1", "magic"])
    assert {"emrfs", "gs_manifest", "abfs_manifest"} <= {row.committer for row in found}
    assert "magic" not in {row.committer for row in found}
    assert all(row.how == "read" and row.source for row in found)


def test_secrets_reach_no_command_and_no_repr() -> None:
    from quire.committers.lab import _without_value
    from quire.committers.lab.places import _s3a

    options = {"key": "mykey", "secret": "hush", "endpoint_url": "http://127.0.0.1:1", "client_kwargs": {"region_name": "x"}}
    made = lab.watch.LabPlace("s3://b/x", "s3a://b/x", options, _s3a(options))
    assert made.hadoop["fs.s3a.secret.key"] == "hush"
    assert "hush" not in repr(made)
    assert _without_value("secret=hush") == "secret=***"


# ----------------------------------------------------------------------------------------------------------------------- the wire
def heads(*requests: bytes) -> wire.Traffic:
    """What is counted of requests, whatever pieces they come in."""
    counts = [wire.Traffic() for _ in range(3)]
    for size, one in zip((1, 7, 10_000), counts, strict=True):
        reader, text = wire._Requests(one), b"".join(requests)
        for i in range(0, len(text), size):
            reader.feed(text[i : i + size])
    assert counts[0].found == counts[1].found == counts[2].found
    return counts[0]


def test_requests_and_copied_bytes_are_counted_on_the_wire() -> None:
    found = heads(
        b"PUT /b/a%20b HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"PUT /b/c HTTP/1.1\r\nx-amz-copy-source: /b/a%20b\r\nContent-Length: 0\r\n\r\n",
        b"POST /b/u?uploads HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"PUT /b/u?partNumber=1&uploadId=x HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
        b"PUT /b/u?partNumber=2&uploadId=x HTTP/1.1\r\nContent-Length: 2\r\n\r\nxx",
        b"PUT /b/v HTTP/1.1\r\nX-Amz-Copy-Source: b/u\r\nContent-Length: 0\r\n\r\n",
        b"GET /b/v HTTP/1.1\r\n\r\n",
    ).found
    assert (found["requests"], found["copies"], found["copied"], found["sent"]) == (7, 2, 5 + 6, 11)


def test_azures_blocks_and_copies_are_counted_too() -> None:
    found = heads(
        b"PUT /acc/c/x?comp=block&blockid=1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        b"PUT /acc/c/x?comp=block&blockid=2 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        b"PUT /acc/c/x?comp=blocklist HTTP/1.1\r\nContent-Length: 1\r\n\r\n<",
        b"PUT /acc/c/y HTTP/1.1\r\nx-ms-copy-source: http://127.0.0.1:1/acc/c/x\r\nContent-Length: 0\r\n\r\n",
    ).found
    assert (found["copies"], found["copied"]) == (1, 6)


def test_the_wire_hands_on_what_is_said_a_while_later(tmp_path: Path) -> None:
    from http.client import HTTPConnection
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Hello(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hello)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    command = [sys.executable, "-m", "quire.committers.lab.wire", f"127.0.0.1:{server.server_port}", "0.2"]
    environment = {**os.environ, "PYTHONPATH": str(Path(lab.__file__).parents[3])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        connection = HTTPConnection("127.0.0.1", int(process.stdout.readline()))
        began = time.monotonic()
        connection.request("GET", "/x")
        assert connection.getresponse().read() == b"hello"
        assert time.monotonic() - began >= 0.2
        connection.close()
        process.stdin.write("\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["requests"] == 1
        process.stdin.close()
        assert process.wait(10) == 0
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_session_of_the_labs_is_ended_whole_and_nobody_elses() -> None:
    sleep = [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"]
    with subprocess.Popen(sleep, start_new_session=True) as mine, subprocess.Popen(sleep, start_new_session=True) as other:
        while len(members(mine.pid)) < 2 or len(members(other.pid)) < 2:
            time.sleep(0.02)
        end_session(mine)
        assert not members(mine.pid)
        assert len(members(other.pid)) == 2
        end_session(other)


def test_a_session_ends_whole_when_the_lab_is_killed() -> None:
    """Also a member that reads no pipe of ours and has started another one."""
    inner = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    program = (
        "import os, sys, time; from quire.committers.lab.processes import Session;"
        "print(Session([sys.executable, '-c', sys.argv[1]], os.environ).pid); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-uc", program, inner], stdout=subprocess.PIPE) as alone:
        assert alone.stdout is not None
        leader = int(alone.stdout.readline())
        while len(members(leader)) < 2:
            time.sleep(0.02)
        alone.kill()
    end = time.monotonic() + 20
    while members(leader) and time.monotonic() < end:
        time.sleep(0.02)
    assert not members(leader)


def test_who_is_asleep_ends_with_the_lab_and_wakes_otherwise() -> None:
    """A stopped process sees no pipe's end: somebody kills it when the process that has stopped it is killed."""
    program = "import sys, time; from quire.committers.lab import processes; processes.Asleep(int(sys.argv[1])); print(); time.sleep(60)"
    with _napping() as sleeper:
        with subprocess.Popen([sys.executable, "-uc", program, str(sleeper.pid)], stdout=subprocess.PIPE) as stops:
            assert stops.stdout is not None
            stops.stdout.readline()
            assert _state(sleeper.pid) == "T"
            stops.kill()
        assert sleeper.wait(10) == -signal.SIGKILL
    with _napping() as sleeper:
        asleep = Asleep(sleeper.pid)
        assert _state(sleeper.pid) == "T"
        asleep.over(signal.SIGCONT)
        assert asleep.guard.returncode == 0
        assert _state(sleeper.pid) != "T"
        assert sleeper.poll() is None


@contextmanager
def _napping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True) as sleeper:
        try:
            yield sleeper
        finally:
            sleeper.kill()


def _state(pid: int) -> str:
    for _ in range(100):  # a signal takes its time
        if (found := Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]) == "T":
            return found
        time.sleep(0.005)
    return found


# ---------------------------------------------------------------------------------------------------------------------- pictures
def test_pictures_say_in_words_what_they_show() -> None:
    rows = [measured("v1", f"window_{n}", "visible", files=n, partial=2, window_ms=float(n)) for n in (10, 100, 1000)]
    matrix = lab.Matrix([*rows, lab.Result("emrfs", "s3", how="read", source="x", read={"hidden": False})])
    marks, windows = matrix.plot(), matrix.plot("windows")
    assert marks.svg() == matrix.plot().svg()
    for text in ("v1", "emrfs", *FOUR, *BESIDE, "✘ does not", "– not known"):
        assert text in marks.svg()
    assert "1 of 2 were measured" in marks.note
    assert windows.table["seconds"].tolist() == [0.01, 0.1, 1.0]
    assert "1 committer" in windows.title
    with pytest.raises(UsageError, match="unknown picture"):
        matrix.plot("costs")


def test_a_picture_is_of_one_kind_of_store() -> None:
    """Windows of a disk and of a service in one line would be a zigzag."""
    rows = [measured(name, f"window_{n}", "visible", files=n, partial=2, window_ms=float(n)) for name in ("v1", "v2") for n in (10, 100)]
    there = [replace(row, store="s3a", window_ms=5000.0) for row in rows[:2]]
    matrix = lab.Matrix([*rows, *there])
    assert matrix.plot("windows").table["committer"].tolist() == ["v1", "v1", "v2", "v2"]
    assert matrix.plot("windows", store="s3a").table["seconds"].tolist() == [5.0, 5.0]
    assert "1 committer" in matrix.plot(store="s3a").title
    assert matrix.row("v1", "window_10", "s3a").window_ms == 5000.0
    assert "5.0 s, 100 files" in matrix.why("v1", "visible")
    with pytest.raises(UsageError, match="unknown store"):
        matrix.plot(store="s3")


def test_pictures_take_nothing_and_refuse_nonsense() -> None:
    assert "No committers" in repr(lab.Matrix([]).plot())
    assert "nothing was measured" in repr(lab.Matrix([]).plot("windows"))
    costs = lab.Costs([lab.Cost("v1", "s3a", 10, 100, 10, 1000, 1000, 0.5, None, 1.0), lab.Cost("v2", "s3a", 10, note="no")])
    assert costs.plot().table["requests"].tolist() == [100]
    assert costs.arrow.schema == lab.Costs([]).arrow.schema
    table = pa.table({"committer": ["v1"], "files": [10], "seconds": [-1.0]}).to_pandas()
    with pytest.raises(UsageError, match=r"seconds is -1\.0"):
        plots.windows(table)
    with pytest.raises(UsageError, match="no column 'holds'"):
        plots.guarantees(table.assign(guarantee="x"))
