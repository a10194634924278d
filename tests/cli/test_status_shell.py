"""`quire status`: a line for each destination, an exit code for cron, and a file for Prometheus that is always whole."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from commands import Run, answer, one_line
from gathering import documents, gather, write


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A destination that is well, and one in which all is quarantined: well/ and ill/."""
    gather(write(tmp_path / "in", documents(9)), tmp_path / "well")
    gather(write(tmp_path / "bad", {"a.xml": b"<a>"}), tmp_path / "ill", transform="xml")
    return tmp_path


def test_a_line_for_each_and_the_worst_is_the_exit_code(place: Path, run: Run) -> None:
    well, ill = place / "well", place / "ill"
    code, out, err = run("status", well)
    assert (code, err) == (0, "")
    assert out.startswith(f"file://{well}: well, 18 records in 1 data file")
    code, out, err = run("status", well, ill)
    assert (code, err) == (1, "")
    assert [line.partition(": ")[0] for line in out.splitlines()] == [f"file://{well}", f"file://{ill}"]
    assert out.endswith(f"See why: quire ledger quarantined {ill}\n")
    code, out, err = run("status", place / "nothing", ill, well)
    assert (code, len(out.splitlines())) == (2, 2), "the others are looked at all the same"
    assert err.startswith(f"error: {place}/nothing: ")
    assert "holds no ledger" in err


def test_the_source_and_the_age_that_is_allowed(place: Path, run: Run) -> None:
    write(place / "in", {"new.txt": b"x\n", "new.log": b"y\n"})
    assert run("status", place / "well", "--source", place / "in")[0] == 0
    code, out, _ = run("status", place / "well", "--source", place / "in", "--include", "*.txt", "--max-age", "1 s")
    assert code == 1
    assert "1 split is not processed, the oldest file is there for 60 s" in out
    assert run("status", place / "well", "--source", place / "in", "--max-age", "1 h")[0] == 0
    assert run("status", place / "well", "--source", place / "in", "--exclude", "new.*", "--max-age", "1 s")[0] == 0


def test_json_is_one_document(place: Path, run: Run) -> None:
    well, ill, gone = answer(run("status", place / "well", place / "ill", place / "nothing", "--json"), code=2)
    assert (well["ok"], well["findings"]) == (True, [])
    assert (ill["ok"], [each["kind"] for each in ill["findings"]]) == (False, ["all quarantined"])
    assert (gone["ok"], gone["dest"]) == (False, str(place / "nothing"))
    assert "holds no ledger" in gone["error"]


def test_a_file_for_the_collector_is_whole_and_readable_for_it(place: Path, run: Run) -> None:
    file = place / "prom" / "quire.prom"
    one_line(run("status", place / "well", "--prometheus", "--output", file), 2, "cannot write", "directory that is there")
    file.parent.mkdir()
    code, out, err = run("status", place / "well", place / "ill", place / "nothing", "--prometheus", "--output", file)
    assert (code, out) == (2, "")
    assert "holds no ledger" in err
    families = {family.name: family for family in text_string_to_metric_families(file.read_text())}
    found = {sample.labels["dest"].rpartition("/")[2]: sample.value for sample in families["quire_reachable"].samples}
    assert found == {"well": 1.0, "ill": 1.0, "nothing": 0.0}
    assert [path.name for path in file.parent.iterdir()] == ["quire.prom"]
    assert file.stat().st_mode & 0o777 == 0o644
    before = file.read_text()
    code, out, err = run("status", place / "well", "--prometheus")
    assert (code, err) == (0, "")
    assert out.startswith("# HELP quire_reachable ")
    assert file.read_text() == before


def test_a_write_that_fails_leaves_the_file_of_before(place: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place / "quire.prom"
    file.write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    one_line(run("status", place / "well", "--prometheus", "--output", file), 2, "cannot write", "No space left on device")
    assert file.read_text() == "before"
    assert not list(place.glob(".quire-*"))


def test_a_disk_that_is_full_keeps_nothing_of_it(place: Path, run: Run) -> None:
    (place / "prom").mkdir()
    before, soft = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, soft[1]))
    try:
        said = run("status", place / "well", "--prometheus", "--output", place / "prom" / "quire.prom")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft)
        signal.signal(signal.SIGXFSZ, before)
    one_line(said, 2, "cannot write", "File too large")
    assert not list((place / "prom").iterdir()), "a call each minute would fill the directory"


def test_a_destination_has_one_name_whether_or_not_it_can_be_looked_at(place: Path, run: Run) -> None:
    def named() -> set[str]:
        _, out, _ = run("status", place / "well", "--prometheus")
        families = {family.name: family for family in text_string_to_metric_families(out)}
        return {sample.labels["dest"] for sample in families["quire_reachable"].samples}

    before = named()
    (place / "well").rename(place / "away")
    assert named() == before == {f"file://{place}/well"}


def test_wrong_use_is_one_line(place: Path, run: Run) -> None:
    well = place / "well"
    one_line(run("status"), 2, "DEST")
    one_line(run("status", well, "--max-age", "1 x"), 2, "max_age", "'x'")
    one_line(run("status", well, place / "ill", "--source", place / "in"), 2, "--source is of one destination")
    one_line(run("status", well, "--json", "--prometheus"), 2, "two forms")
    one_line(run("status", well, "--output", place / "x"), 2, "--output is for --prometheus")
    one_line(run("status", well, "--include", "*.txt"), 2, "none is given")
    for wrong in (("--hidden",), ("--exclude", "*.txt"), ("--max-attempts", "0"), ("--max-age", "x")):
        one_line(run("status", well, "--prometheus", *wrong), 2)  # and no sample that says that it is away
    one_line(run("status", well, "--source", place / "in", "--option", "x"), 2, "--option takes NAME=VALUE")


def test_a_place_that_is_gone_meanwhile_is_a_line(place: Path, run: Run) -> None:
    shutil.rmtree(place / "well" / "_quire" / "log")
    code, out, err = run("status", place / "well", place / "ill")
    assert code in (1, 2, 3)
    assert len(out.splitlines()) + len(err.splitlines()) == 2
    assert "Traceback" not in err
