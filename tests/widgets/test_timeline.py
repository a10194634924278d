"""The table's widget: what it shows, how one moves in it, and the history of a record, driven as a user or a script drives it."""

from __future__ import annotations

import html
import re
import threading
from pathlib import Path
from typing import Any

import ipywidgets
import pyarrow as pa
import pytest
from ipywidgets.widgets.widget import _instances

import quire
from pages import Balanced, click, everything, markup, one, text_of, walk
from quire.table import slices
from quire_widgets import TableTimeline

SECRET = "hunter2hunter2"
HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}


def trips(*rows: tuple[str, str, int, float]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(("id", "city", "ts", "fare"), row, strict=True)) for row in rows])


def create(folder: Path, kind: str = "copy_on_write") -> quire.Table:
    return quire.Table.create(folder, key="id", partition_by="city", ordering="ts", type=kind)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> quire.Table:
    """Seven instants: updates in logs, a compaction, a savepoint, and a plan of a compaction; no test writes into it."""
    made = create(tmp_path_factory.mktemp("table") / "trips", "merge_on_read")
    made.upsert(trips(("a", "sf", 0, 1.0), ("b", "sf", 0, 1.0), ("c", "la", 0, 1.0)), **HERE)
    for ts in (1, 2):
        made.upsert(trips(("a", "sf", ts, 1.0 + ts)), **HERE)
    made.compact(**HERE)
    made.savepoint()
    made.upsert(trips(("a", "sf", 3, 9.0)), **HERE)
    made.delete(trips(("a", "sf", 4, 0.0)), **HERE)
    made.schedule_compaction()
    return made


def done(widget: TableTimeline, state: str = "done") -> TableTimeline:
    assert widget.wait(60), f"still {widget.state}"
    assert widget.state == state, widget.error
    return widget


def drawn(widget: TableTimeline, kind: str) -> list[tuple[str, str]]:
    """Where the buttons of the picture stand, and what is on them."""
    return [(w.layout.grid_area, w.description) for w in walk(widget) if f"quire-{kind}" in w._dom_classes]


def pictured(widget: TableTimeline, kind: str, words: str) -> Any:
    """The button of the picture whose description begins so."""
    return next(w for w in walk(widget) if f"quire-{kind}" in w._dom_classes and w.tooltip.startswith(words))


def options(widget: TableTimeline, name: str) -> list[str]:
    return [label for label, _ in one(widget, f"quire-{name}-list").options]


# ------------------------------------------------------------------------------------------------------------------ what it shows


def test_instants_stand_in_lanes_and_slices_below_them_for_as_long_as_they_counted(table: quire.Table) -> None:
    widget = TableTimeline(table)
    assert (widget.state, widget.error) == ("idle", None)
    summary = text_of(one(widget, "quire-summary").value)
    for words in ("7 instants", "2, in 2 partitions", "superseded slices"):
        assert words in re.sub(r"\s+", " ", summary)
    assert "instants 1–7 of 7, file groups 1–2 of 2" in text_of(one(widget, "quire-where").value)
    lanes = [text_of(w.value) for w in one(widget, "quire-lanes").children if isinstance(w, ipywidgets.HTML)]
    assert [name for name in lanes if name in slices.LANES] == ["deltacommit", "compaction", "savepoint"]
    upserts, compaction, savepoint = ("2 / 2", "2 / 3", "2 / 4", "2 / 6", "2 / 7"), "3 / 5", "4 / 5"
    assert dict(drawn(widget, "instant")) == {**dict.fromkeys((*upserts, compaction, savepoint), "●"), "3 / 8": "○"}
    areas = [area for area, _ in drawn(widget, "slice")]
    assert areas == ["5 / 2 / 6 / 9", "6 / 2 / 7 / 5", "6 / 5 / 7 / 9"], "la was never compacted"
    assert drawn(widget, "slice")[2][1].endswith("+2"), "two logs"


def test_a_click_on_an_instant_shows_its_numbers_and_its_slices(table: quire.Table) -> None:
    widget = TableTimeline(table)
    pictured(widget, "instant", options(widget, "instant")[-1]).click()
    details = text_of(one(widget, "quire-details").value)
    assert "and began 2 slices" in details
    assert "deltacommit" in details
    assert "upsert" in details
    assert one(widget, "quire-instant-list").value in details, "the list says it, too"
    marked = [w for w in walk(widget) if "quire-instant" in w._dom_classes and w.layout.border_top.startswith("3px")]
    assert len(marked) == 1, "and the picture"


def test_a_click_on_a_slice_shows_its_files_and_one_on_a_record_its_whole_history(table: quire.Table) -> None:
    widget = TableTimeline(table)
    pictured(widget, "slice", "city=sf").click()
    done(widget)
    details = text_of(one(widget, "quire-details").value)
    assert "Slice of city=sf" in details
    assert "superseded at" in details
    assert details.count(".log.") == 2
    assert options(widget, "record") == ["choose one of its first 2", "a", "b"]
    one(widget, "quire-record-list").value = "a"
    told = done(widget).result
    assert told.versions.equals(table.history("a").versions)
    assert told.versions["op"].tolist() == ["i", "u", "u", "u", "d"]
    history = text_of(one(widget, "quire-history").value)
    assert "fare: 1.0 → 2.0" in history
    assert "deleted" in history
    assert one(widget, "quire-key").value == "a"
    touched = [area for area, words in drawn(widget, "instant") if words.startswith("◆")]
    assert touched == ["2 / 2", "2 / 3", "2 / 4", "2 / 6", "2 / 7"], "its writes are marked, and not the compaction"
    assert [area for area, words in drawn(widget, "slice") if words.startswith("◆")] == ["6 / 2 / 7 / 5", "6 / 5 / 7 / 9"]


def test_without_the_mouse_the_lists_choose_the_same(table: quire.Table) -> None:
    widget = TableTimeline(table)
    one(widget, "quire-slice-list").value = one(widget, "quire-slice-list").options[1][1]
    assert "Slice of city=la" in text_of(one(done(widget), "quire-details").value)
    one(widget, "quire-instant-list").value = one(widget, "quire-instant-list").options[1][1]
    assert "compaction" in text_of(one(widget, "quire-details").value), "the newest one is the plan"
    assert one(widget, "quire-slice-list").value == "", "one is chosen, not both"
    assert all(w.tabbable is False for w in walk(widget) if {"quire-instant", "quire-slice"} & {*w._dom_classes})


def test_a_script_chooses_by_name(table: quire.Table) -> None:
    widget = TableTimeline(table)
    name = slices.look(table).groups[1].periods[-1].slice.logs[1]
    widget.show_slice(name)
    assert done(widget).result.slice.logs[1] == name
    with pytest.raises(quire.UsageError, match="is not a file of"):
        widget.show_slice("city=sf/none.parquet")
    with pytest.raises(quire.UsageError, match="is not in the picture"):
        widget.show_instant("20200101000000000")
    widget.show_instant(table.timeline()["instant"][0])
    assert "deltacommit" in text_of(one(widget, "quire-details").value)


# ------------------------------------------------------------------------------------------------------------------ to move in it


def test_one_goes_back_and_forth_in_time_and_the_code_gives_the_same_rows(table: quire.Table) -> None:
    widget, whole = TableTimeline(table, last=3), table.timeline()
    buttons = {name: one(widget, f"quire-{name}-button") for name in ("older", "newer", "last")}
    assert [b.disabled for b in buttons.values()] == [False, True, True]
    seen = [widget.result]
    for words in ("instants 2–4 of 7", "instants 1–3 of 7"):
        click(widget, "older")
        seen.append(done(widget).result)
        assert words in text_of(one(widget, "quire-where").value)
        there: dict[str, Any] = {}
        exec(widget.code, there)
        assert there["result"].equals(widget.result)
    assert [b.disabled for b in buttons.values()] == [True, False, False]
    assert {*seen[0]["instant"], *seen[1]["instant"], *seen[2]["instant"]} == {*whole["instant"]}
    click(widget, "newer")
    assert "instants 4–6 of 7" in text_of(one(done(widget), "quire-where").value)
    click(widget, "last")
    assert done(widget).result.equals(seen[0])


def test_file_groups_come_in_pages_and_by_partition(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert(trips(*((f"k{i}", f"c{i:02}", 0, 1.0) for i in range(25))), **HERE)
    widget = TableTimeline(table, page_size=10)
    assert "file groups 1–10 of 25" in text_of(one(widget, "quire-where").value)
    click(widget, "next")
    click(widget, "next")
    assert "file groups 21–25 of 25" in text_of(one(widget, "quire-where").value)
    assert one(widget, "quire-next-button").disabled
    assert len(drawn(widget, "slice")) == 5
    one(widget, "quire-partition").value = "c1"
    assert "file groups 1–10 of 10 with 'c1' in their partition" in text_of(one(widget, "quire-where").value)
    widget.partition = "nowhere"
    assert "no file groups" in text_of(one(widget, "quire-where").value)
    assert drawn(widget, "slice") == []


def test_a_large_table_makes_a_small_page(tmp_path: Path) -> None:
    """Hundreds of instants: the page has as many parts as its window and its page of groups allow, and keeps none that it had before."""
    table = create(tmp_path / "t")
    for ts in range(4):
        table.upsert(trips(*((f"k{i}", f"c{i:02}", ts, 1.0) for i in range(12))), **HERE)
    for i in range(200):
        (tmp_path / "t/.hoodie" / f"202001010000{i:05}.rollback").touch()
    widget = TableTimeline(table, last=4, page_size=5)
    assert "204 instants" in text_of(one(widget, "quire-summary").value)
    assert (len(drawn(widget, "instant")), len(drawn(widget, "slice"))) == (4, 20)
    before = len(_instances)
    for _ in range(2):
        click(widget, "next")
        click(widget, "first")
    assert len(_instances) == before
    assert len(widget._repr_mimebundle_()["text/html"]) < 40_000


def test_it_shows_what_others_have_committed_when_it_is_asked_and_keeps_what_was_chosen(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert(trips(("a", "sf", 0, 1.0)), **HERE)
    widget = TableTimeline(tmp_path / "t")
    pictured(widget, "slice", "city=sf").click()
    chosen = done(widget).result.name
    table.upsert(trips(("a", "sf", 1, 2.0)), **HERE)
    click(widget, "refresh")
    assert "instants 1–2 of 2" in text_of(one(done(widget), "quire-where").value)
    assert one(widget, "quire-slice-list").value == chosen
    assert "superseded at" in text_of(one(widget, "quire-details").value)


def test_older_instants_stay_where_they_are_when_others_commit(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    for ts in range(4):
        table.upsert(trips(("a", "sf", ts, 1.0)), **HERE)
    widget = TableTimeline(table, last=2)
    click(widget, "older")
    before = done(widget).result["instant"].tolist()
    table.upsert(trips(("a", "sf", 5, 1.0)), **HERE)
    click(widget, "refresh")
    assert done(widget).result["instant"].tolist() == before
    assert "instants 1–2 of 5" in text_of(one(widget, "quire-where").value)


def test_pages_turn_while_it_looks(table: quire.Table) -> None:
    """In two threads: whatever comes first, the picture is that of the last one, each part of it once."""
    widget = TableTimeline(table, page_size=1)
    for number in range(10):
        click(widget, "refresh")
        click(widget, ("next", "first")[number % 2])
        done(widget)
        shown = one(widget, "quire-lanes").children
        assert len({part.model_id for part in shown}) == len(shown), "none is closed"
        assert f"file groups {2 - number % 2}–{2 - number % 2} of 2" in text_of(one(widget, "quire-where").value)
        assert len(drawn(widget, "slice")) == (2 if number % 2 == 0 else 1)


def test_a_table_as_of_an_instant_is_shown_as_it_was(table: quire.Table) -> None:
    instant = table.timeline()["instant"][1]
    widget = TableTimeline(table.as_of(instant))
    assert f"as of {instant}" in text_of(one(widget, "quire-summary").value)
    widget.look("a")
    assert done(widget).result.versions["op"].tolist() == ["i", "u"]
    there: dict[str, Any] = {}
    exec(widget.code, there)
    assert there["result"].versions.equals(widget.result.versions)


def test_a_table_without_a_write_is_shown_empty(tmp_path: Path) -> None:
    widget = TableTimeline(create(tmp_path / "t"))
    assert "nothing on the timeline, no file groups" in text_of(one(widget, "quire-where").value)
    widget.look("a")
    assert "not in the table" in text_of(one(done(widget), "quire-history").value)
    assert Balanced(markup(widget)).open == []


# ---------------------------------------------------------------------------------------------------------------- what goes wrong


def test_what_fails_is_one_line_and_what_was_shown_stays(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert(trips(("a", "sf", 0, 1.0)), **HERE)
    widget = TableTimeline(table)
    before = one(widget, "quire-where").value
    click(widget, "history")
    assert "type the key of a record" in text_of(markup(widget))
    assert one(widget, "quire-key").value == ""
    (gone,) = (path for path in (tmp_path / "t").rglob("*.parquet") if not path.name.startswith("."))
    gone.unlink()
    pictured(widget, "slice", "city=sf").click()
    assert isinstance(done(widget, "failed").error, quire.RefusedError)
    assert "was cleaned since the table was looked at. Refresh." in text_of(one(widget, "quire-message").value)
    for commit in (tmp_path / "t/.hoodie").glob("*.commit"):
        commit.write_bytes(b"{damaged <b>")
    click(widget, "refresh")
    done(widget, "failed")
    assert 'role="alert"' in one(widget, "quire-message").value
    assert one(widget, "quire-where").value == before
    assert "Traceback" not in everything(widget)
    with pytest.raises(quire.UsageError, match="is not a table"):
        TableTimeline(tmp_path)
    with pytest.raises(quire.UsageError, match="opened with its own"):
        TableTimeline(table, {"account_key": SECRET})
    with pytest.raises(quire.UsageError, match="not a whole number"):
        TableTimeline(table, last=0)


def test_the_last_of_what_was_asked_for_meanwhile_follows(table: quire.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    widget, asked = TableTimeline(table), list[str]()
    real = quire.Table.history

    def slow(of: quire.Table, key: Any, **more: Any) -> Any:
        asked.append(key)
        if len(asked) == 1:  # in the call's thread, while it is under way
            for name in ("b", "c"):
                widget.look(name)
        return real(of, key, **more)

    monkeypatch.setattr(quire.Table, "history", slow)
    widget.look("a")
    assert done(widget).result.key == "c"
    assert asked == ["a", "c"]


def test_an_observer_that_fails_is_told_and_ends_nothing(table: quire.Table) -> None:
    widget = TableTimeline(table)

    def fail(change: Any) -> None:
        raise ValueError("mine <b>")

    widget.observe(fail, "result")
    widget.look("a")
    assert "ValueError: mine <b>" in text_of(one(done(widget, "failed"), "quire-message").value)
    widget.unobserve(fail, "result")
    widget.look("a")
    assert done(widget).result.key == "a"


# ------------------------------------------------------------------------------------------------------------------ as it is shown


def test_hostile_partitions_and_keys_are_text_wherever_they_are_shown(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>&amp;'\"\u202e\x1b"
    table = quire.Table.create(tmp_path / "t", key="id", partition_by="city", hive_style=False)
    table.upsert(trips((evil, evil.replace("/", ""), 0, 1.0), (f"{evil}2", "sf", 0, 1.0)), **HERE)
    widget = TableTimeline(table)
    one(widget, "quire-slice-list").value = one(widget, "quire-slice-list").options[1][1]
    done(widget)
    one(widget, "quire-record-list").value = one(widget, "quire-record-list").options[1][1]
    assert done(widget).result.key.startswith(evil)
    labels = [label for name in ("instant", "slice", "record") for label in options(widget, name)]
    tooltips = [w.tooltip for w in walk(widget) if isinstance(w, ipywidgets.Button) and w.tooltip]
    assert not {"\u202e", "\x1b"} & {*"".join([markup(widget), *labels, *tooltips])}, "it would turn the line round"
    assert "<script" not in markup(widget)
    assert Balanced(markup(widget)).open == []
    assert not Balanced(markup(widget)).seen & {"script"}


def test_without_a_kernel_a_notebook_shows_all_of_it_as_a_page_and_as_text(table: quire.Table) -> None:
    widget = TableTimeline(table)
    pictured(widget, "slice", "city=sf").click()
    done(widget)
    widget.look("a")
    bundle = done(widget)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    page = Balanced(bundle["text/html"])
    assert page.open == []
    assert not page.seen & {"script", "link", "iframe", "object", "button", "input"}
    words = text_of(bundle["text/html"])
    for part in ("instants 1–7 of 7", "deltacommit", "Slice of city=sf", "Record a.", widget.code):
        assert part in words
        assert part in bundle["text/plain"]
    assert bundle["text/html"].count('colspan="3"') == 1, "the first slice of sf"
    assert bundle["text/plain"] == repr(widget)


def test_equal_tables_have_equal_outputs(table: quire.Table) -> None:
    first, second = (TableTimeline(table)._repr_mimebundle_() for _ in range(2))
    for kind in ("text/plain", "text/html"):
        assert first[kind] == second[kind]


def test_secrets_are_never_shown(table: quire.Table) -> None:
    widget = TableTimeline(table.url, {"account_key": SECRET})
    widget.look("a")
    assert "storage_options=storage_options)" in done(widget).code
    assert SECRET not in everything(widget)
    assert SECRET not in str(widget.get_state())


def test_the_keyboard_goes_from_top_to_bottom_and_every_field_has_a_label(table: quire.Table) -> None:
    widget = TableTimeline(table)
    stops = (ipywidgets.Text, ipywidgets.Dropdown, ipywidgets.Button)
    order = [w._dom_classes[0].removeprefix("quire-") for w in walk(widget) if isinstance(w, stops) and w.tabbable is not False]
    times = ["refresh-button", "older-button", "newer-button", "last-button"]
    groups = ["partition", "first-button", "previous-button", "next-button"]
    assert order == [*times, *groups, "instant-list", "slice-list", "record-list", "key", "history-button"]
    fields = ("partition", "instant-list", "slice-list", "record-list", "key")
    assert all(one(widget, f"quire-{name}").description for name in fields)
    assert html.escape(widget.code) in one(widget, "quire-code").value


def test_enter_in_the_key_reads_its_history(table: quire.Table) -> None:
    widget = TableTimeline(table)
    one(widget, "quire-key").value = "b"
    ended = threading.Event()
    widget.observe(lambda change: ended.set() if change["new"] == "done" else None, "state")
    one(widget, "quire-key")._handle_custom_msg({"event": "submit"}, [])
    assert ended.wait(30)
    assert done(widget).result.key == "b"
