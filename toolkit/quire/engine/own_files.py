"""Files that somebody else's job has written, for the log: which of them count, of which kind they are, what they hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from quire.commit.entries import CLAIM, UNSAID, PlanHead, Spec, Task
from quire.commit.log import Log
from quire.coverage.fold import fold
from quire.coverage.live import live
from quire.errors import FormatError, QuireError, RefusedError, StorageError, about, quoted, scrub
from quire.formats import parquet, partition_columns, partitions
from quire.sources import compression, magic
from quire.sources.files import is_hidden
from quire.sources.transforms import schemas
from quire.storage import Entry, Folder, Store, Trouble

if TYPE_CHECKING:
    import pyarrow as pa

# The ending stands in the name that the file will have, so it is short: a job may give a name as long as a file system takes.
KINDS = re.compile(r"\.(?:[a-z0-9]{1,16}\.)?parquet$|\.(?:txt|csv|tsv|json|jsonl|ndjson)(?:\.gz|\.zst)?$")
_MARKERS = re.compile(r"(?:^|/)(?:_committed_[^/]*|_started_[^/]*|_metadata|_common_metadata|\.[^/]*\.crc)$")  # of Hadoop and Spark
BLOCK = "the claim's block"
UNWRITTEN = Spec(kind=CLAIM, transform=CLAIM, format="parquet", compression="none", layout="flat")  # until the files say more


def hadoop_url(url: str) -> str:
    """A URL as Hadoop's file systems are called."""
    return f"s3a:{url.removeprefix('s3:')}" if url.startswith("s3:") else url


def counts(name: str, folder: str) -> bool:
    """Whether readers see a file: no part of its name is ignored."""
    return not any(is_hidden(part) for part in name.removeprefix(f"{folder}/").split("/"))


def files_below(store: Store, folder: str) -> tuple[list[Entry], bool]:
    """The files below a block's folder that count, and whether a job has said there that it came to its end.

    Raises RefusedError for whatever else holds anything: to pass it over would lose what it was meant to be.
    """
    waiting, found, ended = [folder], list[Entry](), False
    while waiting:
        for item in store.scan(waiting.pop()):
            inside = item.name.removeprefix(f"{folder}/")
            if isinstance(item, Trouble):
                what = {"link": "a symbolic link", "special": "neither a file nor a directory"}.get(item.kind, item.reason)
                raise RefusedError(
                    f"the claim's block has left {inside!r} in its folder, which is {what}: nothing is visible. Write regular files there."
                )
            if isinstance(item, Folder):
                waiting.append(item.name)
            elif counts(item.name, folder):
                found.append(item)
            elif inside == "_SUCCESS":
                ended = True
            elif item.size and not _MARKERS.search(inside):
                why = "which no committer has committed" if "_temporary" in inside.split("/") else "whose name readers ignore"
                raise RefusedError(
                    f"the claim's block has left {inside!r} in its folder, {why}: nothing is visible. End the job that writes there "
                    f"before the block ends, and write what does not count elsewhere."
                )
    return sorted(found), ended


def rows_and_columns(store: Store, entry: Entry, who: str = BLOCK) -> tuple[int, str]:
    """The rows of a file and their columns; of text nobody has counted them."""
    if not entry.name.endswith(".parquet"):
        _check_compressed(store, entry, who)
        return 0, ""
    try:
        file = parquet.open_file(store, entry.name)
    except StorageError:
        raise
    except parquet.DAMAGED as e:
        name = entry.name.rpartition("/")[2]
        raise QuireError(f"{who} has written {name!r}, which is not a Parquet file ({type(e).__name__}): nothing is visible.") from e
    return file.metadata.num_rows, schemas.told(file.schema_arrow)


def _check_compressed(store: Store, entry: Entry, who: str) -> None:
    """Refuse text that is not compressed as its name says: no reader could open it."""
    codec = compression.by_name(entry.name) if entry.size else None
    if codec and magic.kind(store.get_range(entry.name, 0, magic.BEGINNING)) != codec:
        raise QuireError(f"{who} has written {entry.name.rpartition('/')[2]!r}, which is not compressed by {codec}: nothing is visible.")


def spec_of_files(files: list[str], who: str = BLOCK) -> Spec:
    """The kind of files, by their names; RefusedError for files of two kinds."""
    kinds = {_kind_of(name): name for name in reversed(files)}
    if len(kinds) > 1:
        first, second, *_ = sorted(kinds.values())
        raise RefusedError(
            f"{who} has written files of two kinds, as {first!r} and {second!r}: nothing is visible. Write one kind, and "
            f"what does not count elsewhere."
        )
    form, compression = next(iter(kinds), ("parquet", "none"))
    return replace(UNWRITTEN, format=form, compression=compression, layout="directories" if any("/" in name for name in files) else "flat")


def _kind_of(name: str) -> tuple[str, str]:
    if name.endswith(".parquet"):
        return "parquet", "none"  # it says itself how it is compressed
    return "lines", {"gz": "gzip", "zst": "zstd"}.get(name.rpartition(".")[2], "none")


def described(spec: Spec) -> str:
    """The kind of files, as a message names it."""
    compressed = "" if spec.compression == "none" else f" in {spec.compression}"
    return f"{spec.format}{compressed}, {'in directories' if spec.layout == 'directories' else 'in one directory'}"


def spec_there(log: Log) -> Spec:
    """The log's spec of the existing files."""
    found = log.filling()
    return found[1].spec if found else UNWRITTEN


def differing(log: Log, ours: Spec, files: Iterable[str]) -> tuple[str, str] | None:
    """How the kind or the directories of the files that are there differ from those of new ones; None: they go together.

    A spec of a write says the columns of the directories, with their types. One of other programs' files says none: their names do, and
    readers infer the types.
    """
    found = log.filling()
    if found is None:
        return None
    there = found[1].spec
    if replace(there, by="") != replace(ours, by=""):
        return described(there), described(ours)
    if there.layout != "directories" or (ours.by and ours.by == there.by):
        return None
    known, said = schemas.written_by(there), schemas.written_by(ours)
    names = [*files]
    # Each commit was compared with those before it, so one file stands for all; but for a first write, which says the columns of all.
    looked_at = islice(live(log, fold(log)), None if said else 1) if not known else ()
    theirs = {tuple(known)} if known else {_columns(folder) for folder in _folders(file.name for file in looked_at)}
    mine = {tuple(said)} if said else {_columns(folder) for folder in _folders(names)}
    if theirs and not mine <= theirs:
        return _by(there, min(theirs)), _by(ours, min(mine - theirs))
    if known and said and known != said:
        return _by(there, _typed(known)), _by(ours, _typed(said))
    odd = [] if said else [folder for folder in _folders(names) if not _fits(folder, known)]
    return (_by(there, _typed(known)), f"{described(ours)}, as {quoted(min(odd), 100)}") if odd else None


def settled(log: Log, ours: Spec, files: Iterable[str], between: str, after: str) -> Spec:
    """The log's words for the files that are there, where new ones go together with them; RefusedError where they do not."""
    if differ := differing(log, ours, files):
        raise RefusedError(f"{log.store.url} holds {differ[0]}{between} {differ[1]}{after}")
    return spec_there(log) if log.filling() else ours


def in_the_way(log: Log, head: PlanHead, tasks: Iterable[Task]) -> str:
    """Why the files of a job cannot lie beside those that others have committed meanwhile; "" where they can."""
    files = [file.name for task in tasks for file in task.data_files]
    differ = differing(log, head.spec, files) if files and spec_there(log).kind == CLAIM else None
    return f"the destination holds {differ[0]}, and this job made {differ[1]}" if differ else ""


def _folders(names: Iterable[str]) -> set[str]:
    return {name.rpartition("/")[0] for name in names}


def _columns(folder: str) -> tuple[str, ...]:
    return tuple(partitions.values(f"{folder}/"))


def _fits(folder: str, columns: dict[str, pa.DataType]) -> bool:
    try:
        return all(len(partition_columns.value(f"{folder}/", name, kind)) for name, kind in columns.items())
    except FormatError:
        return False


def _typed(columns: dict[str, pa.DataType]) -> list[str]:
    return [f"{name} {schemas.type_text(kind, name)}" for name, kind in columns.items()]


def _by(spec: Spec, columns: Iterable[str]) -> str:
    said = scrub(", ".join(columns), 150)
    return f"{described(spec)} by {said}" if said else described(spec)


def check_kind(log: Log) -> None:
    """RefusedError for a destination that quire has gathered into."""
    for transform in sorted(log.transforms() - {CLAIM, UNSAID.transform}):
        with about("dest"):
            raise RefusedError(
                f"{log.store.url} holds what quire has made itself (transform {transform!r}), and files of your own may be anything: "
                f"nobody could read both. Choose another destination."
            )
