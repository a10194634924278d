"""The independent checker notices what it is there for: nothing else may vouch for the main job."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from checker import check
from gathering import documents, gather, write


def change(out: Path, act: Callable[[bytes], bytes]) -> None:
    data = next(out.glob("part-*"))
    data.write_bytes(act(data.read_bytes()))


def entry(out: Path, act: Callable[[dict[str, object]], object]) -> None:
    path = out / "_quire/log/00000000000000000001.entry"
    content = json.loads(path.read_bytes())
    act(content)
    path.write_text(json.dumps(content))


HARM: dict[str, Callable[[Path], object]] = {
    "a data file twice": lambda out: shutil.copy(next(out.glob("part-*")), out / "part-again.txt"),
    "a data file gone": lambda out: next(out.glob("part-*")).unlink(),
    "one byte more": lambda out: change(out, lambda data: data + b"x"),
    "another byte": lambda out: change(out, lambda data: b"X" + data[1:]),
    "two bytes swapped": lambda out: change(out, lambda data: data[1::-1] + data[2:]),
    "a temporary left": lambda out: write(out, {"_quire/tmp/x": b""}),
    "an attempt left": lambda out: write(out, {"_quire/jobs/0-0123456789abcdef/attempts/0-0123456789ab/x": b""}),
    "a segment too many": lambda out: write(out, {"_quire/ledger/x.rows": b""}),
    "not published": lambda out: (out / "_quire/log/00000000000000000002.entry").unlink(),
    "a task forgotten": lambda out: entry(out, lambda e: e["tasks"].pop()),
    "a task twice": lambda out: entry(out, lambda e: e["tasks"].append(e["tasks"][0])),
    "a file not gathered": lambda out: write(out.parent / "in", {"late": b"late"}),
    "a file rewritten": lambda out: write(out.parent / "in", {"d0/f0000.txt": b"late"}),
}


@pytest.mark.nth(3)
@pytest.mark.parametrize("harm", HARM)
def test_the_checker_notices(tmp_path: Path, harm: str) -> None:
    source = write(tmp_path / "in", documents(12))
    gather(source, tmp_path / "out", target_size="100 B")
    check(source, tmp_path / "out")
    HARM[harm](tmp_path / "out")
    with pytest.raises(AssertionError):
        check(source, tmp_path / "out")
