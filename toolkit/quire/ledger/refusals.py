"""A table's rows lie in files that Hudi's timeline names, and change by key: a verb that rewrites or deletes data files is not for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from quire.errors import RefusedError
from quire.storage.within import is_table

Verb = TypeVar("Verb", bound=Callable[..., Any])


def not_of_tables(verb: Verb) -> Verb:
    """Refuse this method of a ledger where its destination is a table; nothing is read or written then."""

    @functools.wraps(verb)
    def checked(ledger: Any, *args: Any, **kwargs: Any) -> Any:
        if is_table(ledger._store):
            url = ledger._store.url
            raise RefusedError(
                f"ledger.{verb.__name__} is not for tables, and {url} is one: nothing was touched. Its rows change by their keys, with the "
                f"verbs of quire.Table({url!r})."
            )
        return verb(ledger, *args, **kwargs)

    return cast("Verb", checked)
