"""Every public function and method, with wrong values of every parameter: an error of quire in one line, or a result."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quire
from gathering import gather, refused, write
from quire import committers, plots, skew
from quire.errors import QuireError, UsageError
from quire.sources.kafka import client
from test_public import ALL, _keys

# The shortest, the longest and the odd values of each kind that a caller may hand over by mistake.
WRONG: tuple[Any, ...] = (
    None, "", "x" * 5000, "a\nb\x1b[31m", "\ud800", "a\0b", "[", "kafka://[::1/t", "file://[::1/t", -1, 1.5, object(), [None], ["\ud800"],
    {1: 2}, b"bytes",
)  # fmt: skip
LOCAL: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
KAFKA = "kafka://127.0.0.1:1/t"
# Left out: None is right there, and would start Spark; the number of a large job is only long.
# BESIDE: others would wait for ever, or are called by quire and may raise.
RIGHT = {("spark", type(None))}
BESIDE = ("progress", "every", "max_runs", "outage")
BUSY = {("quire.populate", "files"), ("quire.populate", "dirs"), ("quire.populate", "size"), ("quire.populate", "processes")}

PARTS: tuple[Any, ...] = ("quire.committers", "quire.plots", pytest.param("quire.Table", marks=pytest.mark.seldom))
LONG = ("quire.[a-z]", "quire.Ledger", "ledger.inspect")

Case = tuple[Callable[..., Any], dict[str, Any]]


def none(*_: Any) -> list[Any]:
    return []


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], Case]]:
    """By the name of a callable, as `quire.Ledger.pin`: what makes it, with arguments that are right and say no more than they must."""
    here = tmp_path_factory.mktemp("wrong")
    source = write(here / "in", {"d/a.xml": b"<a/>", "d/b.xml": b"<b/>", "bad.xml": b"<a"})
    gather(source, here / "out", transform="xml")
    rows = pa.table({"id": [1, 2], "at": [1, 1]})
    quire.Table.create(here / "table", key="id", ordering="at").upsert(rows, **LOCAL)
    quire.Table.create(here / "logs", key="id", ordering="at", type="merge_on_read").upsert(rows, **LOCAL)
    numbers = iter(range(1_000_000))

    def new() -> Path:
        return here / f"new{next(numbers)}"

    def ledger() -> quire.Ledger:
        return quire.Ledger(here / "out")

    def output() -> committers.OutputCommitter:
        return committers.OutputCommitter(new())

    file = source / "d/a.xml"
    found: dict[str, Callable[[], Case]] = {
        "quire.consolidate": lambda: (quire.consolidate, {"source": source, "dest": new(), **LOCAL}),
        "quire.plan": lambda: (quire.plan, {"source": source, "dest": new(), **LOCAL}),
        "quire.process": lambda: (quire.process, {"source": source, "dest": new(), "function": none, **LOCAL}),
        "quire.load": lambda: (quire.load, {"source": KAFKA, "dest": new(), **LOCAL}),
        "quire.emit": lambda: (quire.emit, {"source": here / "table", "dest": KAFKA, **LOCAL}),
        "quire.recover": lambda: (quire.recover, {"dest": here / "out"}),
        "quire.secret": lambda: (quire.secret, {"source": "HOME"}),
        "quire.profile": lambda: (quire.profile, {"name": "lake"}),
        "quire.install_on": lambda: (quire.install_on, {}),
        "quire.populate": lambda: (
            quire.populate, {"directory": new(), "files": 1, "dirs": 1, "processes": 1, "progress": False},
        ),
        "quire.skew.check": lambda: (skew.check, {"counts": [1, 2, 3]}),
        "quire.Ledger": lambda: (quire.Ledger, {"dest": here / "out"}),
        "quire.Table": lambda: (quire.Table, {"url": here / "table"}),
        "quire.Table.create": lambda: (quire.Table.create, {"url": new(), "key": "id", "ordering": "at"}),
        "quire.committers.OutputCommitter": lambda: (committers.OutputCommitter, {"dest": new()}),
        "quire.committers.advise": lambda: (committers.advise, {"url": here / "out"}),
        "quire.committers.sweep": lambda: (committers.sweep, {"url": here / "out"}),
        "quire.committers.run": lambda: (committers.run, {"write": none, "dest": new(), "tasks": 1, "spark": LOCAL["spark"]}),
    }  # fmt: skip
    arguments: dict[str, dict[str, Any]] = {
        "as_of": {"version": 1}, "unpin": {"pin": "x"}, "locate": {"path": file}, "read": {"path": file}, "open": {"path": file},
        "rows": {"path": "d"}, "claim": {"source": source}, "purge_sources": {"source": source}, "retry": {"source": source},
        "forget": {"paths": [here / "no"]},
        "import_markers": {"directory": new(), "source": source}, "export_markers": {"directory": new()},
        "import_offsets": {"source": KAFKA, "offsets": {"t": [[0, 1]]}}, "changed": {"source": source}, "deleted": {"source": source},
        "unprocessed": {"source": source}, "coverage": {"path": file}, "locations": {"path": file}, "lag": {"source": KAFKA},
        "changes": {"since": "0" * 14}, "job": {"id": "x"}, "setup_job": {"tasks": 1}, "abort_job": {"job": "1-00"},
        **{key: {"job": None} for key in ("commit_job", "state", "is_commit_job_repeatable", "is_recovery_supported")},
        **{key: {"attempt": None} for key in ("abort_task", "commit_task", "needs_task_commit")},
        **{key: {"job": None, "task": 0} for key in ("setup_task", "recover_task")},
        **{key: {"df": rows} for key in ("upsert", "insert", "bulk_insert", "delete", "insert_overwrite")},
        "delete_partitions": {"partitions": "city=x"}, "delete_savepoint": {"instant": "2" * 17},
        "restore": {"instant": "2" * 17}, "history": {"key": "1"}, "create_view": {"name": "v"},
        "sync_metastore": {"uri": "thrift://127.0.0.1:1"},
    }  # fmt: skip

    def method(of: Callable[[], Any], name: str) -> Callable[[], Case]:
        def made() -> Case:
            function = getattr(of(), name)
            takes = inspect.signature(function).parameters
            given = {"as_of": {"instant": "2" * 14}}.get(name, {}) if isinstance(of(), quire.Table) else {}
            return function, {**{n: v for n, v in LOCAL.items() if n in takes}, **(given or arguments.get(name, {}))}

        return made

    makers: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("quire.Ledger.", ledger), ("ledger.inspect.", lambda: ledger().inspect), ("quire.committers.OutputCommitter.", output),
        ("quire.Table.", lambda: quire.Table(here / "logs")),
    )  # fmt: skip
    for one in ALL:
        for start, of in makers:
            if one.name.startswith(start) and one.parameters and one.name != "quire.Ledger.import_offsets":  # it waits for brokers
                found.setdefault(one.name, method(of, one.name.removeprefix(start)))
        if one.name.startswith("quire.plots.") and inspect.isfunction(one.thing) and one.of is None:
            found[one.name] = lambda name=one.name: (getattr(plots, name.rpartition(".")[2]), {"what": ledger()})
    return found


def parameters(function: Callable[..., Any]) -> Iterator[str]:
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD and "Unpack" in str(parameter.annotation):
            yield from _keys(function, name)
        else:
            yield name


@pytest.mark.parametrize("part", [*PARTS, *(pytest.param(part, marks=pytest.mark.nightly) for part in LONG)])
def test_a_wrong_value_of_any_parameter_is_one_line(
    cases: dict[str, Callable[[], Case]], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "FIRST", 0.05)
    chosen = [name for name in cases if (name.startswith(part) if "[" not in part else name.count(".") == 1 and name[6].islower())]
    wrong = list[str]()
    for name in chosen:
        function, _ = cases[name]()
        for parameter in parameters(function):
            for value in WRONG:
                if (parameter, type(value)) not in RIGHT and (name, parameter) not in BUSY and parameter not in BESIDE:
                    wrong += _called(cases[name], parameter, value, name)
    assert len(chosen) > 2
    assert wrong == []


def _called(case: Callable[[], Case], parameter: str, value: Any, name: str) -> Iterator[str]:
    function, given = case()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**{**given, parameter: value})
    except QuireError as e:
        if not str(e).isprintable():
            yield f"{name}({parameter}={value!r:.40}): {str(e)!r:.200} is not one line"
    except Exception as e:
        yield f"{name}({parameter}={value!r:.40}): {type(e).__name__}: {e!s:.200}"


def test_a_wrong_argument_of_a_verb_names_itself(tmp_path: Path) -> None:
    gather(write(tmp_path / "in", {"a.xml": b"<a/>"}), tmp_path / "out", transform="xml")
    quire.Table.create(tmp_path / "t", key="id").upsert(pa.table({"id": [1]}), **LOCAL)
    ledger, table, output = quire.Ledger(tmp_path / "out"), quire.Table(tmp_path / "t"), committers.OutputCommitter(tmp_path / "new")
    calls: dict[str, Callable[[], object]] = {
        "abort=-1 is not a job's name": lambda: quire.recover(tmp_path / "out", abort=-1),  # type: ignore[arg-type]
        "exclude: '' is not a glob: it holds half": lambda: gather(tmp_path / "in", tmp_path / "other", exclude="\ud800"),
        "batch takes a name": lambda: table.upsert(pa.table({"id": [1]}), batch="\ud800", **LOCAL),
        "key is '\\ud800', which holds half": lambda: quire.Table.create(tmp_path / "t2", key="\ud800"),
        "columns takes a list of names, as ['id'], and not -1": lambda: table.snapshot(columns=-1, spark=LOCAL["spark"]),  # type: ignore[arg-type]
        "columns takes a list of names, as ['id'], and not b": lambda: table.snapshot(columns=b"x", spark=LOCAL["spark"]),  # type: ignore[arg-type]
        "strategy=a list is not one of": lambda: table.compact(strategy=[], **LOCAL),  # type: ignore[arg-type]
        "directory is": lambda: quire.populate("file://[::1/t", files=1),
        "spark= takes a SparkSession, and not ''": lambda: quire.install_on(""),  # type: ignore[arg-type]
        "source_options is a dictionary of options for Kafka": lambda: ledger.inspect.lag(KAFKA, source_options=5),  # type: ignore[arg-type]
        "source_options: 1 is not the name": lambda: quire.load(KAFKA, tmp_path / "l", source_options={1: 2}, **LOCAL),  # type: ignore[dict-item]
        "job=None is not a job": lambda: output.commit_job(None),  # type: ignore[arg-type]
        "attempt=None is not an attempt": lambda: output.commit_task(None),  # type: ignore[arg-type]
        "pin=a list is not the id of a pin": lambda: ledger.unpin([]),  # type: ignore[arg-type]
        "id=None is not the id": lambda: output.job(None),  # type: ignore[arg-type]
        "progress=True is not a function": lambda: ledger.rows("a", progress=True),  # type: ignore[arg-type]
    }
    for said, call in calls.items():
        with refused(UsageError, 2, said):
            call()
    assert ledger.rows("a", progress=False).total == 1  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()
