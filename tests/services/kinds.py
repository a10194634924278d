"""Real services as kinds of stores for the matrix, started when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from services import gcs, outside, s3
from services.azurite import azurite
from services.hdfs import hdfs
from sim.kinds import Kind

__all__ = ["SERVICES", "kind", "running"]


class Service(NamedTuple):
    """How it is started, how places on it are opened, and what it offers."""

    start: Callable[[], AbstractContextManager[Any]]
    opens: Callable[[Any], Any]
    offers: str
    uploads: str


SERVICES = {
    "azurite": Service(azurite, outside.on_azurite, "upload", "blocks"),
    "seaweedfs": Service(s3.seaweedfs, outside.on_s3, "upload", "apart"),
    "moto": Service(s3.moto, outside.on_s3, "upload", "apart"),
    "gcs": Service(gcs.fake_gcs, outside.on_gcs, "upload", "apart"),
    "hdfs-real": Service(hdfs, outside.on_hdfs, "rename", ""),
}


def kind(name: str, where: Any) -> Kind:
    """A service that runs there."""
    service = SERVICES[name]
    return Kind(name, frozenset({service.offers}), service.uploads, service=service.opens(where))


@contextmanager
def running(name: str) -> Iterator[Kind]:
    """The same, for as long as the context lasts."""
    with SERVICES[name].start() as where:
        yield kind(name, where)
