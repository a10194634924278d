"""Bad input: every wrong argument is one clear line that names it and says what would be right, before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import documents, gather, refused, write
from gathering import look as plan
from quire.errors import UsageError


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"planner": "balancd"}, ("unknown planner 'balancd'", "Did you mean 'balanced'?")),
        ({"transform": "xlm"}, ("unknown transform 'xlm'", "Did you mean 'xml'?")),
        ({"transform": 5}, ("unknown transform 5", "lines, raw, xml, json")),
        ({"format": "parkett"}, ("unknown format 'parkett'", "Did you mean 'parquet'?")),
        ({"transform": "lines", "format": "parquet"}, ("'lines' does not go into format 'parquet'", "raw → raw or parquet")),
        ({"compression": "gz"}, ("unknown compression 'gz'", "'gzip'")),
        ({"committer": "renam"}, ("unknown committer 'renam'", "'rename'")),
        ({"committer": ["x"]}, ("unknown committer",)),
        ({"layout": "flatt"}, ("unknown layout 'flatt'", "'flat'")),
        ({"hash_function": "md5"}, ("unknown hash_function 'md5'", "xxh64, java, java_without_abs")),
        ({"on_change": "eror"}, ("unknown on_change", "'report'")),
        ({"target_sice": 1}, ("unknown option 'target_sice'", "Did you mean 'target_size'?")),
        ({"nonsense": 1}, ("unknown option 'nonsense'", "It is one of: transform, format")),
        ({"target_size": "12 potatoes"}, ("target_size is '12 potatoes'", "'256 MiB'")),
        ({"target_size": 0}, ("target_size is 0",)),
        ({"target_size": -5}, ("target_size is -5",)),
        ({"target_size": None}, ("target_size is None",)),
        ({"target_size": 1.5}, ("target_size is 1.5",)),
        ({"target_size": True}, ("target_size is True",)),
        ({"max_file_size": "much"}, ("max_file_size is 'much'",)),
        ({"parts": 0, "planner": "hash"}, ("parts=0", "from 1 to 100,000")),
        ({"parts": "8"}, ("parts='8'",)),
        ({"target_size": 256}, ("target_size=256 is 256 bytes", "Did you mean '256 MiB'?")),
        ({"target_size": "512"}, ("Did you mean '512 MiB'?",)),
        ({"target_size": 200}, ("target_size=200 is 200 bytes", "'200 MiB'", "'200 B'")),
        ({"target_size": 1.0}, ("Did you mean '1 MiB'?",)),
        ({"max_file_size": "60_000"}, ("max_file_size=60000 is 60,000 bytes", "'60000 B'")),
        ({"max_quarantined": -1}, ("max_quarantined=-1", "from 0")),
        ({"max_quarantined": 1.5}, ("max_quarantined=1.5",)),
        ({"min_age": "soon"}, ("min_age='soon'", "'1 min'")),
        ({"min_age": -1}, ("min_age=-1",)),
        ({"min_age": "100 years"}, ("min_age='100 years' has the unit 'years'", "s, sec, second, min, minute, m, h, hour, d, day")),
        ({"min_age": "36601 d"}, ("min_age='36601 d' is longer than 100 years",)),
        ({"target_size": 1 << 63}, ("9,223,372,036,854,775,807 bytes",)),
        ({"target_size": "1 EiB"}, ("the unit 'EiB' is not known", "PiB", "the largest size is below 8,192 PiB")),
        ({"min_age": float("nan")}, ("min_age=nan",)),
        ({"every": "often"}, ("every='often'",)),
        ({"every": "1 s", "max_runs": 0}, ("max_runs=0",)),
        ({"max_runs": 3}, ("max_runs=3 says how often to run", "without every= it does nothing")),
        ({"function_version": "1"}, ("function_version='1' names the edition of a function", "without transform=function it does nothing")),
        ({"function_version": "1", "transform": "xml"}, ("or leave function_version out",)),
        ({"keep_messages": True}, ("keep_messages=True keeps the text of what a function raises", "transform=function")),
        ({"parts": 4}, ("parts=4", "without planner='hash' it does nothing")),
        ({"parts": 4, "planner": "directory"}, ("parts=4", "without planner='hash' it does nothing")),
        ({"hash_function": "java"}, ("hash_function='java'", "without planner='hash' it does nothing")),
        ({"partial_lines": "take"}, ("partial_lines='take'", "without on_append='tail' it does nothing")),
        ({"include": ""}, ("include takes globs",)),
        ({"include": 5}, ("include takes globs",)),
        ({"exclude": [5]}, ("exclude takes globs",)),
        ({"include": "**a"}, ("include: '**a' is not a glob",)),
        ({"storage_options": "key"}, ("storage_options",)),
        ({"dest_options": ["key"]}, ("dest_options",)),
        ({"function_version": "a b", "transform": divmod}, ("function_version",)),
        ({"spark": "local[*]"}, ("spark",)),
        ({"hidden": "no"}, ("hidden='no'", "neither True nor False")),
        ({"follow_links": "false"}, ("follow_links='false'", "neither True nor False")),
        ({"keep_messages": 1}, ("keep_messages=1", "neither True nor False")),
        ({"keep_versions": True}, ("keep_versions=True", "not a whole number")),
        ({"keep_versions": -1}, ("keep_versions=-1", "from 0 on")),
        ({"keep_versions": "a week"}, ("keep_versions='a week'", "'1 min'")),
        ({"allow_nonempty": "no"}, ("allow_nonempty='no'", "neither True nor False")),
    ],
    ids=str,
)
def test_a_wrong_argument_names_itself_and_what_would_be_right(tmp_path: Path, wrong: dict[str, Any], words: tuple[str, ...]) -> None:
    source = write(tmp_path / "in", documents(3))
    with refused(UsageError, 2, *words):
        gather(source, tmp_path / "out", **wrong)
    if not {"every", "max_runs"} & wrong.keys() and "spark" not in wrong:
        with refused(UsageError, 2, *words):
            plan(source, tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "other"),
    [
        ({"split_size": "1 MiB"}, "split='lines' or 'row_groups'"),
        ({"partial_lines": "take", "split": "lines"}, "on_append='tail'"),
        ({"parts": 3}, "planner='hash'"),
        ({"max_runs": 3}, "every="),
    ],
    ids=str,
)
def test_an_argument_of_process_that_does_nothing_without_another_one_is_refused(tmp_path: Path, given: dict[str, Any], other: str) -> None:
    source, (argument, *_) = write(tmp_path / "in", documents(3)), given
    with refused(UsageError, 2, f"{argument}=", f"without {other} it does nothing", f"or leave {argument} out.") as caught:
        quire.process(source, tmp_path / "out", lambda split, content: b"", spark=quire.LocalRunner(), progress=False, **given)
    assert caught.value.argument == argument
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", [{"function_version": "1"}, {"keep_messages": True}, {"schema": "n long"}], ids=str)
def test_an_argument_of_load_that_does_nothing_without_a_function_is_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    (argument,) = given
    with refused(UsageError, 2, f"{argument}=", "without transform=function it does nothing", f"or leave {argument} out."):
        quire.load("kafka://localhost:9/t", tmp_path / "out", spark=quire.LocalRunner(), progress=False, **given)


def test_a_retry_that_names_no_source_follows_no_links(tmp_path: Path) -> None:
    gather(write(tmp_path / "in", documents(3)), tmp_path / "out")
    with refused(UsageError, 2, "follow_links=True", "without source= it does nothing"):
        quire.Ledger(tmp_path / "out").retry(follow_links=True, spark=quire.LocalRunner(), progress=False)


def test_what_only_consolidate_takes_is_not_offered_by_plan(tmp_path: Path) -> None:
    with refused(UsageError, 2, "unknown option 'every'. It is one of"):
        plan(write(tmp_path / "in", documents(3)), tmp_path / "out", every="1 min")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 min", 60),
        ("500 ms", 0.5),
        ("30 s", 30),
        ("2 hours", 7200),
        ("90", 90),
        (1.5, 1.5),
        ("1 day", 86400),
        ("2secs", 2),
        ("5 ns", 5e-9),
    ],
)
def test_time_spans_are_what_they_say(text: str | float, seconds: float) -> None:
    from quire.arguments import seconds as read

    assert read(text, "every") == pytest.approx(seconds)


def test_no_secret_is_in_any_error_or_repr(tmp_path: Path) -> None:
    secret = {"account_key": "hunter2=="}
    found = plan(write(tmp_path / "in", documents(3)), tmp_path / "out", storage_options=secret)
    found.run(progress=False)
    assert "hunter2" not in repr(found) + str(found) + repr(vars(found))
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file() and b"hunter2" in p.read_bytes()]
    with pytest.raises(UsageError) as caught:
        gather(("https://user:hunter2@host/x?sig=hunter2", {}), tmp_path / "x")
    assert "hunter2" not in str(caught.value)
