"""Connections for single requests by `requests`: of each process its own, and without what it does unasked."""

from __future__ import annotations

import os
import threading
from typing import Any

from quire.errors import UsageError
from quire.packaging import install

POOL = 64  # connections that are kept


class Sessions:
    """A session for each process: after a fork it is made anew. `extra` brings the package; `of`: whose requests these are, for errors."""

    def __init__(self, extra: str, of: str) -> None:
        self._extra, self._of = extra, of
        self._session: Any = None
        self._process = 0
        self._lock = threading.Lock()

    def get(self) -> Any:
        """The session of this process, which tries nothing again, sends no header by itself and signs in as nobody."""
        if self._process != os.getpid():
            with self._lock:
                if self._process != os.getpid():
                    try:
                        import requests
                    except ImportError as e:
                        raise UsageError(f"{self._of} needs more packages: {install(self._extra)}") from e
                    session = requests.Session()
                    session.headers.clear()
                    session.auth = lambda request: request  # else a ~/.netrc would sign in as somebody else
                    for scheme in ("http://", "https://"):
                        session.mount(scheme, requests.adapters.HTTPAdapter(pool_connections=2, pool_maxsize=POOL, max_retries=0))
                    self._session, self._process = session, os.getpid()
        return self._session
