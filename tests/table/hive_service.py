"""A Hive metastore on loopback, with what quire asks of one; a test may stand in the way of each call."""

from __future__ import annotations

import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from quire.table.hive import thrift
from quire.table.hive.thrift import Fields, Value, record, said, text, texts

MISSING, EXISTS = 1, 2  # places of exceptions in answers


class Refuses(Exception):
    """An answer that says no: the field of the exception, and its text; field 0: the method is not known."""

    def __init__(self, field: int, words: str = "no") -> None:
        super().__init__(field, words)
        self.field, self.words = field, words


class Service:
    """Databases of tables, each with its partitions; `before` and `after` are called with each method, and may raise."""

    def __init__(self) -> None:
        self.tables: dict[str, Fields] = {}
        self.partitions: dict[str, dict[tuple[str, ...], Fields]] = {}
        self.calls: list[str] = []
        self.before: Callable[[str], object] = lambda method: None
        self.after: Callable[[str], object] = lambda method: None
        self.uri = ""

    def definition(self, name: str) -> dict[str, Any]:
        """A table, by words."""
        found = self.tables[f"default.{name}"]
        storage: Fields = said(found, 7)
        serde: Fields = said(storage, 7)
        return {
            "columns": {said(each, 1): said(each, 2) for each in said(storage, 1)}, "location": said(storage, 2), "input": said(storage, 3),
            "output": said(storage, 4), "serde": said(serde, 2), "settings": said(serde, 3), "properties": said(found, 9),
            "keys": {said(each, 1): said(each, 2) for each in said(found, 8)}, "type": said(found, 12),
            "partitions": {values: said(said(one, 6), 2) for values, one in self.partitions[f"default.{name}"].items()},
        }  # fmt: skip

    def answer(self, method: str, asked: Fields) -> Any:
        """The result of the method."""
        self.calls.append(method)
        self.before(method)
        try:
            return getattr(self, f"_{method}")(asked)
        finally:
            self.after(method)

    def _set_ugi(self, asked: Fields) -> Value:
        assert said(asked, 1)
        return texts([said(asked, 1)])

    def _get_database(self, asked: Fields) -> Value:
        if said(asked, 1) != "default":
            raise Refuses(1, said(asked, 1))
        return record({1: text("default")})

    def _get_table_req(self, asked: Fields) -> Value:
        one = said(asked, 1)
        return record({1: self._table(said(one, 1), said(one, 2))})

    def _get_table(self, asked: Fields) -> Value:
        return self._table(said(asked, 1), said(asked, 2))

    def _table(self, database: str, name: str) -> Value:
        if f"{database}.{name}" not in self.tables:
            raise Refuses(2, f"{database}.{name}")
        return record(self.tables[f"{database}.{name}"])

    def _create_table_with_environment_context(self, asked: Fields) -> None:
        table = said(asked, 1)
        assert said(said(asked, 2), 1) == {"DO_NOT_UPDATE_STATS": "true"}
        name = f"{said(table, 2)}.{said(table, 1)}"
        if name in self.tables:
            raise Refuses(1, name)
        self.tables[name], self.partitions[name] = table, {}

    def _alter_table_with_environment_context(self, asked: Fields) -> None:
        name, table = f"{said(asked, 1)}.{said(asked, 2)}", said(asked, 3)
        assert said(said(asked, 4), 1) == {"DO_NOT_UPDATE_STATS": "true", "CASCADE": "true"}
        self.tables[name] = table
        for one in self.partitions[name].values():
            one[6] = record({**said(one, 6), 1: said(table, 7)[1]})

    def _get_partition_names(self, asked: Fields) -> Value:
        name = f"{said(asked, 1)}.{said(asked, 2)}"
        assert said(asked, 3) == -1, "all of them"
        keys = [said(each, 1) for each in said(self.tables[name], 8)]
        named = ([f"{key}={quote(value)}" for key, value in zip(keys, one, strict=True)] for one in self.partitions[name])
        return texts("/".join(one) for one in named)

    def _add_partitions_req(self, asked: Fields) -> Value:
        one = said(asked, 1)
        assert said(one, 4) is True, "but for those that are there"
        there = self.partitions[f"{said(one, 1)}.{said(one, 2)}"]
        for each in said(one, 3):
            there.setdefault(tuple(said(each, 1)), each)
        return record({})

    def _drop_partition(self, asked: Fields) -> Value:
        assert said(asked, 4) is False, "its files stay"
        there, values = self.partitions[f"{said(asked, 1)}.{said(asked, 2)}"], tuple(said(asked, 3))
        if values not in there:
            raise Refuses(1, str(values))
        del there[values]
        return thrift.flag(True)


@contextmanager
def service() -> Iterator[Service]:
    """It answers until the block ends; what `before` and `after` raise cuts the connection, unless it is `Refuses`."""
    known, broken = Service(), list[str]()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            def take(size: int) -> bytes:
                data = self.rfile.read(size)
                if len(data) < size:
                    raise EOFError
                return data

            while True:
                try:
                    kind, method, number, asked = thrift.read(take)
                    assert kind == thrift.CALL
                    given = known.answer(method, asked)
                    self.wfile.write(thrift.message(method, number, {} if given is None else {0: given}, thrift.REPLY))
                except Refuses as e:
                    no = {e.field: record({1: text(e.words)})} if e.field else {1: text(e.words), 2: thrift.number(1)}
                    self.wfile.write(thrift.message(method, number, no, thrift.REPLY if e.field else thrift.EXCEPTION))
                except (EOFError, ConnectionError):
                    return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(error := sys.exc_info()[1], ConnectionError):  # else the client has gone before its thread came to run
                broken.append(repr(error))

    with Server(("127.0.0.1", 0), Handler) as server:
        known.uri = f"thrift://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield known
        finally:
            server.shutdown()
            thread.join()
    assert not broken, f"the service was asked for what no metastore knows: {broken}"
