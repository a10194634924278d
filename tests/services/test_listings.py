"""Listings of S3 and Azure on connections of their own: other regions, keys that are renewed, proxies, certificates, and odd answers."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from xml.sax.saxutils import escape

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest

from gathering import refused
from quire.errors import StorageError, TransientError
from quire.storage import ReadRequest, Store, bare, connect, retry
from quire.storage.s3 import read as s3_read
from quire.storage.s3.account import S3Account
from services import s3
from services.azurite import KEY
from services.scripted import Asked, Says, scripted
from speaking import head, serving

COUNT, PAGE = 23, 5
NAMES = [f"d/{i:03} é&<{i % 3}>" for i in range(COUNT)]


def to_s3(endpoint: str, **more: Any) -> Store:
    return connect("s3://tests/x", {**s3.options(endpoint), "secret": "hunter2", **more})


def to_azure(endpoint: str) -> Store:
    return connect("abfs://tests/x", {"account_name": "acc", "account_host": endpoint, "account_key": KEY})


KINDS = [to_s3, to_azure]


def listed(target: str) -> bytes:
    """A page of either service; the names that follow the one where it begins."""
    query = {name: found[0] for name, found in parse_qs(urlsplit(target).query).items()}
    start = int(query.get("continuation-token") or query.get("marker") or 0)
    more = str(start + PAGE) if start + PAGE < COUNT else ""
    if query.get("comp") == "list":
        blobs = "".join(
            f"<Blob><Name>x/{escape(name)}</Name><Properties><Last-Modified>Sat, 21 Nov 2026 10:00:00 GMT</Last-Modified><Etag>e</Etag>"
            "<Content-Length>5</Content-Length></Properties></Blob>"
            for name in NAMES[start : start + PAGE]
        )
        text = f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{more}</NextMarker></EnumerationResults>"
    else:
        found = "".join(
            f"<Contents><Key>x/{quote(name)}</Key><LastModified>2026-11-21T10:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag>"
            "<Size>5</Size></Contents>"
            for name in NAMES[start : start + PAGE]
        )
        goes = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult><EncodingType>url</EncodingType>{goes}{found}</ListBucketResult>"
    return f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode()


def is_listing(target: str) -> bool:
    return "list-type=2" in target or "comp=list" in target


def names(store: Store) -> list[str]:
    return [entry.name for entry in store.walk("d")]


def error(code: str, words: str = "") -> bytes:
    return f"<Error><Code>{code}</Code><Message>{words}</Message></Error>".encode()


def region(asked: Asked) -> str:
    """That a request is signed for."""
    found = re.search(r"Credential=[^/]+/\d+/([^/]+)/s3/", asked.headers["authorization"])
    assert found
    return found[1]


# ------------------------------------------------------------------------------------------------------------------- signatures
@pytest.mark.parametrize("pays", [False, True])
@pytest.mark.parametrize("endpoint", ["http://host:1", "http://host:1/prefix"])
def test_the_signature_of_a_page_is_botocores(monkeypatch: pytest.MonkeyPatch, endpoint: str, pays: bool) -> None:
    came = list[Any]()
    store = bare("s3://bucket/a b/ü", {"key": "k", "secret": "s", "endpoint_url": endpoint, "requester_pays": pays})
    monkeypatch.setattr("quire.storage.wire.Wire.send", lambda self, ask, token: (came.append(ask), self.done.append((token, OSError()))))
    with pytest.raises(TransientError):
        next(iter(store.scan("in&+=*~", after="b/c")))
    (ask,) = came
    ours = dict(line.split(": ", 1) for line in ask.headers.splitlines())
    path = "/prefix/bucket" if endpoint.endswith("prefix") else "/bucket"
    assert ask.target.startswith(
        f"{path}?delimiter=%2F&encoding-type=url&list-type=2&prefix=a%20b%2F%C3%BC%2Fin%26%2B%3D%2A~%2F&start-after="
    )
    assert ("x-amz-request-payer" in ours) == pays
    signed = {name: value for name, value in ours.items() if name in ("x-amz-content-sha256", "x-amz-request-payer")}
    request = AWSRequest("GET", f"http://host:1{ask.target}", headers=signed)
    at = dt.datetime.strptime(ours["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=dt.UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda **_: at)
    S3SigV4Auth(S3Account({"key": "k", "secret": "s", "endpoint_url": endpoint}).credentials(), "s3", "us-east-1").add_auth(request)
    theirs = request.headers["Authorization"]
    assert ours["authorization"].split("Credential=")[1].replace(" ", "") == theirs.split("Credential=")[1].replace(" ", "")


def test_a_bucket_in_another_region_is_listed_read_and_written_there() -> None:
    begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
    wanted = [ReadRequest(f"{i}", "e", len(begun), 0, len(begun)) for i in range(20)]

    def answer(asked: Asked) -> Says:
        if region(asked) != "eu-west-7":
            told = error("AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-7'")
            return 400, {}, told.replace(b"</Message>", b"</Message><Region>eu-west-7</Region>")
        if is_listing(asked.target):
            return 200, {}, listed(asked.target)
        return 200, {"ETag": '"e"'}, begun

    with scripted(answer) as (endpoint, came):
        store = to_s3(endpoint)
        assert names(store) == NAMES
        assert sorted(map(region, came)) == ["eu-west-7"] * 5 + ["us-east-1"], "it is asked elsewhere once"
        assert [content for _, content in store.read_many(wanted)] == [begun] * 20
        assert names(bare("s3://tests/x", {**s3.options(endpoint), "secret": "hunter2"})) == NAMES
        assert [region(asked) for asked in came].count("us-east-1") == 1
        del came[:]
        other = to_s3(endpoint, max_concurrency=7)
        assert [content for _, content in other.read_many(wanted)] == [begun] * 20
        assert 1 <= [region(asked) for asked in came].count("us-east-1") <= 7
        third = to_s3(endpoint, max_concurrency=8)
        sink = third.upload("out")
        sink.write(b"x")
        sink.close()
        assert sink.handle


def test_keys_are_renewed_while_pages_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that end soon are asked for anew; what is signed later is signed with them."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(s3_read, "RENEW", 0.0)
    said = {"Version": 1, "SecretAccessKey": "s", "SessionToken": "t"}
    (tmp_path / "keys.py").write_text(
        "import datetime, json, pathlib\n"
        f"at = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "n = int(at.read_text()) if at.exists() else 0\n"
        "at.write_text(str(n + 1))\n"
        "end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)\n"
        f"print(json.dumps({json.dumps(said)} | {{'AccessKeyId': f'K{{n}}', 'Expiration': end.isoformat()}}))\n"
    )
    (tmp_path / "config").write_text(f"[profile mine]\nregion = us-east-1\ncredential_process = {sys.executable} {tmp_path / 'keys.py'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with scripted(lambda asked: (200, {}, listed(asked.target))) as (endpoint, came):
        assert names(bare("s3://tests/x", {"profile": "mine", "endpoint_url": endpoint})) == NAMES
        keys = [re.search("Credential=([^/]+)/", asked.headers["authorization"]) for asked in came]
        assert all(asked.headers["x-amz-security-token"] == "t" for asked in came)
        assert len({key[1] for key in keys if key}) == len(came) == 5


# ------------------------------------------------------------------------------------------------------------- what lies between
@pytest.mark.parametrize("reached", KINDS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_a_password_is_named_at_once(reached: Any, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    def says(sock: socket.socket, _: int) -> None:
        while head(sock):
            sock.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    with serving(says) as (proxy, came):
        monkeypatch.setenv(f"{scheme}_proxy", proxy)
        store = reached(f"{scheme}://some-account.test")
        wanted = [ReadRequest("a", "e", 5, 0, 5)]
        for act in (lambda: names(store), lambda: store.get("a"), lambda: store.put("a", b""), lambda: list(store.read_many(wanted))):
            with refused(StorageError, 3, "the proxy refused or is not there", "HTTPS_PROXY"):
                act()
        assert 1 <= len(came) <= 8, "it is asked no more than once for each"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of another host, signed by itself."""
    place = tmp_path_factory.mktemp("certificate")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=elsewhere.test"]
    subprocess.run([*make, "-keyout", place / "key", "-out", place / "cert"], check=True, capture_output=True)
    return place


@pytest.mark.parametrize("reached", KINDS)
@pytest.mark.parametrize("known", [False, True])
def test_a_certificate_of_nobody_or_of_another_host(reached: Any, certificate: Path, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(certificate / "cert")) if known else monkeypatch.delenv(name, raising=False)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "cert", certificate / "key")
    with serving(lambda sock, _: None, tls) as (origin, _), refused(StorageError, 3, "certificate of 127.0.0.1:", "Look at"):
        names(reached(origin))


# ---------------------------------------------------------------------------------------------------------------- odd answers
@pytest.mark.parametrize("reached", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_a_listing_has_all_names_or_fails_whatever_is_answered(reached: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fuzzer: pages are cut off, damaged, repeated, late or something else; no name is lost by it, and none comes twice."""
    monkeypatch.setattr(retry, "pause", lambda _: None)
    chance = random.Random(seed)

    def odd(sock: socket.socket, _: int) -> None:
        while found := head(sock):
            body = listed(found.split(b" ")[1].decode())
            good = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            at = chance.randrange(1, len(body))
            chunks = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (at, body[:at], len(body) - at, body[at:])
            said, kept = chance.choice([
                (b"", False),
                (good[: chance.randrange(len(good))], False),
                (good.replace(b"Length: ", b"Length: 1"), False),
                (chance.randbytes(chance.randrange(1, 200)), False),
                (good + good, True),
                (b"HTTP/1.1 100 Continue\r\n\r\n" + good, True),
                (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, True),
                (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks[: chance.randrange(len(chunks))], False),
                (b"HTTP/1.1 200 OK\r\n\r\n" + body, False),
                (b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 4\r\n\r\nbusy", True),
                (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", True),
                *[(good, True)] * 8,
            ])  # fmt: skip
            step = 100_000 if said == good + good else chance.choice((7, 1000, 100_000))  # no client can tell a late second one
            for start in range(0, len(said), step):
                sock.sendall(said[start : start + step])
            if not kept:
                return

    whole = 0
    with serving(odd) as (origin, _):
        store = reached(origin)
        for _ in range(15):
            try:
                found = names(store)
            except StorageError:
                continue
            assert found == NAMES
            whole += 1
    assert whole >= 5


@pytest.mark.parametrize("reached", KINDS)
def test_a_page_of_something_else_is_one_line(reached: Any) -> None:
    def says(asked: Asked) -> Says:
        token = "continuation-token=5" in asked.target or "marker=5" in asked.target
        return 200, {}, b"<html>Sign in</html>" if token else listed(asked.target)

    with scripted(says) as (endpoint, _), refused(StorageError, 3, "did not answer with a listing", "the proxy between"):
        names(reached(endpoint))


@pytest.fixture(autouse=True)
def _not_told_where_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
