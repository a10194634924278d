"""No stored string is an address: what a ledger, a log or a plan says sends nobody outside of what the call names."""

from __future__ import annotations

import http.server
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
import services.example  # noqa: F401 (by it hdfs:// is known)
from checker import tree
from gathering import documents, gather, not_taken, refused, snapshot, write
from quire import Ledger, LocalRunner, RefusedError, UsageError
from quire.errors import StorageError, TransientError
from quire.ledger import markers, retry
from quire.read import first_rows
from quire.sources import files
from quire.storage import MemoryStore, bare, canonical, normalise
from quire.storage.azure import store as azure
from quire.storage.azure.account import account, parts
from quire.storage.hdfs.access import Access
from quire.storage.hdfs.rest import WebHdfsRest
from quire.storage.local import LocalStore
from quire.storage.message import Answer
from quire.storage.way import Way, origin

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}


def forge(out: Path, spec: dict[str, Any] | None = None, **columns: Any) -> None:
    """As somebody with an editor: the rows of the only segment say something else, and so does the entry that names it."""
    (segment,) = (out / "_quire/ledger").glob("*.rows")
    table = pq.read_table(segment)
    for name, value in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(name), pa.array([value] * table.num_rows, table.schema.field(name).type))
    pq.write_table(table, segment)
    entry = out / "_quire/log/00000000000000000001.entry"
    said = json.loads(entry.read_bytes())
    said["spec"] |= spec or {}
    if "path" in columns:
        said["tasks"][0]["coverage"] |= {"first": columns["path"], "last": columns["path"]}
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
    assert Ledger(tmp_path / "out").purge_sources(tmp_path / "in", dry_run=False, spark=LocalRunner()).files == 0
    with refused(RefusedError, 2, "names no source", f"{tmp_path}/", "purge_sources(source=…)"):
        Ledger(tmp_path / "out").purge_sources(dry_run=False, spark=LocalRunner())
    assert snapshot(tmp_path / "private") == before


@pytest.mark.parametrize("url", ["webhdfs://127.0.0.1:1/in/a.xml", "s3://theirs/in/a.xml", "abfs://in@acc.dfs.attacker.example/a.xml"])
def test_a_row_sends_no_credentials_anywhere(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in", {"a.xml": b"<"})
    gather(tmp_path / "in", tmp_path / "out", transform="xml")
    forge(tmp_path / "out", path=url)
    monkeypatch.setattr("quire.storage._module", None)  # through which a store behind a network is opened
    done = Ledger(tmp_path / "out").retry(tmp_path / "in", storage_options={"token": "SECRET"}, **HERE)
    assert [why for _, why in done.left] == [retry.OUTSIDE]
    found = Ledger(tmp_path / "out").purge_sources(tmp_path / "in", dry_run=False, spark=LocalRunner(), storage_options={"token": "SECRET"})
    assert found.files == 0


def test_a_log_sends_nobody_to_its_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in", {"a.xml": b"<"})
    gather(tmp_path / "in", tmp_path / "out", transform="xml")
    entry = tmp_path / "out/_quire/log/00000000000000000001.entry"
    entry.write_text(json.dumps(json.loads(entry.read_bytes()) | {"source": "kafka://attacker.example:9092/t"}))
    forge(tmp_path / "out", {"transform": "records", "format": "parquet", "kind": "offsets"}, path="kafka://c/t/0", state="quarantined")
    for name in ("quire.sources.kafka.positions.cluster_of", "quire.sources.kafka.client.cluster_of"):
        monkeypatch.setattr(name, None)
    password = {"sasl.password": "hunter2"}
    with refused(RefusedError, 2, "names no source", "kafka://attacker.example:9092/t", "lag(source=…)"):
        Ledger(tmp_path / "out").inspect.lag(source_options=password)
    with refused(RefusedError, 2, "names no source", "kafka://attacker.example:9092/t", "retry(source=…)"):
        Ledger(tmp_path / "out").retry(storage_options=password, **HERE)
    with refused(UsageError, 2):
        Ledger(tmp_path / "out").import_offsets("", {0: 1}, source_options=password, **HERE)


def test_rejected_records_are_retried_from_the_quarantine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def numbers(split: quire.Split, content: bytes) -> bytes:
        at = 0
        for line in content.splitlines(keepends=True):
            if line.startswith(b"x"):
                split.quarantine(line.rstrip(b"\n"), "no number", at)
            at += len(line)
        return b"".join(line for line in content.splitlines(keepends=True) if line[:1].isdigit())

    source, dest = write(tmp_path / "in", {"a": b"1\nx2\n3\n"}), tmp_path / "out"
    quire.process(source, dest, numbers, split="lines", format="lines", **HERE)
    monkeypatch.setattr("quire.sources.files.connect", None)
    assert Ledger(dest).retry(function=lambda split, content: content.removeprefix(b"x"), **HERE).gathered == 1
    assert sorted(first_rows(Ledger(dest)._store, 9)) == [b"1", b"2", b"3"]


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
            Ledger(tmp_path / "out").export_markers(tmp_path / "m", spark=LocalRunner(), **given)
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
    assert [path for path, _ in report.deferred] == [f"file://{source}/{name}"]


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
    assert Ledger(tmp_path / "out").purge_sources(source, dry_run=False, spark=LocalRunner()).files == 0
    assert len(tree(tmp_path / "private")) == 2
    again = Ledger(tmp_path / "out").retry(source, follow_links=True, max_quarantined=1, **HERE)
    assert again.quarantined == 1, "by the caller's word it is read through"


@pytest.mark.parametrize("folder", ["_quire", "_quire/jobs"])
def test_nothing_is_removed_through_what_becomes_a_link_after_it_was_looked_at(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("out", "private"):
        write(tmp_path / place, {"_quire/jobs/x/attempts/1": SECRET})
    store, look = LocalStore(f"{tmp_path}/out"), LocalStore._own

    def exchanged(self: LocalStore, name: str) -> str:
        path = look(self, name)
        if not (tmp_path / "away").exists():
            (tmp_path / "out" / folder).rename(tmp_path / "away")
            (tmp_path / "out" / folder).symlink_to(tmp_path / "private" / folder)
        return path

    monkeypatch.setattr(LocalStore, "_own", exchanged)
    with refused(StorageError, 3, "cannot remove"):
        store.remove_tree("_quire/jobs/x")
    assert (tmp_path / "private/_quire/jobs/x/attempts/1").read_bytes() == SECRET


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


KEY = {"account_key": "a2V5"}
EMULATOR = {"connection_string": "AccountName=emu;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:10000/emu;"}
STACK = {"account_host": "acc.blob.stack.example", **KEY}
SUFFIX = {"connection_string": "AccountName=acc;AccountKey=a2V5;EndpointSuffix=stack.example"}
NAMELESS = {"connection_string": "BlobEndpoint=https://acc.blob.core.windows.net;SharedAccessSignature=sig=x"}
CANONICAL: list[tuple[dict[str, str], str, list[str]]] = [
    (OF, "acc.dfs.core.windows.net", ["", "@acc", "@ACC.blob.core.windows.net", "@acc.dfs.core.windows.net:443"]),
    ({**OF, "account_host": "10.0.0.5"}, "acc.dfs.core.windows.net", ["", "@acc.dfs.core.windows.net", "@10.0.0.5"]),
    (KEY, "acc.dfs.core.windows.net", ["@acc", "@acc.privatelink.dfs.core.windows.net"]),
    (KEY, "acc.dfs.core.chinacloudapi.cn", ["@acc.blob.core.chinacloudapi.cn"]),
    (KEY, "acc.z12.dfs.storage.azure.net", ["@acc.z12.blob.storage.azure.net"]),
    (EMULATOR, "emu.dfs.core.windows.net", ["", "@emu", "@emu.dfs.core.windows.net", "@127.0.0.1:10000"]),
    (STACK, "acc.dfs.stack.example", ["", "@acc", "@acc.blob.stack.example"]),
    (SUFFIX, "acc.dfs.stack.example", ["", "@acc.dfs.stack.example"]),
    (NAMELESS, "acc.dfs.core.windows.net", ["", "@acc"]),
    ({"account_host": "images.example.org", "sas_token": "sig=x"}, "images.example.org", ["", "@images.example.org"]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "host", "spelled"), CANONICAL)
def test_a_place_of_azure_has_one_url_with_its_account(options: dict[str, str], host: str, spelled: list[str]) -> None:
    meant = f"abfs://data@{host}/in"
    reached = account(host, options).endpoint
    for where in spelled:
        assert canonical(f"wasbs://data{where}/in/", options) == canonical(meant, options) == meant
        assert account(parts(normalise(f"az://data{where}/in"))[1], options).endpoint == reached


@pytest.mark.parametrize(
    "host", ["acc.dfs.attacker.example", "acc.blob.core.windows.net.attacker.example", "127.0.0.1:1", "acc.example", "h:1"]
)
@pytest.mark.parametrize("options", [OF, {"account_name": "acc", "sas_token": "sig=hunter2"}, EMULATOR, STACK, {"anon": True}])
def test_the_endpoint_of_an_account_never_comes_from_a_url_alone(host: str, options: dict[str, Any]) -> None:
    for opens in (lambda: account(host, options), lambda: canonical(f"abfs://data@{host}/in", options)):
        with refused(UsageError, 2, repr(host), "is not a host of Azure storage that quire knows", "account_host="):
            opens()


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Azure as memory: a store for each account's container."""
    monkeypatch.setattr(azure, "opened", lambda url, options: place(url))

    def place(url: str) -> MemoryStore:
        assert "@" in url, "the account was left out"
        return MemoryStore(f"memory://{id(monkeypatch)}/{url.partition('://')[2]}")

    return place


def test_another_spelling_of_a_source_gathers_nothing_again(tmp_path: Path, cloud: Any) -> None:
    source = write(tmp_path / "in", {"a/b.txt": b"one\n"})
    (tmp_path / "link").symlink_to(source)
    cloud("abfs://data@acc.dfs.core.windows.net/in").put("a/b.txt", b"two\n")
    MemoryStore(f"memory://{tmp_path.name}/in").put("a/b.txt", b"three\n")
    there, store = f"{tmp_path}/in", f"memory://{tmp_path.name}"
    all_spellings = [
        [
            there,
            f"{there}/",
            f"{there}//",
            f"{there}/./",
            f"{tmp_path}//in",
            f"{there}/a/..",
            f"{tmp_path}/link",
            f"file://localhost{there}",
        ],
        ["abfs://data/in", "abfs://data@acc.dfs.core.windows.net/in", "wasbs://data@ACC.blob.core.windows.net/in/", "az://data/in"],
        [f"{store}/in", f"{store}/in/", f"{store}//in", f"{store}/./in"],
    ]
    dest = tmp_path / "out"
    for spelled in all_spellings:
        found = [gather(one, dest, storage_options=OF) for one in spelled]
        assert [(r.files, r.skipped) for r in found] == [(1, 0), *[(0, 1)] * (len(spelled) - 1)], spelled
        for one in spelled:
            assert Ledger(dest).locate(f"{one.rstrip(chr(47))}/a/b.txt")[0].path == f"{canonical(spelled[0], OF)}/a/b.txt"
        assert Ledger(dest).forget([f"{spelled[-1].rstrip(chr(47))}/a"], **HERE).files_out == 1
        assert gather(spelled[1], dest, storage_options=OF).files == 1
    again = "abfs://data@acc.dfs.core.windows.net/in"
    report = Ledger(dest).purge_sources("abfs://data/in", dry_run=True, min_age=0, spark=LocalRunner(), storage_options=OF)
    assert report.files == 1
    assert Ledger(dest).purge_sources(again, dry_run=True, min_age=0, spark=LocalRunner(), storage_options=OF).files == 1


def test_one_containers_name_in_two_accounts_is_two_places(tmp_path: Path, cloud: Any) -> None:
    for name in ("one", "two"):
        cloud(f"abfs://data@{name}.dfs.core.windows.net/in").put("a.xml", b"<")
    both = [("abfs://data/in", {"account_name": name, **KEY}) for name in ("one", "two")]
    assert not_taken(gather(both, tmp_path / "out", transform="xml")) == 2
    found = Ledger(tmp_path / "out")
    with refused(UsageError, 2, "one.dfs.core.windows.net and two.dfs.core.windows.net", "abfs://data@one.dfs.core.windows.net/in/a.xml"):
        found.locate("abfs://data/in/a.xml")
    assert len(found.locate("abfs://data@two/in/a.xml")) == 1
    done = found.retry(both[:1], paths=["abfs://data/in/a.xml"], storage_options=both[0][1], max_quarantined=9, **HERE)
    assert done.quarantined == 1


SERVICE = {"namenodes": {"Cluster": ["nn1", "nn2:9871"]}}
NATIVE = {"extra_conf": {f"dfs.namenode.rpc-address.cluster.nn{i}": f"NN{i}:8020" for i in (1, 2)}}


@pytest.mark.parametrize(
    ("scheme", "options", "hosts"),
    [
        ("webhdfs", SERVICE, ["cluster", "cluster:9870", "NN1", "nn2:9871"]),
        ("hdfs", NATIVE, ["cluster", "nn1", "nn2:8020", "NN2"]),
    ],
)
def test_all_namenodes_of_a_name_service_are_one_place(scheme: str, options: dict[str, Any], hosts: list[str]) -> None:
    assert len({canonical(f"{scheme}://{host}/in", options) for host in hosts}) == 1
    assert len({canonical(f"{scheme}://{host}/in", options) for host in ("nn3", "nn1:99", "cluster")}) == 3
    meant = canonical(f"{scheme}://{hosts[0]}/in", options)
    assert canonical(meant, options) == meant


@pytest.mark.parametrize("wrong", ["nn1", ["nn1"], {"c": "nn1"}, {"c": []}, {"c": [7]}, {"c": ["a/b"]}, {"": ["a"]}])
def test_wrong_namenodes_are_one_line(wrong: object) -> None:
    with refused(UsageError, 2, "namenodes", "{'cluster': ['nn1:9870', 'nn2:9870']}"):
        canonical("webhdfs://cluster/in", {"namenodes": wrong})


class Namenode(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        standby = {"RemoteException": {"exception": "StandbyException", "message": "Operation category READ is not supported"}}
        said = json.dumps(standby if self.server.standby else {"FileStatus": {"type": "DIRECTORY"}}).encode()  # type: ignore[attr-defined]
        self.send_response(403 if self.server.standby else 200)  # type: ignore[attr-defined]
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        pass


def test_the_active_namenode_of_a_name_service_is_asked() -> None:
    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Namenode) for _ in range(2)]
    try:
        for server in servers:
            server.standby = False  # type: ignore[attr-defined]
            threading.Thread(target=server.serve_forever, daemon=True).start()
        hosts = [f"127.0.0.1:{server.server_port}" for server in servers]
        store = bare(canonical(f"webhdfs://{hosts[1]}/in", given := {"namenodes": {"cluster": ["127.0.0.1:1", *hosts]}}), given)
        assert store.url == "webhdfs://cluster:9870/in"
        with pytest.raises(TransientError, match=r"127\.0\.0\.1:1 does not answer .*, so the next namenode is asked"):
            store.is_folder()
        assert store.is_folder()
        servers[0].standby = True  # type: ignore[attr-defined]
        with pytest.raises(TransientError, match=f"{hosts[0]} is on standby, so the next namenode is asked"):
            store.is_folder()
        assert store.is_folder()
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def test_a_namenode_that_another_thread_has_turned_from_is_still_one_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets our password, and its late refusal turns nobody away from the next namenode."""
    known = {"namenodes": {"cluster": ["nn1:1", "nn2:2"]}, "use_https": True, "user": "ada", "password": "geheim"}
    rest = WebHdfsRest(Access("cluster:9870", known))
    address = rest.address("GETFILESTATUS", "/x", {})
    rest.access.turn("nn1:1")
    asked = next(rest.steps("cannot look up", "GET", address))
    assert asked.origin == "https://nn1:1"
    assert "Authorization: Basic " in asked.headers
    plain = next(rest.steps("cannot look up", "GET", address.replace("https://", "http://")))
    assert "Authorization" not in plain.headers, "a redirect to plain http must not get it"
    rest.access.turn("nn2:2")

    def late(*_: object) -> Answer:
        rest.access.turn("nn1:1")
        return Answer(403, b"HTTP/1.1 403 Forbidden\r\n", b'{"RemoteException": {"exception": "StandbyException"}}')

    monkeypatch.setattr(rest, "_send", late)
    with pytest.raises(TransientError, match="nn1:1 is on standby"):
        rest.ask("GET", "GETFILESTATUS", "/x", "cannot look up")
    assert rest.access.netloc == "nn2:2"


def test_what_is_mounted_twice_is_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    told = (
        b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:1 /data/deep /mnt/a\\040b rw - ext4 /dev/a rw\n3 1 8:2 / /data/other rw - ext4 /dev/b rw\n"
    )
    monkeypatch.setattr("builtins.open", lambda *_: io.BytesIO(told))
    assert origin("/mnt/a b/in") == origin("/data/deep/in")
    assert len({origin(path) for path in ("/data/other/in", "/data/othe/in", "/in", "/mnt/a bc/in")}) == 4
