"""The load's widget: what it shows of a destination that anybody loads, and how it drives a load itself, without a browser."""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import quire
from gathering import documents, gather, write
from loading import dead, exact, load, numbered, topic
from pages import Balanced, click, everything, markup, one, text_of, walk
from quire.ledger.inspect import Inspect
from quire_widgets import LoadMonitor
from services.kafka import Mock, Record, mock

SECRET = "hunter2hunter2"


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def made() -> Iterator[Callable[..., LoadMonitor]]:
    """Makes monitors that end with the test."""
    monitors = list[LoadMonitor]()

    def make(dest: Any, *args: Any, **settings: Any) -> LoadMonitor:
        monitors.append(LoadMonitor(dest, *args, **{"watch": False, **settings}))
        assert monitors[-1].wait(20)
        return monitors[-1]

    yield make
    for monitor in monitors:
        monitor.close()
        monitor.wait(20)


def source(kafka: Mock, name: str) -> str:
    return f"kafka://{kafka.address}/{name}"


def looked(monitor: LoadMonitor) -> LoadMonitor:
    click(monitor, "refresh")
    assert monitor.wait(20)
    return monitor


def shows(monitor: LoadMonitor, name: str) -> str:
    return re.sub(r"\s+", " ", text_of(one(monitor, f"quire-{name}").value))


def partitions(monitor: LoadMonitor) -> list[list[str]]:
    """The table, row by row."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", one(monitor, "quire-partitions").value)
    return [[html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows[1:]]


def eventually(monitor: LoadMonitor, words: str, name: str = "summary") -> None:
    end = time.monotonic() + 20
    while words not in shows(monitor, name):
        assert time.monotonic() < end, f"{words!r} does not come: {monitor!r}"
        time.sleep(0.02)


def picky(batch: Any) -> Any:
    """Takes no record that begins with bad."""
    if any((value or b"").startswith(b"bad") for value in batch.column("value").to_pylist()):
        raise ValueError("a bad record")
    return batch.select(["value", "partition", "offset"])


# ------------------------------------------------------------------------------------------------------------------ what it shows
def test_it_watches_what_another_loader_does(kafka: Mock, tmp_path: Path, made: Any) -> None:
    name = topic(kafka, 3, numbered(90, 3))
    load(kafka, name, tmp_path / "out")
    kafka.produce(name, [Record(b"%d" % i, partition=1) for i in range(1234)])
    monitor = made(tmp_path / "out", source(kafka, name))
    assert (monitor.state, monitor.error) == ("idle", None)
    assert "lag 1,234 offsets, in 1 of 3 partitions" in shows(monitor, "summary")
    assert [row[:4] for row in partitions(monitor)] == [["1", "30", "1,264", "1,234"], ["0", "30", "30", "0"], ["2", "30", "30", "0"]]
    assert re.search(r'role="img" aria-label="1 commit: 90 records, the last one at ', one(monitor, "quire-timeline").value)
    load(kafka, name, tmp_path / "out")
    assert "lag 0 offsets" in shows(looked(monitor), "summary")
    assert "2 commits: 1,324 records" in one(monitor, "quire-timeline").value
    assert "Partitions: skewed." in shows(monitor, "verdict")
    assert shows(monitor, "skew") == ""
    click(monitor, "skew")
    assert "heavy 2.86×" in one(monitor, "quire-skew").value
    click(monitor, "skew")
    assert shows(monitor, "skew") == ""


def test_without_a_source_it_looks_at_the_ledger_and_asks_nobody(
    kafka: Mock, tmp_path: Path, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(kafka, 1, numbered(10))
    load(kafka, name, tmp_path / "out")
    monkeypatch.setattr("quire.sources.kafka.client.cluster_of", None)
    monitor = made(tmp_path / "out")
    assert one(monitor, "quire-start-button").layout.display == "none"
    assert f"brokers are asked where the call names them, LoadMonitor(dest, 'kafka://…'). The log speaks of {source(kafka, name)}" in shows(
        monitor, "trouble"
    )
    assert [row[:2] for row in partitions(monitor)] == [["0", "10"]]


def test_it_looks_by_itself_while_it_watches_and_is_seen(kafka: Mock, tmp_path: Path, made: Any) -> None:
    name = topic(kafka, 1, numbered(10))
    load(kafka, name, tmp_path / "out")
    monitor = made(tmp_path / "out", source(kafka, name), watch=True, look_every="50 ms")
    for views, more in ((1, 5), (2, 7)):
        monitor._view_count = views
        kafka.produce(name, numbered(more))
        eventually(monitor, f"lag {more} offsets")
        load(kafka, name, tmp_path / "out")
        eventually(monitor, "lag 0 offsets")
    monitor._view_count = 0  # the cell has another output now
    before = looked(monitor).seen
    kafka.produce(name, numbered(3))
    time.sleep(0.3)
    assert monitor.seen is before
    monitor._view_count = 1
    eventually(monitor, "lag 3 offsets")
    load(kafka, name, tmp_path / "out")
    eventually(monitor, "lag 0 offsets")
    one(monitor, "quire-watch").value = False
    assert not monitor.watching
    before = looked(monitor).seen
    time.sleep(0.2)
    assert monitor.seen is before


def test_partitions_are_ordered_and_turned_page_by_page(kafka: Mock, tmp_path: Path, made: Any) -> None:
    name = topic(kafka, 50)
    kafka.produce(name, [Record(b"x" * 50, partition=p) for p in range(50) for _ in range(p)])
    load(kafka, name, tmp_path / "out")
    kafka.produce(name, [Record(b"y", partition=7)] * 3)
    monitor = made(tmp_path / "out", source(kafka, name))
    assert partitions(monitor)[0][:4] == ["7", "7", "10", "3"], "what lags most comes first"
    assert "1–20 of 50 partitions" in shows(monitor, "partitions")
    buttons = [one(monitor, f"quire-{name}-button") for name in ("first", "previous", "next")]
    assert [b.disabled for b in buttons] == [True, True, False]
    one(monitor, "quire-order").value = "partition"
    assert monitor.order == "partition"
    seen = partitions(monitor)
    for words in ("21–40 of", "41–50 of"):
        click(monitor, "next")
        seen += partitions(monitor)
        assert words in shows(monitor, "partitions")
    assert [row[0] for row in seen] == [str(p) for p in range(50)]
    assert [b.disabled for b in buttons] == [False, False, True]
    click(looked(monitor), "previous")
    assert "21–40 of" in shows(monitor, "partitions"), "a look turns no page"
    click(monitor, "first")
    assert partitions(monitor)[0][0] == "0"
    monitor.order = "records"
    assert [row[0] for row in partitions(monitor)][:3] == ["49", "48", "47"]
    with pytest.raises(quire.UsageError, match="Did you mean 'lag'"):
        monitor.order = "lags"


def test_topics_are_found_by_a_part_of_their_names(kafka: Mock, tmp_path: Path, made: Any) -> None:
    names = [topic(kafka, 2, numbered(4, 2)) for _ in range(3)]
    load(kafka, ",".join(names), tmp_path / "out")
    monitor = made(tmp_path / "out")
    assert len(partitions(monitor)) == 6
    one(monitor, "quire-topic").value = names[1]
    assert [row[0] for row in partitions(monitor)] == [names[1]] * 2
    monitor.topic = "no such"
    assert "No partitions" in shows(monitor, "partitions")
    assert f"{', '.join(sorted(names))} (6 partitions)" in shows(monitor, "summary")


def test_ten_thousand_partitions_do_not_hurt(tmp_path: Path, made: Any, kafka: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page of them reaches the browser, and turning it asks nobody."""
    name = topic(kafka, 1, numbered(5))
    load(kafka, name, tmp_path / "out")
    cluster = quire.Ledger(tmp_path / "out").inspect.offsets()["cluster"][0]
    many = pd.DataFrame({"topic": "wide", "partition": range(10_000), "offset": 100, "end": 150, "lag": 50, "lost": 0, "open": 0})
    known = many.assign(covered=100, records=100, bytes=5000, quarantined=0, cluster=cluster, topic_id="x").drop(
        columns=["end", "lag", "open"]
    )
    monkeypatch.setattr(Inspect, "lag", lambda *_, **__: many)
    monkeypatch.setattr(Inspect, "offsets", lambda *_: known)
    counts = dict.fromkeys(map(str, range(10_000)), 100)
    monkeypatch.setattr(quire.Ledger, "partition_skew", lambda *_: quire.skew.check(counts, unit="records"))
    began = time.monotonic()
    monitor = made(tmp_path / "out", source(kafka, name))
    click(monitor, "next")
    assert time.monotonic() - began < 3
    assert "lag 500,000 offsets, in 10,000 of 10,000 partitions" in shows(monitor, "summary")
    assert "21–40 of 10,000 partitions" in shows(monitor, "partitions")
    assert len(markup(monitor)) < 200_000


def test_the_quarantine_is_told_by_reasons_and_first_records(kafka: Mock, tmp_path: Path, made: Any) -> None:
    name = topic(kafka, 2, numbered(20, 2))
    kafka.produce(name, [Record(b"bad <b>%d</b>" % i, partition=1) for i in range(25)] + [Record(b"bad\xff\x00", partition=0)])
    load(kafka, name, tmp_path / "out", picky)
    monitor = made(tmp_path / "out")
    assert "In quarantine: 26 records, by reason" in shows(monitor, "reasons")
    assert "ValueError" in shows(monitor, "reasons")
    assert "bad" not in shows(monitor, "quarantined")
    click(monitor, "quarantined")
    told = shows(monitor, "quarantined")
    assert "10 of 26 records" in told
    assert "bad <b>0</b>" in told
    assert "0x626164ff00" in told
    click(looked(monitor), "commits")
    assert shows(monitor, "quarantined") == told, "what was opened stays open while it looks again"
    assert "1 commit, the newest first" in shows(monitor, "commits")


def test_losses_are_told_by_partition(kafka: Mock, tmp_path: Path, made: Any) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    load(kafka, name, tmp_path / "out")
    kafka.produce(name, numbered(40, 2))
    kafka.delete_records(name, {1: 62})
    monitor = made(tmp_path / "out")
    assert shows(monitor, "losses") == ""
    load(kafka, name, tmp_path / "out", on_data_loss="record")
    looked(monitor)
    assert "Lost: 12 offsets that retention had removed before they were read, in 1 partition" in shows(monitor, "losses")
    assert f"{name}/1 12" in shows(monitor, "losses")
    assert "lost to retention 12" in shows(monitor, "summary")


# -------------------------------------------------------------------------------------------------------- start, stop and resume
class Slow:
    """A function of the user's that waits until it is let go."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.__name__ = "slow"

    def __call__(self, batch: Any) -> Any:
        self.began.set()
        assert self.go.wait(60)
        return batch.select(["value", "topic", "partition", "offset"])


@pytest.fixture
def slow() -> Iterator[Slow]:
    found = Slow()
    yield found
    found.go.set()


def test_a_loop_is_started_watched_and_stopped_after_a_whole_commit(kafka: Mock, tmp_path: Path, made: Any, slow: Slow) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    monitor = made(tmp_path / "out", source(kafka, name), slow, spark=quire.LocalRunner(), every="20 ms", function_version="1",
                   look_every=0.05, schema="value binary, topic string, partition int, offset long")  # fmt: skip
    states = list[str]()
    monitor.observe(lambda change: states.append(change["new"]), "state")
    assert "lag 100 offsets" in shows(monitor, "summary"), "before anything is loaded"
    click(monitor, "start")
    assert slow.began.wait(30)
    click(monitor, "start")
    assert one(monitor, "quire-start-button").disabled
    assert "<progress" in one(monitor, "quire-load-progress").value
    slow.go.set()
    eventually(monitor, "lag 0 offsets")
    kafka.produce(name, numbered(50, 2))
    eventually(monitor, "records loaded 150")
    assert monitor.state == "loading"
    click(monitor, "stop")
    assert monitor.wait(20)
    assert states == ["loading", "stopping", "stopped"], "a double click begins one load"
    assert "Stopped after a whole commit: version" in shows(monitor, "load-message")
    assert one(monitor, "quire-start-button").description == "Resume"
    kafka.produce(name, numbered(7))
    click(monitor, "start")
    eventually(monitor, "records loaded 157")
    monitor.stop()
    assert monitor.wait(20)
    assert not quire.Ledger(tmp_path / "out").summary().open_jobs


def test_a_stop_lets_the_commit_under_way_end_and_the_next_one_interrupts_it(kafka: Mock, tmp_path: Path, made: Any, slow: Slow) -> None:
    name = topic(kafka, 1, numbered(40))
    monitor = made(tmp_path / "out", source(kafka, name), slow, spark=quire.LocalRunner(), function_version="1",
                   schema="value binary, topic string, partition int, offset long")  # fmt: skip
    monitor.start()
    assert slow.began.wait(30)
    stop = one(monitor, "quire-stop-button")
    assert (stop.disabled, stop.description) == (False, "Stop")
    click(monitor, "stop")
    assert (monitor.state, stop.description) == ("stopping", "Stop now")
    assert "nothing is lost" in shows(monitor, "load-message")
    click(monitor, "stop")
    slow.go.set()
    assert monitor.wait(30)
    assert (monitor.state, stop.disabled, stop.description) == ("stopped", True, "Stop")
    (job,) = quire.Ledger(tmp_path / "out").summary().open_jobs
    assert "Resume goes on with its plan" in shows(monitor, "load-message")
    assert job in shows(monitor, "summary")
    kafka.produce(name, numbered(2))
    click(monitor, "start")
    assert monitor.wait(30)
    assert (monitor.state, monitor.result.records, monitor.result.jobs[0]) == ("done", 42, job), "the frozen plan is gone on with"
    assert "records loaded 42" in shows(monitor, "result")


def test_what_is_said_of_a_job_after_a_stop_gives_it_up(kafka: Mock, tmp_path: Path, made: Any, slow: Slow) -> None:
    monitor = made(tmp_path / "out", source(kafka, topic(kafka, 1, numbered(40))), slow, spark=quire.LocalRunner(), function_version="1",
                   schema="value binary, topic string, partition int, offset long")  # fmt: skip
    monitor.start()
    assert slow.began.wait(30)
    monitor.stop()
    monitor.stop()
    slow.go.set()
    assert monitor.wait(30)
    code = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", one(monitor, "quire-load-message").value, re.DOTALL)
    assert code
    exec(html.unescape(code[1]), {"quire": quire})
    assert "open jobs" not in shows(looked(monitor), "summary")


def test_a_load_that_died_elsewhere_is_gone_on_with(kafka: Mock, tmp_path: Path, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    job = dead(kafka, name, tmp_path / "out", monkeypatch)
    monitor = made(tmp_path / "out", source(kafka, name), spark=quire.LocalRunner())
    assert f"open jobs {job}" in shows(monitor, "summary")
    monitor.start()
    assert monitor.wait(30)
    assert monitor.result.jobs == (job,)
    assert exact(kafka, tmp_path / "out", name).exact


# ---------------------------------------------------------------------------------------------------------------- what goes wrong
def test_a_load_that_fails_is_one_line_and_resume_goes_on(kafka: Mock, tmp_path: Path, made: Any) -> None:
    name = topic(kafka, 1, numbered(20))
    load(kafka, name, tmp_path / "out")
    kafka.produce(name, numbered(20))
    kafka.delete_records(name, {0: 30})
    monitor = made(tmp_path / "out", source(kafka, name), spark=quire.LocalRunner())
    monitor.start()
    assert monitor.wait(30)
    assert (monitor.state, type(monitor.error)) == ("failed", quire.DataLossError)
    message = one(monitor, "quire-load-message").value
    assert 'role="alert"' in message
    assert "removed by the topic's retention" in text_of(message)
    assert "Traceback" not in everything(monitor)
    assert not one(monitor, "quire-start-button").disabled
    monitor._settings["on_data_loss"] = "record"
    monitor.start()
    assert monitor.wait(30)
    assert (monitor.state, monitor.error, monitor.result.lost) == ("done", None, 10)
    assert shows(monitor, "load-message") == ""


def test_brokers_that_do_not_answer_leave_all_that_the_ledger_knows(
    kafka: Mock, tmp_path: Path, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quire.sources.kafka import client as kafka_client

    name = topic(kafka, 2, numbered(20, 2))
    load(kafka, name, tmp_path / "out")
    monkeypatch.setattr(kafka_client, "FIRST", 0.3)
    monitor = made(tmp_path / "out", "kafka://127.0.0.1:1/gone")
    trouble = one(monitor, "quire-trouble").value
    assert 'role="alert"' in trouble
    assert "The lag is not known: no broker answers at 127.0.0.1:1" in text_of(trouble)
    assert [row[:2] for row in partitions(monitor)] == [["0", "10"], ["1", "10"]]
    assert "lag not known" in shows(monitor, "summary")


def test_a_look_that_fails_leaves_what_was_shown(kafka: Mock, tmp_path: Path, made: Any) -> None:
    name = topic(kafka, 1, numbered(20))
    load(kafka, name, tmp_path / "out")
    monitor = made(tmp_path / "out", source(kafka, name))
    before = partitions(monitor)
    kafka.produce(name, numbered(2))
    load(kafka, name, tmp_path / "out")
    whole = {path: path.read_bytes() for path in (tmp_path / "out" / "_quire" / "ledger").iterdir()}
    for path in whole:
        path.write_bytes(b"PAR1 <b>damaged</b>")
    looked(monitor)
    assert "is damaged" in shows(monitor, "trouble")
    assert partitions(monitor) == before
    for path, content in whole.items():
        path.write_bytes(content)
    looked(monitor)
    assert shows(monitor, "trouble") == ""
    assert partitions(monitor)[0][1] == "22"


@pytest.mark.parametrize(
    ("args", "settings", "words"),
    [
        ((), {}, "holds no ledger"),
        (("kafka://h:1/t",), {"evry": "1 s"}, "Did you mean 'every'"),
        (("kafka://h:1/t",), {"progress": True}, "progress= is not for a monitor"),
        (("kafka://h:1/t",), {"look_every": "often"}, "look_every"),
        (("kafka://h:1/t",), {"page_size": 0}, "page_size"),
        ((["kafka://h:1/t"],), {}, "source= takes one URL"),
        ((), {"every": "1 s"}, "no source="),
    ],
)
def test_wrong_words_are_one_line(tmp_path: Path, args: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(quire.UsageError, match=re.escape(words)):
        LoadMonitor(tmp_path / "out", *args, **settings)
    assert not (tmp_path / "out").exists(), "looking has made something"


def test_a_destination_of_files_is_refused_and_a_monitor_without_a_source_loads_nothing(kafka: Mock, tmp_path: Path, made: Any) -> None:
    gather(write(tmp_path / "in", documents(3)), tmp_path / "files")
    with pytest.raises(quire.UsageError, match="made of files"):
        LoadMonitor(tmp_path / "files")
    load(kafka, topic(kafka, 1, numbered(1)), tmp_path / "out")
    with pytest.raises(quire.UsageError, match="only looks"):
        made(tmp_path / "out").start()


# ---------------------------------------------------------------------------------------------------------- what leaves the kernel
def test_secrets_are_never_shown(kafka: Mock, tmp_path: Path, made: Any) -> None:
    options = {"client.id": SECRET, "sasl.password": SECRET}
    name = topic(kafka, 1, numbered(5))
    monitor = made(tmp_path / "out", source(kafka, name), spark=quire.LocalRunner(), source_options=options, every="1 h", max_runs=1)
    monitor.start()
    assert monitor.wait(30)
    assert monitor.state == "done", monitor.error
    monitor._fail(RuntimeError(f"sasl.password={SECRET}"))
    told = [everything(monitor), *(str(w.get_state()) for w in walk(monitor)), repr(monitor)]
    assert not [text for text in told if SECRET in text]
    assert "source_options=source_options" in monitor.code


def test_the_code_does_the_same(kafka: Mock, tmp_path: Path, made: Any) -> None:
    name = topic(kafka, 1, numbered(5))
    settings = {"every": "10 ms", "max_runs": 1, "format": "lines"}
    monitor = made(tmp_path / "out", source(kafka, name), spark=quire.LocalRunner(), **settings)
    there = dict[str, Any]()
    exec(monitor.code, there)
    assert there["report"].records == 5
    watching = made(tmp_path / "out")
    exec(watching.code, there)
    assert there["result"]["offset"].tolist() == [5]


def test_what_it_shows_is_sound_html_with_every_name_escaped(kafka: Mock, tmp_path: Path, made: Any) -> None:
    name = topic(kafka, 3, numbered(90, 3))
    kafka.produce(name, [Record(b"bad <script>alert(1)</script>", partition=1)] * 60)
    load(kafka, name, tmp_path / "<b>out", picky)
    monitor = made(tmp_path / "<b>out", source(kafka, name), picky, spark=quire.LocalRunner())
    for shutter in ("commits", "skew", "quarantined"):
        click(monitor, shutter)
    monitor.start()
    assert monitor.wait(30)
    page = Balanced(markup(monitor))
    assert not page.open
    assert not page.seen & {"script", "b"}
    assert all(w.description for w in walk(monitor) if type(w).__name__ in ("Button", "Text", "Dropdown", "Checkbox"))


def test_without_a_kernel_the_notebook_has_a_page_and_a_text(kafka: Mock, tmp_path: Path, made: Any) -> None:
    name = topic(kafka, 3, numbered(90, 3))
    kafka.produce(name, [Record(b"bad", partition=1)] * 60)
    load(kafka, name, tmp_path / "out", picky)
    monitor = made(tmp_path / "out")
    bundle = monitor._repr_mimebundle_()
    page, text = text_of(bundle["text/html"]), bundle["text/plain"]
    for words in ("lag", "60 records", "1–3 of 3 partitions", "ledger.inspect.offsets()", "1 commit"):
        assert words in page
        assert words in text
    assert bundle["text/html"].count("data:image/svg+xml") == 2, "the commits and the partitions"
    assert "10 of 60 records in quarantine" in page
    assert "application/vnd.jupyter.widget-view+json" in bundle
