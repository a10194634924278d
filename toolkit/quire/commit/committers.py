"""The interface of committers, those that there are, and which of them a store can serve. Each is a file beside this one.

A committer decides where an attempt's output waits and how it becomes visible. In Hadoop's words: `create` is setup_task,
`commit_task` and `abort_task` are themselves, `publish` is commit_job for one file, `clean` is what abort_job and the end
of commit_job remove. The protocol around them (who may call what, and when) is in `protocol.py`.

Other packages bring their own: an entry point of the group `quire.committers` names the class (docs/committers.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from quire.commit.entries import DataFile, Task
from quire.errors import FormatError, UsageError, about, choose
from quire.packaging import Registry
from quire.storage import Entry, Sink, Store


class Committer(Protocol):
    """How the output of attempts becomes visible in a store.

    store, job, task, attempt    where the destination is; the job's name; a task, by its number or with its manifest; the attempt's own id
    final, sink                  the name that a data file will have, and the open object that its bytes go to
    file                         a committed data file, as the log's entry names it

    Methods raise StorageError or TransientError where the store does; each may be called again.

        by = quire.committers.Committer             # "rename", …: quire.committers.known() lists the names
        sink = by.create(store, job, task, attempt, final) if by.serves(store) else None
        handle = by.handle(job, task, attempt, final, sink)
        by.commit_task(store, job, manifest)        # or by.abort_task(store, job, task, attempt, {final: sink})
        by.publish(store, job, manifest, file)      # after the entry in the log
        by.clean(store, job, names), by.leftovers(store, names)
    """

    name: str
    leaks: bool  # a reader of the directory may see output that is not committed

    def serves(self, store: Store) -> bool:
        """Whether the store has what this committer needs."""
        ...

    def create(self, store: Store, job: str, task: int, attempt: str, final: str) -> Sink:
        """Begin the data file that will be called `final`, where nobody lists it; return its open object."""
        ...

    def handle(self, job: str, task: int, attempt: str, final: str, sink: Sink) -> str:
        """The text by which `publish` finds a file whose sink is closed; it holds no secret."""
        ...

    def commit_task(self, store: Store, job: str, task: Task) -> None:
        """The attempt's files are written; its manifest is not yet."""
        ...

    def abort_task(self, store: Store, job: str, task: int, attempt: str, outputs: Mapping[str, Sink]) -> None:
        """The attempt has provably lost, or failed: remove what only it can have written, `outputs` by their final names."""
        ...

    def publish(self, store: Store, job: str, task: Task, file: DataFile) -> bool:
        """Make a committed file visible, from the log's entry alone, as often as you like. Returns False if its output is lost."""
        ...

    def clean(self, store: Store, job: str, named: Iterable[str]) -> None:
        """The job is over: remove its output but for the committed files `named`."""
        ...

    def leftovers(self, store: Store, named: Iterable[str]) -> set[str]:
        """The jobs that have left output outside of their folders; `named`: all committed files of all jobs."""
        ...


@runtime_checkable
class Adopting(Protocol):
    """An offer that a committer may make beside.

        if isinstance(by, quire.committers.Adopting):
            handle = by.adopt(store, entry)

    It publishes files that others have written into an attempt's folder.
    """

    def adopt(self, store: Store, entry: Entry) -> str:
        """The handle of the file `entry` of a `store`; StorageError where it is not there."""
        ...


@runtime_checkable
class Marking(Protocol):
    """An offer that a committer may make beside, where what waits of a table's base files lies outside of the folders of jobs."""

    def marks(self, store: Store) -> set[str]:
        """The marks (`names.mark`) of the jobs that have left some."""
        ...


REGISTRY = Registry(
    "quire.committers", "committer {!r}",
    {
        "rename": "quire.commit.rename:Rename", "rename_v2": "quire.commit.rename:RenameV2",
        "upload": "quire.commit.upload:Uploads", "copy": "quire.commit.copy:Copies",
    },
    reserved=("auto",), flags=("leaks",), docs="docs/committers.md",
    needs=("serves", "create", "handle", "commit_task", "abort_task", "publish", "clean", "leftovers"),
)  # fmt: skip


def known() -> list[str]:
    """The names of all committers: quire's, then those that other packages bring."""
    return REGISTRY.known()


def committer(name: str, store: Store) -> Committer:
    """The committer of that name, which stands in a plan or an entry of this store; FormatError if it cannot work here."""
    found: Committer | None = REGISTRY.make(name)
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
    others = [] if name in ("auto", *REGISTRY.own) else [other for other in REGISTRY.brought() if name in ("", other)]
    made = map(REGISTRY.make, (*REGISTRY.own, *others))
    return [found for found in made if found.serves(store)]


def choice(wanted: str, store: Store) -> str:
    """The committer that a call means: "auto" is quire's first that hides what is not committed; UsageError where it cannot work."""
    if wanted not in ("auto", *REGISTRY.own):
        choose(wanted, ("auto", *REGISTRY.own, *sorted(REGISTRY.brought(str(wanted)))), "committer")
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
