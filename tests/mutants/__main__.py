"""Plants mistakes in copies of quire, one at a time, and looks whether the tests find them: `make mutants`, or with names of mutants.

The table is in `table.py`. A mutant that no test catches, or whose source is no longer there, makes the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from table import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "toolkit" / "quire"
STAGES = tuple(f"tests/commit/test_{name}.py" for name in ("pitfalls", "crash", "matrix", "races"))  # in the order of their length
LONGEST = 400  # seconds for one stage, after which it counts as caught: it does not end


def rotten(mutant: Mutant) -> str | None:
    """What of a mutant is not in the source exactly once."""
    text = (SOURCE / mutant.file).read_text()
    for old, _ in mutant.edits:
        if (n := text.count(old)) != 1:
            return f"{mutant.name}: in {mutant.file} there is {n} times {old!r}"
    return None


def plant(mutant: Mutant | None, where: Path) -> None:
    """A copy of quire, with the mistake."""
    shutil.copytree(SOURCE, where / "quire", ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        file = where / "quire" / mutant.file
        text = file.read_text()
        for old, new in mutant.edits:
            text = text.replace(old, new)
        compile(text, str(file), "exec")
        file.write_text(text)


def play(mutant: Mutant | None, stages: tuple[str, ...]) -> str | None:
    """The test that fails, if any."""
    with tempfile.TemporaryDirectory(prefix="quire-mutant-") as temporary:
        where = Path(temporary)
        plant(mutant, where)
        ours = {"PYTHONPATH": str(where), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": temporary, "QUIRE_SHRINK": "0", "QUIRE_EACH_CASE": "1"}
        for stage in stages:
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line", "--timeout=150"]
            try:
                done = subprocess.run([*command, stage], cwd=ROOT, env=os.environ | ours, capture_output=True, text=True, timeout=LONGEST)
            except subprocess.TimeoutExpired:
                return f"{stage} (it does not end)"
            if done.returncode:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                return failed[1] if failed else f"{stage}: {(done.stdout + done.stderr)[-300:]}"
    return None


def order(mutant: Mutant, quick: bool) -> tuple[str, ...]:
    """The likely tests first."""
    stages = STAGES[:1] if quick else STAGES
    return tuple(dict.fromkeys([mutant.first, *stages] if mutant.first else stages))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("words", nargs="*", help="only mutants whose names hold one of these words")
    parser.add_argument("--list", action="store_true", help="only look whether the table fits the source")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--quick", action="store_true", help="only the fastest tests and those that are likely to catch it")
    parser.add_argument("--no-baseline", action="store_true", help="do not look first whether the tests pass without a mistake")
    chosen = parser.parse_args(arguments)
    if old := [text for text in map(rotten, MUTANTS) if text]:
        print("These do not fit the source; mend tests/mutants/table.py:", *old, sep="\n  ")
        return 1
    mutants = [one for one in MUTANTS if not chosen.words or any(word in one.name for word in chosen.words)]
    if chosen.list:
        print(*(f"{one.file}: {one.name}" for one in mutants), sep="\n")
        return 0
    began = time.monotonic()
    stages = tuple(dict.fromkeys(stage for one in mutants for stage in order(one, chosen.quick)))
    if not chosen.no_baseline and (failed := play(None, stages)):
        print(f"without a mistake {failed} fails: nothing can be said")
        return 1

    def judge(mutant: Mutant) -> bool:
        start = time.monotonic()
        caught = play(mutant, order(mutant, chosen.quick))
        word, seconds = "caught  " if caught else "SURVIVED", time.monotonic() - start
        print(f"{word} {seconds:5.0f} s  {mutant.name}: {caught or mutant.file}", flush=True)
        return caught is not None

    with ThreadPoolExecutor(chosen.jobs) as pool:
        results = list(pool.map(judge, mutants))
    print(f"{sum(results)} of {len(results)} mutants caught in {(time.monotonic() - began) / 60:.1f} minutes")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
