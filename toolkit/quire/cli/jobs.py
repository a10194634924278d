"""The file of `quire run`: which loops there are. A mistake in it is one line that names the file, the job, the key and what to do."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import quire
from quire.arguments import seconds
from quire.cli.function import function_of
from quire.engine import request
from quire.engine.loop import again
from quire.errors import QuireError, UsageError, choose, quoted
from quire.load import check as check_load
from quire.process import check as check_process
from quire.sniff import settled
from quire.sources import transforms
from quire.storage.profiles import referred
from quire.table.into import into

TIMES = ("every", "max_runs", "outage", "maintain", "events", "relist")
OURS = ("spark", "progress", "stop")  # keywords that the process itself gives
_SETTING, _TAKEN = (str, int, float), {"master": str, "spark.master": str}  # kinds of a setting of Spark
OPTIONS = ("storage_options", "source_options", "dest_options")


@dataclass(frozen=True)
class Call:
    """A verb that a job may name: its keywords that take functions, and its check, which reads nothing that is to be gathered."""

    verb: Callable[..., quire.Report]
    functions: tuple[str, ...]
    check: Callable[..., object]

    def keywords(self) -> dict[str, inspect.Parameter]:
        """The keywords that a job may say, by their names."""
        return {name: p for name, p in inspect.signature(self.verb).parameters.items() if name not in OURS}


def _check_consolidate(source: Any, dest: Any, *, every: Any = None, operation: str | None = None, **settings: Any) -> request.Request:
    return into(request.build(source, dest, waits=every is not None, **settled(source, settings)), operation)


def _check_process(*, every: Any = None, **settings: Any) -> request.Request:
    return check_process(**settings, waits=every is not None).request


CALLS = {
    "consolidate": Call(quire.consolidate, ("transform",), _check_consolidate),
    "process": Call(quire.process, ("function", "reduce"), _check_process),
    "load": Call(quire.load, ("transform",), check_load),
}


@dataclass(frozen=True)
class Job:
    """One loop: a verb and its keywords. `key` differs where another job has its name.

    `missing`: why its source is not there now, in one line; "": it is.
    """

    name: str
    call: str
    settings: Mapping[str, Any] = field(repr=False)
    restart: float | None  # seconds of the longest pause before it begins again after an error; None: it does not
    key: str = field(repr=False)
    missing: str = ""

    def run(self, **ours: Any) -> quire.Report:
        """Run it, with what the process gives: `spark`, `progress` and `stop`."""
        return CALLS[self.call].verb(**self.settings, **ours)


@dataclass(frozen=True)
class Jobs:
    """The content of a file: jobs by their names, and the settings of their Spark session."""

    jobs: Mapping[str, Job]
    spark: Mapping[str, Any] = field(default_factory=dict)


def read(file: Path) -> Jobs:
    """The jobs of a file, checked without running. Raises UsageError in one line.

    A source that is not there is not a mistake of the file's: a disk may come later, and the other jobs have theirs.
    """
    shown = str(file)
    try:
        found = tomllib.loads(file.read_text("utf-8"))
    except OSError as e:
        raise UsageError(f"{shown} cannot be read: {e.strerror}. Give the file of the jobs.") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as e:
        raise UsageError(f"{shown} is not TOML: {e}. Repair that place.") from e
    try:
        for key in found:
            choose(key, ("jobs", "spark"), "key")
        jobs, spark = _table(found.get("jobs", {}), "jobs"), _table(found.get("spark", {}), "spark")
        if not jobs:
            raise UsageError("it has no jobs. Write one as a table: [jobs.NAME], with call, source and dest.")
        settings = _flat(spark)
        if wrong := next((key for key, value in settings.items() if not isinstance(value, _TAKEN.get(key, _SETTING))), None):
            raise UsageError(f"key {wrong!r} of [spark] is {quoted(settings[wrong])}. Write text, a number, true or false; of master text.")
    except UsageError as e:
        raise UsageError(f"{shown}: {e}") from e
    return Jobs({name: _job(shown, file.absolute().parent, name, given) for name, given in jobs.items()}, settings)


def _table(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{key!r} is not a table. Write [{key}…] above its keys.")
    return value


def _check_key(key: str, known: Iterable[str], more: str) -> None:
    if key not in (names := list(known)):
        near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
        raise UsageError(f"it is not known. {f'Did you mean {near[0]}?' if near else f'{more} names those that are.'}")


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Spark's settings by their dotted names, which TOML reads as tables in tables unless they are quoted."""
    found = dict[str, Any]()
    for name, value in table.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _job(file: str, folder: Path, name: str, given: Any) -> Job:
    key = missing = ""
    try:
        given, key = dict(_table(given, f"jobs.{name}")), "call"
        call = CALLS[choose(given.pop("call", None), CALLS, "call")]
        which = next(verb for verb, other in CALLS.items() if other is call)
        keywords = call.keywords()
        for key in given:
            _check_key(key, (*keywords, "restart"), f"help(quire.{which})")
        for key in (word for word, p in keywords.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD):
            if key not in given:
                raise UsageError(f"it is missing. Write {key} = '…'.")
        key = "restart"
        restart = _restart(given)
        written = json.dumps({"call": which, "restart": restart, **given}, sort_keys=True, default=str)
        for key in OPTIONS:
            if key in given:
                given[key] = _options(given[key], folder)
        if isinstance(events := given.get("events"), list) and len(events) == 2 and isinstance(events[1], dict):
            key = "events"
            given[key] = events[0], _options(events[1], folder)
        files = list[str]()
        for key in call.functions:
            if isinstance(text := given.get(key), str) and (":" in text or key != "transform" or which == "load"):
                files += _content(text)
                given[key] = function_of(text)
        functions = [transforms.identity(value, given.get("function_version")) for value in given.values() if callable(value)]
        functions += files
        key = "source"
        given[key] = _sources(given[key])
        key = ""
        try:
            _check(call, given)
        except UsageError as e:
            if not e.missing:
                raise
            missing = _said(file, name, "source", e)
    except UsageError as e:
        raise UsageError(_said(file, name, _key(e, given, key), e)) from e
    return Job(name, which, given, restart, json.dumps([written, functions]), missing)


def _restart(given: dict[str, Any]) -> float | None:
    """The longest pause before a job begins again, which is taken out of its words."""
    if "restart" not in given:
        return None
    pause = seconds(given.pop("restart"), "restart")
    if not pause:  # it would begin again as often as it can
        raise UsageError("restart is 0, and has to be longer: write for example '10 min'.")
    return pause


def _said(file: str, name: str, key: str, e: UsageError) -> str:
    return f"{file}: job {name!r}, {f'key {key!r}: ' if key else ''}{e}"


def _key(e: UsageError, given: Any, key: str) -> str:
    """The key that a mistake is about: one of the job's, as far as it is known, else `key`."""
    if not isinstance(given, dict):
        return key
    of_option = (name for name in OPTIONS if e.option is not None and isinstance(given.get(name), Mapping) and e.option in given[name])
    return next(of_option, e.argument if e.argument is not None and e.argument in given else key)


def _content(function: str) -> list[str]:
    """A hash of the file in which a function lies: what it calls there may change where its own text does not.

    None of a file that cannot be read, which whoever loads the function says.
    """
    file = Path(function.rpartition(":")[0])
    try:
        return [hashlib.sha256(file.read_bytes()).hexdigest()] if file.suffix == ".py" else []
    except OSError:
        return []


def _check(call: Call, given: Mapping[str, Any]) -> None:
    """As the call itself checks; a store that does not answer now is not a mistake of the file's."""
    times = again(*(given.get(name) for name in TIMES))
    try:
        found = call.check(**{name: value for name, value in given.items() if name not in TIMES or name == "every"})
        if isinstance(found, request.Request):
            times.check(found.roots)
    except UsageError:
        raise
    except QuireError:
        return  # the job itself meets it, and says so


def _options(given: Any, folder: Path) -> dict[str, Any]:
    """Options, or the name of a profile that holds them."""
    return quire.profile(given) if isinstance(given, str) else referred(given, folder)


def _sources(given: Any) -> Any:
    """A source, or a list of them; [url, options] in a list is a pair."""
    if not isinstance(given, list):
        return given
    return [(one[0], one[1]) if isinstance(one, list) and len(one) == 2 and isinstance(one[1], dict) else one for one in given]


def listed(jobs: Iterable[Job]) -> str:
    """Jobs in a few words: `events (load), logs (consolidate)`."""
    return ", ".join(f"{job.name} ({job.call})" for job in jobs)
