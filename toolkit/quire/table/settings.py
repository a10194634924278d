"""The settings of a table that Hudi does not keep in `hoodie.properties`."""

from __future__ import annotations

from typing import Literal

import msgspec

from quire.commit.entries import FORMAT, Natural, decode, encode, stored
from quire.errors import NotFoundError, RefusedError
from quire.storage import Store
from quire.storage.base import ENTRY, STATE
from quire.table.format import config, names
from quire.table.format.config import TableConfig

NAME = f"{STATE}/table{ENTRY}"
TARGET = 120 << 20  # bytes of a base file, as Hudi has it
PARQUET, AVRO = LOG_FORMATS = ("parquet", "avro")


@stored
class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="table"):
    """Put if absent when the table is created; a table that another program has created has none, and these."""

    change_files: bool = True
    target: Natural = TARGET
    log_format: Literal["parquet", "avro"] = "parquet"  # of rows in logs
    format: int = FORMAT


NOTHING = Settings(change_files=False)  # beside base files


def put(store: Store, wanted: Settings) -> Settings:
    """Put them if absent; those that count."""
    store.put_if_absent(NAME, encode(wanted))
    return read(store)


def read(store: Store) -> Settings:
    """The settings of a table; FormatError where they are damaged."""
    try:
        found: Settings = decode(store.get(NAME), Settings, f"{store.url}/{NAME}")
    except NotFoundError:
        return Settings()
    return found


def opened(store: Store) -> tuple[TableConfig, Settings]:
    """A table that quire may write; RefusedError with the reason why it may not."""
    where = f"{store.url}/{names.PROPERTIES}"
    found = config.TableConfig.from_properties(store.get(names.PROPERTIES), where)
    config.check_writable(found, store.url)
    if found.type == config.MERGE_ON_READ and found.mode != config.EVENT_TIME:
        raise RefusedError(
            f"{store.url} is a merge-on-read table in which the later commit wins ({found.mode[:200]}), and readers of Hudi do not agree "
            "how its logs are merged. Create it with an ordering field."
        )
    return found, read(store)
