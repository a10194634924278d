"""Which schema a file of rows is of, where each schema has a destination of its own: files of another one are not planned.

A file's destination follows from its own columns alone, so every run finds the same one, whatever lies beside the file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.planning.columns import opened
from quire.sources.files import Root
from quire.sources.transforms import BadContent, columnar, schemas
from quire.storage import Unreadable, Vanished

if TYPE_CHECKING:
    from quire.planning.listing import Listed

UNREADABLE = "unreadable"  # the destination of files whose columns nobody can read: they are quarantined there, and told
_OF = pa.types
# Types of one family are widened into each other; of others no column holds both.
_FAMILIES: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("int", _OF.is_integer), ("float", _OF.is_floating), ("decimal", _OF.is_decimal), ("date", _OF.is_date),
)  # fmt: skip


def mine(kind: str, only: str, root: Root, files: pa.Table, found: Listed) -> pa.Table:
    """The files of a listing that are of the schema called `only`; how many are of which schema is counted in `found`."""
    store, prefix = root.store(found.again), len(root.url.rstrip("/")) + 1
    paths, sizes = (files.column(name).to_pylist() for name in ("path", "size"))
    of = dict.fromkeys(paths, "")
    schema_of = dict[str, str]()
    for name, _, file in opened(store, prefix, files):
        path = f"{root.url.rstrip('/')}/{name}"
        try:
            columns = columnar.schema_of(kind, file)
            of[path] = named(columns)
            schema_of.setdefault(of[path], schemas.text(columns))
        except (BadContent, Unreadable):
            of[path] = UNREADABLE
        except Vanished:
            continue
    for path, size, version in zip(paths, sizes, files.column("version").to_pylist(), strict=True):
        if not of[path]:  # one that changes meanwhile is left to the next run
            there = store.stat(path[prefix:]) if size else None
            of[path] = "" if size and (there is None or there.version != version) else UNREADABLE
    for name in dict.fromkeys(of.values()):
        if name:
            example = next(path for path in paths if of[path] == name)
            found.written.routes.append([name, sum(each == name for each in of.values()), example, schema_of.get(name, "")])
    return files.filter(pc.is_in(files.column("path"), pa.array([path for path in paths if of[path] == only], pa.string())))


def named(schema: pa.Schema) -> str:
    """The name of a schema: some of its columns, and a hash of all of them with the families of their types, in whatever order."""
    columns = sorted((field.name.lower(), _family(field.type)) for field in schema)
    label = "-".join(re.sub(r"[^a-z0-9]+", "_", name) for name, _ in columns[:3])[:40].strip("_-")
    return f"{label or 'columns'}-{hashlib.sha256(repr(columns).encode()).hexdigest()[:8]}"


def _family(kind: pa.DataType) -> str:
    if _OF.is_struct(kind):
        return f"struct{sorted((f.name.lower(), _family(f.type)) for f in kind)}"
    if _OF.is_list(kind):
        return f"list[{_family(kind.value_type)}]"
    if _OF.is_map(kind):
        return f"map[{_family(kind.key_type)}, {_family(kind.item_type)}]"
    return next((name for name, like in _FAMILIES if like(kind)), str(kind))
