"""Deleting many objects of S3 by few requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from quire.storage.objects import DELETING
from quire.storage.retry import again
from quire.storage.s3.listing import S3Page

TOGETHER = 1000  # objects of a request, the most that the service takes
# Answers of services that do not know the request, or want it otherwise.
UNKNOWN = ("NotImplemented", "MethodNotAllowed", "MissingContentMD5", "InvalidRequest", "MalformedXML", "InvalidDigest", "AccessDenied")
_NOT_IN_XML = re.compile("[\x00-\x1f\ufffe\uffff]")  # and what its reader would make one space


def delete(keys: Sequence[str], batch: Callable[[dict[str, Any]], Any], one: Callable[[str], None]) -> None:
    """By `batch`; what it does not delete, or its XML cannot say, goes by a request of its own, `one`, which explains what is wrong."""
    alone = [key for key in keys if _NOT_IN_XML.search(key)]
    together = [key for key in keys if not _NOT_IN_XML.search(key)]
    for at in range(0, len(together), TOGETHER):
        some = together[at : at + TOGETHER]
        asked = {"Objects": [{"Key": key} for key in some], "Quiet": True}
        answer = again(lambda: batch(asked))  # noqa: B023  # it is called at once
        failed = [{}] if isinstance(answer, str) else answer.get("Errors", ())
        alone += [error["Key"] for error in failed] if all("Key" in error for error in failed) else some
    with ThreadPoolExecutor(DELETING) as pool:
        list(pool.map(one, alone))


def delete_below(pages: Iterable[S3Page], own: str, batch: Callable[[dict[str, Any]], Any], one: Callable[[str], None]) -> None:
    """All that `pages` of a listing show below the directory `own`, and the directory."""
    folders = {own}
    for page in pages:
        keys = [found.name for found in page.objects]
        delete(keys, batch, one)
        for key in keys:
            while len(key := key.rstrip("/").rpartition("/")[0] + "/") > len(own):
                folders.add(key)
    # Where the service has directories, an empty one is listed until it is deleted by its own name. Deeper ones first.
    for key in sorted(folders, key=len, reverse=True):
        one(key)
