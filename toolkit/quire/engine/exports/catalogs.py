"""A catalog that knows an exported Iceberg table by a name: it is brought to the snapshot of the destination's own metadata.

Catalogs are pyiceberg's, by their names in its configuration (`~/.pyiceberg.yaml`, `PYICEBERG_CATALOG__<NAME>__URI`), so no log holds a
password. A catalog commits on condition of the snapshot that it has: of two drivers, the second one reads the first one's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from quire.errors import QuireError, RefusedError, UsageError, quoted, scrub

VERSION = "quire.version"
_TRIES = 10


def check(options: Mapping[str, str]) -> None:
    """Refuse a catalog that is not there, and a table in it that another program has made."""
    name, table = options.get("catalog"), options.get("table")
    if name is None and table is None:
        return
    if name is None or table is None or not all(table.split(".")) or "." not in table:
        raise UsageError(
            f"a catalog and a table go together, as catalog='prod', table='db.events', and not {quoted(name)}, {quoted(table)}"
        )
    if ":" in name:  # a log says a name alone: an address of it would be opened by whoever calls next
        raise UsageError(
            "catalog= is the name of a catalog in pyiceberg's configuration, where its address and its password stay, and not an address. "
            "One in a file: PYICEBERG_CATALOG__LAKE__URI=sqlite:////lake/catalog.db"
        )
    with _told(name, table):
        _ours(_loaded(_catalog(name), table), None, name, table)


def bring(options: Mapping[str, str], newest: Callable[[], tuple[Mapping[str, Any], str]]) -> None:
    """Let the catalog's table have the newest snapshot of the `newest` metadata, which say so each time, with their address.

    Where directories make other columns than before, the table is registered anew, since catalogs fit an older one's to the new columns
    and refuse them: for that moment it is not there.
    """
    if "catalog" not in options:
        return
    name, table = options["catalog"], options["table"]
    with _told(name, table):
        catalog = _catalog(name)
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

        for _ in range(_TRIES):
            there, (said, address) = _loaded(catalog, table), newest()
            try:
                if there is None:
                    catalog.create_namespace_if_not_exists(tuple(table.split(".")[:-1]))
                    catalog.register_table(table, address)
                    continue  # another driver may have gone on meanwhile
                _ours(there, said["table-uuid"], name, table)
                if there.metadata.last_sequence_number >= said["last-sequence-number"]:
                    return
                if there.metadata.default_spec_id != said["default-spec-id"]:
                    catalog.drop_table(table)
                    continue
                catalog.commit_table(there, *_changes(there, said))
                return
            except (CommitFailedException, NoSuchTableError, TableAlreadyExistsError):
                continue  # another driver was first: see what it has done
        raise QuireError(f"other programs commit to {table} all the time")


def drop(options: Mapping[str, str], location: str) -> None:
    """Take the table out of the catalog, if it is the one at `location`; its files stay."""
    if "catalog" not in options:
        return
    name, table = options["catalog"], options["table"]
    with _told(name, table):
        catalog = _catalog(name)
        from pyiceberg.exceptions import NoSuchTableError

        there = _loaded(catalog, table)
        if there is not None and there.metadata.location == location:
            try:
                catalog.drop_table(table)
            except NoSuchTableError:
                return


def _catalog(name: str) -> Any:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise UsageError("a catalog of Iceberg needs pyiceberg: pip install 'quire-spark[iceberg]'") from None
    try:
        found = load_catalog(name)
    except ValueError as e:
        raise UsageError(
            f"pyiceberg's configuration has no usable catalog {quoted(name)} ({scrub(_first(e))}). Describe it in ~/.pyiceberg.yaml, or by "
            f"PYICEBERG_CATALOG__{name.upper()}__URI and the like."
        ) from e
    place = found.engine.url if hasattr(found, "engine") else None
    if place is not None and place.get_backend_name() == "sqlite" and place.database in (None, "", ":memory:"):
        raise UsageError(
            f"the catalog {name} lies in this process's memory, where no reader finds a table. Give it a file by its uri: "
            f"sqlite:////lake/catalog.db"
        )
    return found


def _loaded(catalog: Any, table: str) -> Any:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return catalog.load_table(table)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def _ours(there: Any, uuid: str | None, name: str, table: str) -> None:
    """RefusedError for a table of the catalog that is not this export, or in which another program has committed."""
    if there is None:
        return
    now = there.metadata.current_snapshot()
    summary = {} if now is None or now.summary is None else now.summary.additional_properties
    if VERSION not in summary or (uuid is not None and str(there.metadata.table_uuid) != uuid):
        raise RefusedError(
            f"the table {table} of the catalog {name} is another one, or another program has committed to it, and an export takes no "
            f"commits. Nothing was changed there. Drop it there, or choose another name."
        )


def _changes(there: Any, said: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The catalog's commit: on condition of its snapshot, the newest one with the columns that it needs."""
    from pyiceberg.table import update

    has = there.metadata
    schemas = {each.schema_id for each in has.schemas}
    changes = list[Any]()
    for schema in (each for each in said["schemas"] if each["schema-id"] not in schemas):
        changes.append(update.AddSchemaUpdate.model_validate({"schema": schema}))
    if has.current_schema_id != said["current-schema-id"]:
        changes.append(update.SetCurrentSchemaUpdate.model_validate({"schema-id": said["current-schema-id"]}))
    if has.location != said["location"]:
        changes.append(update.SetLocationUpdate.model_validate({"location": said["location"]}))
    changes.append(update.SetPropertiesUpdate(updates=said["properties"]))
    newest = next(each for each in said["snapshots"] if each["snapshot-id"] == said["current-snapshot-id"])
    changes.append(update.AddSnapshotUpdate.model_validate({"snapshot": newest}))
    changes.append(update.SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": newest["snapshot-id"]}))
    gone = {each.snapshot_id for each in has.snapshots} - {each["snapshot-id"] for each in said["snapshots"]}
    if gone:
        changes.append(update.RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(gone)}))
    on = (
        update.AssertTableUUID(uuid=has.table_uuid),
        update.AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": has.current_snapshot_id}),
    )
    return on, tuple(changes)


@contextmanager
def _told(name: str, table: str) -> Iterator[None]:
    """Say what a catalog of any kind says, in one line."""
    try:
        yield
    except QuireError:
        raise
    except NotImplementedError as e:
        raise RefusedError(f"the catalog {name} is of a kind into which pyiceberg brings no tables of others. Choose another one.") from e
    except Exception as e:  # of pyiceberg, and of what it stands on: HTTP, SQL, Thrift
        raise QuireError(f"the catalog {name} of Iceberg gives no answer about {table} ({type(e).__name__}: {scrub(_first(e))})") from e


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
