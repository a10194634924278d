"""What is known of committers that could not be tried: read in documentation and source, not measured. Each says where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from quire.committers.lab.matrix import Row

_S3A = "Apache Hadoop, hadoop-aws: 'S3A Committers: Architecture and Implementation'"
_MANIFEST = "Apache Hadoop, hadoop-mapreduce-client-core: 'The Manifest Committer for Azure and Google Cloud Storage'"
_EMR = "Amazon EMR Release Guide: 'The EMRFS S3-optimized committer and multipart uploads'"
_NO: Mapping[str, bool | None] = MappingProxyType({"hidden": False, "visible": False, "clean": False, "one_copy": False})
_HELD: Mapping[str, bool | None] = MappingProxyType({"hidden": True, "visible": False, "clean": True, "one_copy": True})
# name → kind of store, guarantees, source, what else is to be said
READ: Mapping[str, tuple[str, Mapping[str, bool | None], str, str]] = MappingProxyType({
    "magic": ("s3a", _HELD, _S3A, "uploads of a dead job linger until they are swept"),
    "directory": ("s3a", _HELD, _S3A, "uploads of a dead job linger until they are swept"),
    "partitioned": ("s3a", _HELD, _S3A, "uploads of a dead job linger until they are swept"),
    "abfs_manifest": ("abfs", _HELD, _MANIFEST, "with hierarchical names, where renaming a file is one step"),
    "gs_manifest": ("gs", _HELD, _MANIFEST, "files are renamed one by one, each in one step"),
    "emrfs": ("s3", _NO, _EMR, "files appear at task commit; what follows is as with v2, which renames then"),
})  # fmt: skip


def untried(names: Iterable[str]) -> list[Row]:
    """Those that no lab can try, because they are parts of a service; `names` are those that it has tried."""
    return [row for name in READ if name not in set(names) for row in readings(name)]


def readings(name: str) -> list[Row]:
    """The row of a committer that could not be tried here, if anything is known."""
    if name not in READ:
        return []
    store, read, source, note = READ[name]
    return [Row(name, store, "", "", "read", note=note, source=source, read=dict(read))]
