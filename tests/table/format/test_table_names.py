"""Names of a table's objects: each is read back as it was written, and nothing that somebody stored leads out of the table."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import FormatError
from quire.table.format import names
from quire.table.format.names import ACTIONS, BaseFile, Instant, LogFile

GROUP, T = "88163884-fef0-4aab-865d-c72327a8a1d5-0", "20240707001301554"
TO = "20240707001302554"
BASE = f"{GROUP}_0-74-110_{T}.parquet"
LOG = f".{GROUP}_{T}.log.2_1-0-1"
NOW = dt.datetime(2026, 11, 22, 9, 30, 15, 123_999, dt.UTC)
NUMBERS = st.integers(0, 2**31 - 1)
TIMES = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001


def test_files_are_named_as_hudi_names_them() -> None:
    assert names.base_file(BASE) == BaseFile(GROUP, "0-74-110", T)
    assert names.log_file(LOG) == LogFile(GROUP, T, 2, "1-0-1")
    assert (BaseFile(GROUP, "0-74-110", T).name, LogFile(GROUP, T, 2, "1-0-1").name) == (BASE, LOG)
    assert names.base_file(names.BaseFile(names.new_file_id(), "1-2-3", T).name) is not None


@pytest.mark.parametrize(
    "name",
    [
        "", "x.parquet", BASE + "x", BASE[1:-1], BASE.replace("0-74-110", "0-74"), BASE.replace("0-74", "a-74"), f"a/{BASE}", f"../{BASE}",
        BASE.replace("110", "2147483648"), BASE.replace(T, T[1:]), BASE.replace("0-74", "00-74"), BASE + "\n", BASE.replace("7", "٧"),
        f".{BASE}",
        LOG[1:], LOG.replace(".2_", ".02_"), LOG.replace("1-0-1", "1-0"), LOG + ".cdc", f"part-00000-{GROUP}-c000.snappy.parquet",
    ],
)  # fmt: skip
def test_another_file_is_neither(name: str) -> None:
    assert names.base_file(name) is None
    assert names.log_file(name) is None


@given(NUMBERS, st.binary(min_size=6, max_size=6))
@settings(max_examples=50)
def test_an_attempt_is_two_numbers_that_the_jvm_reads(task: int, attempt: bytes) -> None:
    token = names.write_token(task, attempt.hex())
    assert max(map(int, token.split("-"))) < 2**31
    assert names.attempt_of(token) == (task, attempt.hex())
    assert names.base_file(BaseFile(GROUP, token, T).name) == BaseFile(GROUP, token, T)


def test_a_token_of_another_writer_may_be_none_of_an_attempt() -> None:
    assert names.write_token(3, "7fffffffffff") == "3-8388607-16777215"
    assert names.attempt_of("1-16777216-0") is names.attempt_of("1-2") is None
    for task, attempt in ((-1, "0" * 12), (2**31, "0" * 12), (0, "x"), (0, "0" * 13)):
        with pytest.raises((ValueError, FormatError)):
            names.write_token(task, attempt)


def test_every_instant_is_read_back() -> None:
    every = {Instant(T, action, state) for action in ACTIONS for state in ("requested", "inflight", "completed")}  # type: ignore[arg-type]
    for each in every:
        back = names.instant(each.name)
        completed = Instant(T, ACTIONS[each.action]) if each.state == "completed" else each
        assert back == completed
    assert Instant(T, "commit", "inflight").name == f"{T}.inflight"
    assert Instant(T, "compaction").name == f"{T}.commit"
    assert names.instant(f"{T[:14]}.commit") == Instant(T[:14], "commit")
    ended = Instant(T, "replacecommit", ended=TO)
    assert (names.instant(ended.name), ended.name) == (ended, f"{T}_{TO}.replacecommit"), "layout 2 says when it completed"


@pytest.mark.parametrize(
    "name", ["", T, f"{T}.", f"{T}.x", f"{T}.commit.done", f"{T}.commit.inflight", f"{T}.compaction", f".{T}.commit.crc",
             f"{T}_{T}.commit.requested", f"{T}_{T}.inflight", f"{T}_1.commit", f"{T}_.commit", f"{T}_{T}.clustering",
             "hoodie.properties", f"{T}.commit\n", f"a{T}.commit", f"{T}.requested", "archived"]
)  # fmt: skip
def test_another_name_is_not_an_instant(name: str) -> None:
    assert names.instant(name) is None


@given(TIMES, st.lists(TIMES, max_size=5))
@settings(max_examples=60)
def test_a_new_instant_is_later_than_all_that_are_known(now: dt.datetime, others: list[dt.datetime]) -> None:
    known = [names.next_instant((), other) for other in others]
    drawn = names.next_instant(known, now)
    assert len(drawn) == 17
    assert all(drawn > other for other in known)
    assert names.instant_time(drawn) >= now.replace(microsecond=now.microsecond // 1000 * 1000)


def test_instants_are_utc_and_go_on_where_a_clock_was_set_back() -> None:
    assert names.next_instant((), NOW) == "20261122093015123"
    assert names.next_instant((), NOW.astimezone(dt.timezone(dt.timedelta(hours=5)))) == "20261122093015123"
    assert names.next_instant(["20261122093015123"], NOW) == "20261122093015124"
    assert names.next_instant(["20991231235959999", "20261122093015123"], NOW) == "21000101000000000"
    assert names.next_instant(["20991231235959"], NOW) == "21000101000000000"
    assert names.next_instant(["00000000000001"], NOW) == "20261122093015123"  # which Hudi gives to a bootstrap
    assert names.instant_time("20261122093015123") == NOW.replace(microsecond=123_000)
    for known in ("99991231235959999", "99999999999999999", "2026", "x"):
        with pytest.raises(FormatError):
            names.next_instant([known], NOW)


def test_the_file_of_a_stored_commit_is_one_of_its_partition_and_group() -> None:
    assert names.check_path(f"city=sf/{BASE}", "city=sf", GROUP, "it") == BaseFile(GROUP, "0-74-110", T)
    assert names.check_path(LOG, "", GROUP, "it") == LogFile(GROUP, T, 2, "1-0-1")


@pytest.mark.parametrize(
    ("path", "partition", "group"),
    [
        (f"../{BASE}", "..", GROUP), (f"/{BASE}", "", GROUP), (f"a/../{BASE}", "a/..", GROUP), (f".hoodie/{BASE}", ".hoodie", GROUP),
        (f".hoodie/_quire/{BASE}", ".hoodie/_quire", GROUP), (BASE, "a", GROUP), (f"a/{BASE}", "", GROUP), (BASE, "", "x"),
        ("hoodie.properties", "", ""),
        (f"s3://b/{BASE}", "s3://b", GROUP), (f"a\0/{BASE}", "a\0", GROUP), (f"{'a/' * 3000}{BASE}", "a/" * 2999 + "a", GROUP),
        ("", "", ""),
    ],
)  # fmt: skip
def test_a_forged_path_leads_nowhere(path: str, partition: str, group: str) -> None:
    with pytest.raises(FormatError, match="nothing was touched"):
        names.check_path(path, partition, group, "it")
