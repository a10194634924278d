"""What the pictures promise: what stands out is named and marked, every name and number can be read, and nothing varies."""

from __future__ import annotations

import base64
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from quire import plots, skew
from quire.errors import UsageError, printable
from quire.packaging import install
from quire.plots import flags, words
from quire.plots.picture import drawing

SIZES = ["up_to", "files_before", "bytes_before", "files_after", "bytes_after"]
TASKS = ["commit", "task", "directory", "part", "files", "bytes", "data_files", "bytes_written", "started", "seconds"]
MISSING_ABS = [2011, 998, 1003, 987, 1010, 1001, 995, 1004]


def counts(parts: int, mean: float = 1000, planted: dict[int, float] | None = None) -> list[int]:
    """Files of each part under a fair hash, but for the planted parts, which have so many times the mean."""
    fair = np.random.default_rng(1).poisson(mean, parts).tolist()
    return [round(mean * (planted or {})[i]) if i in (planted or {}) else n for i, n in enumerate(fair)]


def size_table(*rows: tuple[int, int, int, int, int]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=SIZES)


def task_table(number: int, lanes: int, commit: int = 1, day: int = 21, seconds: float = 3.0) -> pd.DataFrame:
    """Tasks that keep `lanes` workers busy."""
    rng, free, rows = np.random.default_rng(commit), [0.0] * lanes, []
    for i in range(number):
        lane = int(np.argmin(free))
        took = float(rng.gamma(20, seconds / 20))
        start = pd.Timestamp(2026, 11, day, tz="UTC") + pd.Timedelta(seconds=free[lane])
        rows.append((commit, i, f"dt={i % 3}", str(i), int(rng.poisson(12_000)), 10**7 + i, 1, 10**6, start, took))
        free[lane] += took + 0.05
    return pd.DataFrame(rows, columns=TASKS)


def rate_table(*rows: tuple[int, int, float]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["in_flight", "files", "seconds"])


COMMITS = ["version", "verb", "files", "forgotten", "quarantined", "written", "removed", "data_files"]
RANGES = ["start", "length", "state", "commit"]
ACCOUNTS = ["loader", "killed", "expected", "lost", "double"]


def commit_table(*rows: tuple[str, int, int, int, int]) -> pd.DataFrame:
    """A commit each: verb, files that came, forgotten, data files written and removed."""
    found = pd.DataFrame(rows, columns=["verb", "files", "forgotten", "written", "removed"])
    found = found.assign(version=range(1, 2 * len(rows), 2), quarantined=0, data_files=(found["written"] - found["removed"]).cumsum())
    return found[COMMITS]


def load_table(*rows: tuple[str, float, int, int, int]) -> pd.DataFrame:
    """A commit each: verb, seconds after the first one, records, quarantined, lost."""
    found = pd.DataFrame(rows, columns=["verb", "time", "records", "quarantined", "lost"])
    first = pd.Timestamp("2026-11-21T23:59:50.123Z")
    found["time"] = [(first + pd.Timedelta(seconds=s)).isoformat() for s in found["time"].tolist()]
    return found.assign(version=range(1, 2 * len(rows), 2))


def range_table(*rows: tuple[int, int, str, int | None]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=RANGES)


def account_table(*rows: tuple[str, str, int, int, int]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=ACCOUNTS)


def way_table(*rows: tuple[str, int, float]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["way", "bytes", "seconds"])


WAYS = way_table(("all files written again", 18_000_000, 1.93), ("an upsert", 1_200_000, 0.24), ("nothing new", 0, 0.0))
DESIGNS = account_table(
    ("at least once", "before the acknowledgement", 1100, 100, 0),
    ("offsets beside data", "between the two", 1100, 0, 1000),
    ("both", "", 1100, 1100, 3),
    ("quire", "before the commit", 1100, 0, 0),
)
STORY = commit_table(
    ("run", 2000, 0, 5, 0), ("run", 30, 0, 1, 0), ("retry", 12, 0, 1, 0), ("forget", 0, 300, 1, 2), ("compact", 0, 0, 1, 6)
)
LOADS = load_table(
    ("run", 0, 40_000, 0, 0), ("run", 11, 12_000, 3, 0), ("run", 20, 0, 0, 70), ("compact", 21, 52_000, 0, 0), ("retry", 33, 3, 0, 0),
    ("run", 45.5, 9_000, 20, 400),
)  # fmt: skip
EVERY_STATE = range_table(
    (0, 4000, "done", 1), (4000, 10, "gap", None), (4010, 990, "quarantined", 3), (5000, 2500, "mark", 5), (7500, 60, "held", 7)
)
FLIGHTS = rate_table((1, 20, 2.9), (4, 60, 2.3), (16, 181, 1.7), (64, 548, 1.6), (256, 1000, 1.9))
GATHERED = size_table(
    (0, 120, 0, 0, 0),
    (4096, 91_000, 301_500_000, 0, 0),
    (8192, 308_880, 1_700_000_000, 0, 0),
    (2**26, 0, 0, 1, 50_000_000),
    (2**28, 0, 0, 7, 1_950_000_000),
)
EVERY_SIZE = size_table((0, 7, 0, 0, 0), *((2**k, 10 ** (k % 7), 2**k, k, 2**k) for k in range(45)))
THREE_COMMITS = pd.concat([task_table(6, 2, 3), task_table(2, 2, 7, day=22, seconds=0.3), task_table(20, 4, 11, day=25)])
HOSTILE = {
    "$a^2$ a<b>&'\"": 900, "new\nline\ttab": 100, "漢字のファイル名はとても長いです": 100, "é\x00\x1b[31m": 100, "x" * 5000: 100,
    "\udc80 not UTF-8": 100, "\u202eright to left": 90, "😀 \\frac{1}{2} $": 100, "عربي हिन्दी": 100, "]]>--><!--": 100,
}  # fmt: skip


def in_groups(parts: int, groups: int, planted: dict[int, float] | None = None) -> skew.SkewResult:
    return skew.check(counts(parts, planted=planted), [f"dt=2026-11-{i * groups // parts:02d}" for i in range(parts)])


PICTURES: dict[str, Any] = {
    "8 parts": lambda: plots.partitions(skew.check(MISSING_ABS, listed=16_000)),
    "8 parts of bytes": lambda: plots.partitions(
        skew.check({f"part-{k:05d}-of-many.parquet": 2**28 + k**9 for k in range(8)} | {"part-00003-of-many.parquet": 10}, unit="bytes")
    ),
    "40 parts": lambda: plots.partitions(counts(40, 12_345, {7: 2.5, 30: 0.3})),
    "40 parts of 5 groups": lambda: plots.partitions(in_groups(40, 5, {19: 1.9})),
    "54 long names": lambda: plots.partitions({f"site-{k}/{'long' * 20}": n for k, n in enumerate(counts(54, 1e6))}),
    "300 parts": lambda: plots.partitions(
        {f"customer/site={k:03d}/$x_{k}$": n for k, n in enumerate(counts(300, planted=dict.fromkeys(range(285, 300), 3)))}
    ),
    "300 parts of 6 groups": lambda: plots.partitions(in_groups(300, 6, dict.fromkeys(range(90, 100), 2))),
    "300 parts of 30 groups": lambda: plots.partitions(in_groups(300, 30)),
    "2,000 parts": lambda: plots.partitions(counts(2000, planted={17: 3, 1200: 2, 1999: 2.5})),
    "2,000 parts, all at odds": lambda: plots.partitions(np.random.default_rng(2).integers(0, 5000, 2000)),
    "2,000 parts of 500 groups": lambda: plots.partitions(in_groups(2000, 500)),
    "1 part": lambda: plots.partitions([5]),
    "no parts": lambda: plots.partitions([]),
    "empty parts": lambda: plots.partitions([0, 0, 0]),
    "huge and tiny": lambda: plots.partitions(skew.check([1e20, 1e-300, 3, 0.5], unit="bytes")),
    "hostile names": lambda: plots.partitions(HOSTILE),
    "hostile groups": lambda: plots.partitions(skew.check([10, 20] * len(HOSTILE), [g for g in HOSTILE for _ in range(2)])),
    "many hostile names": lambda: plots.partitions({f"{name}{k}": n + 50 * k for k in range(30) for name, n in HOSTILE.items()}),
    "sizes": lambda: plots.sizes(GATHERED),
    "every size": lambda: plots.sizes(EVERY_SIZE),
    "one size": lambda: plots.sizes(size_table((4096, 5, 20_000, 0, 0))),
    "only empty files": lambda: plots.sizes(size_table((0, 5, 0, 1, 0))),
    "huge sizes": lambda: plots.sizes(size_table((1, 10**15, 10**15, 0, 0), (2**62, 0, 0, 1, 2**61))),
    "no files": lambda: plots.sizes(size_table()),
    "12 tasks": lambda: plots.tasks(task_table(12, 4)),
    "1 task": lambda: plots.tasks(task_table(1, 1)),
    "40 tasks": lambda: plots.tasks(task_table(40, 2)),
    "300 tasks": lambda: plots.tasks(task_table(300, 16)),
    "2,000 tasks": lambda: plots.tasks(task_table(2000, 140)),
    "3 commits": lambda: plots.tasks(THREE_COMMITS, commit="all"),
    "12 commits": lambda: plots.tasks(pd.concat([task_table(3, 2, k, k, seconds=k) for k in range(1, 13)]), commit="all"),
    "no time at all": lambda: plots.tasks(task_table(3, 1).assign(seconds=0.0)),
    "no tasks": lambda: plots.tasks(task_table(0, 1)),
    "rates": lambda: plots.rates(FLIGHTS, "140 ms"),
    "rates alone": lambda: plots.rates(FLIGHTS),
    "1 rate": lambda: plots.rates(rate_table((256, 1000, 1.0)), 0.14),
    "slow and fast": lambda: plots.rates(rate_table((1, 1, 1e6), (2**40, 10**15, 1e-3)), "2 h"),
    "1,000 rates": lambda: plots.rates(rate_table(*((n, 7 * n, 1 + n / 500) for n in range(1, 1001))), "140 ms"),
    "the same flight often": lambda: plots.rates(rate_table(*((16, 100 + n, 1.0) for n in range(30)))),
    "no rates": lambda: plots.rates(rate_table()),
    "commits": lambda: plots.commits(STORY),
    "1 commit": lambda: plots.commits(commit_table(("run", 1, 0, 1, 0))),
    "200 commits": lambda: plots.commits(commit_table(*[("run", 10**k, 0, k, 0) for k in range(10)] * 20)),
    "huge and no commits": lambda: plots.commits(
        commit_table(("run", 10**15, 0, 10**6, 0), ("run", 1, 10**14, 0, 0), ("retry", 0, 0, 0, 0))
    ),
    "hostile verbs": lambda: plots.commits(commit_table(*((verb, n, 0, 1, 0) for verb, n in HOSTILE.items()))),
    "no commits": lambda: plots.commits(commit_table()),
    "loads": lambda: plots.loads(LOADS),
    "1 load": lambda: plots.loads(LOADS.head(1)),
    "900 loads": lambda: plots.loads(load_table(*(("run", 10.0 * i, 5_000 + 7 * i, i % 9 == 0, i % 50 == 0) for i in range(900)))),
    "loads of months": lambda: plots.loads(load_table(*(("run", 86_400.0 * 3 * i, 10**i, 0, 0) for i in range(19)))),
    "hostile loads": lambda: plots.loads(load_table(*((verb, n, n, 1, 1) for verb, n in HOSTILE.items()))),
    "no loads": lambda: plots.loads(load_table()),
    "every state": lambda: plots.coverage(EVERY_STATE),
    "an empty file": lambda: plots.coverage(range_table((0, 0, "done", 1))),
    "a file quarantined": lambda: plots.coverage(range_table((0, 7, "quarantined", 12))),
    "2,000 ranges": lambda: plots.coverage(range_table(*((k << 26, 1 << 26, ("done", "quarantined")[k % 2], k) for k in range(2000)))),
    "a tail beside much": lambda: plots.coverage(range_table((0, 2**50, "done", 1), (2**50, 3, "held", 9))),
    "no ranges": lambda: plots.coverage(range_table()),
    "accounts": lambda: plots.accounts(DESIGNS),
    "accounts of no records": lambda: plots.accounts(account_table(("a", "", 0, 0, 0), ("b", "", 0, 0, 7))),
    "accounts of all sizes": lambda: plots.accounts(account_table(*((f"to {k}", "", 10**k, k, 10 ** (k // 2)) for k in range(1, 15)))),
    "hostile accounts": lambda: plots.accounts(account_table(*((who, who, n, 1, 1) for who, n in HOSTILE.items()))),
    "200 accounts": lambda: plots.accounts(account_table(*((f"load {k}", "", 10, 0, 0) for k in range(200)))),
    "no accounts": lambda: plots.accounts(account_table()),
    "ways": lambda: plots.ways(WAYS),
    "1 way": lambda: plots.ways(way_table(("a", 0, 0.0))),
    "ways of all sizes": lambda: plots.ways(way_table(*((f"way {k}", 10**k, 10.0 ** (k - 9)) for k in range(19)))),
    "hostile ways": lambda: plots.ways(way_table(*((way, n, n) for way, n in HOSTILE.items()))),
    "200 ways": lambda: plots.ways(way_table(*((f"way {k}", 7, k) for k in range(200)))),
    "no ways": lambda: plots.ways(way_table()),
}  # fmt: skip


def texts(picture: plots.Picture) -> str:
    """All that is written in a picture, as a reader of the SVG sees it, line by line."""
    root = ET.fromstring(picture.svg())
    return "\n".join("".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text"))


def boxes(picture: plots.Picture) -> list[tuple[str, Any]]:
    """(text, bounding box in pixels) of all visible texts."""
    figure = picture.figure
    with drawing():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
        return [(t.get_text(), Text.get_window_extent(t, canvas.get_renderer())) for t in found]


# --- every picture ---


@pytest.mark.nth(24)
@pytest.mark.parametrize("case", PICTURES)
def test_no_text_covers_another_one_or_leaves_the_picture(case: str) -> None:
    picture = PICTURES[case]()
    wide, high = picture.figure.get_size_inches() * picture.figure.dpi
    found = boxes(picture)
    assert found
    for text, box in found:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= wide and box.y1 <= high, f"{text!r} leaves the picture"  # noqa: PT018
    for (one, a), (other, b) in itertools.combinations(found, 2):
        apart = a.x1 <= b.x0 + 0.5 or b.x1 <= a.x0 + 0.5 or a.y1 <= b.y0 + 1.5 or b.y1 <= a.y0 + 1.5
        assert apart, f"{one!r} and {other!r} overlap"


@pytest.mark.nth(18)
@pytest.mark.parametrize("case", PICTURES)
def test_a_picture_is_text_a_table_and_well_formed_svg_on_white(case: str) -> None:
    picture = PICTURES[case]()
    shown = picture._repr_mimebundle_()
    assert (shown["text/plain"], shown["image/svg+xml"]) == (repr(picture), picture.svg())
    ET.fromstring(shown["image/svg+xml"])
    assert "fill: #ffffff" in shown["image/svg+xml"]
    assert len(shown["image/svg+xml"]) < 500_000
    assert shown["text/plain"].startswith(picture.title + "\n" + picture.note)
    assert len(picture.table) <= 20
    assert all(line.isprintable() for line in shown["text/plain"].split("\n"))
    assert shown["text/plain"].endswith(f"… {picture.more:,} more") == (picture.more > 0)


@pytest.mark.parametrize("case", ["8 parts", "hostile names"])
def test_the_chart_that_follows_the_theme_is_the_same_chart_with_its_name(case: str) -> None:
    picture = PICTURES[case]()
    page = picture._repr_mimebundle_()["text/html"]
    rule, tag = re.fullmatch(r"<style>([^<]*)</style>(<img [^<>]*>)", page).groups()
    image = ET.fromstring(f"{tag[:-1]}/>").attrib
    assert base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")).decode() == picture.svg()
    assert image["alt"] == printable(f"{picture.title}. {picture.note}")
    assert rule.startswith(f".{image['class']}:is(body["), "only the chart, and only where the page says that it is dark"


def test_two_processes_draw_the_same_bytes() -> None:
    script = (
        "from quire import plots; from quire import skew; import test_plots as t, hashlib\n"
        "made = [t.PICTURES[case]() for case in ('8 parts', '300 parts', 'sizes', '3 commits', 'hostile names')]\n"
        "print(*(hashlib.sha256(p.svg().encode()).hexdigest() for p in made), *(repr(p) for p in made), sep='\\n')"
    )
    told = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent), "PYTHONIOENCODING": "utf-8"}
        run = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, env=environment, check=True)
        told.add(run.stdout)
    assert len(told) == 1


def test_what_the_user_has_set_neither_shows_nor_changes() -> None:
    plain = PICTURES["sizes"]().svg()
    with mpl.rc_context({"font.size": 30, "svg.hashsalt": "other", "axes.facecolor": "black", "text.parse_math": True}):
        before = dict(mpl.rcParams)
        assert PICTURES["sizes"]().svg() == plain
        assert dict(mpl.rcParams) == before


def test_drawing_twice_and_on_another_canvas_changes_nothing() -> None:
    picture = PICTURES["8 parts"]()
    first = picture.svg()
    boxes(picture)
    assert picture.svg() == first


def test_neither_pyplot_nor_a_window_is_needed_and_quire_alone_loads_no_matplotlib() -> None:
    script = (
        "import sys, quire; assert 'matplotlib' not in sys.modules\n"
        "import quire.plots; quire.plots.partitions([1, 2]).svg(); print('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"


def test_without_matplotlib_one_line_says_what_to_install() -> None:
    script = "import sys; sys.modules['matplotlib'] = None\ntry:\n    import quire.plots\nexcept ImportError as e:\n    print(e)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told == f"quire.plots needs matplotlib: {install('plots')}\n"


# --- saving ---


@pytest.mark.nth(2)
@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")])
def test_a_picture_is_saved_as_its_ending_says_and_twice_the_same(tmp_path: Path, ending: str, start: bytes) -> None:
    picture = PICTURES["hostile names"]()
    path = picture.save(tmp_path / f"a.{ending}")
    assert path == tmp_path / f"a.{ending}"
    assert path.read_bytes().startswith(start)
    assert path.read_bytes() == PICTURES["hostile names"]().save(str(tmp_path / f"b.{ending}")).read_bytes()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("picture.jpg", "'.jpg': a picture is saved as .svg, .png or .pdf"),
        ("picture", "ends with 'nothing'"),
        (3, "a path that ends with .svg, .png or .pdf, not to 3"),
        ("nowhere/picture.svg", "cannot be written"),
    ],
)
def test_a_path_that_cannot_be_saved_to_is_one_clear_line(path: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        PICTURES["8 parts"]().save(path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# --- partitions ---


def test_the_part_that_a_missing_abs_doubles_is_marked_and_named() -> None:
    picture = PICTURES["8 parts"]()
    assert picture.title == "Missing abs(): 8 parts, 9,009 files"
    assert "in no part" in picture.note
    written = texts(picture)
    assert "2,011\ndoubled 1.79×" in written.replace("doubled\n", "doubled ")
    assert "doubled: 1" in written
    assert "xxxx" in {patch.get_hatch() for patch in picture.figure.axes[0].patches}
    assert picture.table["flag"].tolist() == ["doubled", *[""] * 7]
    assert re.search(r"^0 +2,011 .*doubled$", repr(picture), re.MULTILINE)


def test_an_even_plan_marks_none() -> None:
    picture = plots.partitions(counts(8))
    assert picture.title.startswith("Even: 8 parts")
    assert not re.search("heavy|light|doubled", texts(picture) + picture.table.to_string())
    assert not {patch.get_hatch() for patch in picture.figure.axes[0].patches} - {None, ""}


@pytest.mark.parametrize("parts", [8, 40])
def test_few_parts_have_each_their_number_and_their_name(parts: int) -> None:
    given = {f"p{k}": n for k, n in enumerate(counts(parts, 12_345))}
    written = texts(plots.partitions(given)).split("\n")
    assert {f"{n:,}" for n in given.values()} <= set(written)
    assert set(given) <= set(written)


def test_of_2000_parts_those_that_stand_out_are_named_and_no_other() -> None:
    picture = PICTURES["2,000 parts"]()
    written = texts(picture)
    for told in ("17: 3,000, heavy 2.99×", "1200: 2,000, heavy 2.00×", "1999: 2,500, heavy 2.5", "heavy: 3"):
        assert told in written
    assert len(written.split("\n")) < 40
    assert picture.table["part"].tolist()[:3] == ["17", "1999", "1200"]
    assert picture.more == 1980


def test_of_many_that_stand_out_eight_are_named_and_the_others_counted() -> None:
    picture = plots.partitions(counts(2000, planted={k: 2 + k / 1000 for k in range(1000, 1020)}))
    assert "12 more are marked" in picture.note
    assert len(re.findall(r"heavy \d\.\d\d×", texts(picture))) == 8


def test_the_band_is_what_chance_leaves_of_files_and_a_quarter_of_bytes() -> None:
    assert "4 standard deviations" in texts(plots.partitions([100, 110]))
    by_bytes = plots.partitions(skew.check([2**28, 2**29], unit="bytes"))
    assert "a quarter" in texts(by_bytes)
    assert "256 MiB" in texts(by_bytes)
    assert by_bytes.table["bytes"].tolist() == [2**28, 2**29]


def test_groups_are_named_below_their_parts() -> None:
    picture = PICTURES["40 parts of 5 groups"]()
    assert {f"dt=2026-11-{k:02d}" for k in range(5)} <= set(texts(picture).split("\n"))
    assert picture.table.columns.tolist() == ["group", "part", "files", "expected", "ratio", "flag"]


def test_long_names_stay_different_when_they_are_cut() -> None:
    given = {f"{'directory/' * 9}part-{k:05d}-of-00008.parquet": 100 for k in range(8)}
    written = texts(plots.partitions(given)).split("\n")
    assert {f"…{k:05d}…" for k in range(8)} <= set(written)


def test_a_name_is_shown_as_it_is_and_never_as_a_formula_or_markup() -> None:
    picture = PICTURES["hostile names"]()
    assert "$a^2$ a<b>&'\"" in texts(picture)
    assert "漢字" in texts(picture)
    assert "\\x1b[31m" in repr(picture)
    assert "\x1b" not in repr(picture) + picture.svg()
    assert "new\\nline\\ttab" in repr(picture)


def test_objects_that_know_their_skew_are_drawn() -> None:
    result = skew.check(MISSING_ABS)

    class Plan:
        def skew(self) -> skew.SkewResult:
            return result

    class Report:
        skew: Any = result

    drawn = plots.partitions(result).svg()
    given: list[Any] = [Plan(), Report(), MISSING_ABS, pd.Series(MISSING_ABS), dict(enumerate(MISSING_ABS)), np.array(MISSING_ABS)]
    for one in given:
        assert plots.partitions(one).svg() == drawn
    Report.skew = None
    with pytest.raises(UsageError, match="there was nothing to do"):
        plots.partitions(Report())


# --- sizes ---


def test_400000_small_files_and_8_large_ones_can_both_be_read() -> None:
    picture = PICTURES["sizes"]()
    assert picture.title == "400,000 files before, 8 after"
    written = texts(picture)
    for told in ("91,000", "308,880", "120", "1", "7", "empty", "4 KiB", "256 MiB"):
        assert told in written.split("\n")
    assert "Before: 400,000 files, 1.9 GiB" in written
    assert "After: 8 files, 1.9 GiB" in written
    assert picture.table["size"].tolist() == ["empty", "≤ 4 KiB", "≤ 8 KiB", "≤ 64 MiB", "≤ 256 MiB"]
    before, after = (ax.get_ylim() for ax in picture.figure.axes)
    assert before == after


def test_a_ledger_or_plan_is_asked_for_its_sizes_in_any_order() -> None:
    class Plan:
        def sizes(self) -> pd.DataFrame:
            return GATHERED.iloc[::-1]

    class Ledger:
        inspect = Plan()

    assert plots.sizes(Plan()).svg() == plots.sizes(Ledger()).svg() == plots.sizes(GATHERED).svg()


# --- tasks ---


def test_tasks_take_as_few_lanes_as_ran_at_once() -> None:
    picture = PICTURES["12 tasks"]()
    assert picture.title.startswith("Commit 1: 12 tasks in ")
    assert picture.title.endswith("4 at once")
    assert {f"{n:,}" for n in task_table(12, 4)["files"]} <= set(texts(picture).split("\n"))
    assert picture.table["start"].is_monotonic_increasing
    assert picture.table.columns.tolist() == ["commit", "task", "directory", "part", "files", "bytes", "start", "seconds"]


def test_the_last_commit_is_drawn_unless_another_one_is_asked_for() -> None:
    assert plots.tasks(THREE_COMMITS).title.startswith("Commit 11: 20 tasks")
    assert "2 earlier commits not drawn" in plots.tasks(THREE_COMMITS).note
    assert plots.tasks(THREE_COMMITS, commit=3).title.startswith("Commit 3: 6 tasks")
    together = plots.tasks(THREE_COMMITS, commit="all")
    assert together.title.startswith("3 commits: 28 tasks in ")
    assert {"commit 3", "commit 11"} <= set(texts(together).split("\n"))
    with pytest.raises(UsageError, match="no commit 4 with tasks: the last ones are 3, 7, 11"):
        plots.tasks(THREE_COMMITS, commit=4)


def test_days_between_commits_take_no_room() -> None:
    picture = plots.tasks(THREE_COMMITS, commit="all")
    wide = [patch.get_path().get_extents().width for patch in picture.figure.axes[0].patches]
    assert sum(wide) > 0.5


def test_a_task_that_takes_much_longer_is_marked_and_named() -> None:
    given = task_table(12, 4)
    given.loc[7, "seconds"] = 60.0
    picture = plots.tasks(given)
    assert "the longest task, 7, took 60 s" in picture.note
    assert "////" in {patch.get_hatch() for patch in picture.figure.axes[0].patches}


def test_tasks_without_a_time_are_counted_and_left_out() -> None:
    given = task_table(12, 4)
    given.loc[0, "started"] = pd.Timestamp(0, tz="UTC")
    given.loc[1, "seconds"] = np.nan
    picture = plots.tasks(given)
    assert "10 tasks" in picture.title
    assert "2 tasks without a time are left out" in picture.note
    assert plots.tasks(given.assign(started=pd.NaT)).title == "No tasks with a time"


# --- rates ---


def test_a_rate_stands_beside_its_point_and_below_what_the_round_trip_allows() -> None:
    picture = PICTURES["rates"]()
    assert {"6.9", "26", "106", "342", "526", "1", "4", "16", "64", "256"} <= set(texts(picture).split("\n"))
    assert "at most n / 140 ms" in picture.note
    assert picture.table.columns.tolist() == ["in_flight", "files", "at_most", "seconds", "files_per_second"]
    assert (picture.table["files_per_second"] < picture.table["at_most"]).all()
    assert picture.table["at_most"].tolist()[0] == pytest.approx(1 / 0.14)


def test_without_a_round_trip_there_is_no_line() -> None:
    picture = PICTURES["rates alone"]()
    assert "at most" not in texts(picture)
    assert "at_most" not in picture.table


def test_measurements_are_drawn_in_the_order_of_reads_in_flight() -> None:
    assert plots.rates(FLIGHTS.iloc[::-1], 0.14).svg() == PICTURES["rates"]().svg()


def test_of_many_rates_the_first_and_the_last_are_in_the_table() -> None:
    picture = PICTURES["1,000 rates"]()
    assert picture.table["in_flight"].tolist() == [*range(1, 11), *range(991, 1001)]
    assert picture.more == 980


def test_what_was_measured_is_a_group_of_its_own() -> None:
    def without(picture: plots.Picture) -> str:
        return re.sub(r'(?s)<g id="measured">.*?\n  </g>', "", picture.svg())

    other = plots.rates(FLIGHTS.assign(seconds=FLIGHTS["seconds"] * 1.2), "140 ms")
    assert other.svg() != PICTURES["rates"]().svg()
    assert without(other) == without(PICTURES["rates"]())


# --- commits and coverage ---


def test_the_commits_tell_what_came_what_went_and_what_there_is_now() -> None:
    picture = plots.commits(STORY)
    assert picture.title == "5 commits: 2,042 files came, 1 data file now"
    assert "300 files forgotten or replaced" in picture.note
    assert "up to 7 data files" in picture.note
    shown = texts(picture).split("\n")
    assert {"2,000", "30", "12", "−300", "run", "retry", "forget", "compact", "1 run", "9 compact"} <= set(shown)
    many = plots.commits(pd.concat([STORY] * 9))
    assert (len(many.table), many.more) == (20, 25)
    assert many.title.startswith("The last 20 commits: ")
    assert plots.commits(STORY.tail(2)).title == "The last 2 commits: 0 files came, 1 data file now"


def test_the_coverage_of_a_file_says_each_state_by_word_and_joins_neighbours() -> None:
    picture = plots.coverage(EVERY_STATE)
    assert picture.title == "The file: 7.4 KiB, some of it quarantined, with gaps, its last line held back"
    shown = texts(picture).split("\n")
    for state in ("done", "quarantined", "held", "mark", "gap"):
        assert any(text.startswith(f"{state}: ") for text in shown), state
    assert "done, commit 1" in shown
    tail = plots.coverage(range_table((0, 5, "done", 1), (5, 5, "done", 1), (10, 5, "done", 3)))
    assert tail.table.values.tolist() == [[0, 10, "done", "1"], [10, 5, "done", "3"]]
    assert tail.title == "The file: 15 B, all of it done"


def test_loads_stand_at_their_times_and_what_was_set_aside_or_lost_is_marked() -> None:
    picture = plots.loads(LOADS)
    times = pd.to_datetime(LOADS["time"], utc=True)
    for unit in ("s", "ms", "us", "ns"):
        at = times.astype(f"datetime64[{unit}, UTC]")
        assert plots.loads(LOADS.assign(time=at)).svg() == plots.loads(LOADS.assign(time=at.astype("datetime64[ns, UTC]"))).svg(), unit
    assert picture.title == "6 commits: 61,003 records, the last one at 2026-11-22 00:00:35 UTC"
    assert picture.note == "At most 40,000 records at once, 1 × compact, 1 × retry, 23 quarantined, 470 lost to retention."
    assert picture.table["records"].tolist() == [40_000, 12_000, 0, 0, 3, 9_000], "what is written anew is not loaded again"
    shown = re.findall(r">([^<>]+)</text>", picture.svg())
    assert {"00:00:00", "00:00:30", "some quarantined", "some lost", "no new records", "UTC, 2026-11-21 to 2026-11-22"} <= set(shown)
    many = plots.loads(pd.concat([LOADS] * 100).assign(version=range(600)))
    assert (many.more, many.title[:12]) == (580, "500 commits:")


def test_ranges_too_thin_to_be_told_apart_do_not_make_a_picture_grow() -> None:
    def drawn(ranges: int) -> Any:
        picture = plots.coverage(range_table(*((k, 1, "quarantined" if k == ranges // 2 else "done", k) for k in range(ranges))))
        return picture, [patch.get_facecolor() for patch in picture.figure.axes[0].patches]

    (some, few), (many, more) = drawn(2_000), drawn(20_000)
    assert len(more) <= len(few) + 2 < 1_000
    assert len(set(few)) == len(set(more)) == 2, "the one that is in quarantine is seen among them"
    assert "in 1 range;" in some.note or "in 1 range." in some.note
    assert (len(many.table), many.more) == (20, 19_980)


def test_a_ledger_is_asked_for_its_commits_and_a_files_coverage() -> None:
    class Tables:
        def commits(self) -> pd.DataFrame:
            return STORY

        def coverage(self, path: str) -> pd.DataFrame:
            assert path == "/in/<b>"
            return EVERY_STATE

    class Known:
        inspect = Tables()

    assert plots.commits(Known()).svg() == plots.commits(STORY).svg()
    assert plots.coverage(Known(), "/in/<b>").title.startswith("/in/<b>: 7.4 KiB")
    with pytest.raises(UsageError, match="say which"):
        plots.coverage(Known())


# --- ways ---


def test_what_each_way_moves_and_takes_stands_behind_its_bars() -> None:
    picture = plots.ways(WAYS)
    told = texts(picture).split("\n")
    assert [told.count(one) for one in ("17.2 MiB", "1.1 MiB", "0 B", "≈ 1.9 s", "≈ 0.24 s", "≈ 0 s")] == [1] * 6
    assert picture.title == "nothing new: 0 % of the bytes of “all files written again”"
    assert plots.ways(WAYS.head(2)).title == "an upsert: 6.7 % of the bytes of “all files written again”"
    assert plots.ways(way_table(("a", 9, 1), ("b", 99, 2))).title == "b: 1,100 % of the bytes of “a”"
    assert plots.ways(way_table(("a", 0, 1), ("b", 99, 2))).title == "2 ways, at most 99 B"
    assert picture.table["took"].tolist() == ["≈ 1.9 s", "≈ 0.24 s", "≈ 0 s"]


def test_the_seconds_of_ways_are_a_group_of_their_own() -> None:
    """What notebooks/nbval.cfg replaces; bytes are compared."""

    def without(picture: plots.Picture) -> str:
        return re.sub(r'(?s)<g id="measured">.*?\n  </g>', "", picture.svg())

    slower = plots.ways(WAYS.assign(seconds=[3.0, 8.0, 123.4]))
    assert slower.svg() != PICTURES["ways"]().svg()
    assert without(slower) == without(PICTURES["ways"]())
    assert without(plots.ways(WAYS.assign(bytes=[18_000_000, 2_400_000, 0]))) != without(slower)


# --- what is given ---


class UnrunPlan:
    tasks = pd.DataFrame({"task": [0], "directory": [""], "part": [""], "files": [3], "bytes": [9]})


def test_what_is_lost_or_double_is_said_beside_its_bar_and_what_is_exact_is_marked() -> None:
    picture = plots.accounts(DESIGNS)
    told = texts(picture).split("\n")
    assert [told.count(one) for one in ("100 lost", "1,000 double", "1,100 lost", "3 double", "✔ each once")] == [1, 1, 1, 1, 1]
    assert "killed before the acknowledgement" in told
    assert picture.title == "Each record once: 1 of 4 loads"
    assert picture.note == "At most 1,100 lost (both); at most 1,000 there once too often (offsets beside data)."


def test_readers_are_counted_likewise() -> None:
    picture = plots.accounts(pd.DataFrame({"reader": ["a", "b"], "expected": 199, "lost": [0, 9], "double": 0}))
    assert (picture.title, picture.note) == ("Each record once: 1 of 2 readers", "At most 9 lost (b).")
    assert list(picture.table.columns) == ["reader", "expected", "lost", "double"]
    assert plots.accounts(picture.table.head(0)).note == "Nothing was read."


@pytest.mark.parametrize(
    ("draw", "given", "message"),
    [
        (plots.partitions, "x", "counts is 'x'"),
        (plots.partitions, 3, "partitions draws a SkewResult, Plan, Ledger or Report"),
        (plots.partitions, None, "not None"),
        (plots.partitions, skew, "not <module"),
        (plots.partitions, skew.SkewResult, "not <class"),
        (plots.partitions, GATHERED, "counts is"),
        (plots.partitions, [1, -1], "counts of '1' is -1"),
        (plots.sizes, 3, "sizes draws a Ledger, a Plan or a table of size classes, not 3"),
        (plots.sizes, pd.DataFrame({"up_to": [1]}), "no column 'files_before'"),
        (plots.sizes, size_table((3, 1, 1, 1, 1)), "up_to is 3: it is the largest size of its class, a power of two"),
        (plots.sizes, size_table((4, -1, 1, 1, 1)), "files_before is -1 in a row"),
        (plots.sizes, GATHERED.assign(files_before=["many"] * 5), "files_before is 'many'"),
        (plots.sizes, GATHERED.assign(files_before=np.nan), "files_before is nan"),
        (plots.tasks, 3, "tasks draws a Ledger or a table of tasks, not 3"),
        (plots.tasks, UnrunPlan(), "was not run yet"),
        (plots.tasks, UnrunPlan.tasks, "was not run yet"),
        (plots.tasks, task_table(2, 1).assign(started="soon"), "started takes times"),
        (plots.tasks, task_table(2, 1).assign(seconds="long"), "seconds takes numbers"),
        (plots.tasks, task_table(2, 1).assign(files=-1), "files is -1"),
        (plots.rates, 3, "rates draws a table of measurements, not 3"),
        (plots.rates, pd.DataFrame({"in_flight": [1]}), "no column 'files'"),
        (plots.rates, rate_table((0, 1, 1)), "in_flight is 0 in a row"),
        (plots.rates, rate_table((1, 0, 1)), "files is 0 in a row"),
        (plots.rates, rate_table((1, 1, 0)), "seconds is 0 in a row"),
        (plots.rates, FLIGHTS.assign(seconds="long"), "seconds is 'long'"),
        (plots.commits, 3, "commits draws a Ledger or a table of commits, not 3"),
        (plots.commits, STORY.drop(columns="forgotten"), "no column 'forgotten'"),
        (plots.commits, STORY.assign(files=-1), "files is -1"),
        (plots.loads, 3, "loads draws a Ledger or a table of commits, not 3"),
        (plots.loads, LOADS.drop(columns="lost"), "no column 'lost'"),
        (plots.loads, LOADS.assign(time="soon"), "time takes times"),
        (plots.loads, LOADS.assign(time=None), "time is missing"),
        (plots.coverage, 3, "coverage draws a Ledger and a path, or a table of ranges, not 3"),
        (plots.coverage, EVERY_STATE.assign(state="dne"), "Did you mean 'done'"),
        (plots.coverage, EVERY_STATE.assign(length=-1), "length is -1"),
        (plots.accounts, 3, "accounts draws a table of what was loaded, not 3"),
        (plots.accounts, DESIGNS.drop(columns="killed"), "no column 'killed'"),
        (plots.accounts, DESIGNS.assign(double=-1), "double is -1"),
        (plots.accounts, DESIGNS.assign(lost=2000), "lost is 2,000 in a row of the table, and only 1,100 were expected"),
        (plots.ways, 3, "ways draws a table of ways and what they cost, not 3"),
        (plots.ways, WAYS.drop(columns="bytes"), "no column 'bytes'"),
        (plots.ways, WAYS.assign(bytes=0.5), "bytes is 0.5 in a row"),
        (plots.ways, WAYS.assign(seconds=-1), "seconds is -1 in a row"),
        (plots.ways, WAYS.assign(seconds="long"), "seconds is 'long' in a row"),
        (lambda what: plots.rates(what, 0), FLIGHTS, "round_trip is 0"),
        (lambda what: plots.rates(what, "far"), FLIGHTS, "round_trip='far' is not a time span"),
    ],
)
def test_what_cannot_be_drawn_is_one_clear_line(draw: Any, given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        draw(given)
    assert "\n" not in str(caught.value)


def test_nothing_is_drawn_as_nothing() -> None:
    for picture, told in (
        (plots.partitions([]), "no parts"),
        (plots.sizes(size_table()), "no files"),
        (plots.sizes(pd.DataFrame()), "no files"),
        (plots.tasks(task_table(0, 1)), "no tasks"),
        (plots.tasks(pd.DataFrame()), "no tasks"),
        (plots.rates(rate_table()), "no measurements"),
        (plots.rates(pd.DataFrame()), "no measurements"),
        (plots.commits(commit_table()), "no commits"),
        (plots.commits(pd.DataFrame()), "no commits"),
        (plots.loads(load_table()), "no commits"),
        (plots.loads(pd.DataFrame()), "no commits"),
        (plots.coverage(range_table()), "no ranges"),
        (plots.accounts(account_table()), "no records"),
        (plots.accounts(pd.DataFrame()), "no records"),
        (plots.coverage(pd.DataFrame()), "no ranges"),
        (plots.ways(way_table()), "no ways"),
        (plots.ways(pd.DataFrame()), "no ways"),
    ):
        assert told in texts(picture)
        assert picture.table.empty


# --- the parts that pictures are made of ---


def test_names_on_poles_never_meet_however_the_poles_stand() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        poles = [(float(x), float(w)) for x, w in zip(rng.uniform(1, 8.8, 8), rng.uniform(0.2, 3.5, 8), strict=True)]
        placed = flags.place(poles, 1, 8.85)
        for one, other in itertools.combinations(placed, 2):
            (a, b), (c, d) = one.span(), other.span()
            assert one.row != other.row or b <= c or d <= a


def test_text_is_cut_and_wrapped_to_the_room_it_has() -> None:
    for text in ("x" * 900, "a b " * 300, "漢字" * 200, "word " + "y" * 400):
        lines = words.wrap(text, 3, 9, 4)
        assert len(lines) == 4
        assert lines[-1].endswith("…")
        assert max(words.width(line, 9) for line in lines) <= 3
        assert words.width(words.shorten(text, 1)) <= 1
    assert words.shorten("short", 1) == "short"
