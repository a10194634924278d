"""The cost of a committer on a store: requests, bytes that the store copies, and how long readers see a part, for more and more files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from quire.arguments import whole
from quire.committers.lab import tested
from quire.committers.lab.bench import Bench, BenchJob, BenchRun, Setting
from quire.committers.lab.faults import SIZES
from quire.committers.lab.places import place_of
from quire.committers.lab.processes import environment
from quire.committers.lab.results import Results
from quire.committers.lab.tested import UnderTest
from quire.committers.lab.watch import Watcher
from quire.errors import QuireError, UsageError, about, scrub
from quire.progress import Progress, ProgressEvent

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = pa.schema([
    ("committer", pa.string()), ("store", pa.string()), ("files", pa.int64()), ("requests", pa.int64()), ("copies", pa.int64()),
    ("copied", pa.int64()), ("sent", pa.int64()), ("window", pa.float64()), ("window_log", pa.float64()), ("seconds", pa.float64()),
    ("note", pa.string()),
])  # fmt: skip


@dataclass
class Cost:
    """One job. Bytes: `copied` by the store itself, `sent` to it; seconds: `window` of a directory's readers, `window_log` of the log's."""

    committer: str
    store: str
    files: int
    requests: int | None = None
    copies: int | None = None
    copied: int | None = None
    sent: int | None = None
    window: float | None = None
    window_log: float | None = None
    seconds: float | None = None
    note: str = ""  # why numbers are missing


class Costs(Results[Cost]):
    """The measurements: `rows`, `table` (pandas; `arrow`: `SCHEMA`), `plot()`, `json`; `made` says where, when and with which delay."""

    KIND, NAME, MAKER, EXAMPLE, ROW = "quire lab costs 1", "costs", "quire.committers.lab.costs()", "costs.json", Cost

    @property
    def arrow(self) -> pa.Table:
        """A row for each committer and number of files."""
        return pa.Table.from_pylist([asdict(row) for row in self.rows], schema=SCHEMA)

    @property
    def table(self) -> pd.DataFrame:
        """Those that were measured."""
        found: pd.DataFrame = self.arrow.to_pandas()
        return found[found["requests"].notna()].reset_index(drop=True)

    def plot(self, store: str | None = None) -> Any:
        """Draw requests, bytes copied and windows against the number of files (`quire.plots.costs`), of one kind of store."""
        from quire import plots
        from quire.errors import choose

        stores = list(dict.fromkeys(row.store for row in self.rows))
        of = choose(store, stores, "store") if store is not None or len(stores) > 1 else (stores or [""])[0]
        found = self.table
        return plots.costs(found[found["store"] == of].assign(window=lambda rows: rows["window"].fillna(0.0)))

    def __repr__(self) -> str:
        lines = [f"{'committer':<16} {'store':<6} {'files':>6} {'requests':>9} {'copied':>11} {'window s':>9}"]
        for row in self.rows:
            numbers = f"{row.requests:>9,} {row.copied:>11,} {row.window or 0:>9.3f}" if row.requests is not None else f"  {row.note}"
            lines.append(f"{row.committer:<16} {row.store:<6} {row.files:>6,} {numbers}")
        return "\n".join(lines)

    def check(self) -> None:
        _ = self.arrow


def costs(
    committers: Iterable[str | UnderTest] | str | UnderTest,
    store: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any],
    files: Iterable[int] = SIZES,
    delay: float = 0.02,
    jars: Any = None,
    progress: bool | Callable[[ProgressEvent], object] = True,
) -> Costs:
    """Run a job of so many small files with each committer, behind a wire on which each answer takes `delay` seconds longer.

    store            an empty destination of a service on this machine, by http: its endpoint stands in storage_options
    storage_options  with the names of s3fs and adlfs
    files            of a job, one after the other; a job of four files goes before, which is not counted
    jars             as for `run`

    Raises UsageError for words that it does not know and for a store without an endpoint to put a wire before.
    """
    from quire.committers.lab import made_of

    wanted, given, sizes = tested.chosen(committers), tested.jars_of(jars), list(files)
    for n in sizes:
        whole(n, "files", 1, 100_000)
    with about("delay"):
        if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay <= 10:
            raise UsageError("delay is the seconds that each answer takes longer, a number from 0 to 10.")
    scratch = Path(tempfile.mkdtemp(prefix="quire-lab-"))
    rows = list[Cost]()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        direct = place_of(store, scratch, storage_options)
        setting = Setting(scratch)
        stack.callback(setting.clear)
        stack.callback(setting.stop)
        ask, far = stack.enter_context(_wire(scratch, storage_options, delay))
        through = place_of(store, scratch, far)
        with Progress(progress).phase("measuring committers", total=len(wanted) * len(sizes), unit="job") as bar:
            for one in wanted:
                try:
                    tested.check(one, direct)
                    ready, _ = tested.with_jars(one, given, scratch)
                except UsageError as e:
                    rows += [Cost(one.name, direct.kind, n, note=str(e)) for n in sizes]
                    bar.update(len(sizes))
                    continue
                bench = Bench(setting, ready, direct, through)
                stack.callback(bench.stop)
                rows += _measured(bench, sizes, ask, lambda: bar.update(1))
                bench.stop()
    return Costs(rows, {**made_of("costs"), "delay": delay})


def _measured(bench: Bench, sizes: list[int], ask: Callable[[], dict[str, int]], step: Callable[[], None]) -> list[Cost]:
    rows = list[Cost]()
    for n in [4, *sizes]:
        row = Cost(bench.committer.name, bench.place.kind, n)
        try:
            run, driver, job = BenchRun(bench, f"cost_{n}_{len(rows)}"), bench.driver(), BenchJob(files=n)
            before = ask()
            with Watcher(run.place, bench.committer.logged) as seen:
                run.start(driver, job)
                said = driver.expect("end", 900)
            after = ask()
            there = run.count(*([job] if said["error"] is None else []))
            if said["error"] is not None or there.lost or there.doubled or there.files != n:
                raise QuireError(said["error"] or f"{there.files:,} files, {there.lost:,} rows lost, {there.doubled:,} doubled")
        except (QuireError, OSError) as e:
            bench.stop()
            row.note = scrub(str(e))
        else:
            for key in ("requests", "copies", "copied", "sent"):
                setattr(row, key, after[key] - before[key])
            times = seen.window(n), seen.window_log(n)
            row.window, row.window_log = (None if took is None else round(took / 1000, 4) for took in times)
            row.seconds = said["seconds"]
        rows.append(row)
        if len(rows) > 1:
            step()
    return rows[1:]


@contextmanager
def _wire(scratch: Path, options: Mapping[str, Any], delay: float) -> Iterator[tuple[Callable[[], dict[str, int]], dict[str, Any]]]:
    """A wire to the service that the options name: what asks it for its counts, and the options that lead over it."""
    string = str(options.get("connection_string", ""))
    endpoint = str(options.get("endpoint_url") or string.partition("BlobEndpoint=")[2].partition(";")[0])
    parts = urlsplit(endpoint)
    if parts.scheme != "http" or not parts.hostname or not parts.port:
        with about("storage_options"):
            raise UsageError("costs are measured on a service that is reached by http at an endpoint with a port, as an emulator here is.")
    command = [sys.executable, "-m", "quire.committers.lab.wire", f"{parts.hostname}:{parts.port}", str(delay)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(scratch))
    assert process.stdin is not None
    assert process.stdout is not None
    told, heard = process.stdin, process.stdout

    def ask() -> dict[str, int]:
        told.write("\n")
        told.flush()
        found: dict[str, int] = json.loads(heard.readline())
        return found

    try:
        far = f"127.0.0.1:{int(heard.readline())}"
        yield ask, {**options, **_moved(options, f"{parts.hostname}:{parts.port}", far)}
    finally:
        told.close()
        process.wait(10)
        heard.close()


def _moved(options: Mapping[str, Any], near: str, far: str) -> dict[str, Any]:
    return {
        key: value.replace(near, far)
        for key, value in options.items()
        if isinstance(value, str) and key in ("endpoint_url", "connection_string")
    }
