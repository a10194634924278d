"""The notebook interface: what the panel and the view of skew do and say, driven as a user or a script drives them, without a browser."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ipywidgets
import pandas as pd
import pytest

import quire
from checker import check
from gathering import documents, gather, look, write
from pages import Balanced, click, everything, markup, one, text_of, walk
from quire.packaging import install
from quire_widgets import ConsolidationPanel, SkewView
from quire_widgets.call import Call

SECRET = "hunter2hunter2"


def panel_of(source: Any = "", dest: Any = "", **settings: Any) -> ConsolidationPanel:
    return ConsolidationPanel(source, dest, spark=quire.LocalRunner(), **settings)


def done(panel: ConsolidationPanel) -> ConsolidationPanel:
    assert panel.wait(60), f"still {panel.state}"
    return panel


def beside(panel: ConsolidationPanel, name: str) -> str:
    """What is said below a field, as text."""
    (row,) = (w for w in walk(panel) if name_of(w) == f"quire-{name}")
    message = row.children[1]
    return text_of(message.value) if message.layout.display != "none" else ""


def name_of(row: Any) -> str:
    children = getattr(row, "children", ())
    classes = getattr(children[0], "_dom_classes", ()) if len(children) == 2 else ()
    return classes[0] if classes else ""


class Slow:
    """A transform that waits in its first file until it is let go."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.__name__ = "slow"

    def __call__(self, content: bytes, file: quire.FileInfo) -> bytes:
        self.began.set()
        assert self.go.wait(60)
        return content


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.go.set()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "in", documents(30))


# ------------------------------------------------------------------------------------------------------------- look, then run


def test_plan_shows_the_facts_the_tasks_and_the_skew_before_anything_is_gathered(source: Path, tmp_path: Path) -> None:
    panel = panel_of(source, tmp_path / "out", planner="hash", parts=4)
    click(panel, "plan")
    assert done(panel).state == "idle"
    assert (len(panel.planned.tasks), panel.result, panel.error) == (12, None, None)
    shown = text_of(one(panel, "quire-plan").value)
    assert "files listed" in shown
    assert "Heaviest: 10 of 12 tasks" in shown
    view = one(panel, "quire-skew")
    assert view.result.verdict in text_of(view.children[0].value)
    assert "<svg" in view.children[0].value
    assert not [p for p in (tmp_path / "out").iterdir() if p.name != "_quire"]


def test_look_says_what_lies_there_and_fills_in_what_takes_it(tmp_path: Path) -> None:
    rows = b"id;name\n1;a\n2;b\n"
    source = write(tmp_path / "in", {**{f"{i:02}.csv": rows for i in range(30)}, "other.zip": b"PK\x03\x04"})
    panel = panel_of(source)
    click(panel, "look")
    done(panel)
    assert panel.found is not None
    assert (panel.found.files, panel.transform, panel.state) == (31, "csv", "idle")
    assert "transform='csv',\n" in panel.code
    assert "delimiter=';'" in panel.code
    told = text_of(one(panel, "quire-look").value)
    assert "CSV (delimiter=';')" in told
    assert "zip archive" in told
    assert "97%" in told
    panel.dest = str(tmp_path / "out")
    panel.run()
    assert done(panel).result.files == 30
    assert quire.Ledger(panel.dest).summary().transform == "csv"
    # Another look takes back what the first one has filled in.
    panel.source = str(write(tmp_path / "lines", {"a.log": b"one, two\nthree\n"}))
    panel.look()
    done(panel)
    assert (panel.transform, "delimiter" in panel.code) == ("lines", False)
    panel.source = str(tmp_path / "nowhere")
    panel.look()
    assert "does not exist" in beside(done(panel), "source")
    assert (panel.state, panel.found) == ("failed", None)
    panel.source = ""
    panel.look()
    assert "is empty" in beside(panel, "source")


def test_run_after_plan_runs_the_plan_that_was_seen(source: Path, tmp_path: Path) -> None:
    panel = panel_of(source, tmp_path / "out")
    panel.plan()
    done(panel)
    write(source, {"late": b"1"})
    panel.run()
    assert done(panel).result.files == 30, "the late file was not in the plan"
    assert (panel.state, panel.planned) == ("done", None)
    assert "files gathered" in text_of(one(panel, "quire-result").value)
    panel.run()
    assert done(panel).result.files == 1
    check(source, tmp_path / "out")


def test_a_run_in_which_nothing_could_be_processed_shows_its_report_and_what_its_code_raises(tmp_path: Path) -> None:
    panel = panel_of(write(tmp_path / "in", {"a.xml": b"<a>", "b.xml": b"<b>"}), tmp_path / "out", transform="xml")
    for first in (True, False):
        panel.run()
        assert (done(panel).state, type(panel.error)) == ("failed", quire.AllQuarantined)
        assert panel.result.all_quarantined
        assert panel.result.quarantined_count == (2 if first else 0)
        assert "ALL QUARANTINED" in text_of(one(panel, "quire-result").value)
        assert "is quarantined in" in repr(panel)
        assert "is quarantined in" in text_of(one(panel, "quire-message").value)
    with pytest.raises(quire.AllQuarantined):
        exec(panel.code, {})


def test_run_with_other_fields_than_the_plan_goes_by_the_fields_and_says_so_beforehand(source: Path, tmp_path: Path) -> None:
    panel = panel_of(source, tmp_path / "out")
    panel.plan()
    done(panel)
    panel.dest = str(tmp_path / "other")
    assert "fields have changed since this plan" in text_of(one(panel, "quire-message").value)
    panel.run()
    assert done(panel).result.files == 30
    check(source, tmp_path / "other")
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()], "the plan that was not run is gone"


def test_looking_twice_leaves_one_plan(source: Path, tmp_path: Path) -> None:
    panel = panel_of(source, tmp_path / "out")
    written = list[int]()
    for _ in range(3):
        panel.plan()
        done(panel)
        written.append(len([p for p in (tmp_path / "out").rglob("*") if p.is_file()]))
    assert written[0] == written[1] == written[2] > 0


def test_a_double_click_runs_once(source: Path, tmp_path: Path, slow: Slow) -> None:
    panel = panel_of(source, tmp_path / "out", transform=slow, function_version="1")
    states = list[str]()
    panel.observe(lambda change: states.append(change["new"]), "state")
    for _ in range(2):
        click(panel, "run")
        click(panel, "plan")
    assert slow.began.wait(30)
    slow.go.set()
    assert done(panel).result.files == 30
    assert states == ["running", "done"]
    assert len(quire.Ledger(tmp_path / "out").inspect.history()) == 2


def test_buttons_can_be_pressed_when_they_mean_something(source: Path, tmp_path: Path, slow: Slow) -> None:
    panel = panel_of(source, tmp_path / "out", transform=slow, function_version="1")
    buttons = [one(panel, f"quire-{name}-button") for name in ("plan", "run", "cancel")]
    assert [b.disabled for b in buttons] == [False, False, True]
    panel.run()
    assert slow.began.wait(30)
    assert [b.disabled for b in buttons] == [True, True, False]
    panel.cancel()
    assert (panel.state, [b.disabled for b in buttons]) == ("cancelling", [True, True, True])
    slow.go.set()
    done(panel)
    assert [b.disabled for b in buttons] == [False, False, True]


def test_progress_says_the_phase_and_how_far_it_is_in_words_too(source: Path, tmp_path: Path) -> None:
    panel = panel_of(source, tmp_path / "out", target_size="100 B")
    told = list[str]()
    one(panel, "quire-progress").observe(lambda change: told.append(change["new"]), "value")
    panel.run()
    done(panel)
    words = "\n".join(map(text_of, told))
    for part in ("listing: ", "gathering: ", "publishing: ", "tasks done: ", "files: 30"):
        assert part in words
    assert any("<progress" in page and 'max="' in page for page in told)
    assert one(panel, "quire-progress").layout.display == "none", "it goes when it is over"


def test_results_and_events_can_be_had_from_python(source: Path, tmp_path: Path) -> None:
    panel, seen = panel_of(), list[Any]()
    panel.observe(lambda change: seen.append(change["new"]), "result")
    panel.source, panel.dest, panel.planner, panel.parts, panel.target_size = str(source), str(tmp_path / "out"), "hash", 3, "1 MiB"
    panel.run()
    done(panel)
    assert seen == [panel.result]
    assert isinstance(panel.result, quire.Report)
    assert one(panel, "quire-source").value == str(source)
    one(panel, "quire-source").value = "/elsewhere"
    assert panel.source == "/elsewhere"
    assert panel.wait(0), "nothing is under way"


def test_a_space_that_is_pasted_with_a_path_is_none_of_its_name(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")  # where a path that begins with a space would lead
    panel = ConsolidationPanel(spark=quire.LocalRunner())
    panel._fields["source"].input.value = f" {source}"
    panel._fields["dest"].input.value = f"  {tmp_path / 'out'} "
    assert panel._fields["dest"].input.value.endswith(" "), "it stays in the field, where it may be within a name that is being typed"
    assert (panel.source, panel.dest) == (str(source), str(tmp_path / "out"))
    panel.run()
    assert panel.wait(60)
    assert panel.state == "done", panel.error
    assert quire.Ledger(tmp_path / "out").summary().files == panel.result.files > 0
    assert not list((tmp_path / "cwd").iterdir())
    panel.dest = f"{tmp_path}/space "
    assert (panel.dest, panel._fields["dest"].input.value) == (f"{tmp_path}/space ",) * 2, "Python says what it means"


def test_files_that_were_set_aside_are_listed_with_the_reason(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {**documents(4, "xml"), **{f"bad{i}.xml": b"<a>" for i in range(7)}})
    panel = panel_of(source, tmp_path / "out", transform="xml")
    panel.run()
    shown = text_of(one(done(panel), "quire-result").value)
    assert "Quarantined: 7 files" in shown
    assert all(f"bad{i}.xml" in shown for i in range(7))
    assert "malformed XML" in shown


def test_settings_of_consolidate_pass_through_unchanged(source: Path, tmp_path: Path) -> None:
    panel = panel_of(source, tmp_path / "out", include=["*1.txt"], layout="directories", max_quarantined=3)
    panel.run()
    assert done(panel).result.files == 3
    assert (tmp_path / "out/d1").is_dir(), "layout= is quire's, not the widget's"


# ------------------------------------------------------------------------------------------------------------------- cancel


@pytest.mark.parametrize("options", [{}, {"storage_options": {"key": SECRET}}])
def test_cancel_leaves_the_job_open_says_how_to_go_on_and_run_goes_on(
    source: Path, tmp_path: Path, slow: Slow, options: dict[str, Any]
) -> None:
    panel = panel_of(source, tmp_path / "out", transform=slow, function_version="1", planner="directory", **options)
    panel.run()
    assert slow.began.wait(30)
    began = time.monotonic()
    click(panel, "cancel")
    assert panel.state == "cancelling"
    slow.go.set()
    assert done(panel).state == "cancelled"
    assert time.monotonic() - began < 5, "soon, on a busy machine too"
    (job,) = quire.Ledger(tmp_path / "out").summary().open_jobs
    message = one(panel, "quire-message").value
    assert "Run again goes on where it stopped" in text_of(message)
    given_up = f"quire.recover({str(tmp_path / 'out')!r}, abort='open'{', storage_options=storage_options' if options else ''}"
    assert given_up in re.sub(r"\s+", " ", text_of(message)).replace("( ", "(")
    assert "<textarea readonly" in message, "to be copied"
    assert (panel.result, panel.error) == (None, None)
    panel.run()
    assert done(panel).result.jobs == (job,)
    check(source, tmp_path / "out", lambda content: content + b"\n")


def test_the_code_that_gives_a_cancelled_job_up_does_so(source: Path, tmp_path: Path, slow: Slow) -> None:
    panel = panel_of(source, tmp_path / "out", transform=slow, function_version="1")
    panel.run()
    assert slow.began.wait(30)
    panel.cancel()
    slow.go.set()
    done(panel)
    code = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", one(panel, "quire-message").value, re.DOTALL)
    assert code
    exec(html.unescape(code[1]), {"quire": quire})
    assert quire.Ledger(tmp_path / "out").summary().open_jobs == ()


def when(panel: ConsolidationPanel, phase: str) -> None:
    """Cancel as soon as a phase shows."""
    one(panel, "quire-progress").observe(lambda change: panel.cancel() if f"{phase}: " in change["new"] else None, "value")


def test_cancelled_after_the_commit_it_says_that_it_is_committed(source: Path, tmp_path: Path) -> None:
    panel = panel_of(source, tmp_path / "out", target_size="100 B")
    when(panel, "publishing")
    panel.run()
    assert done(panel).state == "cancelled"
    said = text_of(one(panel, "quire-message").value)
    assert "the files are committed" in said
    assert f"quire.recover({str(tmp_path / 'out')!r}" in "".join(said.split()), "a long path has a line of its own"
    quire.recover(tmp_path / "out")
    check(source, tmp_path / "out")


def test_cancelled_while_listing_nothing_is_open(source: Path, tmp_path: Path) -> None:
    panel = panel_of(source, tmp_path / "out")
    when(panel, "listing")
    panel.run()
    assert done(panel).state == "cancelled"
    assert "no job is open" in text_of(one(panel, "quire-message").value)
    panel.plan()
    done(panel)
    assert "Cancelled while looking: nothing was changed." in text_of(one(panel, "quire-message").value)
    assert (panel.state, panel.planned) == ("cancelled", None)


def test_cancelled_too_late_it_says_so_and_shows_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = panel_of("/data/in", "/data/out")

    def finish(*args: Any, **settings: Any) -> quire.Report:
        panel.cancel()
        return quire.Report("/data/in", "/data/out", files=7)

    monkeypatch.setattr(quire, "consolidate", finish)
    panel.run()
    assert (done(panel).state, panel.result.files) == ("done", 7)
    assert "over before it could be cancelled" in text_of(one(panel, "quire-message").value)


def test_cancel_when_nothing_is_under_way_does_nothing() -> None:
    panel = panel_of()
    panel.cancel()
    assert panel.state == "idle"


# ------------------------------------------------------------------------------------------------------------- what goes wrong


def test_empty_fields_are_said_beside_them_before_anything_runs() -> None:
    panel = panel_of(" ", "")
    click(panel, "run")
    assert panel.state == "failed"
    assert "source is empty" in beside(panel, "source")
    assert "destination is empty" in beside(panel, "dest")
    assert isinstance(panel.error, quire.UsageError)
    assert 'role="alert"' in everything(panel)
    panel.source = "/data"
    assert beside(panel, "source") == "", "it goes when the field changes"
    assert beside(panel, "dest")


@pytest.mark.parametrize(
    ("field", "wrong", "word"),
    [
        ("source", {"source": "/no/<b>such</b>"}, "/no/<b>such</b> does not exist"),
        ("dest", {"dest": "{source}/below"}, "/below"),
        ("target-size", {"target_size": "a lot"}, "'a lot', which is not a size"),
        ("parts", {"planner": "hash", "parts": 0}, "parts=0"),
    ],
)
def test_a_wrong_field_is_said_beside_it(source: Path, tmp_path: Path, field: str, wrong: dict[str, Any], word: str) -> None:
    panel = panel_of(source, tmp_path / "out")
    for name, value in wrong.items():
        setattr(panel, name, value.replace("{source}", str(source)) if isinstance(value, str) else value)
    panel.plan()
    assert done(panel).state == "failed"
    assert word in beside(panel, field)
    assert "<b>" not in markup(panel)
    assert one(panel, "quire-message").value == "", "not said twice"


def test_an_error_about_no_field_stands_below_the_buttons(source: Path, tmp_path: Path) -> None:
    panel = panel_of(source, tmp_path / "out", compression="zip")
    panel.plan()
    assert done(panel).state == "failed"
    assert "unknown compression 'zip'" in text_of(one(panel, "quire-message").value)


def test_what_is_unexpected_is_one_line_and_the_exception_is_kept(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **settings: Any) -> None:
        raise ZeroDivisionError("of\nsome <i>sort</i>")

    monkeypatch.setattr(quire, "consolidate", fail)
    panel = panel_of(source, tmp_path / "out")
    panel.run()
    assert (done(panel).state, type(panel.error)) == ("failed", ZeroDivisionError)
    assert "ZeroDivisionError: of some <i>sort</i>" in text_of(one(panel, "quire-message").value)
    assert "<i>" not in markup(panel)
    assert "Traceback" not in everything(panel)


def test_an_observer_that_raises_does_not_stop_the_panel(source: Path, tmp_path: Path) -> None:
    panel = panel_of(source, tmp_path / "out")

    def fail(change: Any) -> None:
        raise KeyError("mine")

    panel.observe(fail, "result")
    panel.run()
    assert done(panel).state == "failed"
    assert "KeyError" in text_of(one(panel, "quire-message").value)
    assert panel.result.files == 30


def test_a_call_that_cannot_begin_has_failed_and_is_not_under_way_for_ever(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    panel, begun = panel_of(source, tmp_path / "out"), []

    def fail(change: Any) -> None:
        if change["new"] == "running":
            raise KeyError("mine")

    panel.observe(fail, "state")
    panel.run()
    assert (done(panel).state, type(panel.error), text_of(one(panel, "quire-progress").value)) == ("failed", KeyError, "")
    panel.unobserve(fail, "state")

    def too_many(call: Any) -> None:
        begun.append(call)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Call, "start", too_many)
    panel.run()
    assert (done(panel).state, str(panel.error), len(begun)) == ("failed", "can't start new thread", 1)
    monkeypatch.undo()
    panel.run()
    assert (done(panel).state, panel.result.files) == ("done", 30)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"trasform": "xml"}, "Did you mean 'transform'"),
        ({"every": "1 min"}, "every= is not for a panel"),
        ({"planner": "balance"}, "Did you mean 'balanced'"),
        ({"transform": "yaml"}, "unknown transform"),
        ({"source": ["/a", "/b"]}, "source is one path"),
    ],
)
def test_wrong_settings_are_refused_as_quire_refuses_them(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(quire.UsageError, match=re.escape(word)):
        ConsolidationPanel(**settings)
    panel = panel_of()
    if "planner" in settings:
        with pytest.raises(quire.UsageError, match=word):
            panel.planner = settings["planner"]
        assert panel.planner == "balanced"


# ------------------------------------------------------------------------------------------------------------- the same as Python


def shout(content: bytes, file: quire.FileInfo) -> bytes:
    return content.upper()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"planner": "hash", "parts": 3, "target_size": "1 KiB", "include": ["*'1*.txt", "*2.txt"], "max_quarantined": 3},
        {"transform": shout, "function_version": "1"},
        {"storage_options": {}, "layout": "directories"},
    ],
)
def test_the_code_is_python_that_does_the_same(source: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    panel = panel_of(source, tmp_path / "it's", **settings)
    space: dict[str, Any] = {"shout": shout, "storage_options": {}}
    exec(panel.code, space)
    expected = gather(source, tmp_path / "expected", **settings)
    assert (space["report"].files, space["report"].data_files) == (expected.files, expected.data_files)
    assert panel.plan() is None
    assert done(panel).planned is not None
    assert not len(panel.planned.tasks), "the code has done all of it"


def test_the_code_says_what_differs_from_the_defaults_and_follows_the_fields() -> None:
    panel = ConsolidationPanel("/data/in", "/data/out", hidden=False)
    assert panel.code == "import quire\n\nreport = quire.consolidate('/data/in', '/data/out')"
    one(panel, "quire-planner").value = "hash"
    one(panel, "quire-parts").value = 16
    assert "planner='hash', parts=16" in panel.code
    assert html.escape(panel.code) in one(panel, "quire-code").value
    panel.planner = "directory"
    assert "parts" not in panel.code
    assert one(panel, "quire-parts").disabled


def test_secrets_are_never_shown(source: Path, tmp_path: Path) -> None:
    options = {name: {"account_key": SECRET} for name in ("storage_options", "source_options", "dest_options")}
    panel = panel_of(source, tmp_path / "out", **options)
    assert "storage_options=storage_options, " in panel.code.replace("\n   ", "")
    for act in (panel.plan, panel.run):
        act()
        done(panel)
        assert SECRET not in everything(panel)
    assert SECRET not in str(panel.get_state())
    assert SECRET not in panel_of(source, tmp_path / "out", storage_options=SECRET).code, "a token where options belong"
    url = panel_of(f"abfs://box@account/in?sig={SECRET}", "/data/out")
    assert SECRET not in url.code + repr(url) + markup(url)


# ------------------------------------------------------------------------------------------------------------- as it is shown


@pytest.mark.parametrize("field", ["source", "dest", "target_size"])
def test_html_in_any_field_is_text_in_what_the_panel_answers(source: Path, tmp_path: Path, field: str) -> None:
    """What is typed comes back in errors beside the field, in the code to copy and in the static page."""
    evil = "<img src=x onerror=alert(1)>'\"</code></script><script>alert(2)</script>\u202e"
    panel = panel_of(source, tmp_path / "out")
    setattr(panel, field, {"source": f"/no/{evil}", "dest": f"file://{evil}/x"}.get(field, evil))
    for act in (panel.plan, panel.run):
        act()
        assert done(panel).state == "failed"
        page = Balanced(markup(panel))
        assert not page.seen & {"img", "script"}
        assert page.open == []
        assert "\u202e" not in markup(panel)
        assert "<img src=x" in beside(panel, {"target_size": "target-size"}.get(field, field))


def test_hostile_names_are_text_wherever_they_are_shown(tmp_path: Path) -> None:
    evil = "<script>alert(1)<\\x>&amp;\n\u202e"
    source = write(tmp_path / "in", {f"{evil}/{evil}{i}.xml": b"<a>" if i % 2 else b"<a/>" for i in range(14)})
    panel = panel_of(source, tmp_path / f"out{evil[:-2]}", transform="xml", planner="hash", parts=2)
    for act in (panel.plan, panel.run):
        act()
        assert done(panel).error is None
        assert "<script" not in markup(panel)
        assert "\u202e" not in markup(panel), "it would turn the line round"
        assert "&lt;script&gt;" in markup(panel)
    view = SkewView({evil: 500, "b": 10, "c": 10})
    assert "<script" not in markup(view)


def test_without_a_kernel_a_notebook_shows_the_fields_the_verdict_the_result_and_the_code(source: Path, tmp_path: Path) -> None:
    panel = panel_of(source, tmp_path / "out", planner="hash", parts=4)
    panel.run()
    bundle = done(panel)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    page = Balanced(bundle["text/html"])
    assert page.open == []
    assert not page.seen & {"script", "link", "iframe", "object"}
    words = text_of(bundle["text/html"])
    assert f'alt="{panel.result.skew.verdict}: ' in bundle["text/html"], "the picture, with a name"
    for part in (str(source), "hash", "files gathered", panel.result.skew.explanation, panel.code, "state"):
        assert part in words
        assert part in bundle["text/plain"] or part in ("files gathered", "state")
    assert repr(panel.result) in bundle["text/plain"]
    assert bundle["text/plain"] == panel._repr_mimebundle_()["text/plain"]


def test_equal_panels_have_equal_outputs(source: Path, tmp_path: Path) -> None:
    bundles = list[dict[str, Any]]()
    for _ in range(2):
        panel = panel_of(source, tmp_path / "out")
        panel.plan()
        bundles.append(done(panel)._repr_mimebundle_())
    for kind in ("text/plain", "text/html"):
        assert bundles[0][kind] == bundles[1][kind]


def test_the_keyboard_goes_through_the_form_from_top_to_bottom() -> None:
    panel = panel_of()
    stops = (ipywidgets.Text, ipywidgets.Dropdown, ipywidgets.IntText, ipywidgets.Button)
    order = [w._dom_classes[0] for w in walk(panel) if isinstance(w, stops)]
    fields = ["source", "dest", "planner", "parts", "transform", "target-size"]
    assert order == [f"quire-{name}" for name in (*fields, "look-button", "plan-button", "run-button", "cancel-button")]
    assert all(one(panel, f"quire-{name}").description for name in fields), "a label that the browser connects with its field"
    assert "data-lm-suppress-shortcuts" in one(panel, "quire-code").value, "else Ctrl+A selects the notebook's cells"


@pytest.mark.parametrize("field", ["source", "dest", "target-size"])
def test_enter_in_a_text_looks_at_what_was_typed_to_the_last_letter(source: Path, tmp_path: Path, field: str) -> None:
    panel = panel_of(source, "")
    one(panel, f"quire-{field}")._handle_custom_msg({"event": "submit"}, [])
    panel.dest = str(tmp_path / "out")  # the browser holds the last letters back, and Enter overtakes them
    until = time.monotonic() + 30
    while panel.planned is None and time.monotonic() < until:
        time.sleep(0.02)
    assert len(done(panel).planned.tasks) == 1


# --------------------------------------------------------------------------------------------------------------------- SkewView


def test_a_view_of_counts_has_the_picture_the_verdict_and_the_heaviest_parts() -> None:
    view = SkewView({f"part {i}": 100 + i for i in range(15)} | {"big": 900})
    assert view.result.verdict == "skewed"
    page = view.children[0].value
    assert re.search(r'role="img" aria-label="skewed: [^"]*&#x27;big&#x27;', page), "said to who does not see it"
    assert "max-width:100%" in page
    assert "Heaviest: 10 of 16 parts" in text_of(page)
    bundle = view._repr_mimebundle_()
    assert bundle["text/plain"].splitlines()[1:4] == [
        "heaviest: 10 of 16 parts",
        "part     files  expected  ratio  flag",
        "big        900     156.6   5.75  heavy",
    ]
    assert (bundle["text/plain"], view.code) == (repr(view), "quire.skew.check(counts)")
    assert Balanced(bundle["text/html"]).open == []


def test_a_view_takes_whatever_has_parts(source: Path, tmp_path: Path) -> None:
    counts = [5, 7, 9]
    plan = look(source, tmp_path / "out", planner="hash", parts=2)
    report = plan.run(progress=False)
    for what, code, parts in (
        (quire.skew.check(counts), "result", 3),
        (pd.Series(counts), "quire.skew.check(counts)", 3),
        (plan, "plan.skew()", 6),
        (report, "report.skew", 6),
        (quire.Ledger(tmp_path / "out"), "ledger.skew()", 6),
        (gather(source, tmp_path / "out", planner="hash", parts=2), "report.skew", 0),
    ):
        view = SkewView(what)
        assert (view.code, view.result.parts) == (code, parts)
        assert isinstance(view.result, quire.skew.SkewResult)
    assert SkewView(counts, unit="bytes").code == "quire.skew.check(counts, unit='bytes')"
    assert "9 B" in repr(SkewView(counts, unit="bytes"))


def test_a_view_that_is_set_to_something_else_draws_that_and_refuses_nonsense() -> None:
    view = SkewView([100, 100, 100])
    seen = list[Any]()
    view.observe(lambda change: seen.append(change["new"]), "result")
    first = view.children[0].value
    view.what = [100, 100, 900]
    assert [result.verdict for result in seen] == ["skewed"]
    assert view.children[0].value != first
    with pytest.raises(quire.UsageError):
        view.what = [-1]
    assert view.what == [100, 100, 900]
    with pytest.raises(quire.UsageError, match="unit"):
        SkewView(view.result, unit="bytes")
    view.what = None
    assert (view.children[0].value, view.result) == ("", None)


def test_pictures_side_by_side_do_not_share_ids_and_leave_the_page_alone() -> None:
    first, second = (SkewView([100, 100, 900]).children[0].value for _ in range(2))
    ids = [set(re.findall(r'\sid="([^"]+)"', page)) for page in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for page, known in zip((first, second), ids, strict=True):
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= known, "each reference finds its own picture's part"
        for style in re.findall(r"<style[^>]*>(.*?)</style>", page, re.DOTALL):
            assert style.strip().startswith("#"), "a rule for everything would change the notebook's own icons"


# ------------------------------------------------------------------------------------------------- without the extra, in a kernel


@pytest.mark.nth(2)
@pytest.mark.parametrize(("missing", "names"), [("ipywidgets", 7), ("matplotlib", 4)])  # the others draw none
def test_without_the_extra_it_imports_and_a_name_says_what_to_install(missing: str, names: int) -> None:
    script = f"""
import sys
sys.modules[{missing!r}] = None
import quire_widgets
known = {{"CommitterSelector", "ConsolidationPanel", "LedgerInspector", "LoadMonitor", "SkewView", "StatusPage", "TableTimeline"}}
assert known <= set(quire_widgets.__all__)
assert set(quire_widgets.__all__) <= set(dir(quire_widgets))
for name in quire_widgets.__all__:
    try:
        getattr(quire_widgets, name)
    except ImportError as e:
        print(e)
"""
    command = [sys.executable, "-W", "error", "-c", script]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == [f"quire_widgets needs {missing}: {install('widgets')}"] * names
    with pytest.raises(AttributeError, match="Panel"):
        __import__("quire_widgets").Panel  # noqa: B018


def test_importing_it_loads_nothing_heavy() -> None:
    command = [sys.executable, "-W", "error", "-c", "import quire_widgets, sys; print(*sys.modules)"]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & {"ipywidgets", "IPython", "matplotlib", "pyspark"}


KERNEL = """
import asyncio, json, os, sys
os.environ["JUPYTER_PLATFORM_DIRS"] = "1"
import nbformat
from nbclient import NotebookClient

cells = json.loads(sys.stdin.read())
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
client = NotebookClient(notebook, timeout=120, kernel_name="python3")
client.execute()
outputs = [output for cell in notebook.cells for output in cell.outputs]
print(json.dumps({"outputs": outputs, "widgets": list(client.widget_state.values())}))
"""


def test_in_a_kernel_the_work_of_the_thread_reaches_the_browser_and_the_next_cell(source: Path, tmp_path: Path) -> None:
    cells = [
        f"""
import quire, quire_widgets
panel = quire_widgets.ConsolidationPanel({str(source)!r}, {str(tmp_path / "out")!r}, spark=quire.LocalRunner())
panel.plan()
panel.wait(60)
panel.run()
state = panel.state
panel
""",
        "assert panel.wait(120)\nassert panel.result.files == 30, panel.result\n(state, panel.state)",
    ]
    told = subprocess.run(
        [sys.executable, "-c", KERNEL], input=json.dumps(cells), capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    found = json.loads(told.splitlines()[-1])
    assert [o["output_type"] for o in found["outputs"]] == ["execute_result"] * 2, "nothing on stderr, nothing twice"
    assert found["outputs"][1]["data"]["text/plain"] == "('running', 'done')"
    shown = "\n".join(str(state.get("value", "")) for state in found["widgets"])
    assert "files gathered" in shown, "as the browser has it"
    check(source, tmp_path / "out")


def test_a_chart_follows_a_dark_theme_and_no_other_picture_of_the_page_does() -> None:
    page = SkewView([100, 100, 900]).children[0].value
    (rule,) = [rule for rule in re.findall(r"<style>(.*?)</style>", page) if "filter" in rule]
    (selector,) = re.findall(r'<svg id="([^"]+)"', page)
    assert rule.startswith(f'#{selector}:is(body[data-jp-theme-light="false"] *, '), "only in a dark theme, and only this picture"
