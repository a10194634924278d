"""The accounts of Azure Blob storage that the benchmarks read from: the fast server of our own, or Azurite, far away.

Each has a container `src` with the same blobs below `b/` and, in folders, below `tree/`; a blob `warm`; and takes new containers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from blobserver import ETAG
from common import serving

DELAY = 0.14  # seconds a request
SIZE = 5000  # bytes of a blob
FOLDERS = 8

_CONTENT = bytes(i % 251 for i in range(SIZE))


@contextmanager
def account(blobs: int, azurite: bool, delay: float = DELAY, certificate: str = "") -> Iterator[tuple[str, str]]:
    """How to reach an account, and the etag that all its blobs have, if they have one; `certificate`: see `blobserver.serve`."""
    if azurite:
        with _azurite(blobs) as string:
            yield string, ""
    else:
        with serving("blobserver.py", delay=delay, size=SIZE, blobs=blobs, folders=FOLDERS, certificate=certificate) as port:
            http = "https" if certificate else "http"
            yield (
                f"DefaultEndpointsProtocol={http};AccountName=acc;AccountKey=a2V5a2V5a2V5a2V5;BlobEndpoint={http}://127.0.0.1:{port}/acc;",
                ETAG,
            )


@contextmanager
def _azurite(blobs: int) -> Iterator[str]:
    sys.path.append(str(Path(__file__).resolve().parents[2] / "notebooks"))
    from azurite import Azurite

    with Azurite() as service:
        fill(service.connection_string, blobs)
        yield service.far(DELAY)


def fill(string: str, blobs: int) -> None:
    """Write the blobs of the container `src`, from nearby."""
    from quire.storage.azure.store import opened

    store = opened("abfs://src", {"connection_string": string})
    store.create_container()
    opened("abfs://out", {"connection_string": string}).create_container()
    names = ["warm", *(f"b/{i:08}" for i in range(blobs)), *(f"tree/{i % FOLDERS:04}/{i:08}" for i in range(blobs))]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: store.put(name, _CONTENT), names))
