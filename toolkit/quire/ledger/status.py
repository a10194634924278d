"""Whether a destination is well, and what to do where it is not: a look at the store alone, which changes nothing.

Each threshold stands here by its name, and in docs/monitoring.md. A run that is under way is left out: each
thing has its patience.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire import display
from quire.arguments import format_size, seconds, whole
from quire.commit import names, retire
from quire.commit.archive import BLOCK
from quire.commit.entries import OFFSETS, Commit, Foreign, Pin
from quire.commit.exports import needed
from quire.commit.log import Log
from quire.coverage.checkpoint import ENTRIES
from quire.coverage.fold import Fold
from quire.coverage.live import live
from quire.engine.exports import step as exports
from quire.engine.retrying import MAX_ATTEMPTS
from quire.errors import UsageError, about, hide, printable
from quire.interrupts import all_interruptible, interruptible
from quire.ledger.compact import SMALL
from quire.ledger.compact import small as worth
from quire.planning.rewriting import Live, packed
from quire.sources.kafka.topics import SCHEME
from quire.spark.runner import LocalRunner
from quire.storage import Store
from quire.storage.within import is_table
from quire.table.findings import Finding
from quire.table.table import Table

MINUTE, DAY = 60.0, 86400.0
PUBLISHING = 15 * MINUTE  # after which a commit that nobody has published, or an export that lags, is not of a run under way
OPEN = DAY  # after which a job without an outcome may have been forgotten
PINNED = DAY  # after which a pin may be of a reader that died
QUARANTINED_SHARE = 0.01  # of what was read
QUARANTINED_FOR = 7 * DAY
SMALL_SHARE, SMALL_FILES = 0.5, 16  # of the data files; how many of them a compaction would merge
LONG_LOG = 2 * ENTRIES  # entries after the last checkpoint, of which runs write one each `ENTRIES`
LONG_HISTORY, UNARCHIVED = 2 * BLOCK, 7 * DAY  # entries of the log that are not archived, and since when the oldest of them is there
KINDS = (
    "unpublished commits", "all quarantined", "given up", "quarantined", "late", "open jobs", "exports behind", "old pins", "small files",
    "table upkeep", "no checkpoint", "upkeep", "superseded files",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Status(display.Shown):
    """The state of a destination, as a look at its store finds it. Ages are in seconds, by this machine's clock; None: nobody knows.

    dest, version          the destination, and the last entry of its log
    table                  whether it is a table, into which rows go by key
    time                   of the look, in UTC
    findings               what is to be done, the gravest first: each has `kind`, `what`, `mend` (what to do), `count` and `names`
    commits, files, records, bytes_read, data_files, bytes_written, held_back, kind    as in `ledger.summary()`
    last_commit, last_commit_age    of whatever verb; "" and None where there was none
    last_retries, last_seconds      of the tasks of the last commit, together; None where a checkpoint stands for it
    small_files            data files below half of the target size; of a table, those that new rows fill
    mergeable              of them, those that a compaction would merge
    duplicates             records of topics that loads have left out, as one of their key was kept (deduplicate=)
    quarantined, quarantined_age    files and records in quarantine; since when the oldest of them is, at least
    given_up, tries        of them, those that were read `max_attempts` times, so that no run tries them again; how often one was, at most
    open_jobs, open_job_age         jobs without an outcome; the age of the oldest plan
    unpublished, unpublished_age    commits that readers of the directory do not see whole yet
    pins, pin_age          readers' pins that are open; since when the oldest of them is, at least
    exports_behind         formats whose readers see an older version
    log_entries            entries of the log since the last checkpoint
    superseded             data files that count no more, and are still in the directory
    lag                    of topics: offsets behind their stable ends. None: no `source` was given
    unprocessed, unprocessed_age    of files: splits that are not done, and the age of the oldest file. None: likewise

        status = quire.status("/data/out")  # a quire.Status
        status.ok, status.line, status.advice
        status.small_share, status.quarantined_share
        json.dumps(status.as_dict())
    """

    dest: str
    version: int
    time: str
    findings: tuple[Finding, ...] = ()
    kind: str = ""
    commits: int = 0
    files: int = 0
    records: int = 0
    bytes_read: int = 0
    data_files: int = 0
    bytes_written: int = 0
    held_back: int = 0
    duplicates: int = 0
    last_commit: str = ""
    last_commit_age: float | None = None
    last_retries: int | None = None
    last_seconds: float | None = None
    small_files: int = 0
    mergeable: int = 0
    quarantined: int = 0
    quarantined_age: float | None = None
    given_up: int = 0
    tries: int = 0
    open_jobs: tuple[str, ...] = ()
    open_job_age: float | None = None
    unpublished: int = 0
    unpublished_age: float | None = None
    pins: int = 0
    pin_age: float | None = None
    exports_behind: tuple[str, ...] = ()
    log_entries: int = 0
    superseded: int = 0
    table: bool = False
    lag: int | None = None
    unprocessed: int | None = None
    unprocessed_age: float | None = None

    @property
    def ok(self) -> bool:
        """Whether there is nothing to do."""
        return not self.findings

    @property
    def small_share(self) -> float:
        """Small files by all data files."""
        return self.small_files / self.data_files if self.data_files else 0.0

    @property
    def quarantined_share(self) -> float:
        """The share of all that was read which is in quarantine: files, or records of topics."""
        read = self.quarantined + (self.records if self.kind == OFFSETS else self.files)
        return self.quarantined / read if read else 0.0

    @property
    def line(self) -> str:
        """One line: whether it is well, and if not, the gravest thing and what to do."""
        if self.ok:
            return printable(f"{hide(self.dest)}: well, {self._holds}")
        first, more = self.findings[0], len(self.findings) - 1
        return printable(f"{hide(self.dest)}: {first.what}. {first.mend}") + (f" ({more} more)" if more else "")

    @property
    def advice(self) -> tuple[str, ...]:
        """A line for each finding: what is wrong, and what to do."""
        return tuple(printable(f"{each.what}. {each.mend}") for each in self.findings)

    @property
    def _holds(self) -> str:
        if not self.commits:
            return "nothing was committed yet"
        ago = "" if self.last_commit_age is None else f", the last commit {ago_of(self.last_commit_age)} ago"
        files = f"{self.data_files:,} data file{'s' * (self.data_files != 1)}"
        return f"{self.records:,} records in {files} ({format_size(self.bytes_written)}){ago}"

    def as_dict(self) -> dict[str, Any]:
        """Returns it as JSON takes it, findings as a list of dictionaries.

            json.dumps(quire.status("/data/out").as_dict())

        `ok`, `line`, `advice` and both shares are among them.
        """
        said = {"ok": self.ok, "line": self.line, "advice": list(self.advice)}
        shares = {"small_share": round(self.small_share, 4), "quarantined_share": round(self.quarantined_share, 4)}
        return {**said, **super().as_dict(), **shares, "dest": hide(self.dest), "findings": [asdict(each) for each in self.findings]}

    def __repr__(self) -> str:
        return f"Status({printable(hide(self.dest))!r}, ok={self.ok}, findings={[each.kind for each in self.findings]})"

    def _facts(self) -> Mapping[str, object]:
        rows: dict[str, object] = {
            "state": "well" if self.ok else f"{len(self.findings):,} thing{'s' * (len(self.findings) > 1)} to do",
            "holds": self._holds,
            "small data files": f"{self.small_files:,} ({self.small_share:.0%})",
            "quarantined": f"{self.quarantined:,} ({self.quarantined_share:.1%}{_since(self.quarantined_age)})",
        }
        rows |= {"given up": f"{self.given_up:,}, read {self.tries:,} times at most"} if self.given_up else {}
        rows |= {"duplicates left out": f"{self.duplicates:,}"} if self.duplicates else {}
        ages = {
            "open jobs": (len(self.open_jobs), self.open_job_age), "unpublished commits": (self.unpublished, self.unpublished_age),
            "pins": (self.pins, self.pin_age),
        }  # fmt: skip
        rows |= {name: f"{count:,}{_since(age)}" for name, (count, age) in ages.items() if count}
        rows |= {"exports behind": ", ".join(self.exports_behind)} if self.exports_behind else {}
        rows |= {"superseded, in the directory": f"{self.superseded:,}"} if self.superseded else {}
        rows |= {} if self.lag is None else {"lag (offsets)": f"{self.lag:,}"}
        rows |= {} if self.unprocessed is None else {"unprocessed": f"{self.unprocessed:,}{_since(self.unprocessed_age)}"}
        return rows | {"log entries since a checkpoint": f"{self.log_entries:,}", "version": self.version}

    def _note(self) -> str:
        return "\n".join(self.advice)


@interruptible
def status(
    dest: str | os.PathLike[str], source: Any = None, *, max_age: str | float | None = None, include: Any = None, exclude: Any = None,
    hidden: bool = False, follow_links: bool = False, max_attempts: int = MAX_ATTEMPTS, spark: Any = None,
    storage_options: Mapping[str, Any] | None = None, source_options: Mapping[str, Any] | None = None,
) -> Status:  # fmt: skip
    """Say whether a destination is well and what to do, from its store alone; nothing is changed. Returns a `Status`.

        status = quire.status("/data/out")
        print(status.line)
        quire.status("/data/out", "/data/in", max_age="1 h").ok            # also what waits at the source

    dest             a destination, or a table
    source           where its files come from, or "kafka://host:9092/topic": the lag is asked of the brokers, files are listed. Left out:
                     the source is not looked at
    max_age          how long what is at the source may wait; without a source, how old the last commit may be. Left out: any time
    include, exclude, hidden, follow_links    what is chosen from the source, as in `quire.consolidate`
    max_attempts     as its runs have it: what was read so often, and is still in quarantine, is given up
    spark            where the source is listed: a session; left out: this process lists it
    storage_options  of the destination's store; `source_options` of the source, left out: the same

    Raises UsageError where nothing of quire's is, and StorageError where a store does not answer.
    """
    from quire.ledger.ledger import Ledger

    with about("dest"):
        ledger = Ledger(dest, storage_options)
    chosen = {"include": include, "exclude": exclude, "hidden": hidden, "follow_links": follow_links}
    return ledger.status(source, max_age=max_age, **chosen, max_attempts=max_attempts, spark=spark, source_options=source_options)


@all_interruptible
class Looks:
    """A ledger's look at itself."""

    _url: str
    _options: Mapping[str, Any] | None
    _store: Store
    _log: Log
    _fold: Fold

    @property
    def version(self) -> int:
        """The version that is looked at."""
        raise NotImplementedError

    @property
    def inspect(self) -> Any:
        """The tables of the ledger."""
        raise NotImplementedError

    def summary(self) -> Any:
        """The destination in numbers."""
        raise NotImplementedError

    def status(
        self, source: Any = None, *, max_age: str | float | None = None, include: Any = None, exclude: Any = None, hidden: bool = False,
        follow_links: bool = False, max_attempts: int = MAX_ATTEMPTS, spark: Any = None, source_options: Mapping[str, Any] | None = None,
    ) -> Status:  # fmt: skip
        """Whether the destination is well, and what to do where it is not: a `Status`. The parameters are those of `quire.status`.

        ledger.refresh().status("/data/in", max_age="1 h").line
        """
        chosen = {"include": include, "exclude": exclude, "hidden": hidden, "follow_links": follow_links}
        return _look(self, source, chosen, max_age, whole(max_attempts, "max_attempts", 1), spark, source_options)


def _look(
    ledger: Looks, source: Any, chosen: Mapping[str, Any], limit: str | float | None, attempts: int, spark: Any,
    source_options: Mapping[str, Any] | None,
) -> Status:  # fmt: skip
    most = None if limit is None else seconds(limit, "max_age")
    if source is None and any(chosen.values()):
        raise UsageError("include=, exclude=, hidden= and follow_links= choose from a source, and none is given. Say source=.")
    waits = {} if source is None else _waiting(ledger, source, chosen, spark, source_options)
    log, found, now = ledger._log, ledger.summary(), datetime.now(UTC)
    heads = [ledger._store.stat(names.plan_head(job)) for job in found.open_jobs]
    unpublished = log.unpublished()
    table = Table(ledger._url, storage_options=ledger._options) if is_table(ledger._store) else None
    seen = Status(
        dest=found.dest, version=found.version, time=now.isoformat(timespec="milliseconds"), kind=found.kind, commits=found.commits,
        files=found.files, records=found.records, bytes_read=found.bytes_read, held_back=found.held_back,
        duplicates=found.duplicates, last_commit=found.last_commit, last_commit_age=_age(found.last_commit, now),
        quarantined=max(0, found.quarantined),
        quarantined_age=_age(_quarantined_since(ledger), now) if found.quarantined > 0 else None, open_jobs=found.open_jobs,
        open_job_age=_oldest(_modified_ago(head.modified, now) for head in heads if head is not None), unpublished=len(unpublished),
        unpublished_age=_oldest(_age(commit.time, now) for commit in unpublished), pins=len(log.pins()), pin_age=_pinned_for(log, now),
        exports_behind=tuple(each.name for each in exports.behind(log)), log_entries=log.tip - log.merged, superseded=found.superseded,
        table=table is not None, **_given_up(ledger, attempts), **_sizes(ledger, table), **_last(log), **waits,
    )  # fmt: skip
    here = shlex.quote(hide(seen.dest).removeprefix("file://"))
    found_wrong = (*_readers(seen, here, log), *_input(seen, here, most), *_jobs(seen, here), *_upkeep(seen, here, log, table))
    return replace(seen, findings=tuple(sorted(found_wrong, key=lambda each: KINDS.index(each.kind))))


# ---------------------------------------------------------------------------------------------------------------- what is wrong
def _readers(seen: Status, here: str, log: Log) -> Iterator[Finding]:
    """Commits and exports that readers do not see as they are."""
    if seen.unpublished and _past(seen.unpublished_age, PUBLISHING):
        what = f"{_many(seen.unpublished, 'commit')} not published{_since(seen.unpublished_age)}: readers do not see all of it"
        yield Finding("unpublished commits", what, f"Call the run again, or: quire recover {here}", seen.unpublished)
    if seen.exports_behind and _past(_lagging_for(log), PUBLISHING):
        what = f"readers of {', '.join(seen.exports_behind)} see an older version"
        yield Finding("exports behind", what, f"Bring it on: quire recover {here}", len(seen.exports_behind), names=seen.exports_behind)


def _input(seen: Status, here: str, most: float | None) -> Iterator[Finding]:
    """Input that has not come in."""
    share, since = seen.quarantined_share, _since(seen.quarantined_age)
    if seen.quarantined and share == 1:
        what = f"all that was read is quarantined ({seen.quarantined:,}{since})"
        yield Finding("all quarantined", what, f"See why: quire ledger quarantined {here}", seen.quarantined)
    elif seen.quarantined and (share > QUARANTINED_SHARE or _past(seen.quarantined_age, QUARANTINED_FOR)):
        what = f"{seen.quarantined:,} quarantined ({share:.2%} of what was read{since})"
        mend = f"See why: quire ledger quarantined {here}, then repair them and quire ledger retry, or quire ledger forget"
        yield Finding("quarantined", what, mend, seen.quarantined)
    if seen.given_up:
        are = "is" if seen.given_up == 1 else "are"
        what = f"{seen.given_up:,} in quarantine {are} given up, after up to {seen.tries:,} reads: no run tries again"
        again = f"quire ledger retry {here} --source … --max-attempts {seen.tries + 1}"
        yield Finding("given up", what, f"See why: quire ledger quarantined {here}, then repair them and {again}", seen.given_up)
    if most is not None and (late := _late(seen, most)):
        yield Finding("late", late, "Look whether its run is still there, and start it again")


def _late(seen: Status, most: float) -> str:
    """Why a destination is later than it may be; "": it is not."""
    if seen.unprocessed:
        oldest = seen.unprocessed_age
        return f"{_many(seen.unprocessed, 'split')} not processed, the oldest file is there{_since(oldest)}" if _past(oldest, most) else ""
    if seen.unprocessed == 0 or seen.lag == 0:
        return ""
    if seen.last_commit_age is None:
        return "nothing was committed yet"
    behind = f" and {seen.lag:,} offsets wait" if seen.lag else ""
    return f"the last commit is {ago_of(seen.last_commit_age)} old{behind}" if seen.last_commit_age > most else ""


def _jobs(seen: Status, here: str) -> Iterator[Finding]:
    if seen.open_jobs and _past(seen.open_job_age, OPEN):
        what = f"{_many(len(seen.open_jobs), 'job')} without an end{_since(seen.open_job_age)}"
        mend = f"Repeat the same call, which goes on with it, or give it up: quire recover {here} --abort {seen.open_jobs[0]}"
        yield Finding("open jobs", what, mend, len(seen.open_jobs), names=seen.open_jobs[:5])


def _upkeep(seen: Status, here: str, log: Log, table: Table | None) -> Iterator[Finding]:
    """Whatever makes reading slow, or counts rows twice for who lists the directory."""
    pins = tuple(sorted(log.pins()))
    if pins and _past(seen.pin_age, PINNED):
        what = f"{_many(len(pins), 'pin')} open{_since(seen.pin_age)}, which holds superseded files"
        yield Finding(
            "old pins", what, f"If its reader is gone: quire ledger unpin {here} {shlex.quote(pins[0])}", len(pins), names=pins[:5]
        )
    if seen.mergeable >= SMALL_FILES and seen.small_share > SMALL_SHARE:
        what = f"{seen.small_files:,} of {seen.data_files:,} data files are small ({seen.small_share:.0%})"
        yield Finding("small files", what, f"Merge them: quire ledger compact {here}", seen.small_files)
    if table is not None and (due := table.maintain(dry_run=True, progress=False).due):
        what = "; ".join(f"{service} is due: {why}" for service, why in due.items())
        yield Finding("table upkeep", what, f"Do it: quire table maintain {here}", len(due), names=tuple(due))
    if seen.log_entries >= LONG_LOG:
        what = f"{seen.log_entries:,} entries of the log since its last checkpoint, and each call reads all of them"
        yield Finding("no checkpoint", what, f"Write one: quire ledger checkpoint {here}", seen.log_entries)
    if log.tip >= LONG_HISTORY and (own := log.tip - log.archive.look()) >= LONG_HISTORY:
        age = _age(log.entry(log.archive.head + 1).time, datetime.now(UTC))
        if _past(age, UNARCHIVED):
            what = f"{own:,} entries of the log are objects of their own, the oldest{_since(age)}"
            yield Finding("upkeep", what, f"Archive them, and do what else is due: quire maintain {here}", own)
    if seen.superseded and _past(seen.last_commit_age, PUBLISHING) and _can_leave(log):
        what = f"{seen.superseded:,} superseded data files are in the directory: whoever lists it counts their rows twice"
        yield Finding("superseded files", what, f"Take them out: quire recover {here}", seen.superseded)


# --------------------------------------------------------------------------------------------------------------------- the looks
def _sizes(ledger: Looks, table: Table | None) -> dict[str, Any]:
    """The data files that count, their bytes, and how many are small, or may be merged."""
    if table is not None:
        stats = table.stats()
        return {"data_files": stats.files, "bytes_written": stats.bytes, "small_files": stats.small_files}
    log, spec = ledger._log, ledger._log.spec(ledger.version)
    target, count, size, small = log.target() or 256 << 20, 0, 0, list[Live]()
    for file in live(log, ledger._fold, reader=True):
        count, size = count + 1, size + file.size
        if file.size < target * SMALL:
            small.append(Live(file.name, file.size, file.name.rpartition("/")[0], file.number))
    merged = [files for _, files in packed(worth(log, small, target), target) if len(files) > 1] if spec is not None else []
    return {"data_files": count, "bytes_written": size, "small_files": len(small), "mergeable": sum(map(len, merged))}


def _last(log: Log) -> dict[str, Any]:
    """The work of the last commit that no checkpoint stands for."""
    last = next((commit for _, commit in reversed(list(log.recent())) if log.in_effect(commit, reader=True)), None)
    if last is None:
        return {}
    return {"last_retries": sum(t.stats.retries for t in last.tasks), "last_seconds": sum(t.stats.seconds for t in last.tasks)}


def _quarantined_since(ledger: Looks) -> str:
    """The time of the first commit of which something is in quarantine still; of a checkpoint's rows, that of the checkpoint."""
    folded, store = ledger._fold, ledger._store
    touched = bool(folded.uncovered or folded.undone)
    for source in sorted((s for s in folded.sources if s.quarantined), key=lambda s: s.number):
        there = not touched or "quarantined" in folded.of(source).rows(store, ["state"]).column("state").unique().to_pylist()
        if there:
            return folded.base.time if source.piece and folded.base else ledger._log.commit(source.number).time
    return ""


def _given_up(ledger: Looks, attempts: int) -> dict[str, Any]:
    """How much in quarantine was read so often, and how often at most."""
    count = most = 0
    for source in (s for s in ledger._fold.sources if s.quarantined):
        rows = ledger._fold.of(source).rows(ledger._store, ["state", "tries"])
        tries = pc.fill_null(rows.column("tries"), 1).filter(pc.equal(rows.column("state"), "quarantined"))
        often = tries.filter(pc.greater_equal(tries, attempts))
        count, most = count + len(often), max(most, pc.max(often).as_py() or 0)
    return {"given_up": count, "tries": most}


def _lagging_for(log: Log) -> float | None:
    """For how long an export has not offered what was committed after its version; None: nothing was."""
    now = datetime.now(UTC)
    found = ((_age(one.time, now), _age(_committed_after(log, one.version or 0), now)) for one in exports.behind(log))
    return _oldest(min(since, behind) for since, behind in found if since is not None and behind is not None)


def _committed_after(log: Log, version: int) -> str:
    """The time of the first commit after a version, or of what other programs have written into a table; "" where there is none."""
    if log.base and version < log.merged:
        for table in log.base.history_rows(log.archive, ["version", "kind", "time"], version):
            written = pc.is_in(table.column("kind"), pa.array(["commit", "foreign"]))
            later = table.filter(pc.and_(written, pc.greater(table.column("version"), version))).sort_by("version")
            if later.num_rows:
                return str(later.column("time")[0].as_py())
    recent = log.since(max(version, log.merged))
    return next((entry.time for entry in recent if isinstance(entry, Commit | Foreign)), "")


def _can_leave(log: Log) -> bool:
    """Whether superseded files are in the directory that neither a pin nor an export needs."""
    return any(retire.superseding(log, log.settled_version(min([log.tip, *needed(log)]))))


def _pinned_for(log: Log, now: datetime) -> float | None:
    """How long the oldest open pin is there; of one that a checkpoint knows, since the checkpoint."""
    recent = {entry.id: entry.time for entry in log.recent_of(Pin)}
    before = log.base.time if log.base else ""
    return _oldest(_age(recent.get(pin, before), now) for pin in log.pins())


def _waiting(ledger: Looks, source: Any, chosen: Mapping[str, Any], spark: Any, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """How much is at the source, and not here."""
    if isinstance(source, str) and source.startswith(SCHEME):
        if any(chosen.values()):
            raise UsageError("include=, exclude=, hidden= and follow_links= choose from files, and the source is topics. Leave them out.")
        return {"lag": sum(ledger.inspect.lag(source, "arrow", source_options=options).column("lag").to_pylist())}
    runner = spark or LocalRunner()
    found = ledger.inspect.unprocessed(source, "spark" if spark else "arrow", **chosen, spark=runner, source_options=options)
    if spark:
        from pyspark.sql import functions as f

        count, oldest = found.agg(f.count("*"), f.unix_micros(f.min("modified"))).collect()[0]
    else:
        count, oldest = found.num_rows, pc.min(found.column("modified").cast("int64")).as_py()
    return {"unprocessed": count, "unprocessed_age": None if oldest is None else _modified_ago(oldest * 1000, datetime.now(UTC))}


# --------------------------------------------------------------------------------------------------------------------- of words
def ago_of(age: float) -> str:
    """An age in seconds in the largest unit that gives at least 2: "90 s", "3 h"."""
    size, unit = next(((size, unit) for size, unit in ((DAY, "d"), (3600.0, "h"), (MINUTE, "min")) if age >= 2 * size), (1.0, "s"))
    return f"{age / size:.0f} {unit}"


def _since(age: float | None) -> str:
    return "" if age is None else f" for {ago_of(age)}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun} is" if count == 1 else f"{count:,} {noun}s are"


def _past(age: float | None, limit: float) -> bool:
    return age is not None and age > limit


def _oldest(ages: Iterable[float | None]) -> float | None:
    return max((age for age in ages if age is not None), default=None)


def _modified_ago(nanoseconds: int, now: datetime) -> float | None:
    return max(0.0, now.timestamp() - nanoseconds / 1e9) if nanoseconds else None


def _age(text: str, now: datetime) -> float | None:
    """The age of an entry by what it says of its time; None where it says none, or what is not a time."""
    try:
        found = datetime.fromisoformat(text)
        return max(0.0, (now - (found if found.tzinfo else found.replace(tzinfo=UTC))).total_seconds())
    except (ValueError, OverflowError):
        return None
