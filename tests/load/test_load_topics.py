"""Several topics into several destinations by one call: each is exact by itself, and what fails for one stops none of the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import refused
from loading import exact, load, numbered, topic
from quire.cli import load as commands
from quire.engine import by_topic, loop
from quire.engine.by_topic import ByTopic, dest_of
from quire.errors import AllQuarantined, QuireError, RefusedError, TopicsFailed, TransientError, UsageError
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
        commands.load.main(
            [f"kafka://{kafka.address}/{bad},{good}", f"{tmp_path}/{{topic}}", "--json", "--quiet", *options], standalone_mode=False
        )
    assert caught.value.exit_code == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["records"], [*found["errors"]]) == (3, [bad])
    assert AllQuarantined.exit_code == 4
