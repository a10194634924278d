"""One call over files of several schemas: each schema has a destination of its own, with its own ledger, below that of the call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

from quire.commit import names
from quire.commit.log import Log
from quire.coverage.near import Near
from quire.engine import kinds, upkeep
from quire.engine.driver import check_above, check_found, gather
from quire.engine.report import Report
from quire.engine.request import Request
from quire.errors import QuireError
from quire.planning import plan as planning
from quire.planning.routes import UNREADABLE
from quire.progress import Progress
from quire.spark.runner import Runner
from quire.storage import plain


@dataclass(frozen=True)
class SplitReport(Report):
    """The result of `quire.consolidate(…, split_by_schema=True)`: the numbers of all destinations together, and the report of each.

    reports   by the name of a schema, which its destination has below `dest`: the report of that destination
    schemas   by the same name: the columns of a file of it, as `schema=` takes them; "" of files that cannot be read
    examples  likewise: a file of it that was new

        report = quire.consolidate("/data/drop", "/data/lake", transform="parquet", split_by_schema=True)
        print(report)
        for name in report.reports:
            df = quire.read(f"/data/lake/{name}")
    """

    reports: Mapping[str, Report] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)

    @property
    def next(self) -> str:
        """The command that goes on from here: of the first destination that has something in quarantine, else of the first one."""
        first = next((report for report in self.reports.values() if report.quarantined_count), next(iter(self.reports.values())))
        return first.next

    def checked(self) -> SplitReport:
        """The report itself; AllQuarantined if nothing of the input could be processed, in no destination."""
        if self.failure:
            next(iter(self.reports.values())).checked()
        return self

    def _facts(self) -> dict[str, object]:
        rows = dict(super()._facts())
        for name, report in self.reports.items():
            rows[name] = f"{report.taken}, {report.quarantined_count:,} quarantined; {self.schemas.get(name, '')[:100]}"
        return rows

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        return {**super().as_dict(), "reports": {name: report.as_dict() for name, report in self.reports.items()}}


def gather_by_schema(request: Request, runner: Runner, bars: Progress, maintain: Any = None) -> SplitReport:
    """Gather what is new of each schema into its own destination, one after the other. A killed call goes on with each of them.

    `maintain`: how each of them is maintained (see `upkeep.wanted`).
    """
    store = request.store()
    check_above(store, "split_by_schema=True")
    found = _looked(_of(request, UNREADABLE), runner, bars)
    # What was unreadable before is not new, and a killed call may have left it to be published.
    aside = {UNREADABLE} if not found or store.is_folder(f"{UNREADABLE}/{names.STATE}") else set[str]()
    reports = dict[str, Report]()
    for name in sorted(found.keys() | aside):
        each = _of(request, name)
        reports[name] = upkeep.beside(maintain, each, runner, bars)(gather(each, runner, bars))
    return _together(plain(request.dest), reports, found)


def _together(dest: str, reports: Mapping[str, Report], found: Mapping[str, tuple[str, str]]) -> SplitReport:
    """The reports as one; nothing could be processed where that is so in each of them."""
    every = [*reports.values()]
    sums = added_up(every)
    failure = every[0].failure if all(report.failure for report in every) else ""
    schemas, examples = ({name: pair[i] for name, pair in found.items()} for i in (1, 0))
    return SplitReport(source=every[0].source, dest=dest, failure=failure, reports=reports, schemas=schemas, examples=examples, **sums)


def added_up(reports: Sequence[Report]) -> dict[str, Any]:
    """The numbers of several reports together, and what they list."""
    found: dict[str, Any] = {}
    for each in fields(reports[0]) if reports else ():
        values = [getattr(report, each.name) for report in reports]
        if isinstance(values[0], int | float | tuple) and each.name != "version":
            found[each.name] = sum(values[1:], values[0])
    return found


def _looked(request: Request, runner: Runner, bars: Progress) -> dict[str, tuple[str, str]]:
    """The schemas of the source, each with a file and its columns; nothing is left of the look."""
    log = Log(request.store()).refresh()
    base = log.settled_version()
    planned = planning.make(kinds.named(request.spec.kind).plan, runner, log, base, request.identity.job(base), request.wanted(), bars)
    check_found(log, request, planned)
    with suppress(QuireError):  # what it has written has names of its own, and nothing refers to them
        planning.discard(log.store, planned.job, planned.plan)
    return {name: (path, schema) for name, _, path, schema in planned.listed.written.routes}


def _of(request: Request, name: str) -> Request:
    """The call for one schema alone."""
    dest = f"{request.dest.rstrip('/')}/{name}"
    identity, selection = request.named(dest=dest, schema_name=name).identity, dataclasses.replace(request.selection, schema=name)
    return dataclasses.replace(request, dest=dest, identity=identity, selection=selection, near=Near())
