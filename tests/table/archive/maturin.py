"""Answers pip in place of the build backend that hudi-rs names: pip asks an archive for its name before it keeps it, and nothing is built.

The real backend asks Rust's tools, which a machine that runs tests does not need.
"""

from __future__ import annotations

from email import message_from_bytes
from pathlib import Path


def prepare_metadata_for_build_wheel(directory: str, _settings: object = None) -> str:
    """The hook of PEP 517: what the archive says of itself."""
    said = Path("PKG-INFO").read_bytes()
    head = message_from_bytes(said)
    folder = Path(directory, f"{head['Name']}-{head['Version']}.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_bytes(said)
    return folder.name
