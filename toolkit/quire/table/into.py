"""A table as the destination of `quire.load`, `process` and `consolidate`: rows go into it with what was read, in one commit."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from quire.commit import committers
from quire.commit.entries import TABLE
from quire.engine.request import Request, check_options
from quire.errors import UsageError, about, choose
from quire.storage.within import is_marked
from quire.table import timeline
from quire.table.format import names
from quire.table.settings import opened
from quire.table.table import Table
from quire.table.view import there
from quire.table.write import columns

if TYPE_CHECKING:
    import pyarrow as pa

OPERATIONS = ("upsert", "insert", "bulk_insert")
R = TypeVar("R", bound=Request)


def place(dest: str | os.PathLike[str] | Table, options: Any) -> tuple[Any, Any]:
    """The destination that a call names, and its `dest_options`: a table is the place where it lies, opened with its own options and these.

    UsageError for a table as of an instant.
    """
    if not isinstance(dest, Table):
        return dest, options
    check_options(None, None, options)
    with about("dest"):
        if dest._instant:
            raise UsageError(f"{dest.url} as of {dest._instant} is read, not written. Give the table itself.")
    return dest.url, {**(dest._options or {}), **(options or {})} or None


def into(made: R, operation: str | None) -> R:
    """The call as one whose rows go into a table, if its destination is one.

    UsageError for what does not go together: `operation` and a directory, rows that are not columns, and what takes single files apart.
    """
    if not is_marked(made.dest) or made.store().stat(names.PROPERTIES) is None:
        if operation is not None:
            with about("operation"):
                raise UsageError("operation= is for a table, and this destination is not one. Leave it out, or create a table there first.")
        return made
    chosen = "upsert" if operation is None else choose(operation, OPERATIONS, "operation")
    if made.identity.closer:
        with about("reduce"):
            raise UsageError("rows of a table go through no function together, and lie by their keys. Leave reduce= and sort_by= out.")
    if made.spec.format != "parquet" or made.spec.layout != "flat":
        with about("format"):
            raise UsageError(
                "a table takes rows with columns: use format='parquet', without layout= and partition_by= (the table has its own)"
            )
    if made.convert.parquet.said:
        with about("parquet_options"):
            raise UsageError("a table writes its files in its own way. Leave parquet_options= out.")
    if made.selection.schema:
        with about("split_by_schema"):
            raise UsageError("a table has one schema. Leave split_by_schema= out.")
    if made.pace.retries:
        with about("retry_quarantined"):
            raise UsageError("what a table's calls have quarantined is not read again by runs. Leave retry_quarantined= out.")
    by = committers.REGISTRY.make(made.identity.committer)
    if by is not None and by.leaks:
        with about("committer"):
            raise UsageError(
                f"committer={by.name!r} shows files before their commit, and readers of a table would take them in. Leave it out."
            )
    if "reprocess" in (made.policy.on_change, made.policy.on_append):
        with about("on_change"):
            raise UsageError(
                "rows of a table cannot be replaced by file: what is new in a file is upserted by its keys. Leave on_change and on_append "
                "at 'report'."
            )
    store = made.store()
    with about("dest"):
        opened(store)  # says at once why quire does not write there

    def takes(comes: pa.Schema) -> pa.Schema:
        has, _ = opened(store)
        now = there(timeline.current(store), has)
        known = columns.as_known(comes, now)
        columns.after(now, columns.brought(known, has, chosen), chosen, lacking=True)
        return known

    named = made.named(replace(made.spec, reduce=TABLE), operation=chosen)
    return dataclasses.replace(made, identity=dataclasses.replace(named.identity, closer=TABLE), takes=takes)
