"""Leftovers of Spark's jobs below a destination: directories of committers, and incomplete uploads.

_temporary/<attempt id>/[_temporary/]…       FileOutputCommitter
_temporary/manifest_<job>/…                  the manifest committer
.spark-staging-<job>/                        Spark's dynamic overwrite
__magic, __magic_job-<job>/                  S3A's magic committer
uploads, uncommitted blocks                  S3A's committers; quire's own are quire's to clean
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quire.commit import names
from quire.errors import StorageError, scrub
from quire.storage import Folder, Store
from quire.storage.retry import again

_FOLDER = re.compile(r"_temporary|\.spark-staging-(?P<spark>.+)|__magic(?:_job-(?P<magic>.+))?")
_ATTEMPT = re.compile(r"(?:attempt|task)_(\d{8,17}[^_]*_\d+)_[mr]_\d+")
_MANIFEST = re.compile(r"manifest_([^/]+)")


@dataclass(frozen=True)
class Leftover:
    """A directory, or an upload under the name of the file that it was to become.

    kind     "_temporary", "staging" (Spark's), "magic" or "upload"
    files    below it, and their bytes; of an upload its parts that have arrived, -1 where that cannot be told
    age      seconds since something in it last changed; -1: not known
    job      as its names tell, or ""
    """

    name: str
    kind: str
    files: int
    bytes: int
    age: float
    job: str = ""
    handle: str = ""


@dataclass(frozen=True)
class OpenUploads:
    """Uploads that wait, or why they cannot be seen; `expire`: the service drops them by itself after a week."""

    found: tuple[Leftover, ...] = ()
    unseen: str = ""
    expire: bool = False


def folders(store: Store) -> Iterator[Leftover]:
    """The directories of committers at the top of a destination, which is where all of them put theirs."""
    for item in list(store.scan("")):
        last = item.name.rpartition("/")[2]
        match = _FOLDER.fullmatch(last)
        if isinstance(item, Folder) and match:
            kind = "_temporary" if last == "_temporary" else "magic" if last.startswith("__magic") else "staging"
            found = _folder(store, item.name, kind, match["spark"] or match["magic"] or "")
            if found.files or store.can_rename:  # a service that speaks S3 may show a directory of which only the name is left
                yield found


def _folder(store: Store, name: str, kind: str, job: str) -> Leftover:
    files, total, newest = 0, 0, 0
    seen = list(_directories(store, name, 4))
    for entry in store.walk(name):
        files, total, newest = files + 1, total + entry.size, max(newest, entry.modified)
        job = job or _job(entry.name)
    job = job or next(filter(None, map(_job, seen)), "")
    newest = max([newest, *(_changed(store, folder) for folder in (name, *seen))])
    return Leftover(name, kind, files, total, _age(newest), job)


def _job(name: str) -> str:
    found = _MANIFEST.search(name) or _ATTEMPT.search(name)
    return found[1] if found else ""


def _directories(store: Store, folder: str, deep: int) -> Iterator[str]:
    """The directories below a folder, where a job that has only begun is known by them alone."""
    for item in store.scan(folder):
        if isinstance(item, Folder):
            yield item.name
            if deep:
                yield from _directories(store, item.name, deep - 1)


def _changed(store: Store, folder: str) -> int:
    """When a directory last changed, in ns, where it is one of this machine's disks; else 0."""
    if not store.url.startswith("file://"):
        return 0
    try:
        return os.stat(f"{store.url.removeprefix('file://')}/{folder}").st_mtime_ns
    except OSError:
        return 0  # it is gone meanwhile, or its name is one that only the store can read


def _age(newest: int) -> float:
    # What a store says that knows no time, like memory, lies in the first years after 1970.
    return max(0.0, (time.time_ns() - newest) / 1e9) if newest > 10**18 else -1.0


def uploads(store: Store) -> OpenUploads:
    """The uploads below a destination that are nobody's of quire's, with their sizes where the store tells them."""
    if not store.can_upload:
        return OpenUploads()
    details = getattr(getattr(store, "inner", store), "waiting", None)
    try:
        if details is not None:
            listed = again(lambda: list(details("")))
            found = tuple(Leftover(name, "upload", parts, size, _age(begun), "", handle) for name, handle, parts, size, begun in listed)
        else:
            found = tuple(Leftover(name, "upload", -1, -1, -1.0, "", handle) for name, handle in store.pending(""))
    except StorageError as e:
        return OpenUploads((), scrub(str(e), 200), store.pieces_expire)
    return OpenUploads(tuple(item for item in found if names.job_of_data_file(item.name) is None), "", store.pieces_expire)


def ago(seconds: float) -> str:
    """An age as people say it."""
    if seconds < 0:
        return "not known how long ago"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def plain(found: Any) -> dict[str, Any]:
    """One of them as JSON takes it; handles are left out."""
    return {key: value for key, value in vars(found).items() if key != "handle"}
