"""`quire run`: each loop of a file goes its own way, the file is read again at SIGHUP, and signals end whole commits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import quire
from checker import check
from commands import answer, one_line
from gathering import documents, refused, write
from quire.cli import jobs
from quire.cli import run as running
from quire.cli.function import function_of
from quire.errors import UsageError

if TYPE_CHECKING:
    from commands import Run

ALL = """
import sys
from pathlib import Path
import quire
from quire.cli import jobs, run
file = Path(sys.argv[1])
supervisor = run.Supervisor(file, quire.LocalRunner(), lambda text: print(text, file=sys.stderr, flush=True))
sys.exit(supervisor.run(jobs.read(file)))
"""
ELSEWHERE = """
import signal, threading, time
def sent(file):
    while not file.exists():
        time.sleep(0.05)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
threading.Thread(target=sent, args=(file.with_name("now"),), daemon=True).start()
"""
STARTS = """
import contextlib, sys, time
from pathlib import Path
import quire
from quire.cli import run
@contextlib.contextmanager
def session(conf):
    Path("starts").touch()
    while not Path("may").exists():
        time.sleep(0.05)
    yield quire.LocalRunner()
run._session = session
run.run.main([sys.argv[1]])
"""
HELPER = """
def helper(content):
    return {word!r}
def rows(split, content):
    return [{{"word": helper(content)}}]
"""
SLOW = """
import time
from pathlib import Path
def rows(split, content):
    Path({begun!r}).touch()
    time.sleep({seconds})
    return [{{"name": split.file.path.rpartition("/")[2]}}]
def broken(split, content):
    return [{{"a": 1}}]
"""


def table(name: str, **keys: Any) -> str:
    """A job as TOML."""
    shown = {key: str(value).lower() if isinstance(value, bool) else repr(str(value)) for key, value in keys.items()}
    return f"[jobs.{name}]\n" + "".join(f"{key} = {value}\n" for key, value in shown.items())


def gathers(place: Path, name: str, **keys: Any) -> str:
    """A job that gathers `in-name` into `out-name`, again and again."""
    write(place / f"in-{name}", documents(6))
    keys = {"call": "consolidate", "source": place / f"in-{name}", "dest": place / f"out-{name}", "every": "50 ms", **keys}
    return table(name, **keys)


class Process:
    """A process with jobs, and what it says."""

    def __init__(self, place: Path, *tables: str, program: str = ALL) -> None:
        self.place, self.file, self.errors = place, place / "jobs.toml", place / "errors.txt"
        self.write(*tables)
        command = [sys.executable, "-c", program, str(self.file)]
        with self.errors.open("w") as errors:  # its own group, and the handlers of a shell's foreground
            self.process = subprocess.Popen(command, stderr=errors, cwd=place, start_new_session=True, restore_signals=True)

    def write(self, *tables: str) -> None:
        self.file.write_text("\n".join(tables))

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    @property
    def said(self) -> str:
        return self.errors.read_text()

    def until(self, seen: Callable[[], object], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not seen():
            assert time.monotonic() < end, self.said
            assert self.process.poll() is None, self.said
            time.sleep(0.05)

    def gathered(self, name: str, count: int = 6) -> bool:
        """Whether a job has gathered all of its source."""
        dest = self.place / f"out-{name}"
        return dest.is_dir() and bool(quire.Ledger(dest, create=True).summary().files == count)

    def code(self, seconds: float = 60) -> int:
        return self.process.wait(seconds)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    begun = list[Process]()

    def begin(*tables: str, **how: str) -> Process:
        begun.append(Process(tmp_path, *tables, **how))
        return begun[0]

    yield begin
    for one in begun:
        one.process.kill()
        one.process.wait()


def slow(place: Path, seconds: float = 1.0, **keys: Any) -> str:
    """A job whose function takes its time for each of three files; the file `begun` is there once it has begun."""
    (place / "slow.py").write_text(SLOW.format(begun=str(place / "begun"), seconds=seconds))
    places = {"source": write(place / "in-slow", documents(3)), "dest": place / "out-slow"}
    given = {
        "call": "process",
        "function": f"{place}/slow.py:rows",
        "function_version": "1",
        "schema": "name string",
        "every": "1 h",
        **places,
    }
    return table("slow", **{**given, **keys})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_each_commit_under_way_end(tmp_path: Path, process: Any, number: int) -> None:
    one = process(slow(tmp_path), gathers(tmp_path, "a"), gathers(tmp_path, "b"))
    one.until(lambda: (tmp_path / "begun").exists() and one.gathered("a") and one.gathered("b"))
    one.send(number)
    assert one.code() == 0, one.said
    found = quire.Ledger(tmp_path / "out-slow").summary()
    assert (found.files, list(found.open_jobs)) == (3, [])
    assert "ending: each job ends its commit under way" in one.said
    for name in "ab":
        assert len(check(tmp_path / f"in-{name}", tmp_path / f"out-{name}").done) == 6


def test_a_second_signal_interrupts_and_the_next_process_goes_on(tmp_path: Path, process: Any) -> None:
    one = process(slow(tmp_path, 2))
    one.until((tmp_path / "begun").exists)
    one.send(signal.SIGTERM)
    one.until(lambda: "ending" in one.said)
    one.send(signal.SIGTERM)
    assert one.code() == 130, one.said
    assert len(quire.Ledger(tmp_path / "out-slow", create=True).summary().open_jobs) == 1
    file = tmp_path / "jobs.toml"
    file.write_text(slow(tmp_path, 0, every="1 ms", max_runs=1).replace("'1'", "1"))
    assert running.Supervisor(file, quire.LocalRunner(), lambda _: None).run(jobs.read(file)) == 0
    found = quire.Ledger(tmp_path / "out-slow").summary()
    assert (found.files, list(found.open_jobs)) == (3, [])


def test_a_killed_process_is_gone_on_with_by_the_next_one(tmp_path: Path, process: Any) -> None:
    one = process(slow(tmp_path, 2), gathers(tmp_path, "a"))
    one.until(lambda: (tmp_path / "begun").exists() and one.gathered("a"))
    one.send(signal.SIGKILL)
    assert one.code() == -signal.SIGKILL
    write(tmp_path / "in-a", {"new.txt": b"new"})
    file = tmp_path / "jobs.toml"
    file.write_text(
        slow(tmp_path, 0, every="1 ms", max_runs=1).replace("'1'", "1") + gathers(tmp_path, "a", max_runs=1).replace("'1'", "1")
    )
    assert running.Supervisor(file, quire.LocalRunner(), lambda _: None).run(jobs.read(file)) == 0
    assert len(check(tmp_path / "in-a", tmp_path / "out-a").done) == 7
    assert quire.Ledger(tmp_path / "out-slow").summary().files == 3


def test_a_hangup_begins_new_jobs_ends_removed_ones_and_begins_changed_ones_anew(tmp_path: Path, process: Any) -> None:
    kept, gone, changed = gathers(tmp_path, "kept"), slow(tmp_path), gathers(tmp_path, "changed")
    one = process(kept, gone, changed)
    one.until(lambda: (tmp_path / "begun").exists() and one.gathered("kept") and one.gathered("changed"))
    one.write(kept, gathers(tmp_path, "changed", max_file_size="1 MiB"), gathers(tmp_path, "new"))
    one.send(signal.SIGHUP)
    one.until(lambda: one.gathered("new") and "changed: it has ended" in one.said and "slow: it has ended" in one.said)
    assert "was read again: 1 new, 1 changed, 1 removed, 1 as before." in one.said
    assert quire.Ledger(tmp_path / "out-slow").summary().files == 3, "the commit under way has ended"
    for name in ("kept", "changed"):
        write(tmp_path / f"in-{name}", {"late.txt": b"late"})
        one.until(lambda name=name: one.gathered(name, 7))
    one.send(signal.SIGTERM)
    assert one.code() == 0


def test_a_hangup_while_spark_starts_is_heard_after_it(tmp_path: Path, process: Any) -> None:
    one = process(gathers(tmp_path, "a"), program=STARTS)
    one.until((tmp_path / "starts").exists)
    one.send(signal.SIGHUP)
    (tmp_path / "may").touch()
    one.until(lambda: "was read again: 1 as before." in one.said and one.gathered("a"))
    one.send(signal.SIGTERM)
    assert one.code() == 0


def test_a_hangup_sees_what_has_changed_beside_the_function_in_its_file(tmp_path: Path, process: Any) -> None:
    (tmp_path / "words.py").write_text(HELPER.format(word="old"))
    one = process(gathers(tmp_path, "a", call="process", function=f"{tmp_path}/words.py:rows"))
    one.until(lambda: one.gathered("a"))
    (tmp_path / "words.py").write_text(HELPER.format(word="new"))
    one.send(signal.SIGHUP)
    one.until(lambda: "was read again: 1 changed." in one.said and "a: it has ended" in one.said)  # it ends the run under way before
    write(tmp_path / "in-a", {"late.txt": b"late"})
    one.until(lambda: one.gathered("a", 7))
    one.send(signal.SIGTERM)
    assert one.code() == 0
    found = pq.ParquetDataset([*(tmp_path / "out-a").glob("*.parquet")]).read().column("word").to_pylist()
    assert sorted(found) == ["new", *["old"] * 6]


def test_a_file_of_a_function_that_ends_the_process_ends_no_other(tmp_path: Path, process: Any) -> None:
    ends = "import sys\n" + HELPER.format(word="x") + "sys.exit(0)\n"
    (tmp_path / "ends.py").write_text(ends)
    (tmp_path / "jobs.toml").write_text(gathers(tmp_path, "b", call="process", function=f"{tmp_path}/ends.py:rows"))
    with refused(UsageError, 2, "job 'b', key 'function'", "ends.py cannot be loaded: SystemExit: 0 (at ends.py:"):
        jobs.read(tmp_path / "jobs.toml")
    (tmp_path / "ends.py").rename(tmp_path / "gone.py")
    with refused(UsageError, 2, "job 'b', key 'function'", "ends.py' does not exist"):
        jobs.read(tmp_path / "jobs.toml")
    (tmp_path / "jobs.toml").unlink()
    (tmp_path / "ends.py").write_text(HELPER.format(word="x"))
    one = process(gathers(tmp_path, "a", call="process", function=f"{tmp_path}/ends.py:rows"))
    one.until(lambda: one.gathered("a"))
    (tmp_path / "ends.py").write_text(ends)
    one.send(signal.SIGHUP)
    one.until(lambda: "cannot be loaded: SystemExit" in one.said and "The jobs of before go on." in one.said)
    one.send(signal.SIGTERM)
    assert one.code() == 0


@pytest.mark.parametrize("name", ["json.py", "queue.py", "quire.py", "pyarrow.py"])
def test_a_file_of_a_function_takes_no_modules_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / name).write_text(HELPER.format(word="x"))
    before = sys.modules[name.removesuffix(".py")]
    monkeypatch.setitem(sys.modules, name.removesuffix(".py"), before)  # it is there for the next test, however this one ends
    with refused(UsageError, 2, f"{name}' is called like the module", "Rename the file"):
        function_of(f"{tmp_path / name}:rows")
    assert sys.modules[name.removesuffix(".py")] is before
    (tmp_path / "mine.py").write_text(HELPER.format(word="x"))
    for _ in range(2):
        assert function_of(f"{tmp_path}/mine.py:rows")(None, b"") == [{"word": "x"}], "again and again"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("master = 7", "key 'master' of [spark] is 7"), ("master = ['local[1]']", "key 'master' of [spark] is a list"),
        ("spark.sql.shuffle.partitions = [4]", "key 'spark.sql.shuffle.partitions' of [spark] is a list"),
    ],
)  # fmt: skip
def test_a_setting_that_spark_does_not_take_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "jobs.toml").write_text(f"[spark]\n{text}\n{gathers(tmp_path, 'a')}")
    with refused(UsageError, 2, "jobs.toml: ", words):
        jobs.read(tmp_path / "jobs.toml")
    (tmp_path / "jobs.toml").write_text(f"[spark]\nmaster = 'local[2]'\nspark.sql.shuffle.partitions = 4\n{gathers(tmp_path, 'a')}")
    assert jobs.read(tmp_path / "jobs.toml").spark == {"master": "local[2]", "spark.sql.shuffle.partitions": 4}


def test_a_mistake_in_the_file_leaves_the_old_jobs_as_they_are(tmp_path: Path, process: Any) -> None:
    one = process(gathers(tmp_path, "a"))
    one.until(lambda: one.gathered("a"))
    for mistake in ("[jobs.a", gathers(tmp_path, "a", evry="1 s"), "", gathers(tmp_path, "a", transform="gone:f")):
        one.write(mistake)
        before = one.said.count("The jobs of before go on.")
        one.send(signal.SIGHUP)
        one.until(lambda before=before: one.said.count("The jobs of before go on.") == before + 1)
    write(tmp_path / "in-a", {"late.txt": b"late"})
    one.until(lambda: one.gathered("a", 7))
    told = [line for line in one.said.splitlines() if line.startswith("error: ")]
    assert len(told) == 4, "a line each"
    assert all("jobs.toml" in line for line in told)
    assert "job 'a', key 'evry': it is not known. Did you mean every?" in told[1]
    one.send(signal.SIGTERM)
    assert one.code() == 0


def test_a_job_that_fails_ends_no_other_and_is_told_at_once_and_at_the_end(tmp_path: Path, process: Any) -> None:
    write(tmp_path / "out-wrong", {"theirs.txt": b"somebody's"})
    one = process(gathers(tmp_path, "wrong"), gathers(tmp_path, "a"))
    one.until(lambda: "wrong: error: the destination" in one.said and one.gathered("a"))
    write(tmp_path / "in-a", {"late.txt": b"late"})
    one.until(lambda: one.gathered("a", 7))
    assert one.said.count("wrong: error: ") == 1
    one.send(signal.SIGTERM)
    assert one.code() == 2, "as of the call that was refused"


def test_a_source_that_is_not_there_yet_is_a_matter_of_its_job(run: Run, tmp_path: Path, process: Any) -> None:
    late = table("late", call="consolidate", source=tmp_path / "late", dest=tmp_path / "out-late", every="50 ms", restart="1 s")
    one = process(late, gathers(tmp_path, "a"))
    one.until(lambda: one.gathered("a"))
    one.until(lambda: "late: error: the source file://" in one.said)
    one.send(signal.SIGHUP)
    one.until(lambda: "was read again" in one.said)
    one_line(run("run", "--check", one.file), 2, f"{one.file}: job 'late', key 'source': ", "does not exist")
    write(tmp_path / "late", documents(6))
    one.until(lambda: one.gathered("late"))
    one.send(signal.SIGTERM)
    assert one.code() == 0


def test_a_failed_job_begins_again_with_backoff_where_it_says_so(tmp_path: Path, process: Any) -> None:
    write(tmp_path / "out-wrong", {"theirs.txt": b"somebody's"})
    one = process(gathers(tmp_path, "wrong", restart="1 s"))
    one.until(lambda: one.said.count("It begins again in ") >= 4)
    pauses = [float(line.rpartition("again in ")[2].split()[0]) for line in one.said.splitlines() if "again in" in line]
    assert pauses[0] < pauses[2] <= 1
    (tmp_path / "out-wrong" / "theirs.txt").unlink()
    one.until(lambda: one.gathered("wrong"))
    one.send(signal.SIGTERM)
    assert one.code() == 0


def test_a_signal_that_another_thread_was_sent_ends_the_jobs_too(tmp_path: Path, process: Any) -> None:
    one = process(gathers(tmp_path, "a"), program=ALL.replace("supervisor =", f"{ELSEWHERE}\nsupervisor =", 1))
    one.until(lambda: one.gathered("a"))
    (tmp_path / "now").touch()
    assert one.code(30) == 0


def test_a_hangup_begins_a_failed_job_anew(tmp_path: Path, process: Any) -> None:
    write(tmp_path / "out-wrong", {"theirs.txt": b"somebody's"})
    one = process(gathers(tmp_path, "wrong"), gathers(tmp_path, "a"))
    one.until(lambda: "wrong: error: " in one.said)
    (tmp_path / "out-wrong" / "theirs.txt").unlink()
    one.send(signal.SIGHUP)
    one.until(lambda: one.gathered("wrong"))
    assert "1 begun again, 1 as before" in one.said
    one.send(signal.SIGTERM)
    assert one.code() == 0


def test_jobs_without_every_run_once_and_the_process_ends_with_the_last(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    text = gathers(tmp_path, "a") + gathers(tmp_path, "b")
    file.write_text(text.replace("every = '50 ms'\n", ""))
    told = list[str]()
    supervisor = running.Supervisor(file, quire.LocalRunner(), told.append)
    assert supervisor.run(jobs.read(file)) == 0
    assert sorted(told) == ["a: it has ended", "b: it has ended"]
    found = {name: one.as_dict() for name, one in supervisor.running.items()}
    assert [found[name]["report"]["files"] for name in "ab"] == [6, 6]


def test_a_secret_of_a_file_is_read_again_each_time(tmp_path: Path, vault: str) -> None:
    (tmp_path / "key").write_text("wrong\n")
    file = tmp_path / "jobs.toml"
    write(tmp_path / "in", documents(3))
    file.write_text(table("v", call="consolidate", source=tmp_path / "in", dest=f"{vault}/out") + 'dest_options = {key = {file = "key"}}\n')
    with refused(UsageError, 2, "jobs.toml: job 'v'", "is not opened without its key"):
        jobs.read(file)
    (tmp_path / "key").write_text("open sesame\n")
    (job,) = jobs.read(file).jobs.values()
    assert "sesame" not in repr(job) + repr(job.settings)
    assert job.run(spark=quire.LocalRunner(), progress=False, stop=None).files == 3


WRONG = {
    "call = 'gather'": ("key 'call'", "it is one of consolidate, process, load"),
    "source = '/in'": ("key 'call'",),
    "call = 'load'": ("key 'source'", "it is missing"),
    "call = 'load'\nsource = 'kafka://h/t'\ndest = '/out'\nstart = 'never'": ("key 'start'",),
    "call = 'load'\nsource = 'kafka://h/t'\ndest = '/out'\ntransform = 'none.py:f'": ("key 'transform'", "does not exist"),
    "call = 'load'\nsource = 'kafka://h/t'\ndest = '/out'\nsource_options = {'sasl.password' = 'pw123456'}": ("looks like a secret",),
    "call = 'process'\nsource = '/in'\ndest = '/out'": ("key 'function'", "it is missing"),
    "call = 'consolidate'\nsource = '/in'\ndest = '/out'\nmax_quarantined = 'many'": ("key 'max_quarantined'",),
    "call = 'consolidate'\nsource = '/in'\ndest = '/out'\nprogress = true": ("key 'progress'", "not known"),
    "call = 'consolidate'\nsource = '/in'\ndest = '/out'\nrestart = 'often'": ("key 'restart'",),
    "call = 'consolidate'\nsource = '/in'\ndest = '/out'\nrestart = '0 s'": ("key 'restart'", "restart is 0, and has to be longer"),
    "call = 'consolidate'\nsource = '/in'\ndest = '/out'\nmax_runs = 3": ("key 'max_runs'",),
    "call = 'consolidate'\nsource = '.'\ndest = '/out'\ndecompress = 'zipp'": ("key 'decompress'", "unknown decompress 'zipp'"),
    "call = 'consolidate'\nsource = '.'\ndest = '/out'\ninclude = [3]": ("key 'include'", "takes globs"),
    "call = 'consolidate'\nsource = 's3://lake/in'\ndest = '/out'\nsource_options = {endpoint_ur = '1'}": ("key 'source_options'",),
    "call = 'consolidate'\nsource = '.'\ndest = 's3://lake/out'\ndest_options = {endpoint_ur = '1'}": ("key 'dest_options'",),
    "call = 'load'\nsource = 'kafka://h/t'\ndest = 's3://lake/out'\nstorage_options = {endpoint_ur = '1'}": ("key 'storage_options'",),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_mistake_is_one_line_with_file_job_and_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.toml").write_text(f"[jobs.x]\n{text}\n")
    with refused(UsageError, 2, "jobs.toml: job 'x', ", *WRONG[text]) as caught:
        jobs.read(Path("jobs.toml"))
    assert "pw123456" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "it has no jobs"), ("[job.x]", "unknown key 'job'"), ("jobs = 3", "'jobs' is not a table"),
     ("[jobs]\nx = 3", "'jobs.x' is not a table"),     ("[jobs.x", "is not TOML"), ("\udcff", "is not TOML"),
     ("spark = 1\n[jobs.x]", "'spark' is not a table")],
    ids=range(7),
)  # fmt: skip
def test_a_file_that_has_no_jobs_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "jobs.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with refused(UsageError, 2, "jobs.toml", words):
        jobs.read(tmp_path / "jobs.toml")


def test_the_example_has_no_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(__file__).parents[2] / "examples" / "loops"
    monkeypatch.chdir(folder)
    text = (folder / "jobs.toml").read_text()
    for place in ("in/logs", "in/texts", "secrets"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "secrets" / "kafka").write_text("open sesame")
    file = tmp_path / "jobs.toml"
    file.write_text(text.replace('"/data/', f'"{tmp_path}/'))
    found = jobs.read(file).jobs
    assert jobs.listed(found.values()) == "events (load), logs (consolidate), words (process)"
    assert all(job.restart == 300 for job in found.values())


def test_the_command_checks_and_runs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "jobs.toml"
    of_spark = "[spark]\nspark.sql.shuffle.partitions = 3\n'spark.ui.enabled' = true\n"
    file.write_text(gathers(tmp_path, "a", max_runs=2).replace("'2'", "2") + of_spark)
    assert run("run", "--check", file) == (0, f"{file}: no mistake in a (consolidate)\n", "")
    assert not (tmp_path / "out-a").exists()
    given = list[Any]()

    class Here:
        def __init__(self, master: Any, conf: Any) -> None:
            given.append({"master": master, **conf})

        def __enter__(self) -> Any:
            return quire.LocalRunner()

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(running, "spark_of", Here)
    found = run("run", "--json", file)
    assert answer(found)["jobs"]["a"]["exit_code"] == 0
    assert found[2].splitlines() == ["running a (consolidate)", "a: 6 files gathered, 0 quarantined; version 2", "a: it has ended"]
    assert given[0]["spark.sql.shuffle.partitions"] == 3
    assert given[0]["spark.scheduler.mode"] == "FAIR"
    one_line(run("run", tmp_path / "none.toml"), 2, "cannot be read: No such file or directory")


@pytest.mark.parametrize("said", ["", "mimalloc"])
def test_the_shell_takes_memory_from_the_system_unless_told_otherwise(said: str) -> None:
    told = "import sys; from quire.cli import main\ntry:\n    main(['--version'])\nexcept SystemExit:\n    pass\nimport pyarrow as pa"
    asked = [sys.executable, "-c", f"{told}; print(pa.default_memory_pool().backend_name)"]
    env = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run(
        asked, capture_output=True, text=True, check=True, env=env | ({"ARROW_DEFAULT_MEMORY_POOL": said} if said else {})
    )
    assert done.stdout.split()[-1] == (said or "system")
