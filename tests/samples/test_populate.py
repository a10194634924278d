"""What `populate` promises: the tree that was asked for, the same each time, and nothing of the user's lost."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from quire.errors import StorageError, UsageError
from quire.samples import devices
from quire.samples.devices import DIRT, SHAPES, Stock
from quire.samples.populate import _Tree, populate
from quire.storage import connect

populating: Any = sys.modules["quire.samples.populate"]  # whose name the function has, too

LIBRARY = str(Path(devices.__file__).parents[2])


def tree_of(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in root.rglob("*") if path.is_file()}


def tree_names(files: int) -> list[str]:
    return [name for name, _ in populating._documents(_Tree("", files, 5000, 20, "even", 0, 7), 0, files)]


def per_directory(root: Path) -> list[int]:
    return [sum(1 for path in folder.iterdir() if path.is_file()) for folder in sorted(root.iterdir())]


def parses(content: bytes) -> bool:
    try:
        etree.fromstring(content)
    except etree.XMLSyntaxError:
        return False
    return True


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """9,000 files by two processes."""
    root = tmp_path_factory.mktemp("big") / "new" / "tree"
    populate(root, files=9000, size=1600, dirs=7, dirty=0.02, processes=2, progress=False)
    return root


def test_the_report_says_what_is_there(tmp_path: Path) -> None:
    report = populate(tmp_path / "t", files=1000, dirs=7, dirty=0.1, progress=False)
    found = [path for path in (tmp_path / "t").rglob("*") if path.is_file()]
    assert report.files == len(found) == 1000
    assert report.bytes == sum(path.stat().st_size for path in found)
    assert report.dirs == len(list((tmp_path / "t").iterdir())) == 7
    assert set(report.dirty) == set(DIRT)
    assert sum(report.dirty.values()) == 100
    assert report.directory == str(tmp_path / "t")
    assert report.files_per_second == pytest.approx(report.files / report.seconds)
    assert "1,000 files" in repr(report)


@pytest.mark.services
def test_the_number_of_processes_changes_nothing(tmp_path: Path, big: Path) -> None:
    for processes in (1, 3):
        again = tmp_path / str(processes)
        if processes == 3:
            populate(again, files=12_500, size=300, dirs=5, shape="skewed", processes=3, progress=False)
            populate(tmp_path / "one", files=12_500, size=300, dirs=5, shape="skewed", processes=1, progress=False)
            assert tree_of(again) == tree_of(tmp_path / "one")
        else:
            populate(again, files=9000, size=1600, dirs=7, dirty=0.02, processes=1, progress=False)
            assert tree_of(again) == tree_of(big)


def test_the_same_arguments_give_the_same_bytes_in_every_release(tmp_path: Path) -> None:
    populate(tmp_path / "t", files=500, dirs=3, dirty=0.1, progress=False)
    told = hashlib.sha256(repr(sorted(tree_of(tmp_path / "t").items())).encode()).hexdigest()
    assert told[:16] == "74bd0b2571805c29"


def test_another_seed_gives_other_files(tmp_path: Path) -> None:
    for seed in (1, 2):
        populate(tmp_path / str(seed), files=50, seed=seed, progress=False)
    assert not set(tree_of(tmp_path / "1").values()) & set(tree_of(tmp_path / "2").values())


def test_no_two_files_that_hold_anything_are_the_same(big: Path) -> None:
    contents = Counter(path.read_bytes() for path in big.rglob("*.xml"))
    del contents[b""]
    assert max(contents.values()) == 1


def test_as_many_files_are_damaged_as_asked_for_and_a_parser_takes_all_others(big: Path) -> None:
    contents = [path.read_bytes() for path in big.rglob("*.xml")]
    assert sum(not parses(content) for content in contents) == 180
    assert sum(not content for content in contents) == 36


@pytest.mark.parametrize("size", [256, 1000, 5000, 100_001])
def test_files_have_the_size_asked_for_on_average_and_20_per_cent_around_it(size: int) -> None:
    stock = Stock(size, seed=1)
    sizes = [len(template.body) for template in stock.templates]
    assert sum(sizes) / len(sizes) == pytest.approx(size, rel=0.002)
    assert min(sizes) >= 0.799 * size
    assert max(sizes) <= 1.201 * size


@pytest.mark.parametrize("size", [256, 5000])
def test_documents_parse_in_the_encoding_they_declare_and_say_who_sent_them_and_when(size: int) -> None:
    stock = Stock(size, seed=7)
    seen = set()
    for template in stock.templates:
        document = bytes(template.fill(42, 1234, "2026-11-20T13:45:07.123Z", 21_375))
        root = etree.fromstring(document)
        assert (root.get("device"), root.get("sequence"), root.get("sent")) == ("00000042", "0000001234", "2026-11-20T13:45:07.123Z")
        assert root.getroottree().docinfo.encoding == template.encoding
        assert b"@" not in document
        if size > 1000:
            assert "21.375" in "".join(str(text) for text in root.itertext())
            assert any(ord(letter) > 127 for letter in "".join(str(text) for text in root.itertext()))
        seen.add(template.shape)
    assert seen == set(SHAPES) if size > 1500 else seen == set(SHAPES) - {"telemetry in UTF-16"}


@pytest.mark.parametrize("dirt", DIRT)
@pytest.mark.parametrize("size", [256, 5000])
def test_no_parser_takes_a_damaged_file(dirt: str, size: int) -> None:
    stock = Stock(size, seed=7)
    for pick in range(0, 2**26, 2**20 + 12_345):
        assert not parses(stock.damaged(dirt, pick, 1, 2, "2026-11-20T13:45:07.123Z"))


def test_even_gives_each_directory_the_same_number(big: Path) -> None:
    counts = per_directory(big)
    assert sum(counts) == 9000
    assert max(counts) - min(counts) <= 1


def test_skewed_gives_the_first_directory_about_half(tmp_path: Path) -> None:
    populate(tmp_path / "t", files=2000, size=300, dirs=20, shape="skewed", progress=False)
    counts = per_directory(tmp_path / "t")
    assert 0.45 < counts[0] / 2000 < 0.55
    assert counts == sorted(counts, reverse=True)


def test_deep_makes_a_directory_for_each_day(tmp_path: Path) -> None:
    populate(tmp_path / "t", files=200, size=300, dirs=20, shape="deep", progress=False)
    files = [path for path in (tmp_path / "t").rglob("*.xml") if path.stat().st_size]
    assert {str(path.parent.relative_to(tmp_path / "t")) for path in files} >= {"year=2025/month=12/day=31", "year=2026/month=01/day=08"}
    for path in files:
        if parses(content := path.read_bytes()):
            year, month, day = (part.split("=")[1] for part in path.parts[-4:-1])
            assert str(etree.fromstring(content).get("sent")).startswith(f"{year}-{month}-{day}T")


def test_flat_puts_all_files_into_the_one_directory(tmp_path: Path) -> None:
    report = populate(tmp_path, files=30, size=300, dirs=20, shape="flat", progress=False)
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) == 30
    assert report.dirs == 1


def test_more_directories_than_files_are_made_all_the_same(tmp_path: Path) -> None:
    report = populate(tmp_path / "t", files=3, dirs=8, progress=False)
    assert (report.files, report.dirs, sum(per_directory(tmp_path / "t"))) == (3, 8, 3)
    assert len(per_directory(tmp_path / "t")) == 8
    assert populate(tmp_path / "none", files=0, dirs=2, progress=False).files == 0


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 10**6), st.integers(0, 3000))
def test_the_damaged_files_are_the_same_whoever_writes_them(files: int, dirt: int, seed: int, cut: int) -> None:
    tree = _Tree("/x", files, 5000, 3, "even", min(dirt, files), seed)
    cut = min(cut, files)
    whole = tree.dirty(0, files)
    assert len(whole) == tree.dirt
    assert tree.dirty(0, cut) | tree.dirty(cut, files) == whole


def test_what_is_there_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"not empty.*thesis\.tex.*never deletes"):
        populate(tmp_path, files=10, progress=False)
    assert list(tmp_path.iterdir()) == [tmp_path / "thesis.tex"]
    with pytest.raises(UsageError, match="not a directory"):
        populate(tmp_path / "thesis.tex", files=10, progress=False)
    with pytest.raises(UsageError, match="not a directory"):
        populate(tmp_path / "thesis.tex" / "below", files=10, progress=False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": "12 potatoes"}, "size is '12 potatoes'.*5KB"),
        ({"size": 255}, "256 B"),
        ({"size": "17 MiB"}, "16 MiB"),
        ({"size": -5}, "size"),
        ({"files": -1}, "files is -1"),
        ({"files": 1.5}, r"files is 1\.5"),
        ({"files": True}, "files"),
        ({"files": "10"}, "files"),
        ({"dirs": 0}, "dirs is 0"),
        ({"dirs": -3}, "dirs"),
        ({"dirty": 1.01}, r"dirty is 1\.01.*0 to 1"),
        ({"dirty": -0.1}, "dirty"),
        ({"dirty": math.nan}, "dirty"),
        ({"dirty": "0.1"}, "dirty"),
        ({"dirty": None}, "dirty"),
        ({"seed": -1}, "seed"),
        ({"processes": 0}, "processes"),
        ({"shape": "evn"}, "Did you mean 'even'"),
        ({"directory": "gss://bucket/x"}, "gss"),
        ({"directory": "s3://"}, "s3"),
        ({"directory": "file://elsewhere/x"}, "another machine"),
        ({"directory": ""}, "local directory"),
        ({"directory": b"x"}, "local directory"),
        ({"files": 10**9, "size": "16 MiB"}, "is free"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path: Path, wrong: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"directory": tmp_path / "t", "files": 10, "progress": False, **wrong}
    with pytest.raises(UsageError, match=message) as caught:
        populate(**arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_file_url_is_a_local_directory_too(tmp_path: Path) -> None:
    report = populate(f"file://{tmp_path}/a%20b", files=3, progress=False)
    assert report.directory == str(tmp_path / "a b")
    assert len(list((tmp_path / "a b").rglob("*.xml"))) == 3


def test_a_place_in_a_store_gets_the_same_files(tmp_path: Path) -> None:
    populate(tmp_path / "here", files=300, dirs=3, processes=1, progress=False)
    url = f"memory://{tmp_path.name}/in"
    report = populate(url, files=300, dirs=3, progress=False)
    assert (report.directory, report.files) == (url, 300)
    store = connect(url)
    assert {e.name: hashlib.sha256(store.get(e.name)).hexdigest() for e in store.walk()} == tree_of(tmp_path / "here")
    assert report.bytes == sum(e.size for e in store.walk())
    with pytest.raises(UsageError, match=r"is not empty, it holds 'site-00'.*never deletes"):
        populate(url, files=10, progress=False)


def test_what_comes_into_a_store_meanwhile_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory://{tmp_path.name}/in"
    name = next(iter(tree_names(files=20)))
    monkeypatch.setattr(populating, "_empty", lambda *_: connect(url))
    connect(url).put(name, b"theirs")
    with pytest.raises(StorageError, match="is there by now"):
        populate(url, files=20, progress=False)
    assert connect(url).get(name) == b"theirs"


def test_a_file_that_a_lost_answer_has_put_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory://{tmp_path.name}/in"
    monkeypatch.setattr(populating, "_empty", lambda *_: connect(url))
    name, content = next(populating._documents(_Tree("", 20, 5000, 20, "even", 0, 7), 0, 20))
    connect(url).put(name, bytes(content))
    assert populate(url, files=20, dirty=0, progress=False).files == 20
    assert len(list(connect(url).walk())) == 20


def test_a_script_without_a_main_guard_and_one_on_the_command_line_work_and_no_bar_is_in_a_log(tmp_path: Path) -> None:
    # names of the standard library in the working directory must not be picked up by the processes that write
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    code = f"import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.insert(0, {LIBRARY!r})\n"
    code += "from quire.samples.populate import populate\n"
    code += "print(populate(sys.argv[1], files=8200, size=300, processes=2).files)\n"
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "run.py").write_text(code)
    for number, command in enumerate((["-c", code], ["script/run.py"])):
        done = subprocess.run(
            [sys.executable, "-W", "error", *command, str(tmp_path / f"out{number}")], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "8200\n", "")
    assert tree_of(tmp_path / "out0") == tree_of(tmp_path / "out1")


def test_a_kill_in_the_middle_leaves_a_part_and_the_next_call_says_so(tmp_path: Path) -> None:
    target = tmp_path / "t"
    code = f"import sys; sys.path.insert(0, {LIBRARY!r})\n"
    code += "from quire.samples.populate import populate\n"
    code += "populate(sys.argv[1], files=10**6, processes=2)"
    with subprocess.Popen([sys.executable, "-c", code, str(target)]) as process:
        while not list(target.glob("site-00/*")):
            assert process.poll() is None
        process.kill()
    settled = -1
    while settled != (settled := sum(1 for _ in target.rglob("*.xml"))):
        time.sleep(0.1)  # the processes that write end by themselves once nobody listens
    assert 0 < settled < 10**6
    with pytest.raises(UsageError, match="not empty"):
        populate(target, files=10, progress=False)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_the_disk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    days = _Tree.directories

    def elsewhere(tree: _Tree) -> list[tuple[str, int, str]]:
        return [(path, stop, day) for path, stop, day in days(tree) if path != "site-01"]

    with monkeypatch.context() as patch:
        patch.setattr(_Tree, "directories", elsewhere)
        if processes == 1:
            monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(StorageError, match=r"cannot write .*what was written stays") as caught:
            populate(tmp_path / "t", files=9000, size=300, dirs=2, processes=processes, progress=False)
    assert "\n" not in str(caught.value)
