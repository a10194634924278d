"""The figures that README and docs tell are those that were measured: each stands in RESULTS.md, and one side alone cannot change."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from quire.storage import window
from quire.storage.hdfs import read as hdfs_read

ROOT = Path(__file__).parents[1]
RESULTS = (ROOT / "tests/benchmarks/RESULTS.md").read_text()
LAB = json.loads((ROOT / "toolkit/quire/committers/lab/measured.json").read_text())["rows"]
N = r"([0-9][0-9,.]*[0-9]|[0-9])"


def row(first: str, *cells: str) -> str:
    """A pattern for a row of a table that begins with `first`; a cell of `-` is any."""
    return rf"^\| {re.escape(first)} *" + "".join(rf"\| *{cell if cell != '-' else '[^|]*?'} *" for cell in cells)


# A document, its sentence, and where RESULTS.md has the same numbers in the same order.
TOLD = [
    ("scale", f"{N} files/s a task, .*? of ledger a file", f"## Many small objects.*?{row('quire', N, '-', '-', '-', '-')}"),
    ("scale", f"{N} µs of a core a file \\(", f"## Many small objects.*?{row('quire', '-', '-', '-', N, '-')}"),
    ("scale", f"\\({N} µs on a busy machine\\)", f"^{N} µs a file, .*? event loop"),
    ("scale", f"{N} B of ledger a file", row("ledger bytes a file", "-", N)),
    ("scale", f"segments of 1.1 MiB \\({N} B a file\\)", row("ledger bytes a file", "-", N)),
    ("scale", f"{N} MiB sufficed for {N} files", f"JVM has {N} MiB .*? so that {N} fit"),
    ("scale", f"sufficed for .*? files as for {N}", f"memory.py --files {N} 1000000"),
    ("scale", f"read {N} files a second", f"article's {N} files/s"),
    ("scale", f"round trip of {N} ms after", f"each request after {N} ms"),
    ("scale", f"keeps {N} requests in flight a task", f"in one worker, {N} reads in flight"),
    ("kafka", f"driver holds some {N} bytes a partition", f"holds some {N} bytes a partition"),
    ("committer-lab", f"{N} rows by four tasks into {N} files", f"Jobs write {N} rows in {N} files by four tasks"),
    ("committer-lab", f"`driver_in_commit` \\| {N} files", f"rows in {N} files. Lost rows"),
    ("committer-lab", f"each answer {N} ms later", f"each answer {N} ms later"),
    ("committer-advice", f"{N} of {N} files visible with three", f"{row('v2', 'disk', N)}.*?Jobs write [0-9,]+ rows in {N} files"),
    ("committer-advice", f"{N} left by a failed job, {N} doubled", row("v2", "disk", "-", N, "-", "-", "-", "-", N, "-")),
    ("committer-advice", f"{N} files visible, {N} left", row("manifest_naive", "disk", N, N)),
    ("committer-advice", f"run again: {N} doubled rows", row("v1", "disk", "-", "-", N)),
    ("committer-advice", f"doubled rows of {N};", f"Jobs write {N} rows"),
    ("committer-advice", f"with an id: {N}", row("v1_attempt_id", "disk", "-", "-", N)),
]  # fmt: skip


def document(name: str) -> str:
    """The text of a page, each paragraph and each row of a table in one line."""
    return re.sub(r"(?<!\n)\n(?![\n|])\s*", " ", (ROOT / f"docs/{name}.md").read_text())


def figures(pattern: str, text: str) -> list[float]:
    """The numbers of the one place that matches first."""
    found = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    assert found, f"{pattern} is not there any more: mend the sentence, or its line in TOLD"
    return [float(number.replace(",", "")) for number in found.groups()]


@pytest.mark.parametrize(("page", "sentence", "measured"), TOLD)
def test_docs_tell_what_was_measured(page: str, sentence: str, measured: str) -> None:
    assert figures(sentence, document(page)) == figures(measured, RESULTS)


def test_whatever_refers_to_the_measurements_is_compared_with_them() -> None:
    for path in (ROOT / "docs").glob("*.md"):
        for line in document(path.stem).splitlines():
            if "RESULTS.md" in line and re.search("[0-9]", line.partition("RESULTS.md")[0]):
                assert any(page == path.stem and re.search(sentence, line) for page, sentence, _ in TOLD), line


def test_readers_see_so_many_files_while_a_job_commits() -> None:
    names = ({"committer": c, "store": "file", "fault": "driver_in_commit"} for c in ("v1", "manifest"))
    measured = [found["partial"] for name in names for found in LAB if name.items() <= found.items()]
    told = figures(f"{N} of 800 with `v1`.*?{N} of 800 with `manifest`", document("committer-advice"))
    assert told == measured
    knowledge, refusals = ((ROOT / f"toolkit/quire/committers/advice/{module}.py").read_text() for module in ("knowledge", "refusals"))
    assert figures(f"{N} of 800.*?{N} of 800", knowledge) == figures(f"{N} of 800.*?{N} of 800", refusals) == measured


def rate(records: str, way: str) -> float:
    """Records a second, as the table of loads has them."""
    (found,) = re.findall(rf"^\| {re.escape(records)} +\| {way} +\| ([0-9,]+) +\|.* × ", RESULTS, re.MULTILINE)
    return float(found.replace(",", ""))


def test_loads_from_kafka_are_as_fast_as_it_says() -> None:
    kinds = "1,000,000 of 200 B", "100,000 of 5,000 B"
    told = re.search(r"200 B load ([0-9.]+) × as fast .*? 5 KB ([0-9.]+) × .*? two cores, ([0-9.]+) × and ([0-9.]+) ×", document("kafka"))
    assert told
    measured = [rate(kind, way) / rate(kind, "connector") for way in ("quire", "one") for kind in kinds]
    assert [float(n) for n in told.groups()] == [round(n, 1) for n in measured]


def test_the_table_of_speeds_is_what_was_measured() -> None:
    gathered = RESULTS[RESULTS.index("gather.py --files 400000") :].partition("\n## ")[0]
    objects = RESULTS[RESULTS.index("## Many small objects") :]
    region = objects[objects.index("### In one's own region") :]

    def gather(way: str) -> float:
        return figures(row(way, N), gathered)[0]

    local = "default file system"
    measured = [
        (gather("quire"), gather(f"binaryFile, {local}")),
        (gather("quire"), gather(f"wholeTextFiles, {local}")),
        (gather("quire"), gather("find -exec cat")),
        (figures(row("quire.consolidate", N), region)[0], figures(row("rclone copy, 256 transfers", N), region)[0]),
        (figures(row("quire", N), objects)[0], figures(row("adlfs cat", N), objects)[0]),
        *((rate(kind, "quire"), rate(kind, "connector")) for kind in ("1,000,000 of 200 B", "100,000 of 5,000 B")),
    ]
    table = (ROOT / "README.md").read_text().partition("## How fast?")[2].partition("\n\n## ")[0]
    told = re.findall(rf"(?m)^\| [^|]+ \| (?:{N} \S+)? ?\| [^|]*?{N} \S+ \| {N} × \|$", table)
    assert len(told) == table.count("×")
    quire = ""
    for (ours, theirs, ratio), (fast, slow) in zip(told, measured, strict=True):
        quire = ours or quire  # "the same" job is told once
        assert (float(quire.replace(",", "")), float(theirs.replace(",", ""))) == (fast, slow)
        # The table rounds to a whole number where it tells one; a peer's rate of 7 is a rounded one.
        assert abs(float(ratio) - fast / slow) < (0.006 if "." in ratio else 0.6)


def test_the_drivers_memory_is_told_for_numbers_of_files_that_were_measured() -> None:
    told = re.search(r"so ([0-9,]+) files or ([0-9,]+) need the same memory", document("consolidate"))
    assert told
    section = RESULTS[RESULTS.index("## The driver's memory") :].partition("\n## ")[0]
    assert set(told.groups()) <= set(re.findall(r"^\| ([0-9,]+) +\| +[0-9.]+ s", section, re.MULTILINE))


def test_what_the_killed_loaders_lost_or_doubled_is_what_the_notebook_has_counted() -> None:
    cells = json.loads((ROOT / "notebooks/05_kafka_exactly_once.ipynb").read_text())["cells"]
    (shown,) = (cell["outputs"][0]["data"]["text/plain"] for cell in cells if "".join(cell["source"]) == "plots.accounts(counted)")
    counted = [tuple(numbers) for numbers in re.findall(rf"(?m) {N} +{N} +{N}$", "".join(shown))]
    (records,) = {expected for expected, _, _ in counted}
    page = document("kafka")
    table = page[page.index("| design |") :].partition("\n\n")[0]
    assert re.search(rf"of {N} records lost", table)[1] == records
    told = re.findall(rf"\| {N} \| {N} \|", table)
    assert [told[0], told[1], told[2], told[3], told[3]] == [(lost, double) for _, lost, double in counted]


def test_so_many_objects_are_read_at_a_time_as_it_says() -> None:
    assert figures(f"objects are read {N} at a time in a task \\(HDFS: {N};", document("places")) == [window.FLIGHT, hdfs_read.FLIGHT]


def test_tables_are_as_fast_as_it_says() -> None:
    section = RESULTS[RESULTS.index("## Tables against their peers") :]
    told = re.findall(rf"(?m)^\| ([a-z][^|]*) \| {N} × \| {N} × \|$", document("table").partition("## How fast?")[2])
    works = ("bulk insert", "upsert 10 %", "upsert 1 %", "delete 1 %", "snapshot", "changes of 1 %", "changes of 1 % and deletes of 1 %")
    assert [work for work, *_ in told] == list(works)

    def measured(work: str, way: str) -> float:
        return figures(rf"^\| {re.escape(work)} +\| {way} +\|(?:[^|]*\|){{3}} *{N} × *\|", section)[0]

    for work, *ratios in told:
        assert [float(each) for each in ratios] == [measured(work, way) for way in ("hudi", "delta")]
    page = document("table")
    logs = {
        "merge-on-read: upsert 1 %": "upsert 1 %", "snapshot with 10 % in logs": "snapshot with logs",
        "compaction of 10 % in logs": "compaction",
    }  # fmt: skip
    for shown, work in logs.items():
        assert figures(rf"^\| {shown} \| {N} ×", page)[0] == measured(work, "hudi logs")
        if work != "compaction":
            assert figures(rf"^\| {shown} \| [^|]*\| {N} ×", page)[0] == measured(work, "delta vectors")
