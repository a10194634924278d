"""A call of `quire.process` whose source is a table: what its commits change is given to a function, whose rows go into another table."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from quire.arguments import flag
from quire.commit import protocol
from quire.commit.committers import choice
from quire.commit.entries import COMMITS, TABLE, Spec
from quire.commit.log import Log
from quire.coverage.fold import fold
from quire.engine import request
from quire.engine.driver import check_destination, check_spec
from quire.engine.request import Request
from quire.engine.take_up import Identity
from quire.errors import UsageError, about
from quire.planning.listing import Cut
from quire.sources import files, transforms
from quire.sources.splits import FileInfo
from quire.sources.transforms import schemas
from quire.sources.transforms.columns import storable
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.convert import Convert
from quire.sources.transforms.functions import WrongTypeError
from quire.sources.transforms.processing import ProcessFunction, Processing
from quire.storage import connect, destination, plain
from quire.storage.within import is_marked
from quire.table import changes
from quire.table.into import into
from quire.table.source import Commits, columns_of, newest_in, repair_of, rows_of, window
from quire.table.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from quire.sources.transforms import UserFunction

_TAKEN = ("function_version", "keep_messages", "storage_options", "source_options", "dest_options", "waits")  # of a call's settings
LOOKED_AT = 8  # tables of changes whose rows may show what the columns are
_TARGET = 256 << 20  # bytes of a file of staged rows


def source_of(source: Any, dest: Any, settings: Mapping[str, Any]) -> Table | None:
    """The table that a call reads the changes of: one that is given as such, or lies at a URL whose destination is a table, too."""
    storage, own, to = (settings.get(name) for name in ("storage_options", "source_options", "dest_options"))
    if isinstance(source, Table):
        return source
    if not isinstance(source, str | os.PathLike) or str(source).startswith("kafka://"):
        return None
    request.check_options(storage, own, to)
    with about("dest"):
        if not is_marked(destination(dest, {**(storage or {}), **(to or {})} or None)):
            return None
    with about("source"):
        options = {**(storage or {}), **(own or {})} or None
        return (
            Table(source, storage_options=options) if not files.is_glob(str(source)) and is_marked(destination(source, options)) else None
        )


def check(
    source: Table, dest: Any, function: ProcessFunction, columns: pa.Schema | None, operation: str | None, settings: Mapping[str, Any],
    *, needless: Mapping[str, bool],
) -> ChainCall:  # fmt: skip
    """Check the arguments of such a call; every wrong one is a UsageError of one line. `needless`: others, and whether they are given."""
    spelled = inspect.signature(request.build).parameters
    given = [name for name, said in needless.items() if said]
    given += [name for name, value in settings.items() if name not in _TAKEN and value not in (None, spelled[name].default)]
    if given:
        with about(given[0]):
            raise UsageError(f"{given[0]}= is for files, and the source {source.url} is a table, of which changes are read. Leave it out.")
    storage, own, dest_options = (settings.get(name) for name in ("storage_options", "source_options", "dest_options"))
    request.check_options(storage, own, dest_options)
    options = {**(storage or {}), **(source._options or {}), **(own or {})} or None
    with about("source"):
        if source._instant:
            raise UsageError(f"{source.url} as of {source._instant} does not change. Give the table itself.")
        changes.check(source.config, source.url)
    root = Commits(source.url, options=options)
    with about("dest"):
        to_options = {**(storage or {}), **(dest_options or {})} or None
        to = destination(dest, to_options)
        if not is_marked(to):
            raise UsageError(
                f"the changes of a table go into a table, and {plain(to)} is not one. Create it first: quire.Table.create(…, key=…)."
            )
        files.apart((root,), to, to_options)
        by = choice("auto", connect(to, to_options))
    name = transforms.identity(function, settings.get("function_version"))
    keep = flag(settings.get("keep_messages", False), "keep_messages")
    intent = {"table": source.url, "dest": to, "transform": name, "format": "parquet", "committer": by}
    spec = Spec(transform=name.rpartition("@")[0], format="parquet", compression="zstd", layout="flat", kind=COMMITS)
    convert = Convert(
        "callable",
        "parquet",
        "zstd",
        _TARGET,
        _TARGET,
        cast("UserFunction", function),
        keep,
        process=Processing(function, "row_groups", "parquet", None, keep),
    )
    made = Request(
        (root,), to, to_options, Identity(intent, spec, by), convert, Cut("balanced", "flat", 1, "xxh64", changes.TOGETHER, True)
    )
    return ChainCall(_with(into(made, operation), columns), columns)


@dataclass(frozen=True)
class ChainCall:
    """A call, checked. It may leave open (None) the columns of the rows."""

    request: Request
    columns: pa.Schema | None = field(default=None, repr=False)
    what = "part"  # of the changes, in a progress line

    def decided(self, made: Request) -> Request:
        """With columns that the destination takes: those of the call, of an open job of it, or those that the function gives first."""
        store, columns = made.store(), self.columns
        with about("dest"):
            check_destination(store, made.allow_nonempty)
            log = Log(store).refresh()
            check_spec(log, made)
        if columns is None:
            if (frozen := _of_open_job(made, log)) is not None:
                return _with(made, frozen)
            columns = self._of_first_rows(made, log)
        if columns is not None and made.takes is not None:
            with about("schema"):
                columns = made.takes(columns)
        return _with(made, columns)

    def _of_first_rows(self, made: Request, log: Log) -> pa.Schema | None:
        """The columns that the function gives for the first new changes of which rows come; None where there are none yet."""
        (source,), process = made.roots, made.convert.process
        assert isinstance(source, Commits)
        assert process is not None
        covered = fold(log)
        found = window(source, source.passed_on(covered, log.store), made.shown, repair=repair_of(source, covered, log))
        columns, store = columns_of(found.columns, f"the schema of {source.url}"), source.store()
        tables = (some for run in found.runs for some in rows_of(store, run, columns))
        for some in islice(tables, LOOKED_AT):
            last = newest_in(some)
            try:
                gives = process.sample(some, FileInfo(source.url, 0, last), (0, some.num_rows))
            except BadContent:
                return None  # which the job tells of
            if isinstance(gives, bytes) or gives is None or not gives.num_columns:
                continue
            try:
                return storable(made.takes(gives.schema) if made.takes else gives.schema)
            except WrongTypeError as e:
                with about("schema"):
                    raise UsageError(f"{e}, or say the columns: schema='id long, name string, …'.") from None
        return None


def _with(made: Request, columns: pa.Schema | None) -> Request:
    """The call with these columns, which are frozen with the plan."""
    process = made.convert.process
    assert process is not None
    named = made.named(schema="" if columns is None else schemas.text(columns))
    return replace(named, convert=replace(made.convert, process=replace(process, schema=columns)))


def _of_open_job(made: Request, log: Log) -> pa.Schema | None:
    """The columns that an unfinished job of the same call has frozen."""
    for head in protocol.open_jobs(log.store, log):
        theirs, ours = ({k: v for k, v in of.items() if k != "schema"} for of in (head.intent, made.identity.intent))
        if theirs == ours and head.intent.get("schema") and head.closer == TABLE:
            return schemas.parse(str(head.intent["schema"]))
    return None
