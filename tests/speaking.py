"""A server on loopback that speaks bytes as a test tells it: for what no server of HTTP says."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Talk = Callable[[socket.socket, int], None]  # what happens on a connection, and how many came before it


def head(sock: socket.socket) -> bytes:
    """A request; nothing at the connection's end."""
    found = bytearray()
    while not found.endswith(b"\r\n\r\n"):
        if not (data := sock.recv(65536)):
            return b""
        found += data
    return bytes(found)


@contextmanager
def serving(talk: Talk, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[socket.socket]]]:
    """Its origin, and the connections that came so far."""
    listening, came = socket.create_server(("127.0.0.1", 0), backlog=512), list[socket.socket]()

    def one(sock: socket.socket, number: int) -> None:
        with suppress(OSError):
            if tls:
                sock = came[number] = tls.wrap_socket(sock, server_side=True)
            talk(sock, number)
        with suppress(OSError):
            sock.close()

    def accept() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listening.accept()
                came.append(sock)
                threading.Thread(target=one, args=(sock, len(came) - 1), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{listening.getsockname()[1]}", came
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for sock in came:
            with suppress(OSError):
                sock.close()
        thread.join()
