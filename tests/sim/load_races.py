"""Races of loaders, as `races` has them of files: beside one another, and beside what changes their ledger, while topics change."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sim import loads
from sim.kinds import Kind
from sim.races import OF_VERBS, Race, Step, troubled
from sim.ways import By

__all__ = ["draw"]

OF_LOADS: dict[str, float] = {
    "run": 7, "abort": 1, "recover": 1, "checkpoint": 1, "forget": 1, "compact": 1, "retry": 1, "expire": 1,
}  # fmt: skip

_VERBS = {kind: odds for kind, odds in OF_VERBS.items() if kind != "purge"}  # of a topic nobody deletes single records


def draw(seed: int, fitting: Sequence[tuple[By, Kind]], transform: str = "load") -> Race:
    """A race of that seed; "distinct": of loaders that leave out what is known by its key, which nobody forgets."""
    rng = random.Random(f"{transform} {seed}")
    by, kind = rng.choice([pair for pair in fitting if not pair[0].leaks] * 2 + [pair for pair in fitting if pair[0].leaks])
    odds = OF_LOADS if rng.random() < 0.65 else _VERBS
    odds = {kind: n for kind, n in odds.items() if kind != "forget"} if transform == "distinct" else odds
    faulty, drivers = rng.random() < 0.4, []
    for name in "ABC"[: rng.choice((2, 2, 3))]:
        steps = tuple(_step(rng, odds) for _ in range(rng.choice((1, 1, 2))))
        drivers.append(troubled(rng, kind, name, steps, faulty))
    begun = (Step("run", target=9_000),) if "run" not in odds or odds is _VERBS or rng.random() < 0.5 else ()
    changes = ("produce", "produce", "abort", "open", "end", "compact", "retain", "retain", "grow")
    edits = tuple((rng.randint(2, 60), rng.randrange(14), rng.choice(changes)) for _ in range(rng.randint(0, 6)))
    expires = rng.randint(20, 200) if kind.uploads and rng.random() < 0.2 else 0
    return Race(
        seed, transform, by, kind, tuple(drivers), edits, rng.choice((0.0, 0.5, 0.9, 0.97)), rng.random() < 0.3, expires, begun=begun
    )


def _step(rng: random.Random, odds: dict[str, float]) -> Step:
    kind = rng.choices(list(odds), list(odds.values()))[0]
    if kind == "forget":
        return Step(kind, path=rng.choice((loads.path("events"), loads.path("events", 1), loads.path("bound"), loads.path("short"))))
    # As one call, or by another one: of two targets, or only so many bytes a job.
    return Step(
        kind, (), 20_000 if kind == "compact" else rng.choice((6_000, 6_000, 9_000)), rng.choice((0, 0, 60)), repaired=rng.random() < 0.5
    )
