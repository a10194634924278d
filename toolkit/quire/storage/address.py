"""The addresses by which other programs know a place: quire's own URLs name how it gets there."""

from __future__ import annotations

import re
from typing import Any

from quire.errors import UsageError, quoted, scrub

_LOCATION = re.compile(r"[a-z][a-z0-9+.-]*:/[^\x00-\x1f\ud800-\udfff]+")


def readable(url: str, given: Any, s3: str = "s3a") -> str:
    """The URL by which readers find a place: the one that is given, or its own where others know it; UsageError else.

    `s3`: the scheme of S3 for these readers, which Hadoop calls `s3a`.
    """
    if given is not None:
        if not isinstance(given, str) or not _LOCATION.fullmatch(given) or scrub(given, len(given)) != given:
            raise UsageError(
                "location takes the place's URL as its readers write it, without a secret, as 'hdfs://host:8020/trips', and not "
                f"{quoted(given, 80)}"
            )
        return given.rstrip("/")
    scheme, _, rest = url.partition("://")
    if scheme == "s3":
        return f"{s3}://{rest}"
    if scheme in ("file", "gs") or (scheme == "abfs" and "@" in rest.partition("/")[0]):
        return url
    raise UsageError(f"other programs do not know {url} by this URL: give location=, as 'hdfs://host:8020/trips'.")
