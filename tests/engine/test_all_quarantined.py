"""A run in which nothing could be processed never looks like a success: what is quarantined is committed, and the call says so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from checker import check
from gathering import documents, look, not_taken, refused, write
from loading import load, topic
from quire import errors
from quire.cli import app, main
from quire.errors import AllQuarantined, TooManyQuarantined
from services.kafka import Mock, mock

BAD = {"a.xml": b"<a>", "b.xml": b"<", "c.xml": b""}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock() as cluster:
        yield cluster


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return write(tmp_path / "in", BAD)


def gather(source: Path, dest: Path, **settings: Any) -> quire.Report:
    return quire.consolidate(source, dest, spark=quire.LocalRunner(), progress=False, **settings)


def process(source: Path, dest: Path, function: Any, **settings: Any) -> quire.Report:
    return quire.process(source, dest, function, spark=quire.LocalRunner(), progress=False, **settings)


def test_the_quarantine_is_committed_and_the_error_has_the_report(bad: Path, tmp_path: Path) -> None:
    words = "3 files went into quarantine", f"{bad}/a.xml", "quire ledger quarantined", "max_quarantined"
    with refused(AllQuarantined, 4, *words) as caught:
        gather(bad, tmp_path / "out", transform="xml")
    report = caught.value.report
    assert (report.files, not_taken(report), report.version) == (0, 3, 2)
    assert report.all_quarantined
    assert report.as_dict()["all_quarantined"] is True
    first = str(report).splitlines()[1]
    assert "ALL QUARANTINED" in first
    assert "3 files" in first
    assert repr(report).startswith("Report(all_quarantined=True")
    assert report._repr_html_().index("ALL QUARANTINED") < report._repr_html_().index("files gathered")
    assert len(quire.Ledger(tmp_path / "out").inspect.quarantined()) == 3
    check(bad, tmp_path / "out", None)


def test_the_same_call_says_it_again_as_long_as_nothing_has_changed(bad: Path, tmp_path: Path) -> None:
    """A scheduler that calls again after a failure must not take the second call for a success."""
    for _ in range(2):
        with refused(AllQuarantined, 4):
            gather(bad, tmp_path / "out", transform="xml")
    report = gather(bad, tmp_path / "out", transform="xml", max_quarantined=3)
    assert (report.files, not_taken(report), report.skipped, report.quarantined_before) == (0, 0, 3, 3)
    assert "3, of them 3 quarantined" in str(report)
    write(bad, {"good.xml": b"<a/>"})
    assert gather(bad, tmp_path / "out", transform="xml").files == 1
    report = gather(bad, tmp_path / "out", transform="xml")
    assert (report.skipped, report.quarantined_before, report.failure) == (4, 3, "")


def test_max_quarantined_allows_it_up_to_its_number(bad: Path, tmp_path: Path) -> None:
    with refused(TooManyQuarantined, 1, "nothing was committed"):
        gather(bad, tmp_path / "out", transform="xml", max_quarantined=2)
    report = gather(bad, tmp_path / "out", transform="xml", max_quarantined=3)
    assert report.all_quarantined
    assert not_taken(report) == 3


def test_one_good_file_or_an_empty_one_is_enough(bad: Path, tmp_path: Path) -> None:
    write(bad, {"good.xml": b"<a/>"})
    assert not gather(bad, tmp_path / "out", transform="xml").all_quarantined
    assert not gather(write(tmp_path / "empty", {"a": b""}), tmp_path / "out2").all_quarantined
    assert not gather(write(tmp_path / "none", {}), tmp_path / "out3").all_quarantined


def test_a_run_of_new_files_that_are_all_bad_says_it_whatever_was_gathered_before(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(5, "xml"))
    gather(source, tmp_path / "out", transform="xml")
    write(source, BAD)
    with refused(AllQuarantined, 4, "3 files"):
        gather(source, tmp_path / "out", transform="xml")
    assert gather(source, tmp_path / "out", transform="xml").quarantined_before == 3, "of eight that are there"


def test_a_loop_says_it_and_goes_on(bad: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = gather(bad, tmp_path / "out", transform="xml", every="1 ms", max_runs=3)
    assert report.skipped == 3
    said = capsys.readouterr().err
    assert said.count("all of ") == 1, "by the run that met it, and not again by those that find nothing new"
    assert "The next run goes on." in said
    assert said.count("\n") == 1


def test_a_plan_that_is_run_says_it_too(bad: Path, tmp_path: Path) -> None:
    with refused(AllQuarantined, 4):
        look(bad, tmp_path / "out", transform="xml").run(progress=False)


def test_a_function_that_rejects_every_record_has_processed_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"1\n2\n", "b": b"3\n"})

    def rejects(split: quire.Split, content: bytes) -> None:
        for line in content.splitlines():
            split.quarantine(line, "no")

    for i, split in enumerate(("lines", "file")):  # of a file's lines the newlines are left
        with refused(AllQuarantined, 4, "3 records went into quarantine"):
            process(source, tmp_path / f"out{i}", rejects, split=split)
        assert len(quire.Ledger(tmp_path / f"out{i}").inspect.quarantined_records()) == 3

    def some(split: quire.Split, content: bytes) -> list[dict[str, int]] | None:
        return [{"n": 3}] if content == b"3\n" else rejects(split, content)

    assert not process(source, tmp_path / "some", some, split="lines").all_quarantined
    nothing = process(source, tmp_path / "nothing", lambda split, content: None, format="parquet")
    assert not nothing.all_quarantined, "who takes no row rejects nothing"


def test_a_load_without_a_record_says_it(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, [b"two\nlines", None])
    for words in ("2 records went into quarantine", "all that was read before is quarantined"):
        with refused(AllQuarantined, 4, words) as caught:
            load(kafka, name, tmp_path / "out", format="lines", max_quarantined=None)
        assert isinstance(caught.value.report, quire.LoadReport)
    kafka.produce(name, [b"good"])
    assert not load(kafka, name, tmp_path / "out", format="lines", max_quarantined=None).all_quarantined


def test_a_retry_of_which_nothing_comes_says_it(bad: Path, tmp_path: Path) -> None:
    gather(bad, tmp_path / "out", transform="xml", max_quarantined=3)
    ledger = quire.Ledger(tmp_path / "out")
    with refused(AllQuarantined, 4, "still quarantined") as caught:
        ledger.retry(bad, spark=quire.LocalRunner(), progress=False)
    assert "ALL QUARANTINED" in str(caught.value.report).splitlines()[1]
    assert (caught.value.report.gathered, caught.value.report.quarantined) == (0, 3)
    assert set(ledger.inspect.quarantined()["tries"]) == {2}, "it is committed"
    with refused(TooManyQuarantined, 1, "nothing was committed"):
        ledger.retry(bad, spark=quire.LocalRunner(), progress=False, max_quarantined=2)
    assert set(ledger.inspect.quarantined()["tries"]) == {2}
    assert ledger.retry(bad, spark=quire.LocalRunner(), progress=False, max_quarantined=3).quarantined == 3


def test_a_shell_prints_the_report_then_one_line_and_ends_with_4(
    bad: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Session(quire.LocalRunner):
        def stop(self) -> None:
            pass

    monkeypatch.setattr(quire, "session", lambda *_, **__: Session())

    def run(*arguments: object) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        assert ended.value.code == 4
        said = capsys.readouterr()
        assert said.err.count("\n") == 1
        assert said.err.startswith("error: ")
        return said.out, said.err

    out, err = run("consolidate", bad, tmp_path / "out", "--transform", "xml", "--json", "--quiet")
    assert json.loads(out)["all_quarantined"] is True
    assert "3 files went into quarantine" in err
    out, _ = run("ledger", "retry", tmp_path / "out", "--source", bad, "--quiet")
    assert "still quarantined" in out


def test_the_exit_codes_that_are_written_down_are_those_of_the_errors(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    texts = [capsys.readouterr().out, (Path(__file__).parents[2] / "docs/shell.md").read_text(), app.__doc__ or ""]
    codes = {error.exit_code for error in vars(errors).values() if isinstance(error, type) and issubclass(error, errors.QuireError)}
    for text in texts:
        told = re.sub(r"\s+", " ", text[text.index("Exit codes:") :]).partition("interrupted")[0]
        assert {int(n) for n in re.findall(r"(?:: |, |but )(?:the next run goes on, )?(\d+) ", told)} == {0, 130} | codes
        for code, words in ((1, "more than `?max_quarantined"), (2, "wrong use"), (3, "failed"), (4, "all of the input was quarantined")):
            assert re.search(rf"{code} {words}", told), told
