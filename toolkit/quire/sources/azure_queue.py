"""Events of Event Grid in a queue of Azure storage: `azure-queue://account/queue`, by the options of the source's account."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from lxml import etree

from quire.errors import NotFoundError, StorageError, UsageError, scrub
from quire.sources.events import AT_ONCE, HIDDEN, Message, by_threads, drained, in_parts, message
from quire.sources.files import Root
from quire.sources.notices import of_azure
from quire.storage import OnRetry
from quire.storage.azure.account import queues
from quire.storage.azure.rest import BlobRest
from quire.storage.retry import again

NO_CONTENT = 204
PAGE = 32  # messages, the most that the service gives at once
_QUEUE = re.compile(r"([A-Za-z0-9.-]+)/([a-z0-9](?:-?[a-z0-9]){2,62})")


def opened(place: str, options: Mapping[str, object], _: Sequence[Root]) -> AzureQueue:
    """The queue `account/queue`."""
    match = _QUEUE.fullmatch(place.rstrip("/"))
    if match is None:
        raise UsageError(
            f"'azure-queue://{scrub(place, 200)}' names no queue of an account. Write azure-queue://account/queue, "
            "whose name has 3 to 63 of a-z, 0-9 and single hyphens."
        )
    return AzureQueue(match[1].partition(".")[0].lower(), match[2], options)


class AzureQueue:
    """A queue of an account of Azure storage."""

    hidden = HIDDEN

    def __init__(self, account: str, queue: str, options: Mapping[str, object]) -> None:
        self.shown = f"azure-queue://{account}/{queue}"
        self._rest = BlobRest(queues(account, options), queue)

    def receive(self, most: int, on_retry: OnRetry) -> list[Message]:
        """See `EventQueue`."""
        query = {"numofmessages": str(PAGE), "visibilitytimeout": f"{HIDDEN:.0f}"}
        what = f"cannot receive events from {self.shown}"

        def ask() -> list[Message]:
            return _parsed(what, again(lambda: self._rest.send("GET", what, "messages", query), on_retry).body)

        try:
            return drained(by_threads(ask), most)
        except NotFoundError as e:
            raise StorageError(f"{what}: such a queue is not there. Check the spelling.") from e

    def hold(self, messages: Sequence[Message], on_retry: OnRetry) -> list[Message]:
        """See `EventQueue`. Each time a message has another handle."""
        what = f"cannot hold events of {self.shown}"

        def hide(some: Sequence[Message]) -> list[Message]:
            kept = list[Message]()
            for one in some:
                name, query = f"messages/{one.id}", {"popreceipt": one.handle, "visibilitytimeout": f"{HIDDEN:.0f}"}
                found = again(lambda name=name, query=query: self._rest.send("PUT", what, name, query, answers=(400, 404)), on_retry)  # type: ignore[misc]
                if found.status == NO_CONTENT:  # else somebody else has received it since
                    kept.append(one._replace(handle=found.headers["x-ms-popreceipt"]))
            return kept

        return [one for kept in in_parts(hide, messages, _share(messages)) for one in kept]

    def delete(self, messages: Sequence[Message], on_retry: OnRetry) -> None:
        """See `EventQueue`. A message that somebody else has received since is left to them."""
        what = f"cannot delete events from {self.shown}"

        def remove(some: Sequence[Message]) -> None:
            for one in some:
                name, query = f"messages/{one.id}", {"popreceipt": one.handle}
                again(lambda name=name, query=query: self._rest.send("DELETE", what, name, query, answers=(400, 404)), on_retry)  # type: ignore[misc]

        in_parts(remove, messages, _share(messages))

    def lost(self) -> bool:
        """Never that anybody would know."""
        return False

    def close(self) -> None:
        """There is nothing to end."""


def _share(messages: Sequence[Message]) -> int:
    """How many messages each of the requests at once is about, one after the other."""
    return math.ceil(len(messages) / AT_ONCE) or 1


def _parsed(what: str, body: bytes) -> list[Message]:
    try:
        found = etree.fromstring(body.lstrip(b"\xef\xbb\xbf"), etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError:
        found = None
    if found is None or found.tag != "QueueMessagesList":
        raise StorageError(f"{what}: the answer is not one of a queue. Check the account, and the proxy between.")
    texts = ([one.findtext(tag) or "" for tag in ("MessageId", "PopReceipt", "MessageText")] for one in found.iter("QueueMessage"))
    return [message(quote(name, safe="-"), receipt, text, of_azure) for name, receipt, text in texts]
