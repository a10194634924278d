"""The interface of stores, and the entrance of every URL: normalised once, here, and nowhere again."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, cast

from quire.errors import UsageError, choose, quoted, scrub
from quire.packaging import Registry
from quire.storage.base import (
    STATE,
    Batching,
    Beside,
    Busy,
    Conditional,
    Content,
    Copying,
    Entry,
    Files,
    Folder,
    Limited,
    Looking,
    Paging,
    ReadRequest,
    Replacing,
    Seeking,
    Sink,
    Store,
    Stream,
    Syncing,
    Trouble,
    Unreadable,
    Upload,
    Vanished,
    at_once,
    held,
    is_safe,
    remove_all,
    remove_version,
)
from quire.storage.fsspec_access import knows
from quire.storage.local import LocalStore, to_os, to_text
from quire.storage.memory import MemoryStore
from quire.storage.retry import OnRetry, Patience, Retrying, silent
from quire.storage.secret import resolved
from quire.storage.way import origin
from quire.storage.within import HOME, MARK, PLACE, PROPERTIES, Within, is_marked, marked, plain

__all__ = [
    "Batching",
    "Beside",
    "Busy",
    "Conditional",
    "Content",
    "Copying",
    "Entry",
    "Files",
    "Folder",
    "Limited",
    "Looking",
    "OnRetry",
    "Paging",
    "Patience",
    "ReadRequest",
    "Replacing",
    "Seeking",
    "Sink",
    "Store",
    "Stream",
    "Syncing",
    "Trouble",
    "Unreadable",
    "Upload",
    "Vanished",
    "account",
    "at_once",
    "bare",
    "below",
    "canonical",
    "connect",
    "destination",
    "held",
    "identity",
    "is_safe",
    "normalise",
    "overlap",
    "plain",
    "remove_all",
    "remove_version",
    "silent",
]

Options = Mapping[str, object] | None
# Stores behind a network → the module that holds their `normalise(scheme, rest)` and `opened(url, options)`, loaded when it is asked for.
# Other packages' are found by their entry points.
STORES = Registry(
    "quire.stores", "store {}://",
    {
        **dict.fromkeys(("abfs", "abfss", "az", "wasb", "wasbs"), "quire.storage.azure.store"),
        **dict.fromkeys(("s3", "s3a"), "quire.storage.s3.store"), **dict.fromkeys(("gs", "gcs"), "quire.storage.gcs.store"),
        "webhdfs": "quire.storage.hdfs.store",
    },
    reserved=("file", "memory"),
)  # fmt: skip
_ADD = f"A package adds a store by an entry point of the group {STORES.group} (docs/stores.md)."
_ELSEWHERE = {  # schemes of which users may think that they are there
    "hdfs": "Write webhdfs://namenode:9870/path. Hadoop's own protocol is a package by itself: install examples/hdfs_native everywhere.",
}  # fmt: skip
_FSSPEC = "quire.storage.fsspec_store"  # of all schemes that fsspec knows and nobody here has a store for: sources alone
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/|:.)")


def normalise(url: str | os.PathLike[str]) -> str:
    """One URL for one place: `in/../in/` → `file:///work/in`; links to directories are resolved, so that a file has one name."""
    if not isinstance(url, (str, os.PathLike)) or not os.fspath(url):
        raise UsageError(f"expected a path or a URL, not {quoted(url)}. Give for example '/data/in' or 'file:///data/in'.")
    text = os.fspath(url)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if "\0" in text:
        raise UsageError(f"a path cannot hold a NUL character: {scrub(text)!r}")
    if not _writable(text):
        raise UsageError(f"{scrub(text)!r} holds half of a character, which no name on disk has. Look where it comes from.")
    match = _match(text)
    scheme = match[1].lower() if match else "file"
    if is_marked(scheme):
        return marked(normalise(text[len(MARK) :]))
    if scheme == "kafka":
        raise UsageError(f"{scrub(text)!r} is Kafka, and no store of files. Topics are loaded by quire.load.")
    _check_scheme(scheme, text)
    rest = text[match.end() :] if match else os.path.expanduser(text)
    if scheme not in ("file", "memory"):
        return str(_module(scheme).normalise(scheme, rest))
    if scheme == "memory":
        parts = [part for part in rest.split("/") if part not in ("", ".")]
        if not parts or ".." in parts:
            raise UsageError(f"a memory URL needs a name and no '..': memory://name, not {scrub(text)!r}")
        return "memory://" + "/".join(parts)
    if match and rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            said, instead = scrub(host.rpartition("@")[2], 80), scrub(f"file:///{host.rpartition('@')[2]}{slash}{path}")
            raise UsageError(f"{scrub(text)!r} names the host {said!r}, and local disk has none. Write {instead} or a plain path.")
        rest = "/" + path
    return "file://" + to_text(os.path.realpath(rest))


def _match(text: str) -> re.Match[str] | None:
    """The scheme at the beginning of a URL; None for a path, also where its name has colons in it."""
    found = _SCHEME.match(text)
    return None if found and text[found.end()] == ":" and not knows(found[1].lower()) else found


def canonical(url: str | os.PathLike[str], options: Options = None) -> str:
    """The one URL of a place, whichever way it is given: normalised, and with what the options alone say of it, and no secret.

    It opens the place with the same options. Stored paths begin with it, so that another spelling finds what is done.
    """
    found = normalise(url)
    if is_marked(found):
        return marked(canonical(plain(found), options))
    scheme = found.partition(":")[0]
    if scheme in ("file", "memory"):
        return found
    whole = getattr(_module(scheme), "canonical", None)  # a function that a store's module may have beside
    return str(whole(found, checked(options))) if whole else found


def destination(url: str | os.PathLike[str], options: Options = None) -> str:
    """The canonical URL of what quire has written, or will: of a table with its mark, so that its state is found where it lies in one.

    A directory is a table if it has settings of one, and no state of quire's beside them that does not belong to a table.
    """
    found = canonical(url, options)
    store = connect(found, options)
    if not (store.can_rename or store.can_upload):
        store.check_writable()  # what is a source alone says why
    if is_marked(found) or not store.is_folder(HOME) or store.stat(PROPERTIES) is None:  # an answer to a look at one name gives no reason
        return found
    return found if store.is_folder(STATE) and not store.is_folder(PLACE) else marked(found)


def _check_scheme(scheme: str, text: str) -> None:
    """Refuse a kind of store that nobody here knows."""
    if scheme in STORES.reserved or scheme in STORES.own or scheme in STORES.brought(scheme):
        return
    if scheme in _ELSEWHERE:
        raise UsageError(f"{scrub(text)!r}: {_ELSEWHERE[scheme]} {_ADD}")
    if not knows(scheme):
        choose(scheme, (*STORES.reserved, *STORES.known()), "kind of store", f" {_ADD}")


def _module(scheme: str) -> Any:
    found = STORES.load(scheme) or (import_module(_FSSPEC) if knows(scheme) else None)
    if found is None:
        raise UsageError(f"no package that is installed here knows stores at {scheme}://. Install the one that does on every machine.")
    return found


def _writable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def connect(url: str, options: Options = None, on_retry: OnRetry = silent, *, links: bool = False) -> Store:
    """Open the store at a normalised URL. Transient errors are tried again; `on_retry` is called at each.

    Local disk and memory need no options; other stores take their credentials from them, where `quire.secret` says they are looked up
    in this process. `links`: files are read through links, which the listing of a source has followed; elsewhere none is.
    """
    return cast("Store", Retrying(bare(url, options, links=links), on_retry))


def bare(url: str, options: Options = None, *, links: bool = False) -> Store:
    """The store itself, whose errors are final."""
    if is_marked(url):
        return Within(bare(plain(url), options, links=links))
    scheme, given = url.partition(":")[0], checked(options)
    if scheme not in ("file", "memory"):
        return cast("Store", _module(scheme).opened(url, given))
    return MemoryStore(url) if scheme == "memory" else LocalStore(url.removeprefix("file://"), links)


def checked(options: Options) -> Options:
    """The options with the values of their secrets; UsageError for what is none."""
    given = resolved(options)
    if given is not None and not isinstance(given, Mapping):  # what it is stays unsaid: it may be a secret
        raise UsageError(f"storage_options= takes a dictionary of options for the store, not {type(given).__name__}.")
    return cast("Options", given)


def account(url: str, options: Options = None) -> str:
    """The account that a normalised URL and its options mean, as a user knows it: an account's or a bucket's name, or a host."""
    scheme, _, rest = plain(url).partition("://")
    if scheme == "file":
        return "local disk"
    named = None if scheme == "memory" else getattr(_module(scheme), "named", None)  # a function that a store's module may have beside
    return str(named(plain(url), resolved(options))) if named else rest.partition("/")[0] or scheme


def identity(url: str, options: Options = None) -> str:
    """A place under one name, also where two stores or mounts show it: to compare places, and not to open them.

    Its canonical URL; S3 with the endpoint that the options name; HDFS without its port, by either protocol; on disk what is mounted twice.
    """
    url = plain(url)
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    if scheme == "file":
        return f"file://{origin(to_os(rest))}"
    with suppress(UsageError):  # whoever opens it says why
        if scheme == "s3":
            return f"s3://{account(url, options)}/{path}".rstrip("/")
        host, _, path = canonical(url, options).partition("://")[2].partition("/")
    if scheme in ("hdfs", "webhdfs"):
        scheme, host = "hdfs", re.sub(r":[0-9]+$", "", host)
    return f"{scheme}://{host}/{path}".rstrip("/")


def overlap(url: str, options: Options, root: str, root_options: Options) -> bool:
    """Whether a place is `root` or lies in it, under whatever names; an account that one does not say is the other's."""
    one, other = identity(url, options), identity(root, root_options)
    if not all(place.startswith("abfs://") and "@" in place.split("/")[2] for place in (one, other)):
        one, other = (re.sub(r"^(abfs://[^/@]*)@[^/]*", r"\1", place) for place in (one, other))
    return below(one, other)


def below(url: str, root: str) -> bool:
    """Whether a normalised URL is `root` or lies in it, be they tables or not."""
    url, root = plain(url), plain(root)
    return url == root or url.startswith(root.rstrip("/") + "/")
