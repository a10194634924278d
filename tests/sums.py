"""Totals always equal the rows: what a destination says in numbers, held against the ledger's rows and its data files."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import quire
from quire.commit.log import Log
from quire.coverage.counts import counts, files_out
from quire.coverage.fold import fold
from quire.coverage.live import live, totals

__all__ = ["check", "check_history", "check_report"]

_COLUMNS = ["path", "version", "start", "length", "state", "data_file", "records"]


def check(store: Any, log: Log | None = None) -> None:
    """All that counts at the tip, for readers: one pass over the rows."""
    log = Log(store).refresh() if log is None else log
    folded = fold(log, reader=True)
    rows = folded.rows(store, _COLUMNS).to_pylist()
    files = list(live(log, folded, reader=True))
    found, wanted = totals(log, folded), counts(rows)
    told = (found.files, found.bytes_read, found.quarantined, found.held_back, found.ledger_rows)
    assert told == (*wanted, len(rows)), f"files, bytes, quarantined, held back, rows: {told} are told, {(*wanted, len(rows))} are there"
    kept = (len(files), sum(f.size for f in files))
    assert (found.data_files, found.bytes_written) == kept, f"data files and their bytes: {found} is told, {kept} are there"
    if len({row["data_file"] for row in rows} - {None}) == len(files):  # else the ledger does not say in which file a row is
        records = Counter[str]()
        for row in rows:
            records[row["data_file"]] += row["records"] or 0
        for f in files:
            assert records[f.name] == f.records, f"{f.name} holds {f.records} records, and its rows say {records[f.name]}"
    check_last_forget(store, log)


def check_last_forget(store: Any, log: Log) -> None:
    """What the last commit says of what it has taken out, where it is a forget, is what left: a file once, where its first byte was."""
    number, commit = next(log.backwards(), (0, None))
    if commit is None or commit.verb != "forget" or number <= max(log.merged, log.expired()):
        return
    rows = [fold(log, at).rows(store, _COLUMNS[:5]).select(_COLUMNS[:5]).to_pylist() for at in (number - 1, number)]
    before, after = (Counter(tuple(row.values()) for row in found) for found in rows)
    assert after <= before, "a forget adds no row"
    left, tasks = list((before - after).elements()), log.in_effect(commit, number)
    files = sum(start == 0 and not path.startswith("kafka://") for path, _, start, _, _ in left)
    quarantined = sum(state == "quarantined" for *_, state in left)
    told = (files_out(commit, tasks), sum(t.stats.quarantined_out for t in tasks))
    assert told == (files, quarantined), f"files and quarantined that left: {told} are told, {(files, quarantined)} have"


def check_history(ledger: quire.Ledger) -> None:
    """What the commits tell one by one comes to what the destination tells; also of jobs that a checkpoint has merged."""
    summary, history, commits = ledger.summary(), ledger.inspect.history(), ledger.inspect.commits()
    assert (history["kind"] == "commit").sum() >= len(commits), "more commits count than there are"
    tasks = ledger.inspect.tasks().groupby("commit")[["files", "bytes"]].sum()
    for name in ("files", "bytes"):
        assert dict(commits.set_index("version")[name]) == dict(tasks[name]), f"{name} of the tasks are not those of their commits"
    assert len(commits) == 0 or commits["data_files"].iloc[-1] == summary.data_files
    assert (commits[["files", "quarantined", "written", "removed", "data_files", "records", "bytes"]] >= 0).all(axis=None)
    for before, after in itertools.pairwise(commits.itertuples()):
        assert after.data_files == before.data_files + after.written - after.removed, f"commit {after.version}"


def check_report(ledger: quire.Ledger, report: Any) -> None:
    """A call's numbers are those of its jobs in the history; of a change, also what it has taken out."""
    rows = ledger.inspect.history()
    rows = rows[rows["job"].isin(report.jobs) & (rows["kind"] == "commit")]
    said = (report.files, report.bytes, report.data_files) if isinstance(report, quire.Report) else (report.written,)
    told = tuple(int(rows[name].sum()) for name in (("files", "bytes", "data_files") if len(said) > 1 else ("data_files",)))
    assert said == told, f"the call says {said}, its jobs say {told}"
    if not isinstance(report, quire.Report):
        commits = ledger.inspect.commits()
        forgotten = int(commits["forgotten"][commits["version"].isin(rows["version"])].sum())
        assert report.files_out == forgotten, f"the call says {report.files_out} files out, its commits say {forgotten}"
