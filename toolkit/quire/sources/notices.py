"""The texts by which stores tell of their objects: each is read strictly, and what is none of them is said to be none.

S3          notifications of S3 and of what speaks its protocol, also within those of SNS and of EventBridge (docs.aws.amazon.com, "Event
            message structure"; in keys a space is `+`, and other characters are %XX, but not in those of EventBridge)
Azure       events of the types Microsoft.Storage.* in the schema of Event Grid or of CloudEvents 1.0, as they are or in base64
Google      notifications of Cloud Storage: the attributes eventType, bucketId and objectId

Whether an object was made, changed or deleted is not asked: whoever reads the event looks it up.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

from quire.sources.events import Event, NotUnderstood

_SUBJECT = re.compile(r"/blobServices/default/containers/([^/]+)/blobs/(.+)", re.DOTALL)
_TOPIC = re.compile(r".*/storageAccounts/([^/]+)", re.IGNORECASE)
_FOLDERS = ("DirectoryCreated", "DirectoryRenamed", "DirectoryDeleted")  # of a renamed one all that lies below it has come at once
_GOOGLE = ("OBJECT_FINALIZE", "OBJECT_METADATA_UPDATE", "OBJECT_DELETE", "OBJECT_ARCHIVE")


def of_s3(text: str) -> Iterator[Event]:
    """The objects of a message that S3 has sent, itself or through SNS or EventBridge; none of a test message."""
    found = _read(text)
    if isinstance(found, dict) and found.get("Type") == "Notification" and "Records" not in found:  # of SNS
        found = _read(_text(found, "Message"))
    if not isinstance(found, dict):
        raise NotUnderstood("it is not an object")
    if found.get("Event") == "s3:TestEvent":
        return
    if "detail-type" in found:
        if found.get("source") != "aws.s3":
            raise NotUnderstood("it is not an event of S3")
        detail = _object(found, "detail")
        yield _of_s3(detail, _text(_object(detail, "object"), "key"))
        return
    records = found.get("Records")
    if not isinstance(records, list) or not records:
        raise NotUnderstood("it has no records")
    for record in records:
        if not isinstance(record, dict):
            raise NotUnderstood("a record in it is not an object")
        s3 = _object(record, "s3")
        try:
            key = unquote_plus(_text(_object(s3, "object"), "key"), errors="strict")
        except UnicodeDecodeError:
            raise NotUnderstood("a key in it is not UTF-8") from None
        yield _of_s3(s3, key)


def _of_s3(said: Mapping[str, Any], key: str) -> Event:
    return Event(("s3", _text(_object(said, "bucket"), "name")), key)


def of_azure(text: str) -> Iterator[Event]:
    """The objects of a message that Event Grid has sent, in either schema; none of its own events."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")):
        try:
            stripped = base64.b64decode(stripped, validate=True).decode()
        except (binascii.Error, ValueError):
            raise NotUnderstood("it is neither JSON nor base64") from None
    found = _read(stripped)
    for event in found if isinstance(found, list) else [found]:
        if not isinstance(event, dict):
            raise NotUnderstood("it is not an object")
        kind = _text(event, "type" if "specversion" in event else "eventType")
        if kind.startswith("Microsoft.EventGrid."):
            continue
        subject = _SUBJECT.fullmatch(_text(event, "subject"))
        if not kind.startswith("Microsoft.Storage.") or subject is None:
            raise NotUnderstood("it is not an event of a blob")
        data = event.get("data")
        url = data.get("url") if isinstance(data, dict) else None
        url = url if isinstance(url, str) else ""
        topic = _TOPIC.match(str(event.get("topic") or event.get("source") or ""))
        account = topic[1] if topic else _host(url).partition(".")[0]
        container, name = subject.groups()
        place, folder = ("abfs", container, account.lower()), kind.rpartition(".")[2] in _FOLDERS
        yield Event(place, name, folder)
        # Where a name has characters that a URL has not, whoever sends the event may have written them so, in the one or the other.
        other = unquote(name)
        if other != name and not folder:
            yield Event(place, other)


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def of_google(attributes: object) -> Iterator[Event]:
    """The object of a notification of Cloud Storage, by its attributes."""
    if not isinstance(attributes, dict) or attributes.get("eventType") not in _GOOGLE:
        raise NotUnderstood("it is not a notification of Cloud Storage")
    yield Event(("gs", _text(attributes, "bucketId")), _text(attributes, "objectId"))


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise NotUnderstood("it is not JSON") from None


def _object(found: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = found.get(key)
    if not isinstance(value, dict):
        raise NotUnderstood(f"it has no {key}")
    return value


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    if not isinstance(value, str) or not value:
        raise NotUnderstood(f"it has no {key}")
    return value
