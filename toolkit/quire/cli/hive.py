"""`quire table sync-metastore`: a table in a Hive metastore."""

from __future__ import annotations

from typing import Any

import click

import quire
from quire.cli.show import AS_JSON, TABLE_STORE, show


@click.command("sync-metastore")
@click.argument("url")
@click.argument("metastore")
@click.option("--database", default="default", show_default=True, help="The metastore's database, which has to be there.")
@click.option("--name", help="The table's name there; default: that of the table.")
@click.option("--location", help="The table's URL as Hadoop knows it; default: that of the table, with s3a: for s3:.")
@TABLE_STORE
@AS_JSON
def sync_metastore(url: str, metastore: str, storage_options: Any, as_json: bool, **given: Any) -> None:
    """Register a table in the Hive METASTORE (as thrift://host:9083); call it again after commits."""
    show(quire.Table(url, storage_options=storage_options).sync_metastore(metastore, **given), as_json)
