"""The step between `published` and the leaving of superseded files: each export that is wanted is brought to the version of now.

    published → export → Export {version} → expired → the files go → retired

The entry `Export` says how far an export has come, and files that left the destination later stay where they are. Whoever dies between
the two is repeated: the export's own metadata says which version it offers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from quire.commit import protocol
from quire.commit.closers import offering
from quire.commit.entries import Entry, Export, Foreign
from quire.commit.exports import exports
from quire.commit.log import Log
from quire.engine.exports import columns, delta, iceberg, offered, symlinks
from quire.engine.report import BEHIND
from quire.errors import FormatError, QuireError, RefusedError, UsageError, about, choose, quoted
from quire.storage import Store

FORMATS: Mapping[str, Any] = {"delta": delta, "iceberg": iceberg, "symlinks": symlinks}


def wanted(asked: Any, format: str, store: Store) -> tuple[str, ...]:
    """The formats that a user names, for a destination of files of a format; UsageError for anything else."""
    with about("exports"):
        named = () if asked is None else (asked,) if isinstance(asked, str) else asked
        if not isinstance(named, Sequence):
            raise UsageError(f"exports={quoted(asked)} are not names of formats: say exports=('delta',).")
        found = tuple(dict.fromkeys(choose(name, tuple(FORMATS), "exports") for name in named))
        if found and (table := offering(store)):
            table.check_offered(store)
        if format != "parquet" and (columnar := [name for name in found if FORMATS[name].PARQUET_ALONE]):
            raise UsageError(f"exports={quoted(columnar[0])} is a table of Parquet files, and this gives {format}. Say format='parquet'.")
        return found


def want(log: Log, names: Sequence[str], options: Mapping[str, str] | None = None) -> None:
    """Say in the log that a destination has these exports from now on. RefusedError where another program's are in their place.

    `options`: those of one format, by which its readers find it; UsageError where it has others already.
    """
    check_new(log, names, options)
    for name in names:
        there = exports(log).get(name)
        if there is None:
            log.append(functools.partial(_want, name, dict(options or {})))
        elif options and options != there.options:
            has = ", ".join(f"{key}={value!r}" for key, value in there.options.items()) or "neither"
            raise UsageError(f"{log.store.url} has this export already, with {has}. ledger.drop_export({name!r}) ends that first.")


def check_new(log: Log, names: Sequence[str], options: Mapping[str, str] | None = None) -> None:
    """RefusedError where another program has the place of an export that is not there yet, UsageError for options that it does not take."""
    for name in names:
        if name not in exports(log):
            FORMATS[name].check_options(log.store, options or {})
            FORMATS[name].check_free(log.store)


def _want(name: str, options: dict[str, str], log: Log) -> Entry | None:
    return None if name in exports(log) else Export(name=name, version=0, time=protocol.now(), options=options)


def behind(log: Log) -> list[Export]:
    """The exports that do not offer the version of now."""
    there = exports(log)
    if not there:
        return []
    until = log.settled_version()
    # One that a checkpoint is ahead of is brought on, too, so that nobody reads entries again and again that the checkpoint stands for.
    return [one for one in there.values() if (one.version or 0) < until and _changed(log, one.version or 0, until)]


def _changed(log: Log, since: int, until: int) -> bool:
    if since < log.merged or any(log.commits(since, until)):
        return True
    return any(isinstance(entry, Foreign) for entry in log.since(since)[: until - since])  # other programs write into tables


def export(log: Log, one: Export, watch: offered.Watch = offered.unwatched) -> Export:
    """Bring an export to the version of now, and say so in the log. Raises QuireError where that is not possible."""
    if one.name not in FORMATS:
        raise FormatError(f"{log.store.url} has an export {quoted(one.name)}, which this quire does not know. Update quire.")
    check_kind(log, one.name)
    late, until = one.name in {each.name for each in behind(log)}, log.settled_version()
    version, commit = FORMATS[one.name].bring(log, one, until, watch=watch)
    if not late:
        version = one.version or 0  # its own metadata were looked at again: nothing in the log is new
    done = Export(name=one.name, version=version, commit=commit, time=protocol.now(), options=one.options)

    def say(log: Log) -> Entry | None:
        there = exports(log).get(one.name)
        return None if there is None or (there.version or 0, there.commit) >= (version, commit) else done

    log.append(say)
    return done


def check_kind(log: Log, name: str) -> None:
    """RefusedError for a destination that a format cannot offer."""
    spec = log.spec()
    if table := offering(log.store):
        table.check_offered(log.store)
    if spec is not None and spec.format != "parquet" and FORMATS[name].PARQUET_ALONE:
        raise RefusedError(f"{log.store.url} holds {spec.format}, and {name} is a table of Parquet files. Export it as symlinks.")


def keep_up(log: Log, say: Callable[[str], object]) -> None:
    """Bring all exports to the version of now, then let superseded files leave.

    One that fails is said, and lags: the commit stands. One that is refused before it has offered anything ends.
    """
    for one in behind(log):
        try:
            export(log, one)
        except QuireError as e:
            why = str(e).rstrip(".")
            if isinstance(e, RefusedError) and end_unbegun(log, one.name):
                say(f"the export {one.name} of {log.store.url} has ended, and has offered nothing: {why}. What was committed stands.")
                continue
            end = f" ledger.drop_export({one.name!r}) ends it." if one.name in FORMATS else ""
            say(f"the export {one.name} of {log.store.url} lags at version {one.version}: {why}.{end}")
    columns.keep_up(log)
    protocol.retire(log)


def move_off(log: Log, version: int) -> None:
    """Bring all exports past a commit that is about to delete files of now, as a rollback of a table does."""
    for one in exports(log).values():
        if one.name not in FORMATS:
            continue  # a newer quire's, and only that can bring it on
        with suppress(QuireError):  # the commit stands; whoever brings this export on later says why it lags
            FORMATS[one.name].bring(log, one, version, always=True)


def catch_up(log: Log, say: Callable[[str], object]) -> None:
    """The same where an export lags, and nothing else."""
    if behind(log):
        keep_up(log, say)
    else:
        columns.keep_up(log)


def told(log: Log, asked: Sequence[str] = ()) -> tuple[str, ...]:
    """Each export that is wanted, and which version it offers; of those that a call has `asked` for, also such as have ended in it."""
    late, there = {one.name for one in behind(log)}, exports(log)
    found = {
        name: (f"version {one.version}" if one.version else "nothing yet") + (f", {BEHIND}" if name in late else "")
        for name, one in there.items()
    }  # fmt: skip
    if log.tip:
        found |= {name: "ended, and has offered nothing" for name in asked if name not in there}
    return tuple(f"{name}: {said}" for name, said in found.items())


def end_unbegun(log: Log, name: str) -> bool:
    """End an export that was refused, if it has offered nothing: it would hold superseded files for ever. Whether it is over."""
    one = exports(log).get(name)
    if one is not None and not one.version:
        with suppress(QuireError):  # then it lags, and the next call tries again
            end(log, name, begun=False)
    return name not in exports(log)


def end(log: Log, name: str, *, force: bool = False, begun: bool = True) -> None:
    """Say that an export is not wanted any more, take its metadata away, and let the files leave that it has held.

    `force`: without its catalog, where its table stays. `begun`: also if it has offered a version.
    """
    if (one := exports(log).get(name)) and not force:
        try:
            FORMATS[name].release(log.store, one)  # first: who finds it by a catalog would miss files that leave
        except QuireError as e:
            why = str(e).rstrip(".")
            raise QuireError(
                f"{why}. ledger.drop_export({name!r}, force=True) leaves the table in its catalog, for readers that fail."
            ) from e

    def say(log: Log) -> Entry | None:
        there = exports(log).get(name)
        return None if there is None or (there.version and not begun) else Export(name=name, version=None, time=protocol.now())

    log.append(say)
    if begun or (name not in exports(log) and _is_ours(log, name)):
        FORMATS[name].remove(log.store)
    protocol.retire(log, asked=True)


def _is_ours(log: Log, name: str) -> bool:
    """Whether its place has metadata of ours, as a call that died may have left them, and not what another program has put there since."""
    try:
        return bool(FORMATS[name].check_free(log.store))
    except (RefusedError, FormatError):
        return False
