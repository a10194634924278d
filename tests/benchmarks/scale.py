"""Plans a job that nobody has run yet: requests, cost, hours. `docs/scale.md` is made of what this prints.

    python tests/benchmarks/scale.py requests                         how many requests of which kind, and what they cost
    python tests/benchmarks/scale.py hours --accounts 1 4 16          hours by nodes and accounts, and what limits them
    python tests/benchmarks/scale.py sizes                            the log's entry, the ledger, the driver's memory
    python tests/benchmarks/scale.py picture docs/pictures/scale.png  hours of reading over nodes

Requests are counted by quire's own planning (`scale_counts.py`), reading is simulated request by request (`scale_flow.py`), and tasks
are put on cores one after the other. `tests/engine/test_scale.py` holds the counts against real jobs, and the speeds against measured ones.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import io
import math
import random
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq
from common import table
from scale_counts import Job, Shape, batches, entry, kinds, requests, shape
from scale_flow import Flow, Line, flow

from quire.arguments import format_size
from quire.commit import protocol
from quire.planning import pack, pieces
from quire.planning.listing import TaskRun
from quire.spark import runner
from quire.storage.azure import rest as azure_rest
from quire.storage.azure import store as azure

ARTICLE = 140, 14.0  # nodes of four cores, and hours
LEDGER = 22.7  # bytes a file (RESULTS.md, rerun.py)
PARSE = 0.012, 19e-6  # seconds that a page of names takes beyond its round trip, and of a core for a name (RESULTS.md, objects.py)


@dataclass(frozen=True)
class Cluster:
    """Where it runs. All of it but the start of a task is assumed."""

    nodes: int
    cores: int = 4
    start: float = 60.0  # seconds until executors are there
    task: float = 0.05  # seconds to start one
    stragglers: float = 0.02  # share of the tasks that take `slower` times as long
    slower: float = 2.0

    @property
    def slots(self) -> int:
        return self.nodes * self.cores


@dataclass(frozen=True)
class Prices:
    """Dollars for 10,000 requests, and for an hour of a node."""

    read: float = 0.0044
    write: float = 0.055
    list: float = 0.055
    node: float = 0.19

    def of(self, asked: dict[str, int]) -> float:
        """Of requests by kind; deleting is free, a look costs as much as a read."""
        return ((asked["read"] + asked["look"]) * self.read + asked["write"] * self.write + asked["list"] * self.list) / 10_000


@dataclass(frozen=True)
class Outcome:
    """One simulated run."""

    flow: Flow
    seconds: dict[str, float]  # of each phase
    asked: dict[str, int]  # requests by kind, those refused among them

    @property
    def hours(self) -> float:
        return sum(self.seconds.values()) / 3600


def simulate(job: Job, cluster: Cluster, line: Line, seed: int = 1) -> Outcome:
    """Run a job that nothing disturbs but a busy account and slow answers. Tasks of all accounts run side by side."""
    job = replace(job, parallelism=cluster.slots)
    plan, trip = shape(job), line.latency
    page = max(trip + PARSE[0], azure_rest.PAGE * PARSE[1])
    n = len(plan.tasks)
    fares, gathering = gathered(plan, job, cluster, line, seed)
    seconds = {
        "start": cluster.start,
        "listing": plan.looks / pieces.ASKING * trip
        + _scheduled([cluster.task + pages * page + 2 * trip for pages in plan.pages], cluster.slots),
        "gathering": gathering,
        "reading manifests": n * trip,
        "publishing": n / protocol.PARALLEL * trip,
        "tidying": (n / azure.DELETING + plan.chunks + 40) * trip,
    }
    asked = kinds(requests(job, _looks(gathering, line)))
    asked["read"] += int(fares.refused * job.files)  # what is refused is billed, too
    return Outcome(fares, seconds, asked)


def gathered(plan: Shape, job: Job, cluster: Cluster, line: Line, seed: int = 1) -> tuple[Flow, float]:
    """How tasks fare that run at once, and the seconds until all have run."""
    chance, at_once = random.Random(seed), min(cluster.slots, len(plan.tasks))
    asks = tuple(b for task in plan.tasks[:4] for b in batches(task))
    fares, alone = flow(-(-at_once // job.accounts), line, job.size, asks, seed=seed), flow(1, line, job.size, asks, seed=seed).rate

    def lasts(task: pack.PlannedTask) -> float:
        factor = cluster.slower if chance.random() < cluster.stragglers else 1.0
        one_by_one = 5 + plan.objects(task)  # manifest, head, objects, the last block, segment, manifest
        return cluster.task + one_by_one * line.latency + task.files / alone * factor

    together = fares.rate * at_once / alone if fares.by == "account" else math.inf
    return fares, _scheduled([lasts(task) for task in plan.tasks], cluster.slots, together)


def _looks(seconds: float, line: Line) -> int:
    """How often the driver looks how far it is: at most, since it reads manifests, too."""
    return int(seconds / (runner.POLL + 2 * line.latency))


def _scheduled(durations: Sequence[float], slots: int, together: float = math.inf) -> float:
    """Seconds until all are done, each begun where a core is free; those that run share the speed of `together` cores."""
    waiting, now, worked = iter(durations), 0.0, 0.0  # `worked`: by a task that has run since the start
    running = [next(waiting) for _ in range(min(slots, len(durations)))]
    heapq.heapify(running)
    while running:
        now += (running[0] - worked) * max(1.0, len(running) / together)
        worked = running[0]
        following = next(waiting, None)
        if following is None:
            heapq.heappop(running)
        else:
            heapq.heapreplace(running, worked + following)
    return now


# ------------------------------------------------------------------------------------------------------------------------ tables
def requests_table(job: Job, line: Line, prices: Prices) -> str:
    """What a first run asks for."""
    asked = requests(job, _looks(simulate(job, Cluster(max(1, job.parallelism // 4)), line).seconds["gathering"], line))
    rows: list[list[object]] = [[a.why, a.kind, f"{a.count:,}", _dollars(_cost(prices, a.kind, a.count))] for a in asked]
    total = kinds(asked)
    rows.append(["all", "", f"{sum(total.values()):,}", _dollars(prices.of(total))])
    return table(["what for", "kind", "requests", "cost"], rows)


def _cost(prices: Prices, kind: str, count: int) -> float:
    return prices.of({**dict.fromkeys(("read", "list", "write", "look", "delete"), 0), kind: count})


def _dollars(amount: float) -> str:
    return f"$ {amount:,.2f}"


def hours_table(job: Job, nodes: Sequence[int], accounts: Sequence[int], line: Line, prices: Prices) -> str:
    """Hours by accounts and nodes."""
    rows: list[list[object]] = []
    for many in accounts:
        for count in nodes:
            found = simulate(replace(job, accounts=many), Cluster(count), line)
            machines = (count + 1) * found.hours * prices.node  # and one for the driver
            rows.append(
                [
                    many,
                    count,
                    f"{found.hours:.1f}",
                    f"{found.seconds['listing'] / 3600:.1f}",
                    f"{found.seconds['gathering'] / 3600:.1f}",
                    f"{sum(list(found.seconds.values())[3:]) / 3600:.1f}",
                    f"{job.files / found.seconds['gathering']:,.0f}",
                    found.flow.by,
                    f"{found.flow.refused:.2f}",
                    f"{found.flow.aside * job.files:,.0f}",
                    _dollars(prices.of(found.asked)),
                    _dollars(machines),
                    f"{ARTICLE[1] / found.hours:.1f} ×",
                ]
            )
    columns = "accounts nodes hours listing gathering ending files/s limit 503s-a-file set-aside requests machines article"
    return table([name.replace("-", " ") for name in columns.split()], rows)


def sizes_table(job: Job) -> str:
    """What a job of this size leaves and holds."""
    plan = shape(job)
    long, held = entry(plan), _held(plan)
    rows = [
        ["data files", f"{len(plan.tasks):,}, of {format_size(plan.tasks[0].bytes)}"],
        ["the log's entry, as JSON", format_size(len(long))],
        ["  as Parquet beside the log, where it is longer than 1 MiB", format_size(_compressed(long))],
        ["the ledger", f"{format_size(int(job.files * LEDGER))} in {len(plan.tasks):,} segments"],
        ["the driver's Python, for the plan", f"{format_size(held)}: {plan.runs:,} runs of files"],
        ["a rerun with nothing new: pages listed", f"{plan.looks + sum(plan.pages):,}"],
        ["  segments read", f"{sum(map(plan.objects, plan.tasks)):,}"],
    ]
    return table(["what", "how much"], rows)


def _compressed(long: bytes) -> int:
    """About what `Log` makes of it: a row a task, in zstd."""
    out = io.BytesIO()
    rows = [b'{"task":' + part for part in long.split(b'{"task":')[1:]]
    pq.write_table(pa.table({"task": [row.decode() for row in rows]}), out, compression="zstd")
    return len(out.getvalue())


def _held(plan: Shape) -> int:
    """Bytes that the driver's Python holds at once for the runs: as they came from the tasks, and as they are packed."""
    gc.collect()
    tracemalloc.start()
    came = [{**asdict(run), "object": f"_quire/jobs/0-{i:016x}/plan-{i:012x}"} for task in plan.tasks for i, run in enumerate(task.runs)]
    packed = [TaskRun(**run) for run in came]
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(packed) == plan.runs
    return size


# ----------------------------------------------------------------------------------------------------------------------- picture
def picture(job: Job, accounts: Sequence[int], line: Line, place: str) -> None:
    """Hours over nodes, a line for each number of accounts, with the knee where the account is the limit from then on."""
    from quire.plots.picture import EDGE, LEFT, WIDTH, Sheet, drawing

    nodes = [1, 2, 3, 4, 5, 6, 8, 10, 20, 40, 80, 140]
    plans = {many: shape(replace(job, accounts=many)) for many in accounts}  # as for the nodes that were named: a sketch
    colours = dict(zip(accounts, ("#0B4F8A", "#C4601A", "#2E7D4F", "#6B4C9A"), strict=False))
    with drawing():
        page = Sheet(
            f"{job.files / 1e6:,.0f} million files of {job.size / 1000:g} KB: hours of reading over nodes",
            f"Simulated: {line.latency * 1000:.0f} ms a request, four tasks a node, {line.limit:,.0f} requests/s an account. "
            "A ring marks the first number of nodes at which the account refuses requests: more nodes gain nothing there.",
            4.6,
        )
        ax = page.axes(0.75, page.top - 1.0)
        for many in accounts:
            found = [gathered(plans[many], replace(job, accounts=many), Cluster(n), line) for n in nodes]
            hours = [seconds / 3600 for _, seconds in found]
            ax.plot(nodes, hours, color=colours[many], marker="o", markersize=3.5, linewidth=1.6, linestyle=_DASHES[accounts.index(many)])
            knee = next((i for i, (fares, _) in enumerate(found) if fares.by == "account"), None)
            if knee is not None:
                ax.plot(nodes[knee], hours[knee], marker="o", markersize=11, markerfacecolor="none", markeredgecolor=colours[many])
            text = f"{many} account{'s' if many > 1 else ''}"
            ax.annotate(text, (nodes[-1], hours[-1]), xytext=(7, 0), textcoords="offset points", color=colours[many], va="center")
        ax.plot(*ARTICLE, marker="D", color="#444444", markersize=6)
        ax.annotate("the article, 1 account", ARTICLE, xytext=(-8, 8), textcoords="offset points", ha="right", color="#444444")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(0.9, 330)
        ticks, marks = [1, 2, 5, 10, 20, 50, 100, 140], [0.25, 0.5, 1, 2, 5, 10, 20, 50]
        ax.set_xticks(ticks, [str(t) for t in ticks])
        ax.set_yticks(marks, [f"{t:g}" for t in marks])
        ax.minorticks_off()
        ax.grid(color="#E4E4E4", linewidth=0.6)
        ax.set_axisbelow(True)
        page.name_axis("hours of reading (log)", page.top / 2 + 0.2)
        page.text((LEFT + WIDTH) / 2, EDGE + 0.1, "nodes of four cores (log)", ha="center")
        page.figure.savefig(place, dpi=144, metadata={"Software": None})


_DASHES = ("-", "--", "-.", ":")


def main() -> int:
    """Print a table, or draw the picture."""
    job, line, prices = Job(), Line(), Prices()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["requests", "hours", "sizes", "picture"])
    parser.add_argument("place", nargs="?", default="scale.png", help="where the picture goes")
    parser.add_argument("--files", type=int, default=job.files)
    parser.add_argument("--size", type=int, default=job.size, help="bytes of a file")
    parser.add_argument("--folders", type=int, default=job.folders, help="directories with equally many files, at most 10,000")
    parser.add_argument("--target", type=int, default=job.target, help="bytes of a data file")
    parser.add_argument("--accounts", type=int, nargs="+", default=[1])
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 5, 10, 20, 40, 80, 140], help="machines of four cores")
    parser.add_argument("--latency", type=float, default=line.latency, help="seconds from a request to its answer")
    parser.add_argument("--connect", type=float, default=line.connect, help="seconds for a new connection")
    parser.add_argument("--slow", type=float, nargs=2, default=line.slow[0], help="share of the answers that take so many times as long")
    parser.add_argument("--cpu", type=float, default=line.cpu, help="seconds of a core for a file")
    parser.add_argument("--flight", type=int, default=line.flight, help="requests of a task in flight: the option max_concurrency")
    parser.add_argument("--limit", type=float, default=line.limit, help="requests/s that an account admits")
    parser.add_argument("--egress", type=float, default=line.egress, help="bits/s that an account sends")
    for name in asdict(prices):
        unit = "an hour of a node" if name == "node" else f"10,000 requests of kind {name}"
        parser.add_argument(f"--price-{name}", type=float, default=getattr(prices, name), help=f"dollars for {unit}")
    args = parser.parse_args()
    job = Job(args.files, args.size, args.folders, args.target, args.accounts[0], 4 * args.nodes[0])
    line = Line(args.latency, (tuple(args.slow),), args.connect, args.cpu, args.limit, args.egress, args.flight)
    prices = Prices(args.price_read, args.price_write, args.price_list, args.price_node)
    if args.what == "picture":
        picture(job, args.accounts, line, args.place)
    else:
        tables = {
            "requests": lambda: requests_table(job, line, prices),
            "hours": lambda: hours_table(job, args.nodes, args.accounts, line, prices),
            "sizes": lambda: sizes_table(job),
        }
        print(tables[args.what]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
