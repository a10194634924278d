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
        self.handles = dict[str, str]()  # of what it was asked to hold: another one each time
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
        self.handles.clear()

    def receive(self, most: int, on_retry: Any) -> list[Message]:
        self.asked += 1
        self.before.get("receive", lambda: None)()
        found = dict(itertools.islice(self.waiting.items(), most))
        for name in found:
            self.given[name] = self.waiting.pop(name)
        return list(found.values())

    def hold(self, messages: Sequence[Message], on_retry: Any) -> list[Message]:
        self.before.get("hold", lambda: None)()
        kept = [one._replace(handle=f"{one.id}-{next(self._numbers)}") for one in messages if one.id in self.given]
        assert all(one.handle == self.handles.get(one.id, one.id) for one in messages), "an old handle"
        self.handles |= {one.id: one.handle for one in kept}
        return kept

    def delete(self, messages: Sequence[Message], on_retry: Any) -> None:
        for one in messages:
            self.before.get("delete", lambda: None)()
            assert one.handle == self.handles.get(one.id, one.id), "an old handle"
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
