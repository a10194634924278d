"""Several accounts in one call: each has its tasks, its limit, its part of the progress line; each file is gathered once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import quire
from checker import check
from gathering import documents, gather, refused, write
from quire.engine.job import _groups
from quire.planning.listing import Cut, TaskRun
from quire.planning.pack import PlannedTask, pack
from quire.progress import Part, ProgressEvent
from quire.sources.files import Root
from quire.storage import Store, account, bare

MiB = 1 << 20


def fill(name: str, files: Mapping[str, bytes]) -> str:
    """A source in memory, which is an account of its own."""
    for path, content in files.items():
        bare(f"memory://{name}").put(path, content)
    return f"memory://{name}"


def lines(store: Store) -> list[str]:
    """What lies in a destination."""
    return sorted(line for e in store.walk() if not e.name.startswith("_quire/") for line in store.get(e.name).decode().splitlines())


# ------------------------------------------------------------------------------------------------------------------- each once
@pytest.mark.nth(6)
@pytest.mark.parametrize("planner", ["balanced", "hash", "directory"])
@pytest.mark.parametrize("layout", ["flat", "directories"])
def test_each_file_of_every_account_is_gathered_once(tmp_path: Path, planner: str, layout: str) -> None:
    """Also where two accounts have directories and files of the same names."""
    files = documents(60)
    disk = write(tmp_path / "in", files)
    others = [fill(f"{planner}-{layout}-{i}", files) for i in range(3)]
    out = f"memory://{planner}-{layout}-out"
    source = [(str(disk), {"max_concurrency": 3}), *((url, {}) for url in others)]
    how: dict[str, Any] = {"planner": planner, **({"parts": 3} if planner == "hash" else {})}
    for run in (1, 2):
        report = gather(source, out, layout=layout, target_size="500 B", **how)
        assert report.files == (240 if run == 1 else 0)
        assert lines(bare(out)) == sorted(4 * [line for content in files.values() for line in content.decode().splitlines()])
    gather([str(disk)], tmp_path / "out", layout=layout, target_size="500 B", **how)
    check(disk, tmp_path / "out")


def test_one_place_with_two_sets_of_options_is_refused_and_the_way_out_is_said(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(3))
    with refused(quire.UsageError, 2, "two sets of options", "let the URLs name them"):
        gather([(str(source), {"a": 1}), (str(source), {"a": 2})], tmp_path / "out")


# ------------------------------------------------------------------------------------------------------------------------ names
@pytest.mark.parametrize(
    ("url", "options", "name"),
    [
        ("file:///data/in", None, "local disk"),
        ("memory://a/b/c", None, "a"),
        ("abfs://raw@logs1.dfs.core.windows.net/in", {"account_key": "a2V5"}, "logs1"),
        ("abfs://other@logs1.dfs.core.windows.net", {"sas_token": "sig=hunter2"}, "logs1"),
        ("abfs://raw/in", {"connection_string": "AccountName=logs2;AccountKey=a2V5"}, "logs2"),
        ("s3://lake/in", {"key": "AKIA", "secret": "hunter2"}, "lake"),
        ("s3://lake/in", {"key": "AKIA", "secret": "hunter2", "endpoint_url": "https://u:hunter2@s3.example.org"}, "lake@s3.example.org"),
        ("webhdfs://namenode:9870/in", None, "namenode:9870"),
    ],
)  # fmt: skip
def test_an_account_has_the_name_that_its_user_knows(url: str, options: dict[str, Any] | None, name: str) -> None:
    assert account(url, options) == Root(url, ("",), options).account == name


# ------------------------------------------------------------------------------------------------------------------- the limit
STORES = [
    ("abfs://raw@logs1.dfs.core.windows.net", {"account_key": "a2V5"}),
    ("s3://lake", {"anon": True}),
    ("webhdfs://namenode:9870/in", {}),
]


@pytest.mark.parametrize(("url", "options"), STORES)
@pytest.mark.parametrize("wrong", [0, -1, 4097, True, 1.5, "many", [8]])
def test_a_wrong_limit_is_one_line(url: str, options: dict[str, Any], wrong: object) -> None:
    with refused(quire.UsageError, 2, "max_concurrency", "whole number from 1 to 4,096"):
        bare(url, {**options, "max_concurrency": wrong})


@pytest.mark.parametrize("name", ["key", "secret", "token", "profile"])
def test_an_identity_of_s3_that_is_not_a_text_is_one_line(name: str) -> None:
    with refused(quire.UsageError, 2, f"the option {name} is a text, and not of the type bytes") as caught:
        bare("s3://lake", {"key": "a", "secret": "b", name: b"hush"})
    assert "hush" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------------------- the tasks
def runs(root: int, count: int, size: int = MiB, group: str = "", part: int = 0) -> list[TaskRun]:
    return [TaskRun(group, part, f"object{root}", root, i, 100, size) for i in range(count)]


def test_a_task_holds_one_account_unless_there_is_little_of_it() -> None:
    cut = Cut("balanced", "flat", 1, "xxh64", 256 * MiB, True)
    names = ["logs1", "logs2", "few", "fewer"]
    tasks = pack([*runs(0, 500), *runs(1, 300), *runs(2, 3), *runs(3, 2)], cut, 1.0, names)
    held = [{names[run.root] for run in task.runs} for task in tasks]
    assert held == [{"logs1"}, {"logs1"}, {"logs1"}, {"logs2"}, {"logs2"}, {"few", "fewer"}]
    assert sum(task.files for task in tasks) == 805 * 100
    assert len(pack([*runs(0, 3), *runs(1, 3)], cut, 1.0, names)) == 1, "a small job is not cut"
    one = pack([*runs(0, 500), *runs(1, 300)], cut, 1.0, ["logs1", "logs1"])
    assert [len(task.runs) for task in one] == [len(task.runs) for task in pack([*runs(0, 500), *runs(1, 300)], cut, 1.0)]


def test_tasks_that_must_hold_several_accounts_begin_with_different_ones() -> None:
    cut = Cut("hash", "flat", 4, "xxh64", 256 * MiB, True)
    found = pack([run for part in range(4) for root in range(2) for run in runs(root, 2, part=part)], cut, 1.0, ["logs1", "logs2"])
    assert [[run.root for run in task.runs] for task in found] == [[0, 0, 1, 1], [1, 1, 0, 0]] * 2


def test_the_tasks_of_all_accounts_begin_side_by_side() -> None:
    tasks = [PlannedTask("", 0, runs(root, 1, 64 * MiB)) for root in (0, 1) for _ in range(10 if root == 0 else 5)]
    accounts = [("logs1",) if task.runs[0].root == 0 else ("logs2",) for task in tasks]
    groups = _groups(tasks, 2, accounts)
    order = [accounts[group[0]][0] for group in groups]
    assert sorted(i for group in groups for i in group) == list(range(15))
    for begun in range(3, 16, 3):
        assert order[:begun].count("logs2") == begun // 3, order
    assert _groups(tasks, 2, [("logs1",)] * 15) == [[i] for i in range(15)], "one account: in the plan's order"


def test_small_tasks_of_two_accounts_share_no_task_of_the_engine() -> None:
    tasks = [PlannedTask("", 0, runs(root, 1, 1000)) for root in (0, 1) for _ in range(50)]
    accounts = [(f"logs{task.runs[0].root}",) for task in tasks]
    groups = _groups(tasks, 2, accounts)
    assert all(len({accounts[i] for i in group}) == 1 for group in groups)
    assert all(a < b for group in groups for a, b in pairwise(group))
    assert len(groups) < 20


# ------------------------------------------------------------------------------------------------------------ the progress line
def test_the_progress_line_has_a_part_for_each_account() -> None:
    sources = [fill("parts-1", documents(60)), fill("parts-2", documents(30))]
    told = list[ProgressEvent]()
    quire.consolidate(
        [(url, {}) for url in sources], "memory://parts-out", spark=quire.LocalRunner(), progress=told.append, planner="hash", parts=4
    )
    steps = [step for step in told if step.phase == "gathering"]
    totals = [sum(map(len, documents(n).values())) for n in (60, 30)]
    assert [(part.name, part.done, part.total) for part in steps[-1].parts] == [
        ("parts-1", totals[0], totals[0]),
        ("parts-2", totals[1], totals[1]),
    ]
    moving = [step.parts for step in steps if step.parts]
    assert len({tuple(part.done for part in parts) for parts in moving}) > 2
    for before, now in pairwise(moving):
        assert all(a.done <= b.done <= b.total for a, b in zip(before, now, strict=True))
    assert all(not step.parts for step in told if step.phase != "gathering")


def test_one_account_has_no_parts(tmp_path: Path) -> None:
    told = list[ProgressEvent]()
    sources = [write(tmp_path / name, documents(9)) for name in ("a", "b")]
    quire.consolidate([str(s) for s in sources], tmp_path / "out", spark=quire.LocalRunner(), progress=told.append)
    assert not [step for step in told if step.parts]


def test_a_line_names_some_accounts_and_sums_up_the_others() -> None:
    two = ProgressEvent("gathering", parts=(Part("logs1", 45, 100), Part("logs2", 0, 0)))
    assert two.accounts == "logs1 45 %, logs2 100 %"
    many = ProgressEvent("gathering", parts=tuple(Part(f"a-very-long-account-name-{i}\n", i, 10) for i in range(9)))
    assert many.accounts.endswith("a-very-long-account-name 40 %, 4 others 65 %")
    assert many.accounts.isprintable()
    assert ProgressEvent("gathering").accounts == ""
