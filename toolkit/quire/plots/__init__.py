"""Pictures of what quire's objects know, drawn with matplotlib: are the parts even, how large are the files, what ran when and how fast,
what did each commit do, which bytes of a file are done, is each record there once, and which way costs least.

    plots.partitions(plan)      a bar for each part, what it should have, and the parts that stand out
    plots.sizes(ledger)         how many files there are of each size, before and after
    plots.tasks(ledger)         when each task ran, and how many ran at once
    plots.rates(table)          files a second against reads in flight
    plots.commits(ledger)       what each commit brought and took, and the data files after it
    plots.loads(ledger)         records of each commit of a topic's destination, at the time of the commit
    plots.coverage(ledger, path)    which bytes of a file are done, quarantined, held back or not covered
    plots.accounts(table)       what of the records that were sent is there once, lost, or double, by loader
    plots.ways(table)           several ways to do the same: the bytes that each moves, and the seconds that it takes
    plots.guarantees(table)     which committer keeps which guarantee, as the lab has measured it
    plots.windows(table)        how long readers see a part of a job's files, against their number
    plots.costs(table)          requests, bytes copied and the window of each committer, against the number of files

Each returns a `Picture`: it shows itself in a notebook, as the same picture and the same text in every run, and has
`.title`, `.note`, `.table`, `.figure`, `.svg()` and `.save(path)`. Nothing is told by colour alone. Neither pyplot nor
matplotlib's settings are touched.
"""

from __future__ import annotations

try:
    import matplotlib as mpl  # noqa: F401  # here, so that a missing extra is one clear line
except ImportError as e:
    from quire.packaging import install

    raise ImportError(f"quire.plots needs matplotlib: {install('plots')}") from e

from quire.plots.accounts import accounts
from quire.plots.bars import partitions
from quire.plots.classes import sizes
from quire.plots.curves import costs, windows
from quire.plots.guarantees import guarantees
from quire.plots.history import commits
from quire.plots.lanes import tasks
from quire.plots.loads import loads
from quire.plots.picture import Picture
from quire.plots.ranges import coverage
from quire.plots.rates import rates
from quire.plots.ways import ways

__all__ = [
    "Picture", "accounts", "commits", "costs", "coverage", "guarantees", "loads", "partitions", "rates", "sizes", "tasks", "ways",
    "windows",
]  # fmt: skip
