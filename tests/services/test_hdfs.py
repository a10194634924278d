"""HDFS by WebHDFS: what no other store has, what it refuses, and the main job through it. The promises of all stores: test_conformance."""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import quire
from gathering import documents, gather
from quire.errors import NotFoundError, StorageError, TransientError, UsageError
from quire.storage import Folder, ReadRequest, Store, Trouble, Unreadable, Vanished, bare, normalise, retry, window
from quire.storage.hdfs.rest import WebHdfsRest
from quire.storage.hdfs.store import PIECE, HdfsStore
from services.conformance import content
from services.hdfs import DATANODE, HOME, NAMENODE, USER, Cluster, hdfs
from services.ports import free_port
from services.scripted import Asked, scripted

pytestmark = pytest.mark.services

ALICE = {"user": USER}
MiB = 1 << 20


@pytest.fixture
def home(hdfs_cluster: Cluster) -> str:
    """A place that nobody has used."""
    return f"{hdfs_cluster.url}{HOME}/{uuid.uuid4().hex}"


def opened(url: str, **options: object) -> HdfsStore:
    made = bare(normalise(url), options or ALICE)
    assert isinstance(made, HdfsStore)
    return made


def one_line(error: pytest.ExceptionInfo[BaseException], *words: str) -> str:
    said = str(error.value)
    assert said.isprintable()
    assert len(said) < 600
    for word in words:
        assert word in said, said
    return said


# ---------------------------------------------------------------------------------------------------------------------- objects
def test_of_sixteen_writers_one_wins_and_nobody_sees_a_part(home: str) -> None:
    store, wrong = opened(home), list[object]()
    data = [bytes([i]) * MiB for i in range(16)]
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            try:
                there = store.get("_quire/log/0")
            except NotFoundError:
                continue
            if there not in data:
                wrong.append(len(there))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(lambda i: store.put_if_absent("_quire/log/0", data[i]), range(16)))
    finally:
        done.set()
        watching.join()
    assert sum(won) == 1
    assert store.get("_quire/log/0") == data[won.index(True)]
    assert not wrong
    assert [e.name for e in store.walk()] == ["_quire/log/0"], "nothing temporary is left"


def test_a_sink_appends_piece_by_piece(home: str) -> None:
    store, data = opened(home), os.urandom(2 * PIECE + 5)
    sink = store.create("_quire/jobs/j/attempts/0-a/part")
    sink.write(data[: PIECE + 1])
    assert store.stat("_quire/jobs/j/attempts/0-a/part").size == PIECE, "one piece is there, the rest waits"  # type: ignore[union-attr]
    sink.write(memoryview(data)[PIECE + 1 :])
    sink.close()
    store.rename("_quire/jobs/j/attempts/0-a/part", "x=1/y/part")
    found = store.stat("x=1/y/part")
    assert found is not None
    for _, answer in store.read_many([ReadRequest(found.name, found.version, found.size, 0, found.size)]):
        assert content(answer) == data


def test_a_sink_that_somebody_else_writes_to_does_not_end_well(home: str) -> None:
    store = opened(home)
    sink = store.create("_quire/jobs/j/part")
    sink.write(b"1" * PIECE)
    store.put("_quire/jobs/j/part", b"other")
    with pytest.raises(TransientError, match="5 bytes after"):
        sink.close()


def test_a_rename_never_overwrites(home: str) -> None:
    store = opened(home)
    store.put("_quire/a", b"1")
    store.put("b", b"2")
    store.put("folder/c", b"3")
    for taken in ("b", "folder"):
        with pytest.raises(StorageError, match="something else has its name") as caught:
            store.rename("_quire/a", taken)
        assert not isinstance(caught.value, NotFoundError | TransientError)
        assert not store.put_if_absent(taken, b"4")
    assert sorted(e.name for e in store.walk()) == ["_quire/a", "b", "folder/c"]
    with pytest.raises(StorageError, match="a file stands where a directory is needed"):
        store.rename("_quire/a", "b/c")
    with ThreadPoolExecutor(8) as pool:

        def publish(_: int) -> bool:
            try:
                store.rename("_quire/a", "new/a")
            except NotFoundError:
                return False
            return True

        assert sum(pool.map(publish, range(8))) == 1
    assert store.get("new/a") == b"1"


def test_clean_ups_take_what_is_left_and_living_writers_write_again(home: str) -> None:
    store = opened(home)
    store.put("_quire/jobs/j/tasks/0.entry", b"")
    store.remove("_quire/jobs/j/tasks/0.entry")
    assert not store.is_folder("_quire/jobs"), "directories of quire's own that became empty go"
    store.put("_quire/jobs/j/tasks/1.entry", b"")
    store.asked("PUT", "MKDIRS", "_quire/jobs/k/attempts/0", "make")
    store.written("_quire/tmp/of-the-dead", b"")
    store.sweep("_quire/tmp")
    assert [e.name for e in store.walk()] == ["_quire/jobs/j/tasks/1.entry"]
    assert not store.is_folder("_quire/jobs/k")
    assert not store.is_folder("_quire/tmp")
    done = threading.Event()

    def sweep() -> None:
        while not done.wait(0.05):
            store.sweep("_quire/tmp")

    sweeping = threading.Thread(target=sweep)
    sweeping.start()
    try:
        for i in range(20):
            assert store.put_if_absent(f"_quire/jobs/{i}/plan.entry", b"%d" % i)
    finally:
        done.set()
        sweeping.join()
    assert [store.get(f"_quire/jobs/{i}/plan.entry") for i in range(20)] == [b"%d" % i for i in range(20)]


def test_a_page_that_fails_is_asked_for_again_and_no_other(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(home)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: store.put(f"d/{i:03}", b""), range(250)))
    asked, send = list[str](), WebHdfsRest._send

    def sometimes(rest: WebHdfsRest, what: str, method: str, address: str, *more: Any) -> Any:
        if "LISTSTATUS_BATCH" in address:
            asked.append(address.partition("startafter=")[2].partition("&")[0])
            if asked.count("099") == 1 and asked[-1] == "099":
                raise TransientError(f"{what}: the connection was lost")
        return send(rest, what, method, address, *more)

    monkeypatch.setattr(WebHdfsRest, "_send", sometimes)
    monkeypatch.setattr(retry, "pause", lambda _: None)
    assert [i.name for i in store.scan("d")] == [f"d/{i:03}" for i in range(250)]
    assert asked == ["", "099", "099", "199"]


def test_a_version_is_another_one_after_each_change(home: str) -> None:
    store = opened(home)
    seen = set[str]()
    for i in range(5):
        store.put("a", b"%d" % i)  # the same length, maybe in the same millisecond
        found = store.stat("a")
        assert found is not None
        seen.add(found.version)
    assert len(seen) == 5


def test_reading_many_says_what_each_file_is(home: str, hdfs_cluster: Cluster) -> None:
    store = opened(home)
    for name in ("whole", "changed", "vanished", "closed", "shorter", "folder"):
        store.put(name, name.encode() * 100)
    wanted = [ReadRequest(e.name, e.version, e.size, 0, e.size) for e in store.walk()]
    store.put("changed", b"x")
    store.put("shorter", b"")
    store.remove("vanished")
    store.remove("folder")
    store.put("folder/x", b"")
    hdfs_cluster.request("PUT", "SETPERMISSION", f"{store.root}/closed", permission="000")
    hdfs_cluster.request("PUT", "SETOWNER", f"{store.root}/closed", owner="bob")
    found = {request.name: content for request, content in store.read_many(wanted)}
    assert found["whole"] == b"whole" * 100
    assert str(found["vanished"]) == "vanished"
    assert all(isinstance(found[name], Vanished) and "changed" in str(found[name]) for name in ("changed", "shorter"))
    assert isinstance(found["folder"], Vanished)
    assert isinstance(found["closed"], Unreadable)
    assert "no permission for 'alice'" in str(found["closed"])
    assert home not in str(found["closed"])


# ---------------------------------------------------------------------------------------------------------------------- refusals
def test_urls_have_one_form_and_wrong_ones_are_refused() -> None:
    assert normalise("webhdfs://NameNode/a/b/") == "webhdfs://namenode:9870/a/b"
    assert normalise("webhdfs://n:50070") == "webhdfs://n:50070"
    for url, words in {
        "webhdfs://alice@n/a": "option user",
        "webhdfs:///a": "names no namenode",
        "webhdfs://n:99999/a": "names no namenode",
        "webhdfs://n/a//b": "empty part",
        "webhdfs://n/../b": "empty part",
        "webhdfs://n/a:b": "':'",
        "webhdfs://n/webhdfs/v1/a?op=OPEN&delegation=c2VjcmV0": "not a place",
    }.items():
        with pytest.raises(UsageError) as caught:
            normalise(url)
        assert "c2VjcmV0" not in one_line(caught, words)


def test_options_are_checked_and_never_shown(home: str) -> None:
    for options, words in (
        ({"user": "a", "token": "c2VjcmV0"}, "says who asks"),
        ({"user": "a", "password": "c2VjcmV0"}, "plain http"),
        ({"password": "c2VjcmV0", "use_https": True}, "needs the option user"),
        ({"kerberos": True}, "delegation token"),
        ({"usr": "a", "passwrd": "c2VjcmV0"}, "Did you mean"),
        ({"token": 3}, "is a text"),
        ({"timeout": -1}, "seconds"),
        ({"data_proxy": 3}, "data_proxy"),
    ):
        with pytest.raises(UsageError) as caught:
            opened(home, **options)
        assert "c2VjcmV0" not in one_line(caught, words)
    store = opened(home, token="c2VjcmV0")
    assert "c2VjcmV0" not in repr(store) + repr(store.rest) + repr(store.rest.access) + store.url


def test_a_delegation_token_reaches_the_cluster_and_no_message(home: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = opened(home, token="c2VjcmV0")
    with pytest.raises(StorageError) as caught:
        store.put("a", b"")  # a cluster without Kerberos looks at no token
    assert "c2VjcmV0" not in one_line(caught, "cannot write")
    with scripted(remote("AuthenticationException", "delegation=c2VjcmV0 is unknown", 401)) as (endpoint, came):
        store = opened(f"{endpoint.replace('http', 'webhdfs')}/x", token="c2VjcmV0")
        with pytest.raises(StorageError) as caught:
            store.put("a", b"")
        assert "c2VjcmV0" not in one_line(caught, "cannot write", "new delegation token")
        with pytest.raises(StorageError) as caught:
            list(store.read_many([ReadRequest("a", "1-1-1", 1, 0, 1)]))
        assert "c2VjcmV0" not in one_line(caught, "cannot read", "new delegation token")
        assert all("delegation=c2VjcmV0" in asked.target for asked in came)
    assert "c2VjcmV0" not in caplog.text


def test_wrong_places_are_said_at_once_in_one_line(hdfs_cluster: Cluster) -> None:
    nobody = free_port()
    for url, words in {
        "webhdfs://no-such-host.invalid/a": "unknown host 'no-such-host.invalid'",
        f"webhdfs://127.0.0.1:{nobody}/a": "nobody listens at",
        f"webhdfs://127.0.0.1:{hdfs_cluster.rpc}/a": "Look at host and port",
    }.items():
        began = time.monotonic()
        refuses(quire.storage.connect(normalise(url), ALICE), words)
        assert time.monotonic() - began < 10


def refuses(store: Store, words: str) -> None:
    for act in (lambda: store.put("a", b""), lambda: store.get("a"), store.check_writable, lambda: list(store.walk())):
        with pytest.raises(StorageError) as caught:
            act()
        one_line(caught, words)


def test_who_has_no_right_is_told_so(home: str, hdfs_cluster: Cluster) -> None:
    opened(home).put("d/a", b"1")
    hdfs_cluster.request("PUT", "SETPERMISSION", f"{HOME}/{home.rpartition('/')[2]}/d", permission="700")
    bob = opened(home, user="bob")
    with pytest.raises(StorageError) as caught:
        list(bob.walk())
    one_line(caught, "cannot list the directory", "user=bob", "Ask for the right")
    for act in (lambda: bob.put("b", b""), lambda: bob.remove("d/a"), lambda: bob.get("d/a"), bob.check_writable):
        with pytest.raises(StorageError) as caught:
            act()
        assert not isinstance(caught.value, NotFoundError | TransientError)
        one_line(caught, "no permission for 'bob'")
    assert Folder("d") in list(bob.scan())
    (trouble,) = bob.scan("d")
    assert isinstance(trouble, Trouble)
    assert trouble.kind == "unreadable"


def test_a_quota_that_is_used_up_is_said(home: str, hdfs_cluster: Cluster) -> None:
    store = opened(home)
    store.put("a", b"1")
    hdfs_cluster.admin("-setQuota", "5", store.root)

    def fill_up() -> None:
        for i in itertools.count():
            store.put(f"more/{i}", b"")

    with pytest.raises(StorageError) as caught:
        fill_up()
    one_line(caught, "quota of names is used up", "what was committed is safe")


def test_safe_mode_passes(home: str, hdfs_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    store, told = opened(home), list[str]()
    store.put("a", b"1")
    hdfs_cluster.admin("-safemode", "enter")
    try:
        with pytest.raises(TransientError) as caught:
            store.put("b", b"")
        one_line(caught, "safe mode", "hdfs dfsadmin -safemode leave")
        assert store.get("a") == b"1"
        waiting = quire.storage.connect(store.url, ALICE, told.append)
        with ThreadPoolExecutor(1) as pool:
            put = pool.submit(waiting.put_if_absent, "c", b"2")
            hdfs_cluster.admin("-safemode", "leave")
            assert put.result(60)
    finally:
        hdfs_cluster.admin("-safemode", "leave")
    assert told, "it was said why it takes longer"


def test_names_work_or_are_refused_in_one_line(home: str) -> None:
    store = opened(home)
    for name in ("a b", "ü/日本語", "Su\u0308d", "%41", "100%", "#", "?q=1&op=DELETE", ";x", "+", "a\\b", "*", "_quire=1", "\u202e", "😀"):
        store.put(name, name.encode())
        assert store.get(name) == name.encode()
    for name in ("a:b", "x" * 256, "/".join(["x" * 200] * 20), "new\nline", "\x01"):
        for act in (lambda name=name: store.put(name, b""), lambda name=name: store.put_if_absent(name, b"")):
            said = ""
            try:
                act()
            except StorageError as e:
                said = str(e)
            assert said or store.get(name) == b""
            assert not said or ("cannot write" in said and said.isprintable() and len(said) < 4600), said
        store.stat(name)


# ------------------------------------------------------------------------------------------------------ what it says, as it was told
def remote(name: str, message: str = "", status: int = 403) -> Callable[[Asked], tuple[int, dict[str, str], bytes]]:
    body = json.dumps({"RemoteException": {"exception": name, "javaClassName": f"x.{name}", "message": f"{message}\n\tat org.apache.X"}})
    return lambda _: (status, {"Content-Type": "application/json"}, body.encode())


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (remote("StandbyException", "Operation category READ is not supported"), TransientError, "standby"),
        (remote("RetriableException", "org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot"), TransientError, "safe mode"),
        (remote("RetriableException", "come again"), TransientError, "come again"),
        (remote("SecurityException", "Failed to obtain user group information: InvalidToken: token is expired"), StorageError, "token"),
        (remote("AuthorizationException", "User: a is not allowed to impersonate b"), StorageError, "proxy_to"),
        (remote("DSQuotaExceededException", "The DiskSpace quota of /x is exceeded"), StorageError, "quota of space"),
        (remote("IOException", "Failed to find datanode, suggest to check cluster health."), TransientError, "no datanode"),
        (remote("IOException", "File /x could only be written to 0 of the 1 minReplication nodes."), TransientError, "full or gone"),
        (remote("FileNotFoundException", "File does not exist", 404), NotFoundError, "is not there"),
        (remote("SomethingNewException", "delegation=c2VjcmV0 was odd"), StorageError, "SomethingNewException"),
        (lambda _: (500, {}, b"<html>"), TransientError, "did not manage it"),
        (lambda _: (503, {}, b""), TransientError, "did not manage it"),
        (lambda _: (401, {"WWW-Authenticate": "Negotiate"}, b"<html>"), StorageError, "delegation token"),
        (lambda _: (404, {}, b"<html>"), StorageError, "does not answer as a namenode does"),
        (lambda _: (200, {}, b"<html>"), StorageError, "does not answer as a namenode does"),
        (lambda _: (0, {}, b""), TransientError, "was lost"),
        (lambda _: (200, {}, b"null"), StorageError, "does not answer as a namenode does"),
        (lambda _: (200, {}, b"[" * 100_000), StorageError, "does not answer as a namenode does"),
        (lambda _: (403, {}, b"[" * 100_000), StorageError, "does not answer as a namenode does"),
        (lambda _: (307, {}, b""), StorageError, "does not answer as a namenode does"),
    ],
)  # fmt: skip
def test_what_a_namenode_says_has_a_line_of_its_own(answer: Any, kind: type[StorageError], words: str) -> None:
    with scripted(answer) as (endpoint, _):
        store = opened(f"{endpoint.replace('http', 'webhdfs')}/x")
        acts = [lambda: store.get("a"), lambda: list(store.walk("d")) or store.get("a")]
        if kind is not NotFoundError:
            acts.append(lambda: store.put("a", b""))
        for act in acts:
            with pytest.raises(StorageError) as caught:
                act()
            if isinstance(caught.value, NotFoundError) and kind is not NotFoundError:
                raise AssertionError(caught.value)
            assert isinstance(caught.value, kind), caught.value
            assert isinstance(caught.value, TransientError) == (kind is TransientError), caught.value
            assert "c2VjcmV0" not in one_line(caught, words)


@pytest.mark.parametrize("body", ["{}", "[]", "null", '{"FileStatus": {"type": "FILE"}}', '{"DirectoryListing": {"remainingEntries": 0}}'])
def test_an_answer_that_says_something_else_is_one_line(body: str) -> None:
    with scripted(lambda _: (200, {"Content-Type": "application/json"}, body.encode())) as (endpoint, _):
        store = opened(f"{endpoint.replace('http', 'webhdfs')}/x")
        acts: list[Callable[[], Any]] = [
            lambda: store.stat("a"), lambda: store.is_folder("a"), lambda: list(store.walk()), lambda: store.get_range("a", 0, 1),
            lambda: store.remove("a"), store.check_writable, lambda: store.get("a"), lambda: store.put("a", b""),
        ]  # fmt: skip
        for act in acts:
            with pytest.raises(StorageError) as caught:
                act()
            one_line(caught, "does not answer as a namenode does")


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("", "does not answer as a namenode does (307)"), ("http://", "an address that is none"),
        ("http://[::1/x", "an address that is none"), ("http://h:99999/x", "an address that is none"),
        ("http://h/x y", "an address that is none"), ("ftp://h/x", "an address that is none"),
        ("http://u:c2VjcmV0@127.0.0.1:1/x", "nobody listens at 127.0.0.1:1"),
    ],
)  # fmt: skip
def test_whoever_is_sent_on_to_nowhere_is_told_so(location: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty answer was taken for the file's content."""
    monkeypatch.setattr(window, "PATIENCE", 0.0)
    with scripted(lambda _: (307, {"Location": location} if location else {}, b"")) as (endpoint, _):
        store = opened(f"{endpoint.replace('http', 'webhdfs')}/x")
        read = ReadRequest("a", "1-3-4", 3, 0, 3)
        for act in (lambda: store.get("a"), lambda: store.put("a", b""), lambda: list(store.read_many([read]))):
            with pytest.raises(StorageError) as caught:
                act()
            assert "c2VjcmV0" not in one_line(caught, words)


def test_a_datanode_that_this_machine_does_not_know_is_said(home: str) -> None:
    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        return 307, {"Location": "http://datanode-7.invalid:9864/webhdfs/v1/x?op=OPEN&delegation=c2VjcmV0"}, b""

    with scripted(answer) as (endpoint, came):
        url = f"{endpoint.replace('http', 'webhdfs')}/x"
        with pytest.raises(StorageError) as caught:
            opened(url).get("a")
        assert "c2VjcmV0" not in one_line(caught, "datanode-7.invalid", "data_proxy")
        with pytest.raises(StorageError) as caught:
            opened(url, data_proxy={"datanode-7.invalid:9864": endpoint.partition("://")[2]}).get("a")
        assert came[-1].target.startswith("/webhdfs/v1/x/a?op=OPEN"), "the path is as we know it"
        with pytest.raises(StorageError) as caught:
            list(map(str, (c for _, c in opened(url).read_many([ReadRequest("a", "1-1-1", 1, 0, 1)]))))
        assert "c2VjcmV0" not in one_line(caught, "datanode-7.invalid")


# --------------------------------------------------------------------------------------------------------------------- the main job
class Crash(BaseException):
    """The process is gone; nothing of it may catch this."""


class Switch:
    """Counts what changes something in HDFS, and lets the process die at one of these requests: before it, or after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.at, self.after, self.dead = 0, 0, False, False
        self.lock, send = threading.Lock(), WebHdfsRest._send

        def sent(rest: WebHdfsRest, what: str, method: str, address: str, *more: Any) -> Any:
            if self.dead:
                raise Crash
            dies = False
            if method != "GET":
                with self.lock:
                    self.count += 1
                    dies = self.count == self.at
                    self.dead = self.dead or dies
            if dies and not self.after:
                raise Crash
            answer = send(rest, what, method, address, *more)
            if dies:
                raise Crash
            return answer

        monkeypatch.setattr(WebHdfsRest, "_send", sent)

    def arm(self, at: int = 0, after: bool = False) -> None:
        self.count, self.at, self.after, self.dead = 0, at, after, False


def fill(url: str, files: dict[str, bytes]) -> None:
    store = opened(url)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda item: store.put(*item), files.items()))


def lines_of(store: HdfsStore) -> list[bytes]:
    """What is in the data files that a reader of the directory sees."""
    names = [e.name for e in store.walk() if not e.name.startswith("_quire")]
    return sorted(line for name in names for line in store.get(name).splitlines())


def test_a_job_that_dies_anywhere_is_finished_by_the_next_one(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = documents(12)
    expected = sorted(line for content in files.values() for line in content.splitlines())
    fill(f"{home}/in", files)
    settings: dict[str, Any] = {"target_size": "100 B", "storage_options": ALICE, "compression": "none"}
    switch = Switch(monkeypatch)
    switch.arm()
    gather(f"{home}/in", f"{home}/out", **settings)
    steps = switch.count
    assert steps > 20
    assert lines_of(opened(f"{home}/out")) == expected
    for number, at in enumerate(range(1, steps + 1, max(1, steps // 14))):
        dest = f"{home}/out-{number}"
        switch.arm(at, after=bool(number % 2))
        with pytest.raises(Crash):
            gather(f"{home}/in", dest, **settings)
        switch.arm()
        gather(f"{home}/in", dest, **settings)
        store = opened(dest)
        assert lines_of(store) == expected, (at, steps)
        assert list(store.walk("_quire/tmp")) == list(store.walk("_quire/jobs")) == []


def test_the_same_with_spark(home: str, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    files = documents(60)
    expected = sorted(line for content in files.values() for line in content.splitlines())
    fill(f"{home}/in", files)
    settings: dict[str, Any] = {"target_size": "500 B", "storage_options": ALICE, "spark": spark}
    put = HdfsStore.put_if_absent

    def dying(store: HdfsStore, name: str, data: bytes) -> bool:
        done = put(store, name, data)
        if name.startswith("_quire/log/"):
            raise Crash
        return done

    with monkeypatch.context() as patched:  # in this process alone: the driver dies, when its commit is in the log
        patched.setattr(HdfsStore, "put_if_absent", dying)
        with pytest.raises(Crash):
            gather(f"{home}/in", f"{home}/out", **settings)
    assert quire.recover(f"{home}/out", storage_options=ALICE) is not None
    fill(f"{home}/in", {"late.txt": b"late"})
    report = gather(f"{home}/in", f"{home}/out", **settings)
    assert report.files == 1
    found = quire.read(f"{home}/out", storage_options=ALICE, spark=spark).collect()
    assert sorted(bytes(row.value) for row in found) == sorted([*expected, b"late"])


def test_a_cluster_that_restarts_in_the_middle_is_waited_for() -> None:
    files = documents(40)
    with hdfs() as cluster:
        url = f"{cluster.url}{HOME}/restart"
        fill(f"{url}/in", files)
        began = threading.Event()

        def disturb() -> None:
            began.wait(60)
            for which in (NAMENODE, DATANODE):
                cluster.stop(which, signal.SIGKILL)
                cluster.start(which)
                cluster.wait()

        with ThreadPoolExecutor(1) as pool:
            disturbing = pool.submit(disturb)
            began.set()
            with suppress(TransientError):  # if it happens to a file that is written piece by piece: the next run goes on
                gather(f"{url}/in", f"{url}/out", target_size="200 B", storage_options=ALICE, compression="none")
            disturbing.result(120)
        gather(f"{url}/in", f"{url}/out", target_size="200 B", storage_options=ALICE, compression="none")
        expected = sorted(line for content in files.values() for line in content.splitlines())
        assert lines_of(opened(f"{url}/out")) == expected
