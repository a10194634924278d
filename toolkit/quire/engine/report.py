"""The result of a call, for people, notebooks and programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from quire import display
from quire.arguments import format_size, format_span
from quire.commit.retire import Superseded
from quire.coverage.superseded import NOT_TAKEN
from quire.errors import AllQuarantined, printable
from quire.planning.changes import Changes
from quire.skew import SkewResult

SHOWN = 5
SEVERAL = 1_000  # names of a kind that the reports of a call's parts tell together
BEHIND = "behind the newest one"  # said of an export


# What of a call's parts is added up, and what is told of each; of the rest, the last part tells.
_ADDED = (
    "files", "bytes", "written", "records", "lost", "data_files", "quarantined_count", "changed_count", "longer_count", "unreadable_count",
    "skipped", "held_back", "young", "links", "seconds", "retries", "deleted", "hidden", "superseded", "superseded_held", "early",
    "outstanding",
)  # fmt: skip
_JOINED = ("quarantined", "changed", "unreadable", "deferred", "others", "deleted_examples", "pins")


def together(before: Report, last: Report) -> Report:
    """The report of a call's last part, with what an earlier part of it has done."""
    found: dict[str, Any] = {name: getattr(before, name) + getattr(last, name) for name in _ADDED}
    found |= {name: tuple(dict.fromkeys((*getattr(before, name), *getattr(last, name))))[:SEVERAL] for name in _JOINED}
    found |= {name: getattr(last, name) or getattr(before, name) for name in ("skew", "instant", "failure")}
    return replace(last, **found, jobs=(*before.jobs, *last.jobs))


def named(dest: str, source: str) -> str:
    """The words that say which call names the changed files."""
    place = "SOURCE" if ", " in source else shlex.quote(_plain(source))
    return f"quire ledger changed {shlex.quote(_plain(dest))} {place} names all"


def changed_since(dest: str, source: str, *, reduce: bool = False) -> str:
    """The line that says which calls name the changed files, and take them in."""
    how = "after ledger.forget(where='commit = …') the next call" if reduce else "on_change='reprocess'"
    return f"changed since: {named(dest, source)}; {how} reads their new content"


@dataclass(frozen=True)
class Gap:
    """A time in which a call could do nothing, since a store or a broker was away, and which it has outlived.

    began     when the first run failed, in UTC: "2026-11-22T08:00:00"
    seconds   until the run began that went well again
    away      what was away, in the words of the error

        report = quire.load("kafka://host:9092/topic", "/data/events", every="10 s", max_runs=3)
        report.gaps     # (quire.Gap(began="2026-11-22T08:00:00", seconds=3600.0, away="no broker answers …"),)
    """

    began: str
    seconds: float
    away: str

    def __str__(self) -> str:
        return f"{format_span(self.seconds)} from {self.began} UTC: {self.away}"


@dataclass(frozen=True)
class EventCounts:
    """The sum of the events that a call was told by (`events=`), and their outcome.

    received    messages; each may name several files, or a directory, and so may several name the same one
    new         files that were not in the ledger in the version that is there
    known       files that were
    gone        names of which a file is not there
    outside     names that lie in none of the call's sources, or that it does not mean (include, exclude, hidden)
    not_understood  messages that are none of the kind that was expected: they stay in the queue
    waiting     messages that the queue gives again, as their files could not be taken yet
    lists       full listings that were due

        report = quire.consolidate("s3://bucket/in", "/data/out", events="sqs://sqs.eu-west-1.amazonaws.com/123456789012/queue")
        report.events           # quire.EventCounts(received=7, new=5, known=2, gone=0, outside=0, not_understood=0, waiting=0, lists=0)
    """

    received: int = 0
    new: int = 0
    known: int = 0
    gone: int = 0
    outside: int = 0
    not_understood: int = 0
    waiting: int = 0
    lists: int = 0

    def __str__(self) -> str:
        said = f"{self.received:,} received: {self.new:,} new files, {self.known:,} known, {self.gone:,} gone, {self.outside:,} outside"
        more = {"messages not understood": self.not_understood, "messages wait": self.waiting, "full listings": self.lists}
        return said + "".join(f", {n:,} {what}" for what, n in more.items() if n)


@dataclass(frozen=True)
class Report:
    """The result of `quire.consolidate`.

    files, bytes      gathered by this call (bytes as read); `written` bytes in `data_files`, of `records` lines or rows
    quarantined       (path, reason) of what is in quarantine since this call: `quire ledger quarantined` has all of it
    changed           (path, reason) of files that were rewritten or appended to since they were gathered, and were not read: `quire ledger
                      changed` has all of them
    unreadable        (path, reason) of what could not be listed or planned: the ledger knows nothing of it, the next call tries again
    quarantined_count, changed_count, unreadable_count   how many there are (of very many, only the first stand in the tuples);
                      `longer_count` of the changed are longer now than what was read of them
    held_back         files whose last line has no newline yet (on_append="tail"): it is taken when it is whole, or by partial_lines="take"
    deferred          (path, reason) of files that vanished, or changed while they were read, twice, or whose new version cannot be parsed
                      (on_change="reprocess": what was gathered before stays); the next call tries again
    skipped           files that were gathered or quarantined before
    deleted           files that were gathered before and have gone at their source: their output stays; `deleted_examples` of them
    young, links      files changed within `min_age`; symbolic links that were not followed
    hidden            files and directories that were ignored for their names, which begin with _ or a dot (hidden=True takes them)
    jobs              of this call, in the log's order; `version` is the log's number at the end
    retries           how often an operation was retried because a store was busy or did not answer
    reduce            the function that all rows of a job went through together
    quarantined_before  of `skipped`, those that were in quarantine when the call began
    failure           words that say that nothing of the input could be processed (`all_quarantined`): all that this call has read is
                      quarantined, or where nothing was new, all that is there. Else nothing
    skew              whether the plan was even; None if there was nothing to do
    source, dest      what was gathered, and where; `seconds` that it took
    others            unfinished jobs of other calls; `lost` counts in a `LoadReport` alone
    instant           of the call's last commit, on the timeline of the table that is its destination: `as_of` and `changes` take it; ""
                      where the call changed nothing in a table, or the destination is not one
    superseded        data files whose place this call's have taken; `superseded_held` of them are still in the directory, since the `pins`
                      hold them: readers of the directory count their rows twice
    duplicates        of a load: records that were left out, as one of their key was kept
    early             data files that were ended before they had their size, as a task had too many directories to write into at once
    exports           each format in which other readers find the destination, with the version that it offers
    noun              what `files` and `skipped` count: "files", or "commits" of a table that is the source; `bytes` are of files alone
    outstanding       files that were listed and wait for the next call, where this one was stopped between two commits
    retried           what was in quarantine and was read again by this call (retry_quarantined=): files, parts of files and records, one
                      each; `retried_taken` of them, where something is gathered now
    given_up          (path, reason) of what this call has read for the last time (max_attempts=): `Ledger.retry` alone takes it from now
                      on; `given_up_count` in all
    gaps              outages that the call has outlived, each a `quire.Gap`; of very many the last ones, `gap_count` in all its runs
    events            of a call that goes by events, what these have come to (`quire.EventCounts`); else None
    upkeep            what upkeep beside a loop (`maintain=`) could not do when it last tried, each with the reason: the run went well

        report = quire.consolidate("/data/in", "/data/out", max_quarantined=10)
        report.checked()                        # raises AllQuarantined if nothing could be processed
        json.dumps(report.as_dict())
    """

    source: str
    dest: str
    files: int = 0
    bytes: int = 0
    written: int = 0
    records: int = 0
    lost: int = 0
    data_files: int = 0
    quarantined: tuple[tuple[str, str], ...] = ()
    quarantined_count: int = 0
    changed: tuple[tuple[str, str], ...] = ()
    changed_count: int = 0
    longer_count: int = 0
    unreadable: tuple[tuple[str, str], ...] = ()
    unreadable_count: int = 0
    deferred: tuple[tuple[str, str], ...] = ()
    skipped: int = 0
    held_back: int = 0
    young: int = 0
    links: int = 0
    jobs: tuple[str, ...] = ()
    version: int = 0
    seconds: float = 0.0
    skew: SkewResult | None = None
    others: tuple[str, ...] = field(default=())
    retries: int = 0
    deleted: int = 0
    deleted_examples: tuple[str, ...] = ()
    reduce: str = ""
    quarantined_before: int = 0
    failure: str = ""
    instant: str = ""
    noun: str = "files"
    hidden: int = 0
    superseded: int = 0
    superseded_held: int = 0
    pins: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    early: int = 0
    duplicates: int = 0
    gaps: tuple[Gap, ...] = ()
    gap_count: int = 0
    outstanding: int = 0
    retried: int = 0
    retried_taken: int = 0
    given_up: tuple[tuple[str, str], ...] = ()
    given_up_count: int = 0
    upkeep: tuple[str, ...] = ()
    events: EventCounts | None = None

    @property
    def all_quarantined(self) -> bool:
        """Whether nothing of the input could be processed: then a call raises `quire.AllQuarantined`, if it gives no `max_quarantined`."""
        return bool(self.failure)

    @property
    def taken(self) -> str:
        """How much that was, in a few words."""
        return f"{self.files:,} {self._taken}"

    @property
    def _taken(self) -> str:
        return "files gathered" if self.noun == "files" else f"{self.noun} passed on"

    @property
    def files_per_second(self) -> float:
        """Gathered files over the whole call's time."""
        return self.files / self.seconds if self.seconds else 0.0

    def _first(self) -> dict[str, object]:
        """The line that comes first, where nothing could be processed."""
        return {"ALL QUARANTINED": self.failure} if self.failure else {}

    def _outages(self) -> dict[str, object]:
        rows: dict[str, object] = {"outages outlived": f"{self.gap_count:,}, the last one {self.gaps[-1]}"} if self.gaps else {}
        return rows | ({"upkeep was hindered": "; ".join(self.upkeep)} if self.upkeep else {})

    def _retries(self) -> dict[str, object]:
        rows: dict[str, object] = {}
        if self.retried:
            rows["tried again of the quarantine"] = f"{self.retried:,}, {self.retried_taken:,} of them taken now"
        if self.given_up_count:
            rows["given up (max_attempts)"] = f"{self.given_up_count:,}"
        return rows

    def _loud(self) -> str:
        return "all_quarantined=True, " if self.failure else ""

    def checked(self) -> Report:
        """The report itself; AllQuarantined, which carries it, if nothing could be processed."""
        if not self.failure:
            return self
        dest, first = shlex.quote(_plain(self.dest)), f" First: {': '.join(self.quarantined[0])}." if self.quarantined and self.jobs else ""
        raise AllQuarantined(
            f"all of {self.source} is quarantined in {self.dest}: {self.failure}.{first} Look at: quire ledger quarantined {dest} - what "
            f"is repaired, quire ledger retry reads again; or allow it with max_quarantined.", report=self
        )  # fmt: skip

    def _facts(self) -> Mapping[str, object]:
        rows: dict[str, object] = {
            **self._first(),
            self._taken: f"{self.files:,}",
            **({"bytes read": format_size(self.bytes)} if self.noun == "files" else {}),
            "data files": f"{self.data_files:,} ({format_size(self.written)}, {self.records:,} records)",
            **({"instant": self.instant} if self.instant else {}),
            **({"through": self.reduce} if self.reduce else {}),
            "skipped (already processed)": f"{self.skipped:,}"
            + (f", of them {self.quarantined_before:,} quarantined" if self.quarantined_before else ""),
            "quarantined": f"{self.quarantined_count:,}",
        }
        late = tuple(export.partition(":")[0] for export in self.exports if BEHIND in export)
        if self.superseded:
            rows["superseded data files"] = str(Superseded(self.superseded, self.superseded_held, self.pins, late))
        rows |= _scattered(self.early)
        if self.exports:
            rows["exports"] = "; ".join(self.exports)
        if self.changed_count:
            rows["changed since, not read"] = str(Changes(self.changed_count, self.longer_count))
        if self.unreadable_count:
            rows["could not be read or planned"] = f"{self.unreadable_count:,}"
        stays = sum(why.startswith(NOT_TAKEN) for _, why in self.deferred)
        if stays:
            rows["new version not taken, old one stays"] = f"{stays:,}"
        if len(self.deferred) > stays:
            rows["deferred (changed or gone)"] = f"{len(self.deferred) - stays:,}"
        counts = {
            "last lines held back": self.held_back, "gone at the source, kept here": self.deleted, "too young (min_age)": self.young,
            "links not followed": self.links, "retries": self.retries,
        }  # fmt: skip
        rows |= {name: f"{count:,}" for name, count in counts.items() if count}
        rows |= {"hidden, ignored": hidden_names(self.hidden)} if self.hidden else {}
        rows |= {"events": str(self.events)} if self.events else {}
        rows |= self._retries() | self._outages()
        rows["seconds"] = f"{self.seconds:.1f} ({self.files_per_second:,.0f} {self.noun}/s)"
        if self.skew is not None:
            rows["skew"] = self.skew.verdict
        if len(self.jobs) > 1:
            rows["commits"] = f"{len(self.jobs):,}"
        if self.outstanding:
            rows["left to the next call"] = f"{self.outstanding:,}"
        rows["version"] = self.version
        return rows

    def _note(self) -> str:
        dest = shlex.quote(_plain(self.dest))
        parts = [f"{path}: {reason}" for path, reason in self.quarantined[:SHOWN]]
        if self.quarantined_count > SHOWN:
            parts.append(f"… all that is quarantined: quire ledger quarantined {dest}")
        parts += [f"{path}: {reason}" for path, reason in (*self.changed[:SHOWN], *self.unreadable[:SHOWN], *self.deferred[:SHOWN])]
        parts += [f"{path}: {reason}" for path, reason in self.given_up[:SHOWN]]
        if self.given_up_count:
            sources = " ".join(f"--source {shlex.quote(_plain(one))}" for one in self.source.split(", "))
            parts.append(f"… given up, so no run tries it again: quire ledger retry {dest} {sources} --max-attempts N")
        if self.changed_count:
            parts.append(changed_since(self.dest, self.source, reduce=bool(self.reduce)))
        parts += [f"job {job} of another call is unfinished: quire recover {dest} --abort {job}" for job in self.others]
        parts.append(self.next)
        return "\n".join(map(printable, parts))

    @property
    def next(self) -> str:
        """The command to go on with."""
        dest = shlex.quote(_plain(self.dest))
        return f"next: quire ledger quarantined {dest}" if self.quarantined_count or self.failure else f"next: quire ledger summary {dest}"

    @property
    def nothing(self) -> bool:
        """Whether no file was there at all."""
        counts = (self.skipped, self.quarantined_count, self.changed_count, self.unreadable_count, self.young, self.links, self.deleted,
            self.hidden)  # fmt: skip
        return not any((*counts, self.jobs, self.deferred, self.others, self.held_back, self.events and self.events.received))

    def __str__(self) -> str:
        if self.nothing:
            what = "nothing is there to gather" if self.noun == "files" else f"no {self.noun} are there to pass on"
            return printable(f"{self.source} → {self.dest}: {what}, and nothing was written.")
        return display.lines(f"{self.source} → {self.dest}", self._facts(), self._note())

    def __repr__(self) -> str:
        read = f"files={self.files:,}, bytes={self.bytes:,}" if self.noun == "files" else f"{self.noun}={self.files:,}"
        return (
            f"Report({self._loud()}{read}, data_files={self.data_files:,}, "
            f"quarantined={self.quarantined_count:,}, deferred={len(self.deferred):,}, skipped={self.skipped:,}, "
            f"seconds={self.seconds:.1f}, version={self.version})"
        )

    def _repr_html_(self) -> str:
        return display.facts(f"{self.source} → {self.dest}", self._facts(), self._note())

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it."""
        found = {k: v for k, v in asdict(self).items() if k != "skew"}
        return {
            **found,
            "files_per_second": round(self.files_per_second, 1),
            "skew": self.skew.as_dict() if self.skew else None,
            "next": self.next,
            "all_quarantined": self.all_quarantined,
        }


@dataclass(frozen=True)
class LoadReport(Report):
    """The result of `quire.load`.

    records     in the data files of this call (of a table: the rows that came); `written` bytes in `data_files`
    bytes       offsets that this call has covered: those of records, and those that hold none (markers, what was aborted or compacted)
    lost        offsets that retention had removed before they were read (on_data_loss="record")
    quarantined   (partition, reason) of records in quarantine
    duplicates  records that were left out, as one of their key was kept (deduplicate=)
    skipped     partitions without anything new
    notes       what else is to be known: a consumer group that does not follow, topics without ids

    The rest is as in `Report`.

        report = quire.load("kafka://host:9092/topic", "/data/events")
        print(report.records, report.records_per_second)
    """

    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: Report, notes: Iterable[str]) -> LoadReport:
        """Return a `Report` (`report`) as that of a load, with the `notes` that say something."""
        return cls(**{f.name: getattr(report, f.name) for f in fields(report)}, notes=tuple(note for note in notes if note))

    @property
    def taken(self) -> str:
        """How much that was, in a few words."""
        return f"{self.records:,} records loaded"

    @property
    def nothing(self) -> bool:
        """A load always has something to say."""
        return False

    @property
    def records_per_second(self) -> float:
        """Over the whole call's time."""
        return self.records / self.seconds if self.seconds else 0.0

    def _facts(self) -> Mapping[str, object]:
        rows: dict[str, object] = {
            **self._first(),
            "records loaded": f"{self.records:,}",
            "offsets covered": f"{self.bytes:,}",
            "data files": f"{self.data_files:,} ({format_size(self.written)})",
            **({"instant": self.instant} if self.instant else {}),
            "quarantined": f"{self.quarantined_count:,}",
        }
        rows |= _scattered(self.early)
        if self.duplicates:
            rows["duplicates left out"] = f"{self.duplicates:,}"
        if self.lost:
            rows["lost to retention (offsets)"] = f"{self.lost:,}"
        if self.deferred:
            rows["deferred (topic deleted or recreated)"] = f"{len(self.deferred):,}"
        if self.retries:
            rows["retries"] = f"{self.retries:,}"
        rows |= self._retries() | self._outages()
        rows["seconds"] = f"{self.seconds:.1f} ({self.records_per_second:,.0f} records/s)"
        rows["version"] = self.version
        return rows

    def _note(self) -> str:
        return "\n".join([*map(printable, self.notes), super()._note()])

    def __repr__(self) -> str:
        said = f"duplicates={self.duplicates:,}, " if self.duplicates else ""
        return (
            f"LoadReport({self._loud()}records={self.records:,}, offsets={self.bytes:,}, data_files={self.data_files:,}, "
            f"quarantined={self.quarantined_count:,}, {said}lost={self.lost:,}, seconds={self.seconds:.1f}, version={self.version})"
        )

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it."""
        return {**super().as_dict(), "records_per_second": round(self.records_per_second, 1)}


def _scattered(early: int) -> dict[str, object]:
    said = f"{early:,}, as too many directories were written at once: quire ledger compact merges them"
    return {"data files ended early": said} if early else {}


def hidden_names(count: int) -> str:
    """How many names were ignored, and what takes them."""
    return f"{count:,} (hidden=True takes {'it' if count == 1 else 'them'})"


def _plain(url: str) -> str:
    return url.removeprefix("file://")
