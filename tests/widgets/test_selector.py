"""The committers' widget: what it advises, looks up, marks and says, driven as a user or a script drives it, without a browser or Spark."""

from __future__ import annotations

import html
import threading
from typing import Any

import ipywidgets
import pytest
from test_committer_advice import AZURE, STORES, Server

import quire
from pages import Balanced, click, everything, markup, one, text_of, walk
from quire.committers.advice.knowledge import CONTRADICTIONS, NEEDS
from quire.committers.lab import Matrix, Result
from quire.committers.lab.advised import advised
from quire_widgets import CommitterSelector

SECRET = "hunter2hunter2"
BUCKET = "s3a://bucket/out"


def result_of(code: str, name: str, **names: Any) -> Any:
    exec(code, names)
    return names[name]


def tick(widget: CommitterSelector, *needs: str) -> None:
    for need in needs:
        box = one(widget, f"quire-needs-{need}")
        box.value = not box.value


def beside(widget: CommitterSelector, name: str) -> str:
    """What is said below a field, as text."""
    part = one(widget, f"quire-{name}")
    row = part if name == "needs" else next(w for w in walk(widget) if part in getattr(w, "children", ()))
    message = row.children[-1]
    return text_of(message.value) if message.layout.display != "none" else ""


def done(widget: CommitterSelector, state: str = "done") -> CommitterSelector:
    assert widget.wait(30)
    assert widget.state == state, widget.error
    return widget


# ------------------------------------------------------------------------------------------------------------------- the advice


def test_a_url_and_needs_give_the_advice_the_reasons_and_settings_to_copy() -> None:
    widget = CommitterSelector(BUCKET, {"append", "speculation"})
    assert (widget.state, widget.error, widget.advice.committer) == ("done", None, "magic")
    shown = text_of(one(widget, "quire-advice").value)
    for part in (widget.advice.title, *widget.advice.why, *widget.advice.not_guaranteed, *widget.advice.sources):
        assert part in shown
    for item in widget.advice.alternatives:
        assert item.price in shown
    for item in widget.advice.refused:
        assert item.reason in shown
    settings = one(widget, "quire-settings").value
    assert html.escape(widget.advice.defaults.rstrip()) in settings
    assert "data-lm-suppress-shortcuts" in settings, "else Ctrl+A selects the notebook's cells"


@pytest.mark.nth(4)
@pytest.mark.parametrize("store", STORES.values(), ids=STORES.keys())
def test_on_each_store_it_advises_what_quire_advises(store: Any) -> None:
    widget = CommitterSelector(store.url, (), store.session, store.hierarchical)
    asked = [(), *((need,) for need in NEEDS), *(pair[:2] for pair in CONTRADICTIONS), ("speculation", "restartable", "many_files")]
    for needs in asked:
        widget.needs = needs
        try:
            told, refused = quire.committers.advise(store.url, needs, store.session, store.hierarchical), ""
        except quire.UsageError as e:
            told, refused = None, str(e)
        assert str(widget.error or "") == refused
        assert (widget.advice and widget.advice.defaults) == (told and told.defaults)


def test_a_box_that_is_ticked_is_a_new_advice_at_once() -> None:
    widget = CommitterSelector("/data/out")
    seen = list[str]()
    widget.observe(lambda change: seen.append(change["new"].committer), "advice")
    tick(widget, "many_files")
    assert (widget.needs, widget.advice.committer) == (("many_files",), "manifest")
    tick(widget, "many_files", "visible_together")
    assert widget.advice.committer == "quire"
    assert seen == ["manifest", "v1", "quire"]
    widget.needs = {"append"}
    assert [need for need in NEEDS if one(widget, f"quire-needs-{need}").value] == ["append"], "boxes and trait follow each other"
    assert all(means in one(widget, f"quire-needs-{need}").description for need, means in NEEDS.items())


def test_what_is_typed_counts_when_it_is_advised_and_what_is_shown_says_so_until_then() -> None:
    widget = CommitterSelector("/data/out")
    one(widget, "quire-url").value = " s3a://buck"
    assert (widget.url, widget.advice.committer) == ("/data/out", "v1")
    assert "changed since this advice" in text_of(one(widget, "quire-message").value)
    one(widget, "quire-url").value = f" {BUCKET} "
    click(widget, "advise")
    assert (widget.url, widget.advice.url, one(widget, "quire-url").value) == (BUCKET, BUCKET, BUCKET)
    assert one(widget, "quire-message").value == ""
    widget.url = "gs://bucket/out"
    assert (one(widget, "quire-url").value, widget.advice.committer) == ("gs://bucket/out", "manifest")


def test_enter_in_the_url_advises() -> None:
    widget = CommitterSelector()
    assert (widget.state, widget.advice, widget.code) == ("idle", None, "")
    ended = threading.Event()
    widget.observe(lambda change: ended.set() if change["new"] == "done" else None, "state")
    one(widget, "quire-url").value = BUCKET
    one(widget, "quire-url")._handle_custom_msg({"event": "submit"}, [])
    assert ended.wait(30)
    assert widget.advice.committer == "magic"


def test_the_namespace_counts_for_azure_alone() -> None:
    widget = CommitterSelector(f"abfss://{AZURE}")
    field = one(widget, "quire-namespace")
    assert (field.disabled, field.value, widget.advice.kind) == (False, "not known", "Azure storage, namespace not known")
    field.value = "flat"
    assert (widget.hierarchical, "flat" in widget.advice.kind) == (False, True)
    widget.hierarchical = True
    assert (field.value, "hierarchical" in widget.advice.kind, "hierarchical=True" in widget.code) == ("hierarchical", True, True)
    widget.url = BUCKET
    assert (field.disabled, widget.error, "hierarchical" in widget.code) == (True, None, False)


# ---------------------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("url", "needs", "field", "words"),
    [
        ("ftp://host/out", (), "url", "unknown kind of store 'ftp': it is one of"),
        ("s3a://", (), "url", "names no bucket"),
        (BUCKET, ("append", "overwrite"), "needs", "append and overwrite contradict each other"),
        (BUCKET, ("dynamic_overwrite", "concurrent_jobs"), "needs", "dynamic_overwrite and concurrent_jobs contradict"),
        ("gs://bucket/out", ("visible_together",), "message", "no committer is safe for visible_together"),
    ],
)
def test_what_is_wrong_is_one_line_beside_its_field_and_goes_when_it_is_right(
    url: str, needs: tuple[str, ...], field: str, words: str
) -> None:
    widget = CommitterSelector()
    one(widget, "quire-url").value = url
    tick(widget, *needs)
    click(widget, "advise")
    assert (widget.state, widget.advice, widget.marked) == ("failed", None, None)
    said = text_of(one(widget, "quire-message").value) if field == "message" else beside(widget, field)
    assert words in said
    assert (len(said.splitlines()), words in repr(widget), words in str(widget.error)) == (1, True, True)
    assert 'role="alert"' in markup(widget)
    assert one(widget, "quire-settings").layout.display == "none", "no settings beside an error"
    tick(widget, *needs)
    one(widget, "quire-url").value = BUCKET
    click(widget, "advise")
    assert (done(widget).error, widget.advice.committer) == (None, "magic")
    assert [beside(widget, name) for name in ("url", "needs")] == ["", ""]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"needs": {"apend"}}, "Did you mean 'append'"),
        ({"needs": "append"}, "needs= takes a set of words"),
        ({"format": "parket"}, "Did you mean 'parquet'"),
        ({"hierarchical": "yes"}, "takes True, False or None"),
        ({"matrix": "v1"}, "takes results of quire.committers.lab"),
        ({"url": ["/a", "/b"]}, "takes one URL or path"),
    ],
)
def test_words_that_it_does_not_know_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(quire.UsageError, match=words) as refused:
        CommitterSelector(**{"url": BUCKET, **wrong})
    assert len(str(refused.value).splitlines()) == 1
    widget = CommitterSelector(BUCKET, {"append"})
    for name, value in wrong.items():
        if name in ("needs", "format", "hierarchical"):
            with pytest.raises(quire.UsageError, match=words):
                setattr(widget, name, value)
    assert (widget.needs, widget.format, widget.hierarchical, widget.advice.committer) == (("append",), "parquet", None, "magic")


def test_what_is_no_session_is_one_line() -> None:
    widget = CommitterSelector(BUCKET, spark="local[2]")
    assert (widget.state, widget.advice) == ("failed", None)
    assert "takes a SparkSession" in text_of(one(widget, "quire-message").value)


# --------------------------------------------------------------------------------------------------------------- the live session


def test_a_session_is_looked_into_and_each_finding_has_its_sign() -> None:
    widget = CommitterSelector(BUCKET, {"append"}, Server("4.0.1", spark__speculation="true"))
    states = list[str]()
    widget.observe(lambda change: states.append(change["new"]), "state")
    click(widget, "check")
    assert done(widget).checked.committer == "v1"
    assert states == ["checking", "done"]
    shown = text_of(one(widget, "quire-check").value)
    assert "✘ This session would write with v1, and magic is advised" in shown
    for finding in widget.checked.findings:
        assert finding.said in shown
        assert finding.do in shown
    assert all(sign in shown for sign in ("✔ right", "✘ wrong", "? not seen"))
    assert "settings alone" in shown, "what cannot be seen over Connect is said"
    assert one(widget, "quire-progress").value == ""


def test_a_session_that_has_the_advice_is_told_so() -> None:
    advice = quire.committers.advise(BUCKET, {"append"})
    conf = {key.replace(".", "__"): value for key, value in advice.conf.items()}
    widget = CommitterSelector(BUCKET, {"append"}, Server("4.0.1", **conf))
    widget.check()
    assert done(widget).checked.ok
    assert "✔ This session would write with magic, as advised." in text_of(one(widget, "quire-check").value)
    tick(widget, "visible_together")
    assert widget.advice.committer == "quire"
    assert "no setting decides" in text_of(one(widget, "quire-check").value), "the check stays, and is held against the new advice"


def test_the_right_committer_with_a_wrong_setting_is_no_agreement() -> None:
    widget = CommitterSelector("/data/out", {"append"}, Server("4.0.1"))
    widget.check()
    assert done(widget).checked.committer == widget.advice.committer == "v1"
    assert "✘ This session would write with v1, as advised, but not all of it is right." in text_of(one(widget, "quire-check").value)


def test_a_check_is_of_its_url_and_format_and_goes_with_them() -> None:
    widget = CommitterSelector(BUCKET, spark=Server("4.0.1"))
    for change in ({"url": "/data/out"}, {"format": "json"}):
        widget.check()
        assert done(widget).checked is not None
        for name, value in change.items():
            setattr(widget, name, value)
        assert widget.checked is None
        assert one(widget, "quire-check").value == ""
    widget.check()
    assert done(widget).checked.format == "json"
    one(widget, "quire-url").value = "hdfs://namenode/out"
    click(widget, "check")
    assert done(widget).checked.url.startswith("hdfs://namenode"), "what was typed is what is checked"


class Slow(Server):
    """A session that answers when it is let go."""

    __module__ = Server.__module__

    def __init__(self) -> None:
        super().__init__("4.0.1")
        self.began, self.go, self.held = threading.Event(), threading.Event(), False

    def __getattribute__(self, name: str) -> Any:
        if name == "conf" and object.__getattribute__(self, "held"):
            self.began.set()
            assert self.go.wait(30)
        return object.__getattribute__(self, name)


def test_a_check_leaves_the_kernel_free_and_a_double_click_checks_once() -> None:
    session = Slow()
    widget = CommitterSelector(BUCKET, spark=session)
    states = list[str]()
    widget.observe(lambda change: states.append(change["new"]), "state")
    session.held = True
    click(widget, "check")
    assert session.began.wait(30)
    click(widget, "check")
    assert widget.state == "checking"
    assert "<progress" in one(widget, "quire-progress").value
    session.held = False
    widget.format = "orc"
    session.go.set()
    assert done(widget).checked is None, "the answer is to another question"
    assert "check again" in text_of(one(widget, "quire-message").value)
    assert states == ["checking", "done"]


def test_a_session_that_fails_is_one_line_and_the_advice_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    widget = CommitterSelector(BUCKET, spark=Server("4.0.1"))
    widget.check()
    assert done(widget).checked is not None

    def dead(*_: Any, **__: Any) -> None:
        raise ConnectionError(f"refused\nby the <server> password={SECRET}")

    monkeypatch.setattr(type(quire.committers.advise), "check", staticmethod(dead))
    widget.check()
    assert isinstance(done(widget, "failed").error, ConnectionError)
    message = one(widget, "quire-message").value
    assert "ConnectionError: refused by the <server>" in text_of(message)
    assert "<server>" not in message
    assert SECRET not in everything(widget)
    assert (widget.advice.committer, widget.checked, one(widget, "quire-check").value) == ("magic", None, "")


def test_without_a_session_or_a_url_there_is_nothing_to_check_and_it_says_so() -> None:
    widget = CommitterSelector(BUCKET)
    assert one(widget, "quire-check-button").disabled
    widget.check()
    assert "needs a session for this" in text_of(one(done(widget, "failed"), "quire-message").value)
    widget = CommitterSelector(spark=Server("4.0.1"))
    click(widget, "check")
    assert "URL is empty" in text_of(one(done(widget, "failed"), "quire-message").value)


# ------------------------------------------------------------------------------------------------------------------ the matrix


def test_the_measured_matrix_has_the_row_of_the_advice_marked() -> None:
    widget = CommitterSelector("/data/out", {"append"})
    page = one(widget, "quire-matrix").value
    example = Matrix.example()
    assert example.made["date"] in text_of(page)
    assert example.made["machine"] in text_of(page)
    for name in example.committers:
        assert name in text_of(page)
    (row,) = (part for part in page.split("<tr") if "aria-current" in part)
    assert f"▶ {widget.marked.committer}" in text_of(f"<tr{row}"), "not by colour alone"
    assert widget.marked.committer.startswith("v1")
    for key in ("visible", "restart"):
        assert example.why(widget.marked.committer, key) in text_of(page), "what was counted against it"
    widget.needs = {"visible_together"}
    (row,) = (part for part in one(widget, "quire-matrix").value.split("<tr") if "aria-current" in part)
    assert "▶ quire_rename" in text_of(f"<tr{row}")
    widget.url = "oss://bucket/out"
    widget.needs = ()
    page = one(widget, "quire-matrix").value
    assert "aria-current" not in page
    assert "jindo is not in this matrix" in text_of(page)


def test_a_matrix_of_ones_own_is_shown_instead_and_names_in_it_are_text() -> None:
    hidden = {"files": 40, "early": 0}
    rows = [Result("magic", "s3a", "none", "hidden", **hidden), Result("<script>alert(1)</script>", "file", "none", "hidden", **hidden)]
    widget = CommitterSelector(BUCKET, matrix=Matrix(rows))
    assert widget.marked.committer == "magic"
    page = markup(widget)
    assert "<script" not in page
    assert "quire_rename" not in page
    assert Balanced(page).open == []


@pytest.mark.parametrize(
    ("url", "needs", "hierarchical", "names", "expected", "words"),
    [
        ("/data/out", (), None, ("v1", "v1_attempt_id"), "v1_attempt_id", ""),
        ("/data/out", (), None, ("v1",), "v1", "Tried without an attempt id"),
        ("hdfs://namenode/out", (), None, ("v1_attempt_id",), "v1_attempt_id", "Measured on a local disk, not on HDFS"),
        ("/data/out", ("many_files",), None, ("manifest", "manifest_naive"), "manifest", ""),
        ("gs://bucket/out", (), None, ("manifest", "gs_manifest"), "gs_manifest", "not on Google Cloud Storage"),
        (f"abfss://{AZURE}", (), True, ("manifest", "abfs_manifest"), "abfs_manifest", ""),
        (f"abfss://{AZURE}", (), False, ("abfs_manifest",), None, "not in this matrix"),
        (BUCKET, ("visible_together",), None, ("quire_rename", "quire_upload"), "quire_upload", ""),
        (BUCKET, ("visible_together",), None, ("quire_rename",), "quire_rename", "there quire uploads"),
        ("/data/out", ("visible_together",), None, ("quire_rename",), "quire_rename", "saw all of a job or nothing"),
        (BUCKET, (), None, ("v1", "v2"), None, "magic is not in this matrix"),
    ],
)
def test_the_nearest_row_is_marked_and_what_it_is_not_is_said(
    url: str, needs: tuple[str, ...], hierarchical: bool | None, names: tuple[str, ...], expected: str | None, words: str
) -> None:
    rows = [Result(name, "file", "none", "hidden", early=0, partial_log=0 if name.startswith("quire") else None) for name in names]
    found = advised(Matrix(rows), quire.committers.advise(url, needs, hierarchical=hierarchical))
    assert found.committer == expected
    assert words in found.note


# ------------------------------------------------------------------------------------------------------------ the same as Python


@pytest.mark.parametrize("store", STORES.values(), ids=STORES.keys())
def test_the_code_is_python_that_gives_the_same(store: Any) -> None:
    session = store.session or Server("4.0.1")
    widget = CommitterSelector(store.url, ("append", "speculation"), session, store.hierarchical)
    widget.check()
    done(widget)
    again = result_of(widget.code, "advice", spark=session)
    assert {**again.as_dict(), "conf": ""} == {**widget.advice.as_dict(), "conf": ""}, "but for the number of an application"
    assert result_of(widget.code, "checked", spark=session) == widget.checked
    assert html.escape(widget.code) in one(widget, "quire-code").value


def test_secrets_and_hostile_text_of_a_url_are_never_shown() -> None:
    widget = CommitterSelector(f"s3a://key:{SECRET}@bucket/out")
    shown = "\n".join([markup(widget), repr(widget), widget.code, str(widget.error)])
    assert SECRET not in shown
    widget = CommitterSelector("s3a://bucket/<script>alert(1)</script>&'\"\u202e\nspark.speculation true")
    assert not [line for line in widget.advice.defaults.splitlines() if line.startswith("spark.speculation")]
    assert "<script" not in markup(widget)
    assert "\u202e" not in markup(widget), "it would turn the line round"
    assert Balanced(markup(widget)).open == []


# ------------------------------------------------------------------------------------------------------------------ as it is shown


def test_without_a_kernel_a_notebook_shows_all_of_it_as_a_page_and_as_text() -> None:
    widget = CommitterSelector(BUCKET, {"append"}, Server("4.0.1"))
    widget.check()
    bundle = done(widget)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    page = Balanced(bundle["text/html"])
    assert page.open == []
    assert not page.seen & {"script", "link", "iframe", "object", "button", "input", "textarea"}
    words = text_of(bundle["text/html"])
    for part in (
        "S3A magic committer",
        widget.advice.usage,
        widget.advice.defaults.rstrip(),
        "✘ This session would",
        "▶ magic",
        widget.code,
    ):
        assert part in words
        assert part in bundle["text/plain"]
    assert bundle["text/plain"] == repr(widget)


def test_equal_selectors_have_equal_outputs() -> None:
    first, second = (CommitterSelector("/data/out", {"append"})._repr_mimebundle_() for _ in range(2))
    for kind in ("text/plain", "text/html"):
        assert first[kind] == second[kind], "the number of an application is in neither"


def test_the_keyboard_goes_from_top_to_bottom_and_every_field_has_a_label() -> None:
    widget = CommitterSelector(BUCKET)
    stops = (ipywidgets.Text, ipywidgets.Dropdown, ipywidgets.Checkbox, ipywidgets.Button)
    found = [w for w in walk(widget) if isinstance(w, stops)]
    order = [w._dom_classes[0].removeprefix("quire-") for w in found]
    assert order == ["url", "namespace", *(f"needs-{need}" for need in NEEDS), "format", "advise-button", "check-button"]
    assert all(w.description for w in found)
