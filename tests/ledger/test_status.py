"""Whether a destination is well: each thing that is to be done is said with what to do, and nothing is changed."""

from __future__ import annotations

import html
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

import quire
import sim
from checker import tree
from gathering import documents, gather, refused, write
from quire import Ledger, LocalRunner, Status, UsageError
from quire.commit import names, protocol
from quire.commit.entries import Commit, Coverage, DataFile, Pin, Published, Spec, Stats, Task, encode
from quire.ledger import prometheus
from quire.storage import Store, connect, memory

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}


class Stop(Exception):
    """The call dies."""


def kinds(status: Status) -> list[str]:
    return [each.kind for each in status.findings]


def long_ago(monkeypatch: pytest.MonkeyPatch, days: float = 30) -> None:
    """What is written from now on says that it is so old."""
    monkeypatch.setattr(protocol, "now", lambda: (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds"))


def dies(phase: str) -> Callable[[quire.ProgressEvent], None]:
    def stop(step: quire.ProgressEvent) -> None:
        if step.phase == phase:
            raise Stop

    return stop


def killed(source: Path, dest: Path, phase: str) -> None:
    """A run that has died in a phase."""
    with pytest.raises(Stop):
        quire.consolidate(source, dest, spark=LocalRunner(), progress=dies(phase))


# ---------------------------------------------------------------------------------------------------------------------- it is well
def test_a_destination_that_is_well_says_so_in_a_line_and_nothing_in_it_changes(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(9))
    gather(source, tmp_path / "out")
    before = tree(tmp_path / "out")
    found = quire.status(tmp_path / "out", source, max_age="0 s")
    assert (found.ok, found.findings, found.advice) == (True, (), ())
    assert found.line.startswith(f"file://{tmp_path}/out: well, 18 records in 1 data file (171 B), the last commit ")
    assert (found.files, found.unprocessed, found.unprocessed_age, found.lag, found.open_jobs) == (9, 0, None, None, ())
    assert (found.log_entries, found.version, found.quarantined_share) == (2, 2, 0.0)
    assert found.last_seconds is not None
    assert repr(found) == f"Status('file://{tmp_path}/out', ok=True, findings=[])"
    assert "the last commit" in str(found)
    assert json.loads(json.dumps(found.as_dict())) | {"time": ""} == found.as_dict() | {"time": "", "open_jobs": [], "exports_behind": []}
    assert tree(tmp_path / "out") == before


def test_a_destination_without_a_commit_is_well_until_one_is_due(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {})
    (tmp_path / "out" / "_quire").mkdir(parents=True)
    found = quire.status(tmp_path / "out")
    assert found.ok
    assert found.line == f"file://{tmp_path}/out: well, nothing was committed yet"
    assert (found.last_commit_age, found.small_share, found.quarantined_share) == (None, 0.0, 0.0)
    late = quire.status(tmp_path / "out", max_age="1 h")
    assert (kinds(late), late.findings[0].what) == (["late"], "nothing was committed yet")
    assert quire.status(tmp_path / "out", source, max_age="1 h").ok, "nothing is there that could be late"


def test_where_no_destination_is_a_line_says_so(tmp_path: Path) -> None:
    with refused(UsageError, 2, "holds no ledger", "Check the spelling"):
        quire.status(tmp_path / "nothing")
    with refused(UsageError, 2, "nope"):
        quire.status("nope://x")


# ---------------------------------------------------------------------------------------------------------------------- it is late
def test_what_waits_at_the_source_is_counted_by_its_oldest_file(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(3))
    gather(source, tmp_path / "out")
    write(source, {"new.txt": b"x\n", "old.txt": b"y\n", "_hidden": b"z\n", "other.log": b"w\n"})
    past = time.time() - 7200
    os.utime(source / "old.txt", (past, past))
    found = quire.status(tmp_path / "out", source, include="*.txt")
    assert (found.ok, found.unprocessed) == (True, 2), "without max_age anything may wait"
    assert found.unprocessed_age == pytest.approx(7200, abs=60)
    late = quire.status(tmp_path / "out", source, max_age="1 h")
    assert (kinds(late), late.unprocessed) == (["late"], 3)
    assert "3 splits are not processed, the oldest file is there for 2 h. Look whether its run is still there" in late.line
    assert quire.status(tmp_path / "out", source, max_age="3 h").ok
    assert quire.status(tmp_path / "out", [source], hidden=True).unprocessed == 4
    assert Ledger(tmp_path / "out").status(source, max_age="1 h").line == late.line


def test_without_a_source_the_age_of_the_last_commit_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago(monkeypatch)
    gather(write(tmp_path / "in", documents(3)), tmp_path / "out")
    assert quire.status(tmp_path / "out").ok
    late = quire.status(tmp_path / "out", max_age="1 d")
    assert (kinds(late), late.findings[0].what) == (["late"], "the last commit is 30 d old")
    assert quire.status(tmp_path / "out", max_age="31 d").ok


@pytest.mark.parametrize("moment", ["yesterday", "", "2026-13-45T99:99:99", "9999-12-31T23:59:59-23:59"])
def test_a_time_in_the_log_that_is_none_or_to_come_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    monkeypatch.setattr(protocol, "now", lambda: moment)
    gather(write(tmp_path / "in", documents(3)), tmp_path / "out")
    found = quire.status(tmp_path / "out")
    assert found.last_commit_age in (None, 0.0)
    assert found.ok
    prometheus.text({"out": found})


# ---------------------------------------------------------------------------------------------------------------- what is to be done
def test_a_share_of_quarantined_files_is_said_with_its_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        long_ago(patched, 2)
        gather(write(tmp_path / "in", {**documents(9, "xml"), "bad.xml": b"<a>"}), tmp_path / "out", transform="xml")
    found = quire.status(tmp_path / "out")
    assert (kinds(found), found.quarantined, round(found.quarantined_share, 2)) == (["quarantined"], 1, 0.1)
    assert found.quarantined_age == pytest.approx(2 * 86400, abs=60)
    assert f"1 quarantined (10.00% of what was read for 2 d). See why: quire ledger quarantined {tmp_path}/out" in found.line
    # A few among many are no alarm, until they stay for long.
    gather(write(tmp_path / "in", documents(200, "xml")), tmp_path / "out", transform="xml")
    assert quire.status(tmp_path / "out").quarantined_share < 0.01
    assert quire.status(tmp_path / "out").ok
    (tmp_path / "in/bad.xml").write_bytes(b"<a/>")
    write(tmp_path / "in", {"worse.xml": b"<b>"})
    gather(tmp_path / "in", tmp_path / "out", transform="xml")
    Ledger(tmp_path / "out").retry(tmp_path / "in", paths=tmp_path / "in/bad.xml", max_quarantined=9, **HERE)
    found = quire.status(tmp_path / "out")
    assert found.quarantined == 1
    assert found.quarantined_age is not None
    assert found.quarantined_age < 3600, "the old one has left"


def test_quarantine_that_a_checkpoint_has_merged_is_as_old_as_the_checkpoint_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        long_ago(patched, 9)
        gather(write(tmp_path / "in", {**documents(200, "xml"), "bad.xml": b"<a>"}), tmp_path / "out", transform="xml")
        Ledger(tmp_path / "out").checkpoint(spark=LocalRunner())
    found = quire.status(tmp_path / "out")
    assert (kinds(found), found.log_entries, found.last_seconds, found.last_retries) == (["quarantined"], 0, None, None)
    assert found.quarantined_age == pytest.approx(9 * 86400, abs=60)


def test_a_destination_of_which_all_is_quarantined_is_the_first_thing_to_say(tmp_path: Path) -> None:
    gather(write(tmp_path / "in", {f"{i}.xml": b"<a>" for i in range(5)}), tmp_path / "out", transform="xml")
    found = quire.status(tmp_path / "out", max_age="0 s")
    assert kinds(found) == ["all quarantined", "late"]
    assert (found.quarantined_share, found.data_files) == (1.0, 0)
    assert "all that was read is quarantined (5 for " in found.line
    assert found.line.endswith("(1 more)")
    assert len(found.advice) == 2


def test_an_aborted_run_leaves_nothing_to_say(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {**documents(9, "xml"), "bad.xml": b"<a>"})
    with pytest.raises(quire.TooManyQuarantined):
        gather(source, tmp_path / "out", transform="xml", max_quarantined=0)
    found = quire.status(tmp_path / "out", source)
    assert (found.ok, found.commits, found.open_jobs, found.unprocessed) == (True, 0, (), 10)


def test_a_job_that_nobody_ends_is_said_after_a_day(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(9)), tmp_path / "out"
    killed(source, dest, "gathering")
    young = quire.status(dest)
    assert (young.ok, len(young.open_jobs)) == (True, 1), "it may be a run that goes on"
    (job,) = young.open_jobs
    past = time.time() - 3 * 86400
    os.utime(dest / names.plan_head(job), (past, past))
    found = quire.status(dest)
    assert kinds(found) == ["open jobs"]
    assert found.line.endswith(f"quire recover {dest} --abort {job}")
    assert found.open_job_age == pytest.approx(3 * 86400, abs=60)
    quire.recover(dest, abort=job)
    assert quire.status(dest).ok


def test_a_commit_that_nobody_publishes_is_said_after_a_quarter_of_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", documents(9))
    killed(source, tmp_path / "young", "publishing")
    young = quire.status(tmp_path / "young")
    assert (young.ok, young.unpublished) == (True, 1)
    with monkeypatch.context() as patched:
        long_ago(patched, 1 / 24)
        killed(source, tmp_path / "out", "publishing")
    found = quire.status(tmp_path / "out")
    assert (kinds(found), found.unpublished) == (["unpublished commits"], 1)
    assert "1 commit is not published for 60 min" in found.line
    quire.recover(tmp_path / "out")
    assert quire.status(tmp_path / "out").ok


def test_an_old_pin_is_said_with_how_to_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gather(write(tmp_path / "in", documents(9)), tmp_path / "out")
    ledger = Ledger(tmp_path / "out")
    with ledger.pin():
        assert quire.status(tmp_path / "out").ok
    long_ago(monkeypatch, 2)
    with ledger.pin():
        found = quire.status(tmp_path / "out")
        (pin,) = Ledger(tmp_path / "out").pins()
        assert (kinds(found), found.pins) == (["old pins"], 1)
        assert found.line.endswith(f"quire ledger unpin {tmp_path}/out {pin}")
        Ledger(tmp_path / "out").checkpoint(spark=LocalRunner())
        assert kinds(quire.status(tmp_path / "out")) == ["old pins"], "a checkpoint knows the pin, and not its time"


def test_a_pin_that_somebody_has_forged_is_no_command(tmp_path: Path) -> None:
    gather(write(tmp_path / "in", documents(3)), tmp_path / "out")
    store = connect(f"file://{tmp_path}/out", None)
    store.put(names.entry(3), encode(Pin(version=2, id="x; rm -rf ~\n", time="2026-01-01T00:00:00+00:00")))
    (line,) = quire.status(tmp_path / "out").advice
    assert line.endswith(f"quire ledger unpin {tmp_path}/out 'x; rm -rf ~\\n'")


def test_many_small_files_are_said_until_they_are_merged(tmp_path: Path) -> None:
    for i in range(16):
        gather(write(tmp_path / "in", {f"{i}.txt": b"x" * 90 + b"\n"}), tmp_path / "out", target_size="4 KiB")
        if i == 14:
            assert quire.status(tmp_path / "out").ok
    found = quire.status(tmp_path / "out")
    assert (kinds(found), found.small_files, found.mergeable, found.small_share) == (["small files"], 16, 16, 1.0)
    assert found.line.endswith(f"quire ledger compact {tmp_path}/out")
    Ledger(tmp_path / "out").compact(**HERE)
    after = quire.status(tmp_path / "out")
    assert (after.ok, after.data_files) == (True, 1)


def test_what_a_compaction_cannot_merge_is_no_reason_to_call_one(tmp_path: Path) -> None:
    gather(write(tmp_path / "in", documents(40, folders=20)), tmp_path / "out", layout="directories")
    found = quire.status(tmp_path / "out")
    assert (found.ok, found.small_files, found.mergeable) == (True, 20, 0), "one of each directory"


def test_a_long_log_wants_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.ledger.status.LONG_LOG", 8)
    for i in range(4):
        gather(write(tmp_path / "in", {f"{i}.txt": b"x\n"}), tmp_path / "out")
    found = quire.status(tmp_path / "out")
    assert (kinds(found), found.log_entries) == (["no checkpoint"], 8)
    Ledger(tmp_path / "out").checkpoint(spark=LocalRunner())
    assert quire.status(tmp_path / "out").ok


def test_superseded_files_that_stay_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago(monkeypatch, 1)
    for i in range(3):
        gather(write(tmp_path / "in", {f"{i}.txt": b"x\n"}), tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(protocol, "retire", lambda *_, **__: None)  # its call dies before it takes them out
        Ledger(tmp_path / "out").compact(**HERE)
        found = quire.status(tmp_path / "out")
    assert (kinds(found), found.superseded) == (["superseded files"], 3)
    quire.recover(tmp_path / "out")
    assert quire.status(tmp_path / "out").ok


def test_an_export_that_lags_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago(monkeypatch, 1)
    source = write(tmp_path / "in", documents(3))
    gather(source, tmp_path / "out", transform="raw", format="parquet", exports="delta")
    assert quire.status(tmp_path / "out").ok
    write(source, {"new.txt": b"x\n"})
    with monkeypatch.context() as patched:
        patched.setattr("quire.engine.exports.step.export", lambda *_: None)  # its call dies before
        gather(source, tmp_path / "out", transform="raw", format="parquet", exports="delta")
        found = quire.status(tmp_path / "out")
    assert (kinds(found), found.exports_behind) == (["exports behind"], ("delta",))


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("hours", [0, 1])
def test_an_export_that_lags_behind_a_loop_is_said(hours: int, merged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last commit is always young; the first one that the export lacks is not."""
    source, how = write(tmp_path / "in", documents(3)), {"transform": "raw", "format": "parquet", "exports": "delta"}
    for i, age in enumerate((24, hours, 0)):
        with monkeypatch.context() as patched:
            long_ago(patched, age / 24)
            gather(write(source, {f"{i}.txt": b"x\n"}), tmp_path / "out", **how)
        monkeypatch.setattr("quire.engine.exports.step.export", lambda *_: None)
    if merged:
        Ledger(tmp_path / "out").checkpoint(spark=LocalRunner())
    found = quire.status(tmp_path / "out")
    assert (kinds(found), found.exports_behind) == (["exports behind"] * hours, ("delta",))


def test_superseded_files_that_no_export_needs_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago(monkeypatch, 1)
    for i in range(3):
        gather(write(tmp_path / "in", {f"{i}.txt": b"x\n"}), tmp_path / "out", transform="raw", format="parquet", exports="delta")
    with monkeypatch.context() as patched:
        patched.setattr(protocol, "retire", lambda *_, **__: None)  # its call dies between the export and that
        Ledger(tmp_path / "out").compact(**HERE)
        found = quire.status(tmp_path / "out")
    assert (kinds(found), found.superseded) == (["superseded files"], 3)
    with monkeypatch.context() as patched:
        patched.setattr("quire.engine.exports.step.export", lambda *_: None)
        gather(write(tmp_path / "in", {"9.txt": b"x\n"}), tmp_path / "out", transform="raw", format="parquet", exports="delta")
        Ledger(tmp_path / "out").compact(**HERE)
        assert "superseded files" not in kinds(quire.status(tmp_path / "out")), "the export needs them"
    quire.recover(tmp_path / "out")
    assert quire.status(tmp_path / "out").ok


def test_of_several_things_the_gravest_is_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.ledger.status.LONG_LOG", 2)
    gather(write(tmp_path / "in", {"bad.xml": b"<a>", "good.xml": b"<a/>"}), tmp_path / "out", transform="xml")
    found = quire.status(tmp_path / "out", max_age="0 s")
    assert kinds(found) == ["quarantined", "late", "no checkpoint"]
    assert kinds(found) == sorted(kinds(found), key=prometheus.KINDS.index)


# ------------------------------------------------------------------------------------------------------------------- other places
def test_a_table_says_what_is_due_at_it(tmp_path: Path) -> None:
    table = quire.Table.create(tmp_path / "trips", key="id", ordering="at")
    for i in range(3):
        table.upsert(pa.table({"id": [i], "at": [i]}), **HERE)
    found = quire.status(tmp_path / "trips")
    assert (found.ok, found.data_files, found.small_files) == (True, 1, 1), table.maintain(dry_run=True).due
    due = {"clean": "3 old slices"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("quire.table.maintaining.Maintaining.due", lambda _: due)
        found = quire.status(tmp_path / "trips")
    assert kinds(found) == ["table upkeep"]
    assert found.line.endswith(f"clean is due: 3 old slices. Do it: quire table maintain {tmp_path}/trips")


def test_a_page_shows_names_as_they_are(tmp_path: Path) -> None:
    dest = tmp_path / "<b>out\n\x1b[31m"
    gather(write(tmp_path / "in", documents(3)), dest)
    found = quire.status(dest)
    assert "\n" not in found.line
    assert "\x1b" not in found.line + found._repr_html_() + str(found)
    assert html.escape("<b>out") in found._repr_html_()
    assert "<b>out" not in found._repr_html_()


@pytest.mark.parametrize(
    "wrong",
    [{"max_age": "1 x"}, {"max_age": True}, {"include": "*.txt"}, {"hidden": True}, {"source": "/nowhere/at/all"}, {"source": ""}],
    ids=str,
)
def test_wrong_arguments_are_a_line(tmp_path: Path, wrong: dict[str, Any]) -> None:
    gather(write(tmp_path / "in", documents(3)), tmp_path / "out")
    with refused(UsageError, 2):
        quire.status(tmp_path / "out", **wrong)


# -------------------------------------------------------------------------------------------------------------------- Prometheus
def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Metric → labels' values → value, as Prometheus' own client reads it."""
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families), "each metric has one HELP, one TYPE, and all of its samples"
    assert all(family.documentation and family.type == "gauge" for family in families)
    return {f.name: {tuple(s.labels.values()): s.value for s in f.samples} for f in families}


HOSTILE = ['a"b', "back\\slash\\", "line\nbreak", '"} 1\nquire_ok{dest="other', "\ud800half", "\u2028\x85\r", "Größe"]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_stays_a_label(name: str) -> None:
    text = prometheus.text({name: Status(name, 1, "2026-11-22T08:00:00+00:00"), "other": None})
    text.encode()
    found = samples(text)
    (labels,) = found["quire_ok"]
    assert labels[0].encode("ascii", "backslashreplace") == quire.errors.printable(name).encode("ascii", "backslashreplace")
    assert found["quire_reachable"] == {labels: 1.0, ("other",): 0.0}
    assert found["quire_looked_timestamp_seconds"][labels] == datetime(2026, 11, 22, 8, tzinfo=UTC).timestamp()


def test_a_label_has_no_secret_and_nobody_who_signs_in() -> None:
    given = ["webhdfs://me:geheim@host/x", "s3://b/x?X-Amz-Signature=geheim&secret_key=geheim", "az://c/x?sig=geheim"]
    text = prometheus.text(dict.fromkeys(given) | {"x": Status(given[0], 1, "2026-11-22T08:00:00+00:00")})
    assert "geheim" not in text
    assert 'dest="webhdfs://host/x"' in text
    assert "me" not in text.partition("webhdfs://")[2].partition('"')[0]
    assert "geheim" not in Status(given[0], 1, "2026-11-22T08:00:00+00:00").line


def test_each_number_of_a_status_is_a_metric(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {**documents(9, "xml"), "bad.xml": b"<a>"})
    gather(source, tmp_path / "out", transform="xml")
    write(source, {"new.xml": b"<a/>"})
    status = quire.status(tmp_path / "out", source, max_age="0 s")
    found = {
        name: value for name, values in samples(prometheus.text({"out": status, "again": status})).items() for value in values.values()
    }
    assert {name: found[f"quire_{name}"] for name in ("ok", "version", "commits", "files", "quarantined", "unprocessed_splits")} == {
        "ok": 0, "version": 2, "commits": 1, "files": 9, "quarantined": 1, "unprocessed_splits": 1,
    }  # fmt: skip
    assert found["quire_oldest_unprocessed_timestamp_seconds"] == pytest.approx((source / "new.xml").stat().st_mtime, abs=0.1)
    assert found["quire_last_commit_timestamp_seconds"] == pytest.approx(datetime.fromisoformat(status.last_commit).timestamp(), abs=0.01)
    assert "quire_lag_offsets" not in found, "nobody has asked"
    wrong = samples(prometheus.text({"out": status}))["quire_finding"]
    assert {kind: value for (_, kind), value in wrong.items() if value} == {"quarantined": 1.0, "late": 1.0}
    assert [kind for _, kind in wrong] == list(prometheus.KINDS)


# ------------------------------------------------------------------------------------------------------------------------ its cost
@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests of the memory store from now on."""
    found = list[str]()
    for name in ("get", "get_range", "stat", "scan", "walk", "is_folder", "put", "put_if_absent"):
        real = getattr(memory.MemoryStore, name)

        def call(self: Any, *args: Any, _real: Any = real, _name: str = name, **kwargs: Any) -> Any:
            found.append(f"{_name} {args[:1]}")
            return _real(self, *args, **kwargs)

        monkeypatch.setattr(memory.MemoryStore, name, call)
    return found


SPEC = Spec(transform="lines", format="lines", compression="none", layout="flat")


def committed(store: Store, commits: int) -> None:
    """A log of so many commits, each of one data file."""
    for i in range(commits):
        job, attempt = f"{2 * i}-{i:016x}", f"{i:012x}"
        files = (DataFile(names.data_file("", job, 0, attempt, 0, "txt"), 300 << 20, 1, "x"),)
        task = Task(task=0, attempt=attempt, data_files=files, coverage=Coverage(), stats=Stats(files_in=1, bytes_in=9))
        bare = {"dropped": (), "left": (), "parts": None, "closer": ""}
        entry = Commit(job=job, base=2 * i, committer="rename", time=protocol.now(), tasks=(task,), spec=SPEC, **bare)
        store.put(names.entry(2 * i + 1), encode(entry))
        store.put(names.entry(2 * i + 2), encode(Published(job=job, time=protocol.now(), lost=())))


def test_after_a_thousand_commits_it_asks_for_as_much_as_after_two(asked: list[str]) -> None:
    counts = list[int]()
    for commits in (2, 1000):
        sim.forget_all()
        store = connect("memory://out", None)
        committed(store, commits)
        Ledger("memory://out").checkpoint(spark=LocalRunner())
        asked.clear()
        found = quire.status("memory://out")
        assert (found.ok, found.commits, found.data_files, found.log_entries) == (True, commits, commits, 0)
        assert not [request for request in asked if request.startswith("put")]
        counts.append(len(asked))
    sim.forget_all()
    assert counts[0] == counts[1] < 40, counts
