"""Takes the tables to draw from what the user gives, and checks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from quire.errors import UsageError, scrub

if TYPE_CHECKING:
    import pandas as pd


def frame(what: Any, verb: str, takes: str, columns: Sequence[str], hint: str = "") -> pd.DataFrame:
    """Return the table that `what` is, or that its method `verb` returns (a Ledger's: that of its `inspect`), if it has the columns.

    Raises UsageError for anything else; it says that the verb draws what `takes` says, and the `hint`.
    """
    import pandas as pd

    found = what
    if not isinstance(what, pd.DataFrame | type) and callable(call := getattr(tables_of(what), verb, None)):
        found = call()
    if not isinstance(found, pd.DataFrame):
        raise UsageError(f"{verb} draws {takes}, not {scrub(repr(what), 60)}")
    if not len(found) and not len(found.columns):
        return pd.DataFrame(columns=list(columns))
    missing = [column for column in columns if column not in found.columns]
    if missing:
        raise UsageError(f"{verb}: the table has no column {missing[0]!r}. {hint}It needs {', '.join(columns)}.")
    return found


def tables_of(what: Any) -> Any:
    """Return the object whose methods give the tables of `what`: of a Ledger its `inspect`."""
    return getattr(what, "inspect", what)


def amounts(table: pd.DataFrame, verb: str, column: str) -> pd.Series[Any]:
    """Return a column of whole numbers, 0 or more; UsageError for other values."""
    import pandas as pd

    values: pd.Series[float] = pd.Series(pd.to_numeric(table[column], errors="coerce"), dtype="float64")
    wrong = ~(np.isfinite(values) & (values >= 0) & (values == np.floor(values)) & (values < 2**63))
    if wrong.any():
        value = table[column].tolist()[int(np.argmax(wrong))]
        raise UsageError(f"{verb}: {column} is {scrub(repr(value), 60)} in a row of the table: it is a whole number, 0 or more")
    return values.astype("int64")
