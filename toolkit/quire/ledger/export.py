"""`ledger.export`: a destination as a table of another format, over the same data files, in step with each commit from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from quire import display
from quire.arguments import flag
from quire.commit import protocol
from quire.commit.exports import exports as there
from quire.commit.log import Log
from quire.engine.exports import offered, step
from quire.errors import RefusedError, UsageError, choose, quoted
from quire.interrupts import all_interruptible
from quire.progress import Progress, ProgressEvent
from quire.storage import Store

T = TypeVar("T")
SOME = 1_000  # files from one look of the bar to the next


@dataclass(frozen=True)
class Exported(display.Shown):
    """An export: the `format`, the `version` of the destination that it offers, and the number of its own `commit` that does."""

    dest: str
    format: str
    version: int
    commit: int

    def _facts(self) -> dict[str, object]:
        return {"format": self.format, "offers version": self.version, "its own commit": self.commit}


@all_interruptible
class Exports:
    """A ledger's calls for other formats, whose readers find the destination by their own metadata."""

    _store: Store

    def refresh(self) -> Any:
        """Read the log to its tip."""
        raise NotImplementedError

    def export(
        self, format: str, *, catalog: str | None = None, table: str | None = None, location: str | None = None,
        progress: bool | Callable[[ProgressEvent], object] = True,
    ) -> Exported:  # fmt: skip
        """Offer the destination as a table of another format, too, over the same Parquet files; each later commit keeps it in step.

            ledger.export("delta")
            deltalake.DeltaTable("/data/out").to_pandas()  # or DuckDB's delta_scan, and other readers of Delta
            ledger.export("iceberg", catalog="prod", table="db.events")
            pyiceberg.table.StaticTable.from_metadata("/data/out/_iceberg")  # or DuckDB's iceberg_scan, or the catalog's table

        format     "delta": a log of Delta Lake, in `_delta_log`; "iceberg": metadata of Iceberg, in `_iceberg`;
                   "symlinks": manifests for Hive's SymlinkTextInputFormat, in `_symlinks`, also of lines
        catalog    a catalog that shall know the Iceberg table, too, by its name in pyiceberg's configuration
        table      its name there, as "db.events"
        location   the URL by which readers of Iceberg and symlinks find the destination, since these hold whole addresses; default: its own
        progress   bars of the data files that are offered, or a function of a `ProgressEvent`

        Its readers see whole commits alone, and superseded files stay in the directory until it has come so far. It offers the version of
        now; whoever reads an older one of its versions may find files gone, but for what a `pin` holds. Other programs may not write to
        it. Returns an `Exported`. Raises RefusedError for what is not Parquet, a column that the format does not have, or another
        program's table in the same place; UsageError for a catalog that is not configured.
        """
        given = {"catalog": catalog, "table": table, "location": location}
        done = _export(self._store, format, {key: value for key, value in given.items() if value is not None}, Progress(progress))
        self.refresh()
        return done

    def exports(self) -> dict[str, int]:
        """The exports: format → the version that it offers; one that lags is brought on by the next call, or by `export`.

            ledger.exports()  # {"delta": 12}

        0: nothing yet.
        """
        return {name: one.version or 0 for name, one in there(Log(self._store).refresh()).items()}

    def drop_export(self, format: str, *, force: bool = False) -> None:
        """End an export, and delete its metadata; data files stay, but for superseded ones that it has held.

            ledger.drop_export("delta")

        format   as in `export`
        force    end it without its catalog, which is gone for good: if it comes back, its table names files that are not there

        Raises UsageError if there is none, QuireError if its catalog gives no answer.
        """
        _drop(self._store, format, force=flag(force, "force"))
        self.refresh()


def _export(store: Store, format: str, options: Mapping[str, Any], bars: Progress) -> Exported:
    """Bring an export to the version of now; it is kept in step from here on."""
    choose(format, tuple(step.FORMATS), "format")
    for key, value in options.items():
        if not isinstance(value, str) or not 0 < len(value) <= 1_000:
            raise UsageError(f"{key} takes a text, as 'prod', and not {quoted(value, 80)}")
    log = protocol.recover(store)
    step.check_kind(log, format)
    if not log.tip:
        raise UsageError(f"there is nothing to export in {store.url}: no commit is published. Run quire consolidate first.")
    step.want(log, (format,), options)
    try:
        done = step.export(log, there(log)[format], _watched(bars))
    except RefusedError:
        step.end_unbegun(log, format)
        raise
    protocol.retire(log)  # what it has held
    return Exported(store.url, format, done.version or 0, done.commit)


def _watched(bars: Progress) -> offered.Watch:
    """Bars over what an export goes through."""

    def watch(those: Iterable[T], total: int, /) -> Iterable[T]:
        with bars.phase("exporting", total=total) as bar:
            for n, each in enumerate(those, 1):
                yield each
                if n % SOME == 0 or n == total:
                    bar.to(n)

    return watch


def _drop(store: Store, format: str, *, force: bool) -> None:
    """End an export; UsageError if there is none."""
    choose(format, tuple(step.FORMATS), "format")
    log = protocol.recover(store)
    if format not in there(log) and not step.FORMATS[format].check_free(store):  # else a call that ended it has died
        raise UsageError(f"{store.url} has no export {format!r}. ledger.exports() lists them.")
    step.end(log, format, force=force)
