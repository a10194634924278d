"""The verbs of a ledger, as users call them: arguments checked, then one job or a few entries of the log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from quire import display
from quire.arguments import ROWS, count, flag, format_size, parse_target, refuse_needless, seconds
from quire.commit import names
from quire.commit.entries import OFFSETS, UNSAID, Spec
from quire.commit.held import Held
from quire.commit.log import Log
from quire.coverage import checkpoint
from quire.coverage.fold import Fold, fold
from quire.engine import request
from quire.engine.closers import Reduce
from quire.engine.closers.sorting import is_said, stored
from quire.errors import RefusedError, UsageError, about, choose, quoted
from quire.interrupts import all_interruptible
from quire.ledger import by_condition, compact, expire, forget, markers, purge, retry
from quire.ledger.forget import RowChooser
from quire.ledger.identifiers import PARSERS
from quire.ledger.job import Changed, Dest, not_named, spec_of
from quire.ledger.refusals import not_of_tables
from quire.progress import Progress, ProgressEvent
from quire.sources import compression, files
from quire.sources.kafka import topics as kafka
from quire.sources.transforms import UserFunction
from quire.sources.transforms.columns import MORE
from quire.spark.runner import OnSpark, Runner, runner_of
from quire.storage import Store, below, canonical

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Checkpointed(display.Shown):
    """A checkpoint: the version that it stands for, its ledger rows, in how many pieces, and its bytes."""

    dest: str
    version: int
    ledger_rows: int
    pieces: int
    bytes: int

    def _facts(self) -> dict[str, object]:
        rows = f"{self.ledger_rows:,} in {self.pieces:,} pieces ({format_size(self.bytes)})"
        return {"stands for version": self.version, "ledger rows": rows}


@all_interruptible
class Verbs:
    """The verbs that change a ledger. Each verb is one commit, which readers see atomically, and a call that was killed is resumed."""

    _url: str
    _options: Mapping[str, Any] | None
    _store: Store
    _spare: list[Held]  # logs that pins have read, for the next ones

    def refresh(self) -> Any:
        """Read the log to its tip."""
        raise NotImplementedError

    def as_of(self, version: int) -> Any:
        """The ledger as it was at a version."""
        raise NotImplementedError

    @property
    def inspect(self) -> Any:
        """The tables of the ledger."""
        raise NotImplementedError

    def _keys(self, path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> list[str]:
        """The keys that a path may have in the ledger."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------------------------- rows leave
    @not_of_tables
    def forget(
        self, paths: Paths | None = None, *, where: str | None = None, file: str | os.PathLike[str] | None = None, reason: str = "",
        last_copy: bool = False, spark: Any = None,
        committer: str = "auto", progress: bool | Callable[[ProgressEvent], object] = True,
    ) -> Changed:  # fmt: skip
        """Take source files out: their rows and their output leave in one commit, and the next run reads what the source still has.

        Returns a `Changed`.

        paths   source files, or directories of them
        where   instead: a condition in SQL about the ledger's columns, `"path like '%/dt=2026-11-21/%'"` (needs Spark)
        file    instead: a data file, lost or damaged: all that the ledger has in it
        reason  stands in the log, in `history()`
        last_copy   also what was purged: nobody else has it any more. A file that a purge is about to delete stays until it has ended

        Data files that hold other rows too are written again without the forgotten ones; what a shuffle or a claim has written leaves
        only with its whole commit, `where="commit = 7"`. UsageError for what was never done.
        """
        if sum(given is not None for given in (paths, where, file)) != 1:
            raise UsageError("forget takes paths, or where=, or file=: one of the three.")
        runner, last = runner_of(spark, self._store), flag(last_copy, "last_copy")
        said: dict[str, Any] = {"reason": str(reason)[:500], **({"last_copy": True} if last else {})}
        keys = list[list[str]]()
        rows: RowChooser | None = None
        if paths is not None:
            keys = [self._keys(path) for path in _each(paths)]
            if not keys:
                raise UsageError("forget was given an empty list of paths: there is nothing to forget.")
            said["paths"] = keys
        elif where is not None:
            by_where, said["where"] = self._where(runner, where), where
            rows = by_condition.dropped(self._url, self._options, by_where, last_copy=last)
        else:
            if not isinstance(file, str | os.PathLike):
                raise UsageError(f"file={quoted(file)} is not a data file's name. ledger.inspect.files() lists them.")
            said["file"] = file = os.fspath(file)
        done = forget.forget(self._dest(runner, progress, committer), keys, said.get("file"), rows, said, self._target(), last_copy=last)
        self.refresh()
        return done

    @not_of_tables
    def retry(
        self, source: Any = None, *, where: str | None = None, paths: Paths | None = None, function: UserFunction | None = None,
        reduce: Reduce | None = None, follow_links: bool = False,
        max_attempts: int | None = retry.MAX_ATTEMPTS, max_file_size: str | int = "256 MiB", decompress: str | None = None,
        archives: bool = False,
        text_options: Mapping[str, Any] | None = None, schema_evolution: str = "refuse", max_quarantined: int | None = None,
        spark: Any = None, committer: str = "auto", storage_options: Mapping[str, Any] | None = None,
        progress: bool | Callable[[ProgressEvent], object] = True,
    ) -> Changed:  # fmt: skip
        """Read what is in quarantine once more, all of it or what `where` or `paths` choose, and nothing else.

        Returns a `Changed`.

        source           where it is read: directories, globs, or "kafka://host:9092/topic", as in the run. Files elsewhere stay: the
                         ledger's word alone sends nobody there. Records that the quarantine itself holds need none
        function         the function of the job, repaired; needed where the destination was made with one
        reduce           the function that all rows went through, where there was one: it gets those of this retry, for themselves
        follow_links     as in the run: also what was reached through symbolic links; whoever may make them chooses what is read
        max_attempts     a file that was read so often is left alone; None: without a limit
        max_file_size    a larger file stays quarantined, where it must be held whole
        decompress       how compressed files are taken; left out: as the destination's are
        archives         also unpack archives that the run has not taken as such; those that it has are unpacked again in any case
        text_options     encoding, delimiter, quote, header, null_values and rescued of CSV files and JSON lines; left out: as last
        schema_evolution  of a function's rows with other columns than the destination's: "refuse" (they stay) | "add", as in a run
        max_quarantined  change nothing if more than this would stay in quarantine. Left out: as many as there are, but if all that was read
                         would, that is committed and AllQuarantined is raised
        storage_options  for the sources; left out: the destination's
        """
        runner = runner_of(spark, self._store)
        spec = spec_of(Log(self._store).refresh())
        reduce = stored(spec.reduce, self._target()) if is_said(spec.reduce) else reduce
        retry.check_functions(spec, function, reduce)
        count(max_attempts, "max_attempts", 1)
        count(max_quarantined, "max_quarantined")
        if where is not None and paths is not None:
            raise UsageError("retry takes where= or paths=, not both.")
        largest = parse_target(max_file_size, "max_file_size")
        said: dict[str, Any] = {"where": where, "max_attempts": max_attempts, "max_file_size": largest}
        said |= {} if decompress is None else {"decompress": decompress}
        archives = flag(archives, "archives") or spec.archives
        said |= {"archives": True} if archives else {}
        said |= {} if text_options is None else {"reads": retry.check_text_options(spec, text_options)}
        adds = choose(schema_evolution, request.EVOLUTION, "schema_evolution") == "add"
        of_rows = function is not None and reduce is None and spec.format == "parquet"
        refuse_needless({"schema_evolution": schema_evolution}, {ROWS: of_rows})
        said |= request.evolution(adds=adds)
        meant = None if paths is None else [self._keys(path, storage_options) for path in _each(paths)]
        said |= {} if meant is None else {"paths": sorted({key for several in meant for key in several})}
        by_where = self._where(runner, f"state = 'quarantined' and ({where})") if where is not None else None

        chosen = retry.choice(self._url, self._store, by_where, meant)
        options = self._options if storage_options is None else storage_options
        dest = replace(self._dest(runner, progress, committer), max_quarantined=max_quarantined)
        follow = flag(follow_links, "follow_links")
        refuse_needless({"follow_links": follow}, {"source=": source is not None})
        how = compression.of_spec(spec.decompress, spec.transform, spec.split)
        how = how if decompress is None else compression.mode(decompress, spec.transform, spec.split)
        sources = tuple(
            replace(root, links=follow, decompress=how, archives=archives) if isinstance(root, files.Root) else root
            for root in self._sources(source, options, spec)
        )
        done = retry.retry(dest, chosen, said, sources, self._target(), function, reduce, MORE if adds else "")
        self.refresh()
        return done if max_quarantined is not None else done.checked()

    # ------------------------------------------------------------------------------------------------------------- files change
    @not_of_tables
    def compact(
        self, target_size: str | int | None = None, *, spark: Any = None, committer: str = "auto",
        progress: bool | Callable[[ProgressEvent], object] = True, parquet_options: Mapping[str, Any] | None = None,
        sort_by: str | Sequence[str] | None = None,
    ) -> Changed:  # fmt: skip
        """Merge the small data files of many commits into files of about `target_size` (left out: that of the last run).

        parquet_options   as in `quire.consolidate`; left out: those that were said last
        sort_by           of what a shuffle, a claim or `format("quire")` has written: columns by which the rows of each file are sorted,
                          which are held while that is done; left out: as they were, where all rows of a run were sorted

        Coverage, checksums and lineage stay; `locate` tells the new places. Rows that belong to their commit, and to no file of the
        source, still do: commits whose rows lie in one file then leave together (`forget`). The old files leave the directory, and stay
        readable as long as `keep_versions` says.
        Returns a `Changed`.
        """
        target = self._target() if target_size is None else parse_target(target_size)
        done = compact.asked(self._dest(runner_of(spark, self._store), progress, committer), target, parquet_options, sort_by)
        self.refresh()
        return done

    @not_of_tables
    def keep_versions(self, keep: int | str) -> expire.ExpireReport:
        """Say how many older versions stay readable from now on.

        keep    a number of versions, or a time (`"1 day"`); 0: none

        Those that are not kept any more go at once, but for what pins hold. Returns an `ExpireReport`; raises UsageError for anything else.

        A commit that supersedes data files takes them out of the directory, so that whoever lists it reads each row once. Files of versions
        that are kept move to where only quire reads them; in S3 and Azure without directories the store copies them. Forgotten rows are
        never kept.
        """
        wanted = request.keep(keep, self._store)
        if wanted is None:
            raise UsageError("keep_versions takes a number of versions, or a time: 3, '1 day' or 0.")
        done = expire.keep(self._store, wanted)
        self.refresh()
        return done

    @not_of_tables
    def expire(self, before_version: int | None = None, *, grace: str | float = "1 day") -> expire.ExpireReport:
        """Delete the data files that no version from `before_version` on (default: the last one) needs.

        Versions before it can no longer be read, whatever `keep_versions` says. Returns an `ExpireReport`.

        Open pins keep their versions. Readers without a pin, which opened an older version, fail with "has expired". Merged checkpoints
        and segments go too, when they are older than `grace`: earlier readers and planners may continue for so long.
        """
        count(before_version, "before_version")
        done = expire.expire(self._store, before_version, seconds(grace, "grace"))
        self.refresh()
        return done

    def checkpoint(self, *, spark: Any = None) -> Checkpointed:
        """Merge the ledger's segments into a checkpoint of the last settled version, on Spark.

        Runs write one themselves when enough has gathered since the last one (a thousand commits, or a quarter of the rows). The answers
        stay the same; opening, looking up and planning read less. `expire()` deletes what was merged.
        Returns a `Checkpointed`.
        """
        runner = runner_of(spark, self._store)
        self._dest(runner, False, "auto")
        found = checkpoint.write(runner, self._url, self._options, self._store)
        self.refresh()
        if found is None:
            raise UsageError(f"there is nothing in {self._store.url} to merge: no commit is published yet.")
        size = sum(piece.size for kind in (found.rows, found.history, found.files, found.merged) for piece in kind)
        return Checkpointed(self._store.url, found.version, found.totals.ledger_rows, len(found.rows), size)

    def pin(self, version: int | None = None) -> AbstractContextManager[int]:
        """Return a block that keeps a version (default: the last one) readable while it runs: `with ledger.pin() as version: …`."""
        count(version, "version")
        return expire.pin(self._store, version, self._spare)

    def pins(self) -> dict[str, int]:
        """The open pins: id → version."""
        return Log(self._store).refresh().pins()

    def unpin(self, pin: str) -> None:
        """End a `pin`, by its id, that a dead reader has left."""
        expire.unpin(self._store, pin)

    # --------------------------------------------------------------------------------------------------------------- sources go
    @not_of_tables
    def purge_sources(
        self, source: Any = None, *, dry_run: bool = True, derived: bool = False, min_age: str | float = "1 hour", spark: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> purge.Purged:  # fmt: skip
        """Delete the sources of what is done, only those whose bytes are verified in committed files now; `dry_run` says what would go.

        Returns a `Purged`.

        Each file is read at its source, and its record from the data file, and both are compared with the ledger's checksum. A file
        that has changed, is quarantined, held back or done only in part, or does not verify, stays, and is reported with the reason. A
        deleted file is finished: its content stays, and a new file of that name is new, whatever `on_change` and `on_append` say. Azure and
        S3 delete on
        condition of the version; on a disk and in HDFS, which cannot, a file gets a private name first and is looked at again: what was
        put under its name meanwhile stays. A writer that holds the very file open the whole time is not seen: see `min_age`.

        source           directories or globs: of files there, and of no others, whatever the ledger says
        min_age          only files that have not changed for so long: a writer may still hold a younger one open (0: any)
        derived          also where a function has made something else of the files, so that their content is nowhere else
        storage_options  for the sources; left out: the destination's
        """
        options = self._options if storage_options is None else storage_options
        dry, derived, age = flag(dry_run, "dry_run"), flag(derived, "derived"), seconds(min_age, "min_age")
        dest = self._dest(runner_of(spark, self._store), False, "auto")  # refuses what its tasks would not see
        log = Log(self._store).refresh()
        spec = spec_of(log)
        if spec.kind == OFFSETS:
            raise UsageError(f"{self._store.url} holds topics, and records are not deleted one by one. A topic's retention does that.")
        roots = self._sources(source, options, spec)
        if not roots:
            with about("source"):
                there = files.places(path for s in fold(log, reader=True).sources for path in (s.first, s.last))
                raise not_named(self._store.url, "purge_sources deletes files at their source", there, "purge_sources")
        done = purge.purge(dest, spec, roots, dry=dry, derived=derived, min_age=age)
        self.refresh()
        return done

    # -------------------------------------------------------------------------------------------------------------------- markers
    @not_of_tables
    def import_markers(
        self, directory: str | os.PathLike[str], source: Any, *, parse: str | markers.Parse = "path@offset@length",
        spark: Any = None, committer: str = "auto", storage_options: Mapping[str, Any] | None = None,
        progress: bool | Callable[[ProgressEvent], object] = True,
    ) -> Changed:  # fmt: skip
        """Take over what a Hadoop job has done: empty files below `directory`, each named by a split's identifier, of files in `source`.

            ledger.import_markers("/data/done", "/data/in", parse="path_offset_length")

        Each becomes a row in state `mark`, for the version that the file has now, all in one commit; nothing is read. Reported in `.left`
        and not taken: names that are not identifiers, files that are gone, have changed since the marker was written, or that the ledger
        knows in another version. The names' rule is in docs/ledger.md. `storage_options`: for both; left out: the destination's.
        Returns a `Changed`.

        parse   how a name is spelled: "path@offset@length", "path_offset_length", or a function from the name, relative to `directory`, to
                (path, first byte, length); the path is a URL, or goes from the root of its file system on. It gives None, or raises
                ValueError, for a name that means no split; UsageError for what else it gives or raises, and nothing is changed
        """
        if not callable(parse):
            choose(parse, PARSERS, "parse")
        options = self._options if storage_options is None else storage_options
        with about("source"):
            roots = tuple(files.roots(source, options))
        dest = self._dest(runner_of(spark, self._store), progress, committer)
        done = markers.import_markers(
            dest, _of_markers(directory, options, self._url, roots), roots, files.spellings(source, roots), self._target(), parse
        )
        self.refresh()
        return done

    def export_markers(
        self, directory: str | os.PathLike[str], *, source: Any = None, split_size: str | int = "128 MiB", spark: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> markers.Exported:  # fmt: skip
        """Write a marker below `directory` for each split that is done, as a Hadoop job looks for them; those that are there stay.

        Markers of this ledger's own whose splits are not done any more are removed: forgotten, quarantined or purged since. It knows
        its own by their one line of content; those of others stay, whatever they say. Returns an `Exported`.

        source      only of files there; needed where the ledger holds files of several stores, since markers name paths alone
        split_size  the block size of the Hadoop job's input: its splits are what is marked, where all of one is done
        """
        options = self._options if storage_options is None else storage_options
        with about("source"):
            roots = tuple(files.roots(source, options)) if source is not None else ()
        block = parse_target(split_size, "split_size")
        to, runner = _of_markers(directory, options, self._url, roots), runner_of(spark, self._store)
        log = Log(self._store).refresh()
        folded, spec = fold(log, reader=True), spec_of(log, UNSAID)
        if spec.kind == OFFSETS:
            raise UsageError(f"{self._store.url} holds topics, and markers are of files. ledger.export_offsets() is for other loaders.")
        if folded.beginning(self._store, ["path"], f"{to.url}/").num_rows:
            raise RefusedError(
                f"{to.url} holds files of the ledger: markers there would be read as input. Choose a directory for them alone."
            )
        return markers.export_markers(runner, self._url, self._options, log, to, roots, block, spec)

    # ------------------------------------------------------------------------------------------------------------------ helpers
    def _sources(self, source: Any, options: Mapping[str, Any] | None, spec: Spec) -> tuple[files.Root, ...]:
        """Where a call may read and delete: what it names, and never what the ledger does."""
        if source is None:
            return ()
        with about("source"):
            if spec.kind == OFFSETS:
                return (kafka.parsed(source, kafka.client_options(options, None)),)
            return tuple(files.roots(source, options))

    def _runner(self, spark: Any) -> Runner:
        return runner_of(spark, self._store)

    def _dest(self, runner: Runner, progress: bool | Callable[[ProgressEvent], object], committer: str) -> Dest:
        return Dest(self._url, self._options, runner, Progress(progress), committer)

    def _target(self) -> int:
        """The target size of the last commit that had one."""
        return Log(self._store).refresh().target() or 256 << 20

    def _where(self, runner: Runner, where: str) -> Callable[[Fold], Any]:
        """A choice of rows by a condition in SQL, on Spark."""
        with about("where"):
            if not isinstance(runner, OnSpark):
                raise UsageError(f"where={quoted(where)} is SQL, and needs Spark. Leave spark= out, or pass a session, or choose by paths.")
        self.inspect.splits(where, "spark", spark=runner.spark)  # refuses a wrong condition before anything is done
        # As it is at the version that is planned from: whoever has changed it since conflicts, and it is planned again.
        return lambda folded: self.as_of(folded.version).inspect.splits(where, "spark", spark=runner.spark)


def _each(paths: Paths) -> Sequence[str | os.PathLike[str]]:
    """The paths of a call, which may be one."""
    if isinstance(paths, str | os.PathLike):
        return [paths]
    if isinstance(paths, bytes) or not isinstance(paths, Iterable):
        raise UsageError(f"paths={quoted(paths)} is neither a path nor a list of them.")
    return list(paths)


def _of_markers(directory: str | os.PathLike[str], options: Any, dest: str, roots: Sequence[files.Root]) -> files.Root:
    """The directory of markers, which lies neither in the destination nor in a source, nor is a destination itself."""
    with about("directory"):
        found = files.Root(canonical(directory, options), options=options)
        if found.store().is_folder(names.LOG) or below(found.url, dest) or below(dest, found.url):
            raise RefusedError(f"{found.url} is a destination, or holds one, or lies in one: choose a directory for the markers alone.")
        files.apart(roots, found.url, options, "directory of markers")
    return found
