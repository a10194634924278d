"""The lab: real jobs, real faults, and a watcher that counts what readers see. A committer's promises are tried, not believed.

    matrix = lab.run(committers=["v1", "v2"], faults=["none", "task_fails"])
    matrix                  committer × guarantee, as a table in a notebook; .plot() as a picture, .plot("windows")
    matrix.table            a row for each committer and fault, with the counts
    lab.costs(…)            requests, bytes copied and windows on a store; .plot()
    lab.Matrix.example()    what was measured when this quire was made

Each job is a real one, in a process of its own that the lab may kill. Everything is written below a new directory, or below an empty
destination that the caller names. It takes Linux, Java and some 1.5 GB of memory; a committer takes about two minutes.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from quire.committers.lab import faults as _faults
from quire.committers.lab import tested as _tested
from quire.committers.lab.bench import Bench, Setting
from quire.committers.lab.cost import Cost, Costs, costs
from quire.committers.lab.faults import FAULTS, Fault, NotHit
from quire.committers.lab.matrix import SCHEMA, Found, Matrix, Result
from quire.committers.lab.places import place_of
from quire.committers.lab.readings import readings, untried
from quire.committers.lab.tested import COMMITTERS, UnderTest
from quire.committers.lab.watch import LabPlace
from quire.errors import QuireError, UsageError, about, quoted, scrub
from quire.interrupts import interruptible
from quire.progress import Progress, ProgressEvent

__all__ = ["COMMITTERS", "FAULTS", "SCHEMA", "Cost", "Costs", "Fault", "Found", "Matrix", "NotHit", "Result", "UnderTest", "costs", "run"]


@interruptible
def run(
    committers: Iterable[str | UnderTest] | str | UnderTest | None = None,
    faults: Iterable[str | Fault] | str | Fault | None = None,
    store: str | os.PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    jars: Any = None,
    save: str | os.PathLike[str] | None = None,
    keep: bool = False,
    progress: bool | Callable[[ProgressEvent], object] = True,
) -> Matrix:
    """Try each committer with each fault, and return what readers saw and what is left.

    committers       names of `COMMITTERS`, "quire_NAME" of one that is registered, or `UnderTest`s; left out: all. The matrix
                     shows those that cannot run here as "not run", with the reason, or as "read", with a source
    faults           names of `FAULTS`, or `Fault`s of the caller's own; left out: all
    store            an empty destination (file://, s3://, abfs://), of which each try takes a directory; left out: a new local directory
    storage_options  of the store, with the names of s3fs and adlfs; no secret of them is in a command line, a log or a result
    jars             a directory of jars, or a list of them, that Spark's jobs need beside pip's pyspark: hadoop-aws, hadoop-azure,
                     spark-hadoop-cloud and what they need
    save             a file for the results as JSON, written after each committer: what was found stays if the run is broken off
    keep             leave what was written, to look at it: `made["at"]` says where. Else all of it is deleted, also in `store`

    Raises UsageError for words that it does not know, RefusedError for a destination that holds anything.
    """
    if not sys.platform.startswith("linux"):
        raise UsageError("the lab kills processes by Linux's /proc, and this is not Linux. Look at Matrix.example().")
    for argument, value in (("committers", committers), ("faults", faults), ("jars", jars)):
        if not isinstance(value, str | os.PathLike | UnderTest | Fault | Iterable | None):
            with about(argument):
                raise UsageError(f"{argument}= takes one of them or a list, not {quoted(value)}.")
    if save is not None and (not (target := Path(save).absolute()).parent.is_dir() or target.is_dir()):
        raise UsageError(f"{scrub(str(target))} cannot be written, and nothing was begun: name a file in a directory that is there.")
    wanted, planted = _tested.chosen(committers), _faults.chosen(faults)
    given = _tested.jars_of(jars)
    scratch = Path(tempfile.mkdtemp(prefix="quire-lab-"))
    began, matrix = time.monotonic(), Matrix([])
    with ExitStack() as stack:
        if not keep:
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        place = place_of(store, scratch, storage_options)
        setting = Setting(scratch)
        if not keep and store is not None:
            stack.callback(setting.clear)
        stack.callback(setting.stop)
        with Progress(progress).phase("trying committers", total=len(wanted) * len(planted)) as bar:
            for one in wanted:
                rows = _tried(setting, one, planted, place, given, lambda: bar.update(1))
                made = {**made_of("run"), "seconds": round(time.monotonic() - began), **({"at": str(scratch)} if keep else {})}
                matrix = Matrix([*matrix.rows, *rows], made)
                if one is wanted[-1] and committers is None:
                    matrix.rows += untried(matrix.committers)
                if save is not None:
                    matrix.save(save)
    return matrix


def _tried(
    setting: Setting, one: UnderTest, planted: list[Fault], place: LabPlace, jars: list[Path], step: Callable[[], None]
) -> list[Result]:
    """All faults on one committer."""
    try:
        _tested.check(one, place)
        ready, said = _tested.with_jars(one, jars, setting.scratch)
    except UsageError as e:
        for _ in planted:
            step()
        return [Result(one.name, place.kind, "", "", "not run", note=str(e)), *readings(one.name)]
    rows, bench = list[Result](), Bench(setting, ready, place)
    try:
        for fault in planted:
            row = Result(one.name, place.kind, fault.name, fault.guarantee, "measured", note=said)
            began = time.monotonic()
            try:
                found = asdict(fault.run(bench))
            except (QuireError, OSError) as e:
                bench.stop()  # whatever state its drivers are in
                row.how, row.note = "not run", scrub(str(e).replace(str(setting.scratch), "…"))
            else:
                for name, value in found.items():
                    setattr(row, name, value.replace(str(setting.scratch), "…") if isinstance(value, str) else value)
            row.seconds = round(time.monotonic() - began, 1)
            rows.append(row)
            step()
    finally:
        bench.stop()
    return rows


def made_of(verb: str) -> dict[str, Any]:
    """The origin of results: the command, when it was, and on what; the load at its end."""
    shell = Path(sys.argv[0]).name == "quire"
    return {
        "command": shlex.join(["quire", *map(_without_value, sys.argv[1:])]) if shell else f"quire.committers.lab.{verb}(…)",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"), "machine": machine(), "load": [round(x, 1) for x in os.getloadavg()],
    }  # fmt: skip


def _without_value(argument: str) -> str:
    """Options of a store may be secrets."""
    name, equals, _ = argument.partition("=")
    return f"{name}=***" if equals else argument


def machine() -> str:
    """One line about what this runs on; nothing in it names the machine."""
    lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), os.uname().machine)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return (
        f"{cpu}, {os.cpu_count()} cores, {memory} GiB, {os.uname().sysname} {os.uname().release.split('-')[0]}; Python "
        f"{sys.version.split()[0]}, pyspark {metadata.version('pyspark')}"
    )
