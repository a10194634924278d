"""Events of S3 in a queue of SQS: `sqs://sqs.region.amazonaws.com/account/queue`, or its URL or ARN, by the options of the source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from quire.errors import StorageError, UsageError, scrub
from quire.sources.events import HIDDEN, Message, drained, in_parts, message
from quire.sources.files import Root
from quire.sources.notices import of_s3
from quire.storage import OnRetry
from quire.storage.retry import again
from quire.storage.s3.account import S3Account, account
from quire.storage.s3.errors import code_of, explained

PAGE = 10  # messages, the most that the service gives, or deletes, at once
WAIT = 1  # seconds that the first request may look for some: without a wait each asks only a few of its servers, and many ask them all
_ARN = re.compile(r"arn:(aws[a-z-]*):sqs:([a-z0-9-]+):([0-9]+):([A-Za-z0-9_.-]+)")
_URL = re.compile(r"(https?)://([A-Za-z0-9.:-]+)/([0-9]+|queue)/([A-Za-z0-9_.-]+)")
_AWS = re.compile(r"(?:sqs\.([a-z0-9-]+)|([a-z0-9-]+)\.queue|sqs-fips\.([a-z0-9-]+))\.amazonaws\.com(?:\.cn)?")
_UNKNOWN = ("NonExistentQueue", "QueueDoesNotExist")


def opened(place: str, options: Mapping[str, object], _: Sequence[Root]) -> SqsQueue:
    """The queue of an ARN, or of a URL with or without its `https://`."""
    if arn := _ARN.fullmatch(place):
        partition, region, owner, name = arn.groups()
        place = f"https://sqs.{region}.amazonaws.com{'.cn' if partition == 'aws-cn' else ''}/{owner}/{name}"
    url = _URL.fullmatch(place if "://" in place else f"https://{place}")
    if url is None:
        shown = scrub(place if "://" in place or place.startswith("arn:") else f"sqs://{place}", 200)
        raise UsageError(f"{shown!r} names no queue of SQS. Write sqs://sqs.eu-west-1.amazonaws.com/123456789012/queue, or its ARN.")
    found, host = account(options), url[2].lower()
    if not _AWS.fullmatch(host) and host != (urlsplit(found.endpoint).netloc.lower() if found.endpoint else ""):
        raise UsageError(
            f"{host!r} is not a host of Amazon's, and nothing that signs is sent elsewhere. Look at the URL, or name the host, too: "
            f"events=(url, {{'endpoint_url': 'https://{host}', …}})."
        )
    if url[1] == "http" and _AWS.fullmatch(host):
        raise UsageError(f"http://{host} is not asked, as anybody could read along. Write https.")
    return SqsQueue(found, f"{url[1]}://{host}", f"{url[1]}://{host}/{url[3]}/{url[4]}")


class SqsQueue:
    """A queue of SQS, a standard one or a FIFO."""

    hidden = HIDDEN

    def __init__(self, account: S3Account, endpoint: str, url: str) -> None:
        self.account, self.endpoint, self.url = account, endpoint, url
        self.shown = f"sqs://{url.partition('://')[2]}"
        region = _AWS.fullmatch(urlsplit(url).netloc)
        self._region = next(filter(None, region.groups()), "") if region else ""

    def _do(self, what: str, operation: str, on_retry: OnRetry, **asked: Any) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            client = self.account.beside("sqs", self._region, self.endpoint)
            try:
                found: dict[str, Any] = getattr(client, operation)(QueueUrl=self.url, **asked)
            except Exception as e:
                if code_of(e).endswith(_UNKNOWN):
                    raise StorageError(f"{what}: such a queue is not there. Check the URL.") from None
                raise explained(what, e, urlsplit(self.endpoint).netloc, self.url.rpartition("/")[2]) from None
            return found

        return again(ask, on_retry)

    def receive(self, most: int, on_retry: OnRetry) -> list[Message]:
        """See `EventQueue`."""
        waits = iter((WAIT,))

        def ask() -> list[Message]:
            found = self._do(
                f"cannot receive events from {self.shown}", "receive_message", on_retry, MaxNumberOfMessages=PAGE,
                WaitTimeSeconds=next(waits, 0), VisibilityTimeout=int(HIDDEN),
            )  # fmt: skip
            return [message(one["MessageId"], one["ReceiptHandle"], one["Body"], of_s3) for one in found.get("Messages", ())]

        return drained(ask, most)

    def hold(self, messages: Sequence[Message], on_retry: OnRetry) -> list[Message]:
        """See `EventQueue`. The service hides no message for more than 12 hours in all."""

        def hide(some: Sequence[Message]) -> list[Message]:
            entries = [{"Id": str(i), "ReceiptHandle": one.handle, "VisibilityTimeout": int(HIDDEN)} for i, one in enumerate(some)]
            found = self._do(f"cannot hold events of {self.shown}", "change_message_visibility_batch", on_retry, Entries=entries)
            return [some[int(one["Id"])] for one in found.get("Successful", ())]

        return [one for kept in in_parts(hide, messages, PAGE) for one in kept]

    def delete(self, messages: Sequence[Message], on_retry: OnRetry) -> None:
        """See `EventQueue`. A message that the service does not delete comes again."""

        def remove(some: Sequence[Message]) -> None:
            entries = [{"Id": str(i), "ReceiptHandle": one.handle} for i, one in enumerate(some)]
            self._do(f"cannot delete events from {self.shown}", "delete_message_batch", on_retry, Entries=entries)

        in_parts(remove, messages, PAGE)

    def lost(self) -> bool:
        """Never that anybody would know."""
        return False

    def close(self) -> None:
        """There is nothing to end."""
