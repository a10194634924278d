"""A server that speaks as much of SQS (its JSON protocol) as quire asks for, after a delay, and fast: moto takes longer the more it holds.

    python tests/benchmarks/queueserver.py --delay 0.005        # prints its port, and serves until its input ends

Every queue is there. A message that was received is hidden for as long as the caller says. Whoever asks an empty queue waits as long as it
says, as with long polling.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from hashlib import md5
from itertools import count
from typing import Any

from blobserver import Reply, serve

_ACTION = re.compile(rb"\r\nx-amz-target: *AmazonSQS\.([A-Za-z]+)", re.IGNORECASE)
_JSON = "Content-Type: application/x-amz-json-1.0\r\n"


class Queues:
    """An account of SQS."""

    def __init__(self) -> None:
        self.held = dict[str, dict[str, tuple[str, float]]]()  # queue → message → its text, and until when it is hidden
        self.numbers = count()

    def answer(self, method: bytes, target: bytes, head: bytes, body: bytes) -> Reply:
        """Any request."""
        action, asked = _ACTION.search(head), json.loads(body)
        held = self.held.setdefault(asked["QueueUrl"], {})
        found: dict[str, Any] = getattr(self, action[1].decode())(held, asked) if action else {}
        empty = action is not None and action[1] == b"ReceiveMessage" and not found
        return Reply(200, json.dumps(found).encode(), _JSON, wait=asked.get("WaitTimeSeconds", 0) if empty else 0)

    def SendMessageBatch(self, held: dict[str, tuple[str, float]], asked: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        done = []
        for entry in asked["Entries"]:
            name, text = f"m{next(self.numbers):08}", entry["MessageBody"]
            held[name] = text, 0.0
            done.append({"Id": entry["Id"], "MessageId": name, "MD5OfMessageBody": md5(text.encode()).hexdigest()})
        return {"Successful": done}

    def ReceiveMessage(self, held: dict[str, tuple[str, float]], asked: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        now, found = time.monotonic(), list[dict[str, str]]()
        for name in list(held):
            text, until = held[name]
            if until <= now:
                del held[name]  # to the end: what is hidden is not looked at again
                held[name] = text, now + asked["VisibilityTimeout"]
                found.append({"MessageId": name, "ReceiptHandle": name, "Body": text, "MD5OfBody": md5(text.encode()).hexdigest()})
            if until > now or len(found) == asked["MaxNumberOfMessages"]:
                break
        return {"Messages": found} if found else {}

    def DeleteMessageBatch(self, held: dict[str, tuple[str, float]], asked: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        for entry in asked["Entries"]:
            held.pop(entry["ReceiptHandle"], None)
        return {"Successful": [{"Id": entry["Id"]} for entry in asked["Entries"]]}

    def ChangeMessageVisibilityBatch(self, held: dict[str, tuple[str, float]], asked: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        for entry in asked["Entries"]:
            text, _ = held.pop(entry["ReceiptHandle"])
            held[entry["ReceiptHandle"]] = text, time.monotonic() + entry["VisibilityTimeout"]
        return {"Successful": [{"Id": entry["Id"]} for entry in asked["Entries"]]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.005, help="seconds before each answer")
    args = parser.parse_args()
    import uvloop

    uvloop.run(serve(Queues(), args.delay))


if __name__ == "__main__":
    main()
