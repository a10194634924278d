"""Many requests at once: how `window` asks Azure Blob storage for a blob, and `sending` sends a block."""

from __future__ import annotations

from quire.storage import sending
from quire.storage.azure.account import AzureAccount
from quire.storage.azure.errors import explained, refusal, unreachable
from quire.storage.base import ReadRequest, Vanished
from quire.storage.http import span
from quire.storage.message import Answer
from quire.storage.objects import begun
from quire.storage.window import UNANSWERED, Fetch, Steps, failure
from quire.storage.wire import Ask, Wire, bundled, lines


def opened(account: AzureAccount, container: str, root: str, url: str) -> tuple[Wire, Fetch]:
    """Connections for one call, and how they fetch what lies below `root` (with a slash at its end, or empty)."""
    return bundled(), _BlobReader(account, container, root, url).fetch


def staged(account: AzureAccount, container: str, path: str, block: str, piece: bytes | memoryview, what: str) -> sending.Steps:
    """Put a block of the blob `path`; `what` is like 'cannot write abfs://container/x'."""
    url, signed = account.signed("PUT", f"/{container}/{path}", {"comp": "block", "blockid": block}, {}, len(piece))
    try:
        answer = yield Ask("PUT", account.origin, url.removeprefix(account.origin), lines(signed), 0, piece)
    except UNANSWERED as e:
        raise unreachable(what, account, e) from None
    if answer.status == 201:
        return None
    error = explained(what, refusal(answer.status, answer.headers, answer.body), account, container)
    raise failure(what, error, busy=answer.status in (429, 503), everywhere=True)


class _BlobReader:
    def __init__(self, account: AzureAccount, container: str, root: str, url: str) -> None:
        self.account, self.container, self.root, self.url = account, container, root, url

    def fetch(self, request: ReadRequest) -> Steps:
        name, version, size, start, length = request
        if not (version.isascii() and version.isprintable()):
            raise Vanished("changed")  # no blob has such a version, and in a header it would be another header
        try:
            answer = yield self._ask("GET", name, version, span(size, start, length), length)
            if answer.status in (200, 206):
                return begun(f"cannot read {self.url}/{name}", answer, start).body if length else b""
            if answer.status == 412:  # also where there is none, which has no version either
                answer = yield self._ask("HEAD", name)
                if answer.status == 200:
                    raise Vanished("changed")
        except UNANSWERED as e:
            raise unreachable(f"cannot read {self.url}/{name}", self.account, e) from None
        raise self._failed(name, answer)

    def _ask(self, method: str, name: str, version: str = "", span: str = "", most: int = 0) -> Ask:
        target, headers = self.account.reading(method, f"/{self.container}/{self.root}{name}", version, span)
        return Ask(method, self.account.origin, target, headers, most)

    def _failed(self, name: str, answer: Answer) -> Exception:
        status = answer.status
        said = refusal(status, answer.headers, answer.body)
        if status == 416:
            return Vanished("changed: it is shorter than it was")
        if status == 404 and not said.everywhere:
            return Vanished("vanished")
        what = f"cannot read {self.url}/{name}"
        error = explained(what, said, self.account, self.container)
        return failure(what, error, busy=status in (429, 503), everywhere=said.everywhere or 300 <= status < 400)
