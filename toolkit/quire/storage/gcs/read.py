"""Many requests at once: how `window` asks Google Cloud Storage for an object of one generation, and `sending` sends a piece."""

from __future__ import annotations

from quire.storage import sending
from quire.storage.base import ReadRequest, Vanished
from quire.storage.gcs.errors import everywhere, refused, unreachable, words
from quire.storage.gcs.rest import GcsRest
from quire.storage.http import span
from quire.storage.message import Answer
from quire.storage.objects import begun
from quire.storage.window import UNANSWERED, Fetch, Steps, failure
from quire.storage.wire import Ask, Wire, bundled, lines


def opened(rest: GcsRest, root: str, url: str) -> tuple[Wire, Fetch]:
    """Connections for one call, and how they fetch what lies below `root` (with a slash at its end, or empty)."""
    account = rest.account

    def fetch(request: ReadRequest) -> Steps:
        name, version, size, start, length = request
        if not (version.isascii() and version.isdigit()):
            raise Vanished("changed")  # no object has such a version
        # Asked for so, what is stored with Content-Encoding: gzip comes as it lies there.
        headers = lines({"Accept-Encoding": "gzip", **account.authorization()})
        if asked := span(size, start, length):
            headers += f"Range: {asked}\r\n"
        target = rest.target(root + name, {"alt": "media", "ifGenerationMatch": version})
        try:
            answer = yield Ask("GET", account.origin, target, headers, length)
        except UNANSWERED as e:
            raise unreachable(f"cannot read {url}/{name}", account.host, e) from None
        if answer.status in (200, 206):
            return begun(f"cannot read {url}/{name}", answer, start).body if length else b""
        raise failed(name, answer)

    def failed(name: str, answer: Answer) -> Exception:
        status, said = answer.status, words(answer.body)
        if status == 412:
            return Vanished("changed")
        if status == 416:
            return Vanished("changed: it is shorter than it was")
        if status == 404 and not everywhere(status, said):
            return Vanished("vanished")
        what = f"cannot read {url}/{name}"
        error = refused(what, status, answer.headers, answer.body, account.host, rest.bucket)
        return failure(what, error, busy=status in (429, 503), everywhere=everywhere(status, said))

    return bundled(), fetch


def staged(rest: GcsRest, target: str, piece: bytes | memoryview, what: str) -> sending.Steps:
    """Insert a piece of an object; `what` is like 'cannot write gs://bucket/x'."""
    account = rest.account
    given = {"Content-Type": "application/octet-stream", **account.authorization()}
    try:
        answer = yield Ask("POST", account.origin, target, lines(given), 0, piece)
    except UNANSWERED as e:
        raise unreachable(what, account.host, e) from None
    if answer.status in (200, 201):
        return None
    error = refused(what, answer.status, answer.headers, answer.body, account.host, rest.bucket)
    raise failure(what, error, busy=answer.status in (429, 503), everywhere=True)
