"""No secret is left behind: whatever is planted in options and URLs is in no file, no table, no error, no output and no repr.

Local disk and memory take no secrets. They are passed here all the same, in every place that takes some, since a store that does
must find every way already closed.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import textwrap
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import quire
from gathering import documents, gather, look, not_taken, write
from hostile import trouble
from quire.cli import main as cli
from quire.engine import attempt, request
from quire.errors import _SECRETS as SECRETS
from quire.errors import QuireError, UsageError, hide, scrub
from quire.planning.listing import Listing
from quire.read import first_rows
from quire.sources.transforms import BadContent
from quire.storage import bare, connect, normalise
from quire.storage.secret import resolved

MARK = "hunter2"
KEYS = [
    "account_key", "sas_token", "connection_string", "client_secret", "secret", "key", "token", "password", "AZURE_STORAGE_KEY",
    "credential", "fs.azure.account.key.x.dfs.core.windows.net", "aws_secret_access_key", "anything",
]  # fmt: skip
OPTIONS: dict[str, Any] = {name: f"{MARK}-{i}-AbCd+/==" for i, name in enumerate(KEYS)}
OPTIONS["nested"] = {"headers": {"Authorization": f"Bearer {MARK}-nested"}, "list": [f"{MARK}-listed"]}


def planted() -> dict[str, Any]:
    """Secrets in all places that take options."""
    return {"storage_options": OPTIONS, "source_options": {**OPTIONS, "more": f"{MARK}-source"}, "dest_options": {"sas": f"{MARK}-dest"}}


# ------------------------------------------------------------------------------------------------------------------ the search


def texts(data: bytes) -> Iterator[bytes]:
    """The bytes of a file and all that they hold in other forms: compressed, or in Parquet."""
    yield data
    if data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        yield zstandard.ZstdDecompressor().decompressobj().decompress(data)
    if data[:4] == b"PAR1":
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        yield repr(file.schema_arrow.metadata).encode() + str(file.metadata.metadata).encode()
        yield repr(file.read(use_threads=False).to_pylist()).encode()
    if data[:2] == b"\x78\x9c":
        yield zlib.decompressobj().decompress(data)


def free(*folders: Path) -> int:
    """No file below holds a secret, in its name or in its content; how many were looked at."""
    seen = 0
    for folder in folders:
        for path in folder.rglob("*"):
            assert MARK not in str(path.relative_to(folder))
            if path.is_file():
                seen += 1
                for text in texts(path.read_bytes()):
                    for form in (MARK, MARK.encode("utf-16-le").decode("latin-1")):
                        assert form.encode("latin-1") not in text, path
    return seen


def said_by(error: BaseException) -> str:
    """All that a program, a log or a notebook may print of an error: its causes and its context too."""
    found, seen = [], set[int]()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            found += [str(one), repr(one), repr(one.args), repr(getattr(one, "__notes__", ""))]
            waiting += [one.__cause__, one.__context__]
    return "\n".join([*found, *traceback.format_exception(error)])


def shown_by(thing: Any, depth: int = 4) -> str:
    """What an object and the objects in it say of themselves."""
    found = [repr(thing), str(thing)]
    if hasattr(thing, "_repr_html_"):
        found.append(thing._repr_html_() or "")
    if hasattr(thing, "as_dict"):
        found.append(json.dumps(thing.as_dict(), default=str))
    if depth and type(thing).__module__.startswith("quire"):
        inside = getattr(thing, "__dict__", {}).values()
        found += [shown_by(inner, depth - 1) for inner in inside if type(inner).__module__.startswith("quire")]
    return "\n".join(found)


def test_the_search_finds_what_is_planted(tmp_path: Path) -> None:
    table = pa.table({"a": [f"x{MARK}"]})
    pq.write_table(table, tmp_path / "t.parquet", compression="zstd")
    (tmp_path / "a.gz").write_bytes(gzip.compress(f"x {MARK}".encode()))
    (tmp_path / "b.zst").write_bytes(zstandard.ZstdCompressor().compress(f"x {MARK}".encode()))
    (tmp_path / "c").write_bytes(f"x {MARK}".encode())
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(AssertionError):
            free(tmp_path)
        path.unlink()
    assert free(tmp_path) == 0
    error = QuireError("nothing")
    error.__context__, error.__suppress_context__ = ValueError(MARK), True
    assert MARK in said_by(error), "a context that is not shown is there all the same"


# ---------------------------------------------------------------------------------------------------------------------- a run


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source and a temporary directory that is searched as well."""
    write(tmp_path / "in", {**documents(12, "xml"), "d0/bad.xml": b"<"})
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    "kind", [{}, {"compression": "gzip"}, {"compression": "zstd"}, {"format": "parquet"}, {"committer": "rename_v2"}], ids=str
)
def test_options_with_secrets_leave_none_behind_in_a_whole_life(
    places: Path, capfd: pytest.CaptureFixture[str], kind: dict[str, Any]
) -> None:
    source, out, settings = places / "in", places / "out", {"transform": "xml", **kind, **planted()}
    steps: list[str] = []
    plan = look(source, out, **settings)
    shown = [plan, plan.skew()]
    report = quire.consolidate(source, out, spark=quire.LocalRunner(), progress=lambda step: steps.append(repr(step)), **settings)
    assert (report.files, not_taken(report)) == (12, 1)
    write(source, {"d0/new.xml": b"<a/>", "d0/bad.xml": b"<b/>", "d1/f0001.xml": b"<c>another length</c>"})
    shown += [report, gather(source, out, **settings), quire.recover(out, storage_options=OPTIONS)]
    ledger = quire.Ledger(out, storage_options=OPTIONS)
    shown += [ledger, ledger.summary(), ledger.verify(spark=quire.LocalRunner()), *ledger.locate(source / "d0/f0000.xml"), ledger.skew()]
    shown += [
        ledger.inspect.quarantined(),
        ledger.inspect.history(),
        ledger.inspect.tasks(),
        list(first_rows(connect(normalise(out), OPTIONS), 100)),
    ]
    assert MARK not in "\n".join(map(shown_by, shown)) + "".join(steps) + "".join(capfd.readouterr())
    assert free(places / "out", places / "tmp") > 6


def test_options_with_secrets_are_in_no_object_that_shows_itself(places: Path) -> None:
    made = request.build(places / "in", places / "out", **planted())
    wanted = made.wanted()
    work = attempt.Work(made.dest, made.dest_options, made.roots, None, made.convert)  # type: ignore[arg-type]  # no plan is needed
    listing = Listing(made.dest, made.dest_options, "", "", made.roots, wanted.selection, None, made.cut, None)  # type: ignore[arg-type]
    for thing in (made, wanted, work, listing, *made.roots, made.store(), *(root.store() for root in made.roots)):
        assert MARK not in repr(thing) + str(thing), type(thing)
    assert made.dest_options
    assert MARK in str(dict(made.dest_options)), "they are there for the store"
    assert MARK not in json.dumps(made.identity.intent)


class Stop(Exception):
    """What a caller raises to end a call."""


def broken(content: bytes, _file: object) -> bytes:
    """A function that fails with what it should not say."""
    raise RuntimeError(f"cannot connect with AccountKey={MARK}-function; at https://user:{MARK}@host/?sig={MARK}")


def stuck(content: bytes, _file: object) -> bytes:
    """A function that fails in a way that ends the task."""
    raise MemoryError(f"password={MARK}-memory")


def test_calls_that_fail_in_any_way_say_no_secret(places: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    source, out = places / "in", places / "out"

    def stop(_step: object) -> None:
        raise Stop

    def fails(*_: object) -> Any:
        raise OSError(28, f"No space left: token={MARK}-os")

    acts: list[tuple[Callable[..., object], dict[str, Any]]] = [
        (gather, {"transform": stuck}), (gather, {"transform": "xml", "max_quarantined": 0}), (gather, {"transform": "xlm"}),
        (gather, {"transform": broken, "max_quarantined": 0}), (gather, {"transform": "xml", "target_size": f"password={MARK}"}),
    ]  # fmt: skip
    said = []
    for act, settings in acts:
        with pytest.raises(QuireError) as caught:
            act(source, out, **planted(), **settings)
        said.append(said_by(caught.value))
    with pytest.raises(Stop) as stopped:
        quire.consolidate(source, out, spark=quire.LocalRunner(), transform="xml", progress=stop, **planted())
    said.append(said_by(stopped.value))
    report = gather(source, places / "kept", transform=broken, keep_messages=True, **planted())
    assert not_taken(report) == 13
    said += [shown_by(report), quire.Ledger(places / "kept", OPTIONS).inspect.quarantined().to_string()]
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", fails)
        with pytest.raises(QuireError) as caught:
            gather(source, places / "full", transform="xml", **planted())
    said.append(shown_by(caught.value))  # its cause is the system's own error, in the system's own words
    said.append(shown_by(quire.recover(places / "full", abort="open", storage_options=OPTIONS)))
    assert MARK not in "\n".join(said) + "".join(capfd.readouterr())
    free(places / "out", places / "kept", places / "full", places / "tmp")


# --------------------------------------------------------------------------------------------------------------------- in URLs

URLS = [
    f"file://user:{MARK}@host/data", f"file://{MARK}@host/data", f"file://user:p@{MARK}@host/data", f"FILE://host/data?sig={MARK}&se=2026",
    f"abfs://container@account.dfs.core.windows.net/data?sv=1&sig={MARK}", f"https://user:{MARK}@host/x?sig={MARK}",
    f"s3://{MARK}:{MARK}@bucket/x",
    f"az://c/x?AccountKey={MARK}", f"memory://../x?token={MARK}", f"s3://key:{MARK}/with/slash@bucket?password={MARK}",
    f"webhdfs://host:50070/x?delegation={MARK}&access_token={MARK}", f"zip://in::sftp://user:{MARK}@host/a.zip",
    f"zip://in::https://host/a.zip?sig={MARK}", f"tar://https%3A%2F%2Fuser%3A{MARK}%40host%2Fa.tar/in",
]  # fmt: skip


@pytest.mark.parametrize("url", [u for u in URLS if "/with/slash" not in u and "delegation" not in u])
def test_a_url_with_a_secret_is_refused_without_saying_it(places: Path, url: str, capfd: pytest.CaptureFixture[str]) -> None:
    source, out = places / "in", places / "out"
    acts: list[Callable[[], object]] = [
        lambda: gather(url, out), lambda: gather(source, url), lambda: gather([source, url], out), lambda: gather((url, OPTIONS), out),
        lambda: gather([(url, OPTIONS), source], out), lambda: look(url, out), lambda: look(source, url),
        lambda: quire.Ledger(url, OPTIONS), lambda: quire.recover(url, storage_options=OPTIONS), lambda: quire.read(url,
        storage_options=OPTIONS),  # type: ignore[arg-type]
        lambda: gather(url + "/*.xml", out), lambda: normalise(url),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(QuireError) as caught:
            act()
        assert MARK not in said_by(caught.value), str(caught.value)
    for call in (["consolidate", url, str(out)], ["plan", str(source), url], ["recover", url], ["ledger", "summary", url], ["read", url],
                 ["ledger", "locate", str(out), url], ["skew", url], ["skew", url + ".json"]):  # fmt: skip
        for given in (call, [*call, "--json"]):
            with pytest.raises(SystemExit) as ended:
                cli(given)
            assert ended.value.code in (2, 3)
    assert MARK not in "".join(capfd.readouterr())
    assert not out.exists()


@pytest.mark.parametrize("where", ["source", "dest"])
def test_a_path_that_was_meant_as_a_url_is_not_said_either(places: Path, where: str) -> None:
    text = f"{places}/account.blob.core.windows.net/c?sv=1&sig={MARK}&password={MARK}"
    act = {"source": lambda: gather(text, places / "out"), "dest": lambda: quire.Ledger(text)}[where]
    with pytest.raises(QuireError) as caught:
        act()
    assert MARK not in said_by(caught.value), str(caught.value)


@pytest.mark.parametrize(
    "wrong", [OPTIONS, ("x", OPTIONS, 3), [OPTIONS], [("x", "y", OPTIONS)], {"url": OPTIONS}, 5, None], ids=lambda w: type(w).__name__
)
def test_options_in_the_wrong_place_are_not_repeated(places: Path, wrong: Any) -> None:
    source, out = places / "in", places / "out"
    names = (
        "transform",
        "format",
        "planner",
        "committer",
        "include",
        "min_age",
        "target_size",
        "parts",
        "max_quarantined",
        "layout",
        "hash_function",
    )
    acts: list[Callable[[], object]] = [
        lambda: gather(wrong, out),
        lambda: gather(source, wrong),
        lambda: quire.Ledger(wrong),
        lambda: quire.recover(wrong),
    ]
    acts += [lambda name=name: gather(source, out, **{name: wrong, **({"planner": "hash"} if name == "parts" else {})}) for name in names]  # type: ignore[misc]
    acts += [lambda: gather(source, out, storage_options=[OPTIONS]), lambda: quire.skew.check(4, wrong),
             lambda: gather(source, out, spark=wrong or OPTIONS)]  # fmt: skip
    for act in acts:
        if (e := trouble(act)) is not None:
            assert MARK not in said_by(e), str(e)
    free(out)


# ------------------------------------------------------------------------------------------------------------- what is scrubbed


TEXTS = [
    f"sig={MARK}", f"?sv=1&sig={MARK}%2B%3D&se=2", f"AccountKey={MARK}==;EndpointSuffix=x", f"{{'account_key': '{MARK} with blanks'}}",
    f'{{"account_key": "{MARK}\\"quoted"}}', f"SharedAccessSignature={MARK}", f"SharedAccessKey={MARK}", f"access_token={MARK}",
    f"accessToken: {MARK}", f"https://user:{MARK}@host", f"https://{MARK}@host/x", f"https://a:b@{MARK}@host",
    f"Authorization: Bearer {MARK}AAAAAA",
    f"basic {MARK}AAAAA", f"X-Amz-Signature={MARK}", f"X-Amz-Security-Token={MARK}", f"aws_secret_access_key = {MARK}",
    f"fs.x.account.key={MARK}",
    f"PASSWORD={MARK}", f"pwd:{MARK}", f"api-key={MARK}", f"storage_key='{MARK}'", f"credential={MARK}", f"client_secret\t=\n{MARK}",
    f"password='{MARK}",
    f"fs.s3a.secret.key={MARK}", f"secret_key={MARK}", f'{{"secret_key": "{MARK}"}}', f"AWS_SECRET_ACCESS_KEY {MARK}",
    f"fs.azure.account.key.acc.dfs.core.windows.net={MARK}", f"ssl.key.password={MARK}", f"encryption_key={MARK}",
    f"sasl.oauthbearer.config=principal=x {MARK}", f"sasl.jaas.config: Plain required username=x password={MARK} other={MARK}",
    f"passphrase={MARK}", f"pass={MARK}", f"apikey {MARK}", f"API_KEY\t{MARK}", f"SharedKey acc:{MARK}", f"SharedKeyLite acc:{MARK}",
    f"customer-key={MARK}", f"kms={MARK}", f"fs.s3a.session.token={MARK}", f"refresh_token={MARK}", f"ssl.keystore.password={MARK}",
    f"fs.azure.account.oauth2.client.secret.acc.dfs.core.windows.net={MARK}", f"fs.azure.sas.fixed.token.acc.net={MARK}",
    f"-----BEGIN PRIVATE KEY-----{MARK}", f"-----BEGIN RSA PRIVATE KEY-----\n{MARK}\n-----END RSA PRIVATE KEY----- ",
    f"Digest {MARK}AAAA", f"Negotiate {MARK}AAAA", f"abfss://a:{MARK}@host/x", f"s3.signing-key: {MARK}",
    f"zip://sftp%3A%2F%2Fme%3A{MARK}%40host%2Fa.zip/in", f"zip://sftp%3a%2f%2fme%3a{MARK}%40{MARK}%40host%2fa.zip/in",
    f"zip://https%3A%2F%2Fhost%2Fa.zip%3Fsig%3D{MARK}/in", f"zip://abfs%3A%2F%2Fc%3A{MARK}%40host/in",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_whatever_looks_like_a_secret_is_taken_out_of_any_text(text: str) -> None:
    for found in (scrub(text), scrub(f"a\n{text}\nb"), hide(text), str(QuireError(text)), BadContent(text).reason):
        assert MARK not in found, found
        assert "***" in found


@pytest.mark.parametrize(("letter", "as_well"), ["sſ", "kK", "iı", "iİ", "sS"])
def test_each_pattern_is_tried_where_it_would_find_something(letter: str, as_well: str) -> None:
    """Letters that patterns take for others, whatever their case, are no way past the look at a text's words."""
    for text in TEXTS:
        odd = found = text.replace(letter, as_well)
        for _, pattern, replacement in SECRETS:
            found = pattern.sub(replacement, found)
        assert hide(odd) == found


@pytest.mark.parametrize(
    "text",
    [
        "abfss://c@account",
        "abfss://raw@acc.dfs.core.windows.net/in",
        "wasbs://$web@acc.blob.core.windows.net/x",
        "passes: 3",
        "the password of nobody",
        "keys 1 to 2",
        "compass=north",
        "a passage: here",
        "design: yes",
        "/data/in/a@b/x.xml",
        "file:///a@b/c:d",
        "the key of the ledger",
        "Kansas: here",
        "a token",
        "line 3: <a>",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert scrub(text) == hide(text) == text


# --------------------------------------------------------------------------------------------------------------------- by name


def from_a_vault() -> str:
    """What gives a secret."""
    return f"{MARK}-vault"


def test_a_secret_by_name_shows_and_sends_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTS_SECRET", f"{MARK}-variable")
    for made, name in ((quire.secret("TESTS_SECRET"), "'TESTS_SECRET'"), (quire.secret(from_a_vault), "from_a_vault")):
        options_ = {"secret": made, "nested": {"token": made, "list": [made]}}
        sent = pickle.dumps(options_)
        assert repr(made) == str(made) == f"{made}" == f"quire.secret({name})"
        assert MARK not in repr(options_)
        assert MARK.encode() not in sent
        assert pickle.loads(sent) == options_


class Pair(NamedTuple):
    """What takes its values one by one."""

    one: Any
    other: Any


def test_a_secret_by_name_is_looked_up_where_a_store_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any depth, by each kind of store, and each time: what has changed meanwhile is taken."""
    named: dict[str, Any] = {
        "client_kwargs": {"region_name": quire.secret("TESTS_REGION")},
        "secret": quire.secret("TESTS_SECRET"),
        "key": "k",
    }
    for value in ("one", "two"):
        monkeypatch.setenv("TESTS_SECRET", value)
        monkeypatch.setenv("TESTS_REGION", f"region-{value}")
        store: Any = bare("s3://bucket/path", named)
        assert store.account.options["secret"] == value
        assert store.account.kwargs == {"region_name": f"region-{value}"}
    monkeypatch.setenv("TESTS_SECRET", "a2V5")
    assert "quire.secret" not in repr(
        bare("abfs://container@account.dfs.core.windows.net/x", {"account_key": quire.secret("TESTS_SECRET")})
    )
    assert resolved({"of": Pair(quire.secret("TESTS_SECRET"), 1)}) == {"of": Pair("a2V5", 1)}
    access: Any = bare("webhdfs://host:9870/x", {"token": quire.secret(from_a_vault)})
    assert access.rest.access.query["delegation"] == from_a_vault()


def test_a_secret_by_name_makes_no_other_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTS_SECRET", MARK)
    (tmp_path / "in").mkdir()
    given: list[dict[str, Any]] = [{}, {"key": quire.secret("TESTS_SECRET")}, {"key": quire.secret(from_a_vault)}, {"key": MARK}]
    hashes = {request.build(tmp_path / "in", tmp_path / "out", storage_options=one).identity.hash for one in given}
    assert len(hashes) == 1


def nothing() -> str | None:
    """A vault that is empty."""
    return None


def refusing() -> str:
    """A vault that says too much."""
    raise PermissionError(f"{MARK} is not for you")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("TESTS_NOWHERE", r"the variable 'TESTS_NOWHERE' of quire\.secret\('TESTS_NOWHERE'\) is not set on the driver\. Set it before .*"),
        (nothing, r"quire\.secret\(nothing\) gave nothing on the driver\. .*"),
        (refusing, r"quire\.secret\(refusing\) failed on the driver: PermissionError\. .*"),
    ],
)
def test_a_secret_that_is_not_found_is_named(tmp_path: Path, source: Any, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        gather(tmp_path, "s3://bucket/out", dest_options={"key": "k", "secret": quire.secret(source)})
    assert re.fullmatch(says, str(caught.value))
    assert MARK not in said_by(caught.value)


@pytest.mark.parametrize("wrong", ["", f"KEY={MARK}", None, 5, {"key": MARK}])
def test_what_names_no_secret_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"^quire\.secret\(\) takes the name of a variable or a function") as caught:
        quire.secret(wrong)
    assert MARK not in said_by(caught.value)


# ----------------------------------------------------------------------------------------------------------------------- spark


@pytest.mark.services
def test_a_run_on_spark_leaves_no_secret_in_its_settings_its_events_or_its_output(places: Path) -> None:
    """In a session of its own, whose event log is kept: with success, quarantine, failing tasks, giving up and recovery."""
    script = f"""
        import sys, os
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import quire
        from quire.errors import QuireError
        from test_secrets import OPTIONS, planted, said_by, shown_by, stuck
        source, out = {str(places / "in")!r}, {str(places / "out")!r}
        spark = quire.session({{"spark.eventLog.enabled": "true", "spark.eventLog.dir": "file://{places}/events",
                               "spark.ui.enabled": "false", "spark.eventLog.compress": "false", "spark.driver.memory": "1g"}},
                               master="local[2]")
        print(shown_by(quire.consolidate(source, out, spark=spark, transform="xml", **planted())))
        try:
            quire.consolidate(source, out + "2", spark=spark, transform="xml", max_quarantined=0, **planted())
        except QuireError as e:
            print(said_by(e))
        try:
            quire.consolidate(source, out + "3", spark=spark, transform=stuck, **planted())
        except QuireError as e:
            print(said_by(e))
        print(shown_by(quire.recover(out + "3", abort="open", storage_options=OPTIONS)))
        ledger = quire.Ledger(out, OPTIONS)
        print(ledger.verify(spark=spark), ledger.inspect.splits(as_="spark", spark=spark).limit(5).toPandas().to_string())
        print(quire.read(out, storage_options=OPTIONS, spark=spark).count())
        quire.read(out, storage_options=OPTIONS, spark=spark).explain(True)
        print(spark.sparkContext.getConf().getAll(), spark.sql("SET").collect(), spark.sql("SET -v").count())
        spark.stop()
    """
    (places / "events").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, cwd=places)
    assert done.returncode == 0, done.stderr
    assert "every checksum agrees" in done.stdout
    assert MARK not in done.stdout + done.stderr
    assert any(p.stat().st_size > 10_000 for p in (places / "events").rglob("*") if p.is_file())
    folders = [places / name for name in ("out", "out2", "out3", "tmp", "events")]
    assert free(*folders) > 8
