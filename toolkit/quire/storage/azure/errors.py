"""Refusals of Azure Blob storage, and failures to reach it, in one line: what, where, what to do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from lxml import etree

from quire.errors import NotFoundError, StorageError, TransientError, scrub
from quire.storage.azure.account import AzureAccount
from quire.storage.http import BUSY, for_now, seconds, unanswered

_ANONYMOUS = "the account {account!r} lets nobody in without a name. Give account_key or sas_token, or leave out anon"
# What the service says → what a user does about it. {container}, {account}, {host}: where.
_ADVICE = {
    "ContainerNotFound": "the container {container!r} is not there. Create it, or look at the URL's spelling",
    "ContainerBeingDeleted": "the container {container!r} is being deleted. Choose another one, or wait until it is gone",
    "ContainerDisabled": "the container {container!r} is disabled. Ask who administers the account",
    "AccountIsDisabled": "the account {account!r} is disabled. Ask who administers it",
    "AuthorizationFailure": (
        "the account {account!r} refuses this machine or this key: its firewall admits chosen networks only, or the right is missing. "
        "Ask who administers it"
    ),
    "AuthorizationPermissionMismatch": (
        "the right is missing. Ask for the role 'Storage Blob Data Contributor' (to read: '… Reader'), or for a SAS that permits it"
    ),
    "InsufficientAccountPermissions": (
        "{host} takes no changes: it is a secondary endpoint, or the account is read-only to you. Look at account_host, or ask who "
        "administers the account"
    ),
    "AuthorizationSourceIPMismatch": "the SAS holds for other machines' addresses. Ask for one for this machine",
    "AuthorizationProtocolMismatch": "the SAS holds for another protocol. Use https",
    "AuthorizationResourceTypeMismatch": "the SAS does not cover containers and objects. Ask for one with both (srt=sco)",
    "AuthorizationServiceMismatch": "the SAS does not cover blobs. Ask for one that does (ss=b)",
    "KeyBasedAuthenticationNotPermitted": (
        "the account {account!r} takes no keys. Sign in instead: leave out account_key, or give client_id, client_secret and tenant_id"
    ),
    "PublicAccessNotPermitted": _ANONYMOUS,
    "NoAuthenticationInformation": _ANONYMOUS,
    "InvalidAuthenticationInfo": "the account {account!r} does not take this sign-in. Sign in again, or look at tenant_id",
    "LeaseIdMissing": "somebody holds a lease on it. End the lease (az storage blob lease break), or wait for its end",
    "LeaseAlreadyPresent": "somebody holds a lease on it. End the lease (az storage blob lease break), or wait for its end",
    "BlobArchived": "it lies in the archive tier. Set it to the tier hot or cool (which takes hours), then call again",
    "BlobBeingRehydrated": "it is still on its way out of the archive tier. Call again when it has come",
    "BlobImmutableDueToPolicy": "a policy of the container forbids to change it. Choose another destination",
    "SnapshotsPresent": "it has snapshots. Delete them first",
    "InvalidBlobType": "it is an append blob or a page blob, which cannot be written so. Choose another destination",
    "CpkRequired": "it was written with a key of the customer's own, which is not there. Its owner has it",
    "BlobUsesCustomerSpecifiedEncryption": "it was written with a key of the customer's own, which is not there. Its owner has it",
    "AccountRequiresHttps": "the account {account!r} takes https alone. Use https",
}
# What is wrong with the account, the container or who asks, so with every blob alike.
_EVERYWHERE = frozenset({
    "AuthenticationFailed", "ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled", "AccountIsDisabled", "AuthorizationFailure",
    "AuthorizationSourceIPMismatch", "AuthorizationProtocolMismatch", "AuthorizationResourceTypeMismatch", "AuthorizationServiceMismatch",
    "KeyBasedAuthenticationNotPermitted", "PublicAccessNotPermitted", "NoAuthenticationInformation", "InvalidAuthenticationInfo",
    "AccountRequiresHttps",
})  # fmt: skip
# Why there was no answer → what a user does about it.
_UNANSWERED = {
    "no host": "unknown host {name!r}. Check the account's name, account_host, or this machine's network",
    "no tls": "{host} does not speak https. Look at account_host, or at the connection string's BlobEndpoint",
    "no trust": "the certificate of {host} cannot be trusted. Look at account_host and at the proxy between",
    "proxy": "the proxy refused or is not there. Look at HTTPS_PROXY and NO_PROXY",
}
SKEW = 900  # seconds between the clocks that the service allows


class ErrorBody(NamedTuple):
    """The service's reason for a refusal, as far as it is known."""

    status: int
    code: str
    words: str
    wait: float  # seconds it asks to wait
    skew: float = 0.0  # seconds by which its clock is ahead of ours

    @property
    def everywhere(self) -> bool:
        """Whether it would say so of every other blob, too."""
        return self.code in _EVERYWHERE or self.status == 401


def parser() -> etree.XMLParser:
    """A parser for the service's XML: it fetches nothing and expands nothing."""
    return etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> ErrorBody:
    """Read from an answer; HEAD has no body, and what stands between may send anything."""
    code, words = headers.get("x-ms-error-code", ""), ""
    if body.lstrip(b"\xef\xbb\xbf").startswith(b"<?xml"):
        try:
            found = etree.fromstring(body.lstrip(b"\xef\xbb\xbf"), parser())
        except etree.XMLSyntaxError:
            found = None
        if found is not None:
            code = code or found.findtext("Code") or ""
            words = " ".join(t for t in (found.findtext("Message"), found.findtext("AuthenticationErrorDetail")) if t)
    # The string that was signed follows, of no use to a reader; then an id of the request, which is.
    words = words.partition("The MAC signature found")[0].partition("Server used following")[0]
    return ErrorBody(status, code, scrub(words, 200), seconds(headers.get("Retry-After", "")), _skew(headers.get("Date", "")))


def _skew(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0


def explained(what: str, said: ErrorBody, account: AzureAccount, container: str) -> StorageError:
    """The error for an answer: `what` is like 'cannot read abfs://container/x'."""
    if said.status in BUSY:
        busy = {429: "the account gets too many requests", 503: "the service is busy"}.get(said.status, "the service did not manage it")
        return TransientError(f"{what}: {busy} ({said.status}{said.code and ' ' + said.code})", wait=said.wait)
    if said.code == "AuthenticationFailed" or (said.code == "AuthorizationFailure" and account.expired):
        return StorageError(f"{what}: {_not_authentic(said, account)}.")
    if said.code in _ADVICE:
        return StorageError(f"{what}: {_ADVICE[said.code].format(container=container, account=account.name, host=account.host)}.")
    if said.status == 404:
        return NotFoundError(f"{what}: it is not there")
    if said.status == 407:
        return StorageError(f"{what}: {_UNANSWERED['proxy']}.")
    if 300 <= said.status < 400:
        return StorageError(f"{what}: {account.host} sends us elsewhere, so it is not the account's blob endpoint. Look at account_host.")
    told = f": {said.words.rstrip('.')}" if said.words else ""
    return StorageError(f"{what}: the service refused it ({said.status} {said.code or 'without a reason'}{told}). Look at the account.")


def _not_authentic(said: ErrorBody, account: AzureAccount) -> str:
    """Why: an answer to HEAD has no words, so the clocks and the signature's own end are looked at, too."""
    words = said.words.lower()
    if abs(said.skew) > SKEW or "date header too old" in words:
        return f"this machine's clock is wrong by more than {SKEW // 60} minutes, says {account.host}. Set the clock"
    if account.expired or "specified time frame" in words:
        return f"the SAS for the account {account.name!r} has expired, or does not hold yet. Ask for a new one, and give it as sas_token"
    return f"the account {account.name!r} does not take this key or signature. Copy it again: account_key, sas_token or connection_string"


def unreachable(what: str, account: AzureAccount, error: BaseException) -> StorageError:
    """The error for a request that had no answer."""
    why, innermost = unanswered(error)
    if advice := _UNANSWERED.get(why):
        return StorageError(f"{what}: {advice.format(host=account.host, name=account.host.partition(':')[0])}.")
    return for_now(what, account.host, why, innermost)
