"""Drivers as threads, in an order that a seed repeats."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from quire.errors import StorageError
from sim.world import Actor, Crash, World, never


class Scheduler:
    """Drivers as threads of which one runs at a time; who goes on after an operation is drawn from a seed.

    `sleeps`: actor → the number of its operations after which it sleeps (a zombie) until everybody else has ended or sleeps too.
    `sticky`: how probable it is that the same driver goes on.
    """

    def __init__(self, world: World, sticky: float, sleeps: dict[str, int]) -> None:
        self.world, self.sticky, self.sleeps = world, sticky, sleeps
        self.scripts: dict[str, tuple[Actor, Callable[[], Any]]] = {}
        self.gates: dict[str, threading.Semaphore] = {}
        self.awake: list[str] = []
        self.asleep: list[str] = []
        self.ended: dict[str, BaseException | None] = {}
        self.over = threading.Event()
        self.stuck = False

    def add(self, actor: Actor, work: Callable[[], Any]) -> None:
        self.scripts[actor.name] = actor, work

    def run(self) -> dict[str, BaseException | None]:
        """Let them all run to their end; what each one raised."""
        self.world.turn = self._turn
        self.awake = list(self.scripts)
        self.gates = {name: threading.Semaphore(0) for name in self.scripts}
        threads = [threading.Thread(target=self._thread, args=(name,), daemon=True) for name in self.scripts]
        for thread in threads:
            thread.start()
        self.gates[self.world.random.choice(self.awake)].release()
        seen = -1
        while not self.over.wait(60):  # a machine that was asleep is not stuck: it goes on
            assert seen != (seen := len(self.world.history)), f"stuck\n{self.world.told()}"
        for thread in threads:
            thread.join()
        self.world.turn = never
        return self.ended

    def _thread(self, name: str) -> None:
        actor, work = self.scripts[name]
        self.gates[name].acquire()
        with self.world.acting(actor):
            try:
                work()
                self.ended[name] = None
            except BaseException as e:
                self.ended[name] = e
        self.awake.remove(name)
        self._wake()
        if self.awake:
            self.gates[self.world.random.choice(self.awake)].release()
        else:
            self.over.set()

    def _wake(self) -> None:
        if not self.awake and self.asleep:
            self.awake.append(self.asleep.pop(self.world.random.randrange(len(self.asleep))))

    def _turn(self, actor: Actor, op: str, name: str) -> None:
        self.world.land()
        if self.sleeps.get(actor.name, -1) == actor.operations and actor.name in self.awake:
            del self.sleeps[actor.name]
            self.awake.remove(actor.name)
            self.asleep.append(actor.name)
            self._wake()
            self.world.history.append((actor.name, "sleeps", "", ""))
        elif self.world.random.random() < self.sticky:
            return
        follows = self.world.random.choice(self.awake)
        if follows != actor.name:
            self.gates[follows].release()
            self.gates[actor.name].acquire()


def run(world: World, actor: Actor, work: Callable[[], Any]) -> BaseException | None:
    """Let an actor work; what ended it."""
    with world.acting(actor):
        try:
            work()
        except (Crash, StorageError) as e:
            return e
    return None
