"""The service of a Hive metastore: its address, its calls, and what it says no by.

Source: `hive_metastore.thrift` of Hive 2.3 to 4.0; where a call got another form, the newer one is asked first.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Self

from quire.errors import QuireError, RefusedError, TransientError, UsageError, quoted, scrub
from quire.table.hive import thrift
from quire.table.hive.thrift import Fields, NotThrift, Value, flag, listed, mapping, record, text, texts

PORT = 9083
CONNECT, ANSWER = 10, 300  # seconds
MANY = 200  # partitions in a call
EXISTS, MISSING = "AlreadyExistsException", "NoSuchObjectException"
_INVALID, _META, _OPERATION = "InvalidObjectException", "MetaException", "InvalidOperationException"
# The exceptions by which each call refuses, in the order of the fields of its answer.
_THROWS: dict[str, tuple[str, ...]] = {
    "set_ugi": (_META,), "get_database": (MISSING, _META), "get_table_req": (_META, MISSING), "get_table": (_META, MISSING),
    "create_table_with_environment_context": (EXISTS, _INVALID, _META, MISSING),
    "alter_table_with_environment_context": (_OPERATION, _META), "get_partition_names": (MISSING, _META),
    "add_partitions_req": (_INVALID, EXISTS, _META), "drop_partition": (MISSING, _META),
}  # fmt: skip
# The shape of an answer: kinds, structs by their fields, lists of one thing. Fields beside it are as they come.
_COLUMNS = [{1: thrift.STRING, 2: thrift.STRING, 3: thrift.STRING}]
_SERDE = {2: thrift.STRING, 3: thrift.MAP}
_TABLE = {7: {1: _COLUMNS, 2: thrift.STRING, 3: thrift.STRING, 4: thrift.STRING, 7: _SERDE}, 8: _COLUMNS, 9: thrift.MAP}
_UNKNOWN = "a method that it does not know"
_ADDRESS = re.compile(r"thrift://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?/?")
# The table's files are its rows: no statistics that a query could be answered by.
_SETTINGS = {"DO_NOT_UPDATE_STATS": "true"}


class Said(Exception):
    """The metastore's no: the name of its exception, and its text."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(kind, words)
        self.kind, self.words = kind, words


def addresses(uri: Any) -> list[tuple[str, int]]:
    """Host and port of each address, as `hive.metastore.uris` names them; UsageError for another text."""
    if not isinstance(uri, str) or not (parts := [part.strip() for part in uri.split(",") if part.strip()]):
        parts = [str(uri)]
    found = [_ADDRESS.fullmatch(part) for part in parts]
    if not isinstance(uri, str) or not all(match and 0 < int(match[2] or PORT) < 65536 for match in found):
        raise UsageError(f"uri takes the address of a Hive metastore, as 'thrift://host:{PORT}', and not {quoted(uri, 80)}")
    return [(match[1].strip("[]"), int(match[2] or PORT)) for match in found if match]


class Metastore:
    """A connection to the first address that answers; to be used in a `with` block."""

    def __init__(self, uri: str) -> None:
        self.addresses, self.where = addresses(uri), scrub(uri, 200)
        self._numbers: Iterator[int] = count(1)

    def __enter__(self) -> Self:
        why = list[str]()
        for host, port in self.addresses:
            try:
                self._socket = socket.create_connection((host, port), CONNECT)
            except OSError as e:
                why.append(scrub(str(e), 100))
                continue
            self._socket.settimeout(ANSWER)
            self._stream = self._socket.makefile("rb")
            try:
                self.call("set_ugi", {1: text(_user()), 2: texts(())})
            except BaseException as e:
                self.__exit__()
                if isinstance(e, Said):
                    raise self.told("know who calls", e) from e
                raise
            return self
        raise TransientError(f"no metastore answers at {self.where} ({'; '.join(why)}). The table is as it was: call again.")

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._stream.close()
            self._socket.close()

    def call(self, method: str, arguments: Fields, shape: Any = None) -> Any:
        """The result of a method, in its shape. Raises Said for its no, TransientError without an answer."""
        number = next(self._numbers)
        try:
            self._socket.sendall(thrift.message(method, number, arguments))
            kind, name, sequence, answer = thrift.read(self._take)
        except NotThrift as e:
            raise QuireError(
                f"{self.where} does not answer as a Hive metastore does: {e}. Kerberos, TLS, HTTP and framed transports are not spoken."
            ) from e
        except OSError as e:
            raise TransientError(
                f"the metastore {self.where} has not answered {method} ({scrub(str(e), 100)}). The table is as it was: call again. Where "
                "that goes on, look whether it wants Kerberos or TLS, which are not spoken."
            ) from e
        if (name, sequence) != (method, number):
            raise QuireError(
                f"{self.where} has answered {method} by {scrub(name, 60)}: it is not a Hive metastore, or something is between."
            )
        if kind == thrift.EXCEPTION:
            raise Said(_UNKNOWN if thrift.said(answer, 2) == 1 else "an error of its own", str(thrift.said(answer, 1, "")))
        for at, thrown in enumerate(_THROWS[method], 1):
            if at in answer:
                raise Said(thrown, str(thrift.said(answer[at].of, 1, "")) if answer[at].kind == thrift.STRUCT else "")
        if shape is not None and not (0 in answer and thrift.fits(answer[0], shape)):
            raise QuireError(f"the metastore {self.where} has answered {method} by what is not of its kind: look what it is.")
        return thrift.said(answer, 0)

    def _take(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionResetError("the connection was closed")
        return data

    def told(self, what: str, e: Said) -> QuireError:
        """The error of a no that nobody expects."""
        if e.kind == _UNKNOWN:
            return QuireError(f"the metastore {self.where} is too old, or too new, to {what}: {scrub(e.words, 150)}. Hive 2.3 to 4.0 can.")
        return RefusedError(f"the metastore {self.where} refuses to {what} ({e.kind}): {scrub(e.words, 300)}")

    # ---------------------------------------------------------------------------------------------------------------- what it has
    def has_database(self, name: str) -> bool:
        """Whether there is a database of that name."""
        try:
            self.call("get_database", {1: text(name)})
        except Said as e:
            if e.kind != MISSING:
                raise self.told(f"tell of the database {name}", e) from e
            return False
        return True

    def table(self, database: str, name: str) -> Fields | None:
        """A table as it is there."""
        try:
            try:
                asked = record({1: text(database), 2: text(name)})
                found: Fields = thrift.said(self.call("get_table_req", {1: asked}, {1: _TABLE}), 1, {})
            except Said as e:
                if e.kind != _UNKNOWN:
                    raise
                found = self.call("get_table", {1: text(database), 2: text(name)}, _TABLE)
        except Said as e:
            if e.kind != MISSING:
                raise self.told(f"tell of the table {database}.{name}", e) from e
            return None
        return found

    def create(self, table: Fields, name: str) -> bool:
        """Create a table; False: somebody else was quicker."""
        try:
            self.call("create_table_with_environment_context", {1: record(table), 2: record({1: mapping(_SETTINGS)})})
        except Said as e:
            if e.kind != EXISTS:
                raise self.told(f"create the table {name}", e) from e
            return False
        return True

    def alter(self, database: str, name: str, table: Fields) -> None:
        """Give a table, and its partitions, other columns and settings."""
        settings = record({1: mapping({**_SETTINGS, "CASCADE": "true"})})
        try:
            self.call("alter_table_with_environment_context", {1: text(database), 2: text(name), 3: record(table), 4: settings})
        except Said as e:
            raise self.told(f"change the table {database}.{name}", e) from e

    def partitions(self, database: str, name: str) -> list[str]:
        """The names of a table's partitions."""
        try:
            asked = {1: text(database), 2: text(name), 3: Value(thrift.I16, -1)}
            return list(self.call("get_partition_names", asked, [thrift.STRING]))
        except Said as e:
            raise self.told(f"tell the partitions of {database}.{name}", e) from e

    def add(self, database: str, name: str, partitions: Sequence[Fields]) -> None:
        """Add partitions, but for those that are there."""
        for start in range(0, len(partitions), MANY):
            some = map(record, partitions[start : start + MANY])
            asked = {1: text(database), 2: text(name), 3: listed(some), 4: flag(True), 5: flag(False)}
            try:
                self.call("add_partitions_req", {1: record(asked)})
            except Said as e:
                if e.kind != EXISTS:  # another call adds them just now
                    raise self.told(f"add partitions to {database}.{name}", e) from e

    def drop(self, database: str, name: str, values: Sequence[str]) -> None:
        """Take a partition away, and leave its files."""
        try:
            self.call("drop_partition", {1: text(database), 2: text(name), 3: texts(values), 4: flag(False)})
        except Said as e:
            if e.kind != MISSING:
                raise self.told(f"drop a partition of {database}.{name}", e) from e


def _user() -> str:
    """The name under which Hadoop's programs would work here; the metastore takes it as it is given."""
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return "quire"
