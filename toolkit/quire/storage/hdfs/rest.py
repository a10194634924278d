"""Single requests to a namenode, and to the datanodes that it sends us on to. Nothing is tried again here: `retry` does that.

WebHDFS has the delegation token in its addresses, so these stand in no message. A cluster is asked from near by, so proxies are not
looked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from quire.errors import StorageError
from quire.storage.asking import MOST, Asking, Steps
from quire.storage.hdfs.access import Access
from quire.storage.hdfs.errors import NO_NAMENODE, Said, explained, said, unreachable
from quire.storage.message import Answer
from quire.storage.options import shared
from quire.storage.place import plain, port_of
from quire.storage.window import UNANSWERED
from quire.storage.wire import Ask, Wire, lines

KEPT = 30.0  # seconds that a connection waits for its next request
VERSION = "/webhdfs/v1"
_ONWARD = ("OPEN", "CREATE", "APPEND")  # requests with which a namenode sends us on to a datanode
BYTES = {"Content-Type": "application/octet-stream"}

_answered = set[str]()  # hosts that have answered this process: if one does not, it may come back


def _fits(op: str, told: Any) -> bool:
    """Whether the JSON of an answer is what a namenode says to this request."""
    try:
        if op == "GETFILESTATUS":
            return _describes(told["FileStatus"])
        if op == "LISTSTATUS_BATCH":
            listing = told["DirectoryListing"]
            return type(listing["remainingEntries"]) is int and all(
                _describes(each) and isinstance(each["pathSuffix"], str) for each in listing["partialListing"]["FileStatuses"]["FileStatus"]
            )
        return isinstance(told, dict) and (op != "DELETE" or "boolean" in told)
    except (LookupError, TypeError):
        return False


def _describes(status: Any) -> bool:
    if status["type"] != "FILE":
        return isinstance(status["type"], str)
    return "fileId" in status and type(status["length"]) is type(status["modificationTime"]) is int


class WebHdfsResponse(NamedTuple):
    """An answer of a namenode or a datanode."""

    refused: str  # the exception's name, or nothing
    answer: Answer
    said: Any = None  # the body's JSON, if the answer is not content

    @property
    def location(self) -> str:
        """Where we are sent on to."""
        return located(self.answer)


def located(answer: Answer) -> str:
    """Where an answer sends us on to, or nothing."""
    return answer.headers.get("Location") or "" if answer.status == 307 else ""


class WebHdfsRest:
    """Requests about what lies in one file system."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._asking = Asking(self.wire, access.timeout)

    def wire(self) -> Wire:
        """Connections to a namenode and its datanodes."""
        return Wire(self.access.trust, silence=self.access.timeout, keepalive=KEPT, proxies=False)

    def address(self, op: str, path: str, query: Mapping[str, object]) -> str:
        """Where the namenode is asked; it holds the delegation token, so it stands in no message."""
        asked = {"op": op, **self.access.query, **query}
        return f"{self.access.base}{quote(path or '/')}?{urlencode(asked)}"

    def ask(
        self, method: str, op: str, path: str, what: str, answers: tuple[str, ...] = (), *, most: int = MOST,
        query: Mapping[str, object] | None = None,
    ) -> WebHdfsResponse:  # fmt: skip
        """One request to the namenode. A refusal by an exception named in `answers` is an answer; others are explained.

        `most`: bytes of an answer that are wanted; of a longer one there is a byte more.
        """
        address = self.address(op, path, query or {})
        answer, where = self._send(what, method, address, b"", most), urlsplit(address).netloc
        if op in _ONWARD and located(answer):
            return WebHdfsResponse("", answer)
        found = self._answer(what, where, answer, answers)
        if found.refused or (op == "OPEN" and answer.headers.get("Content-Type") == "application/octet-stream"):
            return found  # a gateway gives the content itself
        try:
            told = json.loads(answer.body) if answer.body else {}
        except (ValueError, RecursionError):
            told = None
        if not _fits(op, told):
            raise explained(what, Said(answer.status, NO_NAMENODE, ""), self.access, where)
        return found._replace(said=told)

    def sent_on(
        self, method: str, op: str, path: str, what: str, answers: tuple[str, ...] = (), *, data: bytes = b"", most: int = MOST,
        query: Mapping[str, object] | None = None,
    ) -> WebHdfsResponse:  # fmt: skip
        """A request whose bytes go to, or come from, the datanode that the namenode names."""
        found = self.ask(method, op, path, what, answers, most=most, query=query)
        if found.refused or (found.said is None and not found.location):
            return found
        return self.at(method, path, found.location, what, answers, data=data, most=most)

    def at(
        self, method: str, path: str, location: str, what: str, answers: tuple[str, ...] = (), *, data: bytes = b"", most: int = MOST
    ) -> WebHdfsResponse:
        """The second half of `sent_on`."""
        if not location:
            raise explained(what, Said(200, NO_NAMENODE, ""), self.access, self.access.netloc)
        address = self.onwards(location, path)
        return self._answer(what, urlsplit(address).netloc, self._send(what, method, address, data, most), answers)

    def onwards(self, location: str, path: str) -> str:
        """Where the namenode sends us, with the path as we know it: Java composes accents, which makes another name of it.

        Nothing for an address that is none.
        """
        try:
            place = urlsplit(location)
        except ValueError:
            return ""
        if place.path.startswith(f"{VERSION}/"):
            location = place._replace(path=VERSION + quote(path)).geturl()
        return self.access.moved(location) if place.hostname and port_of(place) and plain(location) else ""

    def _answer(self, what: str, where: str, answer: Answer, answers: tuple[str, ...]) -> WebHdfsResponse:
        if answer.status < 300:
            return WebHdfsResponse("", answer)
        told = said(answer.status, answer.body)
        if told.name in answers:
            return WebHdfsResponse(told.name, answer)
        raise explained(what, told, self.access, where)

    def _send(self, what: str, method: str, address: str, data: bytes = b"", most: int = MOST) -> Answer:
        sent = data if method in ("PUT", "POST") else None
        return self._asking.once(partial(self.steps, what, method, address, sent, most))  # type: ignore[no-any-return]

    def steps(
        self, what: str, method: str, address: str, data: bytes | None = None, most: int = MOST, known: bool = False
    ) -> Steps:  # fmt: skip
        """One request to a namenode or a datanode. `known`: somebody has had answers from there, so it may come back."""
        scheme, _, rest = address.partition("://")
        where, slash, target = rest.partition("/")
        where = where.rpartition("@")[2]  # nobody is to read what stands before it
        if scheme not in ("http", "https"):
            raise StorageError(f"{what}: {self.access.netloc} sends us on to an address that is none. Look at the option data_proxy.")
        ours = where in self.access.namenodes  # also where another thread has turned to the next one meanwhile
        told = ours and (scheme == "https" or not self.access.secure)  # a redirect to plain http does not get the password
        headers = {**(self.access.headers if told else {"User-Agent": "quire"}), **(BYTES if data is not None else {})}
        try:
            # A change is not sent twice: one that was done already would be refused, or done again.
            answer: Answer = yield Ask(method, f"{scheme}://{where}", slash + target, lines(headers), most, data, resend=method == "GET")
        except UNANSWERED as e:
            # Without what it came from: some of these errors name the address.
            raise unreachable(what, e, self.access, where, known or where in _answered) from None
        if ours:
            self.access.heard()
        if answer.status < 500 and len(_answered) < 10_000:
            _answered.add(where)
        return answer


_rests: dict[str, WebHdfsRest] = {}


def rest(netloc: str, options: Mapping[str, object] | None) -> WebHdfsRest:
    """Requests by these options; the same options mean the same connections, also for the next store."""
    given = dict(options or {})
    return shared(_rests, [netloc, given, os.environ.get("HADOOP_USER_NAME")], lambda: WebHdfsRest(Access(netloc, given)))
