"""Access to S3: its URLs, the options that reach it, and the client for single requests.

Options have the names that s3fs gave them, so that one dictionary serves both: `key`, `secret`, `token`, `profile`, `anon`,
`endpoint_url`, `client_kwargs` (`region_name`, `verify` …), `config_kwargs` (botocore's `Config`), `requester_pays`, `use_ssl`,
`s3_additional_kwargs` (encryption and the like, of writes). Missing options are found where every program of AWS looks: the
environment, `~/.aws` with its profiles and roles, the container's or the machine's own role.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from quire.errors import UsageError, choose, scrub
from quire.packaging import install
from quire.storage.asking import Asking
from quire.storage.http import trusted
from quire.storage.options import names, shared, spelled, text
from quire.storage.place import port_of
from quire.storage.s3.errors import explained
from quire.storage.s3.transport import answered
from quire.storage.wire import SILENCE as WAITED
from quire.storage.wire import Wire

PARALLEL = 32  # connections of one client
CONNECT, SILENCE = 10.0, 60.0  # seconds until a connection is made, and without a byte

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_NAMES = (
    "key", "secret", "token", "profile", "anon", "endpoint_url", "client_kwargs", "config_kwargs", "requester_pays", "use_ssl",
    "s3_additional_kwargs", "max_concurrency",
)  # fmt: skip
_CLIENT = ("region_name", "endpoint_url", "verify", "use_ssl")


# ------------------------------------------------------------------------------------------------------------------------- URLs
def normalise(scheme: str, rest: str) -> str:
    """One URL for one place, from what follows `scheme:` → `s3://bucket/path`. Raises UsageError."""
    bucket, _, path = rest.removeprefix("//").partition("/")
    said = scrub(f"{scheme}:{rest}", 200)
    if "@" in bucket:
        raise UsageError(f"{said!r} carries credentials, and a URL is written into reports. Give them as the options key and secret.")
    if not rest.startswith("//") or not _BUCKET.fullmatch(bucket):
        raise UsageError(f"{said!r} names no bucket: 3 to 255 letters, digits, dots and hyphens. Write s3://bucket/path.")
    if re.search(r"[?&](?:X-Amz-|AWSAccessKeyId=|Signature=)", path, re.IGNORECASE):
        raise UsageError(f"{said.partition('?')[0]!r} is signed: a URL is written into plans and reports. Write s3://bucket/path.")
    return "/".join([f"s3://{bucket}", *names(said, path)])


def parts(url: str) -> tuple[str, str]:
    """A normalised URL → bucket, path."""
    bucket, _, path = url.removeprefix("s3://").partition("/")
    return bucket, path


# --------------------------------------------------------------------------------------------------------------------- accounts
class Endpoint(NamedTuple):
    """Where the objects of a bucket are asked for: the address before a key, and the region that signatures name."""

    base: str
    region: str


class S3Account:
    """The identity and the endpoint: a client of its own for each process, made when it is first needed."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        spelled(options, _NAMES, "S3")
        self.options = options
        for name in ("client_kwargs", "config_kwargs", "s3_additional_kwargs"):
            if not isinstance(options.get(name) or {}, Mapping):
                raise UsageError(f"the option {name} of S3 is a dictionary, not {type(options[name]).__name__}.")
        self.kwargs: dict[str, Any] = {**(options.get("client_kwargs") or {})}
        for name in self.kwargs:
            choose(name, _CLIENT, "name in client_kwargs")
        for name in ("key", "secret", "token", "profile"):
            text({name: options.get(name) or ""}, name)
        if bool(options.get("key")) != bool(options.get("secret")):
            raise UsageError("of the options key and secret of S3 there is only one. Give both, or neither to use this machine's own.")
        endpoint = options.get("endpoint_url") or self.kwargs.get("endpoint_url") or ""
        where = urlsplit(str(endpoint))
        if endpoint and (where.scheme not in ("http", "https") or not where.hostname or not port_of(where) or where.query):
            raise UsageError(
                f"endpoint_url={scrub(repr(endpoint), 100)} is not an address. Write for example 'https://s3.example.org:9000'."
            )
        self.endpoint: str | None = str(endpoint) or None
        self.anonymous = bool(options.get("anon"))
        self.pays = bool(options.get("requester_pays"))
        self.of_writes: dict[str, Any] = {**(options.get("s3_additional_kwargs") or {})}
        self._lock, self._made = threading.Lock(), dict[tuple[int, str], Any]()
        self._places = dict[str, Endpoint]()
        self.asking = Asking(lambda: self.wire(SILENCE))
        self._who: Any = None  # whom this process's last client signs for, also where a role or a token stands behind

    def __repr__(self) -> str:
        return f"Account({self.host!r})"

    @property
    def host(self) -> str:
        """As errors name it."""
        return urlsplit(self.endpoint).netloc.rpartition("@")[2] if self.endpoint else "AWS"

    def client(self, region: str = "") -> Any:
        """boto3's client, which tries nothing again by itself; a fork begins with one of its own."""
        found = self._made.get((os.getpid(), region))
        if found is None:
            with self._lock:
                found = self._made.get((os.getpid(), region)) or self._client(region)
                self._made[os.getpid(), region] = found
        return found

    def beside(self, service: str, region: str, endpoint: str) -> Any:
        """The client of another service of AWS, for the same identity."""
        key = (os.getpid(), f"{service} {region} {endpoint}")
        with self._lock:
            if key not in self._made:
                self._made[key] = self._client(region, service, endpoint)
            return self._made[key]

    def _client(self, region: str, service: str = "s3", endpoint: str = "") -> Any:
        try:
            import boto3
            from botocore import UNSIGNED
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError as e:
            raise UsageError(f"S3 needs more packages: {install('s3')}") from e
        options = self.options
        try:
            config = Config(
                max_pool_connections=PARALLEL, connect_timeout=CONNECT, read_timeout=SILENCE, tcp_keepalive=True,
                # Many services that speak S3 do not know the checksums that AWS has added since.
                request_checksum_calculation="when_required", response_checksum_validation="when_required",
            )  # fmt: skip
            config = config.merge(Config(**(options.get("config_kwargs") or {})))
            config = config.merge(Config(retries={"total_max_attempts": 1, "mode": "standard"}))
            if self.anonymous:
                config = config.merge(Config(signature_version=UNSIGNED))
            session = boto3.session.Session(
                aws_access_key_id=options.get("key"), aws_secret_access_key=options.get("secret"),
                aws_session_token=options.get("token"), profile_name=options.get("profile"),
            )  # fmt: skip
            kwargs = {"use_ssl": bool(options.get("use_ssl", True)), **self.kwargs, "endpoint_url": endpoint or self.endpoint}
            self._who = session.get_credentials()
            made = session.client(service, config=config, **({**kwargs, "region_name": region} if region else kwargs))
        except (BotoCoreError, TypeError, ValueError) as e:
            raise explained(f"cannot reach {service.upper()}", e, urlsplit(endpoint).netloc or self.host, "") from e
        if service != "s3":
            return made
        made.meta.events.register_first("before-sign.s3.GetObject", _tell)
        made.meta.events.register_last("before-send.s3", lambda request, **_: answered(self.asking, request))
        if self.pays:
            made.meta.events.register("before-call.s3", _pays)
        return made

    def wire(self, silence: float = WAITED) -> Wire:
        """Connections, which believe as those of single requests do; `silence`: seconds without a byte."""
        verify = self.kwargs.get("verify")
        own = verify if isinstance(verify, str) else (os.environ.get("AWS_CA_BUNDLE") or True) if verify is not False else False
        return Wire(lambda: trusted(own), silence=silence)

    def place(self, bucket: str) -> Endpoint:
        """Where a bucket's objects are; AWS is asked once for its region."""
        return self._places.get(bucket) or self.move(bucket, "" if self.endpoint else self._region(bucket))

    def move(self, bucket: str, region: str) -> Endpoint:
        """The bucket is in this region (empty: in that of the options); where its objects are from now on."""
        client = self.client(region)
        # Its own rules for addresses (path or host, dual stack …) make one of any key, of which what is before the key is taken.
        _telling.on = True
        try:
            client.get_object(Bucket=bucket, Key="k")
        except _Told as e:
            base = e.address.partition("?")[0].removesuffix("k")
        finally:
            _telling.on = False
        named = client.meta.region_name
        found = self._places[bucket] = Endpoint(base, "us-east-1" if named in (None, "aws-global") else named)
        return found

    def _region(self, bucket: str) -> str:
        from botocore.exceptions import ClientError

        try:
            headers = self.client().head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
        except ClientError as e:
            headers = e.response["ResponseMetadata"].get("HTTPHeaders", {})
        return str(headers.get("x-amz-bucket-region", ""))

    def credentials(self) -> Any:
        """The credentials that sign a request now (access_key, secret_key, token), renewed where it ends; None: requests are not signed."""
        if self.anonymous:
            return None
        self.client()
        found = self._who
        if found is None:
            from botocore.exceptions import NoCredentialsError

            raise NoCredentialsError
        return found.get_frozen_credentials()


_telling = threading.local()


class _Told(Exception):
    """Ends a request before it is sent."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


def _tell(request: Any, **_: object) -> None:
    if getattr(_telling, "on", False):
        raise _Told(str(request.url))


def _pays(params: dict[str, Any], **_: object) -> None:
    params["headers"]["x-amz-request-payer"] = "requester"


_accounts: dict[str, S3Account] = {}


def account(options: Mapping[str, object] | None) -> S3Account:
    """The account of these options; the same options mean the same clients and connections, also for the next store."""
    given = dict(options or {})
    return shared(_accounts, given, lambda: S3Account(given))
