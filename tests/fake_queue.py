"""A queue of events for tests, which may repeat, lose, lie or be away; `events="fake://name"` finds it by its name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from quire.sources.events import Event, Message

QUEUES = dict[str, "FakeQueue"]()


class FakeQueue:
    """At least once: what was received and is not deleted comes again once `expire` is called."""

    def __init__(self, name: str, hidden: float = 600.0) -> None:
        self.shown, self.hidden = f"fake://{name}", hidden
        self.waiting, self.given = dict[str, Message](), dict[str, Message]()
        self.deleted, self.asked, self.overflown = list[str](), 0, False
        self.before = dict[str, Callable[[], object]]()  # what befalls it before an operation
        self._numbers = itertools.count()
        QUEUES[name] = self

    def send(self, *events: Event | Iterable[Event]) -> None:
        """A message each."""
        for given in events:
            name = f"m{next(self._numbers)}"
            self.waiting[name] = Message(name, name, (given,) if isinstance(given, Event) else tuple(given))

    def send_nonsense(self, said: str) -> None:
        name = f"m{next(self._numbers)}"
        self.waiting[name] = Message(name, name, None, said)

    def expire(self) -> None:
        self.waiting |= self.given
        self.given.clear()

    def receive(self, most: int, on_retry: Any) -> list[Message]:
        self.asked += 1
        self.before.get("receive", lambda: None)()
        found = dict(itertools.islice(self.waiting.items(), most))
        for name in found:
            self.given[name] = self.waiting.pop(name)
        return list(found.values())

    def delete(self, messages: Sequence[Message], on_retry: Any) -> None:
        for one in messages:
            self.before.get("delete", lambda: None)()
            self.given.pop(one.id, None)
            self.waiting.pop(one.id, None)
            self.deleted.append(one.id)

    def lost(self) -> bool:
        lost, self.overflown = self.overflown, False
        return lost

    def close(self) -> None:
        """Nothing."""

    @property
    def held(self) -> int:
        """Messages that it has, given or not."""
        return len(self.waiting) + len(self.given)


def opened(place: str, options: Mapping[str, object], roots: Sequence[Any]) -> FakeQueue:
    return QUEUES[place]
