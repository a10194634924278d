"""A look at the ledger page by page: each row once, quick where the paths' beginning is given, and honest about what it did not count."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import documents, gather, refused, write
from quire import Ledger, LocalRunner, UsageError
from quire.coverage import segments
from quire.ledger import browse
from quire.reasons import LONGEST, kind

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Three commits of several segments each, with files that were quarantined; then one that has forgotten some."""
    place = tmp_path_factory.mktemp("paging")
    source, dest = place / "in", place / "out"
    for k in range(3):
        files = {f"run{k}/{name}": content for name, content in documents(12, "xml").items()}
        write(source, {**files, f"run{k}/bad.xml": b"<a>", f"run{k}/empty.xml": b""})
        gather(source, dest, transform="xml", planner="directory")
    Ledger(dest).forget([source / "run1/d0/f0003.xml", source / "run0/bad.xml"], **HERE)
    return source, dest


@pytest.fixture
def made(built: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Ledger]:
    """The source, and a ledger of the test's own."""
    source, dest = built
    return source, Ledger(shutil.copytree(dest, tmp_path / "out"))


def everything(ledger: Ledger) -> list[tuple[str, str]]:
    """All rows, found without paging."""
    table = ledger._fold.rows(ledger._store, ["path", "state"])
    return sorted(zip(table.column("path").to_pylist(), table.column("state").to_pylist(), strict=True))


def turned(page: browse.Page) -> list[browse.Page]:
    """A page and all that follow."""
    pages = [page]
    while pages[-1].more:
        pages.append(pages[-1].at(pages[-1].offset + pages[-1].limit))
    return pages


def paths(*pages: browse.Page) -> list[str]:
    return [path for page in pages for path in page.table["path"]]


@pytest.mark.nth(3)
@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("state", [None, "done", "quarantined"])
def test_turning_pages_shows_each_row_once_and_says_how_many_there_are(made: tuple[Path, Ledger], limit: int, state: str | None) -> None:
    _, ledger = made
    expected = [row for row in everything(ledger) if state in (None, row[1])]
    pages = turned(ledger.rows(state=state, limit=limit))
    assert sorted(paths(*pages)) == [path for path, _ in expected]
    assert {page.total for page in pages} == {len(expected)}
    assert all(page.complete for page in pages)
    assert pages[0].words.endswith(f"of {len(expected):,} rows")
    assert list(pages[0].table.columns) == [*browse.COLUMNS, "commit"]


def test_any_page_can_be_had_at_once_and_backwards(made: tuple[Path, Ledger]) -> None:
    _, ledger = made
    whole = paths(ledger.rows(limit=1000))
    first = ledger.rows(limit=5)
    for offset in (20, 0, 5, 35, 3):
        assert paths(first.at(offset)) == paths(ledger.rows(offset=offset, limit=5)) == whole[offset : offset + 5]
    beyond = first.at(500)
    assert (paths(beyond), beyond.more) == ([], False)
    assert beyond.words == f"none of {len(whole)} rows"


def test_the_newest_commits_come_first(made: tuple[Path, Ledger]) -> None:
    _, ledger = made
    commits = ledger.rows(limit=1000).table["commit"].tolist()
    assert commits == sorted(commits, reverse=True)
    assert len(set(commits)) > 1


def test_rows_are_found_by_how_their_paths_begin_by_any_part_and_by_state(made: tuple[Path, Ledger]) -> None:
    source, ledger = made
    folder = f"file://{source}/run2/d1"
    below = sorted(path for path, _ in everything(ledger) if path.startswith(folder))
    assert len(below) == 4
    for text in (folder, f"{source}/run2/d1", f"{source}/run2/d1/", f"{source}/run2/../run2/d1", f"{folder}/f"):
        assert sorted(paths(ledger.rows(text))) == below, text
    assert sorted(paths(ledger.rows("bad.x"))) == [f"file://{source}/run{k}/bad.xml" for k in (1, 2)]
    assert paths(ledger.rows(source / "run2", "quarantined")) == [f"file://{source}/run2/{name}.xml" for name in ("bad", "empty")]
    for nothing in (f"{source}/run9", "no such", "abfs://", "/", "%", "_"):
        found = ledger.rows(nothing, "held")
        assert (paths(found), found.total, found.more) == ([], 0, False)


def test_links_above_a_source_lead_to_its_rows(made: tuple[Path, Ledger], tmp_path: Path) -> None:
    source, ledger = made
    os.symlink(source, tmp_path / "link")
    assert sorted(paths(ledger.rows(tmp_path / "link" / "run2"))) == sorted(paths(ledger.rows(source / "run2")))


def test_a_beginning_reads_only_the_segments_that_may_hold_it(made: tuple[Path, Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    source, ledger = made
    read, real = list[str](), segments.read

    def counted(store: Any, name: str, *rest: Any, **more: Any) -> Any:
        read.append(name)
        return real(store, name, *rest, **more)

    monkeypatch.setattr(segments, "read", counted)
    ledger.rows(f"{source}/run2/d1")
    few = len(set(read))
    read.clear()
    ledger.rows("run2/d1")
    assert set(read) == {source.segment for source in ledger._fold.sources}
    assert 0 < 4 * few <= len(set(read))
    read.clear()
    ledger.rows(limit=1)
    assert len(read) == 1, "the total is known from the log"


def test_what_was_not_counted_is_said_and_still_found(made: tuple[Path, Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    _, ledger = made
    monkeypatch.setattr(browse, "COUNTED", 1)
    monkeypatch.setattr(browse, "AT_ONCE", 1)
    first = ledger.rows(state="done", limit=2)
    assert (first.complete, first.more) == (False, True)
    assert "of at least" in first.words
    expected = [path for path, state in everything(ledger) if state == "done"]
    assert first.total < len(expected)
    pages = turned(first)
    assert sorted(paths(*pages)) == expected
    assert (pages[-1].total, pages[-1].complete) == (len(expected), True)


def test_pages_stay_those_of_the_version_that_was_looked_at(made: tuple[Path, Ledger]) -> None:
    source, ledger = made
    first = ledger.rows(limit=10)
    before = paths(*turned(first))
    ledger.forget(source / "run2", **HERE)
    assert paths(*turned(first)) == before
    assert not [path for path in paths(*turned(ledger.rows(limit=10))) if "/run2/" in path]


def test_a_look_can_be_stopped(made: tuple[Path, Ledger]) -> None:
    _, ledger = made
    told = list[quire.ProgressEvent]()

    def stop(step: quire.ProgressEvent) -> None:
        told.append(step)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger.rows("no such", progress=stop)
    assert (told[0].phase, told[0].total) == ("looking", len(ledger._fold.sources))


def test_why_files_were_set_aside_is_counted_by_reason(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.json": b"{", "b.json": b"[", "c.json": b"x" * 100, "d.json": b"{}"})
    gather(source, tmp_path / "out", transform="json", max_file_size="50 B")
    ledger = Ledger(tmp_path / "out")
    reasons = ledger.inspect.reasons()
    assert list(reasons.columns) == ["reason", "files", "tries", "example"]
    assert (reasons["files"].tolist(), reasons["tries"].tolist()) == ([2, 1], [1, 1])
    kinds = ledger.inspect.quarantined()["reason"].map(kind).value_counts()
    assert dict(zip(reasons["reason"], reasons["files"], strict=True)) == kinds.to_dict()
    assert reasons["example"][0] == f"file://{source}/a.json"
    ledger.retry(source, max_file_size="1000 B", max_quarantined=1000, **HERE)
    assert ledger.inspect.reasons()["tries"].tolist() == [2]
    assert ledger.inspect.reasons()["files"].tolist() == [3]


@pytest.mark.parametrize(
    ("reasons", "of"),
    [
        ([f"TypeError: column 'temp_2' is {one}" for one in ("'x1', not 3", "'y', not 47")], "TypeError: column 'temp_2' is …, not …"),
        (["KeyError (parse.py line 12): 'temperature'"], "KeyError (parse.py line 12): 'temperature'"),
        (["ValueError: could not convert string to float: 'abc'"], "ValueError: could not convert string to float"),
        (["OSError: cannot read /in/a1.xml now", "OSError: cannot read /in/b.xml now"], "OSError: cannot read … now"),
        (["malformed XML: no tag: line 3", "malformed XML: text"], "malformed XML"),
        ([f"TypeError: {'x' * 1000}"], f"TypeError: {'x' * 1000}"[:LONGEST]),
        (["", None], ""),
    ],
)  # fmt: skip
def test_reasons_that_differ_in_values_alone_are_one_kind_which_says_what_was_wrong(reasons: list[str | None], of: str) -> None:
    assert {kind(reason) for reason in reasons} == {of}


def test_the_table_of_reasons_says_more_than_the_name_of_an_exception(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"{i}.x": b"%d" % i for i in range(5)})
    gather(source, tmp_path / "out", transform=lambda content, file: [b"x"] * int(content) + ["text"], max_quarantined=5)
    found = Ledger(tmp_path / "out").inspect.reasons()
    assert found["files"].tolist() == [5], "the item's number differs, and nothing else"
    assert found["reason"][0].startswith("TypeError: the function returned an iterable whose item … is str")


def test_the_commits_say_what_came_what_went_and_how_many_data_files_there_were_after_each(made: tuple[Path, Ledger]) -> None:
    _, ledger = made
    ledger.compact(**HERE)
    commits = ledger.inspect.commits()
    assert commits["verb"].tolist() == ["run", "run", "run", "forget", "compact"]
    counted = commits["files"] + commits["quarantined"] - commits["forgotten"]
    assert counted.sum() == ledger.summary().files + ledger.summary().quarantined
    assert commits["forgotten"].tolist() == [0, 0, 0, 2, 0], "one that was gathered and one that was quarantined"
    assert commits["data_files"].iloc[-1] == len(ledger.inspect.files())
    assert (commits["written"].cumsum() - commits["removed"].cumsum() == commits["data_files"]).all()
    assert ledger.inspect.commits(last=2)["version"].tolist() == commits["version"].tolist()[-2:]


@pytest.mark.parametrize(
    ("call", "word"),
    [
        ({"state": "quarantine"}, "Did you mean 'quarantined'"),
        ({"limit": 0}, "limit"),
        ({"offset": -1}, "offset"),
        ({"path": b"/in"}, "path"),
    ],
)
def test_a_wrong_question_is_one_line(made: tuple[Path, Ledger], call: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        made[1].rows(**call)


def test_a_page_shows_hostile_names_as_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)<\\x>\n\u202e"
    gather(write(tmp_path / "in", {evil: b"1"}), tmp_path / "out")
    page = Ledger(tmp_path / "out").rows("script")
    assert page.total == 1
    for shown in (page._repr_html_(), repr(page)):
        assert "\u202e" not in shown
    assert "<script" not in page._repr_html_()


def test_what_is_no_path_is_said_in_one_line_or_found_nowhere(made: tuple[Path, Ledger]) -> None:
    source, ledger = made
    assert ledger.rows("half a \udcff character").total == 0
    wrong: list[Any] = [
        lambda: ledger.rows(5), lambda: ledger.forget(5, **HERE), lambda: ledger.forget(b"/x", **HERE),
        lambda: ledger.forget(file=5, **HERE), lambda: ledger.unpin(None),
        lambda: ledger.retry(paths=source / "typo.xml", **HERE), lambda: ledger.retry(function="x", **HERE),
    ]  # fmt: skip
    for call in wrong:
        with refused(UsageError, 2):
            call()
    assert ledger.retry(paths=source / "run1/d0/f0000.xml", **HERE).jobs == (), "it is done"
