"""A widget's call, as Python to copy: only what differs from the defaults, and never what may be a secret."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Collection, Mapping
from typing import Any

import quire
from quire import reasons
from quire.errors import scrub

_SECRET = ("storage_options", "source_options", "dest_options", "registry_options")
_WIDTH = 100


def consolidate(source: str, dest: str, spark: Any, settings: Mapping[str, Any]) -> str:
    """`report = quire.consolidate(…)`, with the settings that are not the defaults."""
    return _job(quire.consolidate, "panel", source, dest, spark, settings)


def load(source: str, dest: str, spark: Any, settings: Mapping[str, Any]) -> str:
    """`report = quire.load(…)`, likewise."""
    return _job(quire.load, "monitor", source, dest, spark, settings)


def _job(call: Callable[..., Any], widget: str, source: str, dest: str, spark: Any, settings: Mapping[str, Any]) -> str:
    defaults = {p.name: p.default for p in inspect.signature(call).parameters.values()}
    given = {name: value for name, value in settings.items() if not _is_default(name, value, defaults)}
    named = {"source": _value("source", source), "dest": _value("dest", dest)}
    if isinstance(spark, quire.LocalRunner):
        named["spark"] = "quire.LocalRunner()"
    elif spark is not None:
        named["spark"] = "spark"
    named |= {name: _value(name, value) for name, value in given.items()}
    # A value that is its own name is a variable of the reader's.
    theirs = [name for name, value in named.items() if value.isidentifier() and value not in ("True", "False", "None")]
    note = f"# yours, as the {widget} has them: {', '.join(named[name] for name in theirs)}\n" if theirs else ""
    arguments = [value if name in ("source", "dest") else f"{name}={value}" for name, value in named.items()]
    return f"import quire\n\n{note}{_call(f'report = quire.{call.__name__}', arguments)}"


def recover(dest: str, settings: Mapping[str, Any], abort: bool) -> str:
    """`quire.recover(…)`, to give unfinished work up or to publish what was committed."""
    options = [f"{name}" for name in ("storage_options", "dest_options") if settings.get(name)]
    merged = "{" + ", ".join(f"**{name}" for name in options) + "}" if len(options) > 1 else "".join(options)
    arguments = [_value("dest", dest), *(["abort='open'"] if abort else []), *([f"storage_options={merged}"] if merged else [])]
    return _call("quire.recover", arguments)


class Variable(str):
    """A literal part of the code: the name of a variable that an earlier line has set."""

    __slots__ = ()


def ledger(dest: str, has_options: bool, spark: Any, call: str, before: str, *, in_vain: bool = False, **named: Any) -> str:
    """`result = quire.Ledger(dest).call(…)`, after lines that it needs; what is None or "" is left out.

    `in_vain`: it raised AllQuarantined, and its result is what that carries.
    """
    opened = f"ledger = quire.Ledger({_value('dest', dest)}{', storage_options=storage_options' if has_options else ''})"
    given = {name: value for name, value in named.items() if value is not None and not (isinstance(value, str) and value == "")}
    arguments = [f"{name}={_value(name, value)}" for name, value in given.items() if name != "storage_options"]
    if "storage_options" in given:  # those of the sources have the name that they came by
        arguments.append("storage_options=source_options")
    if call in ("retry", "forget") and spark is not None:
        arguments.append(f"spark={'quire.LocalRunner()' if isinstance(spark, quire.LocalRunner) else 'spark'}")
    called = _call(f"result = ledger.{call}", arguments)
    if in_vain:
        called = f"try:\n{textwrap.indent(called, '    ')}\nexcept quire.AllQuarantined as e:\n    result = e.report"
    return f"import quire\n\n{opened}\n{before}{called}"


def table(url: str, has_options: bool, as_of: str, call: str, *, key: str = "", rows: tuple[int, int] = (0, 0)) -> str:
    """`result = quire.Table(url).timeline(last=…)` or `.history(key)`; `rows`: of the last so many of the timeline the first so many."""
    opened = f"table = quire.Table({_value('url', url)}{', storage_options=storage_options' if has_options else ''})"
    at = f".as_of({as_of!r})" if as_of else ""
    last, shown = rows
    called = f"history({_value('key', key)})" if call == "history" else f"timeline(last={last})"
    head = f".head({shown})" if shown < last else ""
    return f"import quire\n\n{opened}{at}\nresult = table.{called}{head}"


def status(dest: str, source: Any, chosen: Mapping[str, Any]) -> str:
    """`status = quire.status(…)`, and its line."""
    arguments = [_value("dest", dest), *([] if source is None else [_value("source", source)])]
    arguments += [f"{name}={_value(name, value)}" for name, value in chosen.items() if name != "spark"]
    arguments += ["spark=spark"] if "spark" in chosen else []
    return f"{_call('status = quire.status', arguments)}\nprint(status.line)"


def advise(url: str, needs: Collection[str], hierarchical: bool | None, spark: Any) -> str:
    """`advice = quire.committers.advise(…)`, and in a comment how a session gets it."""
    arguments = [_value("url", url)]
    arguments += [f"needs={{{', '.join(map(repr, needs))}}}"] if needs else []
    arguments += ["spark=spark"] if spark is not None else []
    arguments += [f"hierarchical={hierarchical}"] if hierarchical is not None else []
    how = "# before a session starts: spark = advice.apply(SparkSession.builder).getOrCreate()"
    return f"import quire\n\n{_call('advice = quire.committers.advise', arguments)}\n{how}"


def check(url: str, format: str, hierarchical: bool | None) -> str:
    """`checked = quire.committers.advise.check(…)`."""
    arguments = ["spark", _value("url", url), f"format={format!r}"]
    arguments += [f"hierarchical={hierarchical}"] if hierarchical is not None else []
    return _call("checked = quire.committers.advise.check", arguments)


def skew(what: Any, arguments: Mapping[str, Any]) -> str:
    """How the SkewResult is had: `quire.skew.check(counts)`, `plan.skew()`."""
    known = {quire.Plan: "plan.skew()", quire.Report: "report.skew", quire.Ledger: "ledger.skew()", quire.skew.SkewResult: "result"}
    for kind, code in known.items():
        if isinstance(what, kind):
            return code
    return _call("quire.skew.check", ["counts", *(f"{name}={_value(name, value)}" for name, value in arguments.items())])


def _is_default(name: str, value: Any, defaults: Mapping[str, Any]) -> bool:
    """Compared by type too: 1 is not True, and an array is equal to nothing."""
    default = defaults.get(name, inspect.Parameter.empty)
    return type(value) is type(default) and bool(value == default)


def _value(name: str, value: Any) -> str:
    """A value as Python; where it may hold a secret, or has no form in Python, the name of a variable."""
    if isinstance(value, Variable):
        return str(value)
    if name in _SECRET and value is not None:
        return name
    if callable(value):
        own = getattr(value, "__name__", "")
        return own if own.isidentifier() else name
    if not _plain(value):
        return name
    written = repr(value)
    return name if "***" in scrub(written, len(written)) and "***" not in written else written


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(map(_plain, value))
    return value is None or type(value) in (str, int, float, bool)


def _call(function: str, arguments: list[str]) -> str:
    line = f"{function}({', '.join(arguments)})"
    return line if len(line) <= _WIDTH else "\n".join([f"{function}(", *(f"    {a}," for a in arguments), ")"])


class Chosen:
    """All of the quarantine, or with a `reason` what has that one, as `inspect.reasons` tells them apart; `condition` holds for all."""

    def __init__(self, reason: str | None, condition: str, spark: Any) -> None:
        self._reason = reason
        self.told: dict[str, Any] = {}
        self.before = ""  # Python that has to come before
        kind = "" if reason is None else reasons.condition(reason)
        if where := " and ".join(part for part in (condition, kind) if part):
            self.told = {"where": where}
            if isinstance(spark, quire.LocalRunner):  # SQL needs Spark
                self.told = {"paths": Variable("paths")}
                of_reason = "" if reason is None else f"[rows['reason'].map(reasons.kind) == {reason!r}]"
                imported = "" if reason is None else "from quire import reasons\n\n"
                self.before = f"{imported}rows = ledger.inspect.quarantined()\npaths = rows{of_reason}['path'].tolist()\n"

    def named(self, ledger: quire.Ledger) -> dict[str, Any]:
        """The same as arguments."""
        if "paths" not in self.told:
            return self.told
        rows = ledger.inspect.quarantined()
        mine = rows if self._reason is None else rows[rows["reason"].map(reasons.kind) == self._reason]
        return {"paths": mine["path"].tolist()}
