"""Options of stores by the name of a profile: in Python, in a shell, and in the file of `quire run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import quire
from gathering import refused
from quire.cli import jobs
from quire.cli.app import cli
from quire.cli.show import sides
from quire.errors import UsageError
from quire.storage.secret import resolved

FILE = """
[lake]
endpoint_url = "https://lake:9000"
key = { env = "LAKE_KEY" }
secret = { file = "lake.secret" }
client_kwargs = { region_name = "x" }

["with space"]
profile = "of aws"
"""


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    at = tmp_path / "etc" / "profiles.toml"
    at.parent.mkdir()
    at.write_text(FILE)
    (at.parent / "lake.secret").write_text("hunter2\n")
    monkeypatch.setenv("QUIRE_PROFILES", str(at))
    monkeypatch.setenv("LAKE_KEY", "a-key")
    return at


def test_a_profile_holds_options_and_refers_to_secrets(profiles: Path) -> None:
    found = quire.profile("lake")
    assert resolved(found) == {
        "endpoint_url": "https://lake:9000", "key": "a-key", "secret": "hunter2", "client_kwargs": {"region_name": "x"},
    }  # fmt: skip
    assert "hunter2" not in repr(found)
    assert quire.profile("with space") == {"profile": "of aws"}


def test_options_within_options_refer_to_secrets_too(profiles: Path) -> None:
    """Those of an archive's file system, say."""
    profiles.write_text("[lake]\nftp = { host = 'h', password = { file = 'lake.secret' } }\nall = [{ env = 'LAKE_KEY' }]")
    found = quire.profile("lake")
    assert resolved(found) == {"ftp": {"host": "h", "password": "hunter2"}, "all": ["a-key"]}
    assert "hunter2" not in repr(found)


def test_it_lies_in_the_home_directory_if_no_variable_names_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUIRE_PROFILES", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".config" / "quire").mkdir(parents=True)
    (tmp_path / ".config" / "quire" / "profiles.toml").write_text("[a]\nuser = 'x'\n")
    assert quire.profile("a") == {"user": "x"}


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (FILE, "lak", "Did you mean 'lake'"),
        (FILE, "", "a profile has a name"),
        (FILE, None, "a profile has a name"),
        ("[lake", "lake", "is not TOML"),
        ("", "lake", "holds no profiles"),
        ("lake = 5", "lake", "profile 'lake': options are a table"),
        ("account = 'hunter2-hunter2'", "account", "profile 'account': options are a table"),
        ("[lake.ftp]\npassword = 'hunter2-hunter2'", "lake", "'password' looks like a secret that is written out"),
        ("[lake]\nall = [{ password = 'hunter2-hunter2' }]", "lake", "'password' looks like a secret that is written out"),
        ("[lake]\nsecret = 'hunter2-hunter2'", "lake", "'secret' looks like a secret that is written out"),
        (None, "lake", "cannot be read.*QUIRE_PROFILES"),
    ],
)
def test_a_wrong_file_or_name_is_one_line(profiles: Path, text: str | None, name: Any, words: str) -> None:
    profiles.write_text(text) if text is not None else profiles.unlink()
    with pytest.raises(UsageError, match=words) as error:
        quire.profile(name)
    assert "hunter2" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_shell_names_one_for_each_side(profiles: Path, tmp_path: Path) -> None:
    words = {"options": (), "secrets": (), "source_options": ("endpoint_url=http://other",), "source_secrets": (), "dest_options": ()}
    words |= {"dest_secrets": (), "store_profile": None, "source_profile": "lake", "dest_profile": "with space"}  # type: ignore[dict-item]
    found = sides(words)
    assert resolved(found["source_options"])["key"] == "a-key"
    assert found["source_options"]["endpoint_url"] == "http://other", "an option of the command overrides the profile's"
    assert found["dest_options"] == {"profile": "of aws"}
    assert found["storage_options"] is None
    assert words == {}, "the call takes the rest as its own"
    for command in ("consolidate", "plan", "process"):
        done = CliRunner().invoke(
            cli, [command, str(tmp_path), *(["a:b"] if command == "process" else []), "out", "--source-profile", "lak"]
        )
        assert "Did you mean 'lake'" in f"{done.output}{done.exception}"


WORDS = {
    "delete-partitions": ("sf",), "history": ("1",), "changes": ("--since", "0" * 14), "create": ("--key", "id"),
    "restore": ("20261122103000000",), "sync-metastore": ("thrift://h:1",),
    **dict.fromkeys(("upsert", "insert", "bulk-insert", "delete", "insert-overwrite"), ("x.csv",)),
}  # fmt: skip
TABLES = sorted(cli.commands["table"].commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", [["sniff"], ["populate"], *(["table", name] for name in TABLES)], ids="-".join)
def test_a_shell_names_one_for_the_place_of_a_command(profiles: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """The store is opened by the profile's options and the command's, which come first."""

    class Told(Exception):
        pass

    def opened(*args: Any, storage_options: Any = None, **_: object) -> None:
        raise Told(storage_options)

    for name in ("sniff", "populate", "Table"):
        monkeypatch.setattr(quire, name, opened)
    monkeypatch.setattr(opened, "create", opened, raising=False)
    option = "--option" if command[0] == "table" else "--store-option"
    given = [*command, "s3://bucket/x", *WORDS.get(command[-1], ()), "--store-profile", "lake", option, "endpoint_url=http://other"]
    told = CliRunner().invoke(cli, given).exception
    assert isinstance(told, Told), told
    assert (resolved(told.args[0])["key"], told.args[0]["endpoint_url"]) == ("a-key", "http://other")
    wrong = CliRunner().invoke(cli, [*command, "s3://bucket/x", *WORDS.get(command[-1], ()), "--store-profile", "lak"])
    assert "Did you mean 'lake'" in f"{wrong.output}{wrong.exception}"


def test_the_file_of_loops_names_one(profiles: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    at = tmp_path / "jobs.toml"
    job = f"[jobs.a]\ncall = 'consolidate'\nsource = '{tmp_path}/in'\ndest = '{tmp_path}/out'\nsource_options = "
    at.write_text(f"{job}'lake'\n")
    assert resolved(jobs.read(at).jobs["a"].settings["source_options"])["key"] == "a-key"
    at.write_text(f"{job}'lakes'\n")
    with refused(UsageError, 2, "job 'a'", "Did you mean 'lake'"):
        jobs.read(at)
