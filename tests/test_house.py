"""What importing quire costs, what it does not bring along, and what the house finds in its rooms."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import quire
from house import ROOT, Module, lines_of, strangers


def loaded_by(statement: str) -> set[str]:
    command = [sys.executable, "-W", "error", "-c", f"{statement}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_import_quire_draws_nothing() -> None:
    assert not loaded_by("import quire") & {"ipywidgets", "IPython", "jupyterlab", "matplotlib"}


# Each takes longer to import than all of quire that a task needs.
HEAVY = {"asyncio", "fsspec", "msgspec", "numpy", "pandas", "pyarrow", "pyspark", "ssl", "fastavro", "zstandard"}


def test_import_quire_loads_nothing_heavy_and_a_tasks_function_only_what_it_needs() -> None:
    assert not loaded_by("import quire") & {*HEAVY, "quire.storage", "quire.ledger", "quire.engine"}
    work = {"pandas", "pyspark", "fsspec", "asyncio", "pyarrow.dataset"}
    for module in ("quire.table.write.write", "quire.table.write.stage", "quire.engine.attempt", "quire.spark.runner"):
        assert not loaded_by(f"import {module}") & {*work, "quire.ledger", "quire.committers", "quire.samples"}, module
    assert "pandas" not in loaded_by("import quire.cli")


def test_every_public_name_is_found_where_the_type_checkers_are_told() -> None:
    tree = ast.parse(Path(quire.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {name.name: node.module for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for name in node.names}
    assert {name: home for name, home in told.items() if home != "quire"} == vars(quire)["_HOMES"]
    assert {*told, "__version__", *(name for name in quire.__all__ if name in vars(quire.errors))} == set(quire.__all__)
    loaded_by("import quire\nfor name in quire.__all__:\n    assert name in dir(quire), name\n    getattr(quire, name)")
    with pytest.raises(AttributeError, match="has no attribute 'lode'"):
        getattr(quire, "lode")  # noqa: B009 - a type checker knows that it is not there


@pytest.mark.nth(2)
@pytest.mark.parametrize("asked", ["", "quire.{0}; "])
def test_a_function_that_is_called_like_its_module_stays_the_function_whichever_is_imported_first(asked: str) -> None:
    one = f"import quire; {asked}import quire.{{0}}; assert callable(quire.{{0}})\n"
    loaded_by("".join(one.format(name) for name in ("consolidate", "load", "process", "read", "recover")))


def test_a_function_of_a_users_that_names_the_package_can_be_pickled() -> None:
    from pyspark import cloudpickle

    found = pickle.loads(cloudpickle.dumps(lambda: quire))  # type: ignore[no-untyped-call]
    assert found() is quire


def test_asking_for_a_session_is_what_loads_pyspark() -> None:
    assert "pyspark" not in loaded_by("import quire.spark.session")


def module(room: str, text: str) -> Module:
    return Module(ROOT / "toolkit/quire" / room / "x.py", room, ast.parse(text), frozenset(lines_of(text)))


def test_a_private_name_of_another_room_is_found_however_it_is_reached() -> None:
    home = module("home", "def _made(): ...\nclass A:\n    def __init__(self):\n        self._held = self._made = 1\n")
    assert strangers([home, module("home", "from quire.home.x import _made\nfrom quire.home import x\nx._made(), A()._held")]) == []
    abroad = [
        "from quire.home.x import _made",
        "from quire.home import x\nx._made()",
        "def use(a):\n    return a._held",
        "from quire import home as h\nh._made",
    ]
    for text in abroad:
        assert len(strangers([home, module("away", text)])) == 1, text
    own = module("away", "class B:\n    _held = 1\ndef use(b, row):\n    return b._held, row._replace(a=1), b.__class__")
    assert strangers([home, own]) == [], "a name that the room has, too, and what Python calls so"


def test_what_holds_more_than_one_thing_is_found() -> None:
    fields = "".join(f"    f{i}: int\n" for i in range(16))
    found = module("a", f"@dataclass\nclass A:\n{fields}").large()
    assert [line.split(" ", 1)[1] for line in found] == ["A: 17 lines of code, 16 attributes"]
    told = f"@dataclass(frozen=True)\nclass A:\n{fields}    @property\n    def sum(self): ...\n"
    assert not list(module("a", told).large()), "a result with many columns"
    assert list(module("a", f"{told}    def add(self, more): ...\n").large()), "it does something"
    lines = "".join(f"    a{i} = 1\n" for i in range(200))
    assert list(module("a", f"class A:\n    '''Words.'''\n{lines}").large()), "201 lines of code"
    assert not list(module("a", f"class A:\n    '''Words.'''\n{lines[11:]}").large()), "200, and docstrings are none"
    assert list(module("a", "def f(a, b, c, d, e, f, g, h, i): ...").long())
    assert not list(module("a", "def f(self, a, b, c, d, e, f, g, h, **given: Unpack[Settings]): ...").long())
    nine = "(a, b, c, d, e, f, g, h, i): ...\n"
    load = Module(ROOT / "toolkit/quire/load.py", "load", ast.parse(f"def check{nine}def load{nine}def _load{nine}"), frozenset())
    assert [line.split(" ")[1] for line in load.long()] == ["_load:"], "users see the parameters of the others"


def test_a_generator_that_waits_for_threads_is_found() -> None:
    pool = "def f():\n    with ThreadPoolExecutor(2) as pool:\n        "
    assert len(list(module("a", f"{pool}yield from pool.map(g, h)").waiting())) == 1
    assert not list(module("a", f"{pool}return list(pool.map(g, h))\n    yield 1").waiting())
    assert not list(module("a", f"{pool}def inner():\n            yield 1\n        return list(inner())").waiting())
    assert not list(module("a", "def f():\n    with Pool(2) as pool:\n        yield 1").waiting())
