"""Hudi's storage lock on a service that speaks S3, beside writers that follow Hudi's own rules by boto3."""

from __future__ import annotations

import json
import threading
import time
import uuid
from typing import Any

import pyarrow as pa
from botocore.exceptions import ClientError

import quire
from quire.table import storage_lock
from services import s3


class Jvm:
    """`StorageBasedLockProvider` with `S3StorageLockClient`: a read, then a put on condition of the etag."""

    def __init__(self, endpoint: str, key: str) -> None:
        self.client, self.key, self.owner = s3.client(endpoint), key, f"jvm-{uuid.uuid4()}"

    def read(self) -> tuple[str, dict[str, Any]]:
        found = self.client.get_object(Bucket=s3.BUCKET, Key=self.key)
        return found["ETag"], json.loads(found["Body"].read())

    def put(self, expired: bool, **condition: str) -> str | None:
        said = {"expired": expired, "validUntil": int(time.time() * 1000) + 300_000, "owner": self.owner}
        try:
            return str(self.client.put_object(Bucket=s3.BUCKET, Key=self.key, Body=json.dumps(said).encode(), **condition)["ETag"])
        except ClientError as e:
            if e.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412):
                return None
            raise

    def try_lock(self) -> str | None:
        etag, there = self.read()
        return self.put(False, IfMatch=etag) if there["expired"] else None


def test_calls_and_writers_on_the_jvm_come_one_after_the_other(seaweedfs: str) -> None:
    place = uuid.uuid4().hex
    table = quire.Table.create(f"s3://{s3.BUCKET}/{place}", key="id", storage_options=s3.options(seaweedfs))
    jvm = Jvm(seaweedfs, f"{place}/{storage_lock.NAME}")
    assert jvm.put(True, IfNoneMatch="*")
    inside, ended = list[str](), threading.Event()

    def beside() -> None:
        """Hold the lock again and again; while it is held, nothing of quire's appears."""
        while not ended.is_set():
            if (etag := jvm.try_lock()) is not None:
                before = shown()
                time.sleep(0.05)
                inside.append("same" if shown() == before else "changed")
                assert jvm.put(True, IfMatch=etag), "nobody else has it"
            time.sleep(0.05)

    def shown() -> set[str]:
        found = jvm.client.list_objects_v2(Bucket=s3.BUCKET, Prefix=f"{place}/.hoodie/").get("Contents", ())
        return {each["Key"] for each in found if each["Key"].endswith((".commit", ".inflight"))}

    writer = threading.Thread(target=beside)
    writer.start()
    try:
        for number in range(3):
            rows = pa.table({"id": [f"{number}"]})
            table.upsert(rows, spark=quire.LocalRunner(), progress=False)
    finally:
        ended.set()
        writer.join()
    assert len(shown()) == 6
    assert inside
    assert set(inside) == {"same"}
    _, there = jvm.read()
    assert there["expired"]
    assert table.snapshot(spark=quire.LocalRunner()).num_rows == 3
