"""An account of Azure Blob storage: its URLs, the options that reach it, and the signature of each request.

Options have the names that adlfs gave them, so that one dictionary serves both: `account_name`, `account_key`, `connection_string`,
`sas_token`, `credential`, `client_id` with `client_secret` and `tenant_id`, `anon`, `account_host`. Missing options are taken from the
environment (`AZURE_STORAGE_ACCOUNT_KEY` and so on); where there is nothing at all, `DefaultAzureCredential` signs in.

The signature is the service's "Shared Key" of version 2015-02-21 on (REST reference, "Authorize with Shared Key").
"""

from __future__ import annotations

import base64
import binascii
import hmac
import inspect
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from quire.errors import StorageError, UsageError, scrub
from quire.packaging import install
from quire.storage.options import names, spelled, text
from quire.storage.place import plain, port_of

VERSION = "2021-12-02"  # of the REST interface: the first that lists names which XML cannot hold, and that all emulators know
SCOPE = "https://storage.azure.com/.default"
CLOUD = "core.windows.net"
EARLY = 300  # seconds before its end at which a token is asked for anew
SHORT = 30  # seconds before its end from which on it is not used any more, and between two questions that fail until then

_CONTAINER = re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}|\$root|\$web|\$logs")
_HOST = re.compile(r"[A-Za-z0-9.-]+(?::\d+)?")
# Hosts of the service: to others nothing is sent that signs, unless the options name them. A URL may come from anywhere.
_CLOUDS = (
    "core.windows.net", "core.chinacloudapi.cn", "core.usgovcloudapi.net", "core.cloudapi.de", "storage.azure.net", "fabric.microsoft.com",
)  # fmt: skip
_OF_ACCOUNT = re.compile(r"([^.:]+)((?:\.z\d+)?)(?:\.privatelink)?\.(?:blob|dfs)\.([^:]+)")  # account, zone, cloud
_NAMES = (
    "account_name", "account_key", "connection_string", "sas_token", "credential", "client_id", "client_secret", "tenant_id", "anon",
    "account_host", "max_concurrency",
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------------- URLs
def normalise(scheme: str, rest: str) -> str:
    """One URL for one place, from what follows `scheme:` → `abfs://container@account.dfs.core.windows.net/path`, or
    `abfs://container/path` where the account is told by the options. Raises UsageError.
    """
    where, _, path = rest.removeprefix("//").partition("/")
    container, at, host = where.partition("@")
    like = "Write abfs://container@account.dfs.core.windows.net/path, or abfs://container/path with the option account_name."
    said = scrub(f"{scheme}:{rest}", 200).replace("***@", f"{container}@" if _CONTAINER.fullmatch(container) else "***@")
    if not rest.startswith("//") or not _CONTAINER.fullmatch(container) or (at and not _HOST.fullmatch(host)):
        raise UsageError(f"{said!r} names no container of Azure Blob storage: 3 to 63 of a-z, 0-9 and single hyphens. {like}")
    if re.search(r"[?&](?:sig|sv|se)=", path):
        raise UsageError(f"{said!r} carries a signature: a URL is written into plans and reports. Give it as the option sas_token.")
    host = host.lower().removesuffix(":443").rstrip(".")
    found = _OF_ACCOUNT.fullmatch(host)
    if found:
        host = f"{found[1]}{found[2]}.dfs.{found[3]}"
    return "/".join([f"abfs://{container}{'@' + host if host else ''}", *names(said, path)])


def parts(url: str) -> tuple[str, str, str]:
    """A normalised URL → container, host (or nothing), path."""
    where, _, path = url.removeprefix("abfs://").partition("/")
    container, _, host = where.partition("@")
    return container, host, path


# ---------------------------------------------------------------------------------------------------------------------- options
class _Meant(NamedTuple):
    """The account, from a URL's host, the options and the environment together."""

    name: str  # of the account
    endpoint: str  # "" where nothing says which account
    said: dict[str, str]  # the options that are texts
    string: dict[str, str]  # the connection string, taken apart


def account(host: str, options: Mapping[str, object] | None) -> AzureAccount:
    """The account that a URL's host and the options mean. Raises UsageError for what does not fit together."""
    name, endpoint, said, string = _meant(host, options)
    if not endpoint:
        raise UsageError("which account of Azure storage? Write abfs://container@account.dfs.core.windows.net/path, or give account_name.")
    anonymous, credential = bool((options or {}).get("anon")), (options or {}).get("credential")
    if isinstance(credential, str):  # as adlfs takes it: a signature or a key
        said["sas_token" if "sig=" in credential else "account_key"], credential = credential, None
    key = said["account_key"] or string.get("accountkey", "")
    sas = (said["sas_token"] or string.get("sharedaccesssignature", "")).lstrip("?").strip()
    if not plain(sas):
        raise UsageError("the SAS holds characters that none has, as a blank or a line's end: it was mixed up. Copy it again: sas_token.")
    if not (key or sas or credential or anonymous):
        credential = _signed_in(said)
    if credential is not None and endpoint.startswith("http://"):
        raise UsageError(f"a sign-in is not sent over plain http to {urlsplit(endpoint).netloc}: anybody could read it. Use https.")
    return AzureAccount(name, endpoint, _key(key) if key else b"", "" if key else sas, credential)


def queues(name: str, options: Mapping[str, object] | None) -> AzureAccount:
    """The same account of that name, at the endpoint of its queues. Raises UsageError where that cannot be told from the options."""
    found = account(name, options)
    string = _connection(text(options or {}, "connection_string"))
    endpoint = string.get("queueendpoint") or re.sub(r"(\.z\d+)?\.blob\.", r"\1.queue.", found.endpoint, count=1)
    if endpoint == found.endpoint:
        raise UsageError(
            f"where the queues of the account {found.name!r} lie is not known. Give a connection_string with their QueueEndpoint."
        )
    return AzureAccount(found.name, endpoint.rstrip("/"), found._key, found._sas, found._credential)


def canonical(url: str, options: Mapping[str, object] | None) -> str:
    """A normalised URL with its account in it, as `abfs://container@account.dfs.core.windows.net/path`, so that each place has one URL.

    An account that is reached by another address (a private endpoint, an emulator) keeps its name. Where nothing says which account is
    meant, the URL stays as it is: whoever opens it is told so.
    """
    container, host, path = parts(url)
    name, endpoint, _, _ = _meant(host, options)
    if not endpoint:
        return url
    own = urlsplit(endpoint).netloc.lower()
    matches = filter(None, map(_OF_ACCOUNT.fullmatch, (own.removesuffix(":443"), host)))
    whole = next((f"{name}{found[2]}.dfs.{found[3]}" for found in matches if found[1] == name), f"{name}.dfs.{CLOUD}" if name else own)
    return f"abfs://{container}@{whole}{'/' + path if path else ''}"


def _meant(host: str, options: Mapping[str, object] | None) -> _Meant:
    """Raises UsageError where they do not agree, or the URL alone names a host that is not the service's."""
    given = {name: value for name, value in (options or {}).items() if value is not None}
    spelled(given, _NAMES, "Azure storage")
    said = {option: text(given, option) for option in _NAMES if option not in ("anon", "credential", "max_concurrency")}
    string, around = _connection(said["connection_string"]), dict.fromkeys(said, "")
    signs = any(said[option] for option in ("account_key", "connection_string", "sas_token", "client_id"))
    if not (given.get("anon") or given.get("credential") or signs):
        around = {option: os.environ.get(f"AZURE_STORAGE_{option.upper()}", "") for option in said}
    theirs = _connection(around["connection_string"])
    hosts = [said["account_host"], around["account_host"], string.get("blobendpoint", ""), theirs.get("blobendpoint", "")]
    names = {_of_url(host, hosts, (string | theirs).get("endpointsuffix", "")), *_names(said, string)} - {""}
    if len(names) > 1:
        raise UsageError(f"URL and options name the accounts {' and '.join(sorted(names))}. Give the options of the account that is meant.")
    if not names or _names(around, theirs) <= names:  # else they are for another account
        said = {option: said[option] or value for option, value in around.items()}
        string = _connection(said["connection_string"])
        names = names or _names(said, string)
    name = next(iter(names), "")
    if not name and not said["account_host"] and not string.get("blobendpoint"):
        return _Meant("", "", said, string)
    endpoint = _endpoint(name, host, said["account_host"], string)
    return _Meant(name or _of_endpoint(endpoint), endpoint, said, string)


def _names(said: Mapping[str, str], string: Mapping[str, str]) -> set[str]:
    return {said["account_name"].lower(), string.get("accountname", "").lower()} - {""}


def _of_url(host: str, hosts: Iterable[str], suffix: str) -> str:
    """The account that the host of a URL names; UsageError for a host that is neither the service's nor named by the options."""
    if not set(host) & set(".:"):
        return host
    found = _OF_ACCOUNT.fullmatch(host)
    own = {urlsplit(stated if "://" in stated else f"//{stated}").netloc.lower() for stated in hosts}
    cloud = found[3] if found else ""
    if found and (cloud in (*_CLOUDS, suffix.lower()) or host in {netloc.replace(".blob.", ".dfs.", 1) for netloc in own}):
        return found[1]
    if host in own:
        return ""
    name = found[1] if found else host.partition(".")[0]
    raise UsageError(
        f"{host!r} is not a host of Azure storage that quire knows, and a URL alone sends no signature elsewhere. Look at the URL, or name "
        f"the host in the options, too: account_host={f'{name}.blob.{cloud}' if found else host!r}."
    )


def _of_endpoint(endpoint: str) -> str:
    """The account's name where an endpoint alone says it: before the service's name, or as a path of an address."""
    split = urlsplit(endpoint)
    found = _OF_ACCOUNT.fullmatch(split.netloc.lower())
    return found[1] if found else split.path.strip("/").partition("/")[0]


def _connection(string: str) -> dict[str, str]:
    """`AccountName=…;AccountKey=…` → a dictionary with its names in lower case."""
    found = {}
    for part in string.split(";"):
        name, equals, value = part.strip().partition("=")
        if not part.strip():
            continue
        if not equals:
            raise UsageError("the connection string holds a part without '='. Copy it again from the account's page 'Access keys'.")
        found[name.strip().lower()] = value.strip()
    if found.get("usedevelopmentstorage", "").lower() == "true":
        raise UsageError("UseDevelopmentStorage names no account. Give the emulator's whole connection string, with its BlobEndpoint.")
    return found


def _endpoint(name: str, host: str, account_host: str, string: Mapping[str, str]) -> str:
    if account_host:
        found = account_host if "://" in account_host else f"https://{account_host}"
    elif string.get("blobendpoint"):
        found = string["blobendpoint"]
    else:
        there = _OF_ACCOUNT.fullmatch(host)
        zone, cloud = (there[2], there[3]) if there else ("", CLOUD)
        found = f"{string.get('defaultendpointsprotocol') or 'https'}://{name}{zone}.blob.{string.get('endpointsuffix') or cloud}"
    split = urlsplit(found)
    if split.scheme not in ("http", "https") or not _HOST.fullmatch(split.netloc) or not port_of(split):
        raise UsageError(
            "the account's endpoint is not of the form https://account.blob.core.windows.net: look at account_host or BlobEndpoint"
        )
    return f"{split.scheme}://{split.netloc}{split.path.rstrip('/')}"


def _key(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(
            "the key of the account is not base64: it was cut off or mixed up. Copy it again from the page 'Access keys'."
        ) from None


def _signed_in(said: Mapping[str, str]) -> object:
    """The credential: an application with its secret, or this machine's own identity."""
    try:
        import azure.identity
    except ImportError as e:
        raise UsageError(f"signing in to Azure needs more packages, or give account_key or sas_token: {install('azure')}") from e
    # What it says at length is for whoever listens to logs; nobody's terminal should get it unasked.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    if said["client_id"] and said["client_secret"] and said["tenant_id"]:
        try:
            return azure.identity.ClientSecretCredential(said["tenant_id"], said["client_id"], said["client_secret"])
        except ValueError as e:
            raise UsageError(f"client_id, client_secret and tenant_id do not fit: {scrub(str(e))}") from e
    if said["client_secret"]:
        raise UsageError("an application signs in with client_id, client_secret and tenant_id: give all three")
    return azure.identity.DefaultAzureCredential()


# ---------------------------------------------------------------------------------------------------------------------- requests
class AzureAccount:
    """The identity and the endpoint: signs requests. Its repr shows no secret."""

    def __init__(self, name: str, endpoint: str, key: bytes = b"", sas: str = "", credential: object = None) -> None:
        self.name, self.endpoint = name, endpoint
        self.host = urlsplit(endpoint).netloc
        self._path = urlsplit(endpoint).path
        self.origin = endpoint.removesuffix(self._path) if self._path else endpoint
        self._key, self._sas, self._credential = key, sas, credential
        self._token, self._until, self._rests = "", 0.0, 0.0
        self._lock = threading.Lock()
        self._date, self._at = "", 0
        self._loop: Any = None

    def __repr__(self) -> str:
        return f"Account({self.name!r} at {self.host})"

    def _said(self, field: str) -> str:
        """A field of the SAS."""
        return parse_qs(self._sas).get(field, [""])[0]

    @property
    def may(self) -> str:
        """The letters of what a SAS permits; nothing where that is not known."""
        return self._said("sp")

    @property
    def expired(self) -> bool:
        """Whether the SAS is over, as this machine's clock has it."""
        try:
            end = datetime.fromisoformat(self._said("se"))
        except ValueError:
            return False
        return end.replace(tzinfo=end.tzinfo or UTC) < datetime.now(UTC)

    def stale(self) -> bool:
        """Whether the next request has to wait for a new token."""
        return self._credential is not None and time.time() > max(self._until - EARLY, self._rests)

    def signed(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], length: int = 0
    ) -> tuple[str, dict[str, str]]:
        """The URL and the headers of a request: `path` is `/container/name`, not yet quoted; `length`: bytes of its body."""
        path = self._path + quote(path, safe="/~")
        now = int(time.time())
        if now != self._at:
            self._date, self._at = formatdate(now, usegmt=True), now
        headers = {"x-ms-version": VERSION, **headers, "x-ms-date": self._date}
        arguments = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        if self._key:
            headers["Authorization"] = self._shared_key(method, path, query, headers, length)
        elif self._credential is not None:
            headers["Authorization"] = f"Bearer {self.token()}"
        elif self._sas:
            arguments = f"{arguments}&{self._sas}" if arguments else self._sas
        return f"{self.origin}{path}{'?' + arguments if arguments else ''}", headers

    def reading(self, method: str, path: str, version: str = "", span: str = "") -> tuple[str, str]:
        """The target and the headers, as lines, of a request that reads: `signed` for the many, with what holds for all of them kept.

        path    /container/name, not yet quoted
        version of the blob, on which the request is conditioned; span: the value of Range
        """
        path = self._path + quote(path, safe="/~")
        now = int(time.time())
        if now != self._at:
            self._date, self._at = formatdate(now, usegmt=True), now
        headers, match = f"x-ms-date: {self._date}\r\nx-ms-version: {VERSION}\r\n", ""
        if version:
            match = f'"{version}"'
            headers += f"If-Match: {match}\r\n"
        if span:
            headers += f"Range: {span}\r\n"
        if self._key:
            own = f"x-ms-date:{self._date}\nx-ms-version:{VERSION}\n"
            text = f"{method}\n\n\n\n\n\n\n\n{match}\n\n\n{span}\n{own}/{self.name}{path}"
            return path, f"{headers}Authorization: {self._authorization(text)}\r\n"
        if self._credential is not None:
            return path, f"{headers}Authorization: Bearer {self.token()}\r\n"
        return (f"{path}?{self._sas}" if self._sas else path), headers

    def source(self, path: str) -> str:
        """The URL of a blob as the source of a copy within this account, with the signature that stands for the right to read it."""
        return f"{self.origin}{self._path}{quote(path, safe='/~')}{'?' + self._sas if self._sas else ''}"

    def _shared_key(self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], length: int) -> str:
        get = headers.get
        own = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()) if name.startswith("x-ms-"))
        asked = "".join(f"\n{name.lower()}:{value}" for name, value in sorted(query.items()))
        text = (
            f"{method}\n\n\n{length or ''}\n\n{get('Content-Type', '')}\n\n\n{get('If-Match', '')}\n{get('If-None-Match', '')}\n\n"
            f"{get('Range', '')}\n{own}/{self.name}{path}{asked}"
        )
        return self._authorization(text)

    def _authorization(self, text: str) -> str:
        return f"SharedKey {self.name}:{base64.b64encode(hmac.digest(self._key, text.encode(), 'sha256')).decode()}"

    def token(self) -> str:
        """A token that is good for some minutes at least; StorageError where nobody is signed in."""
        with self._lock:
            if self.stale():
                try:
                    found = self._ask()
                except Exception as e:
                    if (now := time.time()) < self._until - SHORT:
                        self._rests = min(now + SHORT, self._until - SHORT)
                        return self._token  # which holds yet
                    words = scrub(str(e).partition("\n")[0], 200).rstrip(".")
                    raise StorageError(
                        f"cannot sign in to the account {self.name!r}: {words or type(e).__name__}. "
                        "Sign in (az login), or give account_key or sas_token."
                    ) from None  # what the credential tells may hold more than it should
                self._token, self._until = found.token, float(found.expires_on)
            return self._token

    def _ask(self) -> Any:
        get_token = getattr(self._credential, "get_token", None)
        if get_token is None:
            raise TypeError(f"the credential of type {type(self._credential).__name__} gives no token")
        if not inspect.iscoroutinefunction(get_token):
            return get_token(SCOPE)

        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()  # its connections belong to it: the next question, an hour later, comes from it, too
            weakref.finalize(self, self._loop.close)
        with ThreadPoolExecutor(1) as pool:  # this thread may have a loop of its own, as in a notebook
            return pool.submit(self._loop.run_until_complete, get_token(SCOPE)).result()
