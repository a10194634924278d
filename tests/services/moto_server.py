"""moto's server, for one port, which says of a completed or dropped upload what AWS says: `python moto_server.py PORT`."""

from __future__ import annotations

import sys
import threading
from typing import Any

from moto.s3.exceptions import NoSuchUpload
from moto.s3.models import S3Backend
from moto.server import main

_real, _lock = S3Backend.complete_multipart_upload, threading.Lock()


def complete(self: S3Backend, bucket_name: str, multipart_id: str, body: Any) -> Any:
    """moto fails with a KeyError where there is no such upload, and lets two callers complete one at once."""
    with _lock:
        if multipart_id not in self.get_bucket(bucket_name).multiparts:
            raise NoSuchUpload(upload_id=multipart_id)
        return _real(self, bucket_name, multipart_id, body)


S3Backend.complete_multipart_upload = complete  # type: ignore[method-assign]
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
