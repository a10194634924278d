"""Single requests to S3 that read, look up or write an object, signed here: a tenth of the processor time that boto3 takes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from urllib.parse import quote

from quire.storage import sending
from quire.storage.message import Answer
from quire.storage.s3.account import S3Account
from quire.storage.s3.read import Signer, asked, refusal, said
from quire.storage.wire import Ask

NOT_MET = ("NoSuchKey", "404", "PreconditionFailed", "412")  # answers where a write's condition does not hold


class Single:
    """Requests about the objects of one bucket. `what` is like 'cannot read s3://bucket/x'."""

    def __init__(self, account: S3Account, bucket: str) -> None:
        self.account, self.bucket = account, bucket

    def read(self, what: str, key: str, method: str = "GET", part: str = "", answers: tuple[int, ...] = (), most: int = 0) -> Answer:
        """The answer to a request for an object, if it is a success or has one of the statuses `answers`.

        part    as the header Range has it; empty: all of it
        most    bytes of a body that are wanted; of a longer one there is a byte more
        """
        signer = Signer.of(self.account, self.bucket, what)

        def ask() -> Ask:
            path = _path(signer, key)
            return Ask(method, signer.origin, path, signer.headers(path, method) + (f"Range: {part}\r\n" if part else ""), most)

        answer = self._answer(signer, what, ask)
        if answer.status < 300 or answer.status in answers:
            return answer
        raise refusal(what, answer, signer)

    def write(self, what: str, key: str, data: bytes, condition: Mapping[str, str]) -> bool:
        """Write an object; False: the condition, a header by its name in small letters, is not met."""
        signer, digest = Signer.of(self.account, self.bucket, what), hashlib.sha256(data).hexdigest()

        def ask() -> Ask:
            path = _path(signer, key)
            return Ask("PUT", signer.origin, path, signer.headers(path, "PUT", digest=digest, also=condition), 0, data)

        answer = self._answer(signer, what, ask)
        if answer.status < 300:
            return True
        if condition and (answer.status == 412 or said(answer.body, "Code") in NOT_MET):
            return False
        raise refusal(what, answer, signer)

    def _answer(self, signer: Signer, what: str, ask: Callable[[], Ask]) -> Answer:
        def steps() -> sending.Steps:
            return (yield from asked(signer, what, ask))

        found: Answer = self.account.asking.once(steps)
        return found


def _path(signer: Signer, key: str) -> str:
    return signer.path + quote(key, safe="/-_.~")
