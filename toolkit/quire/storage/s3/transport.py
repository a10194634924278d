"""Requests that boto3 makes and signs go by connections of quire's own: no answer trickles for ever, and proxies and trust are the same.

boto3 asks whoever listens to `before-send` whether it has an answer already (botocore's `Endpoint`), and sends what has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from quire.storage.asking import MOST, Asking, Steps
from quire.storage.wire import Ask, lines

# A connection's own: `Wire` says these itself, and does not wait for leave to send a body.
_OWN = frozenset(("host", "content-length", "transfer-encoding", "connection", "expect"))


class _Body(BytesIO):
    """A body as botocore reads one."""

    def stream(self) -> Iterator[bytes]:
        yield self.getvalue()


def answered(asking: Asking, request: Any) -> Any:
    """The answer to a request of botocore."""
    from botocore.awsrequest import AWSResponse

    where, body = urlsplit(request.url), _bytes(request.body)
    if body is None and request.method in ("PUT", "POST"):
        body = b""
    headers = {str(name): _text(value) for name, value in request.headers.items() if str(name).lower() not in _OWN}
    target = f"{where.path or '/'}{'?' + where.query if where.query else ''}"

    def steps() -> Steps:
        return (yield Ask(request.method, f"{where.scheme}://{where.netloc}", target, lines(headers), MOST, body))

    answer = asking.once(steps)
    found: Mapping[str, str] = answer.headers
    return AWSResponse(request.url, answer.status, found, _Body(answer.body))


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _bytes(body: Any) -> bytes | memoryview | None:
    return body if body is None or isinstance(body, bytes | memoryview) else bytes(body.read() if hasattr(body, "read") else body)
