"""What a user may write for a size, and what is shown for one."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.arguments import format_size, parse_size, parse_target
from quire.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5KB", 5000),
        ("5 KiB", 5120),
        ("256 MiB", 256 * 1024**2),
        ("1.5GB", 1_500_000_000),
        ("256m", 256 * 1024**2),
        ("2G", 2 * 1024**3),
        ("0.3 kb", 300),
        ("1.0001 KiB", 1024),
        (" 400_000 ", 400_000),
        ("7", 7),
        ("7 B", 7),
        ("7 bytes", 7),
        ("1tib", 1024**4),
        ("0.1 PB", 10**14),
        (5000, 5000),
        (5000.0, 5000),
        (np.int64(5000), 5000),
    ],
)
def test_a_size_means_what_is_written(text: str | int, size: int) -> None:
    assert parse_size(text) == size
    assert type(parse_size(text)) is int


@pytest.mark.parametrize(
    "wrong",
    [
        *("12 potatoes", "12kg", "", "  ", "KB", "0", "0 KB", "-5KB", "nan", "inf", "1e3", "0.4 B", "5,000", "5 K B", "1.", ".5KB"),
        *("٥KB", "5\nKB", "9" * 25, "1__0", "_1", b"5KB", None, [5], True, False, np.bool_(True)),
        *(0, -1, 1.5, 2**63, 1e300, math.nan, math.inf, -math.inf),
    ],
)
def test_anything_else_is_refused_in_one_line_that_shows_how_to_write_it(wrong: object) -> None:
    with pytest.raises(UsageError, match="target_size") as caught:
        parse_size(wrong, what="target_size")  # type: ignore[arg-type]
    assert "256 MiB" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (5000, "4.9 KiB"), (256 * 1024**2, "256 MiB"), (1024**2 - 1, "1 MiB"),
     (-5000, "-4.9 KiB"), (1_500_000_000, "1.4 GiB"), (3 * 1024**5, "3 PiB"), (5000 * 1024**5, "5000 PiB")],
)  # fmt: skip
def test_a_size_is_shown_in_the_unit_that_fits(size: int, shown: str) -> None:
    assert format_size(size) == shown


@given(st.integers(1, 2**62))
def test_what_is_shown_can_be_written_again_and_is_near(size: int) -> None:
    assert abs(parse_size(format_size(size)) - size) <= max(0.5, size * 0.051)


@given(st.text(max_size=12))
def test_no_text_does_anything_but_give_a_size_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert 1 <= parse_size(text) < 2**63


@pytest.mark.parametrize("what", ["target_size", "split_size", "max_bytes", "max_file_size"])
@pytest.mark.parametrize("bare", [1, 200, 1024, "200", " 65_535 ", 200.0, np.int64(200), "1.5"])
def test_a_small_number_alone_is_refused_with_the_unit_that_was_meant(bare: str | int, what: str) -> None:
    size = parse_size(bare)
    with pytest.raises(UsageError, match=what) as caught:
        parse_target(bare, what)
    assert f"'{size} MiB'" in str(caught.value)
    assert f"'{size} B'" in str(caught.value)


@given(st.integers(1, 2**40))
def test_with_a_unit_any_size_is_taken_and_alone_a_large_one(size: int) -> None:
    assert parse_target(f"{size} B") == parse_target(f"{size}bytes") == size
    assert parse_target(65_536 + size) == parse_target(str(65_536 + size)) == 65_536 + size
