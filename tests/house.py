"""The house in numbers: its rooms, their floors and arrows, and the code in it. Fails where one is past its limit.

    python tests/house.py            the numbers
    python tests/house.py --rooms    also each room with its floor and the rooms that it imports, and what is too large

A room is a module or a package directly below `quire`. Its floor is the length of the longest chain of imports that begins in it,
lazy ones included; `__init__`, `errors` and what stands under TYPE_CHECKING do not count. A name that begins with `_` is used in its own
room alone.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp

import quire
from quire.ledger.inspect import Inspect

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (ROOT / "toolkit", ROOT / "widgets")
LIMITS = {
    "modules at the top": 12, "rooms": 30, "floors": 12, "arrows in a circle": 0, "private names abroad": 0, "large classes": 0,
    "long parameter lists": 0, "pools of generators": 0,
}  # fmt: skip
LINES, ATTRIBUTES, PARAMETERS = 200, 15, 8  # of a class, code and its instances' attributes; of a function


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
    """How many lines hold code."""
    return len(lines_of(source))


def lines_of(source: str) -> set[int]:
    """The lines that hold code: neither blank, nor comments, nor docstrings."""
    held = set[int]()
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skip:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, clean=False) is not None:
            held.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return held


def private(name: str) -> bool:
    """Whether a name is for its own room: not what Python and Jupyter call so."""
    return name.startswith("_") and not name.startswith("__") and not re.match(r"_repr_|_replace$|_asdict$|_fields$", name)


@dataclass(frozen=True)
class Module:
    """A file of the house, read."""

    path: Path
    room: str
    tree: ast.Module
    lines: frozenset[int]

    def defined(self) -> set[str]:
        """The private names that it gives to something: functions, variables, methods, attributes."""
        found = set[str]()
        for node in ast.walk(self.tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    found.add(name)
        return {name for name in found if private(name)}

    def abroad(self, at_home: set[str], elsewhere: set[str]) -> Iterator[str]:
        """Where it uses a private name of another room: imports it, takes it from a module, or no one at home has such a name."""
        foreign = set[str]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("quire", "quire_widgets"):
                for alias in node.names:
                    if _home(f"{node.module}.{alias.name}") != self.room:
                        foreign.add(alias.asname or alias.name)
                        if private(alias.name):
                            yield f"{self.at(node)} imports {alias.name} from {node.module}"
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and private(node.attr):
                of = node.value.id if isinstance(node.value, ast.Name) else ""
                if of in foreign or (of not in ("self", "cls") and node.attr in elsewhere - at_home):
                    yield f"{self.at(node)} uses {ast.unparse(node)}"

    def large(self) -> Iterator[str]:
        """Its classes that hold more than one thing."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                lines = len(self.lines & {*range(node.lineno, (node.end_lineno or 0) + 1)})
                held = 0 if record(node) else len(attributes(node))
                if lines > LINES or held > ATTRIBUTES:
                    yield f"{self.at(node)} {node.name}: {lines} lines of code, {held} attributes"

    def long(self) -> Iterator[str]:
        """Its functions with too many parameters, but for public ones; what stands in a TypedDict is not counted."""
        public = {id(node) for name, node in self.named() if (self.name, name) in spelled()}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and id(node) not in public:
                of = node.args
                names = [arg.arg for arg in (*of.posonlyargs, *of.args, *of.kwonlyargs)]
                if (many := len([name for name in names if name not in ("self", "cls")])) > PARAMETERS:
                    yield f"{self.at(node)} {node.name}: {many} parameters"

    def waiting(self) -> Iterator[str]:
        """Its generators that wait for the threads of an executor: Python may let them go in one of these, which cannot wait for itself."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef):
                for each in own(node):
                    made = isinstance(each, ast.With) and any("ThreadPoolExecutor(" in ast.unparse(item) for item in each.items)
                    if made and any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in own(each)):
                        yield f"{self.at(each)} {node.name} yields inside of a ThreadPoolExecutor: quire.storage.threads.Pool can be left"

    @property
    def name(self) -> str:
        """The module's name."""
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts[1:])

    def named(self) -> Iterator[tuple[str, ast.AST]]:
        """Its functions, and the methods of its classes, by their names."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef):
                yield from ((f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, ast.FunctionDef))
            elif isinstance(node, ast.FunctionDef):
                yield node.name, node

    def at(self, node: ast.AST) -> str:
        """Where something stands."""
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, without those of functions inside of it."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield each
            yield from own(each)


@cache
def spelled() -> set[tuple[str, str]]:
    """Module and name of the functions whose parameters are those that users see.

    `quire` exports them, or the class whose methods they are, or a ledger has them below `inspect`; or they spell out the settings of one
    of those.
    """
    exported = [getattr(quire, name) for name in quire.__all__]
    methods = [
        each
        for of in (*exported, Inspect)
        if isinstance(of, type)
        for each in inspect.getmembers(of, lambda of: inspect.isfunction(of) or inspect.ismethod(of))
    ]
    public = [of for of in exported if inspect.isfunction(of)] + [each for name, each in methods if not name.startswith("_")]
    return {(of.__module__, of.__qualname__) for each in public for of in (each, getattr(each, "spelled", each))}


def record(node: ast.ClassDef) -> bool:
    """Whether its fields are the columns of a result, and no state: it is frozen, and asked for nothing but what it holds.

    It is a frozen dataclass whose methods (but for those of the class itself) take no argument: they tell, show or convert.
    """
    methods = [
        each for each in node.body if isinstance(each, ast.FunctionDef) and "classmethod" not in map(ast.unparse, each.decorator_list)
    ]
    alone = all(ast.unparse(each.args) == "self" for each in methods)
    return alone and any("dataclass" in told and "frozen=True" in told for told in map(ast.unparse, node.decorator_list))


def attributes(node: ast.ClassDef) -> set[str]:
    """What a class's instances hold: what is assigned to `self`, and a dataclass's fields."""
    found = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    if any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each.annotation)]
        found |= {ast.unparse(each.target) for each in fields}
    return found


def _home(module: str) -> str:
    """The room of a module."""
    return _room(module) if module.startswith("quire.") else module.partition(".")[0]


def read(roots: Iterable[Path] = SOURCES) -> list[Module]:
    """All files of the house."""
    found = []
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            room = _home(".".join(path.relative_to(root).with_suffix("").parts))
            text = path.read_text()
            found.append(Module(path, room, ast.parse(text), frozenset(lines_of(text))))
    return found


def strangers(of: Sequence[Module]) -> list[str]:
    """Where a private name is used outside of its room."""
    defined: dict[str, set[str]] = {}
    for module in of:
        defined.setdefault(module.room, set()).update(module.defined())
    everywhere = set[str]().union(*defined.values())
    return [line for module in of for line in module.abroad(defined[module.room], everywhere)]


def main(arguments: list[str]) -> int:
    house = look()
    floors, files = house.floors(), read()
    listed = {
        "private names abroad": strangers(files),
        "large classes": [line for module in files for line in module.large()],
        "long parameter lists": [line for module in files for line in module.long()],
        "pools of generators": [line for module in files for line in module.waiting()],
    }
    found = {
        "modules at the top": len(house.modules),
        "rooms": len(house.arrows),
        "floors": max(floors.values(), default=0),
        "arrows in a circle": len(house.circles),
        **{what: len(lines) for what, lines in listed.items()},
    }
    if "--rooms" in arguments:
        for room in sorted(floors, key=lambda room: (-floors[room], room)):
            print(f"{floors[room]:>2}  {room:<12} {' '.join(sorted(house.arrows[room]))}")
        print("", *(line for lines in listed.values() for line in lines), "", sep="\n")
    for what, number in found.items():
        print(f"{what:<20} {number:>6}   at most {LIMITS[what]}")
    print(f"{'arrows':<20} {sum(map(len, house.arrows.values())):>6}")
    print(f"{'lines of code':<20} {sum(len(module.lines) for module in files):>6,}")
    for a, b in house.circles:
        print(f"a circle: {a} imports {b}, which leads back to {a}", file=sys.stderr)
    past = [what for what, number in found.items() if number > LIMITS[what]]
    if past:
        print(f"past their limits: {', '.join(past)}. python tests/house.py --rooms shows where.", file=sys.stderr)
    return 1 if past else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
