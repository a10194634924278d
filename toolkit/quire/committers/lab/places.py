"""A destination as quire and as Hadoop's clients name it, with the credentials of the one as the settings of the other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quire.committers.lab.watch import LabPlace
from quire.errors import RefusedError, UsageError, about
from quire.storage import canonical, connect
from quire.storage.secret import resolved


def place_of(store: str | os.PathLike[str] | None, scratch: Path, options: Mapping[str, Any] | None) -> LabPlace:
    """The place below which the lab writes; RefusedError if there is anything."""
    if options is not None and not isinstance(options, Mapping):
        raise UsageError(f"storage_options is a dictionary of options for the store, not {type(options).__name__}.")
    with about("store"):
        url = canonical(scratch / "store" if store is None else store, options)
        kind = url.partition(":")[0]
        if kind not in ("file", "s3", "abfs"):
            raise UsageError(f"the lab works on local disk, S3 and Azure Blob, not on {kind}://. Leave store= out, or name one of these.")
        opened = connect(url, options)
        if next(iter(opened.walk()), None) is not None:
            raise RefusedError(f"{opened.url} holds files already, and the lab kills jobs that write there. Name an empty destination.")
    values = dict(resolved(options) or {})
    if kind == "s3":
        return LabPlace(url, f"s3a:{url.partition(':')[2]}", values, _s3a(values))
    if kind == "abfs":
        return LabPlace(url, *_abfs(url, values))
    return LabPlace(url, url)


def _s3a(options: Mapping[str, Any]) -> dict[str, str]:
    """Options of s3fs, as S3A's settings."""
    found = {"fs.s3a.path.style.access": "true", "fs.s3a.attempts.maximum": "3", "fs.s3a.retry.limit": "3"}
    for ours, theirs in (("key", "access.key"), ("secret", "secret.key"), ("token", "session.token"), ("endpoint_url", "endpoint")):
        if value := options.get(ours):
            found[f"fs.s3a.{theirs}"] = str(value)
    if str(options.get("endpoint_url", "")).startswith("http://"):
        found["fs.s3a.connection.ssl.enabled"] = "false"
    region = (options.get("client_kwargs") or {}).get("region_name")
    if region:
        found["fs.s3a.endpoint.region"] = str(region)
    return found


def _abfs(url: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Options of adlfs, as ABFS's settings: for an account without hierarchical names, by its Blob endpoint."""
    parts = dict(part.partition("=")[::2] for part in str(options.get("connection_string", "")).split(";") if "=" in part)
    account = str(options.get("account_name") or parts.get("AccountName") or "")
    key = str(options.get("account_key") or parts.get("AccountKey") or "")
    container, _, path = url.removeprefix("abfs://").partition("/")
    host = f"{account}.dfs.core.windows.net"
    hadoop = {f"fs.azure.account.key.{account}.{kind}.core.windows.net": key for kind in ("dfs", "blob")}
    hadoop |= {"fs.azure.account.hns.enabled": "false", "fs.azure.fns.account.service.type": "BLOB"}
    endpoint = parts.get("BlobEndpoint", "")
    if endpoint.startswith("http://"):
        hadoop |= {
            "fs.azure.abfs.endpoint": endpoint.removeprefix("http://").partition("/")[0], "fs.azure.always.use.https": "false",
            "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",  # the other one cannot do without TLS
        }  # fmt: skip
    return f"abfs://{container.partition('@')[0]}@{host}/{path}", dict(options), hadoop
