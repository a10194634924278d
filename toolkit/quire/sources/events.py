"""Events as a source of names: a queue tells which files have come, and nobody lists for them.

An event is a hint and nothing more. Each name is looked up in its store and in the ledger before anything is planned, so an event that is
late, repeated, or a lie does no harm. One that is lost is made up for by the next full listing.

A source of events is a module of its own, found by its name in `SOURCES`; other packages bring theirs by entry points of `quire.events`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from quire.arguments import refuse_needless, seconds
from quire.errors import UsageError, about, choose, encodable, quoted, scrub
from quire.packaging import Registry
from quire.sources.files import Options, Root, located
from quire.storage import OnRetry, checked, is_safe

T = TypeVar("T")

RELIST = "1 day"
HIDDEN = 600.0  # seconds for which a queue gives a message to nobody else, if nobody holds it: then it comes again, which does no harm
AT_ONCE = 8  # requests to a queue
SAID = 200  # characters of a message that is not understood

# Name → the function that opens it, as `opened(place, options, roots)`: nothing is asked for before the first message is.
SOURCES = Registry(
    "quire.events", "source of events {!r}",
    {
        "sqs": "quire.sources.sqs:opened", "azure-queue": "quire.sources.azure_queue:opened", "pubsub": "quire.sources.pubsub:opened",
        "inotify": "quire.sources.inotify:opened",
    },
)  # fmt: skip
_LIKE = (
    "'sqs://sqs.eu-west-1.amazonaws.com/123456789012/queue', 'azure-queue://account/queue', 'pubsub://project/subscription' or 'inotify'"
)


class Event(NamedTuple):
    """A file of which something is told, or a directory (`folder`) with all that lies below it.

    place  ("s3", bucket) | ("gs", bucket) | ("abfs", container, account) | ("file", "")
    name   of the object in there, as the store has it
    """

    place: tuple[str, ...]
    name: str
    folder: bool = False


class Message(NamedTuple):
    """A message of a queue.

    id      the same each time that the queue gives it
    handle  by which it is deleted
    events  what it tells; None: it is not understood, and `said` is how it begins
    """

    id: str
    handle: str
    events: tuple[Event, ...] | None
    said: str = ""


class EventQueue(Protocol):
    """A queue of messages.

    shown   its name, without a secret
    hidden  seconds for which it gives a message to nobody else; infinite: it gives each once, and lasts as long as the call
    """

    shown: str
    hidden: float

    def receive(self, most: int, on_retry: OnRetry) -> list[Message]:
        """About as many messages as there are, or as `most` says; none: it is empty."""
        ...

    def hold(self, messages: Sequence[Message], on_retry: OnRetry) -> list[Message]:
        """Hide messages for `hidden` seconds from now on; those of them that are, each with its handle as it is now."""
        ...

    def delete(self, messages: Sequence[Message], on_retry: OnRetry) -> None:
        """Messages that are never to come again; one that stays does no harm."""
        ...

    def lost(self) -> bool:
        """Whether events may have been lost since it was asked last, so that a full listing has to follow."""
        ...

    def close(self) -> None:
        """No more is received."""
        ...


class NotUnderstood(ValueError):
    """A message that is none of those that the source of events sends."""


@dataclass(frozen=True)
class Asked:
    """The wish of a call: where events come from, and how many seconds may pass from one full listing to the next."""

    kind: str
    place: str
    options: Options = field(repr=False)  # None: those of the source
    relist: float

    def opened(self, roots: Sequence[Root]) -> EventQueue:
        """The queue, for a call that reads these places. UsageError for a place that it cannot have."""
        options = roots[0].options if self.options is None and roots else self.options
        with about("events"):
            found: EventQueue = SOURCES.load(self.kind)(self.place, checked(options) or {}, roots)
        return found


def asked(events: Any, relist: Any, *, loops: bool) -> Asked | None:
    """The wish that `events=` and `relist=` say, or None; UsageError for what they cannot be. `loops`: the call runs again and again."""
    refuse_needless({"relist": relist}, {"events=": events is not None})
    if events is None:
        return None
    often = seconds(RELIST if relist is None else relist, "relist")
    with about("events"):
        options: Options = None
        if isinstance(events, list | tuple) and len(events) == 2 and isinstance(events[1], Mapping):
            events, options = events
        if not isinstance(events, str) or not events:
            raise UsageError(f"events={quoted(events)} names no source of events. Write {_LIKE}.")
        scheme, separator, place = events.partition("://")
        if events.startswith("arn:") or scheme in ("https", "http"):
            scheme, place = "sqs", events
        elif not separator and scheme != "inotify":
            raise UsageError(f"events={quoted(events)} names no source of events. Write {_LIKE}.")
        choose(scheme, SOURCES.known(), "source of events")
        if "@" in urlsplit(f"//{place.partition('://')[2] or place}").netloc:
            raise UsageError(f"{scrub(events)!r} carries credentials, and is written into messages. Give them as source_options=.")
        if scheme == "inotify" and not loops:
            raise UsageError("inotify tells what happens while a call runs, so it is for one that runs again and again: say every='1 min'.")
    return Asked(scheme, place, options, often)


# ------------------------------------------------------------------------------------------------------------------------ names
@dataclass
class Found:
    """The files and directories that events name below each root of a call, by the root's number, and how many events lie outside."""

    files: list[tuple[int, str]] = field(default_factory=list)
    folders: list[tuple[int, str]] = field(default_factory=list)
    outside: int = 0


class Finder:
    """Finds what an event means among the places that a call reads."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self._roots = [(*place_of(root.url), root.url.rstrip("/"), located([root])) for root in roots]

    def find(self, event: Event, into: Found) -> list[tuple[int, str]]:
        """The names below roots that an event means, each with the root's number; none: it lies outside. They are noted in `into`."""
        found = list[tuple[int, str]]()
        for number, (place, top, url, means) in enumerate(self._roots):
            name = event.name.rstrip("/") if event.folder else event.name
            inside = name[len(top) :] if name.startswith(top) else None
            if place != event.place or not encodable(name):
                continue
            if event.folder and f"{name}/".startswith(top) and is_safe(inside or "x"):
                found.append((number, inside or ""))
            elif event.folder and (top.startswith(f"{name}/") or not name):
                found.append((number, ""))
            elif inside is not None and not event.folder and means(f"{url}/{inside}") is not None:
                found.append((number, inside))
        (into.folders if event.folder else into.files).extend(found)
        into.outside += not found
        return found


def place_of(url: str) -> tuple[tuple[str, ...], str]:
    """Where a canonical URL leads: the place as events tell it, and how the names of objects below begin there."""
    scheme, _, rest = url.partition("://")
    where, _, path = rest.partition("/")
    top = f"{path.rstrip('/')}/" if path.strip("/") else ""
    if scheme == "abfs":
        container, _, host = where.partition("@")
        return (scheme, container, host.partition(".")[0].lower()), top
    return (scheme, where), top


# ------------------------------------------------------------------------------------------------------------------------ queues
def drained(ask: Callable[[int], Iterable[list[Message]]], most: int, at_once: int = AT_ONCE) -> list[Message]:
    """About `most` messages, until the queue is empty, or gives again what it has given; `ask` gives what so many requests have brought."""
    found, requests = dict[str, Message](), 1
    while len(found) < most:
        before = len(found)
        for some in ask(requests):
            found.update((message.id, message) for message in some)
        if len(found) == before:
            break
        requests = min(at_once, AT_ONCE * requests)  # a queue that goes on giving may hold many
    return list(found.values())


def by_threads(ask: Callable[[], list[Message]]) -> Callable[[int], list[list[Message]]]:
    """So many requests, each in a thread of its own."""

    def asked(n: int) -> list[list[Message]]:
        with ThreadPoolExecutor(n, "quire-events") as pool:
            return list(pool.map(lambda _: ask(), range(n)))

    return asked


def in_parts(work: Callable[[Sequence[Message]], T], messages: Sequence[Message], each: int) -> list[T]:
    """Do something with messages, so many at a time, by several requests at once, each in a thread of its own."""
    with ThreadPoolExecutor(AT_ONCE, "quire-events") as pool:
        return list(pool.map(work, [messages[i : i + each] for i in range(0, len(messages), each)]))


def message(id: str, handle: str, body: str, read: Callable[[str], Iterable[Event]]) -> Message:
    """A message with what its text tells; one that is not understood says so."""
    try:
        return Message(id, handle, tuple(read(body)))
    except (NotUnderstood, RecursionError) as e:
        return Message(id, handle, None, f"{e}: {scrub(body, SAID)!r}")
