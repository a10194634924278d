"""Members of archives, as users name them: `path!member`; where several have one name, also `path!member!start`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from quire.coverage.fold import Fold
from quire.errors import UsageError
from quire.storage import Store

if TYPE_CHECKING:
    from quire.ledger.ledger import Location


def _archives(key: str) -> list[str]:
    """The archives that a key may mean a member of: a `!` may stand in an archive's own path, and in no member's name."""
    first, mark, _ = key.rpartition("!")
    second, twice, _ = first.rpartition("!")
    return sorted({each for each, is_there in ((first, mark), (second, twice)) if is_there and each})


def of(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Those rows (columns path, member, start) that stand for members which are named by `keys`."""
    rows, wanted = rows.filter(pc.is_valid(rows.column("member"))), pa.array(keys, pa.string())
    names = pc.binary_join_element_wise(rows.column("path"), rows.column("member"), "!")
    exact = pc.binary_join_element_wise(names, rows.column("start").cast(pa.string()), "!")
    return rows.filter(pc.or_(pc.is_in(names, wanted), pc.is_in(exact, wanted)))


def rows(folded: Fold, store: Store, columns: list[str], key: str) -> pa.Table:
    """The rows of a file, or of members of an archive, by its key."""
    found = folded.rows(store, columns, key, key)
    if found.num_rows:
        return found
    archives = _archives(key)
    needed = list(dict.fromkeys([*columns, "path", "member", "start"]))
    return of(folded.rows(store, needed, among=pa.array(archives, pa.string())), [key]).select(found.schema.names) if archives else found


def known(folded: Fold, store: Store, key: str) -> bool:
    """Whether the ledger has a file, or a member, of this key."""
    return bool(rows(folded, store, ["path"], key).num_rows)


def one(found: list[Location], keys: Sequence[str], path: str | os.PathLike[str]) -> list[Location]:
    """The places of one document, of those that were found for a `path`; UsageError where it means an archive, or several members."""
    if all(x.member is None for x in found):
        return found
    if found[0].path in keys:
        if any(x.state != "quarantined" for x in found):
            example = next((x.member for x in found if x.member), "member")
            raise UsageError(
                f"{found[0].path} is an archive of which the members were gathered, and not its bytes. Name one of them, as "
                f"{os.fspath(path)}!{example}; ledger.locate(path) lists them."
            )
        return found
    alone = [x for x in found if x.state != "quarantined" or x.records != 1]  # not records of it that are quarantined
    if len(alone) > 1:
        raise UsageError(
            f"{len(alone):,} members of {found[0].path} are called {alone[0].member!r}. Say which, by its start: "
            f"{os.fspath(path)}!{alone[0].start}, for example."
        )
    return found
