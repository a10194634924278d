"""A new place on a service, for tests of bad input: quire's main job from it and into it, and the service's own client beside it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow.parquet as pq
from azure.storage.blob import BlobServiceClient

import quire
from gathering import documents, gather, refused
from quire.commit.log import Log
from quire.errors import QuireError, StorageError
from quire.storage import Store, bare, canonical
from services import s3
from services.azurite import KEY, connection_string

if TYPE_CHECKING:
    import pytest

__all__ = ["FILES", "LINES", "WRONG", "Site", "both_ways", "line", "lines", "sites"]

FILES = documents(12)
LINES = sorted(text for content in FILES.values() for text in content.decode().splitlines())
WRONG = "aHVudGVyMi1odW50ZXIyLWh1bnRlcjI="  # a key that is none
SECRETS = (KEY, WRONG, s3.SECRET, "hunter2", "sig=")


class Site:
    """Below a folder that nobody has used."""

    def __init__(self, kind: str, endpoint: str) -> None:
        self.kind, self.endpoint, self.path = kind, endpoint, uuid.uuid4().hex
        self.azure = kind == "azurite"
        self.top = f"{'abfs' if self.azure else 's3'}://tests"
        self.options: dict[str, Any] = self.reached(endpoint)
        self.url = canonical(f"{self.top}/{self.path}", self.options)
        if self.azure:
            self.service = BlobServiceClient.from_connection_string(self.options["connection_string"])
        self.client: Any = self.service.get_container_client("tests") if self.azure else s3.client(endpoint)

    def reached(self, endpoint: str) -> dict[str, Any]:
        """The options for another way to it."""
        return {"connection_string": connection_string(endpoint)} if self.azure else s3.options(endpoint)

    def store(self, folder: str = "in") -> Store:
        return bare(f"{self.url}/{folder}", self.options)

    def fill(self) -> None:
        for name, data in FILES.items():
            self.store().put(name, data)

    def put(self, name: str, data: bytes, **more: Any) -> None:
        """Below `in`, by the service's own client, as it calls things."""
        if self.azure:
            self.blob(f"in/{name}").upload_blob(data, overwrite=True, **more)
        else:
            self.client.put_object(Bucket=s3.BUCKET, Key=f"{self.path}/in/{name}", Body=data, **more)

    def blob(self, name: str) -> Any:
        return self.client.get_blob_client(f"{self.path}/{name}")

    def gather(self, out: Path, **more: Any) -> quire.Report:
        """From `in` to a local disk, each file as it lies there."""
        return gather(f"{self.url}/in", out, **{"transform": "raw", "target_size": "400 B", "source_options": self.options, **more})

    def gathered(self, out: Path) -> dict[str, bytes]:
        """What was gathered there from `in`, each file once, read without quire."""
        rows = [row for segment in (out / "_quire/ledger").iterdir() for row in pq.read_table(segment).to_pylist()]
        found = dict[str, bytes]()
        for row in sorted((row for row in rows if row["state"] == "done"), key=lambda row: row["start"]):
            name = row["path"].removeprefix(f"{self.url}/in/")
            assert row["start"] == len(found.get(name, b"")), name
            data = (out / row["data_file"]).read_bytes()[row["offset"] :][: row["written"]] if row["data_file"] else b""
            found[name] = found.get(name, b"") + data
        return found


def sites(request: pytest.FixtureRequest, kind: str) -> Iterator[Site]:
    """One of a kind, for as long as a test lasts."""
    made = Site(kind, request.getfixturevalue("azurite_endpoint" if kind == "azurite" else kind))
    yield made
    if made.azure:
        made.service.close()


@contextmanager
def line(*words: str, kind: type[QuireError] = StorageError) -> Iterator[None]:
    """One line that holds the words and no secret, in whatever way it may be written."""
    with refused(kind, 3, *words):
        try:
            yield
        except QuireError as e:
            if any(said in str(e) for secret in SECRETS for said in (secret, quote(secret, ""), quote(quote(secret, "")))):
                raise AssertionError("a secret is told") from None
            raise


def both_ways(url: str, options: Mapping[str, Any], local: Path, out: Path, *words: str, kind: type[QuireError] = StorageError) -> None:
    """As a source and as a destination of the main job: the same line, and nothing half made."""
    with line(*words, kind=kind):
        gather(f"{url}/in", out, source_options=options)
    assert not out.exists()
    with line(*words, kind=kind):
        gather(local, f"{url}/out", dest_options=options)


def lines(store: Store) -> list[str]:
    """What is committed in a destination; what its directories show is the same."""
    log = Log(store).refresh()
    files = [file.name for _, c in log.commits() for task in log.in_effect(c, reader=True) for file in task.data_files]
    assert sorted(files) == sorted(e.name for e in store.walk() if not e.name.startswith("_quire/"))
    return sorted(text for name in files for text in store.get(name).decode().splitlines())
