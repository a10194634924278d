"""Data files that a commit has superseded leave the directory, so that a reader who lists it counts each row once.

    published → expired {below, away} → the files go → retired {away}

The entry `expired` says first up to which version files go, computed from the same read as the pins; `retired` says that they have gone.
Between the two anybody may do it, again and again, from the entries alone. A file of a version that is kept moves to where no reader of
the directory looks; all others are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from quire.commit import names
from quire.commit.entries import TABLE, Commit, Entry, Expired, Keep, Retired, Settings
from quire.commit.exports import exports, needed
from quire.commit.log import Log
from quire.errors import NotFoundError, QuireError, TransientError
from quire.storage import Copying, Folder, Limited, Store, remove_all
from quire.storage.base import Lasting

PARALLEL = 16  # requests at once
HOUR = Keep(seconds=3600.0)  # where a store renames, and nobody has said another time: a reader goes on for so long
NONE = Keep(versions=0)


class Superseding(NamedTuple):
    """A commit with its number and that of its `published`: the data files that it has removed; if it is void, its own instead.

    `ends`: no older version may keep what it took out (the rows were forgotten), or none can (the names would be too long).
    """

    number: int
    at: int
    removed: list[str]
    void: list[str]
    ends: bool


def away(log: Log) -> int:
    """The version up to which superseded data files leave the directory."""
    found = [e.away for e in log.recent_of(Expired)]
    return max([*found, log.base.away if log.base else 0])


def retired(log: Log) -> tuple[int, int]:
    """Before which version all is deleted that only older ones need; and up to which superseded data files have left the directory."""
    found = [(e.below, e.away) for e in log.recent_of(Retired)]
    below, away = zip(*found, log.base.retired if log.base else (0, 0), strict=True)
    return max(below), max(away)


def superseding(log: Log, until: int | None = None) -> Iterator[Superseding]:
    """The commits after which data files that count no more may still lie in the directory, or among the kept ones.

    `until`: of those published up to this version; others are not read.
    """
    after, last = retired(log)[1], log.tip if until is None else until
    for number, commit in _between(log, after, last):
        at = log.published_at(commit.job)
        if after < at <= last and commit.closer != TABLE:
            counts = log.kept(commit)
            void = commit.tasks if commit.removing and not counts else ()
            removed = [name for task in counts for name in task.coverage.removes]
            ends = (commit.verb == "forget" and bool(counts)) or any(_too_long(log.store, at, name) for name in removed)
            if removed or void or ends:
                yield Superseding(number, at, removed, [file.name for task in void for file in task.data_files], ends)


def _between(log: Log, after: int, last: int) -> Iterator[tuple[int, Commit]]:
    """The commits after a version, up to another; of those that a checkpoint stands for, only such as it names."""
    begin = after
    if log.base and after < log.merged and log.base.superseding is not None:
        begin = log.merged
        yield from ((number, log.commit(number)) for number in log.base.superseding if after < number <= last)
    yield from log.commits(begin, last)


def _too_long(store: Store, version: int, name: str) -> bool:
    """Whether a store would not take the name under which a data file is kept."""
    try:
        if isinstance(store, Limited):
            store.check_name(names.kept(version, name))
    except QuireError:
        return True
    return False


def wish(log: Log) -> Keep | None:
    """How many older versions stay readable, as a user has set it last; None: nobody has."""
    found = [e.keep for e in log.recent_of(Settings)]
    return found[-1] if found else log.base.keep if log.base else None


def can_keep(store: Store) -> bool:
    """Whether a store can move a data file by itself."""
    return store.can_rename or isinstance(store, Copying)


def keeping(log: Log) -> Keep:
    """How many older versions stay readable: as a user has set it, or else what goes with the store."""
    return wish(log) or (HOUR if log.store.can_rename else NONE)


def due(log: Log, time: str, *, asked: bool = False) -> Entry | None:
    """The entry that says which files go, computed from the log as just read; None: it says so already, or none are to go.

    `asked`: a user has just said how many versions are kept, or a pin has ended. Else an older version goes with the next one that is
    superseded, or when its time has come: to count versions, old entries would have to be read at each call.
    """
    until, below, before = log.settled_version(min([log.tip, *needed(log)])), log.expired(), away(log)
    fresh = until > before and any(each.at > before for each in superseding(log, until))
    kept = [version for version in _kept(log.store) if version > below] if below < before else []
    if not fresh and not (kept and (asked or _old(log, min(kept)))):
        return None
    first = max(below, min(until, _first_kept(log, until)))
    if fresh or any(version <= first for version in kept):
        return Expired(below=first, away=max(until, before), time=time)
    return None


def expiring(log: Log, grace: float) -> int:
    """The first version that stays readable, where all end that nobody wished to keep and that were superseded `grace` seconds ago."""
    until = log.settled_version(min((log.tip, *needed(log))))
    return max(log.expired(), min(_first_kept(log, until), _newest_before(log, until, grace)))


def open_since(log: Log) -> bool:
    """Whether files still have to go, of which the log says so."""
    below, until = retired(log)
    return away(log) > until or log.expired() > below


def carry_out(log: Log, time: str) -> None:
    """Let the files go. Each job that has made one of them is over and clean: no publisher brings it back."""
    store, until, below = log.store, away(log), log.expired()
    going = _leaving(log, retired(log)[1], until)

    kept = [name for name in going if going[name] > below]
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(lambda name: _keep(store, name, names.kept(going[name], name)), kept))
    copied = isinstance(store, Copying) and not store.can_rename  # what is kept there lies in both places now
    remove_all(store, [name for name in going if going[name] <= below or copied])
    _sync(store, going)
    # These come last: a slower call than this one may have moved a file here that this one was about to delete.
    _drop(store, below)

    def done(log: Log) -> Entry | None:
        there = retired(log)
        return None if there[0] >= below and there[1] >= until else Retired(below=below, away=until, time=time)

    log.append(done)
    if (later := log.expired()) > below:
        _drop(store, later)  # this call was the slower one: it may have copied a file whose rows were forgotten meanwhile


def _drop(store: Store, below: int) -> None:
    """Delete what is kept of versions that cannot be read any more."""
    for version in _kept(store):
        if version <= below:
            store.remove_tree(names.kept_folder(version))
    _sync(store, [names.kept_folder(below)])


@dataclass(frozen=True)
class Superseded:
    """How many data files some jobs have superseded; and how many of these are still in the directory, as pins hold them."""

    files: int = 0
    held: int = 0
    pins: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()  # that lag

    def __str__(self) -> str:
        if not self.held:
            return f"{self.files:,} have left the directory"
        if self.exports and not self.pins:
            return f"{self.files:,}, of which {self.held:,} are still in the directory: the export {self.exports[0]} has not come so far"
        if not self.pins:
            return f"{self.files:,}, of which {self.held:,} are still in the directory: another call has not ended. The next takes them out"
        one = len(self.pins) == 1
        held = f"pin {self.pins[0]} holds" if one else f"{len(self.pins):,} pins hold"
        return (
            f"{self.files:,}, of which {held} {self.held:,} in the directory: until {'it ends' if one else 'they end'}, readers of the "
            f"directory count their rows twice"
        )


def waiting(log: Log) -> set[str]:
    """The data files that count no more, and are still in the directory: pins hold them, or nobody has come to it."""
    return {name for each in superseding(log) for name in (*each.removed, *each.void)}


def superseded(log: Log, jobs: Iterable[str]) -> Superseded:
    """The data files that some jobs have superseded."""
    files = held = last = 0
    gone = retired(log)[1]
    for commit in map(log.outcome, jobs):
        if isinstance(commit, Commit) and commit.closer != TABLE:
            removed = sum(len(task.coverage.removes) for task in log.kept(commit))
            files += removed
            if removed and (at := log.published_at(commit.job)) > gone:
                held, last = held + removed, max(last, at)
    lagging = [name for name, one in exports(log).items() if (one.version or 0) < last]
    return Superseded(files, held, tuple(sorted(log.pins())) if held else (), tuple(lagging))


def _sync(store: Store, gone: Iterable[str]) -> None:
    """Let deletions last before the log says that they are done."""
    if isinstance(store, Lasting):
        for folder in sorted({name.rpartition("/")[0] for name in gone}):
            store.sync_folder(folder)


def places(store: Store) -> dict[str, str]:
    """Data file → where it is kept."""
    found = ((names.kept_at(e.name), e.name) for e in store.walk(names.KEPT))
    return {at[1]: name for at, name in found if at and at[1]}


def _leaving(log: Log, after: int, until: int) -> dict[str, int]:
    """Data file → the version from which on it does not count, of those that go between two versions; 0: it never did."""
    found = dict[str, int]()
    for each in superseding(log, until):
        if each.at > after:
            found |= dict.fromkeys(each.removed, each.at) | dict.fromkeys(each.void, 0)
    return found


def _kept(store: Store) -> list[int]:
    """The versions at which files were superseded that are kept."""
    items = (names.kept_at(item.name.rstrip("/")) for item in store.scan(names.KEPT) if isinstance(item, Folder))
    return [at[0] for at in items if at]


def _keep(store: Store, name: str, place: str) -> None:
    """Let a data file lie in another place; where a store copies, it lies in both, and is deleted afterwards."""
    if store.can_rename:
        try:
            store.rename(name, place)
        except NotFoundError:
            return  # somebody has done it
    elif isinstance(store, Copying) and not store.copy(name, place) and store.stat(place) is None and store.stat(name) is not None:
        raise TransientError(f"{store.url}/{name} could not be copied to where older versions are kept")


# ---------------------------------------------------------------------------------------------------------- what is kept
def _first_kept(log: Log, until: int) -> int:
    """The first version that stays readable; none stays that holds rows which were forgotten, or files that cannot be kept."""
    ended = max((each.at for each in superseding(log, until) if each.ends), default=0)
    keep = keeping(log)
    if keep.seconds is not None:
        found = _newest_before(log, until, keep.seconds)
    else:
        counting = (log.published_at(c.job) for _, c in log.backwards(until) if log.kept(c))
        wanted = list(islice(counting, (keep.versions or 0) + 1))
        found = until if not keep.versions else min(wanted) if len(wanted) > keep.versions else 0
    return max(log.settled_version(found) if found else 0, ended)


def _old(log: Log, version: int) -> bool:
    """Whether the time has come at which what was superseded at a version is deleted."""
    keep = keeping(log)
    return keep.versions == 0 or (keep.seconds is not None and _moment(log.entry(version).time) <= _limit(keep.seconds))


def _newest_before(log: Log, until: int, seconds: float) -> int:
    """The version that was the newest one some seconds ago; 0 where the first one is younger."""
    limit = _limit(seconds)
    low, high = log.expired(), until  # of an entry at `low` nothing has to be known, one after `high` is not asked for
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _moment(log.entry(middle).time) <= limit else (low, middle - 1)
    return low


def _limit(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def _moment(text: str) -> datetime:
    """The time of an entry; a forged one counts as young."""
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.astimezone()
    except (ValueError, OverflowError):
        return datetime.max.replace(tzinfo=UTC)
