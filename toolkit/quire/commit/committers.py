"""What a committer is, which ones there are, and which of them a store can serve. Each is a file beside this one.

A committer decides where an attempt's output waits and how it becomes visible. In Hadoop's words: `create` is setup_task,
`commit_task` and `abort_task` are themselves, `publish` is commit_job for one file, `clean` is what abort_job and the end
of commit_job remove. The protocol around them (who may call what, and when) is in `protocol.py`.

Other packages bring their own: an entry point of the group `quire.committers` names the class (docs/committers.md).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, runtime_checkable

from quire.commit.copy import Copies
from quire.commit.entries import DataFile, Task
from quire.commit.rename import Rename, RenameV2
from quire.commit.upload import Uploads
from quire.errors import FormatError, UsageError, about, choose, scrub
from quire.storage import Entry, Sink, Store

__all__ = ["COMMITTERS", "Adopting", "Committer", "choice", "committer", "known", "serving"]


class Committer(Protocol):
    """How the output of attempts becomes visible in a store."""

    name: str
    leaks: bool  # a reader of the directory may see output that is not committed

    def serves(self, store: Store) -> bool:
        """Whether the store has what this committer needs."""
        ...

    def create(self, store: Store, job: str, task: int, attempt: str, final: str) -> Sink:
        """Begin the data file that will be called `final`, where nobody lists it."""
        ...

    def handle(self, job: str, task: int, attempt: str, final: str, sink: Sink) -> str:
        """What `publish` needs to know of a file whose sink is closed; no secret."""
        ...

    def commit_task(self, store: Store, job: str, task: Task) -> None:
        """The attempt's files are written; its manifest is not yet."""
        ...

    def abort_task(self, store: Store, job: str, task: int, attempt: str, outputs: Mapping[str, Sink]) -> None:
        """The attempt has provably lost, or failed: remove what only it can have written, `outputs` by their final names."""
        ...

    def publish(self, store: Store, job: str, task: Task, file: DataFile) -> bool:
        """Make a committed file visible, from the log's entry alone, as often as you like; False: its output is lost."""
        ...

    def clean(self, store: Store, job: str, named: Iterable[str]) -> None:
        """The job is over: remove its output but for the committed files `named`."""
        ...

    def leftovers(self, store: Store, named: Iterable[str]) -> set[str]:
        """The jobs that have left output outside of their folders; `named`: all committed files of all jobs."""
        ...


@runtime_checkable
class Adopting(Protocol):
    """What a committer may offer beside: it publishes what others have written into an attempt's folder, by whatever means."""

    def adopt(self, store: Store, entry: Entry) -> str:
        """The handle of a file that lies there."""
        ...


_ALL: tuple[Callable[[], Committer], ...] = (Rename, RenameV2, Uploads, Copies)
COMMITTERS: dict[str, Callable[[], Committer]] = {made().name: made for made in _ALL}
_GROUP = "quire.committers"  # entry points of other packages: name = a class, or a function, that makes a `Committer` of this name
_METHODS = ("serves", "create", "handle", "commit_task", "abort_task", "publish", "clean", "leftovers")
_loaded: dict[EntryPoint, Callable[[], Committer]] = {}


def known() -> list[str]:
    """The names of all committers: quire's, then those that other packages bring."""
    return [*COMMITTERS, *sorted(_registered())]


def _registered(name: str = "") -> dict[str, EntryPoint]:
    """What other packages bring; looked up anew only for a `name` that was not there, since looking takes a while."""
    found = _listed(tuple(sys.path))
    if name and name not in found:
        _listed.cache_clear()
        found = _listed(tuple(sys.path))
    return found


@functools.lru_cache(maxsize=2)
def _listed(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=_GROUP) if entry.name not in ("auto", *COMMITTERS)}


def _load(entry: EntryPoint) -> Committer:
    """A committer of another package; UsageError if it is none."""
    of = entry.dist.name if entry.dist else entry.value
    try:
        if entry not in _loaded:
            _loaded[entry] = entry.load()
        made = _loaded[entry]()
    except Exception as e:  # of somebody else's module
        raise UsageError(
            f"the committer {entry.name!r} of the package {of} cannot be loaded: {scrub(str(e), 150)}. Install it again."
        ) from e
    lacking = [name for name in _METHODS if not callable(getattr(made, name, None))]
    lacking += [] if isinstance(getattr(made, "leaks", None), bool) else ["leaks"]
    if lacking or getattr(made, "name", None) != entry.name:
        what = f"has no {', '.join(lacking)}" if lacking else f"calls itself {scrub(str(getattr(made, 'name', None)), 80)!r}"
        raise UsageError(
            f"the committer {entry.name!r} of the package {of} {what}, so it cannot be used. docs/committers.md says what it needs."
        )
    return made


def _made(name: str) -> Committer | None:
    """The committer of that name, whoever brings it."""
    if name in COMMITTERS:
        return COMMITTERS[name]()
    entry = _registered(name).get(name)
    return _load(entry) if entry else None


def committer(name: str, store: Store) -> Committer:
    """The committer of that name, which stands in a plan or an entry of this store; FormatError if it cannot work here."""
    found = _made(name)
    if found is None:
        raise FormatError(
            f"{name[:80]!r} is not a committer that this quire knows ({', '.join(known())}), and {store.url} holds work of it. Update "
            f"quire, install the package that brings it, or look who wrote it."
        )
    if not found.serves(store):
        raise FormatError(
            f"{store.url} holds work of the committer {name!r}, which cannot work there: nothing was touched. It was copied in the middle "
            f"of a job, or forged: recover it where it was written."
        )
    return found


def serving(store: Store, name: str = "") -> list[Committer]:
    """The committers that can work in a store: quire's, and of those that other packages bring the one of this name ("": all)."""
    made = [made() for made in COMMITTERS.values()]
    made += [] if name in ("auto", *COMMITTERS) else [_load(entry) for entry in _registered().values() if name in ("", entry.name)]
    return [found for found in made if found.serves(store)]


def choice(wanted: str, store: Store) -> str:
    """The committer that a call means: "auto" is quire's first that hides what is not committed; UsageError where it cannot work."""
    if wanted not in ("auto", *COMMITTERS):
        choose(wanted, ("auto", *COMMITTERS, *sorted(_registered(str(wanted)))), "committer")
    with about("committer"):
        found = serving(store, wanted)
        fits, hiding = [by.name for by in found], [by.name for by in found if not by.leaks]
        if not hiding and wanted not in fits:
            raise UsageError(
                f"{store.url} can neither rename in one step nor hold uploads, so no committer works there. Use another store."
            )
        if wanted not in ("auto", *fits):
            raise UsageError(f"committer={wanted!r} cannot work in {store.url}. Use {' or '.join(repr(name) for name in fits)}, or 'auto'.")
    return hiding[0] if wanted == "auto" else wanted
