"""No stored string is an address: what a ledger, a log or a plan says sends nobody outside of what the call names."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from checker import tree
from gathering import documents, gather, refused, snapshot, write
from quire import InProcess, Ledger, RefusedError, UsageError
from quire.sources import files
from quire.storage import normalise
from quire.storage.way import Way, origin
from quire.upkeep import markers, retry

HERE: dict[str, Any] = {"spark": InProcess(), "progress": False}


def forge(out: Path, words: dict[str, Any] | None = None, **columns: Any) -> None:
    """As somebody with an editor: the rows of the only segment say something else, and so does the entry that names it."""
    (segment,) = (out / "_quire/ledger").glob("*.parquet")
    table = pq.read_table(segment)
    for name, value in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(name), pa.array([value] * table.num_rows, table.schema.field(name).type))
    pq.write_table(table, segment)
    entry = out / "_quire/log/00000000000000000001.json"
    said = json.loads(entry.read_bytes())
    said["words"] |= words or {}
    if "path" in columns:
        said["tasks"][0] |= {"first": columns["path"], "last": columns["path"]}
    entry.write_text(json.dumps(said))


def of(path: Path) -> dict[str, Any]:
    """The columns of a row about a file of this disk."""
    status = os.stat(path)
    return {"version": f"{status.st_mtime_ns}-{status.st_size}", "length": status.st_size}


AWAY = ("private/secret.txt", "in/../private/secret.txt", "in/./../private/secret.txt", "in//../private/secret.txt")


@pytest.mark.parametrize("spelled", AWAY)
def test_a_row_of_the_quarantine_reads_nothing_outside_of_the_source(tmp_path: Path, spelled: str) -> None:
    write(tmp_path, {"private/secret.txt": b"password=hunter2\n", "in/a.xml": b"<"})
    gather(tmp_path / "in", tmp_path / "out", transform="xml")
    forge(tmp_path / "out", {"transform": "lines"}, path=f"file://{tmp_path}/{spelled}", **of(tmp_path / "private/secret.txt"))
    done = Ledger(tmp_path / "out").retry(tmp_path / "in", **HERE)
    assert (done.gathered, [why for _, why in done.left]) == (0, [retry.OUTSIDE])
    with refused(RefusedError, 2, "names no source", f"{tmp_path}/", "retry(source=…)"):
        Ledger(tmp_path / "out").retry(**HERE)
    assert not [content for content in tree(tmp_path / "out").values() if b"hunter2" in content]


@pytest.mark.parametrize("spelled", AWAY)
def test_a_row_deletes_nothing_outside_of_the_source(tmp_path: Path, spelled: str) -> None:
    content = b"three years of work\n"
    write(tmp_path, {"private/secret.txt": content, "in/a.txt": content})
    gather(tmp_path / "in", tmp_path / "out")
    forge(tmp_path / "out", path=f"file://{tmp_path}/{spelled}", **of(tmp_path / "private/secret.txt"))
    before = snapshot(tmp_path / "private")
    assert Ledger(tmp_path / "out").purge_sources(tmp_path / "in", dry_run=False, spark=InProcess()).files == 0
    with refused(RefusedError, 2, "names no source", f"{tmp_path}/", "purge_sources(source=…)"):
        Ledger(tmp_path / "out").purge_sources(dry_run=False, spark=InProcess())
    assert snapshot(tmp_path / "private") == before


@pytest.mark.parametrize("url", ["webhdfs://127.0.0.1:1/in/a.xml", "s3://theirs/in/a.xml", "abfs://in@acc.dfs.attacker.example/a.xml"])
def test_a_row_sends_no_credentials_anywhere(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in", {"a.xml": b"<"})
    gather(tmp_path / "in", tmp_path / "out", transform="xml")
    forge(tmp_path / "out", path=url)
    monkeypatch.setattr("quire.storage._module", None)  # through which a store behind a network is opened
    done = Ledger(tmp_path / "out").retry(tmp_path / "in", storage_options={"token": "SECRET"}, **HERE)
    assert [why for _, why in done.left] == [retry.OUTSIDE]
    found = Ledger(tmp_path / "out").purge_sources(tmp_path / "in", dry_run=False, spark=InProcess(), storage_options={"token": "SECRET"})
    assert found.files == 0


def test_a_log_sends_nobody_to_its_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in", {"a.xml": b"<"})
    gather(tmp_path / "in", tmp_path / "out", transform="xml")
    entry = tmp_path / "out/_quire/log/00000000000000000001.json"
    entry.write_text(json.dumps(json.loads(entry.read_bytes()) | {"source": "kafka://attacker.example:9092/t"}))
    forge(tmp_path / "out", {"transform": "records", "format": "parquet", "split": "offsets"}, path="kafka://c/t/0", state="bad")
    for name in ("quire.sources.positions.cluster_of", "quire.sources.kafka_client.cluster_of"):
        monkeypatch.setattr(name, None)
    password = {"sasl.password": "hunter2"}
    with refused(RefusedError, 2, "names no source", "kafka://attacker.example:9092/t", "lag(source=…)"):
        Ledger(tmp_path / "out").lag(source_options=password)
    with refused(RefusedError, 2, "names no source", "kafka://attacker.example:9092/t", "retry(source=…)"):
        Ledger(tmp_path / "out").retry(storage_options=password, **HERE)
    with refused(UsageError, 2):
        Ledger(tmp_path / "out").import_offsets("", {0: 1}, source_options=password, **HERE)


def test_rejected_records_are_retried_from_the_quarantine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def numbers(split: quire.Split, content: bytes) -> bytes:
        at = 0
        for line in content.splitlines(keepends=True):
            if line.startswith(b"x"):
                split.reject(line.rstrip(b"\n"), "no number", at)
            at += len(line)
        return b"".join(line for line in content.splitlines(keepends=True) if line[:1].isdigit())

    source, dest = write(tmp_path / "in", {"a": b"1\nx2\n3\n"}), tmp_path / "out"
    quire.process(source, numbers, dest, split="lines", format="lines", **HERE)
    monkeypatch.setattr("quire.sources.files.connect", None)
    assert Ledger(dest).retry(function=lambda split, content: content.removeprefix(b"x"), **HERE).gathered == 1
    assert sorted(quire.reading.first_rows(Ledger(dest)._store, 9)) == [b"1", b"2", b"3"]


def test_a_range_is_no_longer_than_its_source(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a.xml": b"<"})
    gather(tmp_path / "in", tmp_path / "out", transform="xml")
    forge(tmp_path / "out", {"transform": "raw"}, length=1 << 40)
    done = Ledger(tmp_path / "out").retry(tmp_path / "in", **HERE)
    assert (done.jobs, [why.partition(":")[0] for _, why in done.left]) == ((), ["it has 1 bytes, and the ledger speaks of more"])


def test_a_forged_length_is_no_work_for_days(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(1))
    gather(source, tmp_path / "out")
    forge(tmp_path / "out", length=1 << 62)
    for given, words in (({}, "Name its source"), ({"source": source}, "at its source it has")):
        with refused(RefusedError, 2, f"{1 << 62:,} bytes", words):
            Ledger(tmp_path / "out").export_markers(tmp_path / "m", spark=InProcess(), **given)
    assert not tree(tmp_path / "m")


def test_ranges_that_touch_are_one() -> None:
    assert markers.merged([(5, 5), (0, 5), (20, 1), (2, 4)]) == [(0, 10), (20, 1)]


# -------------------------------------------------------------------------------------------------------------------------- links
SECRET = b"password=hunter2\n"


def swapped(source: Path, name: str, private: Path) -> None:
    """Somebody gives a file the size and time of another one, lets it be listed, and then puts a link in its place or in a directory's."""
    folder, _, last = name.rpartition("/")
    if folder:
        (source / folder).rename(source.parent / "away")
        (source / folder).symlink_to(private)
    else:
        (source / last).unlink()
        (source / last).symlink_to(private / last)


@pytest.mark.parametrize("name", ["a.txt", "sub/a.txt", "sub/deep/a.txt"])
@pytest.mark.parametrize("size", [len(SECRET), 3 << 20])
def test_what_becomes_a_link_after_it_was_listed_is_not_read_through(tmp_path: Path, name: str, size: int) -> None:
    content = SECRET.ljust(size, b"x")
    source, private = tmp_path / "in", tmp_path / "private"
    write(private, {"a.txt": content, "deep/a.txt": content})
    write(source, {name: b"x" * size, "good.txt": b"good\n"})
    for path in (source / name, private / "a.txt", private / "deep/a.txt"):
        os.utime(path, ns=(10**18, 10**18))
    plan = quire.plan(source, tmp_path / "out", **HERE)
    top = name.split("/", maxsplit=1)[0]
    swapped(source, f"{top}/a.txt" if "/" in name else name, private)
    report = plan.run(progress=False)
    assert not [found for path, found in tree(tmp_path / "out").items() if b"hunter2" in found]
    assert report.files == 1
    assert [path for path, _ in report.left_out] == [f"file://{source}/{name}"]


def test_a_link_in_a_quarantined_files_place_is_neither_read_nor_deleted_through(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"sub/a.xml": b"<", "sub/b.xml": b"<b/>"})
    write(tmp_path / "private", {"a.xml": b"<", "b.xml": b"<b/>"})
    for folder in (source / "sub", tmp_path / "private"):
        for path in folder.iterdir():
            os.utime(path, ns=(10**18, 10**18))
    gather(source, tmp_path / "out", transform="xml")
    swapped(source, "sub/a.xml", tmp_path / "private")
    done = Ledger(tmp_path / "out").retry(source, **HERE)
    assert (done.jobs, ["symbolic link" in why for _, why in done.left]) == ((), [True])
    assert Ledger(tmp_path / "out").purge_sources(source, dry_run=False, spark=InProcess()).files == 0
    assert len(tree(tmp_path / "private")) == 2
    again = Ledger(tmp_path / "out").retry(source, follow_links=True, max_quarantined=1, **HERE)
    assert again.set_aside == 1, "by the caller's word it is read through"


def test_a_link_to_a_data_file_of_the_destination_is_not_gathered(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.txt": b"one\n"}), tmp_path / "out"
    gather(source, dest, follow_links=True)
    (part,) = dest.glob("*.txt")
    (source / "link.txt").symlink_to(part)
    report = gather(source, dest, follow_links=True)
    assert (report.files, report.links) == (0, 1)


def test_very_deep_directories_need_few_descriptors(tmp_path: Path) -> None:
    name = "/".join("d" * 300)
    write(tmp_path, {f"{name}/a": b"1", f"{name}/b": b"2"})
    before = len(os.listdir("/proc/self/fd"))
    way = Way(str(tmp_path))
    fds = [way.open(f"{name}/{last}", os.O_RDONLY) for last in "ab"]
    assert len(os.listdir("/proc/self/fd")) - before < 30
    assert [os.read(fd, 1) for fd in fds] == [b"1", b"2"]
    way.close()
    for fd in fds:
        os.close(fd)
    assert len(os.listdir("/proc/self/fd")) == before


# --------------------------------------------------------------------------------------------------------------------- one place
OF = {"account_name": "acc", "account_key": "a2V5"}
SAME: list[tuple[str, str, dict[str, str]]] = [
    ("abfs://data/in", "abfs://data@acc.dfs.core.windows.net/in", OF), ("abfs://data/in", "abfs://data@acc.dfs.core.windows.net/in", {}),
    ("wasbs://data@ACC.blob.core.windows.net/in/", "abfss://data@acc.dfs.core.windows.net/in", OF),
    ("webhdfs://NN:9870/in", "hdfs://nn:8020/in", {}), ("hdfs://nn/in", "hdfs://nn:8020/in", {}),
    ("s3a://bucket/in", "s3://bucket/in/", {}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "options"), SAME)
def test_one_place_under_two_names_is_one(one: str, other: str, options: dict[str, str]) -> None:
    for source, dest in ((one, other), (other, one)):
        roots = [files.Root(normalise(source), options=options)]
        for inside in ("", "/out"):
            with refused(RefusedError, 2, "lies in"):
                files.apart(roots, normalise(dest.rstrip("/") + inside), options)
        files.apart(roots, normalise(dest.rstrip("/") + "side"), options)


def test_what_is_mounted_twice_is_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    told = (
        b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:1 /data/deep /mnt/a\\040b rw - ext4 /dev/a rw\n3 1 8:2 / /data/other rw - ext4 /dev/b rw\n"
    )
    monkeypatch.setattr("builtins.open", lambda *_: io.BytesIO(told))
    assert origin("/mnt/a b/in") == origin("/data/deep/in")
    assert len({origin(path) for path in ("/data/other/in", "/data/othe/in", "/in", "/mnt/a bc/in")}) == 4


def test_a_store_that_is_not_there_yet_is_said_to_be_so() -> None:
    with refused(UsageError, 2, "Google Cloud Storage is not supported yet", "mount the bucket"):
        normalise("gs://bucket/in")
