"""The options of `df.write.format("quire")`, checked: each is a text, whose name Spark passes in small letters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from quire.arguments import parse_target
from quire.engine.request import EVOLUTION
from quire.errors import UsageError, about, choose, quoted
from quire.formats import COMPRESSIONS

OPTIONS = (
    "path", "partition_by", "overwrite", "batch", "target_size", "compression", "committer", "keep_versions", "exports", "allow_nonempty",
    "schema_evolution",
)  # fmt: skip
OF_SPARK = ("checkpointLocation", "queryName")  # that a stream's writer is given, too
ROWS, PARTITIONS = "rows", "partitions"  # what leaves: all rows, or those of the partitions that the new rows touch
LONGEST = 200  # characters of a batch's name


@dataclass(frozen=True)
class Asked:
    """A write as the user wants it. `leaves`: "" (rows are added), ROWS or PARTITIONS; `batch`: the name by which it counts once."""

    by: tuple[str, ...]
    leaves: str
    batch: str
    target: int
    compression: str
    committer: str
    keep_versions: str | None
    exports: tuple[str, ...]  # names of formats, as they were written
    allow_nonempty: bool
    adds: bool = False  # the destination's columns grow by those of the frame


def asked(options: Mapping[str, str], columns: tuple[str, ...] | None, *, overwrite: bool, streaming: bool) -> Asked:
    """The options and the mode of a write; `columns`: those of `partition_by`. UsageError for a wrong value."""
    batch = options.get("batch", "")
    if "batch" in options:
        with about("batch"):
            if streaming:
                raise UsageError(
                    "option 'batch' is of df.write: a stream's batches have their numbers, each of which counts once. Leave it out."
                )
            if not 0 < len(batch) <= LONGEST or not batch.isprintable() or batch != batch.strip("/"):
                raise UsageError(
                    f"batch={quoted(batch, 60)} is not a name, in one line, without '/' at its ends. Write for example '2026-11-26'."
                )
    leaves = choose(options.get("overwrite", ROWS), (ROWS, PARTITIONS), "value of overwrite")
    if leaves == PARTITIONS and not overwrite:
        with about("overwrite"):
            raise UsageError("option('overwrite', 'partitions') goes with mode('overwrite'), and this mode only adds rows.")
    if leaves == PARTITIONS and not columns:
        with about("overwrite"):
            raise UsageError("option('overwrite', 'partitions') needs option('partition_by', 'dt'), which says what a partition is.")
    if columns and len(set(columns)) < len(columns):
        with about("partition_by"):
            raise UsageError("partition_by names a column twice. Name each once.")
    return Asked(
        columns or (), leaves if overwrite else "", batch,
        parse_target(options.get("target_size", "256 MiB")),
        choose(options.get("compression", "zstd"), COMPRESSIONS, "compression"),
        options.get("committer", "auto"), options.get("keep_versions"),
        tuple(name.strip() for name in options.get("exports", "").split(",") if name.strip()), _flag(options, "allow_nonempty"),
        choose(options.get("schema_evolution", "refuse"), EVOLUTION, "schema_evolution") == "add",
    )  # fmt: skip


def _flag(options: Mapping[str, str], name: str) -> bool:
    said = options.get(name, "false").strip().lower()
    if not re.fullmatch("true|false", said):
        with about(name):
            raise UsageError(f"{name}={quoted(options[name], 60)} is neither true nor false.")
    return said == "true"
