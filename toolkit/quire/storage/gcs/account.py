"""Access to Google Cloud Storage: its URLs, the options that reach it, and the token that each request carries.

Options have the names that gcsfs gave them: `token` ("anon", "google_default", the path of a file of credentials, its content as a
dictionary, or an access token), `endpoint_url`, `requester_pays` (the project that pays). Without a token the machine signs in as it does
for all programs of Google (application default credentials). `STORAGE_EMULATOR_HOST` names an emulator, which asks for no token.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from quire.errors import StorageError, TransientError, UsageError, scrub
from quire.packaging import install
from quire.storage.options import names, shared, spelled, text
from quire.storage.place import port_of

SERVICE = "https://storage.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_NAMES = ("token", "endpoint_url", "requester_pays", "max_concurrency")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{8,}")


def normalise(scheme: str, rest: str) -> str:
    """One URL for one place, from what follows `scheme:` → `gs://bucket/path`. Raises UsageError."""
    bucket, _, path = rest.removeprefix("//").partition("/")
    said = scrub(f"{scheme}:{rest}", 200)
    if re.search(r"[?&](?:X-Goog-|GoogleAccessId=|Signature=)", path, re.IGNORECASE):
        raise UsageError(f"{said.partition('?')[0]!r} is signed: a URL is written into plans and reports. Write gs://bucket/path.")
    if not rest.startswith("//") or not _BUCKET.fullmatch(bucket):
        raise UsageError(
            f"{said!r} names no bucket: 3 to 222 small letters, digits, dots, hyphens and underscores. Write gs://bucket/path."
        )
    return "/".join([f"gs://{bucket}", *names(said, path)])


def parts(url: str) -> tuple[str, str]:
    """A normalised URL → bucket, path."""
    bucket, _, path = url.removeprefix("gs://").partition("/")
    return bucket, path


class GcsAccount:
    """The identity and the endpoint; a token is renewed while it is used."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        spelled(options, _NAMES, "Google Cloud Storage")
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "").strip()
        endpoint = text(options, "endpoint_url") or emulator or SERVICE
        endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        where = urlsplit(endpoint)
        if where.scheme not in ("http", "https") or not where.hostname or not port_of(where) or where.query or where.username:
            raise UsageError(f"endpoint_url={scrub(repr(endpoint), 100)} is not an address. Write for example 'http://127.0.0.1:4443'.")
        self.endpoint, self.host = endpoint.rstrip("/"), where.netloc
        self.origin, self.before = f"{where.scheme}://{where.netloc}", where.path.rstrip("/")
        self.pays = text(options, "requester_pays")
        given = options.get("token") or ("anon" if emulator and not options.get("endpoint_url") else "google_default")
        if not isinstance(given, str | os.PathLike | Mapping):  # it is not repeated: it may be a secret
            raise UsageError(f"the option token of Google Cloud Storage is a text or a dictionary, not a {type(given).__name__}.")
        self._given = given if isinstance(given, Mapping) else os.fspath(given).strip()
        self._lock, self._credentials = threading.Lock(), None

    def __repr__(self) -> str:
        return f"Account({self.host!r})"

    @property
    def anonymous(self) -> bool:
        return self._given == "anon"

    def authorization(self) -> dict[str, str]:
        """The header that signs a request in, with a token that holds now."""
        if self.anonymous:
            return {}
        with self._lock:
            token = self._token()
        if not _TOKEN.fullmatch(token):
            raise UsageError(
                "the token of Google Cloud Storage is not one: it holds other characters than tokens do. Look at the option token."
            )
        return {"Authorization": f"Bearer {token}"}

    def _token(self) -> str:
        given = self._given
        if isinstance(given, str) and given != "google_default" and not _is_path(given):
            return given
        try:
            import google.auth
            from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
            from google.auth.transport.requests import Request
        except ImportError as e:
            raise UsageError(f"signing in to Google Cloud Storage needs more packages: {install('gcs')}") from e
        try:
            if self._credentials is None:
                self._credentials = self._signed_in(google.auth)
            found: Any = self._credentials
            if not found.valid:
                found.refresh(Request())
        except DefaultCredentialsError as e:
            raise UsageError(
                f"no credentials of Google Cloud Storage ({scrub(str(e).rstrip('.'), 150)}). Give the option token: a file of credentials, "
                f"or 'anon' for public data; or sign in (gcloud auth application-default login)."
            ) from None
        except TransportError as e:
            raise TransientError(f"cannot sign in to Google Cloud Storage: no answer ({scrub(str(e).rstrip('.'), 150)})") from None
        except GoogleAuthError as e:
            raise StorageError(
                f"cannot sign in to Google Cloud Storage: {scrub(str(e).rstrip('.'), 150)}. Sign in again, or look at the option token."
            ) from None
        return str(found.token)

    def _signed_in(self, auth: Any) -> Any:
        if self._given == "google_default":
            return auth.default(scopes=[_SCOPE])[0]
        from google.oauth2 import credentials, service_account

        kinds: dict[object, Callable[[dict[str, Any]], Any]] = {
            "service_account": partial(service_account.Credentials.from_service_account_info, scopes=[_SCOPE]),
            "authorized_user": credentials.Credentials.from_authorized_user_info,
        }
        try:
            found = self._given if isinstance(self._given, Mapping) else json.loads(Path(self._given).expanduser().read_bytes())
            kind = found.get("type") if isinstance(found, Mapping) else None
            return kinds[kind](dict(found))
        except (OSError, ValueError, KeyError, TypeError) as e:  # its words may repeat what it does not take
            said = scrub(e.strerror or "", 80) if isinstance(e, OSError) else "of the type service_account or authorized_user"
            raise UsageError(
                f"the option token of Google Cloud Storage holds no credentials that can be read ({said}). Get the file again, or name one "
                f"of another type in GOOGLE_APPLICATION_CREDENTIALS."
            ) from None


def _is_path(text: str) -> bool:
    return text.endswith(".json") or text.startswith(("/", "~", "."))


_accounts: dict[str, GcsAccount] = {}


def account(options: Mapping[str, object] | None) -> GcsAccount:
    """The account of these options; the same options mean the same token and connections, also for the next store."""
    given = dict(options or {})
    return shared(_accounts, [given, os.environ.get("STORAGE_EMULATOR_HOST", "")], lambda: GcsAccount(given))
