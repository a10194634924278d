"""The shell: the same verbs, words and defaults as in Python, one line for each error, and an exit code that says what to do."""

from __future__ import annotations

import inspect
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pandas as pd
import pytest

import quire
from checker import check, tree, with_newline
from commands import Run, answer, one_line, parsed
from gathering import documents, gather, write
from quire.cli import app, show
from quire.commit import protocol
from quire.commit.entries import Pin
from quire.commit.log import Log
from quire.engine import request
from quire.errors import QuireError
from quire.ledger import tables
from quire.storage import connect
from quire.storage.secret import resolved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
QUIRE = [sys.executable, "-m", "quire.cli"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A source and what was gathered of it: in/ and out/."""
    write(tmp_path / "in", {**documents(9, "xml"), "bad\x1b[31m.xml": b"<a>", "Größe.xml": b"<a/>"})
    gather(tmp_path / "in", tmp_path / "out", transform="xml")
    return tmp_path


# --------------------------------------------------------------------------------------------------------------------- the verbs

COMMANDS = [
    "consolidate", "sniff", "plan", "process", "recover", "skew", "populate", "read", "ledger", "ledger summary", "ledger quarantined",
    "ledger history", "ledger locate", "ledger read", "ledger splits", "ledger verify", "ledger forget", "ledger retry",
    "ledger compact", "ledger expire", "ledger export", "ledger keep-versions", "ledger checkpoint", "ledger pins", "ledger unpin",
    "ledger files",
    "ledger coverage", "ledger tasks", "ledger sizes", "ledger deleted", "ledger changed", "ledger purge-sources",
    "ledger import-markers", "ledger export-markers", "ledger rows", "ledger reasons", "ledger commits", "ledger quarantined-records",
    "maintain", "ledger maintain",
    "ledger unprocessed", "load", "status", "ledger offsets", "ledger lag", "committer", "committer advise", "committer check",
    "committer inspect", "committer lab", "committer sweep", "table", "table create", "table show", "table upsert", "table insert",
    "table bulk-insert", "table delete", "table snapshot", "table changes", "table compact", "table clean", "table savepoint",
    "table savepoints", "table stats", "table timeline", "table doctor", "table history", "table remove-leftovers",
    "table insert-overwrite", "table cluster", "table delete-partitions", "table rollback", "table restore", "table archive",
    "table maintain", "emit", "table sync-metastore", "run",
]  # fmt: skip


def every(group: click.Group = app.cli, path: str = "") -> dict[str, click.Command]:
    found = {}
    for name, command in group.commands.items():
        found[f"{path}{name}"] = command
        if isinstance(command, click.Group):
            found |= every(command, f"{path}{name} ")
    return found


@pytest.mark.nth(3)
@pytest.mark.parametrize("arguments", ["--help", "ledger rows {}/out", "ledger read {0}/out {0}/in/Größe.xml"])
def test_an_output_that_is_full_is_one_line(place: Path, arguments: str) -> None:
    says = f"import sys; from quire.cli.app import main; main({arguments.format(place).split()!r})"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", says], stdout=full, stderr=subprocess.PIPE, text=True, env={**os.environ})
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "the output cannot be written: No space left on device. Free some space there, or send it elsewhere" in done.stderr


def test_a_table_keeps_both_ends_of_long_paths(capsys: pytest.CaptureFixture[str]) -> None:
    path = f"s3://lake/{'deep/' * 60}name.xml"
    show.frame(pd.DataFrame({"path": [path], "n": [1]}), False, "none")
    line = capsys.readouterr().out.splitlines()[1].split()[0]
    assert (len(line), line[:15], line[-14:]) == (120, path[:15], path[-14:])


def test_a_whole_number_stays_one_where_other_rows_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"n": [7, None], "none": [None, float("nan")], "seconds": [1.0, 2.0], "share": [0.5, None]}
    show.frame(pd.DataFrame(found).astype({"none": float}), True, "none")
    said = [{"n": 7, "none": None, "seconds": 1.0, "share": 0.5}, {"n": None, "none": None, "seconds": 2.0, "share": None}]
    out = capsys.readouterr().out
    assert json.loads(out) == said
    assert '"n":7,' in out
    show.frame(pd.DataFrame(found), False, "none")
    assert " 7 " in capsys.readouterr().out


def test_the_ledger_is_looked_at_page_by_page(run: Run, place: Path) -> None:
    found = answer(run("ledger", "rows", place / "out", "Größe", "--json"))
    assert [(row["path"].rpartition("/")[2], row["state"]) for row in found] == [("Größe.xml", "done")]
    code, out, _ = run("ledger", "rows", place / "out", place / "in/d1", "--limit", 2, "--offset", 2)
    assert (code, out.count(".xml"), out.splitlines()[-1]) == (0, 1, "3–3 of 3 rows")
    assert run("ledger", "rows", place / "out", "none of them")[:2] == (0, "no rows\n")
    for path, near in (("in/Große.xml", "Größe.xml"), (place / "inn/d1", f"file://{place}/in/d1"), ("wrong/path", "quire ledger rows")):
        one_line(run("ledger", "rows", place / "out", path), 2, f"holds no path with '{path}' in it", near)
    assert run("ledger", "rows", place / "out", place / "in/d1", "--state", "lost")[:2] == (0, "no rows\n"), "it is there in another state"
    (bad,) = answer(run("ledger", "rows", place / "out", "--state", "quarantined", "--json"))
    (why,) = answer(run("ledger", "reasons", place / "out", "--json"))
    assert (why["reason"], why["files"], why["example"]) == ("malformed XML", 1, bad["path"])
    (commit,) = answer(run("ledger", "commits", place / "out", "--last", 1, "--json"))
    assert (commit["verb"], commit["files"], commit["quarantined"], commit["data_files"]) == ("run", 10, 1, 1)
    assert "\x1b" not in run("ledger", "rows", place / "out")[1]


def test_the_verbs_are_those_of_the_design_and_each_has_its_help(run: Run) -> None:
    assert set(every()) == set(COMMANDS)
    for name, command in every().items():
        code, out, err = run(*name.split(), "--help")
        assert (code, err) == (0, "")
        assert out.startswith(f"Usage: quire {name}")
        assert command.help
        assert run(*name.split(), "-h") == (0, out, "")
        for parameter in command.params:
            assert getattr(parameter, "help", "") or isinstance(parameter, click.Argument), f"{name} {parameter.name}"
        if not isinstance(command, click.Group) and name != "ledger read":
            assert "--json" in out, "everywhere but where a file's own bytes are printed"
    assert run("--version") == (0, f"quire, version {quire.__version__}\n", "")
    for group in ((), ("ledger",), ("table",)):
        code, out, err = run(*group)
        assert (code, out) == (2, "")
        assert "Commands:" in err


@pytest.mark.parametrize("verb", ["consolidate", "plan", "process", "load"])
def test_every_option_has_the_name_and_default_that_it_has_in_python(verb: str) -> None:
    options = {p.name: p for p in every()[verb].params if isinstance(p, click.Option)}
    python = inspect.signature(getattr(quire, verb)).parameters
    sides = {f"{side}{kind}" for side in ("", "source_", "dest_") for kind in ("options", "secrets")}
    sides |= {f"{side}_profile" for side in ("store", "source", "dest")}
    # Python has these otherwise.
    ours = {"as_json", "quiet", "master", *(("options", "secrets", "registry_secrets") if verb == "load" else sides)}
    assert set(options) - ours <= set(python)
    not_in_a_shell = "source dest spark progress storage_options source_options dest_options "
    not_in_a_shell += {"process": "function stop", "load": "stop", "plan": ""}.get(verb, "stop ")
    not_in_a_shell += "keep_messages function_version" if verb in ("consolidate", "plan") else ""
    assert set(python) - (set(options) - ours) == set(not_in_a_shell.split())
    defaults = parsed(every()[verb], "in", *(["function"] if verb == "process" else []), "out")
    for name in set(options) - ours:
        default = defaults[name]
        assert (default or None if options[name].multiple else default) == python[name].default, name
        assert options[name].opts == [f"--{name.replace('_', '-')}"]


def test_consolidate_and_plan(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "in", {**documents(30), "x.tmp": b"1", "_hidden": b"h"})
    other = write(tmp_path / "other", {"y": b"2"})
    arguments = (
        source,
        other,
        tmp_path / "out",
        "--exclude",
        "*.tmp",
        "--hidden",
        "--compression",
        "zstd",
        "--target-size",
        "1KB",
        "--quiet",
    )
    plan = answer(run("plan", *arguments, "--json"))
    assert set(plan) == {
        "dest", "listed", "skipped", "files", "bytes", "columns", "estimate", "changed", "longer", "outdated", "young", "hidden", "links",
        "commits",
            "unreadable", "troubles", "skew", "tasks",
    }  # fmt: skip
    assert (plan["files"], plan["skipped"]) == (32, 0)
    assert set(plan["tasks"][0]) == {"task", "directory", "part", "files", "bytes"}
    assert not list((tmp_path / "out").rglob("plan*")), "looking leaves nothing"
    assert "files listed" in run("plan", *arguments)[1]
    report = answer(run("consolidate", *arguments, "--json"))
    more = {"files_per_second", "next", "all_quarantined", "quarantined", "quarantined_count"}
    assert set(report) == set(quire.Report.__dataclass_fields__) | more
    assert report["files"] == 32
    code, out, err = run("consolidate", *arguments)
    assert (code, err) == (0, "")
    assert re.search(r"skipped \(already processed\) +32\n", out)
    check({**{p: c for p, c in tree(source, hidden=True).items() if not p.endswith("tmp")}, **tree(other)}, tmp_path / "out", with_newline)
    again = answer(run("consolidate", *arguments, "--every", "1 ms", "--max-runs", "2", "--json"))
    assert again["files"] == 0


def test_recover(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(run("recover", place / "out", "--json")) == {
        "dest": f"file://{place}/out", "published": [], "given_up": [], "open": [], "version": 2, "foreign": [],
        "rolled_back": [], "lost_updates": [],
    }  # fmt: skip
    write(place / "in", {"more.xml": b"<a/>"})
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "commit", lambda *_, **__: (_ for _ in ()).throw(QuireError("the disk is full")))
        one_line(run("consolidate", place / "in", place / "out", "--transform", "xml", "--quiet"), 3, "the disk is full")
    (job,) = answer(run("recover", place / "out", "--json"))["open"]
    one_line(run("recover", place / "out", "--abort", "nonsense"), 2, "is not known", job)
    code, out, err = run("recover", place / "out", "--abort", "open")
    assert (code, err) == (0, "")
    assert re.search(rf"given up +{job}", out)


def test_skew(run: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {*quire.skew.check([1]).as_dict()}
    assert {"verdict", "p_value", "ratio", "heaviest", "missing_share", "explanation"} <= keys
    assert set(answer(run("skew", place / "out", "--json"))) == keys
    counts = tmp_path / "counts.json"
    counts.write_text(json.dumps({"counts": {f"{i}\n": 200 if i == 0 else 100 for i in range(8)}, "listed": 1700}))
    found = answer(run("skew", counts, "--json"))
    assert set(found) == keys
    assert found["verdict"] == "missing abs()"
    code, out, err = run("skew", counts)
    assert (code, err) == (0, "")
    assert out.startswith("missing abs(): ")
    assert r"0\n" in out
    counts.write_text("[]")
    assert answer(run("skew", counts, "--json"))["ratio"] is None
    for text in ("[1, 2", '{"counts": [1], "colour": 2}', '"x"', "[-1, 2]", '[1, "a"]', "[1e999]", "{}x"):
        counts.write_text(text)
        one_line(run("skew", counts), 2)
    one_line(run("skew", tmp_path / "no.json"), 2, "cannot read")
    counts.write_bytes(b"\xff\xfe")
    one_line(run("skew", counts), 2, "not JSON")
    with (tmp_path / "given").open("w+") as given:
        given.write("[10, 10]")
        given.seek(0)
        monkeypatch.setattr(sys, "stdin", given)
        assert answer(run("skew", "-", "--json"))["parts"] == 2


def test_populate(run: Run, tmp_path: Path) -> None:
    found = answer(run("populate", tmp_path / "in", "--files", 20, "--dirs", 2, "--quiet", "--json", "--size", "1KB", "--processes", 1))
    assert found["files"] == 20
    assert sum(p.is_file() for p in (tmp_path / "in").rglob("*")) == 20
    code, out, err = run("populate", tmp_path / "in2", "--files", 3, "--quiet", "--processes", 1)
    assert (code, out.count("\n"), err) == (0, 1, "")
    one_line(run("populate", tmp_path / "x", "--shape", "evn"), 2, "even")


def test_read_prints_what_is_there(run: Run, place: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "latin", {"a": b"Gr\xfc\xdfe\nzwei", "b": b"drei\r\n", "c": b""})
    for transform, laid_out in [("lines", "lines"), ("raw", "raw"), ("raw", "parquet")]:
        gather(source, tmp_path / laid_out, transform=transform, format=laid_out)
    assert run("read", tmp_path / "lines") == (0, "Gr\udcfc\udcdfe\nzwei\ndrei\r\n", "")
    assert run("read", tmp_path / "lines", "--limit", 1)[1].count("\n") == 1
    assert run("read", tmp_path / "lines", "--limit", 0)[1] == ""
    rows = [json.loads(line) for line in run("read", tmp_path / "lines", "--json")[1].splitlines()]
    assert rows == [{"value": r"Gr\xfc\xdfe"}, {"value": "zwei"}, {"value": "drei\r"}]
    for laid_out in ("raw", "parquet"):
        for more in ((), ("--json",)):
            rows = [json.loads(line) for line in run("read", tmp_path / laid_out, *more)[1].splitlines()]
            assert {r["path"].rpartition("/")[2]: r["content"] for r in rows} == {"a": "Gr\\xfc\\xdfe\nzwei", "b": "drei\r\n", "c": ""}
    one_line(run("read", tmp_path / "nothing"), 2, "nothing to read")


# --------------------------------------------------------------------------------------------------------------------- the ledger


def test_the_ledgers_verbs(run: Run, place: Path) -> None:
    dest = place / "out"
    assert set(answer(run("ledger", "summary", dest, "--json"))) == set(quire.ledger.Summary.__dataclass_fields__)
    failed = answer(run("ledger", "quarantined", dest, "--json"))
    assert [set(row) for row in failed] == [{"path", "version", "start", "length", "reason", "tries", "attempt", "commit", "member"}]
    history = answer(run("ledger", "history", dest, "--json"))
    assert [row["kind"] for row in history] == ["commit", "published"]
    (found,) = answer(run("ledger", "locate", dest, place / "in/Größe.xml", "--json"))
    assert set(found) == set(quire.ledger.Location.__dataclass_fields__)
    verified = answer(run("ledger", "verify", dest, "--json"))
    assert set(verified) == {*quire.ledger.Verified.__dataclass_fields__, "ok"}
    for verb in ("summary", "quarantined", "history", "verify"):
        code, out, err = run("ledger", verb, dest)
        assert (code, err) == (0, "")
        assert all(line.isprintable() for line in out.splitlines()), "a name never writes to the terminal"
    code, out, err = run("ledger", "locate", dest, place / "in/bad\x1b[31m.xml")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert out.rstrip("\n").isprintable()
    assert "quarantined: malformed XML" in out


def test_every_look_is_json_too(run: Run, place: Path) -> None:
    dest = place / "out"
    for verb in ("files", "tasks", "sizes", "history", "quarantined"):
        rows = answer(run("ledger", verb, dest, "--json"))
        assert rows
        assert all(list(row) == tables.TABLES[verb].names for row in rows)
        assert run("ledger", verb, dest)[0] == 0
    covered = answer(run("ledger", "coverage", dest, place / "in/Größe.xml", "--json"))
    assert [row["state"] for row in covered] == ["done"]


def test_upkeep_that_could_not_be_done_is_no_success_to_cron(run: Run, tmp_path: Path) -> None:
    for i in range(3):
        gather(write(tmp_path / "in", {f"{i}": b"1\n"}), tmp_path / "out")
    asked = ("maintain", tmp_path / "out", "--small-files", 2, "--sort-by", "n", "--quiet", "--json")
    said = answer(run(*asked), 3)
    assert (list(said["due"]), said["compaction"]) == (["compact"], None)
    assert "sort_by= is for Parquet" in said["hindered"]["compact"]
    assert answer(run(*asked, "--dry-run"))["hindered"] == {}


def test_a_pin_speaks_to_no_terminal(run: Run, place: Path) -> None:
    log = Log(connect(f"file://{place}/out")).refresh()
    odd = "\x1b[31mred\nrow"  # an id of somebody else, who may write there
    log.append(lambda log: None if odd in log.pins() else Pin(version=2, id=odd, time=""))
    assert run("ledger", "pins", place / "out") == (0, "\\x1b[31mred\\nrow  version 2\n", "")
    assert answer(run("ledger", "pins", place / "out", "--json")) == {odd: 2}
    assert run("ledger", "unpin", place / "out", odd) == (0, "\\x1b[31mred\\nrow is not a pin any more\n", "")
    assert run("ledger", "pins", place / "out") == (0, "no pin is open\n", "")


def test_a_destination_is_exported_and_not_any_more(run: Run, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(3)), tmp_path / "out"
    how = ("--transform", "raw", "--format", "parquet", "--quiet")
    answer(run("consolidate", source, dest, *how, "--json"))
    said = answer(run("ledger", "export", dest, "delta", "--json"))
    assert (said["format"], said["version"], said["commit"]) == ("delta", 3, 0)
    write(source, {"new": b"new"})
    assert answer(run("consolidate", source, dest, *how, "--exports", "delta", "--json"))["exports"] == ["delta: version 6"]
    assert (dest / "_delta_log" / f"{1:020}.json").exists()
    assert run("ledger", "export", dest, "delta", "--drop") == (0, "", "")
    assert not (dest / "_delta_log").exists()
    assert answer(run("ledger", "export", dest, "delta", "--json"))["format"] == "delta"
    assert answer(run("ledger", "export", dest, "delta", "--drop", "--json")) == {"dropped": "delta"}
    for words, wrong in ((("detla",), "Did you mean 'delta'"), (("iceberg", "--catalog", "prod"), "go together")):
        code, _, err = run("ledger", "export", dest, *words)
        assert code == 2
        assert wrong in err
    said = answer(run("ledger", "export", dest, "iceberg", "--location", "s3://lake/out", "--json"))
    assert (said["format"], said["commit"]) == ("iceberg", 1)


def test_sources_go_and_markers_come_and_go(run: Run, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(6)), tmp_path / "out"
    gather(source, dest)
    assert answer(run("ledger", "deleted", dest, source, "--json")) == []
    assert answer(run("ledger", "export-markers", dest, tmp_path / "m", "--json"))["written"] == 6
    said = answer(run("ledger", "import-markers", tmp_path / "new", tmp_path / "m", source, "--json", "--quiet"))
    assert (said["gathered"], said["left_count"]) == (6, 0)
    said = answer(run("ledger", "purge-sources", dest, "--source", source / "d0", "--min-age", "0", "--json"))
    assert (said["dry_run"], said["files"]) == (True, 2)
    assert len(tree(source)) == 6, "without --yes nothing is deleted"
    code, out, err = run("ledger", "purge-sources", dest, "--source", source / "d0", "--yes", "--min-age", "0")
    assert (code, err) == (0, "")
    assert "verified and deleted" in out
    assert len(tree(source)) == 4
    assert answer(run("ledger", "deleted", dest, source, "--json")) == [], "what was purged is finished"
    os.unlink(next(iter(tree(source))))
    (gone,) = answer(run("ledger", "deleted", dest, source, "--json"))
    assert set(gone) == set(tables.TABLES["deleted"].names)
    Path(next(iter(tree(source)))).write_bytes(b"another content")
    (other,) = answer(run("ledger", "changed", dest, source, "--json"))
    assert set(other) == set(tables.TABLES["changed"].names)
    code, _, err = run("ledger", "import-markers", dest, tmp_path / "nothing", source)
    assert (code, err.count("\n")) == (2, 1)
    assert answer(run("ledger", "export-markers", dest, tmp_path / "m", "--json"))["removed"] == 2, "of what was purged"
    names = tmp_path / "names.py"
    names.write_text(
        "def reads(name):\n    path, start, length = name.rsplit('-', 2)\n    return path.replace('+', '/'), int(start), int(length)\n"
    )
    left = next(iter(tree(source)))
    (tmp_path / "m2").mkdir()
    (tmp_path / "m2" / f"{left.replace('/', '+')}-0-{os.stat(left).st_size}").touch()
    taken = ("ledger", "import-markers", tmp_path / "n2", tmp_path / "m2", source, "--json", "--quiet", "--parse")
    said = answer(run(*taken, f"{names}:reads"))
    assert (said["gathered"], said["left_count"]) == (1, 0)
    code, _, err = run(*taken, "path_ofset_length")
    assert (code, "Did you mean 'path_offset_length'" in err) == (2, True)


def test_ledger_read_writes_the_bytes_of_a_file(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"\x00\xff\r\nno end", "empty": b""})
    name = os.fsdecode(b"\xff%")
    (source / name).write_bytes(b"odd")
    gather(source, tmp_path / "out", transform="raw", compression="gzip")
    assert run("ledger", "read", tmp_path / "out", source / "a") == (0, "\x00\udcff\r\nno end", "")
    assert run("ledger", "read", tmp_path / "out", source / "empty") == (0, "", "")
    assert run("ledger", "read", tmp_path / "out", source / name) == (0, "odd", "")
    one_line(run("ledger", "read", tmp_path / "out", source / "b"), 2, "is not in the ledger")
    one_line(run("ledger", "read", tmp_path / "in", "b"), 2, "holds no ledger")


def test_splits_are_read_on_spark(run: Run, place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def shared(master: str | None) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(app, "spark_of", shared)
    rows = answer(run("ledger", "splits", place / "out", "--where", "state = 'quarantined'", "--json"))
    assert [set(row) for row in rows] == [set(quire.ledger.Location.__dataclass_fields__)]
    code, out, _ = run("ledger", "splits", place / "out", "--limit", 3)
    assert (code, len(out.splitlines())) == (0, 4)
    one_line(run("ledger", "splits", place / "out", "--where", "colour = 1"), 2, "where=")


def test_damage_ends_with_3(run: Run, place: Path) -> None:
    (data,) = (place / "out").glob("part-*")
    data.write_bytes(data.read_bytes()[:-3])
    code, out, _ = run("ledger", "verify", place / "out")
    assert code == 3
    assert "DAMAGED" in out
    assert answer(run("ledger", "verify", place / "out", "--json"), 3)["ok"] is False


# --------------------------------------------------------------------------------------------------------------- errors and codes


def test_what_is_typed_wrong_is_one_line_that_names_the_nearest_or_what_there_is(run: Run, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(2)), tmp_path / "out"
    one_line(run("consolidat", source, dest), 2, "Did you mean 'consolidate'?")
    one_line(run("zzz"), 2, "consolidate, emit, ledger, load, maintain, plan, populate, process, read, recover, run, skew, sniff, status")
    one_line(run("ledger", "sumary", dest), 2, "Did you mean 'summary'?")
    one_line(run("consolidate", source, dest, "--planer", "hash"), 2, "--planner", "quire consolidate --help")
    one_line(run("--planner", "hash"), 2, "--planner")
    one_line(run("consolidate", source), 2, "Missing argument", "It is called as: quire consolidate [OPTIONS] SOURCE... DEST.")
    one_line(run("recover", dest, "more"), 2, "more")
    one_line(run("consolidate", source, dest, "--parts", "many"), 2, "--parts", "many")
    one_line(run("consolidate", source, dest, "--parts"), 2, "--parts")
    for option, value, word in [
        ("--planner", "balancd", "balanced"), ("--transform", "line", "lines"), ("--format", "parket", "parquet"),
        ("--compression", "zst", "zstd"), ("--committer", "renam", "rename"), ("--layout", "flatt", "flat"),
        ("--hash-function", "jav", "java"), ("--on-change", "ignored", "ignore"),
    ]:  # fmt: skip
        one_line(run("consolidate", source, dest, option, value), 2, f"Did you mean '{word}'?")
    one_line(run("consolidate", source, dest, "--target-size", "12 potatoes"), 2, "target_size")
    one_line(run("consolidate", source, dest, "--max-runs", 2), 2, "max_runs", "every")
    one_line(run("consolidate", source, dest, "--parts", 3), 2, "parts=3", "without planner='hash' it does nothing")
    one_line(run("load", "kafka://localhost:9/t", dest, "--function-version", 1), 2, "function_version", "without transform=function")
    one_line(run("plan", tmp_path / "no", dest), 2, "does not exist")
    assert not dest.exists()


def test_the_exit_codes(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = place / "in", place / "new"
    assert run("consolidate", source, dest, "--transform", "xml", "--quiet")[0] == 0, "files that were quarantined are no failure"
    one_line(run("consolidate", source, place / "1", "--transform", "xml", "--max-quarantined", 0, "--quiet"), 1)
    one_line(run("consolidate", source, dest, "--quiet"), 2, "holds transform 'xml'")

    def raises(error: BaseException) -> Callable[..., None]:
        def call(*_: Any, **__: Any) -> None:
            raise error

        return call

    for error, code in [(QuireError("lost\nthe store"), 3), (RuntimeError("a bug\nsecret=abc"), 3), (MemoryError(), 3)]:
        monkeypatch.setattr(quire, "recover", raises(error))
        one_line(run("recover", dest), code)
    assert "abc" not in run("recover", dest)[2]
    monkeypatch.setattr(quire, "recover", raises(KeyboardInterrupt()))
    code, out, err = run("recover", dest)
    assert (code, out) == (130, "")
    assert err.strip() == "interrupted: what was committed is safe, and the next run goes on"
    monkeypatch.setattr(quire, "recover", raises(BrokenPipeError()))
    one_line(run("recover", dest), 3, "connection")


@pytest.mark.nth(3)
@pytest.mark.parametrize(
    "verb", [("read", "out", "--limit", "1000000"), ("ledger", "read", "out", "in/big"), ("ledger", "quarantined", "out", "--json")]
)
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, verb: tuple[str, ...]) -> None:
    write(tmp_path / "in", {"big": b"0123456789\n" * 100_000})
    gather(tmp_path / "in", tmp_path / "out")
    command = subprocess.Popen([*QUIRE, *verb], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.read(5)
    command.stdout.close()
    assert command.stderr.read() == b""
    command.stderr.close()
    assert command.wait() == 0


@pytest.mark.services
def test_from_a_shell_with_a_spark_of_its_own(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(20))
    done = subprocess.run([*QUIRE, "consolidate", "in", "out", "--json", "--master", "local[1]"], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["files"] == 20
    check(source, tmp_path / "out")


def test_a_stream_that_was_closed_is_no_error_and_no_file_takes_its_place(place: Path) -> None:
    looks = (
        "import os, sys; from quire import cli; cli.main(['ledger', 'summary', 'out']); "
        "print([os.fstat(n).st_rdev == os.stat(os.devnull).st_rdev for n in (0, 1)], file=sys.stderr)"
    )
    closed = f"{shlex.join([sys.executable, '-c', looks])} <&- >&-"
    done = subprocess.run(["sh", "-c", closed], cwd=place, capture_output=True)
    assert (done.returncode, done.stderr.decode().strip()) == (0, "[True, True]")


def test_what_a_terminal_cannot_show_is_no_error(place: Path) -> None:
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*QUIRE, "ledger", "summary", "out"], cwd=place, capture_output=True, env=latin)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"xml \u2192 lines" in done.stdout


def test_options_reach_the_stores_of_both_sides_and_of_each(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDDEN", "of the environment")
    seen = list[dict[str, Any]]()

    def called(*_: object, **given: Any) -> None:
        sides = {name: given.get(name) for name in ("storage_options", "source_options", "dest_options")}
        seen.append({name: resolved(found or {}) for name, found in sides.items()})
        raise quire.UsageError("seen")

    for module, name in ((app.quire, "sniff"), (request, "build"), (app, "check")):
        monkeypatch.setattr(module, name, called)
    given = ("--store-option", "endpoint_url=http://h:1/?a=b", "--store-secret", "secret=HIDDEN")
    each = ("--source-option", "profile=partner", "--dest-option", "profile=lake", "--dest-secret", "token=HIDDEN")
    both = {"endpoint_url": "http://h:1/?a=b", "secret": "of the environment"}
    for verb in (
        ("consolidate", "s3://in", "s3://out"),
        ("plan", "s3://in", "s3://out"),
        ("process", "s3://in", "operator:eq", "s3://out"),
    ):
        one_line(run(*verb, *given, *each), 2, "seen")
        assert seen.pop() == {
            "storage_options": both,
            "source_options": {"profile": "partner"},
            "dest_options": {"profile": "lake", "token": "of the environment"},
        }
    one_line(run("sniff", "s3://in", *given), 2, "seen")
    assert seen.pop()["storage_options"] == both
    one_line(run("consolidate", "s3://in", "s3://out", "--source-option", "profile"), 2, "--source-option takes NAME=VALUE")
    one_line(run("consolidate", "s3://in", "s3://out", "--dest-secret", "=x"), 2, "--dest-secret takes NAME=VARIABLE")
    one_line(run("consolidate", "s3://in", "s3://out", "--store-option", "x"), 2, "--store-option takes NAME=VALUE")
    assert not seen


def test_a_wrong_argument_is_said_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(app, "spark_of", lambda _: pytest.fail("it was started"))
    for verb in ("consolidate", "plan"):
        one_line(run(verb, tmp_path / "no", tmp_path / "out"), 2, "does not exist")
    for verb in ("verify", "splits"):
        one_line(run("ledger", verb, tmp_path), 2, "holds no ledger")


# -------------------------------------------------------------------------------------------------------------- README and docs


def test_what_the_pages_say_exists() -> None:
    described = "".join(path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))))
    pages = described + "".join((ROOT / page).read_text() for page in ("CONTRIBUTING.md", "Makefile"))
    targets = set(re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^    |\n    )make ([a-z-]+)", pages))
    assert {"lab", "demo", "test", "bench"} <= named <= targets
    verbs = set(re.findall(r"(?:`|^    |\n    |bin/|\$\(BIN\)/)quire ((?:(?:ledger|committer) )?[a-z]+(?:-[a-z]+)*)\b(?! \|)", pages))
    assert {"consolidate", "ledger summary", "populate", "committer advise"} <= verbs <= set(every()) | {"ledger", "committer"}
    (listed,) = re.findall(r"`quire (sniff \|[^`]*)`", (ROOT / "docs/shell.md").read_text())
    assert {word.strip(" …") for word in listed.split("|")} == {name for name in every() if " " not in name}
    (listed,) = re.findall(r"`quire ledger (summary \|[^`]*) DEST`", (ROOT / "docs/ledger.md").read_text())
    assert {f"ledger {word.strip()}" for word in listed.split("|")} <= set(every())
    for option in re.findall(r" (--[a-z-]+)", (ROOT / "Makefile").read_text().partition("demo:")[2].partition("##@")[0]):
        assert any(option in p.opts for c in every().values() for p in c.params) or option == "--help"
    names = set(re.findall(r"`?quire\.([A-Za-z_.]+)[(`]", described))
    assert {"consolidate", "plan", "process", "load", "read", "Ledger", "recover", "skew.check"} <= names
    for name in names - {"stores", "committers", "events", "indexes"}:  # the groups of entry points
        assert pkgutil.resolve_name(f"quire.{name}") is not None


def test_what_is_not_done_is_named_one_a_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"
    monkeypatch.setattr(app, "spark_of", lambda master: nullcontext(spark))
    assert run("ledger", "unprocessed", dest, source)[1].count("\n") == 4
    assert not dest.exists()
    gather(source, dest, include="d0/*")
    assert run("ledger", "unprocessed", dest, source) == (0, f"file://{source}/d1/f0001.txt\nfile://{source}/d2/f0002.txt\n", "")
    assert answer(run("ledger", "unprocessed", dest, source, "--include", "d2/*", "--json")) == [f"file://{source}/d2/f0002.txt"]
    (source / "d0/f0000.txt").write_bytes(b"rewritten, and longer than it was before")
    for form in ((), ("--json",)):
        said = run("ledger", "unprocessed", dest, source, *form)[2]
        assert said == (
            f"not among them, changed since they were done: 1 (1 of them longer now); quire ledger changed {dest} {source} names all\n"
        )
    assert run("ledger", "unprocessed", dest, source, "--include", "d2/*")[2] == "", "only what was asked for"
    code, _, said = run("ledger", "unprocessed", dest, tmp_path / "typo")
    assert (code, said.count("\n")) == (2, 1)


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line_without_a_place_in_the_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(app, "first_rows", lambda *_, **__: warnings.warn("no broker tells", UserWarning, stacklevel=1) or [])
    with suppress(SystemExit):
        app.main(["read", "somewhere"])
    assert capsys.readouterr().err.splitlines()[0] == "warning: no broker tells"


def test_rows_with_numbers_that_json_lacks_are_json_all_the_same(run: Run, tmp_path: Path) -> None:
    def parse(split: Any, content: bytes) -> Iterator[dict[str, Any]]:
        yield {"n": float(content), "all": [1.5, float("nan")], "in": {"x": -float("inf")}}

    source = write(tmp_path / "in", {"a": b"nan", "b": b"inf", "c": b"0.5"})
    quire.process(source, tmp_path / "out", parse, spark=quire.LocalRunner(), progress=False)
    code, out, _ = run("read", tmp_path / "out", "--json", "--limit", 10**20)
    rows = [json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON")) for line in out.splitlines()]
    assert (code, rows[0]) == (0, {"n": None, "all": [1.5, None], "in": {"x": None}})
    assert [row["n"] for row in rows] == [None, None, 0.5]


def test_an_offset_with_two_signs_is_wrong_use(run: Run, tmp_path: Path) -> None:
    one_line(run("load", "kafka://127.0.0.1:1/t", tmp_path / "out", "--until=--5"), 2, "--5", "give an offset")
