"""What lies on a service, seen by other clients than quire's: for witnesses, and for tests that take something away."""

from __future__ import annotations

import json
import posixpath
import re
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol

import urllib3

from services import gcs, s3
from services.azurite import ACCOUNT, connection_string
from services.hdfs import HOME, SUPERUSER, USER, Cluster

__all__ = ["S3", "Azure", "Gcs", "Hdfs", "Outside", "on_azurite", "on_gcs", "on_hdfs", "on_s3"]


class Objects(Mapping[str, bytes]):
    """A listing; content is fetched when it is asked for, once for each version."""

    def __init__(self, listed: dict[str, str], fetch: Callable[[str], bytes], known: dict[tuple[str, str], bytes]) -> None:
        self.listed, self.fetch, self.known = listed, fetch, known

    def __getitem__(self, name: str) -> bytes:
        key = name, self.listed[name]
        if key not in self.known:
            self.known[key] = self.fetch(name)
        return self.known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.listed)

    def __len__(self) -> int:
        return len(self.listed)


class Outside(Protocol):
    """A place on a service."""

    url: str
    path: str
    options: dict[str, Any]

    def listed(self) -> dict[str, str]:
        """Name → version, as quire's ledger has it."""
        ...

    def fetch(self, name: str) -> bytes: ...

    def put(self, name: str, data: bytes) -> None: ...

    def waiting(self) -> list[str]: ...

    def folders(self) -> list[str]: ...

    def objects(self) -> Mapping[str, bytes]: ...


class _Outside:
    def __init__(self) -> None:
        self._known = dict[tuple[str, str], bytes]()

    def objects(self: Any) -> Mapping[str, bytes]:
        return Objects(self.listed(), self.fetch, self._known)

    def folders(self) -> list[str]:
        """Directories, where the service has them."""
        return []


class Azure(_Outside):
    """Below a folder of a container."""

    def __init__(self, endpoint: str, container: str, folder: str = "out") -> None:
        from azure.storage.blob import ContainerClient

        super().__init__()
        self.url, self.path, self.prefix = f"abfs://{container}/{folder}", f"/{ACCOUNT}/{container}/{folder}", f"{folder}/"
        self.options = {"connection_string": connection_string(endpoint)}
        self.client: Any = ContainerClient.from_connection_string(self.options["connection_string"], container)

    def listed(self) -> dict[str, str]:
        return {b.name[len(self.prefix) :]: b.etag.strip('"') for b in self.client.list_blobs(name_starts_with=self.prefix)}

    def fetch(self, name: str) -> bytes:
        return bytes(self.client.download_blob(self.prefix + name).readall())

    def put(self, name: str, data: bytes) -> None:
        self.client.upload_blob(self.prefix + name, data, overwrite=True)

    def waiting(self) -> list[str]:
        found = self.client.list_blobs(name_starts_with=self.prefix, include=["uncommittedblobs"])
        return sorted({b.name[len(self.prefix) :] for b in found} - set(self.listed()))

    def expire(self) -> None:
        for name in self.waiting():  # a whole blob takes the place of blocks
            self.put(name, b"")
            self.client.delete_blob(self.prefix + name)


class S3(_Outside):
    """Below a folder of the bucket."""

    def __init__(self, endpoint: str, folder: str) -> None:
        super().__init__()
        self.url, self.path, self.prefix = f"s3://{s3.BUCKET}/{folder}", f"/{s3.BUCKET}/{folder}", f"{folder}/"
        self.options = s3.options(endpoint)
        self.client = s3.client(endpoint)

    def listed(self) -> dict[str, str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=s3.BUCKET, Prefix=self.prefix)
        return {o["Key"][len(self.prefix) :]: o["ETag"].strip('"') for page in pages for o in page.get("Contents", ())}

    def fetch(self, name: str) -> bytes:
        return bytes(self.client.get_object(Bucket=s3.BUCKET, Key=self.prefix + name)["Body"].read())

    def put(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=s3.BUCKET, Key=self.prefix + name, Body=data)

    def _uploads(self) -> list[tuple[str, str]]:
        found = self.client.list_multipart_uploads(Bucket=s3.BUCKET, Prefix=self.prefix).get("Uploads", ())
        return [(u["Key"], u["UploadId"]) for u in found if u["Key"].startswith(self.prefix)]

    def waiting(self) -> list[str]:
        return [key[len(self.prefix) :] for key, _ in self._uploads()]

    def expire(self) -> None:
        for key, upload in self._uploads():
            self.client.abort_multipart_upload(Bucket=s3.BUCKET, Key=key, UploadId=upload)

    def end(self) -> None:
        self.expire()
        for name in self.listed():
            self.client.delete_object(Bucket=s3.BUCKET, Key=self.prefix + name)


class Gcs(_Outside):
    """Below a folder of the bucket. What is deleted or given up goes by the service's own interface."""

    _PIECES = re.compile(r"(?:\.hoodie/)?_quire/pieces/(.+)/[0-9a-f]{32}/[^/]+", re.DOTALL)

    def __init__(self, endpoint: str, folder: str) -> None:
        super().__init__()
        self.url, self.prefix, self.endpoint = f"gs://{gcs.BUCKET}/{folder}", f"{folder}/", endpoint
        self.path = f"/{gcs.BUCKET}/o/{folder}"
        self.options = gcs.options(endpoint)
        self.kept = urllib3.PoolManager(headers={"Authorization": f"Bearer {gcs.TOKEN}"})

    def _at(self, name: str) -> str:
        return f"{self.endpoint}/storage/v1/b/{gcs.BUCKET}/o/{urllib.parse.quote(self.prefix + name, safe='')}"

    def _all(self) -> dict[str, str]:
        found, token = dict[str, str](), ""
        while True:
            query = urllib.parse.urlencode({"prefix": self.prefix, **({"pageToken": token} if token else {})})
            page = json.loads(self.kept.request("GET", f"{self.endpoint}/storage/v1/b/{gcs.BUCKET}/o?{query}").data)
            found |= {item["name"][len(self.prefix) :]: item["generation"] for item in page.get("items", ())}
            token = page.get("nextPageToken", "")
            if not token:
                return found

    def listed(self) -> dict[str, str]:
        return {name: generation for name, generation in self._all().items() if not self._PIECES.fullmatch(name)}

    def fetch(self, name: str) -> bytes:
        return bytes(self.kept.request("GET", f"{self._at(name)}?alt=media").data)

    def put(self, name: str, data: bytes) -> None:
        query = urllib.parse.urlencode({"uploadType": "media", "name": self.prefix + name})
        self.kept.request("POST", f"{self.endpoint}/upload/storage/v1/b/{gcs.BUCKET}/o?{query}", body=data)

    def waiting(self) -> list[str]:
        found = (self._PIECES.fullmatch(name) for name in self._all())
        return sorted({match[1] for match in found if match} - set(self.listed()))

    def expire(self) -> None:
        for name in self._all():
            if self._PIECES.fullmatch(name):
                self.kept.request("DELETE", self._at(name))

    def end(self) -> None:
        for name in self._all():
            self.kept.request("DELETE", self._at(name))


class Refused(OSError):
    """HDFS does not give what was asked for; its first argument is the status of HTTP."""


class Hdfs(_Outside):
    """Below a directory of Alice's; the superuser looks."""

    def __init__(self, cluster: Cluster, folder: str) -> None:
        super().__init__()
        self.root = f"{HOME}/{folder}"
        self.url, self.path, self.netloc = f"{cluster.url}{self.root}", self.root, cluster.netloc
        self.options: dict[str, Any] = {"user": USER}
        self.kept = urllib3.PoolManager()

    def _ask(self, method: str, op: str, name: str = "", data: bytes | None = None, user: str = SUPERUSER, **query: str) -> bytes:
        asked = urllib.parse.urlencode({"op": op, "user.name": user, **query})
        path = urllib.parse.quote(posixpath.normpath(f"{self.root}/{name}"))
        # Connections are kept: whoever looks after each change asks tens of thousands of times.
        return self._sent(method, f"http://{self.netloc}/webhdfs/v1{path}?{asked}", data)

    def _sent(self, method: str, url: str, data: bytes | None) -> bytes:
        # Connections are kept: whoever looks after each change asks tens of thousands of times.
        try:
            answer = self.kept.request(method, url, body=data, timeout=60)
        except urllib3.exceptions.HTTPError as e:
            raise ConnectionError(f"{method} {url}: {e}") from e
        if answer.status >= 400:
            raise Refused(answer.status, f"{method} {url}: {answer.data[:300]!r}")
        return bytes(answer.data)

    def _walk(self) -> Iterator[tuple[str, Any]]:
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                found = json.loads(self._ask("GET", "LISTSTATUS", folder))["FileStatuses"]["FileStatus"]
            except Refused as e:
                if e.errno != 404:
                    raise
                continue  # it was removed in the meantime, or is not there yet
            for status in found:
                name = f"{folder}/{status['pathSuffix']}".lstrip("/")
                if status["type"] == "DIRECTORY":
                    folders.append(name)
                yield name, status

    def listed(self) -> dict[str, str]:
        found = ((name, status) for name, status in self._walk() if status["type"] == "FILE")
        return {name: f"{s['modificationTime']}-{s['length']}-{s['fileId']}" for name, s in found}

    def folders(self) -> list[str]:
        return [name for name, status in self._walk() if status["type"] == "DIRECTORY"]

    def fetch(self, name: str) -> bytes:
        try:
            return self._ask("GET", "OPEN", name)
        except Refused as e:
            if "EOFException" not in str(e):
                raise
            return self._ask("GET", "OPEN", name)  # the datanode has noticed now that its namenode is another process

    def put(self, name: str, data: bytes) -> None:
        """In one step for whoever lists: written elsewhere, and renamed."""
        new = f"../.new-{uuid.uuid4().hex}"
        where = json.loads(self._ask("PUT", "CREATE", new, user=USER, noredirect="true"))["Location"]
        self._sent("PUT", where, data)
        self._ask("PUT", "MKDIRS", name.rpartition("/")[0], user=USER)
        self._ask("PUT", "RENAME", new, user=USER, destination=f"{self.root}/{name}")

    def waiting(self) -> list[str]:
        """HDFS holds no uploads."""
        return []

    def expire(self) -> None:
        """There is nothing that could."""

    def end(self) -> None:
        self._ask("DELETE", "DELETE", recursive="true")


# ------------------------------------------------------------------------------------- a new place for each run of a test
@contextmanager
def _azure(endpoint: str) -> Iterator[Azure]:
    place = Azure(endpoint, f"run-{uuid.uuid4().hex}")
    place.client.create_container()
    try:
        yield place
    finally:
        place.client.delete_container()  # with the blocks that wait in it


@contextmanager
def _ending(made: Callable[[str], S3 | Gcs | Hdfs]) -> Iterator[S3 | Gcs | Hdfs]:
    place = made(f"{uuid.uuid4().hex}/out")
    try:
        yield place
    finally:
        place.end()


def on_azurite(endpoint: str) -> Callable[[], AbstractContextManager[Azure]]:
    return partial(_azure, endpoint)


def on_s3(endpoint: str) -> Callable[[], AbstractContextManager[S3 | Gcs | Hdfs]]:
    return partial(_ending, partial(S3, endpoint))


def on_gcs(endpoint: str) -> Callable[[], AbstractContextManager[S3 | Gcs | Hdfs]]:
    return partial(_ending, partial(Gcs, endpoint))


def on_hdfs(cluster: Cluster) -> Callable[[], AbstractContextManager[S3 | Gcs | Hdfs]]:
    return partial(_ending, partial(Hdfs, cluster))
