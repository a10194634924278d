"""Which kind of store a URL means to Spark, and the URL that Spark must be given for it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from quire.errors import StorageError, UsageError, about, choose, quoted, scrub
from quire.storage import bare, normalise

Options = Mapping[str, object] | None

KINDS = {
    "local": "local disk",
    "hdfs": "HDFS",
    "s3": "S3 through s3a",
    "emr": "S3 on Amazon EMR",
    "abfs": "Azure storage, namespace not known",
    "abfs_hns": "Azure Data Lake storage (hierarchical namespace)",
    "abfs_flat": "Azure Blob storage (flat namespace)",
    "gcs": "Google Cloud Storage",
    "oss": "Alibaba Cloud OSS",
    "dbfs": "Databricks: DBFS or a Unity Catalog volume",
}
EACH_ITS_OWN = "each task leaves its files on the disk of its own machine, and the driver commits those of its own"
_AZURE = ("abfs", "abfss", "az", "wasb", "wasbs")
SCHEMES = {
    "file": "local", "hdfs": "hdfs", "webhdfs": "hdfs", "s3": "s3", "s3a": "s3", **dict.fromkeys(_AZURE, "abfs"), "gs": "gcs", "oss": "oss",
    "dbfs": "dbfs",
}  # fmt: skip
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_ALMOST = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(?::(?!/)|;/|//)")  # s3a:bucket, s3a;//bucket, s3a//bucket
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_NAMENODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?::\d{1,5})?")  # or a name service


@dataclass(frozen=True)
class SparkPlace:
    """A destination as Spark sees it: `kind` is one of KINDS, `url` what Spark must be given, `note` why that is another URL."""

    kind: str
    url: str
    scheme: str
    bucket: str = ""
    note: str = ""


def place(url: object, *, hierarchical: bool | None = None, emr: bool = False, default: str = "", options: Options = None) -> SparkPlace:
    """The place that a URL means. Raises UsageError for a scheme that Spark's committers do not know, or a URL that names no place.

    `hierarchical=None` asks the account of an Azure URL if `options` reach it; a refusal leaves the kind `abfs`. `emr`: s3:// is EMRFS.
    `default`: the file system in which Spark looks for a path without a scheme; here it would mean local disk.
    """
    with about("url"):
        url = os.fspath(url) if isinstance(url, os.PathLike) else url
        if not isinstance(url, str) or not url:
            raise UsageError(f"expected a URL, not {quoted(url)}. Give for example 's3a://bucket/path' or '/data/out'.")
        if hierarchical is not None and not isinstance(hierarchical, bool):
            raise UsageError(f"hierarchical= takes True, False or None, not {quoted(hierarchical)}: None is where it is not known.")
        _typed(url)
        match = _SCHEME.match(url)
        scheme = match[1].lower() if match else "file"
        if match is None and default and not default.startswith("file:"):
            theirs = scrub(default.rstrip("/") + (url if url.startswith("/") else f"/…/{url}"), 200)
            raise UsageError(f"to this session {scrub(url, 200)!r} is {theirs}: write that URL, or file:///… for local disk.")
        choose(scheme, SCHEMES, "kind of store")
        if hierarchical is not None and SCHEMES[scheme] != "abfs":
            raise UsageError(f"hierarchical= is about accounts of Azure storage, and {scrub(url, 100)} is none: leave it out.")
        if scheme in ("gs", "oss", "hdfs"):
            return _unopened(url, scheme)
        if scheme == "dbfs":
            return _databricks(url)
        whole = normalise(url)
    if scheme in ("file", "webhdfs"):
        return SparkPlace(SCHEMES[scheme], whole, scheme)
    if scheme in ("s3", "s3a"):
        bucket = whole.partition("://")[2].partition("/")[0]
        if emr and scheme == "s3":
            return SparkPlace("emr", whole, "s3", bucket)
        note = "Spark outside of EMR knows no s3://: write s3a://." if scheme == "s3" else ""
        return SparkPlace("emr" if emr else "s3", "s3a" + whole[whole.index("://") :], "s3a", bucket, note)
    return _azure(whole, scheme, hierarchical, options)


def _typed(url: str) -> None:
    """A cloud's URL with a slip would be the name of a directory here, and its advice that of local disk."""
    if url != url.strip():
        raise UsageError(f"{scrub(url, 200)!r} begins or ends with a blank: take it away.")
    almost = _ALMOST.match(url)
    if almost and almost[1].lower() in SCHEMES:
        meant = scrub(f"{almost[1]}://{url[almost.end() :].lstrip('/') or '…'}", 200)
        raise UsageError(f"what begins with {almost[0]!r} is not a URL: write {meant}. Or begin with ./, for a path on local disk.")


def _unopened(url: str, scheme: str) -> SparkPlace:
    """Where quire itself may open nothing: Google's and Alibaba's, and HDFS by its own protocol."""
    host, slash, path = url.partition("://")[2].partition("/")
    what = "namenode" if scheme == "hdfs" else "bucket"
    if not (_NAMENODE if scheme == "hdfs" else _BUCKET).fullmatch(host) or not url.isprintable() or set("?#") & set(path):
        raise UsageError(f"{scrub(url, 200)!r} names no {what}, or no path in it: write {scheme}://{what}/path.")
    return SparkPlace(SCHEMES[scheme], f"{scheme}://{host}{slash}{path}".rstrip("/"), scheme, "" if scheme == "hdfs" else host)


def _databricks(url: str) -> SparkPlace:
    """DBFS has no host; a volume is a directory in it, `dbfs:/Volumes/catalog/schema/volume`."""
    path = "/" + url.partition(":")[2].strip("/")
    parts = path.split("/")[1:]
    if not url.isprintable() or (url.startswith("dbfs://") and not url.startswith("dbfs:///")) or path == "/":
        raise UsageError(f"{scrub(url, 200)!r} names no directory of DBFS: write dbfs:/path, or dbfs:/Volumes/catalog/schema/volume/path.")
    if parts[0] == "Volumes" and len(parts) < 4:
        raise UsageError(f"{scrub(url, 200)!r} names no volume: write dbfs:/Volumes/catalog/schema/volume/path.")
    return SparkPlace("dbfs", f"dbfs:{path}", "dbfs")


def _azure(whole: str, scheme: str, hierarchical: bool | None, options: Options) -> SparkPlace:
    kept = scheme if scheme in ("abfs", "abfss") else "abfss"
    note = f"Spark's Azure file system is abfs: write {kept}:// instead of {scheme}://." if kept != scheme else ""
    container, slash, path = whole.partition("://")[2].partition("/")
    name, _, host = container.partition("@")
    if "." not in host:
        account = host or str((options or {}).get("account_name") or "ACCOUNT")
        where = scrub(f"{kept}://{name}@{account}.dfs.core.windows.net{slash}{path}", 200)
        raise UsageError(f"Spark finds an account of Azure storage by the URL alone: write {where}, with the account's whole name.")
    if hierarchical is None and options:
        hierarchical = _asked(whole, options)
    kind = "abfs" if hierarchical is None else "abfs_hns" if hierarchical else "abfs_flat"
    return SparkPlace(kind, f"{kept}://{container}{slash}{path}", kept, note=note)


def _asked(whole: str, options: Options) -> bool | None:
    """Whether an account has directories of its own, as its service says; None where it does not say or may not be asked."""
    from quire.storage.azure.store import AzureStore

    try:
        store = bare(whole, options)
        assert isinstance(store, AzureStore)
        what = f"cannot ask the account of {whole}"
        said = store.rest.send("HEAD", what, query={"restype": "account", "comp": "properties"}).headers.get("x-ms-is-hns-enabled")
    except StorageError:
        return None
    return None if said is None else said.lower() == "true"
