"""A server that speaks as much of S3 as reading, listing and uploading ask for, after a delay, and fast: see `blobserver.py`.

    python tests/benchmarks/bucketserver.py --delay 0.14        # prints its port, and serves until its input ends

Every object `<any prefix>00000000` … of every bucket has the same content and etag. Below `tree/` they lie in equally large folders. Of
what is uploaded only the length is kept.
"""

from __future__ import annotations

import argparse
import json
from bisect import bisect_right
from collections import Counter
from xml.sax.saxutils import escape

from blobserver import _BLOBS, MODIFIED, Reply, asked, serve, virtual

ETAG = "5d41402abc4b2a76b9719d911017c592"
PAGE = 1000
TREE = "tree/"
_OBJECT = (
    "</Key><LastModified>2026-11-21T10:00:00.000Z</LastModified><ETag>&quot;" + ETAG + "&quot;</ETag>"
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

    def __init__(self, size: int, objects: int, folders: int) -> None:
        self.content, self.objects, self.folders = bytes(i % 251 for i in range(size)), objects, folders
        self.rest = _OBJECT.format(size=size)
        self.parts = dict[str, int]()  # bytes of what is being uploaded, by path
        self.made = dict[str, int]()  # and of what was uploaded
        self.asked = Counter[str]()  # requests about objects that are there, and for pages

    def answer(self, method: bytes, target: bytes, head: bytes, body: bytes) -> Reply:
        """Any request; `/asked` says how many there were of the others, by their kind."""
        if target == b"/asked":
            return Reply(200, json.dumps(self.asked).encode(), "Content-Type: application/json\r\n")
        if b"list-type=2" in target:
            self.asked["list"] += 1
            return Reply(200, self.listed(asked(target)[1]), "Content-Type: application/xml\r\n")
        if method in (b"PUT", b"POST"):
            return self.write(method, target, body)
        if _BLOBS.search(target):
            self.asked[method.decode().lower()] += 1
            return virtual(self.content, target, method, head, _HEADERS)
        if (size := self.made.get(asked(target)[0])) is not None:
            return Reply(200, b"", _HEADERS, size)
        return Reply(404, b"" if method == b"HEAD" else b"<Error><Code>NoSuchKey</Code></Error>", "Content-Type: application/xml\r\n")

    def listed(self, query: dict[str, str]) -> bytes:
        """A page of a listing as the service sends it, about 330 bytes an object."""
        prefix, most = query.get("prefix", ""), min(PAGE, int(query.get("max-keys", PAGE)))
        start, end = 0, self.objects
        if prefix == TREE and query.get("delimiter"):
            found = "".join(f"<CommonPrefixes><Prefix>{TREE}{i:04}/</Prefix></CommonPrefixes>" for i in range(self.folders))
            return _PAGE.format(prefix=TREE, token="", count=self.folders, more="false", found=found).encode()
        if prefix.startswith(TREE) and prefix != TREE:
            folder = int(prefix.removeprefix(TREE).rstrip("/"))
            start, end = folder * self.objects // self.folders, (folder + 1) * self.objects // self.folders
        if token := query.get("continuation-token"):
            start = int(token)
        elif after := query.get("start-after"):
            start = max(start, bisect_right(range(end), after, key=lambda i: self.name(prefix, i)))
        last = min(start + most, end)
        before, rest = f"<Contents><Key>{escape(prefix)}", self.rest
        if prefix == TREE:
            found = "".join([f"<Contents><Key>{self.name(prefix, i)}{rest}" for i in range(start, last)])
        else:
            found = "".join([f"{before}{i:08}{rest}" for i in range(start, last)])
        more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < end else ""
        return _PAGE.format(prefix=escape(prefix), token=more, count=last - start, more=str(last < end).lower(), found=found).encode()

    def write(self, method: bytes, target: bytes, body: bytes) -> Reply:
        """The begin of an upload, a part, the end of an upload, or an object by one request."""
        path, query = asked(target)
        if method == b"POST" and "uploadId" not in query:
            return Reply(200, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>", _HEADERS)
        if method == b"POST":
            self.made[path] = self.parts.pop(path, 0)
            return Reply(200, b'<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>', _HEADERS)
        if "partNumber" in query:
            self.parts[path] = self.parts.get(path, 0) + len(body)
        else:
            self.made[path] = len(body)
        return Reply(200, b"", _HEADERS)

    def name(self, prefix: str, i: int) -> str:
        """Of an object."""
        return f"{TREE}{((i + 1) * self.folders - 1) // self.objects:04}/{i:08}" if prefix == TREE else f"{prefix}{i:08}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.14, help="seconds before each answer")
    parser.add_argument("--size", type=int, default=5000, help="bytes of an object")
    parser.add_argument("--blobs", type=int, default=100_000, help="in a listing")
    parser.add_argument("--folders", type=int, default=100, help="below tree/")
    parser.add_argument("--certificate", default="", help="a directory with cert and key: it speaks TLS")
    args = parser.parse_args()
    import uvloop

    uvloop.run(serve(Buckets(args.size, args.blobs, args.folders), args.delay, args.certificate))


if __name__ == "__main__":
    main()
