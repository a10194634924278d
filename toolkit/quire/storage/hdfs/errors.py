"""Refusals of a namenode or a datanode, and failures to reach it, in one line: what, where, what to do."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from quire.errors import NotFoundError, StorageError, TransientError, scrub
from quire.storage.hdfs.access import PORT, Access
from quire.storage.http import for_now, unanswered

_LOOK = f"Look at host and port: the port is that of the namenode's web page, {PORT} unless it is set otherwise"
NO_NAMENODE = "NotANamenode"  # our name for what does not speak WebHDFS
# Java's names of what passes by itself → what it means.
_PASSES = {
    "StandbyException": "this namenode is on standby. Give the host of the active one, if it stays so",
    "SafeModeException": "the namenode is in safe mode and takes no changes. If it stays so: hdfs dfsadmin -safemode leave",
    "RetriableException": "the namenode asks to come again",
    "ObserverRetryOnActiveException": "this namenode only observes. Give the host of the active one, if it stays so",
    "LeaseExpiredException": "the file was taken away while it was written",
    "AlreadyBeingCreatedException": "somebody writes the file, or has just stopped",
    "RecoveryInProgressException": "the namenode is closing the file of a writer that died",
    "NotReplicatedYetException": "the cluster has not copied the file's last block yet",
    "BlockMissingException": "no datanode that can be reached has all of it. Look at the datanodes (hdfs fsck)",
    "ReplicaNotFoundException": "the datanode does not have this block any more",
    "SocketTimeoutException": "a part of the cluster did not answer in time",
    "ConnectTimeoutException": "a part of the cluster did not answer in time",
    "ConnectException": "one part of the cluster does not reach another",
    "NoRouteToHostException": "one part of the cluster does not reach another",
    "EOFException": "a connection within the cluster was lost",
    "ServerTooBusyException": "the namenode is busy",
}
# The same, of exceptions that have no name of their own, by their words.
_PASSES_BY_WORDS = {
    "failed to find datanode": "no datanode is there. Look whether they run",
    "could only be written to 0 of": "no datanode takes it: they are full or gone. Look at the cluster's web page",
    "could only be replicated to 0 nodes": "no datanode takes it: they are full or gone. Look at the cluster's web page",
    "in safe mode": _PASSES["SafeModeException"],
    "too busy": _PASSES["ServerTooBusyException"],
}
_FULL = "Free some space, or ask for a larger quota, and call again: what was committed is safe"
_NAME = "the name is one that HDFS does not take: no ':' and no control characters, at most 255 bytes a part, 1,000 parts. Use another name"
# {user}, {where}, {words}
_ADVICE = {
    "AccessControlException": "no permission{user} ({words}). Ask for the right, or give the option user",
    "AuthorizationException": "no permission{user} ({words}). Ask for the right, or look at the option proxy_to",
    "DSQuotaExceededException": f"the directory's quota of space is used up. {_FULL}",
    "NSQuotaExceededException": f"the directory's quota of names is used up. {_FULL}",
    "QuotaByStorageTypeExceededException": f"the directory's quota of space is used up. {_FULL}",
    "QuotaExceededException": f"the directory's quota is used up. {_FULL}",
    "PathComponentTooLongException": _NAME,
    "InvalidPathException": _NAME,
    "MaxDirectoryItemsExceededException": "the directory is full of names. Use layout='directories', or ask who administers it",
    "ParentNotDirectoryException": "a file stands where a directory is needed. Move it away, or choose another place",
    "PathIsNotEmptyDirectoryException": "a directory has its name. Move it away, or choose another place",
    "FileAlreadyExistsException": "something else has its name. Look who made it, and move it away",
    "AuthenticationException": "{where} does not know who asks ({words}). Give a new delegation token as the option token",
    "InvalidToken": "{where} does not take this delegation token ({words}). Get a new one (hdfs fetchdt)",
    "SecurityException": "{where} does not know who asks ({words}). Give a new delegation token as the option token",
    "UnsupportedOperationException": "{where} does not know this request ({words}). Use Hadoop 3 or newer",
}
# What is wrong with who asks or with the namenode, so with every file alike.
_EVERYWHERE = frozenset(("AuthenticationException", "AuthorizationException", "InvalidToken", "SecurityException", NO_NAMENODE))


class Said(NamedTuple):
    """A refusal: the exception's name as Java has it, without its package, and its words."""

    status: int
    name: str
    words: str


def said(status: int, body: bytes) -> Said:
    """Read from an answer. A server that does not speak WebHDFS is called NO_NAMENODE."""
    try:
        found = json.loads(body)["RemoteException"]
        name, words = str(found["exception"]), str(found.get("message") or "")
    except (ValueError, KeyError, TypeError, RecursionError):
        words = body[:1000].decode("utf-8", "replace")
        if status == 414 or "TooLong" in words:
            return Said(status, "InvalidPathException", "")
        if status >= 500 or status in (408, 429):
            return Said(status, "", "")
        return Said(status, "AuthenticationException" if status == 401 else NO_NAMENODE, "")
    # An exception within another one: its name stands before its words.
    for inner in ("InvalidToken", "SafeModeException", "StandbyException"):
        if inner in words:
            name = inner
    if "invalid value for webhdfs parameter" in words.lower() or "invalid operation" in words.lower():
        name = "UnsupportedOperationException" if '"op"' in words or "peration" in words else "InvalidPathException"
    if name == "InvalidPathException" or words.startswith("Invalid path name"):
        name = "InvalidPathException"
    if words.rstrip().endswith("(is not a directory)"):
        name = "ParentNotDirectoryException"
    if "must both be directories" in words:
        name = "FileAlreadyExistsException"
    words = re.sub(r"delegation=[^\s&;,'\"]+", "delegation=***", words)
    return Said(status, name, scrub(words.splitlines()[0].rstrip(". ") if words else "", 200))


def busy(told: Said) -> bool:
    """Whether fewer requests would help."""
    return told.status in (429, 503) or told.name in ("ServerTooBusyException", "RetriableException")


def everywhere(told: Said) -> bool:
    """Whether it would be said of every other file, too."""
    return told.name in _EVERYWHERE


def explained(what: str, told: Said, access: Access, where: str) -> StorageError:
    """The error for a refusal: `what` is like 'cannot read webhdfs://host:9870/x', `where` who refused."""
    if told.name == "StandbyException" and access.turn(where):
        return TransientError(f"{what}: {where} is on standby, so the next namenode is asked")
    passes = _PASSES.get(told.name) or next((found for words, found in _PASSES_BY_WORDS.items() if words in told.words.lower()), "")
    if passes:
        return TransientError(f"{what}: {passes} ({told.name})")
    if told.status >= 500 or told.status in (408, 429):
        return TransientError(f"{what}: {where} did not manage it ({told.status}{f' {told.name}' if told.name else ''})")
    if told.name == "FileNotFoundException":
        return NotFoundError(f"{what}: it is not there")
    if told.name == NO_NAMENODE:
        return StorageError(f"{what}: {where} does not answer as a namenode does ({told.status}). {_LOOK}.")
    if told.name in _ADVICE:
        user = f" for {access.user!r}" if access.user else ""
        words = told.words or f"status {told.status}"
        return StorageError(f"{what}: {_ADVICE[told.name].format(user=user, where=where, words=words)}.")
    words = f": {told.words}" if told.words else ""
    return StorageError(f"{what}: {where} refused it ({told.status} {told.name}{words}). Look at the namenode's log.")


def unreachable(what: str, error: BaseException, access: Access, where: str, known: bool) -> StorageError:
    """The error for a request without an answer. `known`: this process has had answers from there, so it may come back."""
    why, innermost = unanswered(error)
    if access.turn(where, unknown=why == "no host"):
        return TransientError(f"{what}: {where} does not answer ({why}), so the next namenode is asked")
    datanode = where not in access.namenodes
    if why == "no host":
        hosts = access.hosts
        advice = f"Check the {'option namenodes' if len(access.namenodes) > 1 else 'URL'}, or this machine's network"
        if datanode:
            hosts = (where.rpartition(":")[0],)
            advice = "The namenode calls a datanode so: let this machine know the name, or give the option data_proxy"
        return StorageError(f"{what}: unknown host {' or '.join(map(repr, hosts))}. {advice}.")
    if why in ("no tls", "no trust"):
        return StorageError(f"{what}: no trust in {where}, or it does not speak https. Look at use_https, or give session_verify=file.")
    if why == "nobody":
        kind = TransientError if known or datanode else StorageError
        return kind(f"{what}: nobody listens at {where}. {'Look whether this datanode runs' if datanode else _LOOK}.")
    if innermost == "BadStatusLine" and not known:
        return StorageError(f"{what}: {where} does not speak http. {_LOOK}.")
    return for_now(what, where, why, innermost)
