"""What a committer is, which ones there are, and which of them a store can serve. Each is a file beside this one.

A committer decides where an attempt's output waits and how it becomes visible. In Hadoop's words: `create` is setup_task,
`commit_task` and `abort_task` are themselves, `publish` is commit_job for one file, `clean` is what abort_job and the end
of commit_job remove. The protocol around them (who may call what, and when) is in `protocol.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from quire.commit.copy import Copies
from quire.commit.entries import DataFile, Task
from quire.commit.rename import Rename, RenameV2
from quire.commit.upload import Uploads
from quire.errors import FormatError, UsageError, about, choose
from quire.storage import Sink, Store

__all__ = ["COMMITTERS", "Committer", "choice", "committer", "serving"]


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


_ALL: tuple[Callable[[], Committer], ...] = (Rename, RenameV2, Uploads, Copies)
COMMITTERS: dict[str, Callable[[], Committer]] = {made().name: made for made in _ALL}


def committer(name: str, store: Store) -> Committer:
    """The committer of that name, which stands in a plan or an entry of this store; FormatError if it cannot work here."""
    if name not in COMMITTERS:
        raise FormatError(
            f"{name[:80]!r} is not a committer that this quire knows ({', '.join(COMMITTERS)}). Update quire, or look who wrote it."
        )
    found = COMMITTERS[name]()
    if not found.serves(store):
        raise FormatError(
            f"{store.url} holds work of the committer {name!r}, which cannot work there: nothing was touched. It was copied in the middle "
            f"of a job, or forged: recover it where it was written."
        )
    return found


def serving(store: Store) -> list[Committer]:
    """The committers that can work in a store."""
    return [found for found in (made() for made in COMMITTERS.values()) if found.serves(store)]


def choice(wanted: str, store: Store) -> str:
    """The committer that a call means: "auto" is the first that hides what is not committed; UsageError where it cannot work."""
    fits = [by.name for by in serving(store)]
    hiding = [by.name for by in serving(store) if not by.leaks]
    choose(wanted, ("auto", *COMMITTERS), "committer")
    with about("committer"):
        if not hiding:
            raise UsageError(
                f"{store.url} can neither rename in one step nor hold uploads, so no committer works there. Use another store."
            )
        if wanted not in ("auto", *fits):
            raise UsageError(f"committer={wanted!r} cannot work in {store.url}. Use {' or '.join(repr(name) for name in fits)}, or 'auto'.")
    return hiding[0] if wanted == "auto" else wanted
