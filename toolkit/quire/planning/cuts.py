"""Where to cut a directory of unknown many names, in a store whose listing begins at any of them.

Nobody counts the names. Places that may lie between them are made up from the characters that names have shown so far, and the store is
asked for the first names behind each, many at once: what comes are real names, and places to cut. The stretch between two of them is
known to be little, or is taken to weigh as much as what begins with another character in the same place. The heaviest are cut further.
So slices of about one size come out where names are spread evenly, as numbers, hashes and times are; elsewhere some are longer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from itertools import groupby, pairwise
from operator import itemgetter

from quire.storage.slices import plain

First = Callable[[str, int], list[str]]  # (after, most) → the first names from there on, in their order

FEW = 50  # names that come with an answer: fewer between two cuts are not worth a slice
HEAVY = 2  # times what a slice should weigh: such a span is cut further, as there are several slices for each lister
ROUNDS = 8
QUESTIONS = 8  # for each slice that is wanted, and 256 at least, after which no further round comes
TRIED = 128  # characters tried in one place: of scripts with thousands of them, some
LEVELS = 64  # characters of a name at which it is asked whether another one differs from it there
USUAL = "05AMZamz"  # characters tried where no name has shown them, too


def cuts(first: First, known: list[str], wanted: int, pool: Executor) -> list[str]:
    """Names that cut a directory, which begins with the names `known`, into about `wanted` slices; `first` is called in `pool`."""
    found = _Cuts(first, known)
    for _ in range(ROUNDS):
        if not found.refine(pool, wanted) or len(found.tried) > max(256, QUESTIONS * wanted):
            break
    return found.even(wanted)


class _Cuts:
    def __init__(self, first: First, known: list[str]) -> None:
        self.first = first
        self.points = {known[0]: known[:FEW]}  # where a slice may begin → the first names there
        self.alphabet = set(USUAL)
        self.tried = set[str]()
        self._learn(known)

    def _learn(self, names: Iterable[str]) -> None:
        self.alphabet.update(c for name in names for c in name if "/" != c > " " and plain(c))

    def refine(self, pool: Executor, wanted: int) -> bool:
        """Cut the spans that are too heavy; whether anything came of it."""
        before = len(self.points)
        names = sorted(self.points)
        counts = self._counts(names)
        spans = ((a, b, weight) for (a, b), weight in zip(pairwise((*names, "")), self._weights(names), strict=True) if not counts[a])
        # First: where do names of a span begin to differ? Then: which characters stand there?
        heavy = [(a, b, self._levels(a, b)) for a, b, weight in spans if weight * wanted > HEAVY]
        answers = self._ask(pool, (place for *_, levels in heavy for place in levels))
        places = list[str]()
        for a, b, levels in heavy:
            others = [self.points[a][-1], *(answers[q][0] for q in levels if answers.get(q))]
            at = min(_shared(a, name) for name in others if not b or name < b)
            found = [q for c in sorted(self.alphabet) if (q := a[:at] + c) > a and (not b or q < b)]
            places += found[:: -(-len(found) // TRIED) or 1]
        self._ask(pool, places)
        return len(self.points) > before

    def _levels(self, a: str, b: str) -> list[str]:
        """Places behind `a` that leave out more and more of what begins like it."""
        start, end = _shared(a, b), min(_shared(a, self.points[a][-1]) + 1, len(a))
        step = -(-(end - start) // LEVELS) or 1
        places = [a[:k] + _next(a[k]) for k in range(end - 1, start - 1, -step)]
        return [q for q in places if not b or q < b]

    def _ask(self, pool: Executor, places: Iterable[str]) -> dict[str, list[str]]:
        new = [q for q in dict.fromkeys(places) if q not in self.tried and plain(q)]
        self.tried.update(new)
        answers = dict(zip(new, pool.map(lambda q: self.first(q, FEW), new), strict=True))
        for names in answers.values():
            self._learn(names[:5])
            if names and plain(names[0]):
                self.points.setdefault(names[0], names)
        return answers

    def _counts(self, names: list[str]) -> dict[str, int]:
        """How many names the spans that begin with these have; 0 where it is not known, which is then many."""
        found = dict.fromkeys(names, 0)
        for a, b in pairwise((*names, "")):
            there = self.points[a]
            if len(there) < FEW or (b and there[-1] >= b):
                found[a] = bisect_left(there, b) if b else len(there)
        return found

    def _weights(self, names: list[str]) -> list[float]:
        """The weights of the spans that begin with these names: 1 in all. Those with few names weigh nothing, unless all have few."""
        counts, weights = self._counts(names), dict.fromkeys(names, 0.0)
        waiting = [(names, 1.0)]
        while waiting:
            group, weight = waiting.pop()
            if all(counts[name] for name in group):
                total = sum(counts[name] for name in group)
                weights |= {name: weight * counts[name] / total for name in group}
            elif len(group) == 1:
                weights[group[0]] = weight
            else:
                shared = _shared(group[0], group[-1]) + 1
                branches = [list(branch) for _, branch in groupby(group, itemgetter(slice(shared)))]
                many = [branch for branch in branches if not all(counts[name] for name in branch)]
                waiting += [(branch, weight / len(many)) for branch in many]
        return list(weights.values())

    def even(self, wanted: int) -> list[str]:
        """The cuts that make slices of about one weight; what weighs nothing goes with what is before it."""
        names, found, held = sorted(self.points), list[str](), 0.0
        for name, weight in zip(names, self._weights(names), strict=True):
            if held and (held + weight / 2) * wanted > 1:
                found.append(name)
                held = 0.0
            held += weight
        return found


def _shared(a: str, b: str) -> int:
    """How many characters two names have in common at their beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _next(c: str) -> str:
    """The character behind another one, but no slash, which would lead into a directory."""
    return "0" if c == "." else chr(ord(c) + 1)
