"""Bad input, one clear line each: keys, places, what lies between, clocks, throttling, through the main job; the next call goes on.

On Azurite, SeaweedFS and moto, whichever can show it; what none of them says, a scripted server says, alone or in front of one of them.
Odd objects and names are in `test_bad_objects.py`; the same on local disk in `tests/engine/test_bad_input.py`; HDFS in `test_hdfs.py`.
"""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import generate_container_sas

import quire
from gathering import gather, not_taken, write
from quire.errors import QuireError, StorageError, TransientError
from quire.storage import asking, connect, retry, window
from services import s3
from services.azurite import ACCOUNT, KEY, connection_string
from services.ports import free_port
from services.scripted import Asked, Says, between, refusal, scripted
from services.site import FILES, LINES, WRONG, Site, both_ways, line, lines, sites
from speaking import head, serving


@pytest.fixture(params=["azurite", "seaweedfs", "moto"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    yield from sites(request, request.param)


@pytest.fixture
def azure(request: pytest.FixtureRequest) -> Iterator[Site]:
    yield from sites(request, "azurite")


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A source on disk."""
    return write(tmp_path / "disk", FILES)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried again soon."""
    for module in (retry, window):
        monkeypatch.setattr(module, "FIRST", 0.02)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, hasty: None) -> None:
    """What lasts for a second lasts."""
    for module in (retry, window):
        monkeypatch.setattr(module, "PATIENCE", 1.0)


def denied(code: str, detail: str = "") -> Says:
    """As Azure says it."""
    return 403, {"x-ms-error-code": code}, refusal(code, "This request is not authorized.", detail)


def error(code: str, words: str = "") -> bytes:
    """As S3 says it."""
    return f"<Error><Code>{code}</Code><Message>{words}</Message></Error>".encode()


def trickles(sock: socket.socket, _: int) -> None:
    """A byte of the head now and then, without end: no silence is long enough to end it."""
    head(sock)
    for byte in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1_000:
        sock.sendall(bytes([byte]))
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["abfs", "s3", "gs", "webhdfs"])
def test_an_answer_that_trickles_for_ever_is_left(kind: str, monkeypatch: pytest.MonkeyPatch, impatient: None) -> None:
    monkeypatch.setattr(asking, "LASTS", 0.5)
    with serving(trickles) as (origin, _):
        options: dict[str, object] = {
            "abfs": {"account_name": "acc", "account_host": origin, "account_key": KEY},
            "s3": {"endpoint_url": origin, "key": "k", "secret": "s", "client_kwargs": {"region_name": "eu-west-1"}},
            "gs": {"endpoint_url": origin, "token": "anon"},
            "webhdfs": {"timeout": 0.5},
        }[kind]
        bucket = origin.removeprefix("http://") if kind == "webhdfs" else "bucket"
        store = connect(f"{kind}://{bucket}/x", options)
        for act in (lambda: store.get("a"), lambda: store.put("a", b"1"), lambda: store.stat("a"), lambda: list(store.walk())):
            began = time.monotonic()
            with pytest.raises(TransientError, match="no answer in time"):
                act()
            assert time.monotonic() - began < 10


# ------------------------------------------------------------------------------------------- keys, signatures, containers, places
def test_a_wrong_key(azure: Site, seaweedfs: str, local: Path, out: Path) -> None:
    both_ways(azure.url, {"connection_string": connection_string(azure.endpoint, WRONG)}, local, out, "this key", "Ask who administers it")
    wrong = {**s3.options(seaweedfs), "secret": "hunter2"}
    both_ways("s3://tests/x", wrong, local, out, "does not take this secret", "Copy the option secret again")
    both_ways("s3://tests/x", {**wrong, "key": "nobody"}, local, out, "does not know this access key")


def test_an_expired_signature(azure: Site, local: Path, out: Path) -> None:
    ended = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    sas = generate_container_sas(ACCOUNT, "tests", account_key=KEY, permission="rlcw", expiry=ended)
    options = {"account_name": ACCOUNT, "account_host": azure.endpoint, "sas_token": sas}
    both_ways(azure.url, options, local, out, "the SAS for the account 'devstoreaccount1' has expired", "Ask for a new one")


def test_a_signature_that_ends_in_the_middle_of_a_job(azure: Site, local: Path) -> None:
    """What was done is kept, and the next call, with another signature, goes on."""
    begun = dt.datetime.now(dt.UTC)
    over = threading.Event()

    def says(asked: Asked) -> Says | None:
        if asked.method == "PUT" and asked.number > 30:
            over.set()
        return denied("AuthenticationFailed", "Signature not valid in the specified time frame") if over.is_set() else None

    sas = generate_container_sas(ACCOUNT, "tests", account_key=KEY, permission="racwdl", expiry=begun + dt.timedelta(hours=1))
    with (
        between(azure.endpoint, says) as (endpoint, _),
        line("the SAS", "has expired", "Ask for a new one", "call again to go on", kind=QuireError),
    ):
        by_sas = {"account_name": ACCOUNT, "account_host": endpoint, "sas_token": sas}
        gather(local, f"{azure.url}/out", dest_options=by_sas, target_size="60 B")
    assert over.is_set()
    gather(local, f"{azure.url}/out", dest_options=azure.options, target_size="60 B")
    assert lines(azure.store("out")) == LINES


def test_a_missing_container(site: Site, local: Path, out: Path) -> None:
    where = f"{site.url.partition(':')[0]}://nowhere-at-all/x"
    words = (
        ("the container 'nowhere-at-all' is not there. Create it",)
        if site.azure
        else ("bucket 'nowhere-at-all' does not exist", "create the bucket")
    )
    both_ways(where, site.options, local, out, *words)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((301, {"x-amz-bucket-region": "eu-west-7"}, "PermanentRedirect"), "is in the region 'eu-west-7': give client_kwargs="),
        ((307, {}, "TemporaryRedirect"), "is somewhere else"),
        ((400, {}, "AuthorizationHeaderMalformed"), "is in the region 'eu-west-7': give client_kwargs="),
    ],
)  # fmt: skip
def test_a_bucket_that_needs_another_endpoint(answer: tuple[int, dict[str, str], str], words: str, local: Path, out: Path) -> None:
    status, headers, code = answer
    body = f"<Error><Code>{code}</Code><Message>the region 'us-east-1' is wrong; expecting 'eu-west-7'</Message></Error>".encode()
    with scripted(lambda _: (status, headers, body)) as (endpoint, _):
        both_ways("s3://tests/x", s3.options(endpoint), local, out, words)


def test_a_container_that_needs_another_endpoint(azure: Site, local: Path, out: Path) -> None:
    """A secondary endpoint reads, and takes nothing; another one sends us elsewhere."""

    def says(asked: Asked) -> Says | None:
        return None if asked.method in ("GET", "HEAD") else denied("InsufficientAccountPermissions")

    azure.fill()
    with between(azure.endpoint, says) as (endpoint, _):
        secondary = azure.reached(endpoint)
        assert gather(f"{azure.url}/in", out, source_options=secondary).files == len(FILES)
        with line("takes no changes: it is a secondary endpoint", "Look at account_host", kind=QuireError):
            gather(local, f"{azure.url}/out", dest_options=secondary)
    with scripted(lambda _: (307, {"Location": "https://elsewhere.example.org/?sig=hunter2"}, b"")) as (endpoint, _):
        both_ways("abfs://tests/x", to_azure(endpoint), local, out.with_name("other"), "sends us elsewhere")


# ----------------------------------------------------------------------------------------------------- what lies between, and clocks
def to_azure(endpoint: str) -> dict[str, Any]:
    return {"account_name": "acc", "account_host": endpoint, "account_key": KEY}


def to_s3(endpoint: str) -> dict[str, Any]:
    return {**s3.options(endpoint), "secret": "hunter2"}


KINDS = [("abfs", to_azure), ("s3", to_s3)]
Reached = Callable[[str], dict[str, Any]]


GATEWAY = b"<html>Blocked by a gateway: token=hunter2&sig%3Dhunter2</html>"


@pytest.mark.parametrize(
    ("scheme", "reached", "answer", "words"),
    [
        ("abfs", to_azure, denied("AuthorizationFailure"), ("its firewall admits chosen networks only", "Ask who administers it")),
        ("abfs", to_azure, denied("AuthorizationSourceIPMismatch"), ("the SAS holds for other machines' addresses", "Ask for one")),
        ("s3", to_s3, (403, {}, error("AccessDenied", "of /a%3FX-Amz-Signature%3Dhunter2")), ("no permission (of /a", "Ask for the right")),
        ("abfs", to_azure, (403, {}, GATEWAY), ("refused it (403",)),
        ("s3", to_s3, (403, {}, GATEWAY), ("no permission", "Ask for the right")),
        ("abfs", to_azure, denied("AuthenticationFailed", "Request date header too old: 'x'"), ("clock is wrong by more", "Set the clock")),
        ("s3", to_s3, (403, {}, error("RequestTimeTooSkewed")), ("clock wrong by more than 15 minutes", "Set the clock")),
    ],
)  # fmt: skip
def test_a_firewall_or_a_wrong_clock(scheme: str, reached: Reached, answer: Says, words: tuple[str, ...], local: Path, out: Path) -> None:
    with scripted(lambda _: answer) as (endpoint, came):
        both_ways(f"{scheme}://tests/x", reached(endpoint), local, out, *words)
        assert len(came) <= 4, "nothing is asked again"


@pytest.mark.parametrize("call", [quire.Ledger, quire.recover, quire.read])
def test_who_looks_whether_it_is_a_table_is_told_why_nobody_may(call: Callable[..., object]) -> None:
    """An answer to a look at one object has no body, and so no reason."""
    error = b"<Error><Code>InvalidAccessKeyId</Code><Message>none</Message></Error>"
    says = {"Content-Type": "application/xml"}
    with scripted(lambda _: (403, says, error)) as (endpoint, _), pytest.raises(StorageError, match="does not know this access key"):
        call("s3://tests/x", storage_options=to_s3(endpoint))


@pytest.mark.nth(2)
@pytest.mark.parametrize(("scheme", "reached"), KINDS)
def test_nobody_listens_or_the_connection_is_reset(scheme: str, reached: Reached, local: Path, out: Path, impatient: None) -> None:
    port = free_port()
    both_ways(f"{scheme}://tests/x", reached(f"http://127.0.0.1:{port}"), local, out, "nobody listens there", "tried", kind=TransientError)
    with scripted(lambda _: (0, {}, b"")) as (endpoint, _):
        both_ways(f"{scheme}://tests/x", reached(endpoint), local, out, "the connection was lost", "tried", kind=TransientError)


@pytest.mark.parametrize(("scheme", "reached"), KINDS)
def test_no_such_host(scheme: str, reached: Reached, local: Path, out: Path) -> None:
    both_ways(
        f"{scheme}://tests/x",
        reached("https://no-such-account.invalid"),
        local,
        out,
        "unknown host",
        "no-such-account.invalid",
        "Check",
    )


@pytest.mark.nth(2)
@pytest.mark.parametrize(("scheme", "reached"), KINDS)
def test_names_that_cannot_be_looked_up_just_now(
    scheme: str, reached: Reached, local: Path, out: Path, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver is away for a moment: that passes, unlike a name that nobody has."""

    def away(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", away)
    both_ways(
        f"{scheme}://tests/x", reached("https://some.invalid"), local, out, "cannot be looked up just now", "tried", kind=TransientError
    )


@pytest.mark.parametrize(("scheme", "reached"), KINDS)
def test_tls_to_what_speaks_none_and_a_certificate_of_nobody(scheme: str, reached: Reached, local: Path, out: Path, tmp_path: Path) -> None:
    with scripted(lambda _: (200, {}, b"")) as (endpoint, _):
        secure = endpoint.replace("http:", "https:")
        both_ways(f"{scheme}://tests/x", reached(secure), local, out, "does not speak https. Look at")
    with speaks_tls(tmp_path) as secure:
        both_ways(f"{scheme}://tests/x", reached(secure), local, out, "certificate of 127.0.0.1:", "Look at")


@contextmanager
def speaks_tls(folder: Path) -> Iterator[str]:
    """A server whose certificate nobody has signed."""
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with suppress(OSError), connection, context.wrap_socket(connection, server_side=True):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


# ------------------------------------------------------------------------------------------------------------------- throttling
@pytest.mark.nth(3)
@pytest.mark.parametrize(
    ("status", "after"),
    [
        pytest.param(429, {}, id=""),
        pytest.param(503, {"Retry-After": "0.2"}, id="s", marks=pytest.mark.services),  # ten seconds each
        pytest.param(503, {"Retry-After": "Sat, 21 Nov 2020 10:00:00 GMT"}, id="date", marks=pytest.mark.services),
    ],
)
def test_a_throttled_account_is_asked_again(site: Site, status: int, after: dict[str, str], local: Path, out: Path, hasty: None) -> None:
    """Now and then, at any request: what comes is whole, and there once."""

    def says(asked: Asked) -> Says | None:
        return (status, after, b"") if asked.number % 4 == 1 else None

    site.fill()
    with between(site.endpoint, says) as (endpoint, _):
        report = site.gather(out, source_options=site.reached(endpoint))
        assert (report.files, not_taken(report)) == (len(FILES), 0)
        gather(local, f"{site.url}/out", dest_options=site.reached(endpoint), target_size="100 B")
    assert site.gathered(out) == FILES
    assert lines(site.store("out")) == LINES


@pytest.mark.nth(2)
@pytest.mark.parametrize("after", [{}, {"Retry-After": "2"}])
@pytest.mark.parametrize(("scheme", "reached"), KINDS)
def test_an_account_that_is_throttled_for_good(
    scheme: str, reached: Reached, after: dict[str, str], local: Path, out: Path, impatient: None
) -> None:
    with scripted(lambda _: (503, after, b"")) as (endpoint, _):
        both_ways(f"{scheme}://tests/x", reached(endpoint), local, out, "(503", "tried", kind=TransientError)


@pytest.mark.nth(3)
def test_an_account_whose_reads_alone_are_throttled_for_good(site: Site, out: Path, impatient: None) -> None:
    """It can be listed: the call ends, and sets nothing aside."""
    site.fill()
    busy = threading.Event()
    busy.set()

    def says(asked: Asked) -> Says | None:
        return (503, {}, b"") if busy.is_set() and asked.method == "GET" and asked.target.partition("?")[0].endswith(".txt") else None

    with between(site.endpoint, says) as (endpoint, _):
        with line("(503", "tried", "call again to go on", kind=TransientError):
            site.gather(out, source_options=site.reached(endpoint))
        busy.clear()
        report = site.gather(out, source_options=site.reached(endpoint))
    assert (report.files, not_taken(report)) == (len(FILES), 0)
    assert site.gathered(out) == FILES
