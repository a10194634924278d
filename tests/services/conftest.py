"""The services that tests run against, and the stores on them. What cannot be started is an error, not a skip."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("services.conformance")

from matrix import Line  # noqa: E402 (what stands above must come first)
from quire.storage import Store, bare, normalise  # noqa: E402
from quire.storage.within import Within  # noqa: E402
from services import gcs, kafka_broker, s3  # noqa: E402
from services.azurite import azurite, connection_string  # noqa: E402
from services.example import hdfs_native  # noqa: E402
from services.hdfs import HOME, USER, Cluster, hdfs  # noqa: E402
from services.kafka import Mock, mock  # noqa: E402
from services.standin import Namenode  # noqa: E402

# Another kind of store is another name here and another line in `store`.
KINDS = [
    "memory",
    "local",
    "hdfs-native",
    "azurite",
    "seaweedfs",
    "gcs",
    pytest.param("moto", marks=pytest.mark.nightly),  # SeaweedFS speaks S3, too
    pytest.param("hdfs", marks=pytest.mark.services),
    # The same, as the store of a table.
    "table+memory",
    "table+local",
    "table+hdfs-native",
    *(pytest.param(f"table+{kind}", marks=pytest.mark.services) for kind in ("azurite", "seaweedfs", "gcs", "hdfs")),
    pytest.param("table+moto", marks=pytest.mark.nightly),
]


LINES = pytest.StashKey[list[Line]]()


@pytest.fixture
def tried(request: pytest.FixtureRequest) -> Callable[[Line], None]:
    """Takes a line of the matrix into the summary of this run."""
    return request.config.stash.setdefault(LINES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash.get(LINES, []):
        terminalreporter.section("disturbed on real services")
        for line in (Line.header(), *lines):
            terminalreporter.write_line(str(line))


@pytest.fixture(scope="session")
def azurite_endpoint() -> Iterator[str]:
    """Azurite for the whole run, with the container `tests` in it."""
    from quire.storage.azure.store import AzureStore

    with azurite() as endpoint:
        store = bare("abfs://tests", {"connection_string": connection_string(endpoint)})
        assert isinstance(store, AzureStore)
        store.create_container()
        yield endpoint


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[str]:
    """SeaweedFS for the whole run, with the bucket `tests` in it."""
    with s3.seaweedfs() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """moto's server for the whole run, with the bucket `tests` in it."""
    with s3.moto() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[str]:
    """fake-gcs-server for the whole run, with the bucket `tests` in it."""
    with gcs.fake_gcs() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def hdfs_cluster() -> Iterator[Cluster]:
    """HDFS for the whole run."""
    with hdfs() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_mock() -> Iterator[Mock]:
    """A mock cluster of three brokers for the whole run: each test has topics of its own, and puts right what it has broken."""
    with mock(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka() -> Iterator[kafka_broker.Cluster]:
    """Real Kafka of one broker for the whole run: each test has topics of its own, and leaves it running."""
    with kafka_broker.broker() as cluster:
        yield cluster


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A new and empty store of each kind."""
    kind = request.param.removeprefix("table+")
    found = _opened(kind, f"{uuid.uuid4().hex}/root", request, tmp_path)
    return found if kind == request.param else Within(found)


def _opened(kind: str, place: str, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if kind == "hdfs-native":
        node = Namenode(tmp_path / "hdfs")
        request.getfixturevalue("monkeypatch").setattr(hdfs_native, "_connect", lambda *_: node)
        return bare(f"hdfs://node/{place}")
    if kind == "local":
        return bare(normalise(tmp_path / "root"))
    if kind == "azurite":
        endpoint = request.getfixturevalue("azurite_endpoint")
        return bare(f"abfs://tests/{place}", {"connection_string": connection_string(endpoint)})
    if kind in ("seaweedfs", "moto"):
        made = s3.SeaweedStore if kind == "seaweedfs" else bare
        return made(f"s3://{s3.BUCKET}/{place}", s3.options(request.getfixturevalue(kind)))
    if kind == "gcs":
        return bare(f"gs://{gcs.BUCKET}/{place}", gcs.options(request.getfixturevalue("fake_gcs")))
    if kind == "hdfs":
        return bare(f"{request.getfixturevalue('hdfs_cluster').url}{HOME}/{place}", {"user": USER})
    return bare(f"memory://{place}")
