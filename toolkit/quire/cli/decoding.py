"""Decoders in a shell: the options that describe one, for `quire load`, and with `quire ledger retry` for any destination made with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

import quire
from quire.cli.show import named
from quire.errors import UsageError, about, quoted
from quire.sources.decoders import KINDS, Decoder

F = TypeVar("F", bound=Callable[..., Any])
COLUMN = click.option("--columns", multiple=True, help="A column of JSON or XML documents, 'id=$.order.id: long' (again for more).")
_OPTIONS = (
    click.option("--decode", help=f"{', '.join(KINDS)}: what values hold, instead of a function."),
    COLUMN,
    click.option("--registry", help="With --decode: the address of a schema registry, http(s)://host:8081."),
    click.option("--registry-options", multiple=True, help="For its client, NAME=VALUE (again for more)."),
    click.option("--registry-secrets", multiple=True, help="Likewise NAME=VARIABLE, looked up in the environment."),
    click.option("--message", help="With --decode protobuf: the full name of the message."),
    click.option("--metadata", multiple=True, help="With --decode: a column of the record beside the others, NAME or NAME=COLUMN."),
    click.option("--decode-key", help="With --decode: what keys hold: string, json, avro or protobuf."),
)


def decoding(function: F) -> F:
    """Give a command the options of a decoder."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def words(given: dict[str, Any]) -> dict[str, Any]:
    """A command's options of a decoder, taken out of `given`, as `quire.load` has them."""
    options = named(given.pop("registry_options"), given.pop("registry_secrets"), "basic.auth.user.info=REGISTRY_LOGIN", "registry-{}s")
    with about("metadata"):
        metadata = dict(name.partition("=")[::2] for name in given.pop("metadata"))
    return {
        **{name: given.pop(name) for name in ("decode", "registry", "message", "decode_key")},
        "columns": columns_of(given.pop("columns")), "registry_options": options or None,
        "metadata": {name: called or name for name, called in metadata.items()} or None,
    }  # fmt: skip


def decoder_of(given: dict[str, Any]) -> Decoder | None:
    """The decoder that a command's options describe; None where they describe none."""
    found = words(given) | {"schema": given.pop("schema")}
    kind = found.pop("decode")
    if kind is None:
        if name := next((name for name, value in found.items() if value is not None), None):
            with about(name):
                raise UsageError(f"{name}= describes a decoder, and without --decode it does nothing. Say that too, or leave it out.")
        return None
    return quire.decoder(kind, **found)


def columns_of(given: tuple[str, ...]) -> dict[str, str] | None:
    """`name=PATH:type` → columns by their names."""
    found = dict[str, str]()
    for text in given:
        name, equals, said = text.partition("=")
        with about("columns"):
            if not name.strip() or not equals:
                raise UsageError(f"--columns takes NAME=PATH:TYPE, as 'id=$.order.id: long', and not {quoted(text, 100)}.")
            if name.strip() in found:
                raise UsageError(f"--columns says the column {quoted(name.strip(), 100)} twice. Give each a name of its own.")
        found[name.strip()] = said
    return found or None
