"""ORC files, read in a process apart: Arrow's reader ends its process where some files are damaged (seen in pyarrow 26).

A worker keeps one such process, which ends with it, and starts another one where it has died: that file is quarantined, and the others
go on.

    at first how many bytes, as 8 bytes; then b"+": it is ready. Without it the machine is at fault, and no file
    request  how many bytes, as 8 bytes; then b"s" (the schema) or b"r" (the rows), and the file
    answer   how many bytes, as 8 bytes; then b"+" and an Arrow stream, or b"-" and the error
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from typing import IO, Any

import pyarrow as pa

from quire.errors import QuireError
from quire.sources.transforms.content import check_size

SCHEMA, ROWS = b"s", b"r"
_LOCK = threading.Lock()
_CHILDREN = dict[int, "subprocess.Popen[bytes]"]()  # by the process that has started it: a fork has none of its own yet


def ask(what: bytes, content: bytes) -> pa.Table:
    """The rows of an ORC file, or a table of its columns without rows; ValueError where it is damaged."""
    with _LOCK:
        answer = _answer(what + content) or _answer(what + content)  # another one, if the first has died of something else
    if not answer:
        raise ValueError("its reader has died of it: the file is damaged")
    if answer[:1] == b"-":
        raise ValueError(answer[1:].decode())
    return pa.ipc.open_stream(pa.BufferReader(answer[1:])).read_all()


def _answer(request: bytes) -> bytes:
    """The answer to a request; nothing, where the process has died."""
    answer = b""
    try:
        asked, answers = _pipes()
        _send(asked, request)
        answer = _receive(answers)
    except BrokenPipeError:
        pass
    finally:
        if not answer:  # also after an interrupt: what comes then is not the answer to the next request
            _end()
    return answer


def _pipes() -> tuple[IO[bytes], IO[bytes]]:
    child = _CHILDREN.get(os.getpid())
    if child is None:
        command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # In a session of its own: an interrupt from the keyboard is for its parent, which ends it.
        try:
            child = _CHILDREN[os.getpid()] = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )  # fmt: skip
            began = _receive(child.stdout)  # type: ignore[arg-type]  # it was asked for
        except OSError as e:
            raise QuireError(f"the process that reads ORC files could not be started ({e}): nothing was quarantined. Call again.") from e
        if not began:
            _end()
            raise QuireError(
                f"the process that reads ORC files ended before it read any ({sys.executable} must find quire and pyarrow): nothing was "
                f"quarantined. Look at that Python, and call again."
            )
    assert child.stdin is not None
    assert child.stdout is not None
    return child.stdin, child.stdout


@atexit.register
def _end() -> None:
    if (child := _CHILDREN.pop(os.getpid(), None)) is not None:
        child.kill()
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]  # both were asked for
        child.wait()


def serve() -> None:
    """Answer until the other side has gone."""
    from pyarrow import orc

    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    _send(answers, b"+")
    while request := _receive(asked):
        try:
            file: Any = orc.ORCFile(pa.BufferReader(request[1:]))
            check_size(0, file.nrows, len(file.schema))
            table = file.read() if request[:1] == ROWS else file.schema.empty_table()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            answer = b"+" + sink.getvalue().to_pybytes()
        except Exception as e:  # all of them are told
            answer = b"-" + (str(e).strip() or type(e).__name__).encode()
        _send(answers, answer)


def _send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little"))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    """The next request or answer; nothing, where the other side has gone."""
    head = pipe.read(8)
    size = int.from_bytes(head, "little")
    data = pipe.read(size) if len(head) == 8 else b""
    return data if len(data) == size else b""
