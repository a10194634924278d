"""Objects of the log are read by many threads at once, also the first ones of a process."""

from __future__ import annotations

import ast
import subprocess
import sys
import types
import typing
from pathlib import Path

import msgspec
import pytest

import quire.table.closer  # noqa: F401 - all that a table stores
from quire.commit import checkpoints, entries
from quire.table import emitted, rounds, settings, storage_lock
from quire.table.format import commits, rollbacks
from quire.table.write import write

SOURCES = [p for root in ("toolkit", "widgets") for p in (Path(__file__).parents[2] / root).rglob("*.py")]
# What is imported before costs most of the time, and builds nothing of msgspec's.
FORKING = """
import os, sys, threading
import msgspec, numpy, pyarrow.parquet, pyarrow.compute, xxhash
import quire.storage, quire.formats.parquet, quire.commit.names
data = {
    "Entry": b'{"kind":"commit","job":"0-0123456789abcdef","base":0,"committer":"rename","spec":{"transform":"lines","format":"lines",'
             b'"compression":"none","layout":"flat"},"time":"","dropped":[],"left":[],"parts":null,"closer":"",'
             b'"tasks":[{"task":0,"attempt":"0123456789ab","data_files":[{"name":"a","size":1,'
             b'"records":1,"handle":""}],"coverage":{"uncovers":[["p","v",[[0,1]]]],"left":[["p","w"]]},"stats":{"written":{"a":1}}}],"format":1}',
    "Manifest": b'{"kind":"manifest","job":"j","task":{"task":0,"attempt":"a","data_files":[],"stats":{},"coverage":'
             b'{"uncovers":[["p","v",[[0,1]]]]}},"format":1}',
    "PlanHead": b'{"kind":"plan","job":"j","base":0,"plan":"p","tasks":1,"committer":"rename","spec":{"transform":"lines","format":'
                b'"lines","compression":"none","layout":"flat"},"intent":{},"closer":"","format":1}',
}
dead = 0
for number in range(int(sys.argv[1])):
    if not (pid := os.fork()):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.setswitchinterval(0.00005)
        from quire.commit import entries
        gate, done = threading.Barrier(12), []
        def read(kind):
            gate.wait()
            done.append(entries.encode(entries.decode(data[kind], getattr(entries, kind), "here")))
        threads = [threading.Thread(target=read, args=(kind,)) for kind in [*data] * 4]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os._exit(0 if len(done) == 12 else 1)
    dead += os.waitpid(pid, 0)[1] != 0
print(dead)
"""


@pytest.mark.parametrize("processes", [10, pytest.param(200, marks=pytest.mark.chaos)])
def test_a_process_outlives_threads_that_read_its_first_objects_at_once(processes: int) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING, str(processes)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"], "of so many processes none has died"


def _structs(kind: typing.Any) -> set[str]:
    """The structs that objects of a kind may hold."""
    if isinstance(kind, types.UnionType) or typing.get_args(kind):
        return set().union(*map(_structs, typing.get_args(kind)))
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return set()
    return {kind.__name__}.union(*map(_structs, typing.get_type_hints(kind).values()))


def test_what_msgspec_knows_is_built_when_a_module_is_imported() -> None:
    """At its first use msgspec builds it without a lock, and two threads end the process."""
    assert {checkpoints.Checkpoint, rounds.Round, settings.Settings, write.Written} <= set(entries._decoders)
    built = set().union(
        *map(_structs, [*entries._decoders, commits.CommitMetadata, emitted.Emission, rollbacks.TakenBack, storage_lock.Lock])
    ) | {"_Head", "_Object"}
    defined, elsewhere = set[str](), set[str]()
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and any("Struct" in ast.unparse(base) for base in node.bases):
                defined.add(node.name)
            if isinstance(node, ast.Call) and (called := ast.unparse(node.func)).startswith(
                ("msgspec.json.", "msgspec.conv", "msgspec.msgp")
            ):
                elsewhere.add(f"{file.name}: {called.partition('(')[0]}")
    assert defined == built
    # Those of a schema know of no Struct, and the rest stands at the top of its module.
    allowed = {
        "entries.py": ("Encoder", "Decoder", "format"),
        "commits.py": ("Encoder", "Decoder"),
        "schema.py": ("encode", "decode"),
        "rows.py": ("Decoder",),
        "source.py": ("Decoder",),
        "emitted.py": ("Decoder", "Encoder"),
        "envelope.py": ("Encoder",),
        "rollbacks.py": ("Encoder", "Decoder"),
        "storage_lock.py": ("Encoder", "Decoder"),
        "jsonl.py": ("Decoder", "Encoder"),
        "looking.py": ("Decoder",),
        "documents.py": ("Decoder",),
        "json.py": ("Decoder",),
    }
    assert elsewhere == {f"{file}: msgspec.json.{what}" for file, found in allowed.items() for what in found}
    assert isinstance(commits._decoder, msgspec.json.Decoder)
