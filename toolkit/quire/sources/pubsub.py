"""Notifications of Cloud Storage in a subscription of Pub/Sub: `pubsub://project/subscription`.

Options: `token` (a service account's key file or its content, or credentials of google-auth; left out: this machine's own), `endpoint_url`
(of an emulator, which is asked without a token; else the variable PUBSUB_EMULATOR_HOST names it).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from quire.errors import StorageError, TransientError, UsageError, scrub
from quire.packaging import install
from quire.sources.events import HIDDEN, SAID, Message, NotUnderstood, by_threads, drained, in_parts
from quire.sources.files import Root
from quire.sources.notices import of_google
from quire.storage import OnRetry
from quire.storage.http import BUSY, for_now, seconds, unanswered
from quire.storage.options import spelled
from quire.storage.retry import again

PAGE = 1000  # messages at once
TIMEOUTS = (10.0, 60.0)  # seconds until a connection is made, and without a byte
SCOPE = "https://www.googleapis.com/auth/pubsub"
SERVICE = "https://pubsub.googleapis.com"
_PLACE = re.compile(r"([a-z][a-z0-9.:-]*[a-z0-9])/([A-Za-z][A-Za-z0-9._~+%-]{2,254})")


def opened(place: str, options: Mapping[str, object], _: Sequence[Root]) -> PubSub:
    """The subscription `project/subscription`."""
    match = _PLACE.fullmatch(place.rstrip("/"))
    if match is None:
        raise UsageError(f"'pubsub://{scrub(place, 200)}' names no subscription of a project. Write pubsub://project/subscription.")
    spelled(options, ("token", "endpoint_url"), "Pub/Sub")
    return PubSub(match[1], match[2], options)


class PubSub:
    """A subscription that is pulled."""

    hidden = HIDDEN

    def __init__(self, project: str, subscription: str, options: Mapping[str, object]) -> None:
        self.shown = f"pubsub://{project}/{subscription}"
        around = os.environ.get("PUBSUB_EMULATOR_HOST", "")
        endpoint = str(options.get("endpoint_url") or (f"http://{around}" if around else ""))
        if endpoint and (urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname):
            raise UsageError(f"endpoint_url={scrub(repr(endpoint), 100)} is not an address. Write for example 'http://127.0.0.1:8085'.")
        self._url = f"{endpoint.rstrip('/') or SERVICE}/v1/projects/{project}/subscriptions/{subscription}"
        self._host = urlsplit(self._url).netloc.rpartition("@")[2]
        self._signed, self._token = not endpoint, options.get("token")
        self._session: Any = None

    def __repr__(self) -> str:
        return f"PubSub({self.shown!r})"

    def receive(self, most: int, on_retry: OnRetry) -> list[Message]:
        """See `EventQueue`."""
        what = f"cannot receive events from {self.shown}"

        def pull() -> list[dict[str, Any]]:
            found = self._do(what, "pull", {"maxMessages": PAGE, "returnImmediately": True}, on_retry).get("receivedMessages", [])
            return [one for one in found if isinstance(one, dict) and isinstance(one.get("ackId"), str)]

        def ask() -> list[Message]:
            found = pull() or pull()  # one server may have nothing where another one has
            return self._hidden(what, [_message(one) for one in found], on_retry)

        return drained(by_threads(ask), most)

    def hold(self, messages: Sequence[Message], on_retry: OnRetry) -> list[Message]:
        """See `EventQueue`."""
        what = f"cannot hold events of {self.shown}"
        return [one for kept in in_parts(lambda some: self._hidden(what, some, on_retry), messages, PAGE) for one in kept]

    def delete(self, messages: Sequence[Message], on_retry: OnRetry) -> None:
        """See `EventQueue`."""

        def remove(some: Sequence[Message]) -> None:
            self._do(f"cannot acknowledge events of {self.shown}", "acknowledge", {"ackIds": [one.handle for one in some]}, on_retry)

        in_parts(remove, messages, PAGE)

    def _hidden(self, what: str, messages: Sequence[Message], on_retry: OnRetry) -> list[Message]:
        if messages:
            asked = {"ackIds": [one.handle for one in messages], "ackDeadlineSeconds": int(HIDDEN)}
            self._do(what, "modifyAckDeadline", asked, on_retry)
        return list(messages)

    def lost(self) -> bool:
        """Never that anybody would know."""
        return False

    def close(self) -> None:
        """There is nothing to end."""

    # ---------------------------------------------------------------------------------------------------------- requests
    def _do(self, what: str, verb: str, body: dict[str, Any], on_retry: OnRetry) -> dict[str, Any]:
        return again(lambda: self._ask(what, verb, body), on_retry)

    def _ask(self, what: str, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        session = self._connected(what)
        try:
            found = session.post(f"{self._url}:{verb}", json=body, timeout=TIMEOUTS, allow_redirects=False)
        except Exception as e:  # of requests, of what is below it, and of google-auth, which asks for tokens on its way
            why, innermost = unanswered(e)
            if "RefreshError" in type(e).__name__ or "DefaultCredentials" in type(e).__name__:
                raise StorageError(f"{what}: no credentials could be had ({type(e).__name__}). Sign in again, or give token=.") from None
            raise for_now(what, self._host, why, innermost) from None
        if found.status_code in BUSY:
            wait = seconds(found.headers.get("Retry-After", ""))
            raise TransientError(f"{what}: the service did not manage it ({found.status_code})", wait=wait)
        if found.status_code == 404:
            raise StorageError(f"{what}: such a subscription is not there. Check the spelling.")
        if found.status_code in (401, 403):
            raise StorageError(f"{what}: no permission ({found.status_code}). Ask for the role 'Pub/Sub Subscriber', or give token=.")
        try:
            said = found.json() if found.status_code == 200 else None
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise StorageError(f"{what}: {self._host} refused it, or is not Pub/Sub ({found.status_code}). Look at the subscription.")
        return said

    def _connected(self, what: str) -> Any:
        if self._session is None:
            try:
                import requests

                if not self._signed:
                    self._session = requests.Session()
                    return self._session
                from google.auth.transport.requests import AuthorizedSession
            except ImportError as e:
                raise UsageError(f"Pub/Sub needs more packages: {install('pubsub')}") from e
            self._session = AuthorizedSession(self._credentials(what))
        return self._session

    def _credentials(self, what: str) -> Any:
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from google.oauth2 import service_account

        token = self._token
        try:
            if isinstance(token, str) and not token.lstrip().startswith("{"):
                return service_account.Credentials.from_service_account_file(token, scopes=[SCOPE])
            if isinstance(token, str | Mapping):
                info = json.loads(token) if isinstance(token, str) else dict(token)
                return service_account.Credentials.from_service_account_info(info, scopes=[SCOPE])
            return token if token is not None else google.auth.default(scopes=[SCOPE])[0]
        except (GoogleAuthError, ValueError, OSError) as e:  # whose words may hold the key
            said = f"the option token is none of Google's ({type(e).__name__}). Give a service account's key file"
            raise UsageError(f"{what}: {said}.") from None


def _message(found: dict[str, Any]) -> Message:
    said = found.get("message")
    said = said if isinstance(said, dict) else {}
    name = str(said.get("messageId") or found["ackId"])
    try:
        return Message(name, found["ackId"], tuple(of_google(said.get("attributes"))))
    except NotUnderstood as e:
        return Message(name, found["ackId"], None, f"{e}: {scrub(json.dumps(said.get('attributes')), SAID)!r}")
