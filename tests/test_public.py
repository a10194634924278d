"""Every public name is exported, says what it takes, returns and raises, shows how it is used, and is in the docs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import quire
import quire_widgets
from quire import committers, plots, skew
from quire.display import Shown
from quire.ledger.inspect import Inspect

ROOT = Path(__file__).parents[1]
PACKAGES: tuple[ModuleType, ...] = (quire, committers, skew, plots, quire_widgets)
HANDED = (quire.Plan, committers.TaskAttempt)  # quire makes them: their constructors are not for users


@dataclass(frozen=True)
class Public:
    """A public name: `of` is the class of a method, `package` the package that exports it or its class."""

    name: str
    thing: Any
    of: type | None
    package: ModuleType

    @property
    def own(self) -> str:
        thing = self.thing if inspect.isroutine(self.thing) or isinstance(self.thing, type) else type(self.thing).__call__
        return inspect.getdoc(thing) or ""

    @property
    def shared(self) -> str:
        """The docstrings of its class and of the class's bases: what holds for all methods stands there once."""
        kinds = [self.of] if self.of else [self.thing] if isinstance(self.thing, type) else []
        ours = [base for kind in kinds for base in kind.__mro__ if _ours(base)]
        return "\n\n".join(inspect.cleandoc(base.__doc__ or "") for base in ours)

    @property
    def pointed(self) -> str:
        """The docstrings that its own one points to, `quire.consolidate`: the parameters that are the same stand there once."""
        found = (getattr(quire, name, None) for name in re.findall(r"`quire\.(\w+)`", self.own))
        siblings = (getattr(self.of, name, None) for name in re.findall(r"`(\w+)`", self.own) if self.of)
        return "\n\n".join(inspect.getdoc(one) or "" for one in (*found, *siblings) if inspect.isfunction(one))

    @property
    def parameters(self) -> list[str]:
        if self.thing in HANDED or (isinstance(self.thing, type) and (issubclass(self.thing, Exception) or _protocol(self.thing))):
            return []
        names, annotations = list[str](), inspect.signature(self.thing).parameters
        for name, parameter in annotations.items():
            if parameter.kind is parameter.VAR_KEYWORD and "Unpack" in str(parameter.annotation):
                names += _keys(self.thing, name)
            elif not name.startswith("_") and name not in ("self", "cls"):
                names.append(name)
        return names

    @property
    def returns(self) -> str:
        """What its annotation says; "" for nothing, and for a class."""
        found = "" if isinstance(self.thing, type) else str(inspect.signature(self.thing).return_annotation)
        return "" if found in ("None", "<class 'inspect._empty'>") and self.thing not in OVERLOADED else found


def _ours(kind: type) -> bool:
    return kind.__module__.startswith("quire")


def _protocol(kind: type) -> bool:
    return getattr(kind, "_is_protocol", False)


def _keys(function: Callable[..., Any], name: str) -> list[str]:
    """The keys that `**name: Unpack[Keys]` takes."""
    text = inspect.unwrap(function).__annotations__[name]
    keys = text if isinstance(text, str) else str(text)
    kind = inspect.unwrap(function).__globals__[re.search(r"Unpack\[\"?'?(\w+)", keys)[1]]  # type: ignore[index]
    return list(kind.__annotations__)


OVERLOADED = (quire.consolidate, quire.process, quire.plan)


def public() -> Iterator[Public]:
    for package in PACKAGES:
        for name in package.__all__:
            thing = getattr(package, name)
            if isinstance(thing, ModuleType | str):
                continue
            yield Public(f"{package.__name__}.{name}", thing, None, package)
            if isinstance(thing, type) and not issubclass(thing, Exception):
                yield from methods(thing, f"{package.__name__}.{name}", package)
    yield Public("ledger.inspect", Inspect, None, quire)
    yield from methods(Inspect, "ledger.inspect", quire)


def methods(kind: type, name: str, package: ModuleType) -> Iterator[Public]:
    """The public methods that quire's own classes give to a class."""
    for member in sorted({member for base in kind.__mro__ if _ours(base) for member in vars(base)}):
        thing = getattr(kind, member)
        spark = any(member in vars(base) for base in kind.__mro__ if base.__module__.startswith("pyspark"))  # who calls it, and says how
        if not member.startswith("_") and (inspect.isfunction(thing) or inspect.ismethod(thing)) and not spark:
            yield Public(f"{name}.{member}", thing, kind, package)


ALL = list(public())
# A docstring that begins so is about what is returned: "The destination in numbers", "Whether …", "One row a task: …".
THINGS = "A|All|An|Any|Each|Every|How|One|Some|The|Those|Where|Whether|Which|Why|Quarantined|Empty"


@cache
def pages() -> str:
    return "\n".join(page.read_text() for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))))


def named(parameter: str, text: str) -> bool:
    """Whether a text tells of a parameter: in backticks, or at the head of a line of a list, as `source, dest   directories`."""
    return bool(
        re.search(rf"`[^`\n]*(?<![\w.]){parameter}\b[^`\n]*`|^\s*(?:\w+, )*{parameter}(?:, \w+)*(?: {{2,}}\S|\n)", text, re.MULTILINE)
    )


def shown(name: str, text: str) -> bool:
    """Whether an indented line of a docstring, an example, has a name in it."""
    blocks = re.findall(r"(?:\A|\n\n)((?: {4}.*(?:\n|$)|\n(?= {4}))+)", text)
    return any(re.search(rf"(?<!\w){name}\b", block) for block in blocks)


def returned(text: str) -> bool:
    """Whether a docstring says what is returned: it begins with that, or says "Returns"."""
    return bool(re.match(rf"(?:{THINGS})\b", text) or re.search(r"\b(?:[Rr]eturns?|[Gg]ives)\b", text))


def raised(text: str) -> bool:
    """Whether a docstring says what is raised."""
    return bool(re.search(r"\b(?:Raises|\w+Error|AllQuarantined|TooManyQuarantined)\b", text))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_what_a_package_gives_is_in_its_list_and_nothing_else(package: ModuleType) -> None:
    assert len(package.__all__) == len(set(package.__all__))
    imported = {
        name
        for name, thing in vars(package).items()
        if not name.startswith("_") and (inspect.isfunction(thing) or isinstance(thing, type)) and thing.__module__.startswith("quire")
    }
    assert imported <= set(package.__all__), "a name that is not in __all__ has a leading underscore"


def test_a_public_name_says_what_it_takes() -> None:
    wrong = {
        one.name: missing
        for one in ALL
        if (missing := [p for p in one.parameters if not named(p, f"{one.own}\n\n{one.shared}\n\n{one.pointed}")]) or not one.own
    }
    assert wrong == {}


def test_a_public_name_says_what_it_returns() -> None:
    wrong = [one.name for one in ALL if one.returns and not returned(one.own) and not (one.of is Inspect and returned(one.shared))]
    assert wrong == []


def test_a_public_name_says_what_it_raises() -> None:
    asked = [one for one in ALL if one.parameters and not isinstance(one.thing, type)]
    assert [one.name for one in asked if not raised(f"{one.own}\n{one.shared}\n{one.pointed}")] == []


def test_a_public_name_has_an_example() -> None:
    wrong = []
    for one in ALL:
        examples = "\n\n".join((one.own, one.shared, inspect.cleandoc(one.package.__doc__ or "")))
        if not shown(one.name.rpartition(".")[2], examples):
            wrong.append(one.name)
    assert wrong == []


def test_a_public_name_is_in_the_docs() -> None:
    assert [one.name for one in ALL if not re.search(rf"[`.( ]{one.name.rpartition('.')[2]}\b", pages())] == []


def test_a_result_says_in_a_prompt_what_it_is() -> None:
    results = [one for name in quire.__all__ if isinstance(one := getattr(quire, name), type) and issubclass(one, Shown)]
    assert len(results) > 10
    assert [one.__name__ for one in results if one.__repr__ is object.__repr__] == []


def test_what_these_tests_ask_for_can_be_missing() -> None:
    assert not named("dest", "Takes a dest, `destination` and a\nlist  of dest")
    assert named("dest", "source, dest   directories")
    assert named("dest", "as `read(dest)` does")
    assert not shown("read", "Call read.\n  read")
    assert shown("read", "Words:\n\n    df = quire.read(dest)")
    assert (returned("Draw tasks."), returned("Draw tasks. Returns a Picture."), returned("The tasks.")) == (False, True, True)
    assert (raised("Draw tasks."), raised("UsageError for another one.")) == (False, True)
    names = {one.name: one for one in ALL}
    assert {"quire.Ledger.retry", "ledger.inspect.files", "quire.plots.tasks", "quire_widgets.LoadMonitor.start"} <= set(names)
    assert set(names["quire.process"].parameters) > {"source", "function", "format", "include"}
