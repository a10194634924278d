"""Decoders: they make columns of JSON, XML, Avro and Protobuf, wherever a function of the user's may stand.

    document (a file, a line, a record's value) → `frames` takes a schema registry's frame off → a form (of a schema, or of expressions)
    → rows → the columns of the job

`decoder` checks what a call says, `base` is what all decoders share, `registry` alone knows the registry's client.
"""

from __future__ import annotations

from quire.sources.decoders.base import Decoder
from quire.sources.decoders.made import KINDS, decoder

__all__ = ["KINDS", "Decoder", "decoder"]
