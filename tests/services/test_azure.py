"""Azure Blob: its URLs and options, what it refuses, odd blobs, throttling; against Azurite, and a scripted server for the rest."""

from __future__ import annotations

import base64
import datetime as dt
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient, StandardBlobTier, generate_container_sas

from gathering import refused
from quire.errors import NotFoundError, QuireError, StorageError, TransientError, UsageError
from quire.storage import Entry, Folder, ReadRequest, Store, Trouble, Unreadable, Vanished, bare, connect, normalise, retry, window
from quire.storage.azure import rest as azure_rest
from quire.storage.azure.account import AzureAccount, account
from quire.storage.azure.store import moment
from services.azurite import ACCOUNT, KEY, connection_string
from services.scripted import Asked, Says, refusal, scripted

WRONG = base64.b64encode(b"hunter2-hunter2-hunter2").decode()


@pytest.fixture
def options(azurite_endpoint: str) -> dict[str, str]:
    return {"connection_string": connection_string(azurite_endpoint)}


@pytest.fixture
def root() -> str:
    return f"abfs://tests/{uuid.uuid4().hex}"


@pytest.fixture
def sdk(options: dict[str, str]) -> Iterator[Any]:
    """The service's own client, for what quire never does."""
    with BlobServiceClient.from_connection_string(options["connection_string"]) as client:
        yield client.get_container_client("tests")


def asked(store: Store, *names: str) -> list[ReadRequest]:
    return [ReadRequest(e.name, e.version, e.size, 0, e.size) for e in (store.stat(name) for name in names) if e]


def sas(permission: str = "rl", hours: float = 1) -> str:
    """A signature for the container, for some hours from now on."""
    return str(
        generate_container_sas(
            ACCOUNT,
            "tests",
            account_key=KEY,
            permission=permission,
            expiry=dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours),
        )
    )


# ------------------------------------------------------------------------------------------------------------------------- URLs
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("abfs://c0nt@Acc.dfs.core.windows.net/a/b/", "abfs://c0nt@acc.dfs.core.windows.net/a/b"),
        ("abfss://cont@acc.dfs.core.windows.net", "abfs://cont@acc.dfs.core.windows.net"),
        ("wasb://cont@acc.blob.core.windows.net/a", "abfs://cont@acc.dfs.core.windows.net/a"),
        ("wasbs://cont@acc.blob.core.chinacloudapi.cn/a", "abfs://cont@acc.dfs.core.chinacloudapi.cn/a"),
        ("AZ://cont/a b/%2F#?", "abfs://cont/a b/%2F#?"),
        ("az://$web/x", "abfs://$web/x"),
    ],
)
def test_one_place_has_one_url(given: str, meant: str) -> None:
    assert normalise(given) == meant
    assert normalise(meant) == meant


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("abfs:///a", "names no container"),
        ("abfs:/cont/a", "names no container"),
        ("abfs://Cont/a", "names no container"),
        ("abfs://a/b", "3 to 63"),
        ("az://cont/a/../b", "'..'"),
        ("az://cont/a//b", "empty part"),
        ("az://cont/a?sv=2021&sig=hunter2", "sas_token"),
        ("abfs://user:hunter2@acc.dfs.core.windows.net/a", "names no container"),
        ("abfs://cont@ac c/a", "names no container"),
    ],
)
def test_a_url_that_is_none_is_refused_without_its_secrets(given: str, words: str) -> None:
    with refused(UsageError, 2, words):
        normalise(given)
    with pytest.raises(UsageError) as caught:
        normalise(given)
    assert "hunter2" not in str(caught.value)


# ---------------------------------------------------------------------------------------------------------------------- options
def test_an_account_is_told_by_url_by_name_or_by_string(monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"account_key": KEY}
    assert account("acc.dfs.core.windows.net", key).endpoint == "https://acc.blob.core.windows.net"
    assert account("acc.dfs.core.usgovcloudapi.net", key).endpoint == "https://acc.blob.core.usgovcloudapi.net"
    assert account("", {"account_name": "acc", **key}).endpoint == "https://acc.blob.core.windows.net"
    assert account("", {"account_name": "acc", "account_host": "acc.z1.example.org", **key}).endpoint == "https://acc.z1.example.org"
    string = f"DefaultEndpointsProtocol=https;AccountName=acc;AccountKey={KEY};EndpointSuffix=core.windows.net"
    assert account("", {"connection_string": string}).endpoint == "https://acc.blob.core.windows.net"
    assert account("acc.dfs.core.windows.net", {"connection_string": string}).name == "acc"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", string)
    assert account("", None).name == "acc"
    with pytest.raises(UsageError):
        account("other.dfs.core.windows.net", {"account_name": "acc"})
    assert "Authorization" not in account("other", {"anon": True}).signed("GET", "/c", {}, {})[1]
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "other")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    assert account("", {}).name == "other"
    assert "SharedKey" in account("", {}).signed("GET", "/c", {}, {})[1]["Authorization"]
    anonymous = account("acc.dfs.core.windows.net", {"anon": True})
    assert "Authorization" not in anonymous.signed("GET", "/c", {}, {})[1]


@pytest.mark.parametrize(
    ("host", "given", "words"),
    [
        ("", {}, "which account"),
        ("acc", {"account_name": "other", "account_key": KEY}, "acc and other"),
        ("acc", {"acount_key": WRONG}, "account_key"),
        ("acc", {"account_key": "hunter2"}, "not base64"),
        ("acc", {"account_key": 7}, "is a text"),
        ("acc", {"sas_token": "sv=2021&sig=hunter2 %3D"}, "SAS holds characters"),
        ("acc", {"connection_string": "SharedAccessSignature=sv=2021&sig=hunter2…"}, "SAS holds characters"),
        ("acc", {"account_host": "https://acc.blob.core.windows.net:99999", "account_key": KEY}, "endpoint"),
        ("", {"connection_string": "hunter2"}, "without '='"),
        ("", {"connection_string": "UseDevelopmentStorage=true"}, "BlobEndpoint"),
        ("acc", {"account_host": "https://u:hunter2@x", "account_key": KEY}, "endpoint"),
        ("acc", {"client_id": "a", "client_secret": "hunter2"}, "all three"),
        ("acc", {"credential": object(), "account_host": "http://x"}, "plain http"),
    ],
)
def test_options_that_do_not_fit_are_refused_without_their_secrets(host: str, given: dict[str, Any], words: str) -> None:
    with refused(UsageError, 2, words):
        account(host, given)
    try:
        account(host, given)
    except UsageError:
        text = traceback.format_exc()
    assert "hunter2" not in text.replace('"hunter2"', "")
    assert WRONG not in text


class Token:
    def __init__(self, token: str, lasts: float) -> None:
        self.token, self.expires_on = token, time.time() + lasts


class Signs:
    """A credential: each question gives another token."""

    def __init__(self, lasts: float = 3600) -> None:
        self.asked, self.lasts = 0, lasts

    def get_token(self, *scopes: str) -> Token:
        assert scopes == ("https://storage.azure.com/.default",)
        self.asked += 1
        return Token(f"token{self.asked}", self.lasts)


class SignsLater(Signs):
    async def get_token(self, *scopes: str) -> Token:  # type: ignore[override]
        return super().get_token(*scopes)


@pytest.mark.parametrize("kind", [Signs, SignsLater])
def test_a_credential_is_asked_once_until_its_token_ends(kind: type[Signs]) -> None:
    def sent(who: AzureAccount) -> str:
        return who.signed("GET", "/c/x", {}, {})[1]["Authorization"]

    lasting, ending = kind(), kind(200)
    who = account("acc", {"credential": lasting})
    assert {sent(who) for _ in range(3)} == {"Bearer token1"}
    assert not who.stale()
    who = account("acc", {"credential": ending})
    assert [sent(who) for _ in range(2)] == ["Bearer token1", "Bearer token2"]
    assert who.stale()
    assert "token" not in repr(who)


def test_a_token_is_used_to_its_end_where_no_other_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    who = Signs(200)
    at, asked = account("acc", {"credential": who}), who.get_token
    assert at.token() == "token1"

    def away(*scopes: str) -> Token:
        raise ConnectionError("the service that signs in is away")

    monkeypatch.setattr(who, "get_token", away)
    assert at.token() == "token1"
    now = time.time()
    monkeypatch.setattr("quire.storage.azure.account.time.time", lambda: now + 180)
    with refused(StorageError, 3, "is away"):
        at.token()
    monkeypatch.setattr(who, "get_token", asked)
    assert at.token() == "token2"


def test_what_signs_in_says_nothing_past_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its warnings are for whoever listens to logs: where nobody does, Python would print them."""
    for name in list(os.environ):
        if name.startswith("AZURE_"):
            monkeypatch.delenv(name)
    account("acc", {})
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("azure").handlers)


def test_who_is_not_signed_in_is_told_so() -> None:
    class Nobody:
        def get_token(self, *scopes: str) -> None:
            raise RuntimeError("no account found: client_secret=hunter2\nTraceback")

    with refused(StorageError, 3, "cannot sign in to the account 'acc'", "az login"):
        account("acc", {"credential": Nobody()}).token()
    with refused(StorageError, 3, "of type object gives no token"):
        account("acc", {"credential": object()}).token()


# --------------------------------------------------------------------------------------------------------------------- refusals
def acts(store: Store) -> dict[str, Callable[[], object]]:
    wanted = [ReadRequest("a", "0x1", 1, 0, 1)]
    return {
        "look up": lambda: store.stat("a"),
        "read": lambda: store.get("a"),
        "write": lambda: store.put("a", b"1"),
        "write ": lambda: store.put_if_absent("a", b"1"),
        "list": lambda: list(store.scan()),
        "remove": lambda: store.remove("a"),
        "read ": lambda: list(store.read_many(wanted)),
    }


def all_refused(store: Store, *words: str) -> None:
    """Every operation says the same thing in one line, and no secret."""
    for doing, act in acts(store).items():
        with refused(StorageError, 3, f"cannot {doing.strip()} ", *words):
            act()
        with pytest.raises(StorageError) as caught:
            act()
        assert not isinstance(caught.value, NotFoundError | TransientError)
        text = "".join(traceback.format_exception(caught.value))
        assert not any(secret in text for secret in (KEY, WRONG, "sig="))


def test_a_wrong_key(azurite_endpoint: str) -> None:
    all_refused(bare("abfs://tests/x", {"connection_string": connection_string(azurite_endpoint, WRONG)}), "this key")


def test_a_missing_container(options: dict[str, str]) -> None:
    all_refused(bare("abfs://no-such-container/x", options), "the container 'no-such-container' is not there. Create it")


def test_no_such_host() -> None:
    store = bare("abfs://tests", {"account_name": "acc", "account_host": "no-such-account.invalid", "account_key": KEY})
    all_refused(store, "unknown host 'no-such-account.invalid'", "account's name")


def test_a_signature_that_has_expired(azurite_endpoint: str) -> None:
    string = f"BlobEndpoint={azurite_endpoint};AccountName={ACCOUNT};SharedAccessSignature={sas(hours=-1)}"
    all_refused(bare("abfs://tests/x", {"connection_string": string}), "the SAS", "expired", "Ask for a new one")


def test_a_signature_reads_what_it_permits(azurite_endpoint: str, options: dict[str, str], root: str) -> None:
    bare(root, options).put("a ?", b"1")
    for token in (sas(), "?" + sas()):
        given = {"account_name": ACCOUNT, "account_host": azurite_endpoint, "sas_token": token}
        store = bare(root, given)
        assert store.get("a ?") == b"1"
        assert [e.name for e in store.walk()] == ["a ?"]
        assert [data for _, data in store.read_many(asked(store, "a ?"))] == [b"1"]
        with refused(StorageError, 3, "cannot write below", "permits 'rl' alone"):
            store.check_writable()
        with refused(StorageError, 3, "cannot write abfs://tests/", "the right is missing"):
            store.put("b", b"")


def test_no_log_holds_a_signature(azurite_endpoint: str, root: str, caplog: pytest.LogCaptureFixture) -> None:
    token = sas("rwlcd")
    store = bare(root, {"account_name": ACCOUNT, "account_host": azurite_endpoint, "sas_token": token})
    with caplog.at_level(logging.DEBUG):
        store.put("a", b"1")
        assert [data for _, data in store.read_many(asked(store, "a"))] == [b"1"]
    assert f"{root.removeprefix('abfs:/')}/a" in caplog.text, "it is told what was asked for"
    assert token.partition("sig=")[2][:20] not in caplog.text


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "PATIENCE", 0.3)
    monkeypatch.setattr(retry, "PATIENCE", 0.3)
    with scripted(lambda _: (200, {}, b"")) as (endpoint, _):
        pass
    store = bare("abfs://tests", {"account_name": "acc", "account_host": endpoint, "account_key": KEY})
    for act in acts(store).values():
        with refused(TransientError, 3, "nobody listens there (127.0.0.1:"):
            act()


def test_a_lease_and_another_type_of_blob(options: dict[str, str], root: str, sdk: Any) -> None:
    store, path = bare(root, options), root.removeprefix("abfs://tests/")
    store.put("leased", b"1")
    lease = sdk.get_blob_client(f"{path}/leased").acquire_lease()
    for act in (lambda: store.put("leased", b"2"), lambda: store.remove("leased")):
        with refused(StorageError, 3, "holds a lease on it"):
            act()
    assert [data for _, data in store.read_many(asked(store, "leased"))] == [b"1"], "a lease forbids to write"
    lease.release()
    appended, paged = sdk.get_blob_client(f"{path}/appended"), sdk.get_blob_client(f"{path}/paged")
    appended.create_append_blob()
    appended.append_block(b"12345")
    paged.create_page_blob(512)
    assert {e.name: e.size for e in store.walk()} == {"leased": 1, "appended": 5, "paged": 512}
    assert [data for _, data in store.read_many(asked(store, "appended", "paged"))] == [b"12345", bytes(512)]


def test_what_lies_in_the_archive_is_set_aside_alone(options: dict[str, str], root: str, sdk: Any) -> None:
    store, path = bare(root, options), root.removeprefix("abfs://tests/")
    for name in "abc":
        store.put(name, b"1")
    sdk.get_blob_client(f"{path}/b").set_standard_blob_tier(StandardBlobTier.ARCHIVE)
    wanted = [ReadRequest(e.name, e.version, e.size, 0, e.size) for e in store.walk()]
    found = {request.name: data for request, data in store.read_many(wanted)}
    assert (found["a"], found["c"]) == (b"1", b"1")
    assert isinstance(found["b"], Unreadable)
    assert "archive tier. Set it to the tier hot or cool" in str(found["b"])
    with refused(StorageError, 3, f"cannot read {root}/b: it lies in the archive tier"):
        store.get("b")


def test_a_foreign_object_under_an_uploads_name_is_left_alone(options: dict[str, str], root: str) -> None:
    store = bare(root, options)
    upload = store.upload("a")
    upload.write(b"mine")
    upload.close()
    store.put("a", b"foreign")
    with refused(StorageError, 3, "cannot publish", "another object has taken its name"):
        store.complete("a", upload.handle)
    assert store.get("a") == b"foreign"


def test_blocks_that_are_gone_are_told(options: dict[str, str], root: str) -> None:
    store = bare(root, options)
    upload = store.upload("a")
    upload.write(b"mine")
    upload.close()
    other = store.create("a")  # a list of blocks drops all others of that name, as the service does by itself after a week
    other.write(b"foreign")
    other.close()
    store.remove("a")
    assert store.complete("a", upload.handle) is False
    assert store.stat("a") is None


# -------------------------------------------------------------------------------------------------------------------- odd blobs
@pytest.mark.parametrize("marked", [None, 0, 5, 9])
def test_metadata_are_asked_for_from_the_first_page_on_that_has_an_empty_blob(
    options: dict[str, str], root: str, sdk: Any, monkeypatch: pytest.MonkeyPatch, marked: int | None
) -> None:
    """Names alone cost a third of it; only of an empty blob they do not tell whether it stands for a directory."""
    store, path = bare(root, options), root.removeprefix("abfs://tests/")
    for number in range(10):
        more = {"metadata": {"hdi_isfolder": "true"}} if number == marked else {}
        sdk.get_blob_client(f"{path}/d/{number}").upload_blob(b"" if number == marked else b"1", overwrite=True, **more)
    files = [f"d/{number}" for number in range(10) if number != marked]
    monkeypatch.setattr("quire.storage.azure.rest.PAGE", 2)
    asked, page = list[dict[str, str]](), store.rest._page  # type: ignore[attr-defined]

    def noted(what: str, query: Any, *args: Any, **more: Any) -> Any:
        asked.append(dict(query))
        return page(what, query, *args, **more)

    monkeypatch.setattr(store.rest, "_page", noted)  # type: ignore[attr-defined]
    assert [entry.name for entry in store.walk()] == files
    with_metadata = ["include" in query for query in asked if query.get("comp") == "list"]
    if marked is None:
        assert with_metadata == [False] * 5
    else:
        first = marked // 2
        assert with_metadata[: first + 1] == [False] * (first + 1)
        assert sum(with_metadata) == 5 - first
        assert sorted(with_metadata[first + 1 :], reverse=True)[: 5 - first] == [True] * (5 - first)
    assert sorted(item.name for item in store.scan("d")) == files


def test_what_is_no_file_is_no_file_and_what_no_path_can_say_is_told(options: dict[str, str], root: str, sdk: Any) -> None:
    store, path = bare(root, options), root.removeprefix("abfs://tests/")

    def put(name: str, data: bytes = b"", **more: Any) -> None:
        sdk.get_blob_client(f"{path}/{name}").upload_blob(data, overwrite=True, **more)

    put("file", b"1")
    put("empty")
    put("empty with metadata", metadata={"owner": "me"})
    put("marked", metadata={"hdi_isfolder": "true"})
    put("marked/a", b"1")
    put("slash/")
    put("slash/a", b"1")
    put("full/", b"content")
    put("d//a", b"1")
    put("//b", b"1")
    sdk.get_blob_client(f"{path}/file").create_snapshot()
    found = list(store.scan())
    assert sorted(i.name for i in found if isinstance(i, Entry)) == ["empty", "empty with metadata", "file"]
    assert sorted(i.name for i in found if isinstance(i, Folder)) == ["d", "full", "marked", "slash"]
    assert [(i.name, i.kind) for i in found if isinstance(i, Trouble)] == [("/", "unreadable")]
    assert [(i.name, i.kind) for i in store.scan("d")] == [("d//", "unreadable")]  # type: ignore[union-attr]
    assert [(i.name, i.kind) for i in store.scan("full")] == [("full/", "unreadable")]  # type: ignore[union-attr]
    assert [i.name for i in store.scan("slash")] == ["slash/a"]
    assert [i.name for i in store.scan("marked")] == ["marked/a"]
    assert store.stat("marked") is None
    assert store.is_folder("marked")
    store.remove("marked/a")
    assert store.is_folder("marked")
    store.remove("file")
    assert store.stat("file") is None, "its snapshots go with it"


def test_what_is_stored_packed_is_read_as_it_lies_there(options: dict[str, str], root: str, sdk: Any) -> None:
    import gzip

    from azure.storage.blob import ContentSettings

    store, packed = bare(root, options), gzip.compress(b"content" * 100)
    path = root.removeprefix("abfs://tests/")
    sdk.get_blob_client(f"{path}/a.gz").upload_blob(packed, content_settings=ContentSettings(content_encoding="gzip"))
    assert store.get("a.gz") == packed
    assert store.get_range("a.gz", 2, 5) == packed[2:7]
    (request,) = asked(store, "a.gz")
    part = request._replace(start=1, length=10)
    assert [data for _, data in store.read_many([request, part])] == [packed, packed[1:11]]


@pytest.mark.nth(2)
@pytest.mark.parametrize("page", [1, 2, 7, 12])
def test_a_listing_is_the_same_in_pages_of_any_size(options: dict[str, str], root: str, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(azure_rest, "PAGE", page)
    store = bare(root, options)
    names = ["a&b", "d/1", "d/2", "d/e/1", "e/1", "é", *(f"f{i}" for i in range(10)), "g/1"]
    for name in names:
        store.put(name, b"1")
    assert sorted(e.name for e in store.walk()) == sorted(names)
    assert sorted(store.peek()) == sorted([(n, False) for n in names if "/" not in n] + [("d", True), ("e", True), ("g", True)])
    store.remove_tree("d")
    assert sorted(e.name for e in store.walk()) == sorted(n for n in names if not n.startswith("d/"))


def test_two_accounts_are_two_places(options: dict[str, str], root: str) -> None:
    a, b = bare(f"{root}/a", options), bare(f"{root}/b", options)
    a.put("x", b"a")
    b.put("x", b"b")
    pairs = zip(a.read_many(asked(a, "x") * 50), b.read_many(asked(b, "x") * 50), strict=True)
    assert {(left[1], right[1]) for left, right in pairs} == {(b"a", b"b")}


def test_reading_works_before_and_after_a_fork(options: dict[str, str], root: str) -> None:
    bare(root, options).put("a", b"1")
    script = """
        import os, sys, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        from quire.storage import ReadRequest, bare
        store = bare(sys.argv[1], {"connection_string": os.environ["HOW"]})
        def read():
            e = store.stat("a")
            found = [data for _, data in store.read_many([ReadRequest("a", e.version, 1, 0, 1)] * 200)]
            assert found == [b"1"] * 200
        read()
        child = os.fork()
        read()
        if not child:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        read()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), root],
        env={**os.environ, "HOW": options["connection_string"]},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


# ----------------------------------------------------------------------------------------------------- a service that is not well
def told(status: int, code: str, message: str = "", detail: str = "", **headers: str) -> Says:
    return status, {"x-ms-error-code": code, **headers}, refusal(code, message, detail)


def at(endpoint: str) -> dict[str, str]:
    return {"account_name": "acc", "account_host": endpoint, "account_key": KEY}


@pytest.mark.nth(3)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (told(403, "AuthenticationFailed", "Server failed to authenticate the request."), ("does not take this key", "Copy it again")),
        (told(403, "AuthenticationFailed", Date="Sat, 21 Nov 2020 10:00:00 GMT"), ("clock is wrong", "Set the clock")),
        (told(403, "AuthorizationFailure", "This request is not authorized."), ("firewall", "Ask who administers it")),
        (told(403, "KeyBasedAuthenticationNotPermitted", "x"), ("takes no keys", "Sign in")),
        (told(409, "PublicAccessNotPermitted", "x"), ("lets nobody in without a name",)),
        (told(400, "AccountRequiresHttps", "x"), ("https",)),
        (told(401, "InvalidAuthenticationInfo", "x"), ("does not take this sign-in",)),
        (told(403, "AccountIsDisabled", "x"), ("is disabled",)),
        ((302, {"Location": "https://login.example.org/"}, b""), ("sends us elsewhere",)),
    ],
)
def test_what_is_wrong_with_the_account_ends_the_reading(answer: Says, words: tuple[str, ...]) -> None:
    with scripted(lambda _: answer) as (endpoint, came):
        all_refused(bare("abfs://tests", at(endpoint)), *words)
        assert len(came) == 2 * len(acts(bare("abfs://tests", at(endpoint)))), "nothing is asked twice"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (told(403, "AuthorizationPermissionMismatch", "x"), "the right is missing"),
        (told(409, "BlobUsesCustomerSpecifiedEncryption", "x"), "key of the customer's own"),
        (
            told(409, "SomethingNew", "It went wrong, because sig=abc of it."),
            "refused it (409 SomethingNew: It went wrong, because sig=*** of it)",
        ),
        ((418, {}, b"<html>"), "refused it (418 without a reason)"),
    ],
)
def test_what_is_wrong_with_one_blob_sets_it_aside(answer: Says, words: str) -> None:
    def says(request: Asked) -> Says:
        return answer if request.target.endswith("/b") else (200, {}, b"1")

    with scripted(says) as (endpoint, _):
        store = bare("abfs://tests", at(endpoint))
        found = [data for _, data in store.read_many([ReadRequest(name, "0x1", 1, 0, 1) for name in "abc"])]
    assert (found[0], found[2]) == (b"1", b"1")
    assert isinstance(found[1], Unreadable)
    assert words in str(found[1])


def test_a_throttled_account_is_asked_again_when_it_says() -> None:
    def says(request: Asked) -> Says:
        if request.number in (0, 5, 6, 7):
            return told(503, "ServerBusy", "Ingress is over the account limit.", **{"Retry-After": "1"})
        return (429, {"Retry-After": "Sat, 21 Nov 2020 10:00:00 GMT"}, b"") if request.number == 9 else (200, {}, b"12345")

    with scripted(says) as (endpoint, came):
        store = bare("abfs://tests", at(endpoint))
        with pytest.raises(TransientError, match=r"cannot read abfs://tests/a: the service is busy \(503 ServerBusy\)") as caught:
            store.get("a")
        assert caught.value.wait == 1
        wanted = [ReadRequest(f"{i:03}", "0x1", 5, 0, 5) for i in range(300)]
        assert list(store.read_many(wanted)) == [(request, b"12345") for request in wanted]
        assert len(came) == 1 + 300 + 4


def test_single_operations_are_tried_again_by_connect_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = list[float]()
    monkeypatch.setattr(retry, "pause", waits.append)

    def says(request: Asked) -> Says:
        if request.number == 0:
            return told(503, "ServerBusy", **{"Retry-After": "7"})
        if request.number in (1, 2):  # the first one of them on a connection that was kept: it is sent once more before it is told
            return 0, {}, b""
        return (500, {}, b"") if request.number == 3 else (200, {}, b"1")

    heard = list[str]()
    with scripted(says) as (endpoint, came):
        assert connect("abfs://tests", at(endpoint), heard.append).get("a") == b"1"
        assert len(came) == 5
    assert waits[0] == 7
    assert [words.partition(": ")[2].partition(" (")[0] for words in heard] == [
        "the service is busy",
        "the connection was lost",
        "the service did not manage it",
    ]


def page(names: list[str], marker: str) -> bytes:
    blobs = "".join(
        f"<Blob><Name>{name}</Name><Properties><Last-Modified>Sat, 21 Nov 2026 10:00:00 GMT</Last-Modified><Etag>0x1</Etag>"
        "<Content-Length>5</Content-Length></Properties></Blob>"
        for name in names
    )
    return (
        f'\ufeff<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{marker}</NextMarker>'
        "</EnumerationResults>"
    ).encode()


def test_a_listing_goes_on_where_a_page_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "pause", lambda _: None)
    failed = set[str]()

    def says(request: Asked) -> Says:
        number = int(request.target.partition("marker=m")[2].partition("&")[0] or 0)
        if number % 3 == 1 and request.target not in failed:
            failed.add(request.target)
            return told(500, "InternalError") if number % 2 else (0, {}, b"")
        return 200, {}, page([f"{number}-{i}" for i in range(10)], f"m{number + 1}" if number < 20 else "")

    with scripted(says) as (endpoint, came):
        store = bare("abfs://tests", at(endpoint))
        found = [e.name for e in store.walk()]
        assert found == [f"{n}-{i}" for n in range(21) for i in range(10)]
        assert len(came) == 21 + 7
        first = next(iter(store.walk()))
        assert (first.size, first.version, first.modified) == (5, "0x1", moment("Sat, 21 Nov 2026 10:00:00 GMT"))
        assert len(came) == 21 + 7 + 1, "pages come when they are wanted"


def test_an_account_with_directories_lists_files_alone_and_removes_directories_last() -> None:
    folder = b"<Properties><ResourceType>directory</ResourceType>"
    body = page(["d/t", "d/t/a", "d/t/sub", "d/t/sub/b"], "")
    for name in (b"d/t", b"d/t/sub"):
        body = body.replace(b"<Name>%b</Name><Properties>" % name, b"<Name>%b</Name>%b" % (name, folder))

    with scripted(lambda request: (200, {}, body) if request.method == "GET" else (202, {}, b"")) as (endpoint, came):
        store = bare("abfs://tests/d", at(endpoint))
        assert [e.name for e in store.walk("t")] == ["t/a", "t/sub/b"]
        store.remove_tree("t")
        deleted = [request.target for request in came if request.method == "DELETE"]
    assert sorted(deleted[:2]) == ["/tests/d/t/a", "/tests/d/t/sub/b"]
    assert deleted[2:] == ["/tests/d/t/sub", "/tests/d/t"]


def test_a_directory_over_the_end_of_a_page_is_one() -> None:
    prefix = b"<Blobs><BlobPrefix><Name>d/</Name></BlobPrefix>"

    def says(request: Asked) -> Says:
        last = "marker" in request.target
        return 200, {}, page(["e" if last else "c"], "" if last else "m").replace(b"<Blobs>", prefix)

    with scripted(says) as (endpoint, _):
        assert list(bare("abfs://tests", at(endpoint)).peek()) == [("d", True), ("c", False), ("e", False)]


@pytest.mark.parametrize(
    "body", [b"", b"<html>Please sign in</html>", b'<?xml version="1.0"?><EnumerationResults/>', page(["a"], "")[:-30]]
)
def test_an_answer_that_is_no_listing_is_an_error(body: bytes) -> None:
    with scripted(lambda _: (200, {}, body)) as (endpoint, _), refused(StorageError, 3, "cannot list abfs://tests", "proxy"):
        list(bare("abfs://tests", at(endpoint)).walk())


def test_a_listing_fetches_and_expands_nothing() -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]><EnumerationResults><Blobs><Blob><Name>&a;</Name></Blob></Blobs></EnumerationResults>'
    with scripted(lambda _: (200, {}, bomb)) as (endpoint, _), refused(StorageError, 3, "did not answer with a listing"):
        list(bare("abfs://tests", at(endpoint)).walk())


def test_names_that_xml_cannot_hold_are_listed() -> None:
    body = page(["x"], "").replace(b"<Name>x", b'<Name Encoded="true">a%01%EF%BF%BE%25')
    with scripted(lambda _: (200, {}, body)) as (endpoint, _):
        assert [e.name for e in bare("abfs://tests", at(endpoint)).walk()] == ["a\x01\ufffe%"]


def test_a_blob_that_shrank_or_is_cut_off_is_not_given() -> None:
    answers = {"/tests/a": told(416, "InvalidRange"), "/tests/b": (206, {}, b"12"), "/tests/c": (206, {}, b"12345")}

    with scripted(lambda request: answers[request.target]) as (endpoint, came):
        wanted = [ReadRequest(name, "0x1", 100, 10, 5) for name in "abc"]
        found = [data for _, data in bare("abfs://tests", at(endpoint)).read_many(wanted)]
        assert {request.headers["range"] for request in came} == {"bytes=10-14"}
        assert {request.headers["if-match"] for request in came} == {'"0x1"'}
    assert [type(data) for data in found] == [Vanished, Vanished, bytes]


def test_an_ambiguous_answer_to_a_commit_is_resolved_by_a_look() -> None:
    """The first put of the list succeeds and its answer is lost."""
    staged, committed = list[str](), list[bytes]()

    def says(request: Asked) -> Says:
        if "comp=block&" in request.target:
            from urllib.parse import parse_qs, urlsplit

            staged.append(parse_qs(urlsplit(request.target).query)["blockid"][0])
            return 201, {}, b""
        if "comp=blocklist" in request.target and request.method == "PUT":
            if not committed:
                committed.append(b"")
                return 0, {}, b""
            return told(409, "BlobAlreadyExists")
        names = "".join(f"<Block><Name>{block}</Name><Size>4</Size></Block>" for block in staged)
        return 200, {}, f"<BlockList><CommittedBlocks>{names}</CommittedBlocks></BlockList>".encode()

    with scripted(says) as (endpoint, _):
        store = connect("abfs://tests", at(endpoint))
        upload = store.upload("a")
        upload.write(b"1234")
        upload.close()
        assert store.complete("a", upload.handle) is True


def test_a_block_that_cannot_be_sent_fails_the_writer() -> None:
    def says(request: Asked) -> Says:
        return told(403, "AuthorizationFailure") if request.method == "PUT" else (404, {"x-ms-error-code": "BlobNotFound"}, b"")

    with scripted(says) as (endpoint, _):
        sink = bare("abfs://tests", at(endpoint)).create("a")
        sink.write(b"1")
        before = set(threading.enumerate())
        with refused(StorageError, 3, "cannot write abfs://tests/a", "firewall"):
            sink.close()
        sink.discard()
        # The server has a thread for each connection, as long as that is kept.
        assert not [each for each in set(threading.enumerate()) - before if "process_request" not in each.name]


def test_an_option_for_another_store_is_none_of_ours(options: dict[str, str], root: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        store = bare(root, {**options, "key": "hunter2", "endpoint_url": "x", "anything": 1})
        store.put("a", b"1")
        assert store.get("a") == b"1"
    assert "hunter2" not in caplog.text + repr(store)
    assert issubclass(StorageError, QuireError)


def test_a_version_that_is_none_is_nobodys(root: str, options: dict[str, str]) -> None:
    """A version comes from a log, which somebody may have forged: in a header it would be another header."""
    store = bare(root, options)
    store.put("a", b"1")
    for version in ("0x1\r\nx-ms-delete-snapshots: include", "ä", "0x1\n"):
        assert not store.put_if("a", b"2", version)
    assert store.get("a") == b"1"
