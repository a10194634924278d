"""moto's server, for one port, which answers as AWS does where moto does not: `python moto_server.py PORT`."""

from __future__ import annotations

import sys
import threading
from typing import Any

from moto.s3.exceptions import NoSuchUpload
from moto.s3.models import S3Backend
from moto.s3.responses import S3Response
from moto.server import main
from moto.sqs.models import Queue

_complete, _lock = S3Backend.complete_multipart_upload, threading.Lock()


def complete(self: S3Backend, bucket_name: str, multipart_id: str, body: Any) -> Any:
    """moto fails with a KeyError where there is no such upload."""
    if multipart_id not in self.get_bucket(bucket_name).multiparts:
        raise NoSuchUpload(upload_id=multipart_id)
    return _complete(self, bucket_name, multipart_id, body)


def one_at_a_time(kind: type, name: str) -> None:
    """moto looks and then changes what it holds: of two callers at once, both may be told that theirs is there, or one's change is lost."""
    answer = getattr(kind, name)

    def locked(*args: Any, **kwargs: Any) -> Any:
        with _lock:
            return answer(*args, **kwargs)

    setattr(kind, name, locked)


S3Backend.complete_multipart_upload = complete  # type: ignore[method-assign]
one_at_a_time(S3Response, "put_object")  # an object at once
one_at_a_time(S3Response, "_key_response_post")  # a completed upload
one_at_a_time(Queue, "delete_message")  # else messages that are deleted at once with others come back
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
