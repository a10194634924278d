"""Runs as those are told who follow them: records of `logging`, spans of OpenTelemetry, counters of Prometheus; and none of them hurts."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import quire
from gathering import documents, gather, write
from quire import Ledger, LocalRunner, TransientError
from quire.progress import Progress, logs, runs

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """No failure was said yet."""
    monkeypatch.setattr(runs, "_told", set())


class Records(logging.Handler):
    """Keeps the fields of each record."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found = list[dict[str, Any]]()

    def emit(self, record: logging.LogRecord) -> None:
        own = {name.removeprefix("quire_"): value for name, value in vars(record).items() if name.startswith("quire_")}
        self.found.append({"level": record.levelname, "text": record.getMessage(), **own})

    def of(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.found if each["event"] == event]


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Iterator[Records]:
    logger, handler = logging.getLogger("quire"), Records()
    monkeypatch.setattr(logger, "level", logging.DEBUG)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def provide(monkeypatch: pytest.MonkeyPatch, processor: SpanProcessor) -> None:
    provider = TracerProvider()
    provider.add_span_processor(processor)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provide(monkeypatch, SimpleSpanProcessor(exporter))
    return exporter


def counted(name: str, **labels: str) -> float:
    return prometheus_client.REGISTRY.get_sample_value(name, labels) or 0.0


# ------------------------------------------------------------------------------------------------------------------------ records
def test_a_run_ends_with_a_record_that_has_each_number_of_its_report(tmp_path: Path, records: Records) -> None:
    source = write(tmp_path / "in", {**documents(9, "xml"), "bad.xml": b"<a>"})
    report = gather(source, tmp_path / "out", transform="xml")
    (ended,) = records.of("ended")
    assert (ended["level"], ended["verb"], ended["kind"], ended["outcome"]) == ("INFO", "run", "files", "done")
    assert ended["dest"] == report.dest
    for name in ("files", "records", "bytes", "written", "data_files", "quarantined_count", "retries", "version", "skipped"):
        assert ended[name] == getattr(report, name), name
    assert (ended["files"], ended["quarantined_count"]) == (9, 1)
    assert list(ended["phases"]) == ["listing", "planning", "gathering", "publishing"]
    assert 0 < sum(ended["phases"].values()) <= ended["seconds"]
    assert [each["phase"] for each in records.of("phase")] == list(ended["phases"])
    assert next(each["unit"] for each in records.of("phase") if each["phase"] == "gathering") == "B"
    assert len(records.of("began")) == 1


def test_a_run_that_finds_nothing_new_is_no_news(tmp_path: Path, records: Records) -> None:
    source = write(tmp_path / "in", documents(9))
    quire.consolidate(source, tmp_path / "out", every="0.01 s", max_runs=3, **HERE)
    assert [each["level"] for each in records.of("ended")] == ["INFO", "DEBUG", "DEBUG"]


def test_verbs_of_a_ledger_and_of_a_table_are_runs(tmp_path: Path, records: Records) -> None:
    gather(write(tmp_path / "in", {**documents(9, "xml"), "bad.xml": b"<a>"}), tmp_path / "out", transform="xml", target_size="100 B")
    ledger = Ledger(tmp_path / "out")
    ledger.compact("1 MiB", **HERE)
    ledger.retry(tmp_path / "in", max_quarantined=9, **HERE)
    ledger.forget(tmp_path / "in/d0", **HERE)
    with Ledger(tmp_path / "own", create=True).claim(tmp_path / "in", **HERE) as claim:
        assert claim.files == 10
        write(Path(claim.path.removeprefix("file:")), {"rows.txt": b"x\n"})
    table = quire.Table.create(tmp_path / "trips", key="id")
    table.upsert(pa.table({"id": [1, 2]}), **HERE)
    ended = records.of("ended")
    assert [each["verb"] for each in ended] == ["run", "compact", "retry", "forget", "claim", "upsert"]
    assert {each["outcome"] for each in ended} == {"done", "quarantined"}
    assert next(each for each in ended if each["verb"] == "forget")["files_out"] == 3
    assert next(each for each in ended if each["verb"] == "retry")["level"] == "WARNING"
    assert next(each for each in ended if each["verb"] == "upsert")["inserted"] == 2


def test_a_run_of_which_all_is_quarantined_warns(tmp_path: Path, records: Records) -> None:
    with pytest.raises(quire.AllQuarantined):
        quire.consolidate(write(tmp_path / "in", {"a.xml": b"<a>"}), tmp_path / "out", transform="xml", **HERE)
    (ended,) = records.of("ended")
    assert (ended["level"], ended["outcome"], ended["quarantined_count"]) == ("WARNING", "quarantined", 1)


def test_a_run_that_fails_is_an_error_without_a_secret(tmp_path: Path, records: Records) -> None:
    source = write(tmp_path / "in", documents(9))
    with pytest.raises(quire.TooManyQuarantined):
        gather(write(tmp_path / "bad", {"a.xml": b"<a>"}), tmp_path / "ill", transform="xml", max_quarantined=0)

    def stop(step: quire.ProgressEvent) -> None:
        if step.phase == "gathering":
            raise ValueError("the customer Ada, password=geheim")

    with pytest.raises(ValueError, match="Ada"):
        quire.consolidate(source, tmp_path / "out", spark=LocalRunner(), progress=stop)

    def interrupt(step: quire.ProgressEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quire.consolidate(source, tmp_path / "out", spark=LocalRunner(), progress=interrupt)
    first, second, third = records.of("ended")
    assert (first["level"], first["outcome"]) == ("ERROR", "failed")
    assert first["error"].startswith("TooManyQuarantined: ")
    assert (second["error"], "Ada" in str(records.found), "geheim" in str(records.found)) == ("ValueError", False, False)
    assert (third["level"], third["outcome"]) == ("WARNING", "interrupted")
    assert gather(source, tmp_path / "out").files == 9


def test_what_is_tried_again_is_counted_and_said(tmp_path: Path, records: Records) -> None:
    bars = Progress(False)
    with bars.run("run", "s3://me:geheim@b/x"), bars.phase("gathering"):
        bars.again("503, the token=geheim is old")
        bars.say("a line")
    assert [each["why"] for each in records.of("retry")] == ["503, the token=*** is old"]
    assert [(each["level"], each["text"]) for each in records.of("said")] == [("WARNING", "a line")]
    assert records.of("ended")[0]["retries"] == 1
    assert "geheim" not in str(records.found)


def test_a_run_within_a_run_is_a_part_of_it(records: Records) -> None:
    bars = Progress(False)
    with bars.run("run", "memory://x"), bars.run("compaction", "memory://x"), bars.phase("sorting"):
        pass
    assert [each["verb"] for each in records.of("ended")] == ["run"]
    assert list(records.of("ended")[0]["phases"]) == ["sorting"]
    with bars.run("again", "memory://x"):
        pass
    assert [each["verb"] for each in records.of("ended")] == ["run", "again"]


# -------------------------------------------------------------------------------------------------------------------------- spans
def test_a_run_is_a_span_with_one_for_each_phase(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    source = write(tmp_path / "in", documents(9))
    with trace.get_tracer("test").start_as_current_span("mine"):
        gather(source, tmp_path / "out")
        assert trace.get_current_span().name == "mine"  # type: ignore[attr-defined]
    *phases, run, mine = spans.get_finished_spans()
    assert (run.name, [each.name for each in phases]) == ("quire run", ["listing", "planning", "gathering", "publishing"])
    assert run.parent is not None
    assert run.parent.span_id == mine.context.span_id
    assert {each.parent.span_id for each in phases if each.parent} == {run.context.span_id}
    assert run.attributes is not None
    assert (run.attributes["quire.files"], run.attributes["quire.outcome"], run.attributes["quire.kind"]) == (9, "done", "files")
    assert phases[2].attributes is not None
    assert (phases[2].attributes["quire.unit"], phases[2].attributes["quire.files"]) == ("B", 9)


def test_the_span_of_a_run_that_fails_says_why_and_none_stays_open(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    def stop(step: quire.ProgressEvent) -> None:
        if step.phase == "gathering" and step.done:
            raise TransientError("the store is away, secret_key=geheim")

    with pytest.raises(TransientError):
        quire.consolidate(write(tmp_path / "in", documents(9)), tmp_path / "out", spark=LocalRunner(), progress=stop)
    run = spans.get_finished_spans()[-1]
    assert (run.name, run.status.status_code.name) == ("quire run", "ERROR")
    assert run.status.description is not None
    assert run.status.description.startswith("TransientError: the store is away, secret_key=***")
    assert not trace.get_current_span().get_span_context().is_valid


# ----------------------------------------------------------------------------------------------------------------------- counters
def test_runs_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {**documents(9, "xml"), "bad.xml": b"<a>"}), f"file://{tmp_path}/out"
    for _ in range(2):
        gather(source, tmp_path / "out", transform="xml")
    with pytest.raises(quire.RefusedError):
        gather(source, tmp_path / "out", transform="raw")
    of = {"verb": "run", "dest": dest}
    assert (counted("quire_runs_total", **of, outcome="done"), counted("quire_runs_total", **of, outcome="failed")) == (2, 1)
    found = {name: counted(f"quire_run_{name}_total", **of) for name in ("files", "rows", "quarantined", "retries")}
    assert found == {"files": 9, "rows": 9, "quarantined": 1, "retries": 0}
    assert counted("quire_phase_seconds_total", **of, phase="gathering") > 0
    assert counted("quire_run_seconds_total", **of) > counted("quire_phase_seconds_total", **of, phase="gathering")


# ---------------------------------------------------------------------------------------------------------------- none of it hurts
class Broken(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("the collector is away, token=geheim")


class BrokenSpans(SpanProcessor):
    """It fails at each span, when that begins and when it ends."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if span.name != "quire run":
            raise OSError("the collector is away")

    def on_end(self, span: ReadableSpan) -> None:
        raise OSError("the collector is away")


def test_a_follower_that_fails_is_said_once_and_the_run_goes_on(
    tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, broken = write(tmp_path / "in", documents(9)), Broken()
    provide(monkeypatch, BrokenSpans())
    monkeypatch.setattr("quire.progress.counters._made", {"runs": None})
    logging.getLogger("quire").addHandler(broken)
    try:
        assert gather(source, tmp_path / "out").files == 9
        write(source, {"new.txt": b"x\n"})
        assert gather(source, tmp_path / "out").files == 1
    finally:
        logging.getLogger("quire").removeHandler(broken)
    said = capsys.readouterr().err.splitlines()
    assert sorted(line.split(" ")[5] for line in said) == ["OpenTelemetry", "Prometheus", "logging"]
    assert len(said) == 3
    assert "geheim" not in str(said)
    assert not trace.get_current_span().get_span_context().is_valid, "nothing stays current"
    assert Ledger(tmp_path / "out").verify(spark=LocalRunner()).ok


class Slow(SpanExporter):
    def export(self, spans: Any) -> Any:
        raise RuntimeError("away")


def test_an_exporter_that_fails_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, SimpleSpanProcessor(Slow()))
    assert gather(write(tmp_path / "in", documents(9)), tmp_path / "out").files == 9


def test_an_interrupt_in_a_handler_ends_the_run_as_anywhere(tmp_path: Path, records: Records) -> None:
    def interrupt(record: logging.LogRecord) -> bool:
        if getattr(record, "quire_phase", "") == "gathering":
            raise KeyboardInterrupt
        return True

    records.addFilter(interrupt)
    with pytest.raises(KeyboardInterrupt):
        gather(write(tmp_path / "in", documents(9)), tmp_path / "out")
    records.removeFilter(interrupt)
    assert gather(tmp_path / "in", tmp_path / "out").files == 9


def test_without_a_user_of_it_nothing_is_imported_or_logged(tmp_path: Path) -> None:
    write(tmp_path / "in", documents(9))
    program = (
        "import sys, quire; quire.consolidate(sys.argv[1], sys.argv[2], spark=quire.LocalRunner()); quire.status(sys.argv[2]);"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'opentelemetry', 'prometheus_client'}))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program, tmp_path / "in", tmp_path / "out"], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)


def test_following_costs_less_than_a_hundredth_of_a_run(
    tmp_path: Path, records: Records, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three at once, each record and each span kept, beside a run of a few files."""
    monkeypatch.setattr(logging.getLogger("quire"), "propagate", False)  # pytest writes each record out twice more
    source, runs_of, told = write(tmp_path / "in", documents(1_000)), list[float](), list[float]()
    bars = Progress(False)
    for i in range(4):  # in turns: what slows the machine for a moment slows both
        began = time.thread_time()
        gather(source, tmp_path / f"out{i}")
        runs_of.append(time.thread_time() - began)
        for _ in range(20):
            began = time.thread_time()
            with bars.run("run", "memory://x", "files"):
                for _ in range(4):
                    with bars._run.phase(bars.last):
                        pass
            told.append(time.thread_time() - began)
    assert min(told) < min(runs_of) / 100, (min(told), min(runs_of))


def test_a_handler_alone_as_a_notebook_has_one_shows_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("quire")
    for level, follows in ((logging.WARNING, False), (logging.INFO, True)):
        monkeypatch.setattr(logger, "level", level)
        logger.manager._clear_cache()  # type: ignore[attr-defined]  # as setLevel does
        assert logger.hasHandlers()
        assert (logs.follow(runs.About("run", "file:///out", "files")) is not None) == follows
