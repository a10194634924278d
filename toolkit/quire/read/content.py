"""The content of a destination at a version, from the log alone: which data files count, and the rows of which are cut by the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.arguments import whole
from quire.commit import retire
from quire.commit.entries import Spec
from quire.commit.kept import with_kept
from quire.commit.log import Log
from quire.coverage.finished import gathered
from quire.coverage.fold import Fold, fold
from quire.coverage.live import LiveFile
from quire.coverage.live import live as live_files
from quire.errors import NotFoundError, UsageError
from quire.formats import parquet, partition_columns
from quire.sources.transforms import schemas
from quire.storage import Store, connect

LINES = pa.schema([("value", pa.binary())])
RAW = pa.schema([("path", pa.string()), ("content", pa.binary())])


@dataclass(frozen=True)
class Content:
    """A version of a destination: plain data that travels to the tasks. `folders`: the directory that each segment was kept apart for."""

    url: str
    options: Mapping[str, Any] | None
    version: int
    spec: Spec
    files: tuple[LiveFile, ...]
    folded: Fold
    folders: Mapping[str, str]
    by: Mapping[str, pa.DataType]
    grown: pa.Schema | None = None  # the columns, where not all data files have all of them
    kept: Mapping[str, str] = field(default_factory=dict)  # superseded files, and where they are kept

    @property
    def store(self) -> Store:
        """Opened in this process."""
        return with_kept(connect(self.url, self.options), self.kept)

    def columns(self) -> tuple[pa.Schema, dict[str, pa.DataType]]:
        """The data's own columns, as Spark has them, and those that the directories make.

        UsageError for Parquet without a data file: nothing says its columns.
        """
        names = [file.name for file in self.files]
        if self.spec.format != "parquet":
            own = LINES if self.spec.format == "lines" else RAW
            apart = self.spec.layout == "directories"
            places = [] if not apart else names if self.spec.format == "lines" else [f"{folder}/" for folder in self._places(names)]
            return own, partition_columns.of(places, own.names, self.by) if apart else {}
        if not names:
            raise UsageError(f"there is nothing to read in {self.url}: no data file is committed yet.")
        with of_version(self.store, self.version):
            found = self.grown or parquet.open_file(self.store, names[0]).schema_arrow
        made = partition_columns.of(names, found.names, self.by) if self.spec.layout == "directories" else {}
        return pa.schema([pa.field(f.name, partition_columns.for_spark(f.type)) for f in found]), made

    def _places(self, names: list[str]) -> list[str]:
        """The directories that raw content was kept apart for, as far as rows of them count; an empty file has no data file."""
        store, found = self.store, dict.fromkeys(name.rpartition("/")[0] for name in names)
        for source in self.folded.sources:
            if source.piece:
                rows = self.folded.of(source).rows(store, ["state", "folder"])
                empty = rows.filter(pc.and_(gathered(rows), pc.is_valid(rows.column("folder"))))
                found |= dict.fromkeys(pc.unique(empty.column("folder")).to_pylist())
            elif source.rows > source.quarantined + source.held and self.folders[source.segment] not in found:
                rows = self.folded.of(source).rows(store, ["state"])
                if pc.any(gathered(rows)).as_py():
                    found[self.folders[source.segment]] = None
        return list(found)


def content(store: Store, url: str, options: Mapping[str, Any] | None = None, version: int | None = None) -> Content:
    """The content of a destination at a version (None: now); UsageError where nothing is published, or the version cannot be read."""
    log, at = _log(store, version)
    folded = fold(log, at, reader=True)
    spec = log.spec(at, reader=True)
    if spec is None:
        said = "" if version is None else f" at version {version}"
        advice = "Check the spelling, or run quire consolidate first." if version is None else "ledger.inspect.history() lists them."
        raise UsageError(f"there is nothing to read in {store.url}: no commit is published{said}. {advice}")
    tasks = (t for _, c in log.recent(at) for t in log.in_effect(c, at, reader=True))
    folders = {segment: t.folder for t in tasks if (segment := t.coverage.segment)}
    kept = {} if version is None else retire.places(store)
    grown = schemas.grown(log, at) if spec.format == "parquet" else None
    return Content(url, options, at, spec, tuple(live_files(log, folded, reader=True)), folded, folders, schemas.by(log, spec), grown, kept)


def live(store: Store, version: int | None = None) -> tuple[Spec | None, list[LiveFile], Fold]:
    """The content of a destination at a version: its words, the data files that count, and the fold."""
    log, version = _log(store, version)
    folded = fold(log, version, reader=True)
    return log.spec(version, reader=True), list(live_files(log, folded, reader=True)), folded


def _log(store: Store, version: int | None) -> tuple[Log, int]:
    """The log for a reader of a version, and that version; UsageError if it cannot be read."""
    log = Log(store).refresh()
    if version is None:
        return log, log.tip
    whole(version, "version", 0)
    if version > log.tip:
        raise UsageError(f"version {version} of {store.url} is not there yet: the last one is {log.tip}.")
    if log.expired() > version:
        raise UsageError(
            f"version {version} of {store.url} has expired: its data files are gone. Read a later one (ledger.inspect.history() lists "
            f"them); ledger.pin() holds a version, and keep_versions keeps older ones."
        )
    return log.at(version), version


@contextmanager
def of_version(store: Store, version: int) -> Iterator[None]:
    """Let a data file that is gone be the expiry of the version, where the log says so."""
    try:
        yield
    except NotFoundError as e:
        if Log(store).refresh().expired() > version:
            raise UsageError(
                f"version {version} of {store.url} has expired while it was read: its data files are gone. Read again; "
                "ledger.pin() holds a version for a reader that takes long, and keep_versions keeps older ones."
            ) from e
        raise
