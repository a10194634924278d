"""What a plan and a report look like below the form: as they show themselves, and the tables that go with them."""

from __future__ import annotations

from quire import Plan, Report
from quire.arguments import format_size
from quire_widgets import html, words

__all__ = ["plan", "report"]

TASKS = 10  # in the table
FILES = 100  # of those that were set aside


def plan(found: Plan) -> str:
    """The facts, and the heaviest tasks."""
    tasks = found.tasks
    facts = found._repr_html_()
    if not len(tasks):
        return html.block(facts, "<p>There is nothing to do.</p>")
    heavy = tasks.sort_values("bytes", ascending=False, kind="stable").head(TASKS)
    caption = f"Heaviest: {words.more_than(len(heavy), len(tasks), 'task')}"
    rows = [(t["task"], t["directory"] or ".", t["part"], f"{t['files']:,}", format_size(t["bytes"])) for t in heavy.to_dict("records")]
    return html.block(facts, html.table(caption, [*map(str, heavy.columns)], rows, ("task", "part", "files", "bytes")))


def report(done: Report) -> str:
    """The facts; on request, each file that was not gathered, with the reason."""
    lists = []
    for what, files, total in (
        ("Set aside", done.quarantined, done.quarantined_count),
        ("Changed since, not read", done.changed, done.changed_count),
        ("Could not be read or planned", done.unreadable, done.unreadable_count),
        ("Left out", done.left_out, len(done.left_out)),
    ):
        if files:
            caption = f"{what}: {words.more_than(min(len(files), FILES), total, 'file')}"
            lists.append(html.details(caption, html.table("", ("file", "reason"), files[:FILES])))
    return html.block(done._repr_html_(), *lists)
