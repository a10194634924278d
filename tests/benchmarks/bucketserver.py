"""A server that speaks as much of S3 as reading and listing ask for, after a delay, and fast: see `blobserver.py`.

    python tests/benchmarks/bucketserver.py --delay 0.14        # prints its port, and serves until its input ends

Every object `<any prefix>00000000` … of every bucket has the same content and etag, and a bucket cannot be changed.
"""

from __future__ import annotations

import argparse
from bisect import bisect_right
from functools import lru_cache
from xml.sax.saxutils import escape

from blobserver import _BLOBS, MODIFIED, Reply, asked, serve, virtual

ETAG = "5d41402abc4b2a76b9719d911017c592"
PAGE = 1000
_OBJECT = (
    "<Contents><Key>{name}</Key><LastModified>2026-11-21T10:00:00.000Z</LastModified><ETag>&quot;" + ETAG + "&quot;</ETag>"
    "<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType><Size>{size}</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)
_PAGE = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>x</Name>'
    "<Prefix>{prefix}</Prefix>{token}<KeyCount>{count}</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>{more}</IsTruncated>{found}"
    "</ListBucketResult>"
)
_HEADERS = f'ETag: "{ETAG}"\r\nLast-Modified: {MODIFIED}\r\nAccept-Ranges: bytes\r\nContent-Type: binary/octet-stream\r\n'


class Buckets:
    """An account of S3."""

    def __init__(self, size: int, objects: int) -> None:
        self.content, self.objects = bytes(i % 251 for i in range(size)), objects

    def answer(self, method: bytes, target: bytes, head: bytes, body: bytes) -> Reply:
        """Any request."""
        if b"list-type=2" in target:
            _, query = asked(target)
            prefix, most = query.get("prefix", ""), min(PAGE, int(query.get("max-keys", PAGE)))
            start = int(query.get("continuation-token", 0))
            if after := query.get("start-after"):
                start = bisect_right(range(self.objects), after, key=lambda i: f"{prefix}{i:08}")
            return Reply(200, page(start, most, self.objects, len(self.content), prefix), "Content-Type: application/xml\r\n")
        if _BLOBS.search(target):
            return virtual(self.content, target, method, head, _HEADERS)
        return Reply(404, b"" if method == b"HEAD" else b"<Error><Code>NoSuchKey</Code></Error>", "Content-Type: application/xml\r\n")


@lru_cache(256)
def page(start: int, most: int, objects: int, size: int, prefix: str) -> bytes:
    """A page of a listing as the service sends it, about 330 bytes an object."""
    end = min(start + most, objects)
    found = "".join(_OBJECT.format(name=escape(f"{prefix}{i:08}"), size=size) for i in range(start, end))
    token = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < objects else ""
    more = str(end < objects).lower()
    return _PAGE.format(prefix=escape(prefix), token=token, count=end - start, more=more, found=found).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.14, help="seconds before each answer")
    parser.add_argument("--size", type=int, default=5000, help="bytes of an object")
    parser.add_argument("--blobs", type=int, default=100_000, help="in a listing")
    args = parser.parse_args()
    import uvloop

    uvloop.run(serve(Buckets(args.size, args.blobs), args.delay))


if __name__ == "__main__":
    main()
