"""Events of S3 in a queue of SQS: `sqs://sqs.region.amazonaws.com/account/queue`, or its URL or ARN, by the options of the source.

Requests go by the connections of S3's listings, a tenth of boto3's processor time each (the service's JSON protocol, AWS's reference of
SQS). boto3 finds the region and whom to sign for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any
from urllib.parse import urlsplit

from quire.errors import StorageError, UsageError, scrub
from quire.sources.events import HIDDEN, Message, drained, message
from quire.sources.files import Root
from quire.sources.notices import of_s3
from quire.storage import OnRetry
from quire.storage.asking import MOST, Asked, Steps
from quire.storage.message import Answer
from quire.storage.retry import again
from quire.storage.s3.account import Endpoint, S3Account, account
from quire.storage.s3.errors import explained, refused
from quire.storage.s3.read import Signer
from quire.storage.wire import Ask

PAGE = 10  # messages, the most that the service gives, or deletes, at once
FLIGHT = 32  # requests on their way at once
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

    def receive(self, most: int, on_retry: OnRetry) -> list[Message]:
        """See `EventQueue`."""
        what, waits = f"cannot receive events from {self.shown}", chain((WAIT,), repeat(0))

        def ask(n: int) -> Iterator[list[Message]]:
            wanted = [{"MaxNumberOfMessages": PAGE, "WaitTimeSeconds": next(waits), "VisibilityTimeout": int(HIDDEN)} for _ in range(n)]
            for found in self._asked(what, "ReceiveMessage", wanted, on_retry):
                told = _texts(what, found, "Messages", ("MessageId", "ReceiptHandle", "Body"))
                yield [message(name, handle, body, of_s3) for name, handle, body in told]

        return drained(ask, most, FLIGHT)

    def hold(self, messages: Sequence[Message], on_retry: OnRetry) -> list[Message]:
        """See `EventQueue`. The service hides no message for more than 12 hours in all."""
        return self._of_each(f"cannot hold events of {self.shown}", "ChangeMessageVisibilityBatch", messages, on_retry, int(HIDDEN))

    def delete(self, messages: Sequence[Message], on_retry: OnRetry) -> None:
        """See `EventQueue`. A message that the service does not delete comes again."""
        self._of_each(f"cannot delete events from {self.shown}", "DeleteMessageBatch", messages, on_retry)

    def _of_each(self, what: str, action: str, messages: Sequence[Message], on_retry: OnRetry, hidden: int | None = None) -> list[Message]:
        """The messages with which the service has done it."""
        more = {} if hidden is None else {"VisibilityTimeout": hidden}
        known = {str(i): one for i, one in enumerate(messages)}
        entries = [{"Id": name, "ReceiptHandle": one.handle, **more} for name, one in known.items()]
        pages = [{"Entries": entries[i : i + PAGE]} for i in range(0, len(entries), PAGE)]
        done = [name for found in self._asked(what, action, pages, on_retry) for (name,) in _texts(what, found, "Successful", ("Id",))]
        return [known[name] for name in done if name in known]

    # ------------------------------------------------------------------------------------------------------------------ requests
    def _asked(self, what: str, action: str, wanted: Sequence[Mapping[str, Any]], on_retry: OnRetry) -> list[dict[str, Any]]:
        """The answers to requests of one kind, in their order; some are on their way at once, and each is retried by itself."""
        region = self.account.beside("sqs", self._region, self.endpoint).meta.region_name
        signer = Signer(self.account, Endpoint(self.endpoint, region), service="sqs")
        found, flying = list[dict[str, Any]](), deque[Asked]()
        with self.account.asking.line() as line:
            for each in wanted:
                if len(flying) == FLIGHT:
                    found.append(again(flying.popleft(), on_retry))
                flying.append(line.ask(partial(self._steps, signer, what, action, each)))
            return found + [again(one, on_retry) for one in flying]

    def _steps(self, signer: Signer, what: str, action: str, wanted: Mapping[str, Any]) -> Steps:
        """One request, and what it is answered with."""
        body = json.dumps({"QueueUrl": self.url, **wanted}).encode()
        told = {"content-type": "application/x-amz-json-1.0", "x-amz-target": f"AmazonSQS.{action}"}
        try:
            headers = signer.headers("/", "POST", digest=hashlib.sha256(body).hexdigest(), also=told)
            answer: Answer = yield Ask("POST", self.endpoint, "/", headers, MOST, body)
        except StorageError:
            raise
        except Exception as e:  # of the connection, or of boto3 where credentials are renewed
            raise explained(what, e, signer.host, self.url.rpartition("/")[2]) from None
        found = _parsed(answer.body)
        if answer.status == 200 and found is not None:
            return found
        raise self._refused(what, answer, found or {})

    def _refused(self, what: str, answer: Answer, said: Mapping[str, Any]) -> StorageError:
        """The error for an answer that is none of a queue's, or a refusal."""
        code = answer.headers.get("x-amzn-query-error", "").partition(";")[0] or str(said.get("__type", "")).rpartition("#")[2]
        if answer.status == 200:
            return _strange(what)
        if code.endswith(_UNKNOWN):
            return StorageError(f"{what}: such a queue is not there. Check the URL.")
        words, host = str(said.get("message") or said.get("Message") or ""), urlsplit(self.endpoint).netloc
        return refused(what, answer.status, code, words, answer.headers, host, self.url.rpartition("/")[2])

    def lost(self) -> bool:
        """Never that anybody would know."""
        return False

    def close(self) -> None:
        """There is nothing to end."""


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body or b"{}")  # some services send nothing where there is nothing to tell
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _texts(what: str, found: Mapping[str, Any], rows: str, names: Sequence[str]) -> list[tuple[str, ...]]:
    """The texts of these names in each row of an answer; StorageError where a service answers as no queue does."""
    try:
        told = [tuple(row[name] for name in names) for row in found.get(rows) or ()]
    except (TypeError, KeyError, IndexError):
        raise _strange(what) from None
    if not all(isinstance(text, str) for row in told for text in row):
        raise _strange(what)
    return told


def _strange(what: str) -> StorageError:
    return StorageError(f"{what}: the answer is not one of a queue. Check the URL, and the proxy between.")
