"""Several accounts of several services in one call: each file once, nobody's secrets elsewhere, and nobody held up by another."""

from __future__ import annotations

import base64
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import quire
from gathering import gather
from quire.planning import pack
from quire.storage import ReadRequest, bare
from services import s3
from services.azurite import azurite
from services.scripted import Asked, Says, between, refusal, scripted

KEYS = {name: base64.b64encode(f"the secret of {name}".encode()).decode() for name in ("logs1", "logs2")}
Answer = Callable[[Asked], Says | None]


class Source(NamedTuple):
    """Files in an account, and the requests that came there."""

    url: str
    options: dict[str, Any]
    lines: list[str]
    came: list[Asked]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Azurite with two accounts, each with a key of its own and a container `raw`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURITE_ACCOUNTS", ";".join(f"{name}:{key}" for name, key in KEYS.items()))
        with azurite() as of_usual_account:
            found = of_usual_account.rpartition("/")[0]
            for name in KEYS:
                bare(f"abfs://raw@{name}.dfs.core.windows.net", azure(found, name)).create_container()  # type: ignore[attr-defined]
            yield found


def azure(endpoint: str, name: str) -> dict[str, Any]:
    """What reaches an account of Azurite's."""
    return {"connection_string": f"AccountName={name};AccountKey={KEYS[name]};BlobEndpoint={endpoint}/{name}"}


def nothing(asked: Asked) -> None:
    """The service answers."""


@contextmanager
def filled(endpoint: str, name: str, files: int, answer: Answer = nothing) -> Iterator[Source]:
    """A source in an account of Azure's, behind a witness."""
    url, lines = f"abfs://raw@{name}.dfs.core.windows.net/{uuid.uuid4().hex}", [f"{name} {i}" for i in range(files)]
    for i, line in enumerate(lines):
        bare(url, azure(endpoint, name)).put(f"d{i % 3}/{i:04}.txt", line.encode())
    with between(endpoint, answer) as (address, came):
        yield Source(url, azure(address, name), lines, came)


@contextmanager
def bucket(endpoint: str, files: int) -> Iterator[Source]:
    """A source in S3, behind a witness."""
    url, lines = f"s3://{s3.BUCKET}/{uuid.uuid4().hex}", [f"s3 {i}" for i in range(files)]
    for i, line in enumerate(lines):
        bare(url, s3.options(endpoint)).put(f"d{i % 3}/{i:04}.txt", line.encode())
    with between(endpoint, nothing) as (address, came):
        yield Source(url, s3.options(address), lines, came)


def gathered(dest: Path) -> list[str]:
    return sorted(line for path in dest.iterdir() if path.is_file() for line in path.read_text().splitlines())


def test_each_file_of_three_accounts_is_gathered_once_and_secrets_stay_at_home(endpoint: str, seaweedfs: str, tmp_path: Path) -> None:
    told = list[quire.ProgressEvent]()
    with ExitStack() as stack:
        sources = [stack.enter_context(filled(endpoint, name, 40)) for name in KEYS] + [stack.enter_context(bucket(seaweedfs, 30))]
        call: Any = [(source.url, source.options) for source in sources]
        quire.consolidate(call, tmp_path / "out", spark=quire.LocalRunner(), progress=told.append, planner="hash", parts=3)
        assert gathered(tmp_path / "out") == sorted(line for source in sources for line in source.lines)
        assert gather(call, tmp_path / "out", planner="hash", parts=3).files == 0, "all of them are known now"
    names = [part.name for part in next(step for step in reversed(told) if step.parts).parts]
    assert names == ["logs1", "logs2", f"{s3.BUCKET}@{sources[2].options['endpoint_url'].partition('://')[2]}"]
    secrets = [("logs1:", KEYS["logs1"]), ("logs2:", KEYS["logs2"]), (s3.KEY, s3.SECRET)]
    for source, (who, _) in zip(sources, secrets, strict=True):
        seen = [f"{asked.target} {asked.headers}" for asked in source.came]
        assert sum(who in text for text in seen) >= len(source.lines), "the account was asked in its own name"
        for other, secret in secrets:
            assert not any(secret in text or (other != who and other in text) for text in seen)
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert not any(secret.encode() in written for _, secret in secrets)


@pytest.mark.services
def test_a_throttled_account_does_not_hold_up_another(endpoint: str, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them gives nothing until the other one is read to its end, which begins when the first one has refused something."""
    monkeypatch.setattr(pack, "FEW", 10)
    files, read, refused, ended = 60, set[str](), threading.Event(), threading.Event()

    def fast(asked: Asked) -> None:
        if asked.method == "GET" and ".txt" in asked.target:
            refused.wait(60)
            read.add(asked.target)
            if len(read) == files:
                ended.set()

    def slow(asked: Asked) -> Says | None:
        if asked.method == "GET" and ".txt" in asked.target and not ended.is_set():
            refused.set()
            return 503, {"Retry-After": "1"}, refusal("ServerBusy")
        return None

    with filled(endpoint, "logs1", files, slow) as one, filled(endpoint, "logs2", files, fast) as other:
        call = [(one.url, one.options), (other.url, other.options)]
        gather(call, tmp_path / "out", spark=spark)
        assert gathered(tmp_path / "out") == sorted([*one.lines, *other.lines])
    assert refused.is_set(), "it was throttled"


@pytest.mark.nth(4)
@pytest.mark.parametrize("limit", [1, 3, None])
def test_an_account_has_no_more_reads_in_flight_than_it_allows(limit: int | None) -> None:
    now, most, lock = 0, 0, threading.Lock()

    def answer(asked: Asked) -> Says:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1
        return 200, {"ETag": '"v"'}, b"12345"

    with scripted(answer) as (address, _):
        options: dict[str, Any] = {"connection_string": f"AccountName=logs1;AccountKey=a2V5;BlobEndpoint={address}/logs1"}
        store = bare("abfs://raw", {**options, "max_concurrency": limit})
        assert [content for _, content in store.read_many(ReadRequest(f"{i}", "v", 5, 0, 5) for i in range(40))] == [b"12345"] * 40
    assert most == limit if limit else most > 3
