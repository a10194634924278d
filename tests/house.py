"""The house in numbers: its rooms, their floors and arrows, and the code in it. Fails where one is past its limit.

    python tests/house.py            the numbers
    python tests/house.py --rooms    also each room with its floor and the rooms that it imports

A room is a module or a package directly below `quire`. Its floor is the length of the longest chain of imports that begins in it,
lazy ones included; `__init__`, `errors` and what stands under TYPE_CHECKING do not count.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (ROOT / "toolkit", ROOT / "widgets")
LIMITS = {"modules at the top": 12, "rooms": 30, "floors": 12, "arrows in a circle": 0}


@dataclass(frozen=True)
class House:
    """Rooms → the rooms that they import."""

    arrows: dict[str, set[str]]

    @property
    def modules(self) -> list[str]:
        return [room for room in self.arrows if (ROOT / f"toolkit/quire/{room}.py").exists()]

    @property
    def circles(self) -> list[tuple[str, str]]:
        """Arrows whose end leads back to their beginning."""
        return [(a, b) for a, to in sorted(self.arrows.items()) for b in sorted(to) if a in self._reached(b)]

    def _reached(self, room: str) -> set[str]:
        seen, ahead = set[str](), [room]
        while ahead:
            for each in self.arrows[ahead.pop()] - seen:
                seen.add(each)
                ahead.append(each)
        return seen

    def floors(self) -> dict[str, int]:
        @cache
        def floor(room: str) -> int:
            return 1 + max((floor(below) for below in self.arrows[room] if below != "errors"), default=0)

        return {} if self.circles else {room: floor(room) for room in self.arrows if room != "errors"}


def look() -> House:
    """The house as the import graph shows it."""
    graph = grimp.build_graph("quire", exclude_type_checking_imports=True, cache_dir=None)
    arrows: dict[str, set[str]] = {}
    for module in graph.modules:
        room = _room(module)
        if room:
            below = {_room(each) for each in graph.find_modules_directly_imported_by(module)}
            arrows.setdefault(room, set()).update(below - {room, ""})
    return House(arrows)


def _room(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def code_lines(source: str) -> int:
    """Lines that hold code: neither blank, nor comments, nor docstrings."""
    held = set[int]()
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skip:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, clean=False) is not None:
            held.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(held)


def modules() -> Iterator[Path]:
    for root in SOURCES:
        yield from sorted(root.rglob("*.py"))


def main(arguments: list[str]) -> int:
    house = look()
    floors = house.floors()
    found = {
        "modules at the top": len(house.modules),
        "rooms": len(house.arrows),
        "floors": max(floors.values(), default=0),
        "arrows in a circle": len(house.circles),
    }
    if "--rooms" in arguments:
        for room in sorted(floors, key=lambda room: (-floors[room], room)):
            print(f"{floors[room]:>2}  {room:<12} {' '.join(sorted(house.arrows[room]))}")
        print()
    for what, number in found.items():
        print(f"{what:<20} {number:>6}   at most {LIMITS[what]}")
    print(f"{'arrows':<20} {sum(map(len, house.arrows.values())):>6}")
    print(f"{'lines of code':<20} {sum(code_lines(path.read_text()) for path in modules()):>6,}")
    for a, b in house.circles:
        print(f"a circle: {a} imports {b}, which leads back to {a}", file=sys.stderr)
    past = [what for what, number in found.items() if number > LIMITS[what]]
    if past:
        print(f"past their limits: {', '.join(past)}. python tests/house.py --rooms shows which room imports which.", file=sys.stderr)
    return 1 if past else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
