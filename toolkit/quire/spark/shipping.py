"""Sends this very quire to Spark's executors, so that no task runs with another one than the driver's, or with none.

Installed versions there do not matter: executors come and go, and each may have another one. The archive's name holds a hash of its
content, so that one session can be given several. In local mode the tasks run beside the driver, and nothing is sent.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.resources
import importlib.util
import io
import os
import re
import struct
import sysconfig
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources.abc import Traversable
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire import errors
from quire.errors import QuireError, UsageError, quoted, scrub
from quire.spark import releases

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Task = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

_OWN = re.compile(r"^quire\.errors\.(\w+): (.+)$", re.MULTILINE)
_MISSING = re.compile(r"No module named ['\"]([\w.]+)['\"]")
_lock = threading.Lock()
_shipped: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def install_on(spark: SparkSession) -> None:
    """Send quire to the executors of the session `spark`, where it goes before any other: for functions of your own that import it.

    quire's own calls do that by themselves. It costs 5 MB a session at most and happens once; in local mode nothing is done.
    Raises QuireError if Spark refuses.
    """
    if not hasattr(spark, "addArtifacts") and not hasattr(spark, "_sc"):
        raise UsageError(f"spark= takes a SparkSession, and not {quoted(spark)}. Pass quire.session().")
    if is_local(spark):
        return
    # Files are the context's where there is one, and else, over Spark Connect, the session's.
    keeper = getattr(spark, "_sc", spark)
    with _lock:  # two threads would make two archives, of which one is deleted while Spark reads it
        archive = _archive()
        if _shipped.get(keeper) == archive.name:
            return
        try:
            releases.send(spark, str(archive))
        except Exception as e:
            raise QuireError(f"cannot send quire to the executors of this Spark session: {scrub(str(e))}") from e
        _shipped[keeper] = archive.name


def is_local(spark: SparkSession) -> bool:
    """Whether the tasks run on this machine, in the environment of this process (not so for `local-cluster`)."""
    return hasattr(spark, "_sc") and re.match(r"local(\[|$)", spark.conf.get("spark.master", None) or "") is not None


def portable(spark: SparkSession, work: Task) -> Task:
    """The same task, for executors that have no quire or another one; it is sent to them if need be.

    Its content is packed: Spark Connect's client writes whole requests into its log where somebody has turned that on.
    """
    if is_local(spark):
        return work
    from pyspark import cloudpickle

    install_on(spark)
    archive, packed = _archive().name, zlib.compress(cloudpickle.dumps(work))  # type: ignore[no-untyped-call]  # pyspark's copy has no types

    # Nothing of quire's may be named in here: to unpickle this is what comes before quire can be imported.
    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle
        import sys
        import zlib

        there = sys.modules.get("quire")
        if there is not None and archive not in (there.__file__ or ""):
            # This worker has run somebody's task with the quire that is installed there.
            for name in [name for name in sys.modules if name.partition(".")[0] == "quire"]:
                del sys.modules[name]
        yield from pickle.loads(zlib.decompress(packed))(batches)  # noqa: S301 - our own driver has packed it

    unpacked.__name__ = work.__name__  # as plans show it
    return unpacked


@functools.cache
def _archive() -> Path:
    """The modules of quire in a zip, which lies there as long as this process: executors that join later fetch it, too."""
    data = _packed(importlib.resources.files("quire"))
    path = Path(_folder().name) / f"quire-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    path.write_bytes(data)
    return path


def _packed(package: Traversable) -> bytes:
    """The zip. Beside a module stands its bytecode, which a worker loads in a third of the time; another Python passes over it."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, item in sorted(_modules(package, "quire"), key=itemgetter(0)):
            source = item.read_bytes()
            for at, data in ((name, source), (f"{name}c", _bytecode(item, source))):
                if data is not None:
                    archive.writestr(zipfile.ZipInfo(at, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return held.getvalue()


def _bytecode(item: Traversable, source: bytes) -> bytes | None:
    """The bytecode that this Python has kept of a module, if it is that of its source, so that nobody compares them again (PEP 552)."""
    try:
        changed, kept = os.stat(str(item)).st_mtime, Path(importlib.util.cache_from_source(str(item))).read_bytes()
    except (OSError, NotImplementedError):
        return None
    known = importlib.util.MAGIC_NUMBER + struct.pack("<3L", 0, int(changed) & 0xFFFFFFFF, len(source) & 0xFFFFFFFF)
    return (
        importlib.util.MAGIC_NUMBER + struct.pack("<L", 1) + importlib.util.source_hash(source) + kept[16:] if kept[:16] == known else None
    )


def _modules(folder: Traversable, at: str) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _modules(item, f"{at}/{item.name}")
        elif item.name.endswith(".py"):
            yield f"{at}/{item.name}", item


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="quire-", ignore_cleanup_errors=True)


@contextmanager
def one_line() -> Iterator[None]:
    """Raise here what quire has raised in a task of a frame, as it is: Spark has put its own lines around it."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as e:
        found = _OWN.findall(str(e))
        kind = getattr(errors, found[-1][0], None) if found else None
        if kind is None or not issubclass(kind, QuireError):
            raise
        raise kind(scrub(found[-1][1])) from e


def missing_module(text: str) -> UsageError | None:
    """The advice, if an error of a task says that the executors' Python lacks a module; None if it is another error."""
    found = _MISSING.search(text)
    if found is None:
        return None
    name = found[1].partition(".")[0]
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    installed = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib"))
    if spec is not None and spec.origin and not spec.origin.startswith(installed):
        what = f"Send it there: {releases.sending(spec.origin)}"
    else:
        package = importlib.metadata.packages_distributions().get(name, [name])[0]
        what = f"Install there what is installed here: pip install {package}"
    return UsageError(f"the executors' Python has no module {name!r}, which the tasks need. {what}.")


def at_home(module: str, name: str, *args: Any) -> tuple[Any, ...]:
    """The answer of `__reduce__` for what Spark takes into processes on the driver's machine that have no files of the session."""

    def again(home: str, module: str, name: str, args: tuple[Any, ...]) -> Any:  # of no module, so it is sent whole
        import importlib
        import sys

        if "quire" not in sys.modules:
            sys.path.insert(0, home)
        return getattr(importlib.import_module(module), name)(*args)

    return again, (str(Path(__file__).parents[2]), module, name, args)
