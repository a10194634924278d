"""The function that a command names: `module:name`, or `file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from quire.errors import UsageError, choose, quoted, scrub

_OURS = set[str]()  # names of the modules that were loaded from files here, each of which another file may take


def function_of(text: str) -> Callable[..., Any]:
    """Load it; UsageError in one line for what is not there, or fails when it is loaded.

    A module of the user's own is sent to Spark's tasks by its content: they cannot import it.
    """
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name.isidentifier():
        raise UsageError(f"{quoted(text)} is not a function. Write module:name, or path/file.py:name.")
    try:
        module = _of_file(Path(where)) if where.endswith(".py") else _of_name(where)
    except (Exception, SystemExit) as e:  # a script that ends itself, without a look at its name, would end all others with it
        if isinstance(e, UsageError):
            raise
        at = traceback.extract_tb(e.__traceback__)[-1]
        raise UsageError(f"{where} cannot be loaded: {type(e).__name__}: {scrub(str(e))} (at {Path(at.filename).name}:{at.lineno}).") from e
    found = getattr(module, name, None)
    if not callable(found):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        choose(name, functions, f"function of {where}")
        raise UsageError(f"{text!r} is not a function.")
    function: Callable[..., Any] = found
    return function


def _of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"the file {quoted(str(path))} does not exist. Check the spelling.")
    there = sys.modules.get(path.stem)
    if path.stem in sys.stdlib_module_names or (there is not None and path.stem not in _OURS and not _is_of(there, path)):
        raise UsageError(f"{quoted(str(path))} is called like the module {path.stem!r}, and would stand in its place. Rename the file.")
    _OURS.add(path.stem)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses and pickle look for it
    spec.loader.exec_module(module)
    return _carried(module)


def _is_of(module: ModuleType, path: Path) -> bool:
    return Path(getattr(module, "__file__", None) or "").resolve() == path.resolve()


def _of_name(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` has it
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name and (name == e.name or name.startswith(f"{e.name}.")):
            raise UsageError(f"the module {name!r} does not exist, here or installed. Write module:name, or path/file.py:name.") from e
        raise
    inside = getattr(module, "__file__", None) or ""
    return _carried(module) if inside.startswith(f"{here}/") else module


def _carried(module: ModuleType) -> ModuleType:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # pyspark's copy has no types
    return module
