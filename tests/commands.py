"""What the tests of the shell's commands share: a call's result, and looks at it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import pytest

from quire.cli import app

Result = tuple[int, str, str]  # exit code, output, errors
Run = Callable[..., Result]


def answer(result: Result, code: int = 0) -> Any:
    """The JSON that a verb printed; strict, so NaN is none."""
    assert result[0] == code, result
    assert result[1].count("\n") == 1
    return strict(result[1])


def rows(result: Result) -> list[Any]:
    """The JSON of each line that a verb printed."""
    assert (result[0], result[2]) == (0, ""), result
    return [strict(line) for line in result[1].splitlines()]


def parsed(command: click.Command, *arguments: str) -> dict[str, Any]:
    """The parameters that a verb takes; below the group, since click keeps a command's help option as the first call made it."""
    group = click.Context(app.cli, **app.cli.context_settings)
    return command.make_context(command.name, list(arguments), parent=group).params


def strict(text: str) -> Any:
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def one_line(result: Result, code: int, *words: str) -> None:
    found, out, err = result
    assert (found, out) == (code, ""), result
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err.rstrip("\n").isprintable()
    for word in words:
        assert word in err, err
