"""The ledger's widget: what it shows, finds, retries and forgets, driven as a user or a script drives it, without a browser."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ipywidgets
import pandas as pd
import pytest

import quire
from gathering import documents, gather, write
from pages import Balanced, click, everything, markup, one, text_of, walk
from quire.ledger.inspect import Inspect
from quire.reasons import kind as kind_of
from quire_widgets import LedgerInspector

SECRET = "hunter2hunter2"
HERE = quire.LocalRunner()


def inspector(dest: Any, **settings: Any) -> LedgerInspector:
    given = {"source": dest.parent / "in"} if isinstance(dest, Path) else {}
    return LedgerInspector(dest, **{"spark": HERE, **given, **settings})


def done(widget: LedgerInspector, state: str = "done") -> LedgerInspector:
    assert widget.wait(60), f"still {widget.state}"
    assert widget.state == state, widget.error
    return widget


def found(widget: LedgerInspector, path: str = "", status: str = "any") -> list[str]:
    """The names of the files on the first page of a search."""
    widget.path, widget.status = path, status
    click(widget, "find")
    return names(done(widget))


def names(widget: LedgerInspector) -> list[str]:
    return [path.rpartition("/")[2] for path in widget.result.table["path"]]


def everything_of(dest: Path) -> list[str]:
    return [path.rpartition("/")[2] for path in quire.Ledger(dest).rows(limit=100).table["path"]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Thirty documents, four that are no XML, and one that is too large."""
    broken = {f"bad{i}.xml": b"<a>" for i in range(4)}
    return write(tmp_path / "in", {**documents(30, "xml"), **broken, "huge.xml": b"<a>" + b"x" * 1000 + b"</a>"})


@pytest.fixture
def dest(source: Path, tmp_path: Path) -> Path:
    gather(source, tmp_path / "out", transform="xml", max_file_size="500 B")
    return tmp_path / "out"


# ------------------------------------------------------------------------------------------------------------------ what it shows


def test_it_opens_with_the_numbers_the_commits_the_first_page_and_why_files_failed(dest: Path) -> None:
    widget = inspector(dest)
    assert (widget.state, widget.error) == ("idle", None)
    assert "files gathered" in text_of(one(widget, "quire-summary").value)
    timeline = one(widget, "quire-timeline").value
    assert re.search(r'role="img" aria-label="1 commit: 30 files came, 1 data file now\. 1 × run\."', timeline)
    assert quire.Ledger(dest).summary().last_commit in timeline, "when it was"
    rows = text_of(one(widget, "quire-rows").value)
    assert "1–20 of 35 rows , below file://" in rows
    assert "malformed XML" in rows
    why = text_of(one(widget, "quire-reasons").value)
    assert "Quarantined: 5 files, by reason" in why
    assert "malformed XML" in why
    assert [label for label, _ in one(widget, "quire-reason").options][:2] == ["every reason: 5 files", "malformed XML: 4 files"]


def test_rows_are_found_by_path_and_status(source: Path, dest: Path) -> None:
    widget = inspector(dest)
    assert found(widget, "bad") == ["bad0.xml", "bad1.xml", "bad2.xml", "bad3.xml"]
    assert len(found(widget, f"{source}/d1")) == 10
    assert found(widget, f"{source}/d1", "quarantined") == []
    assert "no rows" in text_of(one(widget, "quire-rows").value)
    assert len(found(widget, "", "quarantined")) == 5
    widget.path = "f0001"
    assert one(widget, "quire-path").value == "f0001", "field and trait follow each other"
    one(widget, "quire-path").value = "f0002"
    assert widget.path == "f0002"


def test_pages_are_turned_and_say_which_of_how_many(dest: Path) -> None:
    widget = inspector(dest, page_size=15)
    buttons = {name: one(widget, f"quire-{name}-button") for name in ("first", "previous", "next")}
    seen = [names(widget)]
    assert [b.disabled for b in buttons.values()] == [True, True, False]
    for words in ("16–30 of 35 rows", "31–35 of 35 rows"):
        click(widget, "next")
        seen.append(names(done(widget)))
        assert words in text_of(one(widget, "quire-rows").value)
    assert [b.disabled for b in buttons.values()] == [False, False, True]
    assert sorted(name for page in seen for name in page) == sorted(
        path.rpartition("/")[2] for path in quire.Ledger(dest).rows(limit=100).table["path"]
    )
    click(widget, "previous")
    assert names(done(widget)) == seen[1]
    click(widget, "first")
    assert names(done(widget)) == seen[0]


def test_one_files_coverage_is_a_picture_and_a_table(source: Path, dest: Path) -> None:
    write(source, {"log.txt": b"one\ntwo\nhalf"})
    gather(source, dest.parent / "logs", include="*.txt", on_append="tail")
    widget = inspector(dest.parent / "logs")
    one(widget, "quire-file").value = f"file://{source}/log.txt"
    click(widget, "look")
    assert done(widget).result["state"].tolist() == ["done", "held"]
    shown = one(widget, "quire-coverage").value
    assert re.search(r'aria-label="[^"]*log\.txt: 12 B, its last line held back', shown)
    assert quire.Ledger(dest.parent / "logs").inspect.files()["data_file"][0] in text_of(shown), "where it lies"
    widget.look("/no/such")
    assert "not in the ledger" in text_of(one(done(widget, "failed"), "quire-look-message").value)


def test_it_shows_what_others_have_committed_since_when_it_is_asked(source: Path, dest: Path) -> None:
    widget = inspector(dest)
    write(source, {"new.xml": b"<a/>"})
    gather(source, dest, transform="xml", max_file_size="500 B")
    click(widget, "refresh")
    assert "of 36 rows" in text_of(one(done(widget), "quire-rows").value)
    assert "2 commits: 31 files came" in one(widget, "quire-timeline").value


# ------------------------------------------------------------------------------------------------------------- retry and forget


def test_retry_reads_what_was_set_aside_once_more_and_shows_what_came_of_it(source: Path, dest: Path) -> None:
    widget = inspector(dest)
    click(widget, "retry")
    assert (done(widget).result.gathered, widget.result.quarantined) == (1, 4), "the limit of quire's own holds the large one"
    assert "gathered now" in text_of(one(widget, "quire-result").value)
    assert "Quarantined: 4 files" in text_of(one(widget, "quire-reasons").value)
    assert "1 × run, 1 × retry" in one(widget, "quire-timeline").value
    assert one(widget, "quire-reason").label == "every reason: 4 files"
    assert quire.Ledger(dest).inspect.quarantined()["tries"].tolist() == [2] * 4


def test_retry_for_one_reason_leaves_the_others(dest: Path) -> None:
    widget = inspector(dest)
    one(widget, "quire-reason").value = "malformed XML"
    click(widget, "retry")
    assert done(widget).result.quarantined == 4
    tries = quire.Ledger(dest).inspect.quarantined().set_index("reason")["tries"].to_dict()
    assert sorted(tries.values()) == [1, 2]


def test_forget_asks_first_and_no_keeps_everything(dest: Path) -> None:
    widget = inspector(dest)
    ask = one(widget, "quire-ask")
    assert ask.layout.display == "none"
    click(widget, "forget")
    assert ask.layout.display is None
    question = one(widget, "quire-question").value
    assert 'role="alert"' in question
    assert "Forget 5 files?" in text_of(question)
    assert "Without Spark a file leaves whole, with the good records that it has." in text_of(question)
    assert "bad0.xml" in question
    click(widget, "no")
    assert (ask.layout.display, widget.state, quire.Ledger(dest).version) == ("none", "idle", 2)
    click(widget, "yes")
    assert (widget.state, quire.Ledger(dest).version) == ("idle", 2), "no question was open"


def test_forget_takes_them_out_with_the_reason_in_the_log_and_the_next_run_reads_them(source: Path, dest: Path) -> None:
    widget = inspector(dest)
    one(widget, "quire-reason").value = "malformed XML"
    click(widget, "forget")
    assert "Forget 4 files (malformed XML)?" in text_of(one(widget, "quire-question").value)
    one(widget, "quire-why").value = "they are <repaired>"
    click(widget, "yes")
    done(widget)
    ledger = quire.Ledger(dest)
    assert ledger.summary().quarantined == 1
    assert "they are <repaired>" in set(ledger.inspect.history()["note"])
    assert one(widget, "quire-why").value == "", "the next one has a reason of its own"
    assert "they are &lt;repaired&gt;" in one(widget, "quire-timeline").value
    write(source, {f"bad{i}.xml": b"<a/>" for i in range(4)})
    assert gather(source, dest, transform="xml", max_file_size="500 B").files == 4


@pytest.mark.nth(2)
@pytest.mark.parametrize("again", [False, True], ids=["once", "tried already"])
def test_a_retry_in_vain_is_an_outcome_that_says_so(dest: Path, again: bool) -> None:
    widget = inspector(dest)
    for _ in range(1 + again):
        widget.retry("malformed XML")
        assert (done(widget).error, widget.result.gathered, widget.result.quarantined) == (None, 0, 4)
    shown = one(widget, "quire-result").value
    assert 'role="alert"' in shown
    assert "none of it could be processed: all of it stays quarantined" in text_of(shown)
    assert "ALL QUARANTINED" in text_of(shown)
    assert "ALL QUARANTINED" in repr(widget)
    assert one(widget, "quire-change-message").value == "", "nothing failed"
    assert "except quire.AllQuarantined" in widget.code, "the call raises it"
    widget.retry()
    assert done(widget).result.gathered == 1, "the large one"
    assert 'role="alert"' not in one(widget, "quire-result").value
    assert "except" not in widget.code


def test_another_choice_closes_the_question(dest: Path) -> None:
    widget = inspector(dest)
    click(widget, "forget")
    one(widget, "quire-reason").value = "malformed XML"
    assert one(widget, "quire-ask").layout.display == "none"
    click(widget, "forget")
    click(widget, "retry")
    assert one(widget, "quire-ask").layout.display == "none"
    assert quire.Ledger(dest).summary().quarantined == done(widget).result.quarantined + 1


@pytest.fixture
def purged(tmp_path: Path) -> Path:
    """A destination that holds the last copy of two files; one's name is another file's by now, which is quarantined."""
    source, dest = write(tmp_path / "in", {"a.xml": b"<good/>", "b.xml": b"<good/>"}), tmp_path / "out"
    gather(source, dest, transform="xml")
    quire.Ledger(dest).purge_sources(source, spark=HERE, dry_run=False, min_age=0)
    gather(write(source, {"a.xml": b"<broken", "c.xml": b"<broken"}), dest, transform="xml")
    return dest


def copies(dest: Path) -> list[str]:
    """The names of the files of which it holds the last copy."""
    rows = quire.Ledger(dest).rows(limit=100).table
    return [path.rpartition("/")[2] for path in rows["path"][rows["state"] == "purged"]]


def test_forget_asks_a_second_time_before_it_deletes_the_last_copy(purged: Path) -> None:
    widget, version = inspector(purged), quire.Ledger(purged).version
    ask = one(widget, "quire-last-ask")
    widget.forget()
    one(widget, "quire-why").value = "a mistake"
    assert ask.layout.display == "none"
    click(widget, "last-yes")  # it answers what was not asked yet
    assert (done(widget, "idle").error, copies(purged)) == (None, ["a.xml", "b.xml"])
    assert ask.layout.display is None
    assert one(widget, "quire-ask").layout.display == "none"
    words = text_of(one(widget, "quire-last-question").value)
    assert "Delete the last copy of 1 file? The sources were purged" in words
    assert "/in/a.xml" in words
    click(widget, "yes")
    assert copies(purged) == ["a.xml", "b.xml"], "the first answer once more is not the second"
    assert (done(widget, "idle").state, ask.layout.display, quire.Ledger(purged).version) == ("idle", None, version)
    click(widget, "last-yes")
    assert (done(widget).result.files_out, copies(purged)) == (3, ["b.xml"])
    assert "last_copy=True" in widget.code
    assert "a mistake" in set(quire.Ledger(purged).inspect.history()["note"]), "the reason was asked once"
    assert ask.layout.display == "none"


def test_no_to_the_second_question_or_another_choice_keeps_the_last_copy(purged: Path) -> None:
    widget = inspector(purged)
    for refuse in ("last-no", "retry", "forget"):
        widget.forget()
        widget.answer(True)
        done(widget, "idle")
        click(widget, refuse)
        assert widget.wait(60)
        assert one(widget, "quire-last-ask").layout.display == "none", refuse
        assert copies(purged) == ["a.xml", "b.xml"]
    widget.answer(False)
    click(widget, "last-yes")
    assert (widget.state, copies(purged)) == ("idle", ["a.xml", "b.xml"]), "no question was open"


def test_the_second_answer_is_about_what_was_asked_and_nothing_that_came_since(purged: Path) -> None:
    widget = inspector(purged)
    widget.forget()
    widget.answer(True)
    done(widget, "idle")
    gather(write(purged.parent / "in", {"b.xml": b"<broken"}), purged, transform="xml")
    widget.find()
    done(widget)
    widget.answer(True, last_copy=True)
    assert "Delete the last copy of 2 files?" in text_of(one(done(widget, "idle"), "quire-last-question").value)
    assert copies(purged) == ["a.xml", "b.xml"]
    widget.answer(True, last_copy=True)
    assert (done(widget).result.verb, copies(purged)) == ("forget", [])


def test_what_a_retry_could_not_take_is_listed_with_the_reason(source: Path, dest: Path) -> None:
    (source / "bad1.xml").unlink()
    widget = inspector(dest)
    click(widget, "retry")
    assert [why for _, why in done(widget).result.left] == ["it is gone at its source: it stays quarantined"]
    assert "Left as it is: 1 file" in text_of(one(widget, "quire-result").value)
    assert "bad1.xml" in one(widget, "quire-result").value


def test_where_nothing_failed_there_is_nothing_to_press(tmp_path: Path) -> None:
    gather(write(tmp_path / "in", documents(3)), tmp_path / "out")
    widget = inspector(tmp_path / "out")
    assert all(one(widget, f"quire-{name}-button").disabled for name in ("retry", "forget"))
    assert "Nothing is quarantined" in text_of(one(widget, "quire-reasons").value)
    widget.forget()
    assert one(widget, "quire-ask").layout.display == "none"


# ------------------------------------------------------------------------------------------------- in the background, interrupted


class Slow:
    """A function of the user's that waits until it is let go."""

    def __init__(self) -> None:
        self.began, self.go, self.broken = threading.Event(), threading.Event(), True
        self.__name__ = "slow"

    def __call__(self, content: bytes, file: quire.FileInfo) -> bytes:
        if self.broken:
            raise ValueError("not yet")
        self.began.set()
        assert self.go.wait(60)
        return content


@pytest.fixture
def slow(source: Path, tmp_path: Path) -> Iterator[Slow]:
    """The function that a destination was made with, which is repaired by now."""
    made = Slow()
    gather(source, tmp_path / "slow", transform=made, function_version="1", include="bad*")
    made.broken = False
    yield made
    made.go.set()


def test_a_retry_leaves_the_kernel_free_and_the_buttons_say_what_is_possible(tmp_path: Path, slow: Slow) -> None:
    widget = inspector(tmp_path / "slow", function=slow)
    states = list[str]()
    widget.observe(lambda change: states.append(change["new"]), "state")
    click(widget, "retry")
    assert slow.began.wait(30)
    for name in ("retry", "forget", "find", "refresh", "look", "next"):
        assert one(widget, f"quire-{name}-button").disabled, name
        click(widget, name)
    assert one(widget, "quire-change-cancel-button").layout.display is None
    assert "<progress" in one(widget, "quire-change-progress").value
    slow.go.set()
    assert done(widget).result.gathered == 4
    assert states == ["retrying", "done"], "one call at a time"
    assert one(widget, "quire-change-cancel-button").layout.display == "none"
    assert one(widget, "quire-change-progress").value == ""


def test_a_cancelled_retry_says_how_to_go_on_and_the_same_again_does(tmp_path: Path, slow: Slow) -> None:
    widget = inspector(tmp_path / "slow", function=slow)
    widget.retry()
    assert slow.began.wait(30)
    click(widget, "change-cancel")
    assert widget.state == "cancelling"
    slow.go.set()
    done(widget, "cancelled")
    message = one(widget, "quire-change-message").value
    assert "nothing is lost" in text_of(message)
    assert quire.Ledger(tmp_path / "slow").summary().quarantined == 4
    code = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", message, re.DOTALL)
    assert code
    exec(html.unescape(code[1]), {"quire": quire})
    assert quire.Ledger(tmp_path / "slow").summary().open_jobs == ()
    widget.retry()
    assert done(widget).result.gathered == 4


def test_a_look_can_be_cancelled_and_leaves_what_was_shown(dest: Path) -> None:
    widget = inspector(dest)
    before = one(widget, "quire-rows").value
    one(widget, "quire-look-progress").observe(lambda _: widget.cancel(), "value")
    widget.path = "no such"
    widget.refresh()
    assert widget.wait(30)
    assert widget.state == "cancelled"
    assert one(widget, "quire-rows").value == before
    widget.cancel()
    assert widget.state == "cancelled", "nothing is under way"


# ---------------------------------------------------------------------------------------------------------------- what goes wrong


def test_a_place_without_a_ledger_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(quire.UsageError, match="holds no ledger"):
        inspector(tmp_path)


def test_an_unknown_status_is_refused_with_the_nearest_one(dest: Path) -> None:
    widget = inspector(dest)
    with pytest.raises(quire.UsageError, match="Did you mean 'quarantined'"):
        widget.status = "quarantine"
    assert widget.status == "any"


def test_what_fails_is_one_line_beside_what_was_pressed(dest: Path) -> None:
    widget = inspector(dest)
    for segment in (dest / "_quire/ledger").iterdir():
        segment.write_bytes(b"PAR1 <b>damaged</b>")
    click(widget, "find")
    done(widget, "failed")
    assert isinstance(widget.error, quire.FormatError)
    message = one(widget, "quire-look-message").value
    assert 'role="alert"' in message
    assert "is damaged" in text_of(message)
    assert "Traceback" not in everything(widget)
    click(widget, "retry")
    done(widget, "failed")
    assert "is damaged" in text_of(one(widget, "quire-change-message").value)
    assert one(widget, "quire-look-message").value == "", "what was said before goes"


def test_a_function_that_the_retry_needs_is_asked_for(tmp_path: Path, slow: Slow) -> None:
    widget = inspector(tmp_path / "slow")
    click(widget, "retry")
    done(widget, "failed")
    assert "retry needs it, function=" in text_of(one(widget, "quire-change-message").value)


# ------------------------------------------------------------------------------------------------------------ the same as Python


def result_of(code: str, **names: Any) -> Any:
    exec(code, names)
    return names["result"]


def test_the_code_is_python_that_gives_the_same_result(source: Path, dest: Path) -> None:
    widget = inspector(dest, page_size=3)
    widget.path, widget.status = str(source), "quarantined"
    widget.find()
    for act in (lambda: None, lambda: widget.turn(1)):
        act()
        same = result_of(done(widget).code)
        assert same.table.equals(widget.result.table)
        assert same.words == widget.result.words
    assert "state='quarantined', offset=3, limit=3" in re.sub(r",?\s+", ", ", widget.code)
    widget.look(f"file://{source}/bad0.xml")
    assert result_of(done(widget).code).equals(widget.result)
    assert html.escape(widget.code) in one(widget, "quire-code").value


def test_what_is_typed_counts_when_it_is_searched_and_not_before(dest: Path) -> None:
    widget = inspector(dest, page_size=2)
    found(widget, "bad")
    widget.path = "f00"
    widget.turn(1)
    assert names(done(widget)) == ["bad2.xml", "bad3.xml"]
    assert "path='bad'" in widget.code
    widget.retry()
    assert "1–2 of 4 rows" in text_of(one(done(widget), "quire-rows").value)


def test_a_search_reads_why_files_are_quarantined_only_if_something_was_committed_since(
    dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widget, asked, real = inspector(dest), list[int](), Inspect.reasons
    monkeypatch.setattr(Inspect, "reasons", lambda tables, **given: (asked.append(1), real(tables, **given))[1])
    found(widget, "bad")
    assert not asked
    widget.refresh()
    done(widget)
    widget.retry()
    done(widget)
    assert len(asked) == 2


@pytest.mark.nth(2)
@pytest.mark.parametrize("reason", [None, "malformed XML"])
def test_the_code_of_a_change_does_the_same_change(source: Path, dest: Path, reason: str | None, tmp_path: Path) -> None:
    widget = inspector(dest)
    if reason is None:
        widget.retry()
        with pytest.raises(quire.AllQuarantined):  # the large one came, and is not read again
            result_of(done(widget).code)
    widget.retry(reason)
    again = result_of(done(widget).code)
    assert (again.verb, again.quarantined) == ("retry", widget.result.quarantined)
    others = quire.Ledger(dest).summary().quarantined - 4
    widget.forget(reason)
    widget.answer(True)
    code = done(widget).code
    assert quire.Ledger(dest).summary().quarantined == others
    write(source, {f"bad{i}.xml": b"<b>" for i in range(4)})
    gather(source, dest, transform="xml", max_file_size="500 B")
    assert quire.Ledger(dest).summary().quarantined == others + 4
    assert result_of(code).verb == "forget"
    assert quire.Ledger(dest).summary().quarantined == others


def test_on_spark_a_reason_is_a_condition_that_chooses_what_the_table_has_counted(
    spark: Any, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict[str, Any]()

    def told(ledger: quire.Ledger, **settings: Any) -> None:
        given.update(settings)
        raise quire.QuireError("enough")

    monkeypatch.setattr(quire.Ledger, "retry", told)
    widget = LedgerInspector(dest, source=dest.parent / "in", spark=spark)
    words = [
        "malformed XML",
        "it's \\ \"a\" 'kind' of % and _",
        "\\' or true or '",
        "",
        "larger",
        "a 3,5 of /data/in/x1.xml",
        "é 7 😀 " * 40,
    ]
    words += [
        "TypeError: the column 'a1' is 'x' or \"y\", not 12",
        "KeyError: 'temperature'",
        "TypeError: ",
        "KeyError (a.py line 12)",
        "KeyError (a.py line 12): 'x 1'",
        "a.b.C: x\ny -3 : 4",
        " odd 3 ",
    ]
    reasons = [f"{one}: {one}" for one in words] + words
    kinds = list(dict.fromkeys(map(kind_of, reasons)))
    conditions = []
    for kind in kinds:
        widget.retry(kind)
        done(widget, "failed")
        conditions.append(given["where"])
    rows = spark.createDataFrame(pd.DataFrame({"reason": reasons})).selectExpr("reason", *conditions).collect()
    for reason, *chosen in rows:
        assert [kind for kind, taken in zip(kinds, chosen, strict=True) if taken] == [kind_of(reason)]
    assert given["spark"] is spark
    given.clear()
    widget.retry()
    done(widget, "failed")
    assert "where" not in given, "all of it"


def test_secrets_are_never_shown(dest: Path) -> None:
    options = {"account_key": SECRET}
    widget = inspector(dest, storage_options=options, source_options=options)
    widget.retry()
    done(widget)
    assert "storage_options=storage_options)" in widget.code
    assert "storage_options=source_options" in widget.code
    assert SECRET not in everything(widget)
    assert SECRET not in str(widget.get_state())


# ------------------------------------------------------------------------------------------------------------------ as it is shown


def test_hostile_names_and_reasons_are_text_wherever_they_are_shown(tmp_path: Path) -> None:
    evil = "<script>alert(1)<\\x>&amp;'\"\n\u202e"
    source = write(tmp_path / "in", {f"{evil}/{evil}{i}": b"<a>" for i in range(3)})

    def refuse(content: bytes, file: quire.FileInfo) -> bytes:
        raise ValueError(f"{evil}: {evil}")

    gather(source, tmp_path / "out", transform=refuse, function_version="1")
    widget = inspector(tmp_path / "out", function=refuse)
    widget.look(widget.result.table["path"][0])
    done(widget)
    widget.path = evil
    widget.find()
    done(widget)
    widget.forget()
    labels = [label for name in ("file", "reason") for label, _ in one(widget, f"quire-{name}").options]
    assert "\u202e" not in "".join([markup(widget), *labels]), "it would turn the line round"
    assert "<script" not in markup(widget)
    assert Balanced(markup(widget)).open == []
    assert not Balanced(markup(widget)).seen & {"script"}
    widget.answer(True)
    assert done(widget).error is None
    assert quire.Ledger(tmp_path / "out").summary().quarantined == 0


def test_without_a_kernel_a_notebook_shows_all_of_it_as_a_page_and_as_text(source: Path, dest: Path) -> None:
    widget = inspector(dest)
    widget.look(f"file://{source}/bad0.xml")
    bundle = done(widget)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    page = Balanced(bundle["text/html"])
    assert page.open == []
    assert not page.seen & {"script", "link", "iframe", "object", "button", "input"}
    words = text_of(bundle["text/html"])
    for part in ("files gathered", "1–20 of 35 rows", "Quarantined: 5 files, by reason", widget.code):
        assert part in words
        assert part in bundle["text/plain"]
    assert len(re.findall(r'<img [^>]*alt="[^"]{20,}"', bundle["text/html"])) == 2, "the commits and the file, each with its name"
    assert bundle["text/plain"] == repr(widget)


def test_equal_ledgers_have_equal_outputs(dest: Path) -> None:
    first, second = (inspector(dest)._repr_mimebundle_() for _ in range(2))
    for kind in ("text/plain", "text/html"):
        assert first[kind] == second[kind]


def test_the_keyboard_goes_from_top_to_bottom_and_every_field_has_a_label(dest: Path) -> None:
    widget = inspector(dest)
    stops = (ipywidgets.Text, ipywidgets.Dropdown, ipywidgets.Button)
    order = [w._dom_classes[0].removeprefix("quire-") for w in walk(widget) if isinstance(w, stops)]
    look = ["refresh-button", "path", "status", "find-button", "first-button", "previous-button", "next-button", "look-cancel-button"]
    change = ["reason", "source", "retry-button", "forget-button", "why", "yes-button", "no-button"]
    assert order == [*look, "file", "look-button", *change, "last-yes-button", "last-no-button", "change-cancel-button"]
    assert all(one(widget, f"quire-{name}").description for name in ("path", "status", "file", "reason", "why"))


def test_enter_in_the_path_finds(dest: Path) -> None:
    widget = inspector(dest)
    one(widget, "quire-path").value = "bad0"
    ended = threading.Event()
    widget.observe(lambda change: ended.set() if change["new"] == "done" else None, "state")
    one(widget, "quire-path")._handle_custom_msg({"event": "submit"}, [])
    assert ended.wait(30)
    assert names(widget) == ["bad0.xml"]
