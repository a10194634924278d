"""Errors of S3 and of the way to it, as one line: what, where, what to do."""

from __future__ import annotations

import re
from typing import Any

from quire.errors import NotFoundError, StorageError, TransientError, UsageError, scrub
from quire.storage.http import BUSY, for_now, seconds, unanswered

_BUSY = frozenset(
    ("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "ThrottlingException", "RequestLimitExceeded",
     "OperationAborted", "ConditionalRequestConflict", "BandwidthLimitExceeded", "RequestThrottled", "503")
)  # fmt: skip

# What the service would say of every other object, too → what to do. {bucket}, {host}
_ADVICE = {
    "NoSuchBucket": "bucket {bucket!r} does not exist at {host}. Check the URL and endpoint_url, or create the bucket",
    "InvalidBucketName": "a bucket at {host} cannot have the name {bucket!r}. Check the URL",
    "InvalidAccessKeyId": "{host} does not know this access key. Look at the option key, the profile, or the environment",
    "SignatureDoesNotMatch": "{host} does not take this secret. Copy the option secret again, or look at the profile",
    "InvalidToken": "{host} does not take this token. Sign in again, or look at the option token",
    "ExpiredToken": "the credentials have expired. Sign in again, or give newer ones as key, secret and token",
    "TokenRefreshRequired": "the credentials have expired. Sign in again, or give newer ones as key, secret and token",
    "RequestTimeTooSkewed": "{host} finds this machine's clock wrong by more than 15 minutes. Set the clock",
    "RequestExpired": "{host} finds this machine's clock wrong. Set the clock",
    "NotImplemented": "{host} does not know this request, which quire needs. Use a service with conditional and multipart writes",
    "AllAccessDisabled": "access to the bucket {bucket!r} is switched off. Ask who owns it",
    "AccountProblem": "there is a problem with the account behind the bucket {bucket!r}. Ask who owns it",
    "NotSignedUp": "the account is not signed up for S3. Ask who owns it",
}
_OF_ONE = {
    "InvalidObjectState": "it is archived. Restore it first, or leave it out",
    "EntityTooLarge": "it is larger than {host} takes. Use a smaller target_size",
    "KeyTooLongError": "its name is longer than 1,024 bytes. Use shorter names",
    "QuotaExceeded": "the quota is used up. Free some space and call again: what was committed is safe",
    "NoSuchUpload": "its upload is not open any more: its job is over, or a rule of the bucket has dropped it. Call again",
    "InvalidPart": "its pieces are not those that were uploaded. Look who wrote the log's entry",
    "InvalidPartOrder": "its pieces are not those that were uploaded. Look who wrote the log's entry",
}
_PROXY = "the proxy refused or is not there. Look at HTTPS_PROXY and NO_PROXY"
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "NoAuthTokenError")
_PROFILES = ("ProfileNotFound", "ConfigNotFound", "ConfigParseError", "InvalidConfigError")
_SIGNING_IN = ("CredentialRetrievalError", "MetadataRetrievalError", "SSOError", "UnauthorizedSSOTokenError", "TokenRetrievalError")
_OPTIONS = ("TypeError", "ValueError", "NoRegionError", "UnknownServiceError", "InvalidRegionError")
_ELSEWHERE = ("PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "Redirect")
_DENIED = ("AccessDenied", "403", "Forbidden")


def everywhere(code: str, status: int) -> bool:
    """Whether the service would say so of every other object, too."""
    return code in _ADVICE or code in _ELSEWHERE or status == 401 or 300 <= status < 400


def region_of(status: int, code: str, words: str, headers: Any) -> str:
    """The region in which the bucket is instead, where a refusal says so; else nothing."""
    if code not in _ELSEWHERE and not 300 <= status < 400:
        return ""
    expected = re.search(r"expecting '([a-z0-9-]+)'", words) if code == "AuthorizationHeaderMalformed" else None
    return str(headers.get("x-amz-bucket-region") or (expected[1] if expected else ""))


def code_of(error: BaseException) -> str:
    """The service's word for a refusal, or nothing."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def refused(what: str, status: int, code: str, words: str, headers: Any, host: str, bucket: str) -> StorageError:
    """The error for an answer that is a refusal: `what` is like 'cannot read s3://bucket/x'."""
    if status in BUSY or code in _BUSY:
        busy = "too many requests" if status in (429, 503) or code == "SlowDown" else "the service did not manage it"
        told = f"{status}" if code in ("", f"{status}") else f"{status} {code}"
        return TransientError(f"{what}: {busy} ({told})", wait=seconds(headers.get("retry-after", "")))
    if code in _ELSEWHERE or 300 <= status < 400:
        region = region_of(status, code, words, headers)
        told = f"is in the region {region!r}: give client_kwargs={{'region_name': {region!r}}}" if region else "is somewhere else"
        return StorageError(f"{what}: the bucket {bucket!r} {told}, or look at endpoint_url.")
    if code in _ADVICE or code in _OF_ONE:
        return StorageError(f"{what}: {(_ADVICE | _OF_ONE)[code].format(bucket=bucket, host=host)}.")
    if status == 404:
        return NotFoundError(f"{what}: it is not there")
    if status == 407:
        return StorageError(f"{what}: {_PROXY}.")
    if code in _DENIED or status in (401, 403):
        told = f" ({scrub(words.rstrip('.'), 150)})" if words and words not in ("Forbidden", "Access Denied") else ""
        advice = "Ask for the right, give other credentials, or requester_pays=True where the bucket wants that"
        return StorageError(f"{what}: no permission{told}. {advice}.")
    told = f": {scrub(words.rstrip('.'), 200)}" if words else ""
    return StorageError(f"{what}: the service refused it ({status} {code or 'without a reason'}{told}). Look at the bucket {bucket!r}.")


def explained(what: str, error: BaseException, host: str, bucket: str) -> StorageError | UsageError:
    """The error for an exception of boto3, botocore, urllib3, or the reading of many."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        told, meta = response.get("Error", {}), response.get("ResponseMetadata", {})
        code, status = str(told.get("Code", "")), int(meta.get("HTTPStatusCode") or 0)
        return refused(what, status, code, str(told.get("Message", "")), meta.get("HTTPHeaders", {}), host, bucket)
    name, told = type(error).__name__, scrub(str(error).rstrip("."), 200)
    why, innermost = unanswered(error)
    troubles: tuple[tuple[bool, type[StorageError | UsageError], str], ...] = (
        (name in _NO_CREDENTIALS, StorageError,
         "credentials are missing. Give the options key and secret, or profile, or anon=True for public data"),
        (name in _PROFILES, UsageError, f"{told}. Look at the option profile and at ~/.aws"),
        (name in _SIGNING_IN, StorageError, f"no credentials could be had ({name}). Sign in again, or give the options key and secret"),
        # botocore asks each redirected answer for the bucket's region, and so without end where it is not said.
        (innermost == "RecursionError", StorageError, f"the bucket {bucket!r} is somewhere else. Look at endpoint_url"),
        (why == "no host", StorageError,
         f"unknown host ({host}). Check endpoint_url, the bucket, or the network"),
        (why == "no tls", StorageError, f"{host} does not speak https. Look at endpoint_url"),
        (why == "no trust", StorageError,
         f"no trust in the certificate of {host}. Look at endpoint_url, or give client_kwargs={{'verify': file}}"),
        (why == "proxy", StorageError, _PROXY),
        # It would repeat the values that it does not take.
        (name == "ParamValidationError", UsageError, "an option has a value that S3's client does not take. Look at the options of S3"),
        (name == "NoRegionError", UsageError, "no region is said. Give the option client_kwargs={'region_name': 'eu-west-1'}"),
        (name in _OPTIONS, UsageError, f"{told}. Look at the options of S3"),
    )  # fmt: skip
    for met, kind, said in troubles:
        if met:
            return kind(f"{what}: {said}.")
    return for_now(what, host, why, innermost)
