"""Files of another kind, known by their first bytes: what compresses, packs or holds columns is neither lines nor a document.

Sources: the formats' own specifications (RFC 1952 gzip, RFC 8878 zstd, the lz4 and snappy frame formats, the xz and zip file formats, and
those of Parquet, Avro, ORC and Arrow).
"""

from __future__ import annotations

import re

from quire.sources.transforms.content import BadContent

BEGINNING = 262  # bytes of a file by which its kind is known: the name of a tar archive's format lies behind its first member's header
_KINDS = (
    ("gzip", rb"\x1f\x8b\x08"),
    ("zstd", rb"\x28\xb5\x2f\xfd"),
    ("bzip2", rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    ("xz", rb"\xfd7zXZ\x00"),
    ("lz4", rb"\x04\x22\x4d\x18"),
    ("snappy", rb"\xff\x06\x00\x00sNaPpY"),
    ("compress", rb"\x1f\x9d"),
    ("zip", rb"PK(?:\x03\x04|\x05\x06)"),
    ("7z", rb"7z\xbc\xaf\x27\x1c"),
    ("Parquet", rb"PAR1\x15"),
    ("ORC", rb"ORC[\x00-\x08\x0e-\x1f\x80-\xff]"),
    ("Avro", rb"Obj\x01"),
    ("Arrow", rb"ARROW1\x00\x00"),
)
FIRST = frozenset(b"\x1f\x28B\xfd\x04\xffP7OA")  # of each; nearly all files begin with another byte
_TAR, _AT = b"ustar", 257
_MAGIC = re.compile(b"|".join(b"(%s)" % magic for _, magic in _KINDS))


def is_other(content: bytes) -> bool:
    """Whether these first bytes are of a file of one of these kinds; for each of millions of files, so quick."""
    return (content != b"" and content[0] in FIRST and _MAGIC.match(content) is not None) or content.startswith(_TAR, _AT)


def kind(content: bytes) -> str:
    """The kind that the first bytes of a file tell; empty: none of these."""
    if not is_other(content):
        return ""
    found = _MAGIC.match(content)
    return _KINDS[(found.lastindex or 1) - 1][0] if found else "tar"


def check(content: bytes, transform: str) -> None:
    """Raise BadContent where the first bytes of a file say that it is of another kind than a transform expects."""
    if found := kind(content):
        gathered = found.lower() in ("parquet", "orc", "avro")
        way = f"gather it with transform={found.lower()!r}" if gathered else "unpack it first (decompress='auto' does, where it can)"
        raise BadContent(
            f"the file is of the kind {found}, and transform {transform!r} takes text: {way}, or keep its bytes with transform='raw'"
        )
