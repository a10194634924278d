"""What the skew check promises: no false alarm on a fair hash, none missed on a skewed one, and the missing abs() by its name."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import UsageError
from quire.skew import SkewResult, check
from quire.skew.chi_square import survival

VERDICTS = {"even", "skewed", "missing abs()", "looks like a missing abs()", "too few to tell"}


def java_hash(name: str) -> int:
    """String.hashCode: s[0]*31^(n-1) + … + s[n-1] in 32 bits with a sign."""
    value = 0
    for letter in name:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def java_remainder(value: int, parts: int) -> int:
    """Java's %, which has the sign of the dividend."""
    return int(math.fmod(value, parts))


def assigned(names: Iterable[str], parts: int, with_abs: bool) -> list[int]:
    """How many files each of the tasks 0 … parts-1 reads."""
    remainders = Counter(java_remainder(java_hash(name), parts) for name in names)
    if with_abs:
        return [remainders[k] + (remainders[-k] if k else 0) for k in range(parts)]
    return [remainders[k] for k in range(parts)]


def device_names(number: int, seed: int = 1) -> list[str]:
    # letters, not digits alone: with those Java's hash is truly skewed for 64 parts
    noise = np.random.default_rng(seed).integers(0, 2**60, number)
    return [f"{n:015x}-{k:06d}.xml" for k, n in enumerate(noise)]


# --- the missing abs() ---


@pytest.mark.parametrize("parts", [2, 8, 10, 64])
def test_java_hash_without_abs_is_recognised_when_it_is_known_what_was_listed(parts: int) -> None:
    names = device_names(12_000)
    counts = assigned(names, parts, with_abs=False)
    result = check(counts, listed=len(names))
    assert result.verdict == "missing abs()"
    assert result.missing_share == pytest.approx((parts - 1) / (2 * parts), rel=0.1)
    assert "abs()" in result.explanation
    assert "in no part" in result.explanation
    assert result.table()["flag"].tolist().count("doubled") == 1


@pytest.mark.parametrize("parts", [8, 64])
def test_without_a_total_it_only_looks_like_it_and_the_user_is_told_what_to_do(parts: int) -> None:
    result = check(assigned(device_names(12_000), parts, with_abs=False))
    assert result.verdict == "looks like a missing abs()"
    assert result.missing_share is None
    assert "listed=" in result.explanation


@pytest.mark.parametrize("parts", [2, 8, 10, 64])
def test_java_hash_with_abs_is_even(parts: int) -> None:
    names = device_names(12_000)
    result = check(assigned(names, parts, with_abs=True), listed=len(names))
    assert result.verdict == "even"
    assert result.missing_share == 0


def test_what_a_part_should_have_tells_how_many_there_are() -> None:
    names = device_names(8000)
    counts = assigned(names, 8, with_abs=False)
    assert check(counts, expected=1000).verdict == "missing abs()"
    assert check(counts, expected=[1000] * 8).verdict == "missing abs()"


def test_it_is_found_in_many_directories_together_that_have_too_few_files_each() -> None:
    names = {f"site-{d:03d}": device_names(30, seed=d) for d in range(200)}
    counts = {(site, k): n for site, own in names.items() for k, n in enumerate(assigned(own, 8, with_abs=False))}
    groups = {key: key[0] for key in counts}
    result = check(counts, groups, listed=dict.fromkeys(names, 30))
    assert result.verdict == "missing abs()"
    assert check(counts, groups).verdict == "looks like a missing abs()"
    fair = {(site, k): n for site, own in names.items() for k, n in enumerate(assigned(own, 8, with_abs=True))}
    assert check(fair, groups, listed=6000).verdict == "even"


def test_part_0_is_found_by_its_number_whatever_the_order_and_the_name() -> None:
    counts = assigned(device_names(8000), 16, with_abs=False)
    shuffled = Counter({k: counts[k] for k in (5, 3, 9, 0, 1, 15, 2, 14, 4, 13, 6, 12, 7, 11, 8, 10)})
    assert check(shuffled).verdict == "looks like a missing abs()"
    assert check({f"part-{k:05d}.txt": n for k, n in shuffled.items()}).verdict == "looks like a missing abs()"
    assert check(pd.Series(shuffled)).verdict == "looks like a missing abs()"


def test_remainders_counted_with_their_sign_look_like_it() -> None:
    assert check(Counter(java_remainder(java_hash(name), 8) for name in device_names(8000))).verdict == "looks like a missing abs()"


def test_a_doubled_first_part_is_no_missing_abs_when_nothing_is_missing() -> None:
    result = check([2000, *[1000] * 7], listed=9000)
    assert result.verdict == "skewed"
    assert result.missing_share == 0


def test_a_doubled_part_elsewhere_or_uneven_others_are_skew() -> None:
    assert check([1000, 1000, 2000, 1000, 1000]).verdict == "skewed"
    assert check([2000, 300, 1000, 1700, 1000]).verdict == "skewed"
    assert check([4000, *[1000] * 7], listed=16_000).verdict == "skewed"


@given(st.integers(2, 200), st.integers(200, 100_000))
def test_the_exact_shares_of_a_missing_abs_are_always_recognised(parts: int, files: int) -> None:
    counts = [2 * files, *[files] * (parts - 1)]
    assert check(counts, listed=files * 2 * parts).verdict == "missing abs()"
    assert check(counts).verdict == "looks like a missing abs()"
    assert check([2 * n for n in counts], unit="bytes").verdict == "looks like a missing abs()"


# --- even and skewed ---


@pytest.mark.nth(9)
@pytest.mark.parametrize(
    ("files", "parts", "directories", "alarms"),
    [(60, 8, 1, 2), (4000, 8, 1, 0), (20_000, 200, 1, 0), (8000, 8, 10, 0), (400, 8, 20, 2), (20, 8, 20, 2), (9, 4, 50, 2)],
)
def test_a_fair_hash_raises_no_false_alarm(files: int, parts: int, directories: int, alarms: int) -> None:
    """None in 500 plans of many files; with few, where a ratio is large by chance, as rare as p < 0.001 says."""
    rng = np.random.default_rng(20261120)
    groups = np.repeat(np.arange(directories), parts)
    counts = rng.multinomial(files, [1 / parts] * parts, size=(500, directories)).reshape(500, -1)
    verdicts = Counter(check(row, groups).verdict for row in counts)
    assert set(verdicts) <= {"even", "skewed"}
    assert verdicts["skewed"] <= alarms


def test_java_hash_of_names_of_digits_alone_is_truly_skewed_for_64_parts_and_said_to_be() -> None:
    devices = np.random.default_rng(1).integers(0, 5000, 12_000)
    names = [f"dev-{device:08d}-{k:010d}.xml" for k, device in enumerate(devices)]
    assert check(assigned(names, 64, with_abs=True), listed=12_000).verdict == "skewed"
    lost = check(assigned(names, 64, with_abs=False), listed=12_000)
    assert lost.verdict == "skewed"
    assert "without abs()" in lost.explanation
    assert check(assigned(names, 8, with_abs=True), listed=12_000).verdict == "even"


def test_the_p_value_is_as_often_below_a_level_as_the_level_says() -> None:
    rng = np.random.default_rng(7)
    ps = [check(row).p_value or 0.0 for row in rng.multinomial(1000, [1 / 8] * 8, size=1000)]
    for level in (0.05, 0.25, 0.5, 0.75):
        assert np.mean(np.array(ps) < level) == pytest.approx(level, abs=0.05)


def test_directories_of_very_different_size_are_each_compared_with_themselves() -> None:
    rng = np.random.default_rng(3)
    sizes = [100_000, 50, 3000, 1, 0]
    counts = np.concatenate([rng.multinomial(n, [1 / 8] * 8) for n in sizes])
    groups = np.repeat(["a", "b", "c", "d", "e"], 8)
    assert check(counts).verdict == "skewed"
    result = check(counts, groups)
    assert result.verdict == "even"
    assert result.dof == 21  # a, b and c; one file and none say nothing


def test_one_hot_part_is_found_and_named() -> None:
    rng = np.random.default_rng(5)
    counts = {f"dir-{k}": int(n) for k, n in enumerate(rng.multinomial(8000, [1 / 16] * 16))}
    counts["dir-11"] += 700
    result = check(counts)
    assert result.verdict == "skewed"
    assert result.p_value is not None
    assert result.p_value < 0.001
    assert result.heaviest[0][0] == "dir-11"
    assert result.ratio == result.heaviest[0][2] > 1.25
    assert "dir-11" in result.explanation
    assert result.table().set_index("part")["flag"]["dir-11"] == "heavy"


def test_a_small_excess_that_is_no_chance_is_still_even() -> None:
    result = check([110_000, *[100_000] * 7])
    assert result.p_value is not None
    assert result.p_value < 1e-100
    assert result.verdict == "even"


def test_a_large_ratio_that_is_chance_is_even_and_said_to_be() -> None:
    result = check([9, 5, 4, 6, 5, 7, 4, 5])
    assert result.verdict == "even"
    assert result.ratio > 1.25
    assert "chance" in result.explanation


def test_a_skewed_group_among_many_fair_ones_is_mentioned() -> None:
    rng = np.random.default_rng(11)
    counts = rng.multinomial(800, [1 / 8] * 8, size=1500)
    counts[700] = [190, *[87] * 7]
    result = check(counts.ravel(), np.repeat([f"site-{k}" for k in range(1500)], 8))
    assert "site-700" in result.explanation


def test_the_same_excess_in_many_small_groups_is_skew() -> None:
    rng = np.random.default_rng(2)
    counts = rng.multinomial(24, [1 / 8] * 6 + [0.22, 0.03], size=100)
    assert check(counts.ravel(), np.repeat(np.arange(100), 8)).verdict == "skewed"


def test_parts_that_should_differ_are_compared_with_what_they_should_have() -> None:
    rng = np.random.default_rng(13)
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    counts = rng.multinomial(5000, shares)
    assert check(counts).verdict == "skewed"
    assert check(counts, expected=shares * 5000).verdict == "even"
    named = {"a": 0.5, "b": 0.3, "c": 0.15, "d": 0.05}
    assert check(dict(zip("abcd", counts, strict=True)), expected={k: v * 5000 for k, v in reversed(named.items())}).verdict == "even"


def test_bytes_are_judged_by_the_ratio_alone() -> None:
    even = check([256_000_000, 255_000_000, 250_000_000], unit="bytes")
    assert (even.verdict, even.p_value, even.chi_square, even.dof) == ("even", None, None, None)
    assert check([900, 300, 300], unit="bytes").verdict == "skewed"
    # the last task of a balanced plan has what is left: against what a task should have, nothing is heavy
    assert check([256, 256, 40], expected=256, unit="bytes").verdict == "even"


def test_no_part_is_called_heavy_that_has_less_than_its_share() -> None:
    result = check([228, 226, 40], expected=256, unit="bytes")
    assert (result.verdict, round(result.ratio, 2)) == ("even", 0.89)
    assert result.explanation.startswith("None of 3 parts has more than 0.89 of what was expected of it")
    assert "heav" not in result.explanation
    assert "heavy" not in set(result.table()["flag"])


@pytest.mark.parametrize(
    ("counts", "words"), [([], "no parts"), ([0, 0, 0], "no files"), ([500], "one part"), ([3, 1, 2], "at least 5"), ({}, "no parts")]
)
def test_where_nothing_can_be_said_that_is_said(counts: Any, words: str) -> None:
    result = check(counts)
    assert result.verdict == "too few to tell"
    assert result.p_value is None
    assert words in result.explanation
    assert len(result.table()) == len(counts)
    assert isinstance(result._repr_html_(), str)
    json.dumps(result.as_dict(), allow_nan=False)


def test_missing_files_are_told_whatever_the_verdict() -> None:
    result = check([100, 101, 99, 100], listed=450)
    assert result.verdict == "even"
    assert result.missing_share == pytest.approx(50 / 450)
    assert "In no part: 50 of 450 files" in result.explanation
    assert "more files in the parts" in check([100, 101, 99, 100], listed=300).explanation
    assert "7 of 7" in check([0, 0], listed=7).explanation


# --- what is given ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"counts": [1, -1, 3]}, "counts of '1' is -1"),
        ({"counts": [1, math.nan]}, "counts of '1' is nan"),
        ({"counts": [1, math.inf]}, "inf"),
        ({"counts": [1, None]}, "None"),
        ({"counts": [1, True]}, "True"),
        ({"counts": ["1", "2"]}, "'1'"),
        ({"counts": [[1, 2], [3, 4]]}, "counts of '0'"),
        ({"counts": "12"}, "sequence"),
        ({"counts": 12}, "sequence"),
        ({"counts": {1, 2}}, "sequence"),
        ({"counts": pd.DataFrame({"a": [1]})}, "sequence"),
        ({"counts": pd.Series([1, pd.NA])}, "NA"),
        ({"counts": [1, 2], "groups": ["a"]}, "groups has 1 entries and counts 2"),
        ({"counts": {"a": 1, "b": 2}, "groups": {"a": "x"}}, "no entry for the part 'b'"),
        ({"counts": [1, 2], "expected": 0}, "expected is 0"),
        ({"counts": [1, 2], "expected": [1, -2]}, "expected of '1' is -2"),
        ({"counts": [1, 2], "expected": [1, 2, 3]}, "expected has 3"),
        ({"counts": [1, 2], "listed": -1}, "listed is -1"),
        ({"counts": [1, 2], "groups": ["a", "b"], "listed": {"a": 3}}, "listed has no entry for the group 'b'"),
        ({"counts": [1, 2], "unit": "byte"}, "Did you mean 'bytes'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        check(**arguments)
    assert "\n" not in str(caught.value)


def test_lists_dicts_arrays_and_series_give_the_same_answer() -> None:
    counts, groups = [50, 60, 130, 40, 45, 55], ["a", "a", "a", "b", "b", "b"]
    told = check(counts, groups)
    keys = list("uvwxyz")
    named = dict(zip(keys, counts, strict=True))
    frame = pd.DataFrame({"files": counts, "dir": groups}, index=keys)
    shuffled = frame.sample(frac=1, random_state=1)
    for other in (
        check(np.array(counts), np.array(groups)),
        check(iter(counts), groups),
        check(named, dict(zip(keys, groups, strict=True))),
        check(named, groups),
        check(frame["files"], frame["dir"]),
        check(frame["files"], shuffled["dir"]),
        check(frame.reset_index()["files"], frame.reset_index()["dir"]),
    ):
        assert (other.verdict, other.p_value, other.ratio, other.total) == (told.verdict, told.p_value, told.ratio, told.total)


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from("abc")), max_size=40),
    st.none() | st.integers(0, 10**7),
    st.sampled_from(["files", "bytes"]),
)
def test_any_counts_give_a_verdict_that_can_be_shown(parts: list[tuple[int, str]], listed: int | None, unit: str) -> None:
    counts, groups = [count for count, _ in parts], [group for _, group in parts]
    result = check(counts, groups, listed=listed, unit=unit)
    assert result.verdict in VERDICTS
    assert (result.parts, result.total) == (len(counts), sum(counts))
    assert result.p_value is None or 0 <= result.p_value <= 1
    assert result.verdict != "skewed" or result.ratio > 1.25
    assert result.verdict != "skewed" or unit == "bytes" or (result.p_value is not None and result.p_value < 0.001)
    table = result.table()
    assert table["count"].sum() == sum(counts)
    assert np.allclose(table.groupby("group")["expected"].sum(), table.groupby("group")["count"].sum())
    assert "\n" not in repr(result)
    json.dumps(result.as_dict(), allow_nan=False)
    assert pickle.loads(pickle.dumps(result)) == result or math.isnan(result.ratio)


def test_names_are_escaped_where_a_notebook_shows_them() -> None:
    result = check({"<script>alert(1)</script>": 900, "b": 100, "c": 100}, listed=1100)
    assert isinstance(result, SkewResult)
    assert "<script" not in result._repr_html_()
    assert "&lt;script&gt;" in result._repr_html_()


# --- the chi-square distribution ---


@pytest.mark.parametrize(
    ("dof", "critical"),
    [
        (1, {0.95: 0.00393214, 0.5: 0.45493642, 0.05: 3.84145882, 0.01: 6.63489660, 0.001: 10.82756617}),
        (2, {0.95: 0.10258659, 0.5: 1.38629436, 0.05: 5.99146455, 0.01: 9.21034037, 0.001: 13.81551056}),
        (7, {0.95: 2.16734991, 0.5: 6.34581120, 0.05: 14.06714045, 0.01: 18.47530691, 0.001: 24.32188635}),
        (30, {0.95: 18.49266098, 0.5: 29.33603152, 0.05: 43.77297183, 0.01: 50.89218131, 0.001: 59.70306428}),
        (100, {0.95: 77.92946517, 0.5: 99.33412924, 0.05: 124.34211340, 0.01: 135.80672317, 0.001: 149.44925278}),
    ],
)
def test_the_tail_agrees_with_the_tables(dof: int, critical: dict[float, float]) -> None:
    for p, value in critical.items():
        assert survival(value, dof) == pytest.approx(p, rel=1e-5)


@given(st.integers(1, 200), st.floats(0, 2000))
def test_the_tail_of_even_degrees_is_a_sum_of_poisson_terms(half: int, statistic: float) -> None:
    x = statistic / 2
    terms = math.fsum(math.exp(k * math.log(x) - x - math.lgamma(k + 1)) if x else float(k == 0) for k in range(half))
    assert survival(statistic, 2 * half) == pytest.approx(terms, rel=1e-9, abs=1e-290)


@given(st.integers(1, 100_000), st.floats(0, 1e9), st.floats(0, 1e9))
def test_the_tail_is_a_probability_and_falls(dof: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 1 >= survival(low, dof) >= survival(high, dof) - 1e-9 >= -1e-9


def test_the_tail_at_its_ends() -> None:
    assert survival(0, 3) == 1
    assert survival(math.inf, 3) == 0
    assert survival(1e6, 3) == 0
    for statistic, dof in ((-1, 3), (math.nan, 3), (1, 0)):
        with pytest.raises(ValueError, match="no chi-square"):
            survival(statistic, dof)
