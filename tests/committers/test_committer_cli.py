"""`quire committer …`: the same answers as in Python, from a shell."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_committer_advice import Server

from gathering import write
from quire.cli import app, committer
from quire.committers import advise

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The console script: (exit code, output, errors). In Spark's place is a session with the settings that it was asked for."""

    @contextmanager
    def session(_: str | None, conf: dict[str, str] | None = None) -> Iterator[Any]:
        server = Server("4.3.0")
        server.conf.update(conf or {})
        yield server

    monkeypatch.setattr(committer, "spark_of", session)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = 0
        try:
            app.main(["committer", *map(str, arguments)])
        except SystemExit as e:
            code = int(e.code or 0)
        return code, *capfd.readouterr()

    return call


def test_advice_is_printed_for_people_for_programs_and_as_a_file(run: Run) -> None:
    code, out, _ = run("advise", "s3://bucket/x", "append", "speculation")
    assert code == 0
    assert "S3A magic committer" in out
    assert "not guaranteed" in out
    told = json.loads(run("advise", "s3://bucket/x", "append", "--json")[1])
    assert (told["committer"], told["url"]) == ("magic", "s3a://bucket/x")
    assert told["conf"] == advise("s3://bucket/x", {"append"}).conf
    assert run("advise", "s3://bucket/x", "--defaults")[1] == advise("s3://bucket/x").defaults
    assert "v1" in run("advise", "abfss://cont@a.dfs.core.windows.net/x", "dynamic_overwrite", "--hierarchical")[1]
    assert "many_files" in run("advise", "--help")[1]


def test_a_refusal_is_one_line_and_exit_code_2(run: Run) -> None:
    for arguments, words in [
        (("advise", "s3://bucket/x", "append", "overwrite"), ["append", "overwrite", "contradict"]),
        (("advise", "gs://bucket/x", "visible_together"), ["no committer is safe"]),
        (("advise", "ftp://x"), ["kind of store"]),
        (("check", "/x", "--conf", "a=b", "--conf", "hush4711"), ["number 2 is not a setting: write key=value"]),
        (("lab", "--option", "hush4711"), ["number 1 has no name, or no '='"]),
        (("check", "/x", "--format", "xls"), ["unknown format"]),
    ]:
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert all(word in err for word in words), err
        assert "hush4711" not in err, "it may be a secret"


def test_a_check_that_finds_something_wrong_ends_with_2(run: Run) -> None:
    code, out, _ = run("check", "s3a://bucket/x")
    assert code == 2
    assert "✘ rename" in out
    settings = [text for key, value in advise("s3a://bucket/x").conf.items() for text in ("--conf", f"{key}={value}")]
    code, out, _ = run("check", "s3a://bucket/x", *settings, "--json")
    assert code == 0
    assert json.loads(out)["committer"] == "magic"


def test_what_was_left_is_shown_and_swept_only_when_told(run: Run, tmp_path: Path) -> None:
    write(tmp_path, {"_temporary/0/x": b"abc", "_SUCCESS": b""})
    code, _, err = run("sweep", tmp_path, "--yes")
    assert code == 2
    assert "may be running" in err
    for path in (tmp_path / "_temporary/0/x", tmp_path / "_temporary/0", tmp_path / "_temporary"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    assert json.loads(run("inspect", tmp_path, "--json")[1])["cost"] == 3
    assert "--yes" in run("sweep", tmp_path)[1]
    assert (tmp_path / "_temporary").exists()
    assert run("sweep", tmp_path, "--yes", "--json")[0] == 0
    assert not (tmp_path / "_temporary").exists()
