"""The columns of files that hold columns: looked at where the files are listed, and frozen with the plan.

footers, in the listing's tasks → the columns of all → an object of the plan, which its tasks read
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from quire.commit import names
from quire.commit.log import Log
from quire.errors import FormatError, NotFoundError, RefusedError, UsageError
from quire.formats.parquet import stored
from quire.sources.transforms import BadContent, columnar, schemas
from quire.storage import ReadRequest, Store, Unreadable, Vanished

if TYPE_CHECKING:
    from quire.planning.listing import Written

WHOLE = 1 << 20  # bytes of a file that is read in one request, rather than by its footer
SAMPLE = 8  # files of a listing whose columns are measured without their footers

Counted = list[list[Any]]  # schemas, serialised, each with how many files have it


def look(kind: str, store: Store, prefix: int, rows: pa.Table, written: Written) -> Counted:
    """The columns of a plan's files; those that cannot be read are told when they are gathered. `prefix`: of their paths."""
    found, measured = Counter[pa.Schema](), 0
    for size, file in _opened(store, prefix, rows):
        try:
            found[columnar.schema_of(kind, file)] += 1
            if kind == "parquet" and measured < SAMPLE:
                file.seek(0)
                measured, written.sampled = measured + 1, written.sampled + size
                written.sampled_out += _measured(pq.read_metadata(file))
        except (BadContent, Vanished, Unreadable):
            continue
    return [[base64.b64encode(schema.serialize().to_pybytes()).decode(), n] for schema, n in found.items()]


def _opened(store: Store, prefix: int, rows: pa.Table) -> Iterator[tuple[int, Any]]:
    short, long = list[ReadRequest](), list[ReadRequest]()
    for path, version, size, start in zip(*(rows.column(c).to_pylist() for c in ("path", "version", "size", "start")), strict=True):
        if size and not start:
            (short if size <= WHOLE else long).append(ReadRequest(path[prefix:], version, size, 0, size))
    for request, content in store.read_many(short):
        with suppress(Vanished, Unreadable):
            if not isinstance(content, Vanished | Unreadable):
                yield request.size, pa.BufferReader(content if isinstance(content, bytes) else b"".join(content))
    for request in long:
        try:
            yield request.size, stored(store, request.name)
        except NotFoundError:
            continue


def _measured(metadata: Any) -> int:
    """The bytes of columns, which stay when many files become one; their footers do not."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    return sum(group.column(i).total_compressed_size for group in groups for i in range(metadata.num_columns))


def freeze(store: Store, log: Log, job: str, plan: str, counted: Counted) -> None:
    """Write the columns that the files of a plan have together; RefusedError where the destination does not have all of them."""
    total = Counter[str]()
    for text, n in counted:
        total[text] += n
    if not total:
        return
    there = schemas.there(log)
    found = [(pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text))), n) for text, n in total.items()]
    columns = columnar.common(found, there)
    if columns is None:
        return
    if there is not None and columns != there:
        raise RefusedError(
            f"the files have other columns than {store.url}: {_difference(there, columns)}. Nothing was changed: gather them into another "
            f"destination, or all files into a new one."
        )
    store.put(_name(job, plan), schemas.text(columns).encode())


def _difference(there: pa.Schema, now: pa.Schema) -> str:
    said = [f"the column {f.name!r} ({f.type}) is not there" for f in now if f.name not in there.names]
    said += [f"{f.name!r} is {f.type} there, and {now.field(f.name).type} would hold both" for f in there if now.field(f.name) != f]
    return "; ".join(said[:3]) + (f"; and {len(said) - 3} more" if len(said) > 3 else "")


def frozen(store: Store, job: str, plan: str) -> pa.Schema | None:
    """The columns of a plan; None: none of its files could be read."""
    try:
        return schemas.parse(store.get(_name(job, plan)).decode())
    except NotFoundError:
        return None
    except (UnicodeDecodeError, UsageError) as e:
        raise FormatError(f"{store.url}/{_name(job, plan)} does not name columns: it is damaged. Look who wrote it.") from e


def _name(job: str, plan: str) -> str:
    return names.plan_parquet(job, plan, "columns")
