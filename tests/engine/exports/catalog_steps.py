"""A catalog of pyiceberg's, of any kind, that is called `prod`, and follows the export of a destination."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from iceberg_readers import seen, table
from pyiceberg.catalog import Catalog, load_catalog
from test_retire import rows

from gathering import gather, write
from quire import Ledger, LocalRunner

if TYPE_CHECKING:
    import pytest

IN_PROD: dict[str, Any] = {"catalog": "prod", "table": "db.events"}
HOW: dict[str, Any] = {"transform": "raw", "format": "parquet", "layout": "directories"}


def prod(monkeypatch: pytest.MonkeyPatch, **properties: str) -> Catalog:
    """The catalog of these properties, as pyiceberg's configuration has it."""
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG.config", {"catalog": {"prod": properties}})
    return load_catalog("prod")


def known(catalog: Catalog) -> list[str]:
    """The rows that its readers find."""
    return sorted(value.decode() for value in catalog.load_table("db.events").scan().to_arrow()["content"].to_pylist())


def exported(tmp_path: Path, **how: Any) -> Path:
    """A destination of two rows that it knows."""
    gather(write(tmp_path / "in", {"k=1/a": b"a", "k=2/b": b"b"}), tmp_path / "out", **HOW)
    Ledger(tmp_path / "out").export("iceberg", **{**IN_PROD, **how})
    return tmp_path / "out"


def kept_in_step(tmp_path: Path, catalog: Catalog) -> None:
    """Its readers find what the ledger has, after each verb, until the export ends."""
    dest = exported(tmp_path)
    assert known(catalog) == ["a", "b"]
    gather(write(tmp_path / "in", {"k=2/c": b"c"}), dest, **HOW)
    assert known(catalog) == ["a", "b", "c"]
    gather(write(tmp_path / "in", {"k=1/a": b"new"}), dest, on_change="reprocess", **HOW)
    gather(write(tmp_path / "in", {"k=x/d": b"d"}), dest, **HOW)  # another type of the column, another spec
    Ledger(dest).compact(spark=LocalRunner())
    there = sorted(value.decode() for value in seen(dest).column("content").to_pylist())
    assert known(catalog) == there == rows(dest) == ["b", "c", "d", "new"]
    snapshots = [each.metadata.snapshots for each in (catalog.load_table("db.events"), table(dest))]
    assert len({frozenset(each.snapshot_id for each in some) for some in snapshots}) == 1
    catalog.drop_table("db.events")
    Ledger(dest).export("iceberg")
    assert known(catalog) == rows(dest)
    Ledger(dest).drop_export("iceberg")
    assert catalog.list_tables("db") == []
    assert Ledger(dest).exports() == {}
