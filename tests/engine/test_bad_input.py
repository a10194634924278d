"""Bad input: one clear line each that says what to do, the right exit code, nothing lost, nothing half made."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quire
from checker import check, look
from gathering import documents, gather, not_taken, refused, snapshot, write
from gathering import look as plan
from quire.errors import QuireError, RefusedError, StorageError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# ------------------------------------------------------------------------------------------------------ source, destination


def test_a_source_that_is_missing(tmp_path: Path) -> None:
    for source in (tmp_path / "no", f"{tmp_path}/no/*.xml", f"file://{tmp_path}/no", [tmp_path, tmp_path / "no\nwhere"]):
        for act in (gather, plan):
            with refused(UsageError, 2, "does not exist", str(tmp_path)):
                act(source, tmp_path.with_name("out"))
    for source in ("", [], None, 5, {"a": 1}, [None], b"bytes"):
        with refused(UsageError, 2):
            gather(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_source_that_is_empty_is_a_normal_report_of_zero(tmp_path: Path) -> None:
    report = gather(write(tmp_path / "in", {}), tmp_path / "out")
    assert (report.files, report.bytes, report.data_files, not_taken(report), report.jobs) == (0, 0, 0, 0, ())
    assert len(plan(tmp_path / "in", tmp_path / "out").tasks) == 0
    assert str(report)
    check(tmp_path / "in", tmp_path / "out")


def test_a_source_that_is_a_file(tmp_path: Path) -> None:
    write(tmp_path, {"a.xml": b"<a/>"})
    with refused(UsageError, 2, "is a file", "Give its directory, with include='a.xml'"):
        gather(tmp_path / "a.xml", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("source", "dest"), [("a", "a/b"), ("a", "a"), ("a/b", "a"), ("a", "link/b"), ("link/b", "a")])
def test_a_destination_inside_the_source_or_the_reverse(tmp_path: Path, source: str, dest: str) -> None:
    write(tmp_path, {"a/b/x": b"1"})
    (tmp_path / "link").symlink_to("a")
    before = snapshot(tmp_path)
    for act in (gather, plan):
        with refused(RefusedError, 2, " lies in the ", "outside"):
            act(tmp_path / source, tmp_path / dest)
    assert snapshot(tmp_path) == before
    write(tmp_path, {"ab/x": b"1"})
    assert gather(tmp_path / "ab", tmp_path / "a b").files == 1, "a longer name is no place inside"


def test_a_destination_that_holds_other_files_is_refused_and_kept(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in", documents(3)), write(tmp_path / "out", {"precious.csv": b"1"})
    before = snapshot(out)
    for act in (gather, plan):
        with refused(RefusedError, 2, "is not empty and not quire's", "'precious.csv'", "allow_nonempty=True"):
            act(source, out)
    assert snapshot(out) == before
    for committer in ("rename", "rename_v2"):
        assert gather(write(source, {committer: b"new"}), out, allow_nonempty=True, committer=committer).files > 0
    assert gather(source, out).files == 0, "from then on it is quire's"
    check(source, out, foreign={"precious.csv"})
    assert (out / "precious.csv").read_bytes() == b"1"


def test_a_destination_that_is_a_file_or_lies_below_one(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(3))
    write(tmp_path, {"file": b"1"})
    for dest in ("file", "file/below/it"):
        with refused(StorageError, 3, "is not a directory", "Choose another destination"):
            gather(source, tmp_path / dest)
    assert (tmp_path / "file").read_bytes() == b"1"


def test_a_file_in_the_place_of_a_directory_of_the_output_is_named_and_kept_and_moving_it_lets_all_go_on(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in", {"d/a": b"1\n", "e/b": b"2\n"}), write(tmp_path / "out", {"d": b"precious"})
    for _ in range(2):
        with refused(StorageError, 3, "out/d/part-", "a file has the name of a directory", "Move it away and call again"):
            gather(source, out, layout="directories", allow_nonempty=True)
    (out / "d").rename(out / "elsewhere")
    gather(source, out, layout="directories")
    check(source, out, foreign={"elsewhere"})
    assert (out / "elsewhere").read_bytes() == b"precious"


@pytest.mark.parametrize(
    "other", [{"transform": "raw"}, {"compression": "gzip"}, {"layout": "directories"}, {"transform": "json"}, {"transform": divmod}]
)
def test_two_transforms_or_formats_in_one_destination(tmp_path: Path, other: dict[str, Any]) -> None:
    source = write(tmp_path / "in", documents(3))
    gather(source, tmp_path / "out")
    write(source, {"new": b"1"})
    before = snapshot(tmp_path / "out")
    for act in (gather, plan):
        with refused(RefusedError, 2, "holds transform 'lines', format 'lines'", "Say the same, or choose another"):
            act(source, tmp_path / "out", **other)
    assert snapshot(tmp_path / "out") == before
    assert gather(source, tmp_path / "out").files == 1


# -------------------------------------------------------------------------------- what the machine has run out of, not the file


@pytest.mark.nth(2)
@pytest.mark.parametrize("lacking", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("call", ["open", "stat", "list", "stream"])
def test_what_this_machine_has_run_out_of_puts_no_file_into_quarantine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: int, call: str
) -> None:
    source = write(tmp_path / "in", {"d/long": b"x" * 2_000_000 + b"\n", **{f"d/{i}": b"%d\n" % i for i in range(9)}})
    (source / "d" / "link").symlink_to("5")

    def starved(real: Any, of: str) -> Any:
        def act(path: Any, *args: Any, **kwargs: Any) -> Any:
            if str(path).endswith(of):
                raise OSError(lacking, os.strerror(lacking), str(path))
            return real(path, *args, **kwargs)

        return act

    with monkeypatch.context() as patch:
        if call == "list":
            patch.setattr("os.scandir", starved(os.scandir, "in/d"))
        elif call == "stat":
            patch.setattr("quire.storage.local._is_folder", lambda item, follow: False if item.name == "link" else item.is_dir())
            shown = os.scandir

            class Scan:
                def __init__(self, path: str) -> None:
                    self.found = shown(path)

                def __enter__(self) -> Scan:
                    return self

                def __exit__(self, *_: object) -> None:
                    self.found.close()

                def __iter__(self) -> Any:
                    return (Item(item) if item.name == "link" else item for item in self.found)

            class Item:
                def __init__(self, item: Any) -> None:
                    self.name, self.path, self.is_symlink, self.is_file = item.name, item.path, item.is_symlink, item.is_file

                def stat(self, **_: Any) -> Any:
                    raise OSError(lacking, os.strerror(lacking))

            patch.setattr("os.scandir", Scan)
        else:
            patch.setattr("os.open", starved(os.open, "in/d/5" if call == "open" else "in/d/long"))
        with refused(QuireError, 3, "too little memory" if lacking == errno.ENOMEM else "too many files are open"):
            gather(source, tmp_path / "out", follow_links=True)
    report = gather(source, tmp_path / "out", follow_links=True)
    assert (report.files, not_taken(report)) == (11, 0), "what was wrong was not wrong with the files"


# -------------------------------------------------------------------------------------------------------------- permissions

NOBODY = 65534


def as_nobody(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code as a user without rights, also where the tests run as root; `gather` prints what it says."""
    warm = write(tmp_path / "warm", {"x": b"1"})
    script = f"""
        import os, sys
        import quire
        from quire.errors import QuireError
        quire.consolidate({str(warm)!r}, {str(tmp_path / "warm-out")!r}, spark=quire.LocalRunner(), progress=False)  # imports all it needs
        if os.getuid() == 0:
            os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
        def gather(*args, **more):
            try:
                r = quire.consolidate(*args, spark=quire.LocalRunner(), progress=False, **more)
                left = *r.quarantined, *r.changed, *r.unreadable
                print("report", r.files, len(left), *(f"{{p}}: {{w}}" for p, w in left), sep="|")
            except QuireError as e:
                print("error", e.exit_code, e, sep="|")
        source, out = {str(tmp_path / "in")!r}, {str(tmp_path / "out")!r}
    """
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)  # the way to the test's own directory
    done = subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(script) + code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


def give(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    if os.getuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    return path


def test_no_permission_on_a_directory_or_a_file_of_the_source(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"ok": b"1", "closed": b"2", "shut/x": b"3", "listed only/x": b"4"})
    give(tmp_path / "out")
    (source / "closed").chmod(0)
    (source / "shut").chmod(0)
    (source / "listed only").chmod(0o444)
    if os.getuid() == 0:
        os.chown(source / "closed", 1, 1)
    out = as_nobody(tmp_path, "gather(source, out); gather(source, out)").stdout.splitlines()
    assert out[0].startswith("report|1|3|")
    assert f"{source}/closed: PermissionError: Permission denied" in out[0]
    assert f"{source}/shut: cannot list the directory: Permission denied" in out[0]
    assert f"{source}/listed only/x: cannot look up the file: Permission denied" in out[0]
    assert out[1].startswith("report|0|2|"), "closed is in quarantine now, the directories are looked at again"
    assert {os.path.basename(p) for p in look(tmp_path / "out").quarantined} == {"closed"}


def test_no_permission_on_the_source_itself_or_on_the_way_to_it(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"d/x": b"1"})
    give(tmp_path / "out")
    source.chmod(0)
    out = as_nobody(tmp_path, "gather(source, out); gather(source + '/d', out)").stdout.splitlines()
    source.chmod(0o755)
    for line in out:
        assert line.startswith("error|3|cannot "), line
        assert "no permission. Ask for the right" in line
    assert not list((tmp_path / "out").iterdir())


def test_a_destination_that_cannot_be_written(tmp_path: Path) -> None:
    write(tmp_path / "in", documents(3))
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o755)
    out = as_nobody(tmp_path, "gather(source, out); gather(source, out + '/new/deep'); gather(source, '/proc/x')").stdout.splitlines()
    for line in out:
        assert line.startswith("error|3|cannot write below file:///"), line
        assert "Choose a destination that can be written" in line
    assert not list((tmp_path / "out").iterdir())


# --------------------------------------------------------------------------------------------------------------- disk full


def full(*args: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.nth(6)
@pytest.mark.parametrize("kind", [{"transform": "lines"}, {"transform": "raw", "format": "parquet"}, {"compression": "zstd"}])
@pytest.mark.parametrize("after", [0, 3, 5, 8, 12])
def test_a_disk_that_is_full_in_mid_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any], after: int) -> None:
    source = write(tmp_path / "in", documents(30))
    real, calls = os.write, [0]

    def limited(fd: int, data: Any) -> int:
        calls[0] += 1
        return full() if calls[0] > after else real(fd, data)  # type: ignore[no-any-return]

    monkeypatch.setattr(os, "write", limited)
    with refused(QuireError, 3, "the disk is full. Free some space"):
        gather(source, tmp_path / "out", target_size="200 B", **kind)
    monkeypatch.undo()
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["_quire"], "nothing is visible"
    gather(source, tmp_path / "out", target_size="200 B", **kind)
    check(source, tmp_path / "out", None)


def test_a_disk_that_is_full_in_mid_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", documents(30))
    real, calls = os.rename, [0]

    def limited(*args: Any) -> None:
        calls[0] += 1
        return full() if calls[0] > 2 else real(*args)

    monkeypatch.setattr(os, "rename", limited)
    with refused(StorageError, 3, "cannot publish", "the disk is full. Free some space"):
        gather(source, tmp_path / "out", target_size="100 B")
    monkeypatch.undo()
    report = gather(source, tmp_path / "out", target_size="100 B")
    assert report.files == 0, "it was committed: the next call publishes it"
    check(source, tmp_path / "out")


@pytest.mark.skipif(os.getuid() != 0 or not os.path.exists("/bin/mount"), reason="needs root to mount a small file system")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], capture_output=True).returncode:
        pytest.skip("may not mount here")
    try:
        source = write(tmp_path / "in", {f"{i}": os.urandom(500_000) for i in range(6)})
        with refused(QuireError, 3, "the disk is full"):
            gather(source, disk / "out", transform="raw", target_size="1 MB")
        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
        assert gather(source, disk / "out", transform="raw", target_size="1 MB").files == 6
        check(source, disk / "out", lambda c: c)
    finally:
        subprocess.run(["umount", disk], check=True)


# ------------------------------------------------------------------------------------------------------------------ content


def test_xml_bombs_and_external_entities_are_set_aside_at_once(tmp_path: Path) -> None:
    lol = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
    secret = write(tmp_path / "secret", {"password": b"hunter2"}) / "password"
    files = {
        "bomb.xml": f'<!DOCTYPE l [<!ENTITY l0 "lol">{lol}]><l>&l11;</l>',
        "quadratic.xml": f'<!DOCTYPE q [<!ENTITY a "{"a" * 9999}">]><q>{"&a;" * 9999}</q>',
        "file.xml": f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{secret}">]><x>&e;</x>',
        "net.xml": '<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd"><x>&e;</x>',
        "deep.xml": "<a>" * 100_000 + "</a>" * 100_000,
        "ok.xml": "<a/>",
    }
    source = write(tmp_path / "in", {name: text.encode() for name, text in files.items()})
    started = time.monotonic()
    report = gather(source, tmp_path / "out", transform="xml")
    assert time.monotonic() - started < 5
    assert (report.files, not_taken(report)) == (1, 5)
    found = check(source, tmp_path / "out", None)
    assert all("refused XML" in reason for reason in found.quarantined.values())
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file() and b"hunter2" in p.read_bytes()]


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.write(b"first line\n")
        for at in range(1 << 20, size, size // 7):
            file.seek(at)
            file.write(b"\nline at %d\n" % at)
        file.truncate(size)


@pytest.mark.nth(2)
@pytest.mark.parametrize("size", [64 << 20, pytest.param(5 << 30, marks=pytest.mark.nightly)], ids=["64 MiB", "5 GiB"])
@pytest.mark.parametrize("transform", ["lines", "raw"])
def test_a_file_of_no_bytes_and_a_very_long_one(tmp_path: Path, transform: str, size: int) -> None:
    import resource

    sparse(write(tmp_path / "warm", {}) / "up", 16 << 20)
    gather(tmp_path / "warm", tmp_path / "warm-out", transform=transform, target_size="4 MiB")
    source = write(tmp_path / "in", {"empty": b"", "short": b"1\n"})
    sparse(source / "long", size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = gather(source, tmp_path / "out", transform=transform, target_size=f"{size // 4 + 1} B")
    assert (report.files, not_taken(report), report.bytes) == (3, 0, size + 2)
    assert report.data_files in (4, 5)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10, "it is not held in memory"
    rows = sorted((r for r in look(tmp_path / "out").rows if r["path"].endswith("/long")), key=lambda r: r["start"])
    with (source / "long").open("rb") as file:
        for row in rows:
            with (tmp_path / "out" / row["data_file"]).open("rb") as data:
                data.seek(row["offset"])
                left = row["written"]
                while left:
                    piece = data.read(min(left, 16 << 20))
                    there = file.read(len(piece))
                    assert piece in (there, there + b"\n")
                    left -= len(piece)
    assert gather(source, tmp_path / "out", transform=transform, target_size=f"{size // 4 + 1} B").skipped == 3


# -------------------------------------------------------------------------------------------------------------------- spark


def test_a_session_that_was_stopped(tmp_path: Path) -> None:
    class Stopped:
        is_stopped, newSession, range = True, None, None  # noqa: N815

    source = write(tmp_path / "in", documents(3))
    for act in (quire.consolidate, quire.plan):
        with refused(UsageError, 2, "was stopped", "quire.session()"):
            act(source, tmp_path / "out", spark=Stopped(), progress=False)
    assert not (tmp_path / "out").exists()


def test_a_memory_url_with_spark(tmp_path: Path, spark: SparkSession) -> None:
    source = write(tmp_path / "in", documents(3))
    for one, two in ((source, "memory://out"), ("memory://in", tmp_path / "out")):
        for given in (spark, None):
            with refused(UsageError, 2, "memory://", "LocalRunner()"):
                quire.consolidate(one, two, spark=given, progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.services
def test_control_c_stops_a_function_that_never_ends_and_the_next_call_goes_on(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(6))
    code = f"""
        import time, quire
        def stuck(content, file):
            while True:
                time.sleep(0.1)
                open({str(tmp_path / "begun")!r}, "w").close()
        spark = quire.session(master="local[2]")
        try:
            quire.consolidate({str(source)!r}, {str(tmp_path / "out")!r}, transform=stuck, progress=False)
        except KeyboardInterrupt:
            raise SystemExit(130)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 180
        while not (tmp_path / "begun").exists() and time.monotonic() < until and process.poll() is None:
            time.sleep(0.1)
        assert (tmp_path / "begun").exists()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130, said
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert not look(tmp_path / "out").data
    assert gather(source, tmp_path / "out").files == 6
    check(source, tmp_path / "out", settled=False)
