"""Which row of a matrix is of the committer that an advice names: the lab tries some in more than one way, or under another name."""

from __future__ import annotations

from dataclasses import dataclass

from quire.committers.advice.advise import Advice
from quire.committers.advice.places import KINDS
from quire.committers.lab.matrix import Matrix

# By the scheme of the URL: the names that the lab has for what is advised, the nearest one first.
_NAMES = {
    ("v1", ""): ("v1_attempt_id", "v1"),
    ("manifest", "abfs"): ("abfs_manifest", "manifest"),
    ("manifest", "gs"): ("gs_manifest", "manifest"),
    ("quire", "file"): ("quire_rename",),
    ("quire", "hdfs"): ("quire_rename",),
    ("quire", ""): ("quire_upload", "quire_rename"),
}
_STORES = {"file": "a local disk", "hdfs": "HDFS", "s3": "S3", "s3a": "S3", "abfs": "Azure storage", "gs": "Google Cloud Storage"}


@dataclass(frozen=True)
class Marked:
    """`committer`: the name of the matrix's row, None where it has none; `note`: how far the row is that of the advice, as words."""

    committer: str | None
    note: str


def advised(matrix: Matrix, advice: Advice) -> Marked:
    """The row of `matrix` that is nearest to what `advice` names, and what is to be known of it."""
    scheme = advice.url.partition(":")[0]
    scheme = {"abfss": "abfs", "webhdfs": "hdfs"}.get(scheme, scheme)
    names = _NAMES.get((advice.committer, scheme), _NAMES.get((advice.committer, ""), (advice.committer,)))
    there = [name for name in names if name in matrix.committers and (name, advice.kind) != ("abfs_manifest", KINDS["abfs_flat"])]
    name = there[0] if there else None
    if name is None:
        return Marked(None, f"{advice.committer} is not in this matrix: what is said of it is {advice.evidence}.")
    rows, said = matrix.of(name), list[str]()
    if advice.committer == "v1" and name == "v1":
        said.append("Tried without an attempt id, which these settings have: what it says of restart is without one.")
    if advice.committer == "quire" and name == "quire_rename" and scheme not in ("file", "hdfs"):
        said.append("Tried with renames; there quire uploads.")
    if advice.committer == "quire" and matrix.guarantees[name].visible_in_log:
        said.append("Readers of quire's log (quire.read) saw all of a job or nothing; visible is about readers of the directory.")
    tried = list(dict.fromkeys(_STORES.get(row.store, row.store) for row in rows if row.how == "measured"))
    if tried and _STORES.get(scheme, scheme) not in tried:
        said.append(f"Measured on {' and '.join(tried)}, not on {advice.kind}.")
    for row in rows:
        if row.how == "read":
            said.append(f"In this matrix it is read, not measured ({row.source}): {row.note}.")
    return Marked(name, " ".join(dict.fromkeys(said)))
