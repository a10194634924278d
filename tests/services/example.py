"""The store of `examples/hdfs_native`, with the metadata that an installer would write: found by the entry point that its project names."""

from __future__ import annotations

import sys
import tempfile
import tomllib
from pathlib import Path

HOME = Path(__file__).parents[2] / "examples" / "hdfs_native"
_kept = tempfile.TemporaryDirectory(prefix="quire-example-")  # as long as this process


def _install() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    info = Path(_kept.name) / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in named.items()) for group, named in project["entry-points"].items()]
    (info / "entry_points.txt").write_text("\n".join(groups))
    sys.path += [str(HOME), _kept.name]


_install()

import quire_hdfs_native as hdfs_native  # noqa: E402 (it is there only now)

__all__ = ["hdfs_native"]
