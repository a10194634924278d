"""Manifests of Hive's SymlinkTextInputFormat: `_symlinks/`, with the addresses of a destination's data files, one a line.

A manifest is written over in place (`pointer`), so it is the newest one as a whole; each partition has its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from quire.commit.closers import offering
from quire.commit.entries import Export
from quire.commit.log import Log
from quire.commit.names import EXPORTS
from quire.engine.exports import offered
from quire.engine.exports.pointer import point
from quire.errors import RefusedError
from quire.formats import partitions
from quire.storage import Store
from quire.storage.address import readable

FOLDER = EXPORTS["symlinks"]
NAME = "manifest"
_OWN = re.compile(rf"{FOLDER}/(?:.*/)?{NAME}", re.DOTALL)
PARQUET_ALONE = False


def check_free(store: Store) -> bool:
    """Whether manifests are there; RefusedError where something else has their place."""
    return bool(offered.objects(store, FOLDER, _OWN))


def check_options(store: Store, options: Mapping[str, str]) -> None:
    """UsageError for what cannot be exported so."""
    offered.check_known(options, "location", format="symlinks")
    _where(store, options)


def release(_store: Store, _: Export) -> None:
    """Nobody else knows of it."""


def remove(store: Store) -> None:
    """Take the manifests away."""
    offered.take_away(store, FOLDER, _OWN)


def bring(
    log: Log, one: Export, version: int, *, always: bool = False,  # noqa: ARG001  # as the other formats' are called
    watch: offered.Watch = offered.unwatched,
) -> tuple[int, int]:  # fmt: skip
    """Let the manifests name the data files of a settled version, or of a later one; returns it, twice."""
    offer = _Offer(log, _where(log.store, one.options), version, watch)
    changed = {*_changed(log, one.version, version)} if one.version and not offering(log.store) else ()
    # Whoever asks where nothing has changed wants to have written again what somebody has taken away.
    folders = {offer.folder(name) for name in changed} or {*offer.texts, *_written(log.store)}
    for folder in sorted(folders):
        point(log.store, _name(folder), lambda folder=folder: offer.newest(folder))  # type: ignore[misc]
    return version, version


def _changed(log: Log, since: int, until: int) -> Iterator[str]:
    """The data files that came or went. One that did both may stand in a manifest: whoever has written that died before the log said so."""
    for _, commit in log.commits(since, until):
        for task in log.in_effect(commit, until, reader=True):
            yield from (file.name for file in task.data_files)
            yield from task.coverage.removes


class _Offer:
    """Each folder's manifest as of the newest version."""

    def __init__(self, log: Log, where: str, version: int, watch: offered.Watch) -> None:
        self.log, self.where = log, where
        self._compute(version, watch)

    def newest(self, folder: str) -> bytes:
        """A folder's manifest, by what the log says now."""
        self.log.refresh()
        version = self.log.settled_version()
        if version > self.version or offering(self.log.store):
            self._compute(max(version, self.version))
        return self.texts.get(folder, b"")

    def folder(self, name: str) -> str:
        """The folder of the manifest that names a data file: that of its partition, if it lies in one."""
        spec = self.log.spec()
        folder = partitions.as_others_see(name.rpartition("/")[0]) if spec is not None and spec.layout == "directories" else ""
        return folder if all("=" in part for part in folder.split("/")) else ""

    def _compute(self, version: int, watch: offered.Watch = offered.unwatched) -> None:
        lines, files = defaultdict[str, list[str]](list), offered.files(self.log, version, watch=watch)
        for file in watch(files, len(files)):
            if "\n" in file.name or "\r" in file.name:
                raise RefusedError(f"the data file {file.name!r} of {self.log.store.url} has the end of a line in its name.")
            lines[self.folder(file.name)].append(f"{self.where}/{file.name}\n")
        columns = {tuple(part.partition("=")[0] for part in folder.split("/")) for folder in lines}
        if len(columns) > 1:
            raise RefusedError(
                f"{self.log.store.url} has files in directories of different columns, so no table of Hive's can hold all of them. "
                f"ledger.drop_export('symlinks') ends the export."
            )
        self.version, self.texts = version, {folder: "".join(sorted(those)).encode() for folder, those in lines.items()}


def _where(store: Store, options: Mapping[str, str]) -> str:
    """The destination's address in the manifests."""
    return readable(store.url, options.get("location"), s3="s3")


def _written(store: Store) -> list[str]:
    """The folders that have a manifest."""
    return [entry.name[len(FOLDER) + 1 : -len(NAME)].rstrip("/") for entry in store.walk(FOLDER)]


def _name(folder: str) -> str:
    return "/".join(part for part in (FOLDER, folder, NAME) if part)
