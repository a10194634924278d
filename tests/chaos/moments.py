"""When to kill: at a call about a file that is named beforehand, by the hook; and what lies in a destination at that moment."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from processes import Driver, process, wait_until

JOB = "D/_quire/jobs/[^/]+"


@dataclass(frozen=True)
class Moment:
    """A call about a file: the one after `skip` others that match; `after`: it is made, and the next one is not."""

    name: str
    match: str
    after: bool = False
    most: int = 0  # skip up to so many

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.match}"


LISTING = [
    Moment("listing", "^os.scandir S", most=3),
    Moment("listing", f"^os.rename {JOB}/plan-[0-9a-f]+-", most=3),
    Moment("listing", f"^os.rename {JOB}/plan-[0-9a-f]+-", after=True, most=3),
]
FREEZING = [
    Moment("plan frozen", f"^os.link {JOB}/plan.entry"),
    Moment("plan frozen", f"^os.link {JOB}/plan.entry", after=True),
]
IN_A_TASK = [
    Moment("in a task", "^open S/", most=30),
    Moment("in a task", "^open S/", most=30),
    Moment("in a task", f"^open {JOB}/attempts/.*/part-", most=2),
    Moment("in a task", f"^open {JOB}/attempts/.*/part-", after=True, most=2),
]
TASK_COMMIT = [
    Moment("task commit", "^os.rename D/_quire/ledger/", most=2),
    Moment("task commit", "^os.rename D/_quire/ledger/", after=True, most=2),
    Moment("task commit", f"^os.link {JOB}/tasks/", most=2),
    Moment("task commit", f"^os.link {JOB}/tasks/", after=True, most=2),
]
JOB_COMMIT = [
    Moment("job commit", "^os.link D/_quire/log/.* commit$"),
    Moment("job commit", "^os.link D/_quire/log/.* commit$", after=True),
]
RENAMES = [
    Moment("publish", "^os.rename D/(?!_quire)", most=2),
    Moment("publish", "^os.rename D/(?!_quire)", after=True, most=2),
]
PUBLISHED = [
    Moment("publish", "^os.link D/_quire/log/.* published$"),
    Moment("publish", "^os.link D/_quire/log/.* published$", after=True),
]
CLEAN_UP = [
    Moment("clean-up", f"^shutil.rmtree {JOB}/attempts"),
    Moment("clean-up", f"^shutil.rmtree {JOB}/tasks"),
    Moment("clean-up", r"^os.remove \d+\.entry", most=2),
    Moment("clean-up", f"^os.remove {JOB}/plan-", most=2),
    Moment("clean-up", f"^os.remove {JOB}/plan.entry"),
    Moment("clean-up", f"^os.remove {JOB}/plan.entry", after=True),
]
ROUNDS = [  # of a table, whose tasks beyond the plan's sort and write; then its instant appears
    Moment("in a task", f"^open {JOB}/attempts/[1-9]", most=6),
    Moment("in a task", f"^open {JOB}/attempts/[1-9]", after=True, most=6),
    Moment("publish", r"^os.rename D/\.hoodie/\d+\.(commit\.requested|inflight)$", most=1),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.commit"),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.commit", after=True),
]
DATA = r"^os.remove \.?[0-9a-f-]{36}\S*_\d{17}\.(parquet|log)"  # of a table, by its name in the partition
UPKEEP = [  # of a table with logs: plans of compactions and cleans, what the two publish, and the files that a clean deletes
    Moment("publish", r"^os.link D/\.hoodie/\d+\.compaction\.requested"),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.compaction\.requested", after=True),
    Moment("publish", r"^os.rename D/\.hoodie/\d+\.compaction\.inflight"),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.commit"),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.commit", after=True),
    Moment("publish", r"^os.(link|rename) D/\.hoodie/\d+\.clean\.(requested|inflight)", most=1),
    Moment("clean-up", DATA, most=3),
    Moment("clean-up", DATA, after=True, most=3),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.clean$"),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.clean$", after=True),
]
ARCHIVES = [  # of a table: the archive is there, then writes and cleans leave the timeline
    Moment("publish", r"^os.(link|rename) D/\.hoodie/archived/\.commits"),
    Moment("publish", r"^os.(link|rename) D/\.hoodie/archived/\.commits", after=True),
    Moment("clean-up", r"^os.remove \d+\.(commit|deltacommit)$", most=3),
    Moment("clean-up", r"^os.remove \d+\.(commit|deltacommit)$", after=True, most=3),
    Moment("clean-up", r"^os.remove \d+\.clean$"),
]
TAKING_BACK = [  # of a table: a rollback, or a restore; then the ledger follows
    Moment("job commit", "^os.link D/_quire/log/.* commit$", most=1),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.(rollback|restore)\.requested$"),
    Moment("publish", r"^os.rename D/\.hoodie/\d+\.(rollback|restore)\.inflight$"),
    Moment("clean-up", r"^os.remove \d+\.(commit|deltacommit)$"),
    Moment("clean-up", r"^os.remove \d+\.(commit|deltacommit)$", after=True),
    Moment("clean-up", DATA, after=True),
    Moment("clean-up", r"^os.remove \d+(\.\w+)?\.(requested|inflight)$", most=1),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.(rollback|restore)$"),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.(rollback|restore)$", after=True),
    Moment("job commit", "^os.link D/_quire/log/.* foreign$"),
]
LOGS = [  # of a commit that writes logs
    Moment("publish", r"^os.rename D/\.hoodie/\d+\.deltacommit\.(requested|inflight)$", most=1),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.deltacommit"),
    Moment("publish", r"^os.link D/\.hoodie/\d+\.deltacommit", after=True),
]
# By requests to a service: where uploads wait, and where files are renamed.
_PIECE = rf"^(body of )?(PUT|POST) (D/(?!_quire)\S+ (block|uploads|partNumber)$|{JOB}/attempts/)"
_VISIBLE = "D/(?!_quire)\\S+ (blocklist|uploadId|RENAME)"
_ENTRY = r"^(body of )?PUT D/_quire/log/\d+\.entry.* "
REQUESTS = [
    Moment("listing", "^GET S"),
    Moment("listing", f"^PUT {JOB}/plan-"),
    Moment("listing", f"^PUT {JOB}/plan-", after=True),
    Moment("plan frozen", f"^PUT {JOB}/plan.entry"),
    Moment("plan frozen", f"^PUT {JOB}/plan.entry", after=True),
    Moment("in a task", _PIECE, most=2),
    Moment("in a task", _PIECE, after=True, most=2),
    Moment("task commit", "^PUT D/_quire/ledger/", most=2),
    Moment("task commit", "^PUT D/_quire/ledger/", after=True, most=2),
    Moment("task commit", f"^PUT {JOB}/tasks/", most=2),
    Moment("task commit", f"^PUT {JOB}/tasks/", after=True, most=2),
    Moment("job commit", f"{_ENTRY}commit$"),
    Moment("job commit", f"{_ENTRY}commit$", after=True),
    Moment("publish", f"^(PUT|POST) {_VISIBLE}", most=2),
    Moment("publish", f"^(PUT|POST) {_VISIBLE}", after=True, most=2),
    Moment("publish", f"{_ENTRY}published$"),
    Moment("publish", f"{_ENTRY}published$", after=True),
    Moment("clean-up", f"^DELETE {JOB}"),
    Moment("clean-up", f"^DELETE {JOB}", after=True),
]
OF_A_DRIVER = FREEZING + JOB_COMMIT + RENAMES + PUBLISHED + CLEAN_UP
OF_A_TASK = IN_A_TASK + TASK_COMMIT
ALL = LISTING + OF_A_TASK + OF_A_DRIVER

NAMES = ("starting", "listing", "plan frozen", "in a task", "task commit", "job commit", "publish", "clean-up", "between two steps")
_CLASSES = (
    ("listing", rf"os\.scandir S|os\.rename {JOB}/plan-|GET S|(body of )?PUT {JOB}/plan-"),
    ("plan frozen", rf"os\.link {JOB}/plan\.entry|(body of )?PUT {JOB}/plan\.entry"),
    ("in a task", rf"open S/|(os\.mkdir|open) {JOB}/attempts|{_PIECE}"),
    ("task commit", rf"os\.rename D/_quire/ledger/|(os\.link|os\.mkdir) {JOB}/tasks|(body of )?PUT (D/_quire/ledger/|{JOB}/tasks)"),
    ("job commit", rf"os\.link D/_quire/log/\d+\.entry (commit|abort)|{_ENTRY}(commit|abort)"),
    ("publish", rf"os\.rename D/(?!_quire)|os\.link D/_quire/log/\d+\.entry published|(body of )?(PUT|POST) {_VISIBLE}|{_ENTRY}published"),
    ("clean-up", rf"(shutil\.rmtree|os\.remove|os\.rmdir) (D/_quire/jobs|[^D]|{JOB})|DELETE D/_quire"),
)


def name_of(call: str, committer: str = "rename") -> str:
    """The moment that a call about a file belongs to."""
    if not call:
        return "starting"
    found = next((name for name, match in _CLASSES if re.match(match, call)), "between two steps")
    return "task commit" if committer == "rename_v2" and call.startswith("os.rename D/part") else found


class Hook:
    """The other side of hook/sitecustomize.py."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def order(self, match: str, skip: int = 0, after: bool = False, role: str = "any") -> None:
        """Stop the first process that comes to such a call."""
        self.count += 1
        text = json.dumps({"id": self.count, "match": match, "skip": skip, "after": after, "role": role})
        (self.folder / "next").write_text(text)
        (self.folder / "next").rename(self.folder / "order")

    def withdraw(self) -> None:
        (self.folder / "order").unlink(missing_ok=True)

    def stopped(self) -> tuple[int, str] | None:
        """The process that has stopped itself, and before which call."""
        try:
            text = (self.folder / f"stopped-{self.count}").read_text()
        except FileNotFoundError:
            return None
        pid, _, call = text.partition(" ")
        p = process(int(pid)) if call.endswith("\n") else None
        return (int(pid), call.strip()) if p and p.state == "T" else None

    def wait(self, drivers: list[Driver], seconds: float = 60) -> tuple[int, str] | None:
        """Wait until a process has stopped; None: the drivers have ended before. The order stands until then."""
        wait_until(lambda: self.stopped() or not any(d.running() for d in drivers), seconds, f"a stop; {drivers[0].said()[-2000:]}")
        found = self.stopped()
        self.withdraw()
        return found

    def last(self, pid: int) -> tuple[int, str]:
        """How many calls about files a process has made, and the last one that says something."""
        try:
            number, _, call = (self.folder / f"trace-{pid}").read_bytes().decode(errors="replace").strip(" \0").partition(" ")
        except FileNotFoundError:
            return 0, ""
        return int(number or 0), call


# ------------------------------------------------------------------------------------------------------------ seen from outside
@dataclass
class Lies:
    """What lies in a destination at a moment."""

    pieces: set[str] = field(default_factory=set)
    plans: set[str] = field(default_factory=set)
    attempts: set[str] = field(default_factory=set)
    manifests: set[str] = field(default_factory=set)
    entries: dict[str, str] = field(default_factory=dict)
    visible: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"{len(self.pieces)} plan pieces, {len(self.plans)} plans, {len(self.attempts)} attempts, {len(self.manifests)} manifests, "
            f"{len(self.entries)} log entries, {len(self.visible)} data files"
        )

    def at_rest(self) -> bool:
        """No job is open, unpublished or not cleaned."""
        kinds = list(self.entries.values())
        return not (self.pieces or self.plans or self.attempts or self.manifests) and kinds.count("commit") == kinds.count("published")


def names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def look(dest: Path) -> Lies:
    seen, state = Lies(), dest / "_quire"
    for entry in names(state / "log"):
        if entry.endswith(".entry"):
            try:
                seen.entries[entry] = json.loads((state / "log" / entry).read_bytes())["kind"]
            except OSError:
                continue
    for job in names(state / "jobs"):
        for name in names(state / "jobs" / job):
            if name.startswith("plan-"):
                seen.pieces.add(f"{job}/{name}")
            elif name == "plan.entry":
                seen.plans.add(job)
        seen.attempts |= {f"{job}/{name}" for name in names(state / "jobs" / job / "attempts")}
        seen.manifests |= {f"{job}/{name}" for name in names(state / "jobs" / job / "tasks")}
    seen.visible = set(data_files(dest))
    return seen


def look_at(objects: Mapping[str, bytes], waiting: Iterable[str]) -> Lies:
    """The same of what lies on a service; uploads that wait are attempts."""
    seen = Lies(attempts=set(waiting))
    for path in objects:
        state, _, rest = path.partition("/")
        kind, _, name = rest.partition("/")
        job, _, of_job = name.partition("/")
        if state != "_quire":
            seen.visible.add(path)
        elif kind == "log" and name.endswith(".entry"):
            if objects[path]:  # else it is what SeaweedFS keeps of a write that was cut off
                seen.entries[name] = json.loads(objects[path])["kind"]
        elif of_job.startswith("plan-"):
            seen.pieces.add(name)
        elif of_job == "plan.entry":
            seen.plans.add(job)
        elif of_job.startswith("attempts/"):
            seen.attempts.add(name)
        elif of_job.startswith("tasks/"):
            seen.manifests.add(name)
    return seen


def data_files(dest: Path) -> list[str]:
    """What a reader of the plain directory sees, also while it changes."""
    found = []
    for where, folders, files in os.walk(dest):
        folders[:] = [f for f in folders if f != "_quire"]
        found += [os.path.relpath(f"{where}/{name}", dest) for name in files]
    return found


def _new_entry(kind: str) -> Callable[[Lies, Lies], bool]:
    return lambda now, before: any(k == kind for name, k in now.entries.items() if name not in before.entries)


PHASES: dict[str, Callable[[Lies, Lies], bool]] = {
    "listing": lambda now, before: bool(now.pieces - before.pieces),
    "plan frozen": lambda now, before: bool(now.plans - before.plans),
    "in a task": lambda now, before: bool(now.attempts - before.attempts),
    "task commit": lambda now, before: len(now.manifests - before.manifests) >= 1,
    "many task commits": lambda now, before: len(now.manifests - before.manifests) >= 10,
    "job commit": _new_entry("commit"),
    "publish": lambda now, before: bool(now.visible - before.visible),
    "published": _new_entry("published"),
    "clean-up": lambda now, before: _new_entry("published")(now, before) and len(now.manifests) < len(before.manifests),
}


def wait_for(phase: str, process: Driver, dest: Path, before: Lies) -> Lies | None:
    """Look from outside until a driver without a hook is in the phase; None: it ended first."""
    most = before  # of manifests, which a clean-up takes away
    while process.running():
        now = look(dest)
        if PHASES[phase](now, most if phase == "clean-up" else before):
            return now
        if len(now.manifests) > len(most.manifests):
            most = replace(now, entries=before.entries)
        time.sleep(0.003)
    return None
