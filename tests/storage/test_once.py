"""Attributes that are computed once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from quire.storage.once import once


@dataclass(frozen=True)
class Slow:
    """A value that another thread waits for."""

    asked: threading.Event = field(default_factory=threading.Event)
    there: threading.Event = field(default_factory=threading.Event)
    times: list[int] = field(default_factory=list)

    @once
    def value(self) -> int:
        """As told."""
        self.times.append(1)
        self.asked.set()
        assert self.there.wait(10)
        return len(self.times)


def test_a_value_is_computed_once_and_tells_what_it_is() -> None:
    one = Slow()
    one.there.set()
    assert (one.value, one.value, one.times) == (1, 1, [1])
    assert Slow.value.__doc__ == "As told."


def test_a_slow_value_of_one_instance_holds_up_no_other_one() -> None:
    slow, other = Slow(), Slow()
    other.there.set()
    waiting = threading.Thread(target=lambda: slow.value, daemon=True)
    waiting.start()
    assert slow.asked.wait(10)
    beside = threading.Thread(target=lambda: other.value, daemon=True)
    beside.start()
    beside.join(10)
    assert not beside.is_alive(), "another instance's value waits for it"
    slow.there.set()
    waiting.join(10)
    assert slow.value == 1
