"""`sweep`: remove what dead jobs of Spark have left below a destination, and refuse where one may be alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire import display
from quire.arguments import flag, format_size, seconds
from quire.commit import names
from quire.committers.cleanup import leftovers
from quire.committers.cleanup.leftovers import Leftover, ago
from quire.errors import RefusedError, StorageError, printable
from quire.interrupts import interruptible
from quire.storage import Store, canonical, connect

SHOWN = 10


@dataclass(frozen=True)
class Swept:
    """The `folders` and `uploads` at `url` that `sweep` removed, or (`dry_run`) would remove.

    `expire`: uploads that the service itself drops after a week; they stay.
    """

    url: str
    dry_run: bool
    folders: tuple[Leftover, ...] = ()
    uploads: tuple[Leftover, ...] = ()
    expire: bool = False

    @property
    def bytes(self) -> int:
        """The freed bytes, as far as sizes are known."""
        return sum(max(item.bytes, 0) for item in (*self.folders, *(() if self.expire else self.uploads)))

    def _facts(self) -> dict[str, object]:
        done = "would be removed" if self.dry_run else "removed"
        rows: dict[str, object] = {
            f"{item.name} {done}": f"{item.files:,} files, {format_size(item.bytes)}, {ago(item.age)}"
            + (f", job {item.job}" * bool(item.job))
            for item in self.folders
        }
        if self.expire:
            rows["uploads left to the service"] = f"{len(self.uploads):,}: it drops them after a week"
        else:
            rows[f"uploads {done}"] = f"{len(self.uploads):,}"
        return rows | {"frees": format_size(self.bytes)}

    def _note(self) -> str:
        told = [f"upload of {item.name}, begun {ago(item.age)}" for item in self.uploads[:SHOWN]]
        if self.dry_run and (self.folders or self.uploads):
            told.append("nothing was removed: dry_run=False (in a shell: --yes) does it")
        return "\n".join(map(printable, told))

    def __str__(self) -> str:
        return display.lines(self.url, self._facts(), self._note())

    def _repr_html_(self) -> str:
        return display.facts(self.url, self._facts(), self._note())

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it."""
        lists = {name: [leftovers.plain(item) for item in getattr(self, name)] for name in ("folders", "uploads")}
        return {"url": self.url, "dry_run": self.dry_run, **lists, "expire": self.expire, "bytes": self.bytes}


@interruptible
def sweep(url: str, dry_run: bool = True, *, min_age: str | float = "1 h", storage_options: Mapping[str, object] | None = None) -> Swept:
    """Remove left-over `_temporary`, staging and magic directories at the top of `url`, and all uploads below it that nobody has completed.

    Returns what was `Swept`. `storage_options` are those of the store.

    `dry_run` (the default) only says what would go. Data files, `_SUCCESS` and all that is quire's own stay. Raises RefusedError, and
    removes nothing, where something has changed within `min_age` ("1 h", or seconds), since a job may be running, or where it is not known
    when; `min_age=0` says that no job runs. Raises StorageError, and removes nothing, where uploads may not be listed.

    A job whose tasks have written nothing for longer than `min_age` looks like a dead one: let it be longer than your longest task. A job
    that begins while this deletes is not seen: start none at that time.
    """
    quiet, dry_run = seconds(min_age, "min_age"), flag(dry_run, "dry_run")
    store = connect(canonical(url, storage_options), storage_options)
    if not (store.can_rename or store.can_upload):
        store.check_writable()  # what is a source alone says why
    folders = tuple(leftovers.folders(store))
    waiting = leftovers.uploads(store)
    if waiting.unseen:
        raise StorageError(
            f"cannot list the uploads below {store.url}, so nothing was removed: {waiting.unseen.rstrip('.')}. "
            "Ask for s3:ListBucketMultipartUploads, or give the bucket a life-cycle rule that aborts them."
        )
    for item in (*folders, *(() if waiting.expire else waiting.found)):
        if quiet and item.age < quiet:
            raise _running(store, item, quiet)
    if not dry_run:
        # The uploads first: S3A's lists in the directories are what tells of them, and stay until they are gone.
        for item in () if waiting.expire else waiting.found:
            store.give_up(item.name, item.handle)
        for item in folders:
            assert item.name != names.STATE
            store.remove_tree(item.name)
    return Swept(store.url, dry_run, folders, waiting.found, waiting.expire)


def _running(store: Store, item: Leftover, quiet: float) -> RefusedError:
    what = f"the upload of {item.name}" if item.kind == "upload" else item.name
    whose = f" of job {item.job}" if item.job else ""
    changed = f"changed {ago(item.age)}" if item.age >= 0 else "is there, and it is not known since when"
    return RefusedError(
        f"{store.url}: {what}{whose} {changed}, so a job may be running, and nothing was removed. Wait until it has ended, and "
        f"{quiet:,.0f} s more; or, if you know that none runs, say min_age=0."
    )
