"""Errors of Google Cloud Storage and of the way to it, as one line: what, where, what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping

from quire.errors import NotFoundError, StorageError, TransientError, scrub
from quire.storage.http import BUSY, for_now, seconds, unanswered

_UNANSWERED = {
    "no host": "unknown host ({host}). Check endpoint_url, or the network",
    "no tls": "{host} does not speak https. Look at endpoint_url",
    "no trust": "no trust in the certificate of {host}. Look at endpoint_url and the proxy between, or set REQUESTS_CA_BUNDLE",
    "proxy": "the proxy refused or is not there. Look at HTTPS_PROXY and NO_PROXY",
}


def words(body: bytes) -> str:
    """The service's words for a refusal."""
    try:
        found = json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        found = body[:300].decode("utf-8", "replace") if not body.lstrip().startswith(b"<") else ""
    return scrub(str(found).rstrip("."), 200)


def no_bucket(status: int, said: str) -> bool:
    """Whether it is the bucket that does not exist."""
    return status == 404 and "bucket does not exist" in said


def everywhere(status: int, said: str) -> bool:
    """Whether the service would say so of every other object, too."""
    return status == 401 or 300 <= status < 400 or no_bucket(status, said) or "billing" in said.lower()


def refused(what: str, status: int, headers: Mapping[str, str], body: bytes, host: str, bucket: str) -> StorageError:
    """The error for an answer that is a refusal: `what` is like 'cannot read gs://bucket/x'."""
    said = words(body)
    told = f" ({said})" if said else ""
    if status in BUSY:
        busy = "too many requests" if status in (429, 503) else "the service did not manage it"
        return TransientError(f"{what}: {busy} ({status})", wait=seconds(headers.get("Retry-After", "")))
    if no_bucket(status, said):
        return StorageError(f"{what}: bucket {bucket!r} does not exist at {host}. Check the URL and endpoint_url, or create the bucket.")
    if status == 404:
        return NotFoundError(f"{what}: it is not there")
    if 300 <= status < 400:
        return StorageError(f"{what}: {host} sends us elsewhere, so it is not the service. Look at endpoint_url.")
    if status == 401:
        return StorageError(f"{what}: {host} does not take this sign-in{told}. Sign in again, or look at the option token.")
    if status == 403:
        return StorageError(
            f"{what}: no permission{told}. Ask for the role 'Storage Object User' (to read: '… Viewer'), or give another token."
        )
    if status == 400 and "user project" in said.lower():
        return StorageError(f"{what}: whoever reads the bucket {bucket!r} pays. Give requester_pays='your-project'.")
    return StorageError(f"{what}: the service refused it ({status}{': ' + said if said else ''}). Look at the bucket {bucket!r}.")


def unreachable(what: str, host: str, error: BaseException) -> StorageError:
    """The error for a request that had no answer."""
    why, innermost = unanswered(error)
    if advice := _UNANSWERED.get(why):
        return StorageError(f"{what}: {advice.format(host=host)}.")
    return for_now(what, host, why, innermost)
