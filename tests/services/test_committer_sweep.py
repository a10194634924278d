"""Uploads that Spark's jobs have left on S3 and Azure: found with their sizes and ages, swept, and refused where they may not be listed."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from quire.committers import advise, inspect_success, sweep
from quire.committers.advice.places import place as place_of
from quire.errors import RefusedError, StorageError
from quire.storage import bare
from quire.storage.azure.rest import BlobRest
from quire.storage.message import Answer
from quire.storage.s3.store import S3Store
from services import s3
from services.azurite import ACCOUNT, connection_string

WHOLE = f"abfs://tests@{ACCOUNT}.dfs.core.windows.net/x"  # as Spark takes it

NAMES = ["part-00000-a.parquet", "p=1/part-00001-a.parquet"]
OURS = "part-1-0123456789abcdef-0-0123456789ab-0.json"  # as quire names its own


@pytest.fixture
def place(seaweedfs: str) -> tuple[str, dict[str, Any], Any, str]:
    """A destination with two uploads of Spark's, one of quire's own, and one beside it."""
    root = uuid.uuid4().hex
    client = s3.client(seaweedfs)
    for name in (*(f"out/{name}" for name in (*NAMES, OURS)), "other/part-00000-b.parquet"):
        begun = client.create_multipart_upload(Bucket=s3.BUCKET, Key=f"{root}/{name}")["UploadId"]
        client.upload_part(Bucket=s3.BUCKET, Key=f"{root}/{name}", UploadId=begun, PartNumber=1, Body=b"x" * 1000)
    return f"s3a://{s3.BUCKET}/{root}/out", s3.options(seaweedfs), client, root


def open_below(client: Any, root: str) -> list[str]:
    return sorted(found["Key"] for found in client.list_multipart_uploads(Bucket=s3.BUCKET, Prefix=root).get("Uploads", ()))


def test_uploads_are_found_with_what_they_cost(place: Any) -> None:
    url, options, _, _ = place
    told = inspect_success(url, storage_options=options)
    assert sorted((item.name, item.files, item.bytes) for item in told.uploads) == sorted((name, 1, 1000) for name in NAMES)
    assert all(0 <= item.age < 300 for item in told.uploads)
    assert told.cost == 2000
    assert any("uploads wait to be completed" in warning for warning in told.warnings)
    assert "handle" not in str(told.as_dict())


def test_uploads_of_a_moment_ago_may_be_a_jobs_that_runs(place: Any) -> None:
    url, options, client, root = place
    with pytest.raises(RefusedError, match=r"upload of .*part-0000.* s ago, so a job may be running"):
        sweep(url, dry_run=False, storage_options=options)
    assert len(open_below(client, root)) == 4


def test_sweeping_takes_uploads_of_the_destination_and_leaves_quires_own(place: Any) -> None:
    url, options, client, root = place
    assert len(sweep(url, min_age=0, storage_options=options).uploads) == 2
    assert len(open_below(client, root)) == 4
    told = sweep(url, dry_run=False, min_age=0, storage_options=options)
    assert told.bytes == 2000
    assert open_below(client, root) == [f"{root}/other/part-00000-b.parquet", f"{root}/out/{OURS}"]


def test_the_marker_of_a_directory_that_hadoop_leaves_is_no_file(place: Any) -> None:
    url, options, client, root = place
    for name in ("", "p=1/", "__magic_job-x/"):
        client.put_object(Bucket=s3.BUCKET, Key=f"{root}/out/{name}", Body=b"")
    client.put_object(Bucket=s3.BUCKET, Key=f"{root}/out/part-00000-x.csv", Body=b"x")
    told = inspect_success(url, storage_options=options)
    assert (told.files, told.folders) == (1, ())


def test_a_bucket_whose_uploads_may_not_be_listed(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url, options, client, root = place
    client.put_object(Bucket=s3.BUCKET, Key=f"{root}/out/_temporary/0/x", Body=b"x")
    real = S3Store._do

    def refused(self: S3Store, operation: str, *args: Any, **kwargs: Any) -> Any:
        if operation == "list_multipart_uploads":
            raise StorageError("cannot list the uploads: AccessDenied. Ask for the right.")
        return real(self, operation, *args, **kwargs)

    monkeypatch.setattr(S3Store, "_do", refused)
    told = inspect_success(url, storage_options=options)
    assert "AccessDenied" in told.unseen
    assert "cannot be seen" in str(told)
    with pytest.raises(StorageError, match=r"nothing was removed.*s3:ListBucketMultipartUploads"):
        sweep(url, dry_run=False, min_age=0, storage_options=options)
    assert client.list_objects_v2(Bucket=s3.BUCKET, Prefix=f"{root}/out/_temporary")["KeyCount"] == 1


def test_blocks_on_azure_go_by_themselves_and_are_left(azurite_endpoint: str) -> None:
    options = {"connection_string": connection_string(azurite_endpoint)}
    url = f"abfs://tests/{uuid.uuid4().hex}/out"
    store = bare(url, options)
    sink = store.upload("part-00000-a.parquet")
    sink.write(b"x" * 10)
    sink.close()
    told = sweep(url, dry_run=False, storage_options=options)
    assert told.expire
    assert [item.name for item in told.uploads] == ["part-00000-a.parquet"]
    assert store.complete("part-00000-a.parquet", sink.handle), "it is still there"


@pytest.mark.parametrize(("header", "kind"), [("true", "abfs_hns"), ("false", "abfs_flat"), (None, "abfs")])
def test_the_account_is_asked_whether_it_has_directories(
    azurite_endpoint: str, monkeypatch: pytest.MonkeyPatch, header: str | None, kind: str
) -> None:
    """An emulator does not say; a service says it in a header, which is put in its place."""
    options, url = {"connection_string": connection_string(azurite_endpoint)}, WHOLE
    assert place_of(url).kind == "abfs", "nobody can be asked without options"
    real = BlobRest.send

    def sent(*args: Any, **kwargs: Any) -> Answer:
        answer = real(*args, **kwargs)
        more = f"x-ms-is-hns-enabled: {header}\r\n" if header else ""
        return Answer(answer.status, answer._head + more.encode(), answer.body)

    monkeypatch.setattr(BlobRest, "send", sent)
    assert place_of(url, options=options).kind == kind
    assert place_of(url, hierarchical=True, options=options).kind == "abfs_hns", "who says it is not asked"


def test_an_account_that_may_not_be_asked_gets_advice_for_both_kinds(azurite_endpoint: str) -> None:
    wrong = {"connection_string": connection_string(azurite_endpoint).replace("AccountKey=", "AccountKey=AAAA")}
    advice = advise(WHOLE, storage_options=wrong)
    assert any("not known" in text for text in advice.why)
