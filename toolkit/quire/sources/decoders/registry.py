"""A schema registry: schemas by their ids, asked for once in each process. Only this module knows its client (confluent-kafka's).

404 with the registry's own code for it   it has no such schema: a matter of the record (UnknownSchemaError)
no answer, 408, 429 or 5xx                retried with backoff for a minute, then TransientError: the job stays open
anything else                             StorageError: wrong credentials, or no schema registry there
"""

from __future__ import annotations

import functools
import importlib.util
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from quire.errors import StorageError, TransientError, UsageError, about, quoted, scrub
from quire.packaging import install
from quire.storage.retry import again
from quire.storage.secret import Secret, resolved

T = TypeVar("T")

SECONDS = 30  # until an answer must have come
KNOWN = 1_000  # schemas that a process remembers
FORGET = 30.0  # seconds after which a schema that was not there is asked for again
NO_SCHEMA, NO_SUBJECT, NO_VERSION = 40403, 40401, 40402  # a registry's own codes beside status 404
_OURS = ("url", "max.retries", "cache.capacity", "cache.latest.ttl.sec", "retries.wait.ms", "retries.max.wait.ms")


class UnknownSchemaError(Exception):
    """The registry has no schema of this id."""


class Found(NamedTuple):
    """A schema: its kind (AVRO, JSON, PROTOBUF), its text, and the files that it imports by their names."""

    kind: str
    text: str
    imports: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Registry:
    """The address of a registry, and the options of its client; travels to the tasks, as options of stores do."""

    url: str
    options: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    def schema(self, number: int) -> Found:
        """The schema of an id. Raises UnknownSchemaError, TransientError and StorageError."""
        missing = _missing.get((self, number))
        if missing is not None and time.monotonic() - missing < FORGET:
            raise UnknownSchemaError(number)
        try:
            return _schema(self, number)
        except UnknownSchemaError:
            if len(_missing) >= KNOWN:
                _missing.clear()
            _missing[self, number] = time.monotonic()
            raise

    def latest(self, subject: str) -> int | None:
        """The id of a subject's newest schema; None where the registry has no such subject, or does not tell."""
        try:
            found = self._ask(lambda client: int(client.get_latest_version(subject).schema_id))
        except (UnknownSchemaError, StorageError) as e:
            if isinstance(e, TransientError):
                raise
            return None
        return found

    def _ask(self, question: Callable[[Any], T]) -> T:
        """The answer to a question, which is put again where that may help. Raises UnknownSchemaError, TransientError and StorageError."""
        return again(lambda: self._once(question))

    def _once(self, question: Callable[[Any], T]) -> T:
        (_, errors, http), client = _library(), _client(self)
        try:
            return question(client)
        except errors.SchemaRegistryError as e:
            status = e.http_status_code
            if status == 404 and e.error_code in (NO_SCHEMA, NO_SUBJECT, NO_VERSION):
                raise UnknownSchemaError(e.error_code) from None
            if status in (408, 429) or status >= 500:
                raise TransientError(f"the schema registry {self.url} answers with status {status}") from None
            if status in (401, 403):
                why = f"it answers with status {status}: give credentials that it takes with registry_options="
            else:
                why = f"it answers with status {status}, as a schema registry would not: check the address"
        except http.TransportError as e:
            raise TransientError(f"the schema registry {self.url} does not answer ({type(e).__name__})") from None
        except (errors.OAuthTokenError, http.HTTPError, http.InvalidURL) as e:
            why = f"it could not be asked ({type(e).__name__}): check registry= and registry_options="
        except (ValueError, TypeError, AttributeError, KeyError) as e:
            why = f"what it answers is not JSON of a schema registry ({type(e).__name__}): check the address"
        raise StorageError(f"the schema registry {self.url} is of no use here: {why}. Nothing was quarantined for it.")


_missing = dict[tuple[Registry, int], float]()


@functools.lru_cache(maxsize=KNOWN)
def _schema(registry: Registry, number: int) -> Found:
    imports = dict[str, str]()

    def add(client: Any, references: Iterable[Any]) -> None:
        for each in references:
            if each.name not in imports:
                found = client.get_version(each.subject, each.version, True).schema
                imports[each.name] = found.schema_str + ""
                add(client, found.references or ())

    def question(client: Any) -> Found:
        found = client.get_schema(number)
        add(client, found.references or ())
        return Found(str(found.schema_type or "AVRO").upper(), found.schema_str + "", tuple(imports.items()))

    return registry._ask(question)


@functools.lru_cache(maxsize=8)
def _client(registry: Registry) -> Any:
    """The client of this process, which leaves retries to us."""
    made, _, _ = _library()
    ours = {"url": registry.url, "max.retries": 0, "cache.capacity": KNOWN, "cache.latest.ttl.sec": FORGET}
    given = {"timeout": SECONDS, **resolved(dict(registry.options)), **ours}
    try:
        return made.SchemaRegistryClient({**given, "timeout": float(given["timeout"])})  # a shell gives it as text
    except (ValueError, TypeError, OSError) as e:
        known = {name for name, _ in registry.options}
        why = str(e) if isinstance(e, ValueError) and str(e).startswith("Unrecognized properties") else type(e).__name__
        with about("registry_options"):
            said = ", ".join(sorted(known)) or "none"
            raise UsageError(f"the client of the schema registry does not take registry_options ({said}): {scrub(why, 100)}.") from None


@functools.cache
def _library() -> tuple[ModuleType, ModuleType, Any]:
    try:
        from confluent_kafka import schema_registry
        from confluent_kafka.schema_registry import error

        http = importlib.import_module("httpx2" if importlib.util.find_spec("httpx2") else "httpx")  # as the client prefers it
    except ImportError as e:
        with about("registry"):
            raise UsageError(f"a schema registry needs the package {e.name!r}, which is not installed: {install('registry')}") from None
    return schema_registry, error, http


def registry(url: Any, options: Any) -> Registry:
    """Check a registry's address and options; UsageError for wrong ones, which are not repeated where they may hold a secret."""
    with about("registry"):
        addresses = [each.strip().rstrip("/") for each in url.split(",")] if isinstance(url, str) else []
        parts = [urlsplit(each) for each in addresses if _is_address(each)]
        if not parts or len(parts) < len(addresses):
            raise UsageError(f"registry={quoted(url)} is not the address of a schema registry. Write http(s)://host:8081.")
        if any("@" in part.netloc for part in parts):
            raise UsageError(
                "registry= holds credentials, which would be shown with the address. Leave them out, and say "
                "registry_options={'basic.auth.user.info': quire.secret('NAME_OF_A_VARIABLE')}."
            )
        if any(part.query or part.fragment for part in parts):
            raise UsageError("registry= is an address without ? and #. Words that ask for credentials go into registry_options=.")
    with about("registry_options"):
        if options is not None and not isinstance(options, Mapping):
            raise UsageError(f"registry_options is a dictionary of options of the registry's client, not {type(options).__name__}.")
        for name, value in (options or {}).items():
            if not isinstance(name, str) or name in _OURS:
                raise UsageError(f"registry_options: {quoted(name)} is set by quire. Leave it out.")
            if not isinstance(value, str | int | float | bool | Secret):
                raise UsageError(f"registry_options: {name[:80]!r} is a {type(value).__name__}, and options are texts and numbers.")
    made = Registry(",".join(addresses), tuple(sorted((options or {}).items())))
    _client(made)  # where it is missing, or an option is wrong, that is said before Spark is started
    return made


def _is_address(text: str) -> bool:
    try:
        part = urlsplit(text)
        return part.scheme in ("http", "https") and bool(part.hostname) and part.port != 0 and text.isprintable() and " " not in text
    except ValueError:
        return False
