"""Files of this machine in which something waits while a call runs: in the temporary directory, without a name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from quire.errors import QuireError


@contextmanager
def on_disk(waiting: str, safe: str) -> Iterator[None]:
    """Say in one line that the disk has failed. `waiting`: like 'the listing waits for its commits'; `safe`: what has not been lost."""
    try:
        yield
    except OSError as e:
        raise QuireError(
            f"{waiting} in {tempfile.gettempdir()}, and that cannot be written or read: {e.strerror or e}. Make room there, or let TMPDIR "
            f"name a larger directory; then call again: {safe}."
        ) from e
