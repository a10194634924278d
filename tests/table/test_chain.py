"""A table as the source of another: each commit is passed on once, and the second table is always the function of the first."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jvm
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from test_other_writers import last_instant, roll_back
from test_writes import COLUMNS, LOCAL, create, frame, log_of, ours, write

import quire
import sim
from gathering import KEY, refused
from quire.cli.app import cli
from quire.commit import protocol
from quire.commit.log import Log
from quire.errors import FormatError, RefusedError, UsageError
from quire.planning.drops import put_table
from quire.planning.listing import PLAN, TaskRun
from quire.storage import connect
from quire.table import changes, file_groups, source
from quire.table.format import commits
from quire.table.format.schema import META, to_avro
from quire.table.table import Table

SCHEMA = "id string, city string, ts long, fare double, _hoodie_is_deleted boolean"  # so that nobody looks before the plan
Rows = dict[str, dict[str, Any]]
LOGS = {"type": "merge_on_read", "ordering": "n"}
_NOT = "lance|no_meta|empty|timebased|rollback"  # in the last ones keys were inserted twice
NEWER = [name for name in jvm.names() if re.search(r"-v[89]_|event_time_stale|log_only", name) and not re.search(_NOT, name)]
SOME = "cow-v9_txns_simple_overwrite|mor_compacted_incremental|v8_mor_boundary"  # the chaos lane takes all
FOLLOWED = [name if re.search(SOME, name) else pytest.param(name, marks=pytest.mark.chaos) for name in NEWER]


def doubled(split: quire.Split, found: pa.Table) -> pa.Table:
    """The rows with twice the fare; those that are gone are deleted there, too."""
    rows = pa.Table.from_struct_array(pc.coalesce(found["after"], found["before"]).combine_chunks())
    at = rows.schema.get_field_index("fare")
    rows = rows.set_column(at, "fare", pc.multiply(rows["fare"], 2))
    return rows.append_column("_hoodie_is_deleted", pc.equal(found["op"], "d"))


def twice(rows: Rows) -> Rows:
    return {key: {**row, "fare": 2 * row["fare"]} for key, row in rows.items()}


def passed(a: Any, b: Any, function: Any = doubled, **more: Any) -> quire.Report:
    return quire.process(a, b, function, **{"spark": LOCAL, "progress": False, **more})


@pytest.fixture
def two(tmp_path: Path) -> tuple[Table, Table]:
    """A table of two rows and commits, and one that nothing has been passed on to."""
    a = create(tmp_path / "a")
    write(a, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    write(a, "upsert", frame(("a", "sf", 2, 2.0)))
    return a, create(tmp_path / "b", ordering=None)


def instants(folder: Path) -> list[str]:
    paths = [*(folder / ".hoodie").glob("*commit"), *(folder / ".hoodie/timeline").glob("*commit")]
    return sorted(path.name[:17] for path in paths if path.suffix in (".commit", ".deltacommit"))


# ------------------------------------------------------------------------------------------------------------- what it does
def test_a_table_follows_another_with_deletes_and_passes_each_commit_on_once(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    first = passed(a, b)
    assert (first.files, first.skipped, first.source) == (2, 0, a.url)
    assert ours(b) == twice(ours(a))
    assert len(instants(tmp_path / "b")) == 1
    write(a, "upsert", frame(("a", "sf", 3, 3.0), ("c", "la", 1, 1.0)))
    write(a, "delete", frame(("b", "la", 4, 0.0)))
    write(a, "upsert", frame(("a", "sf", 5, 5.0)))
    given_rows = list[dict[str, Any]]()

    def seen(split: quire.Split, found: pa.Table) -> pa.Table:
        given_rows.extend({"split": (split.path, split.version), **row} for row in found.to_pylist())
        return doubled(split, found)

    second = passed(a, b, seen)
    assert (second.files, second.skipped) == (3, 2)
    assert ours(b) == twice(ours(a)) == twice({"a": row("a", "sf", 5), "c": row("c", "la", 1)})
    assert len(instants(tmp_path / "b")) == 2, "one commit of all that was new"
    net = {each["_hoodie_record_key"]: each for each in given_rows}
    newest = instants(tmp_path / "a")[-1]
    assert (net["a"]["op"], net["a"]["before"]["fare"], net["a"]["after"]["fare"]) == ("u", 2.0, 5.0), "each key once"
    assert (net["b"]["op"], net["b"]["after"], net["c"]["op"], net["c"]["before"]) == ("d", None, "i", None)
    assert {(path, version <= newest) for path, version in (each["split"] for each in given_rows)} == {(a.url, True)}
    third = passed(str(tmp_path / "a"), str(tmp_path / "b"), every="0 s", max_runs=2)
    assert (third.files, third.skipped, third.jobs) == (0, 5, ())
    ledger = quire.Ledger(tmp_path / "b")
    assert ledger.summary().files == 5
    assert ledger.verify(spark=LOCAL).ok
    (place,) = ledger.locate(f"{a.url}/.hoodie/{newest}")[:1]
    assert place.state == "done"


def row(key: str, city: str, n: int) -> dict[str, Any]:
    return {"id": key, "city": city, "ts": n, "fare": float(n)}


def test_a_merge_on_read_table_is_followed_with_what_is_in_its_logs_and_a_compaction_passes_nothing_on(tmp_path: Path) -> None:
    a, b = create(tmp_path / "a", type="merge_on_read"), create(tmp_path / "b", ordering=None)
    write(a, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    write(a, "upsert", frame(("a", "sf", 5, 2.0)))
    assert (passed(a, b).files, ours(b)) == (2, twice(ours(a)))
    write(a, "upsert", frame(("a", "sf", 3, 3.0), ("b", "la", 3, 3.0), ("c", "la", 1, 1.0)))  # the first one comes too late
    write(a, "delete", frame(("b", "la", 4, 0.0)))
    (at,) = a.compact(spark=LOCAL, progress=False).completed
    seen = list[dict[str, Any]]()

    def told(split: quire.Split, found: pa.Table) -> pa.Table:
        seen.extend(found.to_pylist())
        return doubled(split, found)

    assert (passed(a, b, told).files, ours(b)) == (3, twice(ours(a)))
    assert {(each["_hoodie_record_key"], each["op"]) for each in seen} == {("b", "d"), ("c", "i")}, "what came too late changes nothing"
    write(a, "upsert", frame(("c", "la", 9, 9.0)))
    assert passed(a, b).files == 1
    assert ours(b) == twice(ours(a)) == {"a": {**row("a", "sf", 5), "fare": 4.0}, "c": {**row("c", "la", 9), "fare": 18.0}}
    assert quire.Ledger(tmp_path / "b").locate(f"{a.url}/.hoodie/{at}")[0].state == "done", "it is not looked at again"


def test_what_is_counted_is_called_commits_wherever_a_user_reads_it(two: tuple[Table, Table]) -> None:
    a, b = two
    steps, said = list[quire.ProgressEvent](), list[str]()
    report = passed(a, b, progress=steps.append, every="0 s", max_runs=1)
    shown = [str(report), repr(report), report._repr_html_(), report.taken, str(quire.Ledger(b.url).summary())]
    assert (report.noun, report.taken, report.as_dict()["noun"]) == ("commits", "2 commits passed on", "commits")
    assert "commits=2" in repr(report)
    for text in (shown[0], shown[2], shown[4]):
        assert "commits passed on" in text
    (parts,) = {step.files for step in steps if step.tasks}
    assert ({step.what for step in steps}, parts) == ({"part"}, 5), "two commits, the beginning, and the rows of two partitions"
    said += [str(passed(a, b)), str(passed(*(create(Path(f"{a.url[7:]}{n}")) for n in "12")))]
    assert "no commits are there to pass on" in said[1]
    command = CliRunner().invoke(cli, ["ledger", "summary", b.url])
    assert "commits passed on" in command.output
    for text in (*shown, *said, command.output):
        assert not re.search(r"files gathered|files/s|bytes read|\bfiles=", text), text


def test_tables_that_are_given_as_such_are_opened_with_their_own_options(vault: str) -> None:
    a, b = (create(f"{vault}/{name}", ordering=None, storage_options=KEY) for name in "ab")  # type: ignore[arg-type]  # a URL
    write(a, "upsert", frame(("a", "sf", 1, 1.0)))
    assert passed(a, b).files == 1
    write(a, "upsert", frame(("a", "sf", 2, 2.0)))
    assert passed(a.url, b, source_options=KEY).files == 1
    with refused(RefusedError, 2, "is not opened without its key"):
        passed(a, b.url)
    assert ours(b) == twice(ours(a))


def test_it_goes_on_from_a_checkpoint_and_beside_other_sources(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    passed(a, b)
    quire.Ledger(tmp_path / "b").checkpoint(spark=LOCAL)
    other = create(tmp_path / "other")
    write(other, "upsert", frame(("z", "ny", 1, 7.0)))
    assert passed(other, b).files == 1
    write(a, "upsert", frame(("a", "sf", 3, 3.0)))
    assert passed(a, b).files == 1
    assert ours(b) == twice({**ours(a), **ours(other)})


def test_a_new_column_of_the_source_becomes_one_of_the_destination(two: tuple[Table, Table]) -> None:
    a, b = two
    passed(a, b)
    more = COLUMNS.append(pa.field("note", pa.string()))
    write(a, "upsert", frame(("a", "sf", 3, 3.0, "x"), schema=more))
    passed(a, b)
    assert ours(b) == twice(ours(a))
    assert {key: each["note"] for key, each in ours(b).items()} == {"a": "x", "b": None}


def test_what_nobody_writes_yet_and_commits_without_changes_are_passed_on_as_nothing(tmp_path: Path) -> None:
    a, b = create(tmp_path / "a"), create(tmp_path / "b")
    assert passed(a, b).jobs == ()
    write(a, "upsert", frame(("a", "sf", 1, 1.0)))
    passed(a, b)
    empty = commits.encode(commits.CommitMetadata(extra_metadata={"schema": to_avro(COLUMNS, "a")}, operation_type="UPSERT"))
    (tmp_path / "a/.hoodie/20991122100000000.commit").write_bytes(empty)
    report = passed(a, b)
    assert (report.files, len(instants(tmp_path / "b"))) == (1, 1), "the commit is done, and b has no instant for it"
    assert passed(a, b).files == 0


def test_a_commit_that_ends_after_later_ones_is_still_passed_on(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    passed(a, b)
    write(a, "upsert", frame(("b", "la", 3, 3.0)))
    late = tmp_path / f"a/.hoodie/{last_instant(tmp_path / 'a')}.commit"
    write(a, "upsert", frame(("a", "sf", 4, 4.0)))
    late.rename(tmp_path / "late")
    assert passed(a, b).files == 1
    assert {key: each["fare"] for key, each in ours(b).items()} == {"a": 8.0, "b": 2.0}
    (tmp_path / "late").rename(late)
    assert passed(a, b).files == 1
    assert ours(b) == twice(ours(a))


def test_what_was_rolled_back_before_it_was_passed_on_never_comes(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    passed(a, b)
    write(a, "upsert", frame(("c", "ny", 3, 3.0)))
    roll_back(tmp_path / "a", last_instant(tmp_path / "a"))
    assert passed(a, b).files == 0
    write(a, "upsert", frame(("a", "sf", 4, 4.0)))
    passed(a, b)
    assert ours(b) == twice(ours(a))


def test_a_commit_that_was_rolled_back_at_the_destination_is_passed_on_again(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    passed(a, b)
    write(a, "upsert", frame(("a", "sf", 3, 3.0)))
    passed(a, b)
    roll_back(tmp_path / "b", last_instant(tmp_path / "b"))
    assert passed(a, b).files == 1
    assert ours(b) == twice(ours(a))


# ------------------------------------------------------------------------------------------------------------- what it refuses
def test_a_commit_that_was_rolled_back_later_is_one_line(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    passed(a, b)
    gone = last_instant(tmp_path / "a")
    roll_back(tmp_path / "a", gone)
    before = ours(b)
    with refused(RefusedError, 2, f"has no commit {gone} any more", "rolled back", "pass it on into a new table"):
        passed(a, b)
    assert ours(b) == before
    c = create(tmp_path / "c")
    passed(a, c)
    assert ours(c) == twice(ours(a)), "as the line says"


def archive(folder: Path, *gone: str) -> None:
    """As JVM Hudi does: the oldest instants leave the timeline, and their files stay as long as readers have them."""
    home = folder / ".hoodie"
    (home / "archived").mkdir(exist_ok=True)
    (home / "archived/.commits_.archive.1_1-0-1").write_bytes(b"x")
    for instant in gone:
        for path in home.glob(f"{instant}.*"):
            path.unlink()


def clean(folder: Path) -> None:
    """The base files and change files of all but the newest slices go."""
    newest = {path.name.split("_")[0]: path for path in sorted(folder.rglob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])}
    for path in folder.rglob("*.parquet"):
        if path not in newest.values():
            path.unlink()
    shutil.rmtree(folder / ".hoodie/_quire/changes", ignore_errors=True)


def test_a_table_that_is_cleaned_and_archived_is_passed_on_from_what_is_there(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    write(a, "delete", frame(("b", "la", 4, 0.0)))
    archive(tmp_path / "a", *instants(tmp_path / "a")[:2])
    clean(tmp_path / "a")
    assert passed(a, b).files == 1
    assert ours(b) == twice(ours(a)) == {"a": {**row("a", "sf", 2), "fare": 4.0}}
    write(a, "upsert", frame(("a", "sf", 5, 5.0)))
    archive(tmp_path / "a", instants(tmp_path / "a")[0])
    with refused(RefusedError, 2, "has archived instants before", "pass it on into a new table"):
        passed(a, b)


def test_a_table_that_was_made_again_is_not_followed(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    passed(a, b)
    shutil.rmtree(tmp_path / "a")
    write(create(tmp_path / "a"), "upsert", frame(("x", "sf", 1, 1.0)))
    with refused(RefusedError, 2, "the table was made again", "pass it on into a new table"):
        passed(a, b)


def test_an_archive_that_somebody_has_deleted_is_not_missed(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    archive(tmp_path / "a", instants(tmp_path / "a")[0])
    shutil.rmtree(tmp_path / "a/.hoodie/archived")
    for n in (3, 4):
        passed(a, b)
        assert ours(b) == twice(ours(a))
        write(a, "upsert", frame(("b", "la", n, float(n))))


def test_commits_that_are_archived_after_they_were_passed_on_are_not_missed(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    passed(a, b)
    archive(tmp_path / "a", instants(tmp_path / "a")[0])
    write(a, "upsert", frame(("a", "sf", 3, 3.0)))
    assert passed(a, b).files == 1
    assert ours(b) == twice(ours(a))


def test_changes_that_were_cleaned_before_they_were_read_are_one_line(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    passed(a, b)
    write(a, "upsert", frame(("a", "sf", 3, 3.0)))
    clean(tmp_path / "a")
    for _ in range(2):
        with refused(RefusedError, 2, "cannot be read any more", "was cleaned", "pass it on into a new table"):
            passed(a, b)
    assert {key: each["fare"] for key, each in ours(b).items()} == {"a": 4.0, "b": 2.0}
    assert quire.Ledger(tmp_path / "b").summary().open_jobs == ()


def test_a_snapshot_that_is_cleaned_while_it_is_listed_is_listed_again(
    two: tuple[Table, Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slices are gone before the listing comes to them, and nothing says that they were there."""
    a, b = two
    newest = file_groups.newest

    def slow(store: Any, line: Any, **more: Any) -> Any:
        if store.url == a.url:
            monkeypatch.setattr(file_groups, "newest", newest)
            write(a, "upsert", frame(("a", "sf", 3, 3.0)))
            clean(tmp_path / "a")
            (tmp_path / "a/.hoodie/20991122100000000.clean.requested").write_bytes(b"")
        return newest(store, line, **more)

    monkeypatch.setattr(file_groups, "newest", slow)
    passed(a, b, schema=SCHEMA)
    assert ours(b) == twice(ours(a))


def test_a_function_that_fails_stops_the_chain_and_the_repaired_one_goes_on(two: tuple[Table, Table], tmp_path: Path) -> None:
    """A later change of the same key would overtake what it has left out."""
    a, b = two
    passed(a, b)
    write(a, "upsert", frame(("a", "sf", 3, -1.0)))

    def strict(split: quire.Split, found: pa.Table) -> pa.Table:
        if any(each["fare"] < 0 for each in found["after"].to_pylist()):
            raise ValueError("negative")
        return doubled(split, found)

    with refused(RefusedError, 2, "the function failed at changes of", "ValueError", "repair it"):
        passed(a, b, strict)
    assert (ours(b)["a"]["fare"], quire.Ledger(tmp_path / "b").summary().open_jobs) == (4.0, ())
    passed(a, b)
    assert ours(b) == twice(ours(a))


def test_what_does_not_go_together_is_said_in_one_line(two: tuple[Table, Table], tmp_path: Path) -> None:
    a, b = two
    bad: list[tuple[Any, Any, dict[str, Any], str]] = [
        (a, a, {}, "lies in the source"),
        (a, tmp_path / "files", {}, "is not one. Create it first"),
        (a.as_of("20261122100000000"), b, {}, "does not change"),
        (a, b.as_of("20261122100000000"), {}, "is read, not written"),
        (a, b, {"include": "*.json"}, "include= is for files"),
        (a, b, {"split": "lines"}, "split= is for files"),
        (a, b, {"reduce": len}, "reduce= is for files"),
        (a, b, {"operation": "merge"}, "unknown operation"),
        (a, b, {"schema": "id string"}, "no column 'city'"),
    ]
    for source_, dest, more, said in bad:
        with pytest.raises(quire.QuireError, match=said):
            passed(source_, dest, **more)
    with refused(UsageError, 2, "is not a table"):
        passed(Table(tmp_path / "nowhere"), b)
    assert log_of(tmp_path / "b").tip == 0 or not list(log_of(tmp_path / "b").commits())


AT = "20261122100000000"


def sides(name: str, *logs: str) -> dict[str, Any]:
    """Slices to compare, as a plan has them."""
    one = {"partition": "sf", "group": "88163884-0", "instant": AT, "name": name, "size": 1, "logs": logs}
    return {"before": [], "after": [one], "since": "", "until": AT, "merging": None}


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        ({"after": ("../b.parquet",)}, "is not a file of a table"),
        ({"after": ("sf/b.parquet",)}, "is not a file of a table"),
        ({"file": "secret"}, "is not a file of a table"),
        ({"file": "_quire/changes/../log"}, "is not a file of a table"),
        ({"instant": "20261122100000001"}, "stands at"),
        ({"rows": "many"}, "is damaged"),
        ({"ended": "2026_x"}, "ended at"),
        ({"sides": sides("../b.parquet")}, "is not a file of a table"),
        ({"sides": sides(f"sf/88163884-0_1-1-1_{AT}.parquet", ".hoodie/../../x.log.1_0-1-2")}, "is not a file of a table"),
        ({"sides": {**sides(f"sf/88163884-0_1-1-1_{AT}.parquet"), "merging": {"holds": {}}}}, "is damaged"),
        ({}, ""),
    ],
)
def test_a_forged_plan_reads_no_other_file(tmp_path: Path, forged: dict[str, Any], said: str) -> None:
    one, at = source.Commits(f"file://{tmp_path}/a"), "20261122100000000"
    look = source.Look(at, "sf", after=(f"sf/88163884-0_1-1-1_{at}.parquet",))
    values = {"path": one.path(at), "size": 1, "version": at, "modified": 0, "start": 1, "length": 1}
    values["follows"] = json.dumps({**dataclasses.asdict(look), **forged})
    store = connect(f"file://{tmp_path}/b")
    put_table(store, "plan.rows", pa.Table.from_pylist([values], PLAN))
    attempt: Any = SimpleNamespace(store=store, work=SimpleNamespace(head=SimpleNamespace(job="0-1")))
    run = TaskRun("", 0, "plan.rows", 0, 0, 1, 1)
    if not said:
        assert source._planned(attempt, one, run) == ([(one.path(at), at, 1, 1)], [look])
        with refused(FormatError, 2, "is not a commit of"):
            source._planned(attempt, source.Commits(f"file://{tmp_path}/c"), run)
        return
    with refused(FormatError, 2, said):
        source._planned(attempt, one, run)


def test_a_job_holds_no_more_than_a_task_can_bring_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless one commit is larger, in which each key is there once."""
    monkeypatch.setattr(changes, "TOGETHER", 10)

    def together(*sizes: tuple[str, str, int]) -> str:
        looks = [source.Look(instant, partition, size=size) for instant, partition, size in sizes]
        return "".join(source._together("54321", looks))

    assert together(("5", "sf", 99), ("4", "sf", 1)) == "5"
    assert together(("5", "sf", 5), ("4", "la", 9), ("3", "sf", 5)) == "54321"
    assert together(("4", "sf", 1), ("3", "sf", 4), ("3", "sf", 6), ("2", "sf", 1)) == "54", "a commit is not cut"
    assert together(("5", "sf", 1), ("3", "sf", 4), ("2", "la", 1), ("2", "sf", 6)) == "543"
    assert together() == "54321"


# ------------------------------------------------------------------------------------------------------------- any history
STEP = st.one_of(
    st.just("pass"),
    st.just("compact"),
    st.tuples(
        st.sampled_from(["upsert", "upsert", "delete"]),
        st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=4),
    ),
)


@settings(
    max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    how=st.sampled_from([{}, {"type": "merge_on_read"}, {"version": 9}, {"type": "merge_on_read", "version": 9}]),
    steps=st.lists(STEP, min_size=2, max_size=7),
    most=st.sampled_from([1, 2, 64]), together=st.sampled_from([1, 1 << 20]),
)  # fmt: skip
def test_after_any_history_the_second_table_is_the_function_of_the_first(
    tmp_path_factory: pytest.TempPathFactory, how: dict[str, Any], steps: list[Any], most: int, together: int
) -> None:
    """However many commits go into one job, and however many jobs into one call."""
    folder = tmp_path_factory.mktemp("chain")
    a, b = create(folder / "a", index="simple", **how), create(folder / "b", ordering=None, index="simple", change_files=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "MOST", most)
        patch.setattr(changes, "TOGETHER", together)
        for step in [*steps, "pass", "pass"]:
            if step == "pass":
                passed(a, b)
                assert (ours(b) if instants(folder / "b") else {}) == (twice(ours(a)) if instants(folder / "a") else {})
            elif step == "compact":
                if "merge_on_read" in how.values():
                    a.compact(spark=LOCAL, progress=False)
            else:
                operation, rows = step
                write(a, operation, frame(*((key, "sf" if key < "d" else "la", ts, float(fare)) for key, ts, fare in rows)))
    if instants(folder / "b"):
        assert quire.Ledger(folder / "b").verify(spark=LOCAL).ok


def plainly(split: quire.Split, found: pa.Table) -> pa.Table:
    rows = pa.Table.from_struct_array(pc.coalesce(found["after"], found["before"]).combine_chunks())
    return rows.append_column("_hoodie_is_deleted", pc.equal(found["op"], "d"))


@pytest.mark.nth(9)
@pytest.mark.parametrize("name", [*(n for n in jvm.names() if "-v6_" in n and "no_meta" not in n), *FOLLOWED])
def test_tables_of_jvm_hudi_are_followed_commit_by_commit(tmp_path: Path, name: str) -> None:
    """Its replacements and clusterings, too: the timeline grows as it has grown, of versions 8 and 9 in the order in which commits end."""
    for path, content in jvm.files(name):
        (tmp_path / "a" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / path).write_bytes(content)
    a = Table(tmp_path / "a")
    line = a._timeline(a._store)
    home = tmp_path / "a" / line.folder
    whole = {each: (home / each.name).read_bytes() for each in sorted(line.completed, key=lambda each: each.counts)}
    for instant in [*whole][1:]:
        (home / instant.name).unlink()
    has = a.config
    b = Table.create(tmp_path / "b", key=list(has.key), partition_by=list(has.partition_by) or None, hive_style=has.hive_style)
    for instant, content in whole.items():
        (home / instant.name).write_bytes(content)
        passed(a, b, plainly)
        left, right = (
            sorted(map(str, table.snapshot(spark=LOCAL).drop_columns(list(META)).to_pylist())) for table in (a, b)
        )  # fmt: skip
        assert left == right


# ------------------------------------------------------------------------------------------------------------- crashes
SMALL = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])


def small(*rows: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SMALL.names, each, strict=True)) for each in rows], SMALL)


def crash(kind: sim.Kind, at: int, fault: str, **more: Any) -> bool:
    """A call that passes on an update, an insert and a delete dies at its change number `at`; False: it came to its end before that."""
    sim.forget_all()
    world, begun = sim.World(kind=kind, observe=False), "memory://from"
    with world.installed():
        first = Table.create(begun, key="id", partition_by="city", index="simple", **more)
        write(first, "upsert", small(("a", "sf", 1), ("b", "la", 1)))
        Table.create(world.dest, key="id", partition_by="city", index="simple")

        def call() -> Any:
            return passed(Table(begun), world.dest, plainly, operation="upsert", function_version="1")

        def there() -> dict[str, int]:
            return {each["id"]: each["n"] for each in Table(world.dest).snapshot(spark=LOCAL).to_pylist()}

        call()
        write(first, "upsert", small(("a", "sf", 2), ("c", "ny", 2)))
        write(first, "delete", small(("b", "la", 3)))
        dead = sim.Actor(faults={at: fault})
        sim.run(world, dead, call)
        with world.acting(sim.Actor("reader")):
            assert there() in ({"a": 1, "b": 1}, {"a": 2, "c": 2}), world.told()
        with world.acting(sim.Actor("next")):
            call()
            log = Log(world.store(world.dest)).refresh()
            assert there() == {"a": 2, "c": 2}, world.told()
            assert sum(entry.why == "" for entry in log.outcomes()) == 2, "each commit of the source is in one of the destination"
            protocol.recover(world.store(world.dest), "open")
        assert ([name for name in world.there() if "/jobs/" in name], world.waiting()) == ([], [])
    return bool(dead.hit)


@pytest.mark.nth(3)
@pytest.mark.parametrize(("name", "fault", "more"), [("hdfs", "before", {}), ("s3", "after", LOGS), ("hdfs", "ambiguous", {})])
def test_a_call_that_dies_loses_and_doubles_no_commit(name: str, fault: str, more: dict[str, str]) -> None:
    """Some changes; the chaos lane takes each of them, on every kind of store."""
    for at in range(1 + len(fault), 1000, 17):
        if not crash(sim.TABLES[name], at, fault, **more):
            assert at > 40
            return


@pytest.mark.chaos
@pytest.mark.parametrize("fault", ["before", "after", "ambiguous", "transient", "late"])
@pytest.mark.parametrize("more", [{}, LOGS], ids=["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("kind", sim.TABLES.values(), ids=str)
def test_a_call_may_die_at_each_change_on_every_kind_of_store(kind: sim.Kind, fault: str, more: dict[str, str]) -> None:
    for at in range(1, 1000):
        if not crash(kind, at, fault, **more):
            assert at > 20
            return


@pytest.mark.nth(4)
@pytest.mark.parametrize("when", ["later", "first", "archived"])
def test_of_two_calls_at_once_each_commit_comes_from_one(two: tuple[Table, Table], tmp_path: Path, when: str) -> None:
    """The second one plans the same commits and more, and commits first: what the first one has made would bring old rows back."""
    a, b = two
    if when == "later":
        passed(a, b)
        write(a, "upsert", frame(("a", "sf", 3, 3.0)))
    begun = list[bool]()

    def slow(split: quire.Split, found: pa.Table) -> pa.Table:
        if not begun:
            begun.append(True)
            write(a, "delete", frame(("b", "la", 9, 0.0)))
            write(a, "upsert", frame(("a", "sf", 9, 9.0)))
            if when == "archived":  # so that both begin, and no commit is in both
                archive(tmp_path / "a", *instants(tmp_path / "a")[:2])
            passed(a, b)
        return doubled(split, found)

    passed(a, b, slow, schema=SCHEMA)
    assert ours(b) == twice(ours(a)) == {"a": {**row("a", "sf", 9), "fare": 18.0}}


def test_spark_passes_the_same_on(two: tuple[Table, Table], spark: Any) -> None:
    a, b = two

    def function(split: quire.Split, found: pa.Table) -> pa.Table:  # of its own: executors do not have this module
        rows = pa.Table.from_struct_array(pc.coalesce(found["after"], found["before"]).combine_chunks())
        return rows.append_column("_hoodie_is_deleted", pc.equal(found["op"], "d"))

    for last in (False, True):
        report = passed(a, b, function, spark=spark)
        assert ours(b) == ours(a)
        if not last:
            write(a, "upsert", frame(("a", "sf", 7, 7.0), ("n", "ny", 1, 1.0)))
            write(a, "delete", frame(("b", "la", 9, 0.0)))
    assert (report.files, set(ours(b))) == (2, {"a", "n"})
