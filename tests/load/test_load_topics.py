"""Several topics into several destinations by one call: each is exact by itself, and what fails for one stops none of the others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quire
from gathering import refused
from loading import exact, load, numbered, rows, topic
from quire.cli import load as commands
from quire.cli.app import cli
from quire.engine import by_topic, loop, outages
from quire.engine.by_topic import ByTopic, dest_of
from quire.engine.kinds import offsets as offsets_kind
from quire.errors import AllQuarantined, QuireError, RefusedError, TopicsFailed, TransientError, UsageError
from quire.planning import plan
from quire.progress import Progress
from quire.sources.kafka import topics as kafka_topics
from services.kafka import Mock, mock


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock() as cluster:
        yield cluster


def fail(monkeypatch: pytest.MonkeyPatch, name: str, error: Callable[[], QuireError | None]) -> None:
    """Let the runs of one topic end with an error, while there is one."""
    whole = loop.gather

    def gathered(request: Any, *args: Any, **more: Any) -> Any:
        if request.topics.asked == (name,) and (e := error()) is not None:
            raise e
        return whole(request, *args, **more)

    monkeypatch.setattr(loop, "gather", gathered)


def test_each_topic_has_a_destination_of_its_own_and_is_exact_by_itself(kafka: Mock, tmp_path: Path) -> None:
    one, two = topic(kafka, 2, numbered(10, 2)), topic(kafka, 1, numbered(7))
    report = load(kafka, f"{one},{two}", f"{tmp_path}/in-{{topic}}/x")
    assert isinstance(report, quire.TopicsReport)
    assert (report.records, report.errors) == (17, {})
    assert {name: each.records for name, each in report.reports.items()} == {one: 10, two: 7}
    assert one in str(report)
    assert json.loads(json.dumps(report.as_dict()))["reports"][two]["records"] == 7
    for name in (one, two):
        assert exact(kafka, tmp_path / f"in-{name}" / "x", name).exact
    kafka.produce(one, numbered(3, 2, first=10))
    again = load(kafka, f"{one},{two}", f"{tmp_path}/in-{{topic}}/x")
    assert (again.records, again.reports[one].records) == (3, 3)
    assert load(kafka, one, tmp_path / f"in-{one}" / "x").records == 0, "a call of its own is the same"


def test_they_do_not_lie_below_another_destination(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(3))
    load(kafka, name, tmp_path / "out")
    with refused(UsageError, 2, "is a destination itself"):
        load(kafka, name, f"{tmp_path}/out/of-{{topic}}")
    assert not list((tmp_path / "out").glob("of-*")), "whoever reads the directory would count both"


def test_a_topic_may_name_the_place_itself_and_what_lies_above_may_be_forbidden(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    name = topic(kafka, 1, numbered(3))
    for dest in ("memory://{topic}", "memory://of-{topic}/x"):
        assert load(kafka, name, dest).records == 3

    def forbidden(*_: Any) -> None:
        raise RefusedError("rights end at the topics' directories")

    monkeypatch.setattr(by_topic, "check_above", forbidden)
    assert load(kafka, name, f"{tmp_path}/{{topic}}").records == 3


def test_sources_come_as_a_list_too(kafka: Mock, tmp_path: Path) -> None:
    one, two = topic(kafka, 1, numbered(2)), topic(kafka, 1, numbered(3))
    how: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False, "source_options": dict(kafka.settings)}
    urls = [f"kafka://{kafka.address}/{name}" for name in (one, two)]
    assert quire.load(urls, f"{tmp_path}/{{topic}}", **how).records == 5
    assert quire.load(urls, tmp_path / "both", **how).records == 5
    with refused(UsageError, 2, "topics of one call are of one cluster"):
        quire.load([urls[0], "kafka://other:9092/t"], f"{tmp_path}/{{topic}}", **how)


def test_what_fails_for_one_topic_stops_none_of_the_others_and_is_no_success(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = topic(kafka, 1, numbered(2)), topic(kafka, 1, numbered(3))
    (tmp_path / bad).mkdir()
    (tmp_path / bad / "somebody's").write_bytes(b"file")
    with refused(TopicsFailed, 2, "1 of 2 topics failed, and the others were loaded", f"First, {bad}", "is not empty") as caught:
        load(kafka, f"{bad},{good}", f"{tmp_path}/{{topic}}")
    report = caught.value.report
    assert (report.records, [*report.errors]) == (3, [bad])
    assert f"FAILED: the destination file://{tmp_path}/{bad} is not empty" in str(report)
    assert exact(kafka, tmp_path / good, good).exact
    assert not (tmp_path / bad / "_quire").exists()
    fail(monkeypatch, good, lambda: TransientError("the store is away"))
    with refused(TopicsFailed, 3, "2 of 2 topics failed, and nothing of them was loaded"):
        load(kafka, f"{bad},{good}", f"{tmp_path}/{{topic}}")


def test_a_topic_that_is_not_there_fails_alone(kafka: Mock, tmp_path: Path) -> None:
    there = topic(kafka, 1, numbered(2))
    with refused(TopicsFailed, 2, "1 of 2 topics failed", "has no topic 'nowhere'"):
        load(kafka, f"nowhere,{there}", f"{tmp_path}/{{topic}}")
    assert exact(kafka, tmp_path / there, there).exact
    assert not (tmp_path / "nowhere").exists()
    with refused(UsageError, 2, "no topic of", "matches"):
        load(kafka, "none\\.of.*", f"{tmp_path}/{{topic}}")


def test_a_topic_of_which_all_is_quarantined_fails_alone(kafka: Mock, tmp_path: Path) -> None:
    bad, good = topic(kafka, 1, [b"two\nlines", b"and\nmore"]), topic(kafka, 1, [b"a line"])
    how: dict[str, Any] = {"format": "lines", "max_quarantined": None}
    with refused(TopicsFailed, 4, "1 of 2 topics failed", bad) as caught:
        load(kafka, f"{bad},{good}", f"{tmp_path}/{{topic}}", **how)
    assert caught.value.report.reports[bad].quarantined_count == 2
    assert load(kafka, f"{bad},{good}", f"{tmp_path}/{{topic}}", format="lines").errors == {}, "max_quarantined allows it"
    with pytest.raises(TopicsFailed):
        load(kafka, bad, f"{tmp_path}/other-{{topic}}", **how)


def test_topics_that_appear_get_their_destinations(kafka: Mock, tmp_path: Path) -> None:
    kafka.create("new-a", 1)
    kafka.produce("new-a", numbered(2))
    number, last = 0, ""

    def progress(step: quire.ProgressEvent) -> None:
        nonlocal number, last
        if step.phase == "listing" != last:
            number += 1
            if number == 2:
                kafka.create("new-b", 1)
                kafka.produce("new-b", numbered(5))
        last = step.phase

    report = load(kafka, "new-.*", f"{tmp_path}/{{topic}}", every="1 ms", max_runs=4, progress=progress)
    assert {name: each.version > 0 for name, each in report.reports.items()} == {"new-a": True, "new-b": True}
    for name in ("new-a", "new-b"):
        assert exact(kafka, tmp_path / name, name).exact


@pytest.mark.parametrize("dest", ["all", "{topic}"])
def test_now_is_when_a_loop_begins_also_for_a_topic_that_appears_later_and_one_that_fails_first(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dest: str
) -> None:  # fmt: skip
    first, later, whole, fails = f"now-{len(dest)}-a", f"now-{len(dest)}-b", plan.list_offsets, iter([True])
    kafka.create(first, 1)
    kafka.produce(first, numbered(3))

    def planned(*args: Any) -> Any:
        if next(fails, False):
            kafka.produce(first, numbered(2, first=3))
            kafka.create(later, 1)
            kafka.produce(later, numbered(5))
            raise TransientError("the store is away")
        return whole(*args)

    monkeypatch.setattr(offsets_kind, "list_offsets", planned)
    load(kafka, f"now-{len(dest)}-.*", f"{tmp_path}/{dest}", start="latest", every="300 ms", max_runs=6, outage="1 min")
    into = tmp_path / dest.replace("{topic}", first), tmp_path / dest.replace("{topic}", later)
    found = [(row["topic"], row["offset"]) for row in pa.concat_tables([rows(each) for each in dict.fromkeys(into)]).to_pylist()]
    assert sorted(found) == [(first, 3), (first, 4), *((later, i) for i in range(5))]


def test_a_topic_that_is_named_before_it_is_there_has_nothing_before_now(kafka: Mock, tmp_path: Path) -> None:
    good, made = topic(kafka, 1, numbered(2)), iter([True])

    def progress(step: quire.ProgressEvent) -> None:
        if step.phase == "listing" and next(made, False):
            kafka.create("named-soon", 1)
            kafka.produce("named-soon", numbered(5))

    load(kafka, f"{good},named-soon", f"{tmp_path}/{{topic}}", start="latest", every="300 ms", max_runs=6, progress=progress)
    assert exact(kafka, tmp_path / "named-soon", "named-soon").exact


def test_a_loop_waits_for_the_first_topic_of_a_pattern(kafka: Mock, tmp_path: Path) -> None:
    report = load(kafka, "later-.*", f"{tmp_path}/{{topic}}", every="1 ms", max_runs=2)
    assert (report.records, report.reports, report.errors) == (0, {}, {})
    assert "0" in str(report)


def test_a_loop_goes_on_with_the_others_and_tries_a_topic_that_failed_again(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    bad, good = topic(kafka, 1, numbered(2)), topic(kafka, 1, numbered(2))
    fails = iter([TransientError("the store is away"), TransientError("the store is away")])
    fail(monkeypatch, bad, lambda: next(fails, None))
    report = load(kafka, f"{bad},{good}", f"{tmp_path}/{{topic}}", every="300 ms", max_runs=8)
    assert report.errors == {}
    assert capfd.readouterr().err.count("the store is away") == 1, "an outage is told once"
    for name in (bad, good):
        assert exact(kafka, tmp_path / name, name).exact


def test_a_topic_that_failed_is_tried_again_though_the_clock_is_put_back(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    bad, good, fails, back = topic(kafka, 1, numbered(2)), topic(kafka, 1, numbered(2)), iter([True]), 0.0
    whole = loop.rest

    def rest(*args: Any) -> bool:
        nonlocal back
        back = 86_400.0
        return whole(*args)

    fail(monkeypatch, bad, lambda: TransientError("the store is away") if next(fails, False) else None)
    monkeypatch.setattr(loop, "rest", rest)
    monkeypatch.setattr(outages, "clock", lambda: time.time() - back)
    report = load(kafka, f"{bad},{good}", f"{tmp_path}/{{topic}}", every="100 ms", max_runs=3)
    assert report.errors == {}
    assert exact(kafka, tmp_path / bad, bad).exact


def test_a_loop_that_ends_while_a_topic_fails_says_so(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = topic(kafka, 1, numbered(2)), topic(kafka, 1, numbered(2))
    fail(monkeypatch, bad, lambda: RefusedError("it holds another topic. Choose another destination."))
    with refused(TopicsFailed, 2, "1 of 2 topics failed", "it holds another topic") as caught:
        load(kafka, f"{bad},{good}", f"{tmp_path}/{{topic}}", every="1 ms", max_runs=3)
    assert caught.value.report.reports[good].version > 0
    assert exact(kafka, tmp_path / good, good).exact


def test_a_loop_of_which_every_topic_fails_ends(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = topic(kafka, 1, numbered(2))
    fail(monkeypatch, bad, lambda: TransientError("the store is away"))
    with refused(TopicsFailed, 3, "1 of 1 topics failed", "allows no more"):
        load(kafka, bad, f"{tmp_path}/{{topic}}", every="1 ms", outage="1 s")


def test_an_interrupt_ends_all_of_it(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = topic(kafka, 1, numbered(2)), topic(kafka, 1, numbered(2))

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "gather", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(kafka, f"{one},{two}", f"{tmp_path}/{{topic}}")


# --------------------------------------------------------------------------------------------------------------------- side by side
def meet(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> None:
    """Let each topic do something in its thread before it is gathered."""
    whole = loop.gather

    def gathered(request: Any, *args: Any, **more: Any) -> Any:
        act(request.topics.asked[0])
        return whole(request, *args, **more)

    monkeypatch.setattr(loop, "gather", gathered)


def test_topics_are_loaded_side_by_side(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [topic(kafka, 1, numbered(3)) for _ in range(by_topic.AT_ONCE)]
    barrier = threading.Barrier(len(names))

    def act(_: str) -> None:
        barrier.wait(30)
        time.sleep(1)

    meet(monkeypatch, act)
    began = time.monotonic()
    report = load(kafka, ",".join(names), f"{tmp_path}/{{topic}}")
    assert report.records == 3 * len(names)
    assert 1 <= report.seconds <= time.monotonic() - began, "it is not the sum of the topics' seconds"
    for name in names:
        assert exact(kafka, tmp_path / name, name).exact


def test_few_of_many_topics_are_loaded_at_once(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, now, most, lock = [topic(kafka, 1, numbered(1)) for _ in range(3 * by_topic.AT_ONCE)], 0, 0, threading.Lock()

    def act(_: str) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1

    meet(monkeypatch, act)
    report = load(kafka, ",".join(names), f"{tmp_path}/{{topic}}")
    assert (report.records, len(report.reports)) == (len(names), len(names))
    assert 1 < most <= by_topic.AT_ONCE


def test_a_topic_that_fails_while_others_are_loaded_stops_none_of_them(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, *good = (topic(kafka, 1, numbered(2)) for _ in range(by_topic.AT_ONCE))
    failed, barrier = threading.Event(), threading.Barrier(by_topic.AT_ONCE)

    def act(name: str) -> None:
        barrier.wait(30)
        if name == bad:
            failed.set()
            raise RefusedError("it holds another topic. Choose another destination.")
        assert failed.wait(30)

    meet(monkeypatch, act)
    with refused(TopicsFailed, 2, f"1 of {by_topic.AT_ONCE} topics failed, and the others were loaded. First, {bad}: it holds"):
        load(kafka, ",".join([bad, *good]), f"{tmp_path}/{{topic}}")
    for name in good:
        assert exact(kafka, tmp_path / name, name).exact


class Reckless(Exception):
    """Raised by a function of the user's."""


@pytest.mark.parametrize("error", [Reckless, KeyboardInterrupt, ZeroDivisionError])
def test_what_is_not_the_failure_of_a_topic_ends_the_others_and_is_raised(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """A thread of which nobody would hear must not look like a success."""
    one, other = topic(kafka, 1, numbered(2)), topic(kafka, 1, numbered(2))
    ends, raised = threading.Event(), threading.Barrier(2)
    ended = by_topic.ByTopic.told

    def told(self: ByTopic, mine: Any, step: quire.ProgressEvent) -> None:
        ended(self, mine, step)
        if step.phase == "gathering" and mine.name == other and not raised.broken:
            raised.wait(30)
            if self.ended.wait(10):
                ends.set()

    def act(name: str) -> None:
        if name == one:
            raised.wait(30)
            raise error

    monkeypatch.setattr(by_topic.ByTopic, "told", told)
    meet(monkeypatch, act)
    with pytest.raises(error):
        load(kafka, f"{one},{other}", f"{tmp_path}/{{topic}}")
    assert ends.is_set()
    monkeypatch.undo()
    assert load(kafka, f"{one},{other}", f"{tmp_path}/{{topic}}").records == 4, "nothing is lost, and nothing is there twice"
    for name in (one, other):
        assert exact(kafka, tmp_path / name, name).exact


def test_progress_names_the_topic_and_is_told_by_one_thread_at_a_time(kafka: Mock, tmp_path: Path) -> None:
    names, seen, lock = [topic(kafka, 1, numbered(5)) for _ in range(4)], list[tuple[str, str]](), threading.Lock()

    def progress(step: quire.ProgressEvent) -> None:
        assert lock.acquire(blocking=False), "two threads at once"
        seen.append((step.topic, step.phase))
        time.sleep(0.001)
        lock.release()

    load(kafka, ",".join(names), f"{tmp_path}/{{topic}}", progress=progress)
    assert {name for name, _ in seen} == {*names}
    assert {"listing", "gathering"} <= {phase for name, phase in seen if name == names[0]}


def test_a_bar_tells_how_far_each_topic_is(kafka: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    names, told = ["a", "b"], list[quire.ProgressEvent]()
    bars = Progress(False)
    topics = by_topic.ByTopic(kafka_topics.parsed("kafka://h:1/a,b"), "/data/{topic}", lambda _: None, bars, quarantines=False)  # type: ignore[arg-type,return-value]
    due = [by_topic._Topic(name, topics) for name in names]
    with topics, topics._shown(due):
        monkeypatch.setattr(topics._phase, "_show", told.append)
        due[0](quire.ProgressEvent("gathering", 30, 60))
        due[1](quire.ProgressEvent("listing", waits="a broker is away"))
        futures = [topics._pool.submit(lambda: None) for _ in due]
        topics._wait(futures, due)
    assert told[0].waits == "b: a broker is away"
    assert (told[-1].done, told[-1].total, told[-1].unit) == (2, 2, "topic")
    assert told[-1].accounts == "a 50 %, b 0 %"


def test_a_call_that_is_to_stop_begins_no_further_topic(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, stop = [topic(kafka, 1, numbered(2)) for _ in range(3 * by_topic.AT_ONCE)], threading.Event()
    begun = list[str]()

    def act(name: str) -> None:
        begun.append(name)
        stop.set()

    meet(monkeypatch, act)
    report = load(kafka, ",".join(names), f"{tmp_path}/{{topic}}", stop=stop)
    assert 1 <= len(begun) <= by_topic.AT_ONCE
    assert {*report.reports} == {*begun}
    assert report.errors == {}


def test_lines_of_a_topic_name_it(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    one, two = topic(kafka, 1, numbered(2)), topic(kafka, 1, numbered(2))
    fail(monkeypatch, one, lambda: TransientError("the store is away"))
    with pytest.raises(TopicsFailed):
        load(kafka, f"{one},{two}", f"{tmp_path}/{{topic}}")
    assert f"{one}: the store is away The other topics go on." in capfd.readouterr().err


# -------------------------------------------------------------------------------------------------------------------------- the names
@pytest.mark.parametrize("name", [".", "..", "...", "_quire", "_QUIRE"])
def test_a_topic_whose_name_leads_elsewhere_is_refused(name: str) -> None:
    with refused(UsageError, 2, f"the topic {name!r} names no directory of its own"):
        dest_of("/data/{topic}", name)


def test_such_a_topic_fails_alone(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = topic(kafka, 1, numbered(2))
    monkeypatch.setattr(ByTopic, "_there", lambda *_, **__: [".", "..", good])
    with refused(TopicsFailed, 2, "2 of 3 topics failed", "names no directory of its own"):
        load(kafka, f"{good},t.*", f"{tmp_path}/below/{{topic}}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["below"]
    assert [path.name for path in (tmp_path / "below").iterdir()] == [good]


@pytest.mark.parametrize("dest", ["/data/{topics}", "/data/{Topic}", "/data/{}", "/data/${topic", "/data/$topic"])
def test_a_misspelt_place_for_the_topic_is_said(dest: str, tmp_path: Path) -> None:
    if dest == "/data/${topic":
        assert not by_topic.is_for_each(dest), "a name that somebody may mean"
        return
    with refused(UsageError, 2, "{topic}", "Write that") as caught:
        quire.load("kafka://h:9092/t", f"{tmp_path}{dest}")
    assert caught.value.argument == "dest"


def test_the_topic_itself_is_the_only_thing_that_is_filled_in() -> None:
    assert dest_of("s3://bucket/{topic}/a{b}/{topic}", "t.1") == "s3://bucket/t.1/a{b}/t.1"
    assert kafka_topics.parsed(["kafka://h:1/b", "kafka://h:1/a,b"]).asked == ("a", "b")


# ----------------------------------------------------------------------------------------------------------------------------- a shell
def test_the_shell_prints_the_report_and_ends_with_the_code_of_what_failed(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    from contextlib import nullcontext

    bad, good = topic(kafka, 1, numbered(2)), topic(kafka, 1, numbered(3))
    (tmp_path / bad).mkdir()
    (tmp_path / bad / "file").write_bytes(b"")
    monkeypatch.setattr(commands, "spark_of", lambda _: nullcontext(quire.LocalRunner()))
    options = [f"--option={name}={value}" for name, value in kafka.settings.items()]
    with pytest.raises(TopicsFailed) as caught:
        cli.main(
            ["load", f"kafka://{kafka.address}/{bad},{good}", f"{tmp_path}/{{topic}}", "--json", "--quiet", *options], standalone_mode=False
        )
    assert caught.value.exit_code == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["records"], [*found["errors"]]) == (3, [bad])
    assert AllQuarantined.exit_code == 4
