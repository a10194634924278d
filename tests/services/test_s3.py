"""S3: its URLs and options, what it refuses, throttling and lost connections; on servers, and a scripted one for what those never say."""

from __future__ import annotations

import datetime as dt
import gc
import logging
import multiprocessing
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest

from gathering import gather, refused
from quire.errors import FormatError, NotFoundError, QuireError, StorageError, TransientError, UsageError
from quire.storage import Folder, ReadRequest, Store, Trouble, Unreadable, Vanished, bare, connect, normalise, retry, window
from quire.storage.s3 import listing as s3_listing
from quire.storage.s3 import read as s3_read
from quire.storage.s3 import upload as s3_upload
from quire.storage.s3.account import S3Account, account
from quire.storage.s3.upload import Pieces
from services import s3
from services.ports import free_port
from services.scripted import Asked, Says, between, scripted

MARK = "hunter2-hunter2"


@pytest.fixture
def options(seaweedfs: str) -> dict[str, Any]:
    return s3.options(seaweedfs)


@pytest.fixture
def root() -> str:
    return f"s3://{s3.BUCKET}/{uuid.uuid4().hex}"


def asked(store: Store, *names: str) -> list[ReadRequest]:
    return [ReadRequest(e.name, e.version, e.size, 0, e.size) for e in (store.stat(name) for name in names) if e]


def said(code: str, words: str = "") -> bytes:
    """As S3 words it."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{words}</Message></Error>'.encode()


def to(endpoint: str) -> Store:
    return bare("s3://tests/x", {**s3.options(endpoint), "secret": MARK})


# ------------------------------------------------------------------------------------------------------------ URLs and options
@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3a://bucket/", "s3://bucket"),
        ("S3://my.bucket-1/a b/ü%2F#?/", "s3://my.bucket-1/a b/ü%2F#?"),
    ],
)
def test_one_url_for_one_place(url: str, same: str) -> None:
    assert normalise(url) == same == normalise(same)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://", "names no bucket"),
        ("s3:/bucket/a", "names no bucket"),
        ("s3://ab/a", "names no bucket"),
        (f"s3://key:{MARK}@bucket/a", "carries credentials"),
        (f"s3://bucket/a?X-Amz-Signature={MARK}", "is signed"),
        ("s3://bucket/a//b", "empty part"),
        ("s3://bucket/../b", "empty part"),
    ],
)
def test_what_is_no_place_is_refused(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        normalise(url)
    assert MARK not in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keys": "x"}, "Did you mean 'key'"),
        ({"key": "x"}, "there is only one"),
        ({"secret": MARK}, "there is only one"),
        ({"endpoint_url": "127.0.0.1:9000"}, "is not an address"),
        ({"endpoint_url": "http://host:port"}, "is not an address"),
        ({"endpoint_url": "http://host:99999"}, "is not an address"),
        ({"endpoint_url": "http://host?token=hunter2"}, "is not an address"),
        ({"client_kwargs": "x"}, "is a dictionary"),
        ({"client_kwargs": {"region": "x"}}, "Did you mean 'region_name'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], words: str) -> None:
    with refused(UsageError, 2, words):
        bare("s3://bucket", options)


def test_a_value_that_the_client_does_not_take_is_not_repeated() -> None:
    store = bare(
        "s3://bucket", {"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:1", "s3_additional_kwargs": {"StorageClass": [MARK]}}
    )
    with pytest.raises(QuireError, match="does not take") as error:
        store.put("a", b"1")
    assert MARK not in str(error.value)


def test_a_profile_that_is_not_there_and_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with refused(UsageError, 2, "nobody", "Look at the option profile"):
        bare("s3://bucket", {"profile": "nobody"}).get("a")
    alone = bare("s3://bucket", {"endpoint_url": "http://127.0.0.1:1"})
    for act in (lambda: alone.get("a"), lambda: list(alone.read_many([ReadRequest("a", "v", 1, 0, 1)]))):
        with refused(StorageError, 3, "credentials are missing", "anon=True"):
            act()


def test_a_profile_is_found(root: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "credentials").write_text(f"[mine]\naws_access_key_id={s3.KEY}\naws_secret_access_key={s3.SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    store = bare(root, {"profile": "mine", "endpoint_url": options["endpoint_url"], "client_kwargs": {"region_name": "us-east-1"}})
    store.put("a", b"1")
    assert [answer for _, answer in store.read_many(asked(store, "a"))] == [b"1"]


def test_a_role_is_taken_through_a_profile(root: str, moto: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Its keys are asked for where the profile says, and are what single requests and many reads are signed with."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").write_text(
        "[profile role]\nrole_arn=arn:aws:iam::123456789012:role/reader\nsource_profile=mine\nregion=us-east-1\n"
        f"[profile mine]\naws_access_key_id={s3.KEY}\naws_secret_access_key={MARK}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with between(moto, lambda _: None) as (endpoint, came):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        store = bare(root, {"profile": "role", "endpoint_url": endpoint})
        store.put("a", b"1")
        assert [answer for _, answer in store.read_many(asked(store, "a"))] == [b"1"]
        asking = [request for request in came if b"Action=AssumeRole" in request.body]
        others = [request for request in came if request not in asking]
        assert all(f"Credential={s3.KEY}/" in request.headers["authorization"] for request in asking)
        assert asking
        assert not any(f"Credential={s3.KEY}/" in request.headers["authorization"] for request in others)
        assert all(request.headers["x-amz-security-token"] for request in others)
        assert MARK not in repr(store)


def test_options_of_other_stores_are_passed_over(root: str, options: dict[str, Any]) -> None:
    """Source and destination may share one dictionary."""
    store = bare(root, {**options, "account_key": MARK, "connection_string": MARK, "user": "alice"})
    store.put("a", b"1")
    assert store.get("a") == b"1"


def test_the_secret_is_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    store = bare("s3://bucket/x", {"key": "k", "secret": MARK, "token": MARK, "endpoint_url": f"http://user:{MARK}@127.0.0.1:1"})
    caplog.set_level(logging.DEBUG, "quire")
    with pytest.raises(QuireError) as caught:
        store.get("a")
    shown = account({"secret": MARK, "key": "k", "endpoint_url": f"http://user:{MARK}@127.0.0.1:1"})
    for text in (repr(store), repr(connect("s3://bucket/x", {"key": "k", "secret": MARK})), repr(shown)):
        assert MARK not in text
    assert MARK not in f"{caught.value}{caplog.text}"


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    ("bucket", "options", "base"),
    [
        ("bucket", {}, "https://bucket.s3.eu-west-7.amazonaws.com/"),
        ("with.dots", {}, "https://s3.eu-west-7.amazonaws.com/with.dots/"),
        ("bucket", {"config_kwargs": {"s3": {"addressing_style": "path"}}}, "https://s3.eu-west-7.amazonaws.com/bucket/"),
        ("bucket", {"endpoint_url": "http://host:1/prefix"}, "http://host:1/prefix/bucket/"),
    ],
)
def test_many_are_read_where_single_requests_go(bucket: str, options: dict[str, Any], base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the bucket's own region, whatever the options say: AWS is asked."""
    monkeypatch.setattr(S3Account, "_region", lambda *_: "eu-west-7")
    given = {"key": "k", "secret": MARK, "client_kwargs": {"region_name": "us-east-1"}, **options}
    assert S3Account(given).place(bucket) == (base, "us-east-1" if "endpoint_url" in options else "eu-west-7")


@pytest.mark.parametrize("token", [None, "a-token"])
def test_the_signature_is_botocores(token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    who = S3Account({"key": "k", "secret": MARK, "token": token, "endpoint_url": "http://host:1"})
    moment = time.gmtime(1_790_000_000)
    monkeypatch.setattr(s3_read.time, "gmtime", lambda *_: moment)
    path = "/bucket/a%20b/%C3%BC"
    ours = dict(line.split(": ", 1) for line in s3_read.Signer(who, who.place("bucket")).headers(path).splitlines())
    request = AWSRequest("GET", f"http://host:1{path}", headers={"x-amz-content-sha256": ours["x-amz-content-sha256"]})
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda **_: dt.datetime.fromtimestamp(1_790_000_000, dt.UTC))
    S3SigV4Auth(who.credentials(), "s3", "us-east-1").add_auth(request)
    theirs = request.headers["Authorization"]
    assert ours["authorization"].split("Credential=")[1].replace(" ", "") == theirs.split("Credential=")[1].replace(" ", "")


@pytest.mark.parametrize("name", ["key", "token"])
@pytest.mark.parametrize("wrong", ["\n", "\r\nX: y", " ", "…"])
def test_credentials_that_are_none_are_told_and_never_sent(name: str, wrong: str) -> None:
    """A variable of the environment with the line's end of its file: behind it another header would begin."""
    with scripted(lambda _: (200, {"ETag": '"v"'}, b"1")) as (endpoint, came):
        store = bare("s3://tests/x", {"key": "k", "secret": "s", "endpoint_url": endpoint, name: MARK + wrong})
        with pytest.raises(StorageError, match=f"the {name} of S3's credentials is not one") as caught:
            store.get("a")
        assert MARK not in str(caught.value)
        assert not came


# -------------------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize("body", [b"", b"<html>a proxy</html>"])
def test_a_page_of_a_proxy_does_not_publish(body: bytes) -> None:
    """It answers 200, as the service does, and the log would name an object that is not there."""
    there = {"Content-Length": "3", "ETag": '"e"', "Last-Modified": "Sat, 21 Nov 2026 19:58:32 GMT"}

    def answer(asked: Asked) -> Says:
        if asked.method == "HEAD":
            return (200, there, b"") if asked.target.endswith("old") else (404, {}, b"")
        return 200, {}, body

    with scripted(answer) as (endpoint, _):
        store: Any = to(endpoint)
        handle = Pieces("u", ("e",), 3).handle()
        for act in (lambda: store.complete("new", handle), lambda: store.copy("old", "new"), lambda: store.begin("new")):
            with pytest.raises(StorageError, match="did not answer as S3 does"):
                act()
        assert store.complete("old", handle), "it is there"


REFUSALS = [
    (403, "InvalidAccessKeyId", "", "does not know this access key"),
    (403, "SignatureDoesNotMatch", f"we calculated {MARK}", "does not take this secret"),
    (400, "ExpiredToken", "", "the credentials have expired"),
    (403, "RequestTimeTooSkewed", "", "Set the clock"),
    (403, "AccessDenied", "User: x is not authorized", "no permission (User: x is not authorized)"),
    (404, "NoSuchBucket", "", "bucket 'tests' does not exist"),
    (301, "PermanentRedirect", "", "is in the region 'eu-west-7'"),
    (400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-7'", "is in the region 'eu-west-7'"),
    (501, "NotImplemented", "", "does not know this request"),
    (403, "InvalidObjectState", "", "it is archived"),
    (400, "Strange", "what nobody knows", "the service refused it (400 Strange: what nobody knows)"),
]


@pytest.mark.nth(6)
@pytest.mark.parametrize(("status", "code", "words", "says"), REFUSALS)
def test_a_refusal_is_one_clear_line(status: int, code: str, words: str, says: str) -> None:
    def answer(_: Asked) -> Says:
        return status, {"x-amz-bucket-region": "eu-west-7"} if status == 301 else {}, said(code, words)

    with scripted(answer) as (endpoint, _):
        store = to(endpoint)
        for act in (lambda: store.put("a", b""), lambda: list(store.walk()), lambda: store.put_if_absent("a", b"")):
            with refused(StorageError, 3, "s3://tests/x", says) as _:
                act()
        with pytest.raises(StorageError) as caught:
            store.get("a")
        assert not isinstance(caught.value, TransientError)
        assert MARK not in str(caught.value)


@pytest.mark.nth(3)
@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (429, "TooMany"), (409, "OperationAborted"), (0, "")]
)
def test_what_passes_is_tried_again(status: int, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once by boto3, again by quire alone; the service's own wish is heard."""
    pauses = list[float]()
    monkeypatch.setattr(retry, "pause", pauses.append)

    def answer(request: Asked) -> Says:
        return (status, {"Retry-After": "3"}, said(code)) if request.number < 2 else (200, {"ETag": '"e"'}, b"content")

    with scripted(answer) as (endpoint, came):
        with pytest.raises(TransientError):
            to(endpoint).get("a")
        assert len(came) == 1
        assert connect("s3://tests/x", s3.options(endpoint)).get("a") == b"content"
        assert len(came) == 3
    assert len(pauses) == 1
    assert pauses[0] >= (3 if status else 0.1)


def test_nobody_listens() -> None:
    port = free_port()
    with pytest.raises(TransientError, match="nobody listens there"):
        to(f"http://127.0.0.1:{port}").get("a")
    with refused(StorageError, 3, "unknown host"):
        to("http://no-such-host.invalid").get("a")


def test_wrong_key_and_wrong_bucket(root: str, options: dict[str, Any]) -> None:
    """On a real server; a call of the main job says the same in one line."""
    wrong = {**options, "secret": MARK}
    for act in (lambda: bare(root, wrong).put("a", b""), lambda: gather(f"{root}/in", f"{root}/out", storage_options=wrong)):
        with refused(StorageError, 3, "does not take this secret"):
            act()
    with refused(StorageError, 3, "bucket 'nowhere-at-all' does not exist"):
        bare("s3://nowhere-at-all/x", options).check_writable()
    with pytest.raises(NotFoundError):
        bare(root, options).get("a")


# --------------------------------------------------------------------------------------------------------------------- reading
def test_reading_many_says_of_each_what_is_wrong() -> None:
    answers = {
        "gone": (404, said("NoSuchKey")), "changed": (412, said("PreconditionFailed")), "shorter": (416, said("InvalidRange")),
        "denied": (403, said("AccessDenied")), "archived": (403, said("InvalidObjectState")), "fine": (200, b"12345"),
    }  # fmt: skip

    def answer(request: Asked) -> Says:
        status, body = answers[request.target.rsplit("/", 1)[-1]]
        return status, {}, body

    with scripted(answer) as (endpoint, came):
        found = {r.name: c for r, c in to(endpoint).read_many([ReadRequest(name, "v-1", 5, 0, 5) for name in answers])}
    assert found["fine"] == b"12345"
    kinds = {name: type(content) for name, content in found.items()}
    assert kinds == {
        "gone": Vanished,
        "changed": Vanished,
        "shorter": Vanished,
        "denied": Unreadable,
        "archived": Unreadable,
        "fine": bytes,
    }
    assert "no permission" in str(found["denied"])
    assert "archived" in str(found["archived"])
    assert all(request.headers["if-match"] == '"v-1"' for request in came)
    assert all(MARK not in str(request) for request in came)


def test_many_looks_leave_out_what_is_not_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "FIRST", 0.01)
    there = {"ETag": '"e"', "Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT", "Content-Length": "7"}
    answers: dict[str, tuple[int, dict[str, str]]] = {
        "fine": (200, there), "gone": (404, {}), "denied": (403, {}), "elsewhere": (301, {}), "untagged": (200, {**there, "ETag": ""}),
        "undated": (200, {**there, "Last-Modified": "yesterday"}), "busy": (200, there),
    }  # fmt: skip
    tries = list[str]()

    def answer(request: Asked) -> Says:
        tries.append(name := request.target.rsplit("/", 1)[-1])
        assert (request.method, "authorization" in request.headers) == ("HEAD", True)
        status, headers = (503, {}) if name == "busy" and tries.count("busy") < 3 else answers[name]
        return status, headers, b""

    with scripted(answer) as (endpoint, came):
        found = dict(to(endpoint).look_at(list(answers)))  # type: ignore[attr-defined]  # it is optional
        single = to(endpoint).stat("fine")
    assert found == {"fine": single, "gone": None, "busy": single._replace(name="busy") if single else None}
    assert len(came) == len(answers) + 2 + 1


def test_reading_many_ends_where_nothing_can_be_read() -> None:
    with (
        scripted(lambda _: (403, {}, said("InvalidAccessKeyId"))) as (endpoint, _),
        refused(StorageError, 3, "does not know this access key"),
    ):
        list(to(endpoint).read_many([ReadRequest("a", "v", 5, 0, 5)]))


def test_reading_many_slows_down_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "FIRST", 0.01)
    failures = iter([(503, said("SlowDown")), (500, said("InternalError")), (0, b"")])
    lock = threading.Lock()

    def answer(_: Asked) -> Says:
        with lock:
            status, body = next(failures, (200, b"12345"))
        return status, {}, body

    with scripted(answer) as (endpoint, came):
        found = list(to(endpoint).read_many([ReadRequest(f"f{i}", "v", 5, 0, 5) for i in range(50)]))
    assert [(r.name, c) for r, c in found] == [(f"f{i}", b"12345") for i in range(50)]
    assert len(came) == 53


def test_reading_many_signs_as_the_service_wants(root: str, options: dict[str, Any], moto: str) -> None:
    """Also names that no path takes, with a token, for a requester who pays, and for nobody."""
    store = bare(root, options)
    for name in ("ü #?%2F+&=~'()*!,;:@$", "a b/c"):
        store.put(name, name.encode())
        assert [c for _, c in store.read_many(asked(store, name))] == [name.encode()]
    paying = {**s3.options(moto), "token": "a-token", "requester_pays": True}
    other = bare(root, paying)
    other.put("a", b"1")
    assert [c for _, c in other.read_many(asked(other, "a"))] == [b"1"]
    with scripted(lambda _: (200, {"ETag": '"v"'}, b"1")) as (endpoint, came):
        public = bare("s3://tests", {"anon": True, "endpoint_url": endpoint})
        assert [public.get("a"), *(c for _, c in public.read_many([ReadRequest("a", "v", 1, 0, 1)]))] == [b"1", b"1"]
        paid = bare("s3://tests", {**s3.options(endpoint), "token": "a-token", "requester_pays": True})
        list(paid.read_many([ReadRequest("a", "v", 1, 0, 1)]))
        paid.get("a")
    assert ["authorization" in request.headers for request in came] == [False, False, True, True]
    assert [request.headers.get("x-amz-request-payer") for request in came] == [None, None, "requester", "requester"]
    assert [request.headers.get("x-amz-security-token") for request in came] == [None, None, "a-token", "a-token"]


def _read(url: str, options: dict[str, Any], answer: Any) -> None:
    store = bare(url, options)
    answer.put([content for _, content in store.read_many(asked(store, "a"))])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # that it is what Spark does is the point
def test_a_fork_reads_after_its_parent_did(root: str, options: dict[str, Any]) -> None:
    """Spark's workers are forks."""
    store = bare(root, options)
    store.put("a", b"1")
    assert [c for _, c in store.read_many(asked(store, "a"))] == [b"1"]
    fork = multiprocessing.get_context("fork")
    answer = fork.Queue()
    child = fork.Process(target=_read, args=(root, options, answer))
    child.start()
    assert answer.get(timeout=30) == [b"1"]
    child.join(10)
    assert child.exitcode == 0
    assert store.get("a") == b"1"


# --------------------------------------------------------------------------------------------------------------------- listing
def test_a_page_that_fails_is_asked_for_again(root: str, moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those before it: the listing goes on where it was."""
    monkeypatch.setattr(retry, "pause", lambda _: None)
    store = bare(root, s3.options(moto))
    for i in range(5):
        store.put(f"{i}", b"")
    broken, pages, from_ = [2, 3], list[str](), s3_listing._from
    monkeypatch.setattr(s3_listing, "_from", lambda token, wanted: from_(token, {**wanted, "max-keys": "2"}))

    def says(asked: Asked) -> Says | None:
        if "list-type=2" not in asked.target:
            return None
        pages.append(asked.target.partition("continuation-token=")[2].partition("&")[0])
        return (0, {}, b"") if len(pages) in broken else None

    with between(moto, says) as (endpoint, _):
        assert [e.name for e in bare(root, s3.options(endpoint)).walk()] == ["0", "1", "2", "3", "4"]
    assert len(pages) == 5
    assert pages[1] == pages[2] == pages[3]


def test_names_that_are_no_paths_are_told_of(root: str, moto: str) -> None:
    """Markers of directories are none of the files; `a//b` is on S3 another name than `a/b`, which no path says."""
    store, client, key = bare(root, s3.options(moto)), s3.client(moto), root.removeprefix(f"s3://{s3.BUCKET}/")
    for name in ("", "d/", "d/a", "//b", "d//c", "d/../e", "d/."):
        client.put_object(Bucket=s3.BUCKET, Key=f"{key}/{name}", Body=b"x" if name and not name.endswith("/") else b"")
    assert [(type(i), i.name) for i in store.scan()] == [(Trouble, "/"), (Folder, "d")]
    assert {type(i): i.name for i in store.scan("d")} == {Trouble: "d/.", type(store.stat("d/a")): "d/a"}
    assert sum(isinstance(i, Trouble) for i in store.scan("d")) == 3
    assert "d" not in [e.name for e in store.walk()]


# --------------------------------------------------------------------------------------------------------------------- uploads
def test_a_completed_upload_that_the_service_has_forgotten(root: str, moto: str) -> None:
    """AWS says NoSuchUpload of what was completed as of what was dropped: the object itself tells which."""
    store = bare(root, s3.options(moto))
    handles = list[str]()
    for name in "ab":
        upload = store.upload(name)
        upload.write(b"12345")
        upload.close()
        handles.append(upload.handle)
    assert [store.complete("a", handles[0]) for _ in range(3)] == [True] * 3
    store.give_up("b", handles[1])
    assert not store.complete("b", handles[1])
    store.put("b", b"of somebody else")
    with refused(StorageError, 3, "another object has taken its name"):
        store.complete("b", handles[1])


def test_parts_grow_so_that_any_file_fits(root: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand parts of one size would end at 80 GB."""
    monkeypatch.setattr(s3_upload, "PART", 5 << 20)
    monkeypatch.setattr(s3_upload, "SAME", 2)
    store = bare(root, options)
    upload, piece = store.upload("a"), bytes(range(256)) * 4096 * 7
    for _ in range(6):
        upload.write(piece)
    upload.close()
    pieces = Pieces.read(upload.handle, "a")
    assert (len(pieces.parts), pieces.size) == (5, len(piece) * 6)  # 5, 5, 10, 10 and what is left of 42
    assert store.complete("a", upload.handle)
    assert store.get("a") == piece * 6


def test_a_part_that_fails_for_the_moment_is_sent_again(root: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST", 0.01)
    store = bare(root, options)
    real, failed = s3_upload.part, list[str]()

    def part(signer: Any, key: str, query: str, *more: Any) -> Any:
        if query not in failed:
            failed.append(query)
            raise TransientError("busy")
        return (yield from real(signer, key, query, *more))

    monkeypatch.setattr(s3_upload, "part", part)
    upload, piece = store.upload("a"), b"x" * (9 << 20)
    upload.write(piece)
    upload.write(piece)
    upload.close()
    assert store.complete("a", upload.handle)
    assert store.get("a") == piece * 2
    assert [query.partition("&")[0] for query in sorted(failed)] == ["partNumber=1", "partNumber=2", "partNumber=3"]


@pytest.mark.parametrize(
    "handle",
    ["", "[]", "{}", '{"upload":"../x","size":1,"parts":[]}', '{"upload":"x","size":1,"parts":["a\\nb"]}',
     '{"upload":"x","size":-2,"parts":[]}', '{"upload":"x","size":1,"parts":"ab"}', '{"upload":1,"size":1,"parts":[]}', "[" * 100_000],
)  # fmt: skip
def test_a_forged_handle_is_refused(handle: str) -> None:
    store = to("http://127.0.0.1:1")
    for act in (store.complete, store.give_up):
        with pytest.raises(FormatError, match="is not the handle"):
            act("a", handle)


def test_a_handle_of_another_name_does_nothing(root: str, options: dict[str, Any]) -> None:
    """A forged entry names its own file with the handle of somebody else's upload."""
    store = bare(root, options)
    upload = store.upload("theirs")
    upload.write(b"12345")
    upload.close()
    with suppress(StorageError):  # a service may refuse it in other words
        assert not store.complete("mine", upload.handle)
    assert store.stat("mine") is None
    assert store.stat("theirs") is None


def test_a_service_without_conditional_writes_is_refused() -> None:
    with (
        scripted(lambda _: (501, {}, said("NotImplemented"))) as (endpoint, _),
        refused(StorageError, 3, "conditional and multipart writes"),
    ):
        to(endpoint).put_if_absent("a", b"")


def test_nothing_stays_open(root: str, options: dict[str, Any]) -> None:
    """No thread and no connection of a reader that was left: a warning here is an error."""
    store = bare(root, options)
    for i in range(20):
        store.put(f"f{i}", b"1")
    before = threading.active_count()
    answers = store.read_many(asked(store, *(f"f{i}" for i in range(20))))
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    gc.collect()
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before


# ------------------------------------------------------------------------------------------------------------------- many deletions
@pytest.mark.nth(3)
@pytest.mark.parametrize("refuses", ["", "NotImplemented", "MissingContentMD5"])
def test_a_thousand_objects_are_deleted_by_a_request_and_one_by_one_where_the_service_does_not_know_that(
    root: str, moto: str, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:  # fmt: skip
    store: Any = bare(root, s3.options(moto))
    done, do = list[str](), type(store)._do

    def counted(store: Any, operation: str, *args: Any, **kwargs: Any) -> Any:
        done.append(operation)
        return refuses if refuses and operation == "delete_objects" else do(store, operation, *args, **kwargs)

    names = [f"out/{i}" for i in range(3)]
    for name in names:
        store.put(name, b"x")
    monkeypatch.setattr(type(store), "_do", counted)
    store.remove_all([*names, *(f"out/never{i}" for i in range(1_000))])
    assert done.count("delete_objects") == 2
    assert done.count("delete_object") == (1_003 if refuses else 0)
    assert list(store.walk()) == []


def test_a_batch_that_does_not_say_what_it_has_left_is_deleted_one_by_one(root: str, moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = bare(root, s3.options(moto))
    for name in "ab":
        store.put(name, b"x")
    do = type(store)._do

    def some(store: Any, operation: str, *args: Any, **kwargs: Any) -> Any:
        return {"Errors": [{"Code": "InternalError"}]} if operation == "delete_objects" else do(store, operation, *args, **kwargs)

    monkeypatch.setattr(type(store), "_do", some)
    store.remove_all(["a", "b"])
    assert list(store.walk()) == []


def test_an_object_that_may_not_be_deleted_is_named(root: str, moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch says of each object what is wrong; then that one is deleted by itself, which explains."""
    store: Any = bare(root, s3.options(moto))
    store.put("a", b"x")
    do, denied = type(store)._do, {"Errors": [{"Key": f"{store.root}b", "Code": "AccessDenied", "Message": "Access Denied"}]}

    def some(store: Any, operation: str, doing: str, name: str, answers: Any = (), **kwargs: Any) -> Any:
        if operation == "delete_objects":
            return denied
        if operation == "delete_object":
            raise StorageError(f"cannot {doing} {store.shown(name)}: no permission.")
        return do(store, operation, doing, name, answers, **kwargs)

    monkeypatch.setattr(type(store), "_do", some)
    with refused(StorageError, 3, "cannot remove", f"{root}/b", "no permission"):
        store.remove_all(["a", "b"])


@pytest.mark.parametrize("headers", [{}, {"ETag": '"e"'}, {"ETag": '"e"', "Last-Modified": "yesterday"}])
def test_a_look_up_that_tells_nothing_is_one_line(headers: dict[str, str]) -> None:
    with (
        scripted(lambda _: (200, headers, b"")) as (endpoint, _),
        refused(StorageError, 3, "cannot look up s3://tests/x/a", "endpoint_url"),
    ):
        to(endpoint).stat("a")


def test_what_is_empty_keeps_its_condition(root: str, options: dict[str, Any]) -> None:
    store = bare(root, options)
    store.put("a", b"1")
    assert not store.put_if_absent("a", b"")
    assert not store.put_if("a", b"", "0123")
    assert store.get("a") == b"1"


def test_options_of_writes_go_with_each_write() -> None:
    def answer(request: Asked) -> Says:
        return (412, {}, said("PreconditionFailed")) if "if-match" in request.headers else (200, {"ETag": '"e"'}, b"")

    with scripted(answer) as (endpoint, came):
        of_writes = {"StorageClass": "ONEZONE_IA", "Metadata": {"of": "quire"}}
        store = bare("s3://tests/x", {**s3.options(endpoint), "s3_additional_kwargs": of_writes})
        store.put("a", b"1")
        assert store.put_if_absent("a", b"1")
        assert not store.put_if("a", b"1", "0123")
        for request in came:
            told = {name.lower(): value for name, value in request.headers.items()}
            assert (told["x-amz-storage-class"], told["x-amz-meta-of"]) == ("ONEZONE_IA", "quire")
        assert [request.body for request in came] == [b"1"] * 3
