"""The creation of a table: its settings, checked, and put where every reader and writer of Hudi looks for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quire.arguments import flag, parse_target
from quire.engine.take_up import with_state
from quire.errors import RefusedError, UsageError, about, choose, encodable, quoted
from quire.storage import Store, connect, plain
from quire.storage.base import STATE
from quire.table import index as indexes
from quire.table import settings
from quire.table.format import archive, config, names
from quire.table.format.config import TableConfig
from quire.table.settings import Settings

TYPES = {"copy_on_write": config.COPY_ON_WRITE, "merge_on_read": config.MERGE_ON_READ}
CDC = tuple(mode.lower() for mode in config.MODES_OF_CDC)
_WORD = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_OR_NONE = ", or leave it out for a table without partitions"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


@dataclass(frozen=True)
class Asked:
    """The arguments of `Table.create`."""

    key: str | Sequence[str]
    partition_by: str | Sequence[str] | None
    ordering: str | None
    type: str
    index: str
    buckets: int | None
    hive_style: bool
    change_files: bool
    target_size: str | int
    name: str | None
    log_format: str = settings.PARQUET
    cdc: str | None = None
    version: int = config.VERSION


def check(url: str, asked: Asked) -> tuple[TableConfig, Settings]:
    """The settings of a new table; UsageError for what does not go together."""
    kind = TYPES[choose(asked.type, TYPES, "type")]
    if kind == config.MERGE_ON_READ and asked.ordering is None:
        with about("ordering"):
            raise UsageError(
                "a merge-on-read table needs ordering=, a column whose greatest value wins: without one older readers of Hudi double rows "
                "and pass over deletes. Name one, or use type='copy_on_write'."
            )
    keys, parts = _fields(asked.key, "key"), () if asked.partition_by is None else _fields(asked.partition_by, "partition_by")
    if asked.ordering is not None:
        with about("ordering"):
            if not isinstance(asked.ordering, str):
                raise UsageError(f"ordering takes one column's name, and not {quoted(asked.ordering)}.")
            _check_field(asked.ordering, "ordering")
    others = indexes.settings(asked.index, asked.buckets)
    called = asked.name if asked.name is not None else "_".join(_WORD.findall(url.rpartition("/")[2]))[:100] or "table"
    if asked.name is not None and (not isinstance(called, str) or not _NAME.fullmatch(called)):
        with about("name"):
            raise UsageError(f"a table's name has letters, digits and '_' (at most 128), and this is {quoted(asked.name)}.")
    made = TableConfig(
        name=called if _NAME.fullmatch(called) else f"t_{called}", type=kind, key=keys, partition_by=parts, ordering=asked.ordering,
        mode=config.COMMIT_TIME if asked.ordering is None else config.EVENT_TIME, hive_style=flag(asked.hive_style, "hive_style"),
        others=tuple(sorted(others.items())),
    )  # fmt: skip
    choose(asked.log_format, settings.LOG_FORMATS, "log_format")
    if asked.log_format != settings.PARQUET and kind != config.MERGE_ON_READ:
        with about("log_format"):
            raise UsageError(
                f"log_format={quoted(asked.log_format)} is of merge-on-read tables: leave it out, or give type='merge_on_read'."
            )
    if asked.cdc is not None:
        mode = choose(asked.cdc, CDC, "cdc")
        if kind != config.COPY_ON_WRITE:
            with about("cdc"):
                raise UsageError(f"cdc={quoted(mode)} is of copy-on-write tables: leave it out, or give type='copy_on_write'.")
        made = replace(made, others=tuple(sorted({**dict(made.others), **config.cdc_settings(mode.upper())}.items())))
    if type(asked.version) is not int or asked.version not in (config.VERSION, config.NEWER):
        with about("version"):
            raise UsageError(f"version takes {config.VERSION} or {config.NEWER}, and not {quoted(asked.version)}.")
    if asked.version == config.NEWER:
        made = replace(made, version=asked.version, others=tuple(sorted({**dict(made.others), **config.newer_settings()}.items())))
    changes, target = flag(asked.change_files, "change_files"), parse_target(asked.target_size)
    return made, Settings(change_files=changes, target=target, log_format=asked.log_format)  # type: ignore[arg-type]  # it was checked


def create(url: str, options: Mapping[str, Any] | None, made: TableConfig, wanted: Settings) -> None:
    """Put the settings of a table at `url`, which has the marker of tables. A table that is there with the same settings stays as it is.

    Raises RefusedError for one with others, and for a directory that holds anything else.
    """
    store = connect(url, options)
    store.check_writable()
    content = made.to_properties()
    if store.stat(names.PROPERTIES) is None:
        beside = connect(plain(url), options)  # which shows the state of a destination that is not a table
        for found, _ in beside.peek() if beside.is_folder() else ():
            if found == STATE:
                raise RefusedError(
                    f"{store.url} is a destination of quire's (it holds {STATE!r}), so no table was created there. Choose another place."
                )
            if found != names.FOLDER:
                raise RefusedError(f"{store.url} is not empty (it holds {found!r}), so no table was created there. Choose another place.")
        with with_state("The table may be there, without rows: call again with the same settings."):
            if made.version == config.NEWER:
                store.put_if_absent(f"{names.TIMELINE}/{archive.MARKER}", b"")  # as there has to be a directory
            if settings.put(store, wanted) == wanted:
                store.put_if_absent(names.PROPERTIES, content)
    _check_same(store, made, wanted)


def _check_same(store: Store, made: TableConfig, wanted: Settings) -> None:
    where = f"{store.url}/{names.PROPERTIES}"
    if store.stat(names.PROPERTIES) is None:
        raise RefusedError(f"{store.url} is being created with other settings. Call again with these, or choose another place.")
    there = TableConfig.from_properties(store.get(names.PROPERTIES), where)
    mine = TableConfig.from_properties(made.to_properties(), where)
    if (there, settings.read(store)) != (mine, wanted):
        raise RefusedError(
            f"{store.url} is a table already, with other settings (its key is {', '.join(there.key)[:200]}). Open it with quire.Table, or "
            f"choose another place."
        )


def _fields(given: object, argument: str) -> tuple[str, ...]:
    """Names of columns; UsageError says which of them is none, and where it stands."""
    with about(argument):
        if not isinstance(given, str | Sequence) or isinstance(given, bytes):
            raise UsageError(f"{argument} takes a column's name, or a list of them, and not {quoted(given)}.")
        if isinstance(given, str):
            _check_field(given, argument)
            return (given,)
        if not given:
            raise UsageError(f"{argument} is an empty list: name a column{_OR_NONE if argument == 'partition_by' else ''}.")
        for at, name in enumerate(given):
            _check_field(name, f"{argument}[{at}]")
            if name in given[:at]:
                raise UsageError(f"{argument}[{at}] is {quoted(name)}, as {argument}[{given.index(name)}] is: name each column once.")
    return tuple(given)


def _check_field(name: object, where: str) -> None:
    """UsageError where this is not a column's name as Hudi lists them."""
    if not isinstance(name, str):
        raise UsageError(f"{where} is {quoted(name)}, and not text: give the column's name.")
    if not encodable(name):
        raise UsageError(f"{where} is {quoted(name)}, which holds half of a character: give the column's name.")
    if not name.strip():
        raise UsageError(f"{where} is empty: give the column's name{_OR_NONE if where == 'partition_by' else ''}.")
    if name != name.strip() or "," in name:
        raise UsageError(
            f"{where} is {quoted(name)}: Hudi takes no name with a comma, or with a space at its ends. Give the column another."
        )


def adopt(store: Store, url: str) -> config.TableConfig:
    """See `Table.adopt`; the settings afterwards."""
    there = config.TableConfig.from_properties(store.get(names.PROPERTIES), f"{url}/{names.PROPERTIES}")
    alone = there.without_metadata()
    config.check_writable(alone, url)
    if alone != there:
        store.put(names.PROPERTIES, alone.to_properties())  # first: from now on nobody asks it
    store.remove_tree(f"{names.FOLDER}/metadata")
    return alone
