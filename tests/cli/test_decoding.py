"""Decoders in a shell: `quire load --decode`, `quire consolidate --columns`, and a retry of both."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fastavro
import pytest

import quire
from commands import Run
from gathering import write
from quire.cli import load as of_load
from quire.cli.load import without_secrets
from quire.sources.decoders import registry as asking
from services.kafka import Mock, mock
from services.schema_registry import Schemas, framed, schema_registry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def schemas() -> Iterator[Schemas]:
    with schema_registry() as found:
        yield found


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def here(master: str | None) -> Iterator[Any]:
        yield quire.LocalRunner()

    monkeypatch.setattr(of_load, "spark_of", here)


def order(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(ORDER)), {"id": number})
    return out.getvalue()


def test_a_topic_with_a_registry(
    run: Run, here: None, kafka: Mock, schemas: Schemas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    one = schemas.add(ORDER, subject="shell-value")
    kafka.create("shell", 1)
    kafka.produce("shell", [framed(one, order(1)), framed(one + 1, order(2))])
    schemas.login = "me:hunter2"
    monkeypatch.setenv("REGISTRY_LOGIN", schemas.login)
    source, dest = f"kafka://{kafka.address}/shell", tmp_path / "out"
    options = [word for name, value in kafka.settings.items() for word in ("--option", f"{name}={value}")]
    decoder = ["--decode", "avro", "--registry", schemas.url, "--metadata", "offset=at"]
    secret = ["--registry-secrets", "basic.auth.user.info=REGISTRY_LOGIN"]
    code, _, err = run("load", source, dest, *options, *decoder, "--quiet")
    assert (code, "status 401" in err, err.count("\n")) == (3, True, 1)
    assert run("load", source, dest, *options, *decoder, *secret, "--quiet")[0] == 0
    assert [json.loads(line) for line in run("read", dest, "--json")[1].splitlines()] == [{"id": 1, "at": 0}]
    schemas.add(ORDER)
    asking._missing.clear()
    retry = ["ledger", "retry", dest, "--source", source, *options, "--quiet"]
    code, _, err = run(*retry)
    assert (code, "quire.decoder.avro" in err) == (2, True)
    assert run(*retry, *decoder, *secret)[0] == 0
    assert sorted(json.loads(line)["id"] for line in run("read", dest, "--json")[1].splitlines()) == [1, 2]


def test_documents_by_expressions(run: Run, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.json": b'{"o": {"id": 1}, "l": [{"s": "x"}]}', "b.json": b'{"o": {}}'}), tmp_path / "out"
    columns = ["--columns", "id=$.o.id: long not null", "--columns", "skus = $.l[*].s: array<string>"]
    assert run("plan", source, dest, "--transform", "json", *columns)[0] == 0
    assert run("consolidate", source, dest, "--transform", "json", *columns, "--quiet")[0] == 0
    assert json.loads(run("read", dest, "--json")[1]) == {"id": 1, "skus": ["x"]}
    again = [
        "ledger",
        "retry",
        dest,
        "--source",
        source,
        "--decode",
        "json",
        "--columns",
        "id=$.o.id: long",
        "--columns",
        columns[3],
        "--quiet",
    ]
    assert run(*again)[0] == 0
    assert len(run("read", dest, "--json")[1].splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["consolidate", "in", "out", "--transform", "json", "--columns", "id"], "--columns takes NAME=PATH:TYPE"),
        (["consolidate", "in", "out", "--transform", "json", "--columns", "a=$.a: int", "--columns", "a=$.b: int"], "twice"),
        (["consolidate", "in", "out", "--columns", "a=$.a: int"], "transform='json' or 'xml'"),
        (["load", "kafka://h/t", "out", "--decode", "avro", "--registry-options", "x"], "--registry-options takes NAME=VALUE"),
        (["load", "kafka://h/t", "out", "--decode", "avor"], "Did you mean 'avro'?"),
        (["load", "kafka://h/t", "out", "--message", "a.B"], "without decode= it does nothing"),
        (["ledger", "retry", "out", "--registry", "http://h"], "without --decode it does nothing"),
        (["ledger", "retry", "out", "--decode", "json", "--function", "json:loads"], "Leave one of them out"),
    ],
    ids=["no path", "twice", "lines", "no value", "misspelt", "no decoder", "retry without one", "two functions"],
)  # fmt: skip
def test_wrong_words_are_one_line(run: Run, here: None, tmp_path: Path, words: list[str], said: str) -> None:
    code, out, err = run(*(tmp_path / word if word in ("in", "out") else word for word in words))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err, err


def test_what_a_command_shows_of_itself_holds_no_login() -> None:
    words = [
        "load",
        "--registry-options",
        "basic.auth.user.info=me:hunter2",
        "--registry-options=bearer.auth.token=hunter3",
        "--registry",
        "http://h",
    ]
    assert without_secrets(words) == [
        "load", "--registry-options", "basic.auth.user.info=***", "--registry-options=bearer.auth.token=***", "--registry", "http://h",
    ]  # fmt: skip
    for option in ("--option", "--store-option", "--source-option", "--dest-option", "--conf"):
        for name in ("secret", "key", "passwd", "spark.hadoop.fs.s3a.secret.key"):
            assert without_secrets([option, f"{name}=hunter 2", f"{option}={name}=hunter 2"]) == [
                option, f"{name}=***", f"{option}={name}=***",
            ], "also of a word with a blank, of which a look for secrets hides the first half"  # fmt: skip
        assert without_secrets([option, "endpoint_url=http://h"]) == [option, "endpoint_url=http://h"]
