"""A small object of a fixed name, which readers look at first: it is written over in place, and never goes back for long."""

from __future__ import annotations

from collections.abc import Callable

from quire.storage import Replacing, Store


def point(store: Store, name: str, newest: Callable[[], bytes]) -> None:
    """Let an object hold what is newest.

    `newest` is asked after the look at the object, so what a slow driver writes is never older than what another one has written before
    that look. A store that replaces on condition refuses it if the other one has written since; elsewhere this driver looks again after
    its write and mends it, and if it dies between the two, the next call does.
    """
    while True:
        there = store.stat(name)
        data = newest()
        if there is None:
            if store.put_if_absent(name, data):
                return
        elif there.size == len(data) and store.get(name) == data:
            return
        elif isinstance(store, Replacing):
            store.put_if(name, data, there.version)
        else:
            store.put(name, data)
