"""Google Cloud Storage: its URLs, options and tokens, what it refuses, uploads of many pieces; on a server, and a scripted one."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import urllib3

import quire
from gathering import refused
from quire.errors import FormatError, QuireError, StorageError, TransientError, UsageError
from quire.storage import ReadRequest, Store, Unreadable, Vanished, bare, normalise, retry, window
from quire.storage.gcs import store as gcs_store
from quire.storage.gcs import upload as gcs_upload
from quire.storage.gcs.account import GcsAccount, account
from services import gcs
from services.conformance import content, uploaded
from services.ports import free_port
from services.scripted import Asked, Says, scripted

LOCAL: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
MARK = "hunter2-hunter2"


@pytest.fixture
def root() -> str:
    return f"gs://{gcs.BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def options(fake_gcs: str) -> dict[str, Any]:
    return gcs.options(fake_gcs)


def asked(store: Store, *names: str) -> list[ReadRequest]:
    return [ReadRequest(e.name, e.version, e.size, 0, e.size) for e in (store.stat(name) for name in names) if e]


def to(endpoint: str) -> Store:
    return bare("gs://tests/x", {"endpoint_url": endpoint, "token": MARK})


# --------------------------------------------------------------------------------------------------------- the server's promises
@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with gcs.bare_server() as endpoint:
        yield endpoint


def of_16(ask: Callable[[int], int]) -> Counter[int]:
    """The statuses that 16 get who ask at once."""
    barrier = threading.Barrier(16)

    def one(number: int) -> int:
        barrier.wait()
        return ask(number)

    with ThreadPoolExecutor(16) as pool:
        return Counter(pool.map(one, range(16)))


def insert(endpoint: str, name: str, number: int, kind: str, **headers: str) -> int:
    where = f"{endpoint}/upload/storage/v1/b/tests/o?uploadType={kind}&ifGenerationMatch=0&name={quote(name, safe='')}"
    if kind == "media":
        return urllib3.request("POST", where, body=b"%d" % number, headers=headers).status
    body = b'--B\r\nContent-Type: application/json\r\n\r\n{"name": "%s"}\r\n--B\r\nContent-Type: text/plain\r\n\r\n%d\r\n--B--'
    headers = {**headers, "Content-Type": "multipart/related; boundary=B"}
    return urllib3.request("POST", where, body=body % (name.encode(), number), headers=headers).status


def compose(endpoint: str, name: str, **headers: str) -> int:
    where = f"{endpoint}/storage/v1/b/tests/o/{quote(name, safe='')}/compose?ifGenerationMatch=0"
    return urllib3.request("POST", where, json={"sourceObjects": [{"name": "one"}], "destination": {}}, headers=headers).status


def test_the_server_lets_one_of_many_win_by_an_insert_of_two_parts_alone(server: str) -> None:
    """This is why it has a front: a server that begins to honour the others needs none any more."""
    insert(server, "one", 1, "multipart")
    one_wins = Counter({412: 15, 200: 1})
    for number in range(5):
        assert of_16(lambda i, n=number: insert(server, f"m{n}", i, "multipart")) == one_wins
    assert {of_16(lambda i, n=n: insert(server, f"s{n}", i, "media"))[200] for n in range(5)} != {1}
    assert {of_16(lambda i, n=n: compose(server, f"c{n}"))[200] for n in range(5)} != {1}


def test_behind_its_front_one_of_many_wins(fake_gcs: str) -> None:
    signed, here = {"Authorization": f"Bearer {gcs.TOKEN}"}, uuid.uuid4().hex
    insert(fake_gcs, "one", 1, "media", **signed)
    one_wins = Counter({412: 15, 200: 1})
    for number in range(10):
        for kind in ("media", "multipart"):
            assert of_16(lambda i, n=number, k=kind: insert(fake_gcs, f"{here}/{k}{n}", i, k, **signed)) == one_wins
        assert of_16(lambda i, n=number: compose(fake_gcs, f"{here}/c{n}", **signed)) == one_wins


# ------------------------------------------------------------------------------------------------------------ URLs and options
@pytest.mark.parametrize(
    ("url", "same"),
    [("gs://bucket", "gs://bucket"), ("gcs://bucket/", "gs://bucket"), ("GS://my.bucket-1_x/a b/ü%2F#?/", "gs://my.bucket-1_x/a b/ü%2F#?")],
)
def test_one_url_for_one_place(url: str, same: str) -> None:
    assert normalise(url) == same == normalise(same)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("gs://", "names no bucket"),
        ("gs:/bucket/a", "names no bucket"),
        ("gs://Bucket/a", "names no bucket"),
        (f"gs://key:{MARK}@bucket/a", "names no bucket"),
        (f"gs://bucket/a?X-Goog-Signature={MARK}", "is signed"),
        ("gs://bucket/a//b", "empty part"),
        ("gs://bucket/../b", "empty part"),
    ],
)
def test_what_is_no_place_is_refused(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        normalise(url)
    assert MARK not in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokens": MARK}, "Did you mean 'token'"),
        ({"endpoint_url": "ftp://host"}, "is not an address"),
        ({"endpoint_url": "http://host:port"}, "is not an address"),
        ({"endpoint_url": "http://host:99999"}, "is not an address"),
        ({"endpoint_url": 5}, "endpoint_url is a text"),
        ({"token": 5}, "token of Google Cloud Storage is a text or a dictionary"),
        ({"requester_pays": True}, "requester_pays is a text"),
        ({"max_concurrency": 0}, "max_concurrency"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], words: str) -> None:
    with refused(UsageError, 2, words):
        bare("gs://bucket", options)


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (f"{MARK}\r\nX: y", "holds other characters"),
        ("/nowhere/key.json", "credentials"),
        ({"type": "service_account", "private_key": MARK}, "token of Google Cloud Storage|cannot sign in|no credentials"),
        ({"type": MARK}, "token of Google Cloud Storage|no credentials"),
    ],
)
def test_a_token_that_is_none_is_said_in_one_line_and_not_repeated(token: Any, words: str) -> None:
    store = bare("gs://bucket", {"token": token, "endpoint_url": "http://127.0.0.1:1"})
    with pytest.raises(QuireError, match=words) as error:
        store.get("a")
    assert MARK not in str(error.value)
    assert "\n" not in str(error.value)
    assert MARK not in repr(store) + repr(account({"token": token}))


def test_a_file_of_credentials_is_damaged(tmp_path: Path) -> None:
    at = tmp_path / "key.json"
    at.write_text(f'{{"type": "service_account", "private_key": "{MARK}"')
    with pytest.raises(UsageError, match="credentials") as error:
        bare("gs://bucket", {"token": str(at)}).get("a")
    assert MARK not in str(error.value)


def test_an_emulator_is_asked_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(asked: Asked) -> Says:
        return (200, {}, b"x") if "authorization" not in asked.headers else (500, {}, b"")

    with scripted(answers) as (endpoint, _):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint.removeprefix("http://"))
        assert bare("gs://bucket").get("a") == b"x"


def test_a_token_is_renewed_while_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Credentials:
        token, valid, renewed = "", False, 0

        def refresh(self, request: Any) -> None:
            self.renewed += 1
            self.token, self.valid = f"token-number-{self.renewed}", True

    found, seen = Credentials(), list[str]()
    monkeypatch.setattr("google.auth.default", lambda **_: (found, "project"))

    def answers(asked: Asked) -> Says:
        seen.append(asked.headers["authorization"])
        return 200, {}, b"x"

    with scripted(answers) as (endpoint, _):
        store = bare("gs://bucket", {"endpoint_url": endpoint})
        assert store.get("a") == store.get("b") == b"x"
        found.valid = False
        request = ReadRequest("c", "1", 1, 0, 1)
        assert [content(answer) for _, answer in store.read_many([request, request])] == [b"x", b"x"]
    assert seen == ["Bearer token-number-1"] * 2 + ["Bearer token-number-2"] * 2


# ----------------------------------------------------------------------------------------------------------------- what is refused
def error(message: str) -> bytes:
    return json.dumps({"error": {"code": 0, "message": message}}).encode()


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "words"),
    [
        (401, {}, error("Invalid Credentials"), StorageError, "does not take this sign-in"),
        (403, {}, error("x does not have storage.objects.get access"), StorageError, "no permission.*Storage Object User"),
        (404, {}, error("The specified bucket does not exist."), StorageError, "bucket 'tests' does not exist"),
        (400, {}, error("Bucket is requester pays bucket but no user project provided."), StorageError, "requester_pays="),
        (301, {"Location": "http://elsewhere"}, b"", StorageError, "sends us elsewhere"),
        (418, {}, b"<html>teapot", StorageError, "refused it"),
        (429, {"Retry-After": "7"}, error("slow down"), TransientError, "too many requests"),
        (503, {}, b"", TransientError, "too many requests"),
        (500, {}, b"", TransientError, "did not manage it"),
    ],
)
def test_a_refusal_is_one_line(status: int, headers: dict[str, str], body: bytes, kind: type[Exception], words: str) -> None:
    with scripted(lambda _: (status, headers, body)) as (endpoint, _):
        store = to(endpoint)
        acts: list[Callable[[], Any]] = [
            lambda: store.get("a"), lambda: store.put("a", b""), lambda: store.put_if_absent("a", b""), lambda: list(store.walk()),
            lambda: store.stat("a"), lambda: store.remove("a"), lambda: store.is_folder("a"), store.check_writable,
        ]  # fmt: skip
        for act in acts:
            with pytest.raises(kind, match=words) as caught:
                act()
            assert "\n" not in str(caught.value)
            assert MARK not in str(caught.value)
            if "Retry-After" in headers:
                assert isinstance(caught.value, TransientError)
                assert caught.value.wait == 7


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (412, b"", Vanished), (404, b"No such object: tests/x/a", Vanished), (416, b"", Vanished),
        (403, error("x does not have storage.objects.get access"), Unreadable),
        (401, error("Invalid Credentials"), StorageError), (404, error("The specified bucket does not exist."), StorageError),
    ],
)  # fmt: skip
def test_a_refusal_among_many_reads(status: int, body: bytes, found: type[Exception]) -> None:
    with scripted(lambda _: (status, {}, body)) as (endpoint, came):
        requests = [ReadRequest("a", "5", 3, 0, 3)]
        if found is StorageError:
            with pytest.raises(StorageError):
                list(to(endpoint).read_many(requests))
        else:
            ((_, answer),) = to(endpoint).read_many(requests)
            assert isinstance(answer, found)
    assert "ifGenerationMatch=5" in came[0].target


def test_many_reads_wait_for_a_busy_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "FIRST", 0.01)

    def busy(asked: Asked) -> Says:
        return (503, {}, b"") if asked.number < 3 else (200, {}, b"abc")

    with scripted(busy) as (endpoint, _):
        answers = to(endpoint).read_many(ReadRequest(f"{i}", "5", 3, 0, 3) for i in range(8))
        assert [content(answer) for _, answer in answers] == [b"abc"] * 8


def test_a_version_that_is_no_generation_reaches_no_header_and_no_object() -> None:
    with scripted(lambda _: (200, {}, b"abc")) as (endpoint, came):
        store = to(endpoint)
        ((_, answer),) = store.read_many([ReadRequest("a", "5\r\nX: y", 3, 0, 3)])
        assert isinstance(answer, Vanished)
        assert not store.put_if("a", b"", "0")  # type: ignore[attr-defined]
        assert not store.put_if("a", b"", "abc")  # type: ignore[attr-defined]
    assert not came


def test_what_is_no_listing_is_no_empty_one() -> None:
    for body in (b"<html>", b"[]", b'{"items": [{"name": "x/a"}]}', b""):
        with scripted(lambda _, body=body: (200, {}, body)) as (endpoint, _), pytest.raises(StorageError, match="did not answer"):
            list(to(endpoint).walk())


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"done": false, "rewriteToken": "t"}'])
def test_a_copy_that_does_not_go_on_ends(body: bytes) -> None:
    described = json.dumps({"name": "x/a", "size": "3", "generation": "5"}).encode()
    with scripted(lambda asked: (200, {}, described if asked.method == "GET" else body)) as (endpoint, came):
        with pytest.raises(StorageError, match="did not answer as the service does"):
            to(endpoint).copy("a", "b")  # type: ignore[attr-defined]
        assert len(came) <= 3


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PATIENCE", 0.0)
    with pytest.raises(TransientError, match="nobody listens there"):
        to(f"http://127.0.0.1:{free_port()}").get("a")


def test_requests_name_who_pays() -> None:
    with scripted(lambda _: (200, {}, b"{}")) as (endpoint, came):
        store = bare("gs://tests/x", {"endpoint_url": endpoint, "token": MARK, "requester_pays": "project-7"})
        list(store.walk())
        store.put("a", b"")
    assert all("userProject=project-7" in asked.target for asked in came)


# ------------------------------------------------------------------------------------------------------------------------ uploads
@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of ten bytes, of which three are composed at once."""
    monkeypatch.setattr(gcs_upload, "PIECE", 10)
    monkeypatch.setattr(gcs_store, "TOGETHER", 3)


@pytest.mark.parametrize("pieces", [1, 3, 4, 9, 10, 28])
def test_pieces_are_composed_in_steps_and_nothing_of_them_stays(
    root: str, options: dict[str, Any], small: None, pieces: int, request: pytest.FixtureRequest
) -> None:
    store = bare(root, options)
    data = b"".join(b"%010d" % number for number in range(pieces))[: pieces * 10 - 5]
    handle = uploaded(store, "out/a", data)
    assert list(store.walk()) == list(store.scan("_quire")) == []
    assert [name for name, _ in store.pending()] == ["out/a"]
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: store.complete("out/a", handle), range(6))) == {True}
    assert store.get("out/a") == data
    assert list(store.pending()) == []
    assert list(store._objects("_quire/pieces")) == []  # type: ignore[attr-defined]
    sink = store.create("long")
    sink.write(data)
    sink.close()
    assert store.get("long") == data
    assert list(store._objects("_quire/pieces")) == []  # type: ignore[attr-defined]


def test_a_name_that_is_taken_stays_as_it_is(root: str, options: dict[str, Any]) -> None:
    store = bare(root, options)
    assert store.put_if_absent("a", b"mine")
    assert not store.put_if_absent("a", b"theirs")
    assert store.get("a") == b"mine"


def test_an_upload_takes_no_name_that_another_object_has(root: str, options: dict[str, Any]) -> None:
    store = bare(root, options)
    handle = uploaded(store, "a", b"mine")
    store.put("a", b"theirs")
    with refused(StorageError, 3, "another object has taken its name"):
        store.complete("a", handle)
    assert store.get("a") == b"theirs"
    assert [name for name, _ in store.pending()] == ["a"]


@pytest.mark.parametrize("dies_after", range(12))
def test_a_publish_that_dies_at_any_request_is_completed_by_the_next(
    root: str, options: dict[str, Any], small: None, monkeypatch: pytest.MonkeyPatch, dies_after: int
) -> None:
    store, data = bare(root, options), b"0123456789" * 10
    handle, sent = uploaded(store, "a", data), 0
    send = store.rest.send  # type: ignore[attr-defined]

    class Dies(BaseException):
        pass

    def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent > dies_after:
            raise Dies
        return send(*args, **kwargs)

    monkeypatch.setattr(store.rest, "send", dying)  # type: ignore[attr-defined]
    with suppress(Dies):
        store.complete("a", handle)
    other = bare(root, options)
    found = other.stat("a")
    assert found is None or found.size == len(data), "nobody sees a part"
    assert other.complete("a", handle)
    assert other.complete("a", handle)
    assert other.get("a") == data
    assert list(other.pending()) == []


def test_an_upload_that_was_given_up_in_the_middle_of_its_publish_is_no_object(root: str, options: dict[str, Any], small: None) -> None:
    store = bare(root, options)
    handle = uploaded(store, "a", b"0123456789" * 10)
    store.remove(f"_quire/pieces/a/{json.loads(handle)['upload']}/0-00004")
    assert not store.complete("a", handle)
    assert store.stat("a") is None
    store.give_up("a", handle)
    assert list(store.pending()) == []


@pytest.mark.parametrize(
    "handle", ['{"upload": "../../x", "size": 1, "pieces": 1}', '{"upload": "' + "a" * 32 + '", "size": 1, "pieces": 99999}']
)
def test_a_forged_handle_reaches_nothing(root: str, options: dict[str, Any], handle: str) -> None:
    store = bare(root, options)
    for act in (store.complete, store.give_up):
        with pytest.raises(FormatError):
            act("a", handle)


def test_a_directory_that_is_removed_takes_its_uploads_with_it(root: str, options: dict[str, Any]) -> None:
    store = bare(root, options)
    uploaded(store, "_quire/jobs/x/part", b"1")
    kept = uploaded(store, "_quire/jobs/xx/part", b"2")
    store.remove_tree("_quire/jobs/x")
    assert [name for name, _ in store.pending()] == ["_quire/jobs/xx/part"]
    assert store.complete("_quire/jobs/xx/part", kept)


def test_a_name_that_the_service_does_not_take_is_refused(root: str, options: dict[str, Any]) -> None:
    store = bare(root, options)
    for name in ("a\nb", "x" * 1000):
        with refused(StorageError, 3, "cannot write"):
            store.put(name, b"")


# ---------------------------------------------------------------------------------------------------------------------- pipelines
def test_files_are_gathered_from_one_place_of_it_into_another(root: str, options: dict[str, Any]) -> None:
    source = bare(f"{root}/in", options)
    for number in range(30):
        source.put(f"d{number % 3}/{number} #?%.txt", b"line %d\n" % number)
    chosen: dict[str, Any] = {"storage_options": options, **LOCAL}
    assert quire.consolidate(f"{root}/in", f"{root}/out", **chosen).files == 30
    assert quire.consolidate(f"gcs://{root[5:]}/in/", f"{root}/out", **chosen).files == 0
    source.put("d0/new.txt", b"new\n")
    assert quire.consolidate(f"{root}/in", f"{root}/out", **chosen).files == 1
    dest = bare(f"{root}/out", options)
    lines = [line for e in dest.walk() if not e.name.startswith("_quire/") for line in dest.get(e.name).splitlines()]
    assert sorted(lines) == sorted([b"new", *(b"line %d" % number for number in range(30))])
    assert list(dest.pending()) == []
    assert quire.Ledger(f"{root}/out", storage_options=options).verify(spark=LOCAL["spark"]).ok
    stored = b"".join(dest.get(e.name) for e in dest.walk())
    assert gcs.TOKEN.encode() not in stored


def test_tokens_of_both_sides_stand_apart() -> None:
    one, other = GcsAccount({"token": "first-token-x"}), GcsAccount({"token": "other-token-x"})
    assert one.authorization() != other.authorization()
    assert account({"token": "first-token-x"}) is account({"token": "first-token-x"})
