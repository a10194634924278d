"""Servers of files that fsspec reaches, each in this process and below one directory: HTTP, FTP and SFTP."""

from __future__ import annotations

import logging
import os
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import paramiko

with warnings.catch_warnings():  # Python 3.11 says so of its own asyncore, which is a package of its own from 3.12 on
    warnings.simplefilter("ignore", DeprecationWarning)
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.servers import ThreadedFTPServer

USER, PASSWORD = "tests", "of-tests-alone"


# ------------------------------------------------------------------------------------------------------------------------- HTTP
class _Pages(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def http(root: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Pages of links, as Python's own server makes them: it knows no ranges."""
    with type("Server", (ThreadingHTTPServer,), {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET})(
        (host, 0), partial(_Pages, directory=str(root))
    ) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


# -------------------------------------------------------------------------------------------------------------------------- FTP
@contextmanager
def ftp(root: Path) -> Iterator[str]:
    """pyftpdlib."""
    logging.getLogger("pyftpdlib").setLevel(logging.CRITICAL)
    authorizer = DummyAuthorizer()
    authorizer.add_user(USER, PASSWORD, str(root), perm="elr")
    handler: Any = type("Handler", (FTPHandler,), {"authorizer": authorizer})
    server = ThreadedFTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=partial(server.serve_forever, timeout=0.05, handle_exit=False))
    thread.start()
    try:
        yield f"ftp://127.0.0.1:{server.address[1]}"
    finally:
        server.close_all()
        thread.join()


# ------------------------------------------------------------------------------------------------------------------------- SFTP
class _Door(paramiko.ServerInterface):
    def check_auth_password(self, username: str, password: str) -> int:
        return paramiko.AUTH_SUCCESSFUL if (username, password) == (USER, PASSWORD) else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED


class _Files(paramiko.SFTPServerInterface):
    root = Path("/")

    def _at(self, path: str) -> str:
        return f"{self.root}{super().canonicalize(path)}"

    def canonicalize(self, path: str) -> str:
        """Without links, as OpenSSH answers."""
        return os.path.realpath(self._at(path)).removeprefix(os.path.realpath(self.root)) or "/"

    def list_folder(self, path: str) -> Any:
        try:
            found = []
            for name in os.listdir(self._at(path)):
                attributes = paramiko.SFTPAttributes.from_stat(os.lstat(os.path.join(self._at(path), name)))
                attributes.filename = name
                found.append(attributes)
        except OSError as e:
            return paramiko.SFTPServer.convert_errno(e.errno or 0)
        return found

    def stat(self, path: str) -> Any:
        try:
            return paramiko.SFTPAttributes.from_stat(os.stat(self._at(path)))
        except OSError as e:
            return paramiko.SFTPServer.convert_errno(e.errno or 0)

    def lstat(self, path: str) -> Any:
        try:
            return paramiko.SFTPAttributes.from_stat(os.lstat(self._at(path)))
        except OSError as e:
            return paramiko.SFTPServer.convert_errno(e.errno or 0)

    def open(self, path: str, flags: int, attr: Any) -> Any:
        handle = paramiko.SFTPHandle(flags)
        try:
            handle.filename, handle.readfile = path, Path(self._at(path)).open("rb")  # noqa: SIM115 - the handle closes it
        except OSError as e:
            return paramiko.SFTPServer.convert_errno(e.errno or 0)
        return handle


@contextmanager
def sftp(root: Path) -> Iterator[str]:
    """paramiko's own server."""
    key, files = paramiko.RSAKey.generate(2048), type("Files", (_Files,), {"root": root})
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    listening = socket.create_server(("127.0.0.1", 0))
    connections = list[paramiko.Transport]()

    def serve() -> None:
        while True:
            try:
                came, _ = listening.accept()
            except OSError:
                return  # closed
            transport = paramiko.Transport(came)
            transport.add_server_key(key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, files)
            connections.append(transport)
            transport.start_server(event=threading.Event(), server=_Door())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"sftp://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
        for transport in connections:
            transport.close()
