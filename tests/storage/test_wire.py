"""Connections of the reading of many: kept and asked again, through proxies and TLS, and each way in which the other side may fail."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from quire.errors import UsageError
from quire.storage import ReadRequest, Unreadable, Vanished, window
from quire.storage.http import trusted, unanswered
from quire.storage.message import Answer
from quire.storage.place import ProxyRefused
from quire.storage.wire import Ask, Wire, lines
from speaking import head, serving

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345"


def well(sock: socket.socket, _: int) -> None:
    while head(sock):
        sock.sendall(OK)


def asked(origin: str, most: int = 5, method: str = "GET", target: str = "/x", headers: str = "") -> Ask:
    return Ask(method, origin, target, headers, most)


def answers(wire: Wire, *asks: Ask, seconds: float = 10) -> list[Answer | Exception]:
    """Each answer or error, in the order of the requests."""
    for i, ask in enumerate(asks):
        wire.send(ask, i)
    found, until = dict[int, Answer | Exception](), time.monotonic() + seconds
    while len(found) < len(asks):
        assert time.monotonic() < until, "no answer"
        for token, answer in wire.wait(0.1):
            assert token not in found, "one answer to each request"
            found[token] = answer
    return [found[i] for i in range(len(asks))]


def bodies(found: list[Answer | Exception]) -> list[Any]:
    return [each.body if isinstance(each, Answer) else type(each) for each in found]


@contextmanager
def connections(**more: Any) -> Iterator[Wire]:
    made = Wire(trusted, **more)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1 and localhost, signed by itself, with its key."""
    place = tmp_path_factory.mktemp("certificate")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    made = ["-keyout", str(place / "key"), "-out", str(place / "cert")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", *names, *made],
        check=True, capture_output=True,
    )  # fmt: skip
    return place


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate / "cert", certificate / "key")
    return made


# --------------------------------------------------------------------------------------------------------------- connections
def test_a_connection_takes_one_request_after_the_other() -> None:
    with serving(well) as (origin, came), connections() as made:
        for _ in range(20):
            assert bodies(answers(made, asked(origin), asked(origin))) == [b"12345"] * 2
        assert len(came) == 2


def test_a_kept_connection_that_was_closed_meanwhile_is_asked_no_more() -> None:
    def once(sock: socket.socket, _: int) -> None:
        head(sock)
        sock.sendall(OK)

    with serving(once) as (origin, came), connections() as made:
        for i in range(5):
            assert bodies(answers(made, asked(origin))) == [b"12345"]
            time.sleep(0.02 * (i % 2))  # else its end has not come yet
        assert len(came) == 5


def test_a_kept_connection_that_breaks_at_the_request_is_replaced_once() -> None:
    def second_breaks(sock: socket.socket, number: int) -> None:
        head(sock)
        if number < 2:
            sock.sendall(OK)
            head(sock)

    with serving(second_breaks) as (origin, came), connections() as made:
        assert bodies(answers(made, asked(origin))) == [b"12345"]
        assert bodies(answers(made, asked(origin))) == [b"12345"], "sent again on a new one"
        assert len(came) == 2
        (lost,) = answers(made, asked(origin))
        assert isinstance(lost, ConnectionError), "a new one that breaks is a failure"
        assert len(came) == 3


def test_whatever_may_not_be_sent_twice_fails_on_a_kept_connection_that_breaks() -> None:
    heard = list[bytes]()

    def second_breaks(sock: socket.socket, _: int) -> None:
        heard.append(head(sock))
        sock.sendall(OK)
        heard.append(head(sock))

    with serving(second_breaks) as (origin, came), connections() as made:
        assert bodies(answers(made, asked(origin))) == [b"12345"]
        (lost,) = answers(made, asked(origin, method="DELETE")._replace(resend=False))
        assert isinstance(lost, ConnectionError)
        assert (len(came), len(heard)) == (1, 2)


def test_whatever_may_not_be_sent_twice_goes_by_a_connection_that_is_still_open() -> None:
    def once(sock: socket.socket, _: int) -> None:
        head(sock)
        sock.sendall(OK)

    with serving(once) as (origin, came), connections() as made:
        for _ in range(5):
            assert bodies(answers(made, asked(origin)._replace(resend=False))) == [b"12345"]
            time.sleep(0.02)  # its end has come
        assert len(came) == 5


def test_a_connection_is_not_kept_for_longer_than_said() -> None:
    with serving(well) as (origin, came), connections(keepalive=0.05) as made:
        for _ in range(3):
            assert bodies(answers(made, asked(origin))) == [b"12345"]
            made.wait(0.1)
        assert len(came) == 3


def test_what_breaks_in_the_middle_is_a_failure() -> None:
    cut = [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", OK[:-1], b"junk\r\n\r\n"]

    def breaks(sock: socket.socket, number: int) -> None:
        head(sock)
        sock.sendall(cut[number % len(cut)])
        if number >= len(cut):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # by a reset

    with serving(breaks) as (origin, _), connections() as made:
        for _ in range(2 * len(cut)):
            (found,) = answers(made, asked(origin))
            assert isinstance(found, OSError | HTTPException)
            assert unanswered(found)[0] == "lost"


def test_a_server_that_says_nothing_is_waited_for_so_long_and_no_longer() -> None:
    with serving(lambda sock, _: time.sleep(3)) as (origin, _), connections(silence=0.4) as made:
        began = time.monotonic()
        (found,) = answers(made, asked(origin))
        assert isinstance(found, TimeoutError)
        assert 0.4 <= time.monotonic() - began < 1.5


def test_a_server_that_trickles_is_left_when_the_try_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never silent, so what one try may take ends it; a new one is answered."""

    def trickles(sock: socket.socket, number: int) -> None:
        head(sock)
        if number:
            sock.sendall(OK)
            return
        for i in range(len(OK)):
            sock.sendall(OK[i : i + 1])
            time.sleep(0.2)

    monkeypatch.setattr(window, "TRY", 0.5)
    monkeypatch.setattr(window, "FIRST", 0.05)
    with serving(trickles) as (origin, came):
        began = time.monotonic()
        assert [data for _, data in reading(origin, [ReadRequest("a", "v", 5, 0, 5)])] == [b"12345"]
        assert time.monotonic() - began < 3
        assert len(came) == 2


def test_a_long_body_comes_whole() -> None:
    data = random.Random(1).randbytes(3_000_000)

    def long(sock: socket.socket, _: int) -> None:
        while head(sock):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data)

    with serving(long) as (origin, came), connections() as made:
        for _ in range(3):
            assert bodies(answers(made, *[asked(origin, len(data))] * 4)) == [data] * 4
            assert not any(each._incoming.body for each in made._open), "what waits for a request holds no body"
        assert len(came) == 4


def test_a_request_that_the_other_side_does_not_read_at_once_goes_out_in_pieces() -> None:
    got = list[int]()

    def late(sock: socket.socket, _: int) -> None:
        time.sleep(0.2)
        got.append(len(head(sock)))
        sock.sendall(OK)

    many = "".join(f"X-{i}: {'y' * 1000}\r\n" for i in range(8000))
    with serving(late) as (origin, _), connections() as made:
        assert bodies(answers(made, asked(origin, headers=many))) == [b"12345"]
        assert got[0] > len(many)


def test_nobody_listens() -> None:
    with serving(well) as (origin, _):
        pass
    with connections() as made:
        (found,) = answers(made, asked(origin))
        assert isinstance(found, ConnectionRefusedError)


def test_an_address_that_does_not_answer_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(well) as (gone, _):
        pass
    with serving(well) as (origin, _), connections() as made:
        ports, looked = [int(each.rpartition(":")[2]) for each in (gone, origin)], list[Any]()

        def lookup(*args: Any, **_: Any) -> Any:
            looked.append(args)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]

        monkeypatch.setattr(socket, "getaddrinfo", lookup)
        assert bodies(answers(made, *[asked("http://two-addresses.test:80")] * 5)) == [b"12345"] * 5
        assert looked == [("two-addresses.test", 80)], "once"


def test_a_host_without_an_address_fails_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with connections() as made:
        found = answers(made, *[asked("http://nowhere.test")] * 3)
        assert [unanswered(each)[0] for each in found if isinstance(each, Exception)] == ["no host"] * 3


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ü", "/a\0"])
def test_an_address_that_would_be_another_request_is_not_sent(target: str) -> None:
    with serving(well) as (origin, came), connections() as made:
        for ask in (asked(origin, target=target), asked(f"{origin}{target[2:] or ' '}")):
            assert bodies(answers(made, ask)) == [ValueError]
        assert not came


# --------------------------------------------------------------------------------------------------------- ends and processes
def test_the_end_comes_at_once_and_leaves_nothing_open() -> None:
    def fds() -> int:
        return len(os.listdir("/dev/fd"))

    with serving(lambda sock, _: time.sleep(5)) as (origin, came):
        before = fds()
        made = Wire(trusted)
        for i in range(64):
            made.send(asked(origin), i)
        made.wait(0.1)
        began = time.monotonic()
        made.close()
        assert time.monotonic() - began < 0.1
        while fds() > before + len(came) and time.monotonic() < began + 3:  # the server notes a connection after it has taken it
            time.sleep(0.01)
        assert fds() <= before + len(came)


def test_a_request_that_is_forgotten_gives_no_answer() -> None:
    with serving(lambda sock, _: (time.sleep(0.1), well(sock, 0))[1]) as (origin, _), connections() as made:
        made.send(asked(origin), "a")
        made.send(asked(origin), "b")
        made.wait(0.02)
        made.cancel("a")
        found = list[Any]()
        for _ in range(20):
            found += [token for token, _ in made.wait(0.05)]
        assert found == ["b"]


def reading(origin: str, requests: list[ReadRequest], trust: Any = trusted) -> Iterator[tuple[ReadRequest, Any]]:
    """As a store reads."""

    def fetch(request: ReadRequest) -> Any:
        answer = yield asked(origin, request.length, target=f"/{request.name}")
        return answer.body

    return window.read(requests, lambda: (Wire(trust), fetch), 8)


def test_a_fork_begins_with_connections_of_its_own() -> None:
    """Also where its parent is in the middle of a reading, which goes on."""
    wanted = [ReadRequest(f"f{i}", "v", 5, 0, 5) for i in range(200)]
    with serving(well) as (origin, _):
        parents = reading(origin, wanted)
        next(parents)
        if not (child := os.fork()):
            os._exit(0 if [data for _, data in reading(origin, wanted)] == [b"12345"] * 200 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [data for _, data in parents] == [b"12345"] * 199


def test_threads_read_beside_each_other() -> None:
    found = list[int]()
    with serving(well) as (origin, _):

        def one() -> None:
            requests = [ReadRequest(f"f{i}", "v", 5, 0, 5) for i in range(300)]
            found.append(sum(data == b"12345" for _, data in reading(origin, requests)))

        threads = [threading.Thread(target=one) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [300] * 6


# ------------------------------------------------------------------------------------------------------------------------ TLS
def test_tls_is_believed_by_the_environment_and_its_sessions_are_taken_up_again(
    certificate: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert"))
    resumed = list[bool | None]()

    def talk(sock: Any, number: int) -> None:
        resumed.append(sock.session_reused)
        well(sock, number)

    with serving(talk, tls) as (origin, _):
        for _ in range(2):
            with connections() as made:
                assert bodies(answers(made, *[asked(origin)] * 3)) == [b"12345"] * 3
                assert bodies(answers(made, *[asked(origin)] * 3)) == [b"12345"] * 3
        assert resumed == [False] * 3 + [True] * 3


def test_long_bodies_come_by_tls_too(certificate: Path, tls: ssl.SSLContext) -> None:
    data = random.Random(2).randbytes(1_000_000)

    def long(sock: socket.socket, _: int) -> None:
        while head(sock):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data)

    with serving(long, tls) as (origin, _):
        wanted = [ReadRequest(f"f{i}", "v", len(data), 0, len(data)) for i in range(20)]
        found = [content for _, content in reading(origin, wanted, lambda: trusted(str(certificate / "cert")))]
        assert found == [data] * 20


def test_certificates_of_nobody_and_of_another_host(certificate: Path, tls: ssl.SSLContext) -> None:
    with serving(well, tls) as (origin, _):
        with connections() as made:
            (found,) = answers(made, asked(origin))
            assert isinstance(found, ssl.SSLCertVerificationError)
            assert unanswered(found)[0] == "no trust"
        made = Wire(lambda: trusted(str(certificate / "cert")))
        (found,) = answers(made, asked(origin.replace("127.0.0.1", "127.0.0.2")))
        made.close()
        assert isinstance(found, Exception)
        made = Wire(lambda: trusted(False))
        assert bodies(answers(made, asked(origin))) == [b"12345"]
        made.close()


def test_what_speaks_no_tls_is_told_so() -> None:
    def plain(sock: socket.socket, _: int) -> None:
        sock.recv(100)
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with serving(plain) as (origin, _), connections() as made:
        (found,) = answers(made, asked(origin.replace("http:", "https:")))
        assert isinstance(found, ssl.SSLError)
        assert unanswered(found)[0] == "no tls"


def test_certificates_that_are_not_there_are_wrong_use(tmp_path: Path) -> None:
    for path in (tmp_path / "none", Path(__file__)):
        with pytest.raises(UsageError, match=r"holds no certificates that can be read"):
            trusted(str(path))


# -------------------------------------------------------------------------------------------------------------------- proxies
@contextmanager
def proxy(status: int = 200) -> Iterator[tuple[str, list[bytes]]]:
    """Its address, and the heads that came. It answers 200 itself, and tunnels anywhere."""
    heads = list[bytes]()

    def talk(sock: socket.socket, _: int) -> None:
        while found := head(sock):
            heads.append(found)
            if status != 200:
                sock.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
            elif found.startswith(b"CONNECT "):
                host, _, port = found.split(b" ")[1].decode().rpartition(":")
                with socket.create_connection((host, int(port))) as there:
                    sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    threading.Thread(target=pumped, args=(there, sock), daemon=True).start()
                    pumped(sock, there)
                return
            else:
                sock.sendall(OK)

    with serving(talk) as (origin, _):
        yield origin, heads


def pumped(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)


def test_a_proxy_is_asked_for_what_goes_by_http(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(well) as (origin, came), proxy() as (address, heads):
        monkeypatch.setenv("http_proxy", address.replace("://", "://who:p%40ss@"))
        with connections() as made:
            assert bodies(answers(made, asked(origin))) == [b"12345"]
        assert heads[0].startswith(f"GET {origin}/x HTTP/1.1\r\n".encode())
        assert b"Proxy-Authorization: Basic d2hvOnBAc3M=\r\n" in heads[0]
        for name in ("127.0.0.1", f"other, {origin.removeprefix('http://')}"):
            monkeypatch.setenv("no_proxy", name)
            with connections() as made:
                assert bodies(answers(made, asked(origin))) == [b"12345"]
        monkeypatch.delenv("no_proxy")
        with connections(proxies=False) as made:
            assert bodies(answers(made, asked(origin))) == [b"12345"]
        assert (len(heads), len(came)) == (1, 3)


def test_a_proxy_tunnels_what_goes_by_https(certificate: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    services = list[bytes]()

    def talk(sock: socket.socket, _: int) -> None:
        services.append(head(sock))
        sock.sendall(OK)

    with serving(talk, tls) as (origin, _), proxy() as (address, heads):
        monkeypatch.setenv("https_proxy", address.replace("://", "://who:pass@"))
        made = Wire(lambda: trusted(str(certificate / "cert")))
        assert bodies(answers(made, asked(origin, headers="Authorization: mine\r\n"))) == [b"12345"]
        made.close()
        assert len(heads) == 1
        assert heads[0].startswith(b"CONNECT 127.0.0.1:")
        assert b"Proxy-Authorization: Basic d2hvOnBhc3M=\r\n" in heads[0]
        assert b"mine" not in heads[0], "the proxy is not told what is for the service"
        assert services[0].startswith(b"GET /x HTTP/1.1\r\n")
        assert b"Proxy-Authorization" not in services[0], "nor the service what is for the proxy"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_a_password_or_is_away_is_named(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(407) as (address, _):
        monkeypatch.setenv(f"{scheme}_proxy", address)
        with connections() as made:
            (found,) = answers(made, asked(f"{scheme}://elsewhere.test"))
            assert isinstance(found, ProxyRefused)
            assert unanswered(found)[0] == "proxy"
    with connections() as made:
        (found,) = answers(made, asked(f"{scheme}://elsewhere.test"))
        assert isinstance(found, ProxyRefused)
    for wrong in ("socks5://127.0.0.1:1", "http://127.0.0.1:31a8", "http://who:pa/ss@127.0.0.1:3128"):
        monkeypatch.setenv(f"{scheme}_proxy", wrong)
        with connections() as made:
            (found,) = answers(made, asked(f"{scheme}://elsewhere.test"))
            assert isinstance(found, ProxyRefused), wrong


# --------------------------------------------------------------------------------------------------------------------- fuzzing
@pytest.mark.parametrize("seed", range(3))
def test_a_server_that_answers_anything_harms_no_other_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fuzzer: each name's content is its own; whatever is sent around it, no other content is ever taken for it."""
    monkeypatch.setattr(window, "FIRST", 0.001)
    monkeypatch.setattr(window, "LONGEST", 0.005)
    monkeypatch.setattr(window, "TRY", 0.5)
    chance = random.Random(seed)

    def odd(sock: socket.socket, _: int) -> None:
        while found := head(sock):
            name = found.split(b" ")[1][1:]
            good = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (3 * len(name)) + name * 3
            said, kept = chance.choice([
                (b"", False),
                (good[: chance.randrange(len(good))], False),
                (good.replace(b"Length: 2", b"Length: 3"), False),
                (chance.randbytes(chance.randrange(1, 200)), False),
                (good + good, True),
                (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (3 * len(name), name * 3), True),
                (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", True),
                *[(good, True)] * 7,
            ])  # fmt: skip
            step = 1000 if said == good + good else chance.choice((1, 7, 1000, 1000))  # no client can tell a late second one
            for at in range(0, len(said), step):
                sock.sendall(said[at : at + step])
            if not kept:
                return

    def fetch(request: ReadRequest) -> Any:
        try:
            answer = yield asked(origin, request.length, target=f"/{request.name}")
        except window.UNANSWERED as e:
            raise window.TransientError(type(e).__name__) from None
        if answer.status != 200:
            raise window.Throttled("busy")
        return answer.body

    with serving(odd) as (origin, _):
        requests = [ReadRequest(f"name-{i:03}", "v", 24, 0, 24) for i in range(250)]
        found = dict(window.read(requests, lambda: (Wire(trusted, silence=0.5), fetch), 16))
        assert len(found) == 250
        for request, content in found.items():
            assert content == request.name.encode() * 3 or isinstance(content, Vanished | Unreadable)
        assert sum(isinstance(content, bytes) for content in found.values()) > 200


# ------------------------------------------------------------------------------------------------------------------- bodies
def body_of(sock: socket.socket, at_once: int = 1 << 20, pause: float = 0) -> bytes | None:
    """The body of a request; None at the connection's end."""
    found = b""
    while b"\r\n\r\n" not in found:
        if not (data := sock.recv(4096)):
            return None
        found += data
    start, _, body = found.partition(b"\r\n\r\n")
    length, pieces = int(start.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]), [body]
    while length > sum(map(len, pieces)):
        pieces.append(sock.recv(min(at_once, length - sum(map(len, pieces)))))
        assert pieces[-1]
        time.sleep(pause)
    return b"".join(pieces)


def put(origin: str, body: bytes | memoryview) -> Ask:
    return Ask("PUT", origin, "/x", "", 5, body)


def test_bodies_go_out_whole_one_after_the_other(certificate: Path, tls: ssl.SSLContext) -> None:
    data = random.Random(3).randbytes(9_000_001)
    wanted = [data, memoryview(data)[7:], b"", b"x", data[:70_000]]

    def echo(sock: socket.socket, _: int) -> None:
        while (body := body_of(sock)) is not None:
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n" + hashlib.md5(body).digest())

    for how in (None, tls):
        with serving(echo, how) as (origin, came):
            made = Wire(lambda: trusted(str(certificate / "cert")))
            found = [bodies(answers(made, put(origin, body)._replace(most=16)))[0] for body in wanted]
            assert found == [hashlib.md5(body).digest() for body in wanted]
            assert len(came) == 1
            many = answers(made, *(put(origin, data)._replace(most=16) for _ in range(6)))
            assert bodies(many) == [hashlib.md5(data).digest()] * 6
            made.close()


def test_who_takes_a_body_slowly_is_waited_for_as_long_as_any_of_it_goes_out() -> None:
    def slow(sock: socket.socket, _: int) -> None:
        body_of(sock, 600_000, 0.1)  # a system tells of a third of its buffer at once, of some MB
        sock.sendall(OK)

    with serving(slow) as (origin, _), connections(silence=1.0) as made:
        began = time.monotonic()
        assert bodies(answers(made, put(origin, bytes(24_000_000)), seconds=60)) == [b"12345"]
        assert time.monotonic() - began > 3


def test_an_answer_before_the_end_of_a_body_is_the_answer_if_it_is_a_refusal() -> None:
    """Whatever says that all is well has not seen all."""
    seen = threading.Event()

    def early(sock: socket.socket, number: int) -> None:
        sock.recv(4096)
        sock.sendall(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nno" % (503, 200)[number])
        seen.wait(20)  # the rest of the body stays on its way: nobody reads it

    with serving(early) as (origin, came), connections() as made:
        (refused,) = answers(made, put(origin, bytes(20_000_000)))
        assert isinstance(refused, Answer)
        assert (refused.status, refused.body) == (503, b"no")
        (claimed,) = answers(made, put(origin, bytes(20_000_000)))
        assert isinstance(claimed, HTTPException | OSError)
        assert len(came) == 2
        seen.set()


def test_a_connection_that_breaks_in_the_middle_of_a_body_is_replaced_once_if_it_was_kept() -> None:
    def breaking(sock: socket.socket, number: int) -> None:
        if number == 0:
            body_of(sock)
            sock.sendall(OK)
        if number < 3:
            sock.recv(100_000)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ends by a reset
            return
        assert body_of(sock) == bytes(range(256)) * 40_000
        sock.sendall(OK)

    data = bytes(range(256)) * 40_000
    with serving(breaking) as (origin, came), connections() as made:
        assert bodies(answers(made, put(origin, data))) == [b"12345"]
        (lost,) = answers(made, put(origin, data))  # on the kept one, then on a new one
        assert isinstance(lost, OSError | HTTPException)
        assert len(came) == 2
        (lost,) = answers(made, put(origin, data))
        assert isinstance(lost, OSError | HTTPException)
        assert bodies(answers(made, put(origin, data))) == [b"12345"]


def test_whoever_audits_is_told_of_each_request_and_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[bytes]()
    monkeypatch.setattr(sys, "audit", lambda event, *args: told.append(args[1]) if event == "http.client.send" else None)
    with serving(well) as (origin, _), connections() as made:
        for i, ask in enumerate((asked(origin), put(origin, b"bytes"), asked(origin, method="DELETE"))):
            made.send(ask, i)
    assert [each.partition(b" HTTP")[0] for each in told] == [b"GET /x", b"PUT /x", b"bytes", b"DELETE /x"]


def test_no_value_of_a_header_begins_another_one() -> None:
    assert lines({"If-Match": '"1"', "Range": "bytes=0-1"}) == 'If-Match: "1"\r\nRange: bytes=0-1\r\n'
    for value in ("1\r\nX-Other: 2", "1\n", "\r1"):
        with pytest.raises(ValueError, match="not a header"):
            lines({"If-Match": value})
