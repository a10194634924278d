"""The text of `.proto` files compiled by protoc (of grpcio-tools), in a process of its own, which a text that it cannot take may end.

The files that are always there (google/protobuf, google/type, confluent) need not be among the imports.
"""

from __future__ import annotations

import functools
import importlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from quire.errors import QuireError, UsageError, about
from quire.packaging import install
from quire.sources.transforms.content import BadContent

SECONDS = 30
MAIN = "schema.proto"
_NAME = re.compile(r"(?!.*(?:^|/)\.{1,2}(?:/|$))[\w.-]+(?:/[\w.-]+)*\.proto")
_BESIDE = (
    "confluent_kafka.schema_registry.confluent.meta_pb2", "confluent_kafka.schema_registry.confluent.types.decimal_pb2",
    *(f"google.type.{name}_pb2" for name in ("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction",
                                             "interval", "latlng", "localized_text", "money", "month", "phone_number", "postal_address",
                                             "quaternion", "timeofday")),
)  # fmt: skip


@functools.lru_cache(maxsize=200)
def compiled(text: str, imports: tuple[tuple[str, str], ...] = ()) -> bytes:
    """A serialised FileDescriptorSet of a file, its last one, and what it imports; BadContent where that is not valid."""
    include = _include()
    with tempfile.TemporaryDirectory(prefix="quire-") as folder:
        for name, content in (*imports, (MAIN, text)):
            if not _NAME.fullmatch(name) or (name == MAIN and content is not text):
                raise BadContent(f"it imports {name[:100]!r}, which is not a file's name")
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8", "replace")
        out = Path(folder, "..compiled")
        beside = Path(folder, "..beside")
        beside.write_bytes(_beside())
        options = [f"-I{folder}", f"-I{include}", f"--descriptor_set_in={beside}", "--include_imports", f"--descriptor_set_out={out}"]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "grpc_tools.protoc", *options, MAIN], capture_output=True, timeout=SECONDS, check=False, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise BadContent(f"protoc did not compile it in {SECONDS} s") from None
        except OSError as e:
            raise QuireError(f"protoc could not be started ({e}): nothing was quarantined. Call again.") from e
        if done.returncode or not out.exists():
            first = next((line for line in done.stderr.decode("utf-8", "replace").splitlines() if MAIN in line), "protoc gives no reason")
            raise BadContent(f"it does not compile: {first.replace(folder, '')[:200]}")
        return out.read_bytes()


def _include() -> Path:
    try:
        import grpc_tools
    except ImportError:
        with about("registry"):
            raise UsageError(
                f"the text of a Protobuf schema needs grpcio-tools, which is not installed: {install('registry')}. Or say schema=, a "
                f"compiled descriptor set, and message=."
            ) from None
    assert grpc_tools.__file__ is not None
    return Path(grpc_tools.__file__).parent / "_proto"


@functools.cache
def _beside() -> bytes:
    """The descriptors of files that a registry takes as known."""
    from google.protobuf import descriptor_pb2

    found = descriptor_pb2.FileDescriptorSet()
    for each in with_imports(_files()):
        each.CopyToProto(found.file.add())  # type: ignore[attr-defined]  # a descriptor
    return bytes(found.SerializeToString())


def _files() -> Iterable[object]:
    for name in _BESIDE:
        try:
            yield importlib.import_module(name).DESCRIPTOR
        except ImportError:
            continue


def with_imports(files: Iterable[object]) -> list[object]:
    """Descriptors of files, each behind what it imports."""
    found = dict[str, object]()

    def add(file: object) -> None:
        if file.name not in found:  # type: ignore[attr-defined]  # a descriptor
            for each in file.dependencies:  # type: ignore[attr-defined]
                add(each)
            found.setdefault(file.name, file)  # type: ignore[attr-defined]

    for each in files:
        add(each)
    return [*found.values()]
