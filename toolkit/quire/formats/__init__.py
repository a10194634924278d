"""Data files: how records are laid out in them and found again.

A transform gives records, a format lays them out; `PAIRS` says which go together.
"""

from __future__ import annotations

from quire.errors import UsageError, choose

COMPRESSIONS = ("none", "gzip", "zstd")
FORMATS = ("lines", "raw", "parquet")
TRANSFORMS = ("lines", "raw", "xml", "json", "parquet", "orc", "avro", "csv", "jsonl")
PAIRS = {
    "lines": ("lines",),
    "raw": ("raw", "parquet"),
    "xml": ("lines", "parquet"),
    "json": ("lines", "parquet"),
    "parquet": ("parquet",),
    "orc": ("parquet",),
    "avro": ("parquet",),
    "csv": ("parquet", "lines"),
    "jsonl": ("parquet",),
    "callable": FORMATS,
}
_EXTENSIONS = {"lines": "txt", "raw": "bin"}
_LINES = {"csv": "csv"}  # of some transforms, whose lines have a name of their own
_SUFFIX = {"none": "", "gzip": ".gz", "zstd": ".zst"}


def pair(transform: str, format: str | None) -> str:
    """The format for a transform: the one asked for if it fits, else the transform's first; UsageError names what fits."""
    fitting = PAIRS[transform]
    if format is None:
        return fitting[0]
    if choose(format, FORMATS, "format") not in fitting:
        pairs = "; ".join(f"{t} → {' or '.join(f)}" for t, f in PAIRS.items())
        raise UsageError(f"transform {transform!r} does not go into format {format!r}. What goes together: {pairs}.")
    return format


def compression_for(format: str, compression: str | None) -> str:
    """The compression asked for, or the format's own: none for bytes, zstd in Parquet."""
    return choose(compression, COMPRESSIONS, "compression") if compression else "zstd" if format == "parquet" else "none"


def extension(format: str, compression: str, transform: str = "") -> str:
    """The ending of a data file's name; Spark and others recognise by it what it holds, and the compression."""
    if format == "parquet":
        return "parquet" if compression == "none" else f"{_SUFFIX[compression][1:]}.parquet"
    named = _LINES.get(transform, _EXTENSIONS[format]) if format == "lines" else _EXTENSIONS[format]
    return named + _SUFFIX[compression]
