"""Knowledge of committers that could not be tried: read in documentation and source, not measured. Each says where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from quire.committers.advice.knowledge import COMMITTERS
from quire.committers.guarantees import FOUR
from quire.committers.lab.matrix import Result

_S3A = "Apache Hadoop, hadoop-aws: 'S3A Committers: Architecture and Implementation'"
_MANIFEST = "Apache Hadoop, hadoop-mapreduce-client-core: 'The Manifest Committer for Azure and Google Cloud Storage'"
_EMR = "Amazon EMR Release Guide: 'The EMRFS S3-optimized committer and multipart uploads'"
# name → what is known by it, kind of store, source, what else is to be said
READ: Mapping[str, tuple[str, str, str, str]] = MappingProxyType({
    "magic": ("magic", "s3a", _S3A, "uploads of a dead job linger until they are swept"),
    "directory": ("directory", "s3a", _S3A, "uploads of a dead job linger until they are swept"),
    "partitioned": ("partitioned", "s3a", _S3A, "uploads of a dead job linger until they are swept"),
    "abfs_manifest": ("manifest", "abfs", _MANIFEST, "with hierarchical names, where renaming a file is one step"),
    "gs_manifest": ("manifest", "gs", _MANIFEST, "files are renamed one by one, each in one step"),
    "emrfs": ("emrfs", "s3", _EMR, "files appear at task commit; what follows is as with v2, which renames then"),
})  # fmt: skip


def untried(names: Iterable[str]) -> list[Result]:
    """Those that no lab can try, because they are parts of a service; `names` are those that it has tried."""
    return [row for name in READ if name not in set(names) for row in readings(name)]


def readings(name: str) -> list[Result]:
    """The row of a committer that could not be tried here, if anything is known."""
    if name not in READ:
        return []
    known, store, source, note = READ[name]
    read = {key: value for key, value in COMMITTERS[known].keeps.as_dict().items() if key in FOUR}
    return [Result(name, store, "", "", "read", note=note, source=source, read=read)]
