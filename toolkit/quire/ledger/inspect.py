"""`ledger.inspect`: all tables about a destination, with one rule for their form.

Each call takes `as_="pandas"`, `"arrow"` or `"spark"`, and gives a table whose schema stands in `quire.ledger.tables.TABLES`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quire.arguments import count, flag
from quire.coverage import quarantine
from quire.coverage.live import LiveFile, live
from quire.errors import UsageError, about, quoted, scrub
from quire.interrupts import all_interruptible
from quire.ledger import browse, claims, offsets, tables
from quire.planning.listing import Cut, Listing, list_changed, list_deleted
from quire.planning.pieces import Piece, pieces
from quire.progress import ProgressEvent
from quire.sources import files
from quire.sources.files import Selection
from quire.spark.runner import OnSpark, runner_of
from quire.storage import connect

if TYPE_CHECKING:
    import pyarrow as pa

    from quire.ledger.ledger import Ledger

Path = str | os.PathLike[str]
Options = Mapping[str, Any] | None


@all_interruptible
class Inspect:
    """The tables of a `ledger`, at the version that it looks at. Each call returns one.

        inspect = quire.Ledger("/data/out").inspect
        inspect.history(), inspect.commits(last=10), inspect.tasks(), inspect.files(), inspect.sizes()
        inspect.splits("state = 'quarantined'", as_="spark").groupBy("reason").count()
        inspect.coverage("/data/in/a.log"), inspect.locations("/data/in/a.log")
        inspect.quarantined(), inspect.quarantined_records(limit=10), inspect.reasons()
        inspect.unprocessed("/data/in", as_="spark"), inspect.deleted("/data/in"), inspect.changed("/data/in")
        inspect.offsets(), inspect.lag("kafka://host:9092/topic")

    as_     "pandas", "arrow" (a `pyarrow.Table`) or "spark" (a DataFrame, which needs no memory on the driver for tables of many rows)
    spark   the session of a DataFrame, and of tables that tasks compute; left out: the active one, or quire's own. With
            `quire.LocalRunner()` this process computes them
    path, source    a source file, as a path or a URL; files or topics, as in `quire.consolidate` and `quire.load`
    include, exclude, hidden, follow_links, min_age    what is chosen from a source, as in `quire.consolidate`
    source_options  of the source; left out: those of the destination

    UsageError for another form, and for what has no rows to look for: an unknown path, a source that does not exist.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    # ------------------------------------------------------------------------------------------------------------ from the log
    def history(self, as_: str = "pandas", *, spark: Any = None) -> Any:
        """One row an entry of the log: version, kind, verb, job, time, tasks, files, bytes, data_files, quarantined, deferred, note."""
        of = self._ledger
        return tables.given("history", lambda: tables.history(of._log, of.version), as_, spark)

    def commits(self, as_: str = "pandas", *, last: int | None = None, spark: Any = None) -> Any:
        """The commits that count, one row each, from the log alone; `last`: so many of them at the end.

        version, verb, time, files (that came), forgotten (or replaced), quarantined, written and removed (data files), data_files (that
        count after it), records (in those that it has written), bytes (read; of topics: offsets), lost (offsets that retention had removed
        before), note.
        """
        last = count(last, "last", 1)
        return tables.given("commits", lambda: browse.commits(self._ledger, last), as_, spark)

    def tasks(self, as_: str = "pandas", *, spark: Any = None) -> Any:
        """One row a task: commit, task, directory, part, files, bytes, data_files, bytes_written, started (UTC), seconds.

        A file that several tasks have read counts in the one that read its first byte, so `files` comes to that of `history()`.
        """
        return tables.given("tasks", lambda: tables.task_rows(self._ledger._tasks()), as_, spark)

    def files(self, as_: str = "pandas", *, spark: Any = None) -> Any:
        """The data files that count, one row each: data_file, bytes, records, commit, verb, task, directory of the source."""

        def find() -> Any:
            return [(f.name, f.size, f.records, f.number, f.verb, f.task, f.directory) for f in self._live()]

        return tables.given("files", find, as_, spark)

    def sizes(self, as_: str = "pandas", *, spark: Any = None) -> Any:
        """How large files were and are, one row a class: up_to (bytes, a power of two), files and bytes before and after."""
        of = self._ledger

        def find() -> Any:
            return tables.size_rows(tables.file_lengths(of._store, of._fold), tables.classed(f.size for f in self._live()))

        return tables.given("sizes", find, as_, spark)

    # -------------------------------------------------------------------------------------------------------- from the segments
    def splits(self, where: str | None = None, as_: str = "pandas", *, spark: Any = None) -> Any:
        """Every row: path, version, start, length, state, reason, data_file, offset, skip, written, records, checksum, commit, attempt.

        With millions, as_="spark" is a DataFrame that is computed where it is used.

        where   a condition in SQL, which needs Spark: `"state = 'quarantined'"`, `"path like '%/dt=2026-11-21/%'"`
        """
        from pyspark.errors import PySparkException

        if isinstance(where, str) and not where.strip():
            raise UsageError(f"where={where!r} is an empty condition. Leave it out for all rows, or write one, as \"state = 'done'\".")
        of, options, folded = self._ledger, self._ledger._options, self._ledger._fold
        url, sources = of._url, list(folded.sources)

        def read(i: int) -> Iterator[pa.Table]:
            yield tables.splits(connect(url, options), folded, sources[i])

        def find() -> Any:
            runner = runner_of(spark, of._store)
            if where is not None and not isinstance(runner, OnSpark):
                raise UsageError(f"where={quoted(where)} is SQL, and needs Spark. Leave spark= out, or pass a session.")
            found = tables.computed("splits", runner, len(sources), read, url)
            try:
                return found if where is None else found.where(where)
            except PySparkException as e:
                there = tables.columns_of("splits")
                raise UsageError(
                    f"where={where!r} is not a condition on the ledger's columns ({scrub(str(e), 200)}). They are: {there}."
                ) from e

        return tables.given("splits", find, as_, spark)

    def coverage(self, path: Path, as_: str = "pandas", *, spark: Any = None) -> Any:
        """Which bytes of a source file are accounted for, in their order: start, length, state, version, commit, data_file, reason.

        A range in state "gap" lies between others and is not covered: the next run takes it. If several files had this path, as earlier
        ones were purged, it is the last one.
        """
        of = self._ledger
        return tables.given("coverage", lambda: tables.covered(of._one(of.locate(path), None)), as_, spark)

    def locations(self, path: Path, as_: str = "pandas", *, spark: Any = None) -> Any:
        """Where a source file is: what `ledger.locate` gives, one row a `Location`."""
        return tables.given("locations", lambda: [tuple(vars(one).values()) for one in self._ledger.locate(path)], as_, spark)

    # ---------------------------------------------------------------------------------------------------------- the quarantine
    def quarantined(self, as_: str = "pandas", *, spark: Any = None) -> Any:
        """Quarantined files and records: path, version, start, length, reason, tries (how often it was read), attempt, commit.

        A row is a file, a split of one, or a single record: `quarantined_records()` has these with their bytes.
        """
        of = self._ledger
        return tables.given("quarantined", lambda: tables.quarantined(of._store, of._fold), as_, spark)

    def quarantined_records(self, as_: str = "pandas", *, limit: int | None = None, spark: Any = None) -> Any:
        """The quarantined records: path, version, offset, length, error, message, tries, content, attempt, commit.

        `content` is the record's bytes; None for one of more than 1 MiB, which is kept at its source alone.

        limit   so many of the newest commits, which reads little, however many there are
        """
        of, limit = self._ledger, count(limit, "limit", 1)
        return tables.given("quarantined_records", lambda: quarantine.records(of._store, of._fold, limit), as_, spark)

    def reasons(
        self, as_: str = "pandas", *, progress: Callable[[ProgressEvent], object] | None = None, spark: Any = None
    ) -> Any:  # fmt: skip
        """Why files are quarantined, most frequent first: reason, files, tries, example (a path).

        A reason stands for all that differ from it in values, numbers and paths alone (`quire.reasons.kind`). In a ledger with very many it
        counts the newest ones: their sum is then less than `summary().quarantined`.

        progress   is told how many segments were read, and may raise to stop
        """
        return tables.given("reasons", lambda: browse.reasons(self._ledger, progress), as_, spark)

    # ----------------------------------------------------------------------------------------------------- against the source
    def unprocessed(
        self, source: Any, as_: str = "pandas", *, spark: Any = None, include: Any = None, exclude: Any = None, hidden: bool = False,
        follow_links: bool = False, min_age: Any = None, changed: bool = False, source_options: Options = None,
    ) -> Any:  # fmt: skip
        """The splits below `source` that are not done: path, start, length, size, version, modified.

        With millions, as_="spark" is a DataFrame: they are listed when it is computed, and each time anew; nothing is written or claimed.
        A file that is covered in part has a row for each gap. A file that was rewritten or appended to since it was done is not among
        them, and neither is what is quarantined. `source` and what chooses from it are as in `quire.consolidate`.

        changed   give files that have changed too, from the same listing, and one more column: `reason` says what has changed, and is null
                  of the splits that are not done
        """
        chosen = {"include": include, "exclude": exclude, "hidden": hidden, "follow_links": follow_links, "min_age": min_age}
        changed = flag(changed, "changed")
        what = "unprocessed and changed" if changed else "unprocessed"
        return tables.given(
            what, lambda: claims.unprocessed(self._ledger, what, source, chosen, source_options, spark, changed=changed), as_, spark
        )

    def deleted(
        self, source: Any, as_: str = "pandas", *, spark: Any = None, include: Any = None, exclude: Any = None, hidden: bool = False,
        follow_links: bool = False, source_options: Options = None,
    ) -> Any:  # fmt: skip
        """The gathered files that are gone from `source`: path, version, commit. Their output is kept; nothing is changed.

        `source` and what chooses from it are as in `quire.consolidate`: files that it does not list do not count. With millions,
        as_="spark" is a DataFrame that is computed where it is used. `source_options`: of the source; left out: the destination's.
        """
        chosen = _selection(include, exclude, hidden, follow_links)
        return tables.given("deleted", lambda: self._listed("deleted", list_deleted, spark, source, chosen, source_options), as_, spark)

    def changed(
        self, source: Any, as_: str = "pandas", *, spark: Any = None, include: Any = None, exclude: Any = None, hidden: bool = False,
        follow_links: bool = False, source_options: Options = None,
    ) -> Any:  # fmt: skip
        """The files at `source` that were rewritten or appended to since they were processed: path, size (bytes), version, commit, reason.

        Size and version are those of the source now, `commit` is the last one that has rows of the file. All of them are told, whatever
        `on_change` and `on_append` a run has; nothing is changed. A run with on_change="reprocess" reads them again; what a claim has made
        leaves with its whole commit, by forget(where="commit = 7"), and the next claim has them. The parameters are those of `deleted`.
        """
        chosen = _selection(include, exclude, hidden, follow_links)
        return tables.given("changed", lambda: self._listed("changed", list_changed, spark, source, chosen, source_options), as_, spark)

    # -------------------------------------------------------------------------------------------------------------- of topics
    def offsets(self, as_: str = "pandas", *, spark: Any = None) -> Any:
        """How far each partition is loaded: topic, partition, offset, covered, records, bytes, lost, quarantined, cluster, topic_id.

        offset    the committed one: all before it has been seen to, without a gap
        covered   the end of what is covered behind a gap, too
        records   rows or lines that it became in the data files; `bytes` of them before they were compressed
        lost      offsets that retention had removed before they were read (on_data_loss="record")
        topic_id  "name:…" where no broker has told one
        """
        return tables.given("offsets", lambda: offsets.offsets(self._ledger), as_, spark)

    def lag(
        self, source: str | None = None, as_: str = "pandas", *, spark: Any = None, source_options: Options = None
    ) -> Any:  # fmt: skip
        """How far each partition is behind: topic, partition, offset, end, lag, lost, open. The brokers are asked now.

        end             the stable end: what lies behind it belongs to transactions that are open, and no reader gets it yet
        open            offsets behind that: where they stay, a producer has left a transaction open, and its records wait however small
                        the lag is (kafka-transactions.sh find-hanging, or the transaction's time-out, ends it)
        source          "kafka://host:9092/topic": nobody is asked, or signed in to, by the word of a log that others can write
        source_options  for Kafka's client; they are never kept, so give them where the brokers ask who you are
        """
        return tables.given("lag", lambda: offsets.lag(self._ledger, source, source_options), as_, spark)

    # ------------------------------------------------------------------------------------------------------------------ helpers
    def _live(self) -> Iterator[LiveFile]:
        return live(self._ledger._log, self._ledger._fold, reader=True)

    def _listed(
        self, what: str, find: Callable[[Listing, Piece], Iterator[pa.Table]], spark: Any, source: Any, selection: Selection,
        source_options: Options,
    ) -> Any:  # fmt: skip
        """Return the rows that tasks find in the pieces of a source."""
        of = self._ledger
        with about("source"):
            identity = "content" if of._log.by_content() else "store"
            found_at = files.roots(source, of._options if source_options is None else source_options)
            roots = tuple(replace(root, identity=identity, links=selection.links) for root in found_at)
        listing = Listing(of._url, of._options, "", "", roots, selection, of._fold, Cut("balanced", "flat", 1, "xxh64", 1, False))
        runner = runner_of(spark, of._store, roots)
        found = list(pieces(roots, selection, runner.parallelism, every=True))
        return tables.computed(what, runner, len(found), lambda i: find(listing, found[i]), of._url, [root.url for root in roots])


def _selection(include: Any, exclude: Any, hidden: Any, follow_links: Any) -> Selection:
    """The choice from a source, checked."""
    patterns = files.patterns(include, "include"), files.patterns(exclude, "exclude")
    return Selection(*patterns, flag(hidden, "hidden"), flag(follow_links, "follow_links"))
