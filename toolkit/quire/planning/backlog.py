"""One listing for many commits: each takes the next part of what a listing has found, less what others have touched since.

listing → in order (see `ordered`) → a plan for each commit

Nobody needs what waits: a call that is started again resumes the open job, and lists once for the rest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire.commit import names
from quire.commit.log import Log
from quire.coverage import segments
from quire.errors import FormatError, NotFoundError
from quire.planning.listing import PLAN, Later, Listed, TaskRun, write_rows
from quire.planning.ordered import Bound, Ordered
from quire.planning.plan import Lister, Look, freeze_columns


class Backlog:
    """The finds of a call's listing, of which each of its commits takes the next part; without a bound one takes all.

    It plans as a kind of input does (`lister`), and lists again only where nothing is left of the last listing.
    """

    def __init__(self, lister: Lister, bound: Bound) -> None:
        self._lister, self._bound = lister, bound
        self._listed, self._ratio = Listed(), 1.0
        self._ordered: Ordered | None = None
        self._next, self._settled, self._touched = 0, True, _Touched(0)
        self.fresh = False  # whether the last plan was made by a new listing

    @property
    def place(self) -> tuple[int, int]:
        """Which commit of the listing the next one is, from 1 on, and how many there are."""
        return (self._next + 1, self._ordered.commits) if self._ordered else (1, 1)

    def plan(self, look: Look) -> tuple[Listed, float]:
        """The plan of the next commit: of the listing that there is, or of a new one."""
        # What replaces older rows is one commit: each would write the data files anew in which these are.
        found = self._left(look) if self._ordered and not look.wanted.policy.supersede else None
        self.fresh = found is None
        return found or self._list(look), self._ratio

    def ended(self, job: str, *, ours: bool, settled: bool) -> bool:
        """A job has ended; `ours`: by the plan that was made last. True: all that was planned since the listing is settled."""
        if ours:
            self._touched.ours.add(job)
            self._next += 1
        self._settled &= settled
        return self._settled

    def _list(self, look: Look) -> Listed:
        self._ordered, self._next, self._settled, self._touched = None, 0, True, _Touched(look.base)
        listed, self._ratio = self._lister(look)
        if not self._bound or look.wanted.policy.supersede or self._bound.holds(listed.new, listed.written.bytes):
            return listed
        try:
            self._ordered = Ordered((TaskRun(**run) for run in listed.written.runs), look.log.store, self._bound)
        except NotFoundError:  # others have ended a job of this name, and cleaned it with this plan: whoever takes it up plans anew
            return listed
        groups = [*{run["group"] for run in listed.written.runs}]
        self._listed = replace(listed, written=replace(listed.written, runs=[], splits=0, bytes=0))
        first = self._part(look, self._ordered)
        assert first is not None
        first.later.groups = groups
        return first

    def _left(self, look: Look) -> Listed | None:
        """The plan of the next commit; None where nothing is left of the listing."""
        try:
            self._touched.add(look.log, look.base)
        except FormatError:  # a checkpoint has merged what others have committed, and it was swept: a new listing takes it out
            self._ordered = None
        while self._ordered is not None:
            if self._next >= self._ordered.commits:
                self._ordered = None
            elif (found := self._part(look, self._ordered)) is not None:
                freeze_columns(look, found.written)
                return found
            else:
                self._next += 1
        return None

    def _part(self, look: Look, ordered: Ordered) -> Listed | None:
        """Write the rows of the next commit to a plan; None where others have touched all of them."""
        found, wanted, last = replace(self._listed, new=0, written=replace(self._listed.written, runs=[])), look.wanted, ""
        for rows in ordered.commit(self._next):
            left = self._touched.without(rows)
            self._settled &= left.num_rows == rows.num_rows
            paths = pc.unique(left.column("path")).to_pylist()
            found.new, last = found.new + len(paths) - (last in paths[:1]), (paths or [last])[-1]
            for root in pc.unique(left.column("root")).to_pylist():
                mine = left.filter(pc.equal(left.column("root"), root)).select(PLAN.names)
                name = names.plan_parquet(look.job, look.plan, f"part-{names.new_id()}")
                write_rows(wanted.cut, wanted.roots[root], root, name, mine, look.log.store, found.written)
        found.later = Later(ordered.commits - self._next - 1, *ordered.after(self._next))
        return found if found.written.splits else None


class _Touched:
    """The paths that commits of others have touched since a listing, by their hashes: of two with one hash, both wait for the next one.

    Our own jobs of the listing have committed other files of it, so they are not looked at: planning does not grow with what is done.
    """

    def __init__(self, version: int) -> None:
        self._version, self.ours = version, set[str]()
        self._hashes = np.empty(0, np.uint64)

    def add(self, log: Log, until: int) -> None:
        """Look at the commits up to a version, each once. FormatError where a segment of one is not there any more."""
        for _, commit in log.commits(self._version, until):
            if commit.job in self.ours:
                continue
            found = [self._hashes]
            for task in log.in_effect(commit):
                paths = [uncover.path for uncover in task.coverage.uncovers]
                if task.coverage.segment:
                    rows = segments.read(log.store, task.coverage.segment, ["path", "carried"])
                    paths += rows.filter(pc.invert(rows.column("carried"))).column("path").to_pylist()
                found.append(_hashed(paths))
            self._hashes = np.unique(np.concatenate(found))
        self._version = until

    def without(self, rows: pa.Table) -> pa.Table:
        """The rows whose paths nobody has touched."""
        if not len(self._hashes):
            return rows
        return rows.filter(pa.array(~np.isin(_hashed(rows.column("path").to_pylist()), self._hashes)))


def _hashed(paths: list[str]) -> np.ndarray:
    return np.fromiter((xxhash.xxh3_64_intdigest(path.encode()) for path in paths), np.uint64, len(paths))
