"""Each decoder is fed damaged input for a minute: no crash, no hang, no memory over the limit, and one line for each error."""

from __future__ import annotations

import pytest

import fuzz


@pytest.mark.nightly
@pytest.mark.parametrize("decoder", fuzz.DECODERS)
def test_damaged_input_of_any_kind_is_one_line(decoder: str) -> None:
    inputs, found = fuzz.run(decoder, 60, 1)
    assert found == []
    assert inputs > 500


def test_what_the_fuzzer_finds_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(content: bytes) -> None:
        raise KeyError("a key")

    monkeypatch.setitem(fuzz.DECODERS, "csv", ([b"x"], wrong))
    monkeypatch.setattr(fuzz.resource, "setrlimit", lambda *_: None)
    assert next(fuzz.fuzz("csv", 5, 1)) == "csv 1: KeyError: 'a key'"
