"""What is known of committers that could not be tried: read in documentation and source, not measured. Each says where."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from quire.committers.lab.matrix import Row

__all__ = ["READ", "readings"]

_S3A = "Apache Hadoop, hadoop-aws: 'Committing work to S3 with the S3A Committers' and 'S3A Committers: Architecture and Implementation'"
_MANIFEST = "Apache Hadoop, hadoop-mapreduce-client-core: 'Manifest Committer' and 'Manifest Committer Architecture'"
_EMR = "Amazon EMR Release Guide: 'Requirements for the EMRFS S3-optimized committer' and its 'committer and multipart uploads'"
_NO: Mapping[str, bool | None] = MappingProxyType({"hidden": False, "visible": False, "clean": False, "one_copy": False})
_HELD: Mapping[str, bool | None] = MappingProxyType({"hidden": True, "visible": False, "clean": True, "one_copy": True})
# name → kind of store, guarantees, source, what else is to be said
READ: Mapping[str, tuple[str, Mapping[str, bool | None], str, str]] = MappingProxyType({
    "magic": ("s3a", _HELD, _S3A, "uploads of a dead job linger until they are swept"),
    "directory": ("s3a", _HELD, _S3A, "uploads of a dead job linger until they are swept"),
    "partitioned": ("s3a", _HELD, _S3A, "uploads of a dead job linger until they are swept"),
    "abfs_manifest": ("abfs", _HELD, _MANIFEST, "with hierarchical names, where renaming a file is one step"),
    "gs_manifest": ("gs", _HELD, _MANIFEST, "files are renamed one by one, each in one step"),
    "emrfs": ("s3", _NO, _EMR, "uploads are completed at task commit, as v2 renames"),
})  # fmt: skip


def readings(name: str) -> list[Row]:
    """The row of a committer that could not be tried here, if anything is known."""
    if name not in READ:
        return []
    store, read, source, note = READ[name]
    return [Row(name, store, "", "", "read", note=note, source=source, read=dict(read))]
