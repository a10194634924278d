"""An explicit-state model checker for quire's exactly-once protocol.

The actors (driver, task attempt, aborter, cleaner, expirer, reader ...) are plain generators: every `yield` is ONE storage operation, and between
any two of them an actor may pause for ever, so a crash and a zombie are both "is not scheduled (for a while)".  Breadth-first
search over all interleavings; a violation is printed with the shortest trace.  In addition, from EVERY store that was reached,
everything is killed and one fault-free recovery run is made (final()), after which loss, doubles and orphans are checked.

  model.py                 the corrected protocol in all scenarios, then every bug once (each must be caught)
  model.py --correct       only the corrected protocol          model.py --bug NAME   one bug, with its trace
  model.py --list          the bugs and what each one changes    model.py --deep       larger bounds (minutes)

Checked in every state: (a) no byte of a source in two live files, (b) ledger and segments agree with the data, (c) the files of every
version that isn't expired exist and have the committed attempt's content; a committed, not yet published one can still be published,
(d) a lister sees no uncommitted file, (f) all of it with zombies, (h) a log reader sees the old rows of a path or the new ones, in every
version, never both, neither or a mixture, (i) no expired file comes back, (j) what a purge has deleted at its source is finished in the
ledger and lives in a data file.  After final(): (a) each byte in exactly one live file,
(e) no orphans.  (g) from every state an end is reachable, and no driver gives up.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import sys
import time
from collections import deque


# ---------------------------------------------------------------------------------------------------------------- configuration
@dataclasses.dataclass(frozen=True)
class Config:
    name: str
    committer: str  # rename | v2 | s3 | azure
    drivers: tuple  # (name, intent, shape): shape is an index into SHAPES
    units: int = 2  # bytes of source file "f"
    extra: int = 0  # attempts beyond one a task and driver (retry or speculation)
    timeouts: int = 1  # ambiguous operations: effect, no effect (or, with late, effect at any later time)
    late: bool = False
    actors: tuple = ()  # aborter | cleaner | truncater | lister-of-segments
    replace: bool = False  # the source file is replaced once, at any time
    again: bool = False  # ... and once more after that
    arrive: bool = False  # a second source file arrives once, at any time
    expire: int = 0  # uploads / uncommitted blocks that the store drops by itself
    coarse: bool = False  # a task attempt's first writes are one step (smaller search)
    fine: bool = False  # clean() deletes name by name (larger search)
    empty: bool = False  # an empty source file "e"
    bad: bool = False  # version 1 of "f" can't be parsed
    fix: bool = False  # ... until it is repaired (once, at any time)
    churn: bool = False  # "f" changes for ever
    vanish: bool = False  # "f" is deleted once, at any time
    seed: str = ""  # what is committed already: see SEEDS
    retire: str = ""  # superseded files leave after each job: they are deleted ("none"), or older versions stay readable ("kept")
    export: bool = False  # another format's metadata offers the destination: it is brought on before superseded files leave
    shared: bool = False  # variant: the final name is the task's, not the attempt's
    bug: str = ""


SHAPES = (  # how a planner packs the bytes of one file: tasks, each a tuple of splits, each a tuple of bytes
    lambda us: ((us,),),  # 0: one task, one split
    lambda us: tuple(((u,),) for u in us) or (((),),),  # 1: one task a byte: t0=[0] t1=[1]
    lambda us: tuple(((u,),) for u in reversed(us)),  # 2: the same the other way round: t0=[1] t1=[0]
    lambda us: tuple(((u,),) for u in us) or (((),),),  # 3, BOUNDED: as 1
)
BOUNDED = 3  # each commit takes one of the tasks of a listing
G: Config = None  # the configuration being checked
ROUNDS = 4
TIMEOUT = "timeout"
LOG = ("log",)


def bug(name):
    return G.bug == name


# ------------------------------------------------------------------------------------------- pure functions of a log (its fold)
# commit = ("commit", job, tasks, left out); a task = (task, attempt, writer, covers, rows, removes, uncovers)
#   covers: (path, version, bytes, done|bad|mark); of a purge (path, version, bytes, purging|purged, data file): it restates rows that are
#           there; beside `removes` without the file: the state in which finished rows are carried over   rows: what its data file holds, (path, version, bytes), new and carried over
#   removes: data files that it replaces            uncovers: (path, version, bytes) that leave the ledger
def outcome(log, job):
    """The first commit or abort of this job decides it."""
    for e in log:
        if e[0] in ("commit", "abort") and e[1] == job:
            return e


def published(log, job):
    for e in log:
        if e[0] == "published" and e[1] == job:
            return e


def truth(us):
    return us or ("empty",)  # an empty file is one cell of its own


def cells(us):
    return us if bug("empty_not_covered") else truth(us)


FINISHED = ("purging", "purged")


def done_as(p, v):
    return f"{p}@{v}"  # the path under which the rows of a purged file stand: its name is free again


def plain(p):
    return p.partition("@")[0]


def restates(t):
    return tuple(c for c in t[3] if c[3] in FINISHED and not t[5])


def together(tasks):
    return any(t[5] for t in tasks)  # a job that removes data files is all or nothing


def in_effect(log, e, reader=False):
    """The tasks of a commit that count: not the lost ones; none at all if a job that removes files lost one (it is void)."""
    p = published(log, e[1])
    if reader and not p and not bug("reader_before_publish"):
        return ()
    if p and p[2] and together(e[2]) and not (bug("lost_by_task") or bug("removes_despite_lost")):
        return ()
    return tuple(t for t in e[2] if not (p and t in p[2]))


def commit_entries(log, since=0):
    return tuple(e for e in log[since:] if e[0] == "commit" and outcome(log, e[1]) is e)


def commits(log, since=0):
    """(job, task tuple) of every committed task that counts."""
    for e in commit_entries(log, since):
        for t in in_effect(log, e):
            yield e[1], t


def file_of(job, t):
    return fin(job, t[0], t[1]) if t[4] else None


def fold(log, since=0, start=((), ()), reader=False, cell=None):
    """Ledger {(path, byte): (version, state, data file)}, live data files {name: rows}, and the first promise broken on the way."""
    cell = cell or cells
    cov, live, why = dict(start[0]), dict(start[1]), None
    for e in commit_entries(log, since):
        tasks = in_effect(log, e, reader)
        before = {(plain(k[0]), k[1]) for k, x in cov.items() if x[1] in ("done",) + FINISHED}
        kept = {k for k, x in cov.items() if x[1] in FINISHED}
        for t in e[2] if bug("removes_despite_lost") and published(log, e[1]) else tasks:
            for f in t[5]:
                live.pop(f, None)
                cov = {k: x for k, x in cov.items() if x[2] != f}
            for p, v, us in t[6]:
                for k in [k for k in cov if k[0] == p and (k[1] in cell(us) or bug("uncover_whole_key"))]:
                    if cov[k][0] == v or bug("uncover_whole_key"):
                        del cov[k]
                if bug("uncover_takes_purged"):
                    cov = {k: x for k, x in cov.items() if plain(k[0]) != p}
        for t in tasks:
            f = file_of(e[1], t)
            for p, v, us, st, old in restates(t):
                for u in cell(us):
                    at = next((k for k in ((p, u), (done_as(p, v), u)) if k in cov and cov[k][0] == v and cov[k][2] == old), None)
                    if at is None:
                        why = why or f"(b) a purge speaks of {p}[{u}], which is not there"
                    else:
                        cov.pop(at)
                        cov[done_as(p, v), u] = (v, st, old)
            carried = {(p, v, u): st for p, v, us, st in (c for c in t[3] if len(c) == 4) if st in FINISHED for u in cell(us)}
            new = {(p, u): (v, st, None) for p, v, us, st in (c for c in t[3] if len(c) == 4) if st not in FINISHED for u in cell(us)}
            for p, v, us in t[4]:
                for u in cell(us):
                    if (p, v, u) in carried and not bug("carry_forgets_purge"):
                        new[done_as(p, v), u] = (v, carried[p, v, u], f)
                    else:
                        new[p, u] = (v, "done", f)
            for k in new:
                if k in cov or (new[k][1] == "done" and (done_as(k[0], new[k][0]), k[1]) in cov):
                    why = why or f"(a) double: byte {k[0]}[{k[1]}] is committed twice"
            cov.update(new)
            if f:
                live[f] = t[4]
        for f, rows in live.items():
            for p, v, us in rows:
                if any(cov.get((p, u)) != (v, "done", f) and cov.get((done_as(p, v), u), (0, 0, 0))[::2] != (v, f) for u in cell(us)):
                    why = why or f"(a) a live file holds rows of {p} that the ledger doesn't know there: they may be read again"
        done = {k: x[0] for k, x in cov.items() if x[1] == "done"}
        for k in before - {(plain(k[0]), k[1]) for k, x in cov.items() if x[1] in ("done",) + FINISHED}:
            if e[1][1][0] != "F":
                why = why or f"(h) neither: {k[0]}[{k[1]}] was visible before {e[1]}, and is not after it"
        for k in kept - {k for k, x in cov.items() if x[1] in FINISHED}:
            why = why or f"(j) {e[1]} takes out {k[0]}[{k[1]}], which was purged"
        if len({(k[0], v) for k, v in done.items()}) != len({k[0] for k in done}):
            why = why or "(h) two versions of one path are visible"
    return cov, live, why


def covered(log, since=0):
    """{(path, byte): versions} touched by the commits since then, whether covered or uncovered; and the files that they removed."""
    touched, removed, said = {}, set(), set()
    if bug("conflict_net"):  # what is covered in the end, not what was touched
        return {k: (x[0],) for k, x in fold(log, since)[0].items()}, ((), ())
    for _, t in commits(log, since):
        removed.update(t[5])
        said.update(c[4] for c in restates(t) if c[4])
        for p, v, us in touches(t[3], t[5]) + t[6]:
            for u in cells(us):
                touched[p, u] = touched.get((p, u), ()) + (v,)
    return touched, (tuple(sorted(removed)), tuple(sorted(said)))


def touches(covers, removes):
    """Carried rows are no touch."""
    return tuple(c[:3] for c in covers if not (removes and c[3] in FINISHED))


def open_commits(log):
    return tuple(e[1] for e in commit_entries(log) if not published(log, e[1]))


def settled(log):
    """The largest version h so that every commit in log[0..h) has its `published` in log[0..h) too."""
    return max(h for h in range(len(log) + 1) if not open_commits(log[:h]))


def pins(log):
    return tuple(e[1] for e in log if e[0] == "pin" and ("unpin",) + e[1:] not in log)


def horizon(log):
    return max([0] + [e[1] for e in log if e[0] == "expired"])


def away(log):
    """The version up to which superseded files leave the directory."""
    return max([0] + [e[2] for e in log if e[0] == "expired"])


def retired(log):
    """Up to which versions deletions are done, and superseded files have left the directory."""
    return tuple(max([0] + [e[i] for e in log if e[0] == "retired"]) for i in (1, 2))


def exported(log):
    """The version that the export offers, as the log says it."""
    return max([0] + [e[1] for e in log if e[0] == "export"])


def came_and_went(log, after):
    """The data files that commits after a version have added and removed, as far as they are published."""
    tasks = [(e[1], t) for i, e in enumerate(log) if i >= after and e in commit_entries(log) for t in in_effect(log, e, reader=True)]
    added, removed = {file_of(j, t) for j, t in tasks if t[4]}, {f for _, t in tasks for f in t[5]}
    return tuple(sorted(added - removed)), tuple(sorted(removed - added))


def superseded(log, after, until):
    """((version from which on it does not count, data file), …) of commits that were published in (after, until]; 0 for a void one's own."""
    found = ()
    for e in commit_entries(log):
        p = published(log, e[1])
        at = log.index(p) + 1 if p else 0
        if after < at <= until:
            counts = in_effect(log, e)
            found += tuple((at, f) for t in counts for f in t[5])
            if not counts and together(e[2]):
                found += tuple((0, file_of(e[1], t)) for t in e[2] if t[4])
    return tuple(sorted(found))


def dead_files(log, h):
    """Data files named by log[0..h) that version h and later ones don't have."""
    live = fold(log[:h])[1]
    return tuple(sorted({file_of(e[1], t) for e in commit_entries(log[:h]) for t in e[2] if t[4]} - set(live)))


def overlaps(splits, done):
    if bug("split_id_conflict"):  # compares whole splits instead of ranges
        return any(all((p, u) in done for u in us) and len({1 for (q, w) in done if q == p}) == len(us) for p, v, us in splits)
    if bug("conflict_by_version"):  # compares (path, version) instead of path
        return any(v in done.get((p, u), ()) for p, v, us in splits for u in us)
    if bug("empty_no_conflict"):
        return any((p, u) in done for p, v, us in splits for u in us)
    return any((p, u) in done for p, v, us in splits for u in cells(us)) or any(
        q == p and any(w != v for w in vs) for p, v, us in splits for (q, u), vs in done.items()
    )


def conflict(m, touched, removed):
    """Does a manifest or a plan's task meet what was committed since its base?"""
    moved = bool(set(m[4]) & set(removed[1])) or any(c[3] in FINISHED and not m[4] and c[4] in removed[0] for c in m[2])
    return (
        overlaps(touches(m[2], m[4]), touched)
        or (overlaps(m[5], touched) and not bug("uncover_no_conflict"))
        or (bool(set(m[4]) & set(removed[0])) and not bug("remove_no_conflict"))
        or (moved and not bug("restate_no_conflict"))
    )


def plan_tasks(kind, shape, listing, cov, live, again):
    """(task, (splits, removes, uncovers, state)): what is left to do for this kind of intent.
    P: a purge begins (what is done becomes purging)   Q: it ends (what is gone becomes purged)
    x, y: run   M: mark as done elsewhere   T: retry what is in quarantine   R: reprocess changed files   F: forget file f   C: compact"""
    out = []
    listing = tuple(x for x in listing if again.count(x[0]) < 2 or bug("left_out_for_ever"))
    if kind == "C":
        if len(live) > 1:
            out.append(((), tuple(sorted(live)), (), "done"))
    elif kind in "PQ":
        here = {p: v for p, v, us in listing}
        for f in sorted({x[2] or "" for x in cov.values()}, key=repr):
            mine = {
                k: x
                for k, x in cov.items()
                if (x[2] or "") == f
                and (
                    x[1] == "done" and whole(k[0], x[0], here, cov)
                    if kind == "P"
                    else x[1] == "purging" and (here.get(plain(k[0])) != x[0] or bug("purged_early"))
                )
            }
            if mine:
                said = ranges({(plain(k[0]), k[1]): x for k, x in mine.items()})
                out.append((tuple(r + (f or None,) for r in said), (), (), "purging" if kind == "P" else "purged"))
    elif kind == "F":
        mine, also = {k: x for k, x in cov.items() if k[0] == "f"}, {}
        if bug("forget_takes_purged"):
            also = {("f", k[1]): x for k, x in cov.items() if k[0] != "f" and plain(k[0]) == "f"}
        if mine or also:
            files = {x[2] for x in (*mine.values(), *also.values()) if x[2]}
            out.append(((), tuple(sorted(files)), ranges(mine) + ranges(also), "done"))
    elif kind == "R":
        changed = tuple((p, v, us) for p, v, us in listing if any(k[0] == p and x[0] != v for k, x in cov.items()))
        old = {k: x for k, x in cov.items() if any(k[0] == c[0] for c in changed)}
        also = {}
        if bug("reprocess_takes_purged"):
            also = {(plain(k[0]), k[1]): x for k, x in cov.items() if any(k[0] != c[0] == plain(k[0]) for c in changed)}
        files = tuple(sorted({x[2] for x in (*old.values(), *also.values()) if x[2]}))
        if changed and shape == 0:
            out.append((changed, files, ranges(old) + ranges(also), "done"))
        elif changed:  # one task a file that is rewritten
            p, v, us = changed[0]
            for i, u in enumerate(truth(us)):
                out.append((((p, v, (u,)),), files[i : i + 1], ranges({k: x for k, x in old.items() if x[2] in files[i : i + 1]}), "done"))
    elif kind == "T":
        for p, v, us in listing:
            bad = {k: x for k, x in cov.items() if k[0] == p and x[:2] == (v, "bad")}
            if bad:
                out.append((ranges(bad), (), ranges(bad), "done"))
    else:
        for p, v, us in listing:
            mine = {k: x for k, x in cov.items() if k[0] == p}
            if any(k[0] == done_as(p, v) for k in cov) and not bug("purging_not_covered"):
                continue  # the very file that was purged, or is about to be
            if bug("purged_is_old"):
                mine = {k: x for k, x in cov.items() if plain(k[0]) == p}
            other = [x for x in mine.values() if x[0] != v]
            gone = ()
            if other and all(x[1] == "bad" for x in mine.values()) and not bug("quarantine_by_path"):
                gone, mine = ranges(mine), {}  # only quarantined, and there is a new version: new work
            elif other:
                continue  # a changed file is for reprocess
            rest = tuple(u for u in truth(us) if (p, u) not in mine)
            if rest:
                for part in SHAPES[shape](us) if not us else SHAPES[shape](rest):
                    out.append((tuple((p, v, x) for x in part), (), gone, "mark" if kind == "M" else "done"))
    for i, (splits, removes, uncovers, st) in enumerate(out):
        riding = {(plain(k[0]), k[1]): x for k, x in cov.items() if x[1] in FINISHED and x[2] in removes}
        for state in FINISHED if riding else ():  # finished rows of files that are removed are carried as what they are
            splits += tuple(r + (state,) for r in ranges({k: x for k, x in riding.items() if x[1] == state}))
        out[i] = (splits, removes, uncovers, st)
    return tuple((f"t{i}", x) for i, x in enumerate(out))


def whole(p, v, here, cov):
    """Whether all of the file that is there is done."""
    return here.get(p) == v and all(cov.get((p, u), (0, 0))[:2] == (v, "done") for u in truth(tuple(range(SIZE(p)))))


def ranges(cov):
    """Coverage as splits: one a path and version."""
    out = {}
    for (p, u), x in sorted(cov.items(), key=repr):
        out.setdefault((p, x[0]), []).append(u)
    return tuple((p, v, tuple(u for u in us if u != "empty")) for (p, v), us in out.items())


# -------------------------------------------------------------------------------------------------------------- names of objects
def fin(job, task, a):  # the final name carries job, task and attempt
    return ("fin", job, task, "" if G.shared else a)


def tmp(job, task, a):
    return ("tmp", job, task, a)


def seg(job, task, a):
    return ("seg", job, task, "" if bug("segment_shared_name") else a)


def slot(tip, entry):  # the log's next number; the bug: a name of the job's own, as Hudi's instants have
    return ("slot", ("own",) + entry[:2]) if bug("unnumbered_log") else ("slot", tip)


def block(a):
    return "block0" if bug("azure_shared_blocks") else a


def handle(job, task, a):  # where the output waits until it is published
    f = fin(job, task, a)
    return tmp(job, task, a) if G.committer in ("rename", "v2", "copy") else ("up", f, a) if G.committer == "s3" else ("blk", f, block(a))


# ------------------------------------------------------------------------------------------------------------------ the protocol
def attempt(job, task, spec, a, writer):
    """One task attempt.  `a` is its id (unique), `writer` the process (the model's truth)."""
    splits, removes, uncovers, st = spec
    rows = () if st == "mark" or st in FINISHED else splits
    covers = tuple(x[:3] + (st,) + x[3:] for x in splits)
    left, real = (), rows
    if removes or (st != "mark" and st not in FINISHED and (G.replace or G.bad or G.churn or G.vanish)):
        covers, rows, left, real = yield ("read", spec, writer)  # If-Match on the planned version; a changed split is left out
        if not removes:
            uncovers = tuple(x for x in uncovers if x[0] not in left)  # and what it would have uncovered stays
    content = (writer, real)
    f = fin(job, task, a) if rows else None  # no rows: no data file
    out = handle(job, task, a)  # temporary directory, upload, or uncommitted blocks
    if G.coarse:
        yield ("puts", (((out, content),) if rows else ()) + ((seg(job, task, a), (covers, rows, f)),))
    elif rows:
        yield ("put", out, content)
    if G.committer == "v2" and rows:
        while True:
            r = yield ("ren", tmp(job, task, a), f)
            if r != TIMEOUT:  # "gone" after a timeout: it was moved by the first try, or cleaned
                break
    if not G.coarse:
        yield ("put", seg(job, task, a), (covers, rows, f))
    man = (a, writer, covers, rows, removes, uncovers, left)
    key = ("man", job, task)
    if bug("manifest_overwrite"):
        yield ("put", key, man)
        m = yield ("get", key)
        if m is not None and m[0] != a:  # "the last one wins, the others abort"
            yield ("del", (out,))
        return
    while True:
        r = yield ("pia", key, man)
        if r == "ok":
            return  # won
        if r == "exists":
            break
        if bug("ambiguous_loses"):
            break
        if bug("get_absent_loses"):
            m = yield ("get", key)
            if m is None:
                break
        # correct: repeat the same put until the store gives a definite answer
    if not (bug("ambiguous_loses") or bug("get_absent_loses")):
        m = yield ("get", key)
        if m is None or m[0] == a:  # mine after all; or the job is over and was cleaned: touch nothing
            return
    # lost: another attempt's manifest is there.  Drop own temporary output; the segment is left to clean().
    if G.committer in ("rename", "s3", "copy"):
        yield ("del", (out,))
    elif G.committer == "azure" and bug("azure_discard_deletes"):
        yield ("del", (f,))
    if bug("loser_deletes_segment"):
        yield ("del", (seg(job, task, a),))
    if bug("v2_loser_deletes_final") and G.committer == "v2":
        yield ("del", (f,))


def untouched(log, version, tasks, ours):
    """The tasks of an older listing whose paths nobody has touched since, but for our own jobs of it; None: list again."""
    others = [e for e in commit_entries(log, version) if e[1] not in ours]
    taken = {r[0] for e in others for t in in_effect(log, e) for r in (*t[3], *t[6])}
    if not bug("backlog_as_listed"):
        tasks = tuple(x for x in tasks if not any(split[0] in taken for split in x[1][0]))
    return (len(log), tasks, ours) if tasks else None


def driver(me, intent, shape):
    """quire.consolidate() and the other verbs: recover, then jobs until nothing is left to do."""
    if intent == "P" and shape == 0:
        return (yield from purger(me))
    again = ()  # what was left out in this call, once for each time
    rest = None  # of a bounded call: the version up to which it has looked, the tasks of its listing, its own jobs of them
    for rnd in range(ROUNDS + (shape == BOUNDED)):
        jobs = yield ("jobs",)  # list the jobs FIRST, then read the log
        while True:  # roll forward until every commit up to the tip is published:
            log = yield LOG  # what a plan was made from never changes afterwards
            todo = open_commits(log)
            if not todo:
                break
            for j in todo:
                yield from publish(me, j)
            if bug("plan_before_roll_forward"):
                break
            if bug("base_unpublished"):
                log = yield LOG
                break
        mine = tuple(j for j in jobs if j[1] == intent and outcome(log, j) is None)
        own = not mine or bug("retry_takes_old_job")
        todo = j = done = None
        if mine:
            job = mine[0]  # a restart goes on with the open job of the same intent
        else:
            if rest:
                rest = untouched(log, *rest)
            listing = (yield ("sources",)) if intent[0] not in "FC" and not rest else ()
            if bug("ledger_lists_segments"):
                done = yield ("coverage_by_listing",)
                cov, live = dict.fromkeys(done, (1, "done", None)), {}
                done = None
            elif "checkpointer" in G.actors or "checkpointers" in G.actors:  # ledger = checkpoint + the log's entries after it
                ck = yield ("get", ("checkpoint",))
                v, merged = ck or (0, ((), ()))
                cov, live, _ = fold(log, v, merged)
                if bug("checkpoint_union"):  # takes over what later entries cover, not what they uncover
                    cov = {**dict(merged[0]), **cov}
                del ck, v, merged, _
            else:
                cov, live = fold(log)[:2]
            tasks = plan_tasks(intent[0], shape, listing, cov, live, again)
            del cov, live
            if shape == BOUNDED:
                rest = rest or (len(log), tasks, ())
                tasks = tuple(("t0", x) for _, x in rest[1][:1])
            if not tasks:
                return "done"
            base = 0 if bug("job_id_by_intent") else len(log)
            job = (base, intent)
            if bug("job_id_by_intent") and outcome(log, job):
                return "done"
            pid = "x" if bug("plan_parts_shared_name") else f"{me}{rnd}"
            if bug("base_read_later"):
                log = yield LOG
            yield ("put", ("parts", job, pid), tasks)  # Parquet first, under a name of its own ...
            if bug("plan_overwrite"):
                r = yield ("put", ("plan", job), (pid, len(log)))
            else:
                while True:  # ... then plan.entry, put if absent
                    r = yield ("pia", ("plan", job), (pid, len(log)))
                    if r != TIMEOUT:
                        break
            done = pid
            del listing, base, tasks, pid, r
        del jobs, mine, log
        plan = yield ("get", ("plan", job))  # whoever froze it, this is the plan
        if plan is None:
            continue  # decided and cleaned meanwhile
        tasks = yield ("get", ("parts", job, plan[0]))
        log = yield LOG
        dead = outcome(log, job) is not None  # a stale freeze of a decided job: start over
        since = len(log) if bug("conflict_since_restart") else plan[1]
        del log
        if dead or tasks is None:
            yield from clean(job)
            continue
        if rest and plan[0] == done:  # not before that look: another plan of this name may have been committed
            rest = (rest[0], rest[1][1:], (*rest[2], job))
        done = None
        del plan, dead
        have = yield ("manifests", job)
        n = 0
        for t, splits in tasks:
            if not any(m[0] == t for m in have):
                a = str(n) if bug("attempt_number") else f"{me}{rnd}{n}"
                yield ("spawn", "attempt", (job, t, splits, a, f"{me}{rnd}{n}"))
        have = t = splits = a = None
        names = tuple(t for t, _ in tasks)
        while True:
            r = yield ("await", job, names)  # "go", or a task failed / is slow: one more attempt of it
            if r == "go":
                break
            n += 1
            t = r
            splits = dict(tasks)[t]
            a = str(n) if bug("attempt_number") else f"{me}{rnd}{n}"
            yield ("spawn", "attempt", (job, t, splits, a, f"{me}{rnd}{n}"))
            t = splits = a = None
        del names, r, n, tasks
        kind, left = yield from commit(me, job, since)
        again += left
        del since, left
        if not bug("clean_before_publish"):
            yield from publish(me, job)
        yield from clean(job)
        if bug("clean_before_publish"):
            yield from publish(me, job)
        if G.export:
            yield from exporter()
        if G.retire:
            yield from retirer()
        del job
        if kind == "commit" and intent[0] in "FTC" and own:  # one job is what was asked for; an open one that was found is not it
            return "done"
        del kind, own
    return "gave up"


def purger(me):
    """purge_sources(): what a dead one has left ends; rows become purging; their sources go on condition of the version; rows become purged."""
    r = yield from driver(me + "q", "Q", 1)
    if r != "gave up" and not bug("purge_before_entry"):
        r = yield from driver(me, "P", 1)
    if r == "gave up":
        return r
    listing = yield ("sources",)
    log = yield LOG
    cov = fold(log)[0]
    if bug("purge_before_entry"):
        go = tuple((p, v) for p, v, us in listing if whole(p, v, dict(x[:2] for x in listing), cov))
    else:
        go = tuple(sorted({(plain(k[0]), x[0]) for k, x in cov.items() if x[1] == "purging"}))
    del log, cov, listing, r
    if bug("purged_early"):
        yield from driver(me + "e", "Q", 1)
    for p, v in go:
        yield ("remove_if", p, v)
    p = v = go = None
    if bug("purge_before_entry"):
        yield from driver(me, "P", 1)
    if bug("purged_never"):
        return "done"
    return (yield from driver(me + "e", "Q", 1))


def looker():
    """plan(): looks only, publishes nothing, so it folds the newest settled version; then, perhaps, plan.run()."""
    log = yield LOG
    h = len(log) if bug("look_unsettled") else settled(log)
    cov, live = fold(log[:h])[:2]
    del log
    listing = yield ("sources",)
    tasks = plan_tasks("x", 0, listing, cov, live, ())
    del cov, live, listing
    if not tasks:
        return "done"
    job = (h, "x")
    yield ("put", ("parts", job, "L"), tasks)
    del tasks
    if bug("plan_run_new_base"):
        log = yield LOG
        h = len(log)
        del log
    while True:
        r = yield ("pia", ("plan", job), ("L", h))
        if r != TIMEOUT:
            break
    del r, job, h
    return (yield from driver("L", "x", 0))


def again_of(e):
    """The paths that this job left out, set aside or replaced: a call takes each up twice at most, and leaves it to the next call then."""
    if e[0] == "abort" or bug("replaced_for_ever"):
        return e[-1]
    return e[-1] + tuple(sorted({c[0] for t in e[2] for c in t[3] if c[3] == "bad" or t[6]}))


def commit(me, job, since):
    """Put one entry at the tip.  Never act on the put's own answer: read the log again and do what it says."""
    tip = None
    while True:
        log = yield LOG
        e = outcome(log, job)
        if e:
            return e[0], again_of(e)
        mans = yield ("manifests", job)
        touched, removed = covered(log, since)
        if bug("commit_blind_retry") and tip is not None:
            touched, removed = {}, ((), ())
        if bug("partial_drop"):  # takes only the overlapping ranges out of the entry, not the file
            keep = tuple(
                (
                    t,
                    m[0],
                    m[1],
                    tuple((p, v, tuple(u for u in us if (p, u) not in touched), st) for p, v, us, st in m[2]),
                    tuple((p, v, tuple(u for u in us if (p, u) not in touched)) for p, v, us in m[3]),
                )
                + m[4:6]
                for t, m in mans
            )
        else:  # a task that overlaps at all is dropped whole; the rest is planned anew
            keep = tuple((t,) + m[:6] for t, m in mans if (m[2] or m[4] or m[5]) and not conflict(m, touched, removed))
        if any(m[4] for t, m in mans) and (len(keep) < len(mans) or any(m[6] for t, m in mans)):
            if not bug("drop_part"):  # a job that removes files is all or nothing
                keep = ()
        if bug("abort_without_files") and not any(t[4] for t in keep):
            keep = ()
        left = tuple(sorted({p for t, m in mans for p in m[6]}, key=repr))
        tip = len(log)
        entry = ("commit", job, keep, left) if keep else ("abort", job, left)
        if not keep and bug("retry_when_empty"):
            continue
        del touched, removed, log, mans, e, left
        r = yield ("pia", slot(tip, entry), entry)
        if r != "ok" and bug("commit_failure_aborts"):  # "commit failed, so abort the job": deletes without asking the log
            victims = yield ("list", "tmp", job)
            yield ("del", victims)
            victims = yield ("list", "up", job)
            yield ("del", victims)
            return "abort", ()
        if r == "ok" and bug("trust_put"):  # publishes from memory, without a look at the log
            for t in keep:
                yield from publish_one(job, t)
            return "commit", ()
        del keep, entry, r


def publish_one(job, t):
    """True: the file is there.  False: its handle is dead and the file does not exist; it never will."""
    task, a = t[0], t[1]
    f = fin(job, task, a)
    while True:
        if bug("copy_rename"):  # "rename" as a copy by the client, then a delete
            x = yield ("get", tmp(job, task, a))
            r = "gone"
            if x is not None:
                yield ("put", f, ("half of " + x[0], x[1]))
                yield ("put", f, x)
                yield ("del", (tmp(job, task, a),))
                r = "ok"
        elif G.committer == "rename":
            r = yield ("ren", tmp(job, task, a), f)
        elif G.committer == "copy":  # the store's own copy: the whole object at once; the source stays until clean
            r = yield ("copy", tmp(job, task, a), f)
        elif G.committer == "s3":
            r = yield ("complete", f, a)
        elif G.committer == "azure":
            r = yield ("blocklist", f, block(a))
        else:
            r = "gone"
        if r == "ok":
            return True
        if r == "gone":
            if bug("gone_is_fatal"):
                return "fatal"
            if bug("gone_is_done"):
                return True
            x = yield ("get", f)  # NoSuchUpload / source missing: look whether it is there
            return x is not None


def publish(me, job):
    """Idempotent; anyone may do it, from the log entry alone; then `published` goes into the log."""
    log = yield LOG
    e = outcome(log, job)
    if e is None or e[0] == "abort" or published(log, job):
        return
    tasks = e[2]
    del log, e
    yield from publish_tasks(job, tasks)


def publish_tasks(job, tasks):
    lost = ()
    if bug("published_early"):
        log = yield LOG
        yield ("pia", slot(len(log), ("published", job, lost)), ("published", job, lost))
    for t in tasks:
        if bug("publish_from_manifest"):
            m = yield ("get", ("man", job, t[0]))
            if m is None:
                continue
            t = (t[0],) + m[:6]
        if not t[4] and not bug("no_file_is_lost"):
            continue  # a task without a data file has nothing to publish
        ok = yield from publish_one(job, t)
        if ok == "fatal":
            return
        if not ok:
            lost += (t,)
    if bug("lost_not_logged"):
        lost = ()
    tasks = t = ok = None
    while True:
        log = yield LOG
        if published(log, job):
            return
        yield ("pia", slot(len(log), ("published", job, lost)), ("published", job, lost))
        del log


def abort(job):
    """A job ends by an entry in the log, or not at all."""
    if bug("abort_not_logged"):
        yield from clean(job)
        return
    while True:
        log = yield LOG
        if outcome(log, job):
            return
        yield ("pia", slot(len(log), ("abort", job)), ("abort", job, ()))


def clean(job):
    """Only after `published` or `abort` is in the log.  Deletes everything of the job but what its commit entry names."""
    log = yield LOG
    e = outcome(log, job)
    if e is None and not (bug("clean_open_job") or bug("abort_not_logged")):
        return
    if e and e[0] == "commit" and not published(log, job) and not bug("clean_before_publish"):
        return
    keep = tuple(t[:2] for t in in_effect(log, e)) if e and e[0] == "commit" else ()
    del log, e
    kinds = ("tmp", "up", "seg") + (("fin",) if G.committer == "v2" else ()) + ("man", "parts", "plan")
    for kind in kinds:  # plan.entry last, so that what a crash leaves is still found
        keys = yield ("list", kind, job)
        if kind in ("seg", "fin"):
            keys = tuple(k for k in keys if not any(k[2] == task and k[3] in (a, "") for task, a in keep))
        if keys and not G.fine:
            yield ("del", keys)
        elif keys:
            for k in keys:
                yield ("del", (k,))
        k = keys = None


def aborter():
    """recover(abort="open"): a user gives up whatever is open, a plan without plan.entry too (plan() writes no more than that)."""
    jobs = yield ("planned",)
    for j in jobs:
        if bug("abort_parts_unlogged"):
            plan = yield ("get", ("plan", j))
            if plan is None:
                plan = yield ("list", "parts", j)
                yield ("del", plan)
                continue
        yield from abort(j)
        yield from clean(j)


def cleaner():
    """quire.recover(D): roll forward, then clean what is decided."""
    log = yield LOG
    todo = open_commits(log)
    del log
    for j in todo:
        yield from publish("c", j)
    j = None
    if bug("retire_before_clean"):
        yield from retirer()
    todo = yield ("residue",)
    for j in todo:
        yield from clean(j)
    if G.export:
        yield from exporter()
    if G.retire:
        yield from retirer()


def checkpointer():
    """Merges the ledger up to version v, which is as far as every commit is published (a lost task would be covered for ever).

    It goes on from the checkpoint that there is.
    """
    ck = yield ("get", ("checkpoint",))
    log = yield LOG
    v = len(log) if bug("checkpoint_unpublished") else settled(log)
    if bug("checkpoint_cut"):  # each commit is published, but perhaps only after v: what it lost isn't seen
        v = min([len(log)] + [i for i, e in enumerate(log) if e[0] == "commit" and not published(log, e[1])])
    since, before = ck or (0, ((), ()))
    cov, live = fold(log[:v], since, before)[:2]
    if bug("checkpoint_copies"):  # rows that left since are in it still
        cov = {**dict(before[0]), **cov}
    merged = tuple(tuple(sorted(x.items(), key=repr)) for x in (cov, live))
    del log, ck, since, before, cov, live
    if bug("checkpoint_names_later_tip"):
        log = yield LOG
        v = len(log)
        del log
    yield ("put", ("checkpoint",), (v, merged))


def checkpointers():
    """Two of them, one after the other."""
    yield from checkpointer()
    yield from checkpointer()


def expirer():
    """Deletes data files that no version from h on has; the log says so first."""
    log = yield LOG
    todo = open_commits(log)
    early = pins(log)
    del log
    for j in todo:
        yield from publish("e", j)
    j = todo = h = None
    while True:
        log = yield LOG
        h = min((h or len(log),) + (() if bug("expire_ignores_pins") else early if bug("expire_pins_read_early") else pins(log)))
        if not (bug("expire_unpublished") or (bug("expire_unsettled") and pins(log))):
            h = settled(log[:h])
        dead = dead_files(log, h)
        if not dead:
            return
        if horizon(log) >= h or bug("expire_without_entry"):
            break
        yield ("pia", slot(len(log), ("expired", h, h)), ("expired", h, h))
        del log, dead
    del log, h, early
    todo = yield ("residue",)  # so that no slow publisher finds anything to publish again
    if not bug("expire_before_clean"):
        for j in todo:
            yield from clean(j)
    j = todo = None
    yield ("expire", dead)


def retirer():
    """Superseded files leave the directory: the log says first which, computed from the same read as the pins, and then that they have left."""
    if bug("retire_unpublished"):  # it trusts the commit alone
        log = yield LOG
        yield ("expire", tuple(sorted({f for e in commit_entries(log) for t in e[2] for f in t[5]})))
        return
    log = yield LOG
    early = pins(log)
    del log
    while True:
        log = yield LOG
        held = () if bug("retire_ignores_pins") else early if bug("retire_pins_read_early") else pins(log)
        if G.export and not bug("retire_ignores_exports"):
            held += (exported(log),)
        until = settled(log[: min((len(log),) + held)])
        fresh = superseded(log, away(log), until)
        forgotten = tuple(log.index(published(log, e[1])) + 1 for e in commit_entries(log) if e[1][1][0] == "F" and published(log, e[1]))
        below = until if G.retire == "none" else 0 if bug("forgotten_is_kept") else max([0, *(at for at in forgotten if at <= until)])
        below = max(below, horizon(log))
        if not fresh or bug("retire_without_entry"):
            break
        yield ("pia", slot(len(log), ("expired", below, until)), ("expired", below, until))
        del log
    if bug("retire_without_entry"):
        going, low, high = fresh, below, until
    else:
        low, high = horizon(log), away(log)
        going = superseded(log, retired(log)[1], high)
        if (low, high) <= retired(log):
            return
    del log, early, held, until, fresh, forgotten, below
    if bug("retired_early"):
        log = yield LOG
        yield ("pia", slot(len(log), ("retired", low, high)), ("retired", low, high))
        del log
    todo = yield ("residue",)
    if not bug("retire_before_clean"):
        for j in todo:
            yield from clean(j)
    j = todo = None
    for at, f in going:
        if at <= low:
            yield ("expire", (f,))
        else:
            yield ("keep", f, ("kept", at, f))
    at = f = going = None
    if not bug("kept_stays"):
        done = yield ("kept", low)
        yield ("del", done)
        done = None
    while not bug("retire_without_entry"):
        log = yield LOG
        if retired(log) >= (low, high):
            return
        yield ("pia", slot(len(log), ("retired", low, high)), ("retired", low, high))
        del log


def exporter():
    """The export's own commits say what data files came and went, and up to which version; then the log says how far it has come."""
    log = yield LOG
    v = len(log) if bug("export_unsettled") else settled(log)
    del log
    while True:
        n, u = yield ("offers",)
        log = yield LOG
        u = exported(log) if bug("export_by_log") else u
        made = v, *came_and_went(log[:v], u)
        del log
        if u >= v or not (made[1] or made[2]):
            break
        yield ("put" if bug("export_over") else "pia", ("delta", n + 1), made)
        del n, u, made
    n = u = made = None
    while True:
        log = yield LOG
        if exported(log) >= v:
            return
        yield ("pia", slot(len(log), ("export", v)), ("export", v))
        del log


def place(f):
    """Where a reader finds a file: in the directory, or among those that are kept; None: nowhere."""
    x = yield ("get", f)
    if x is not None:
        return f
    x = yield ("find kept", f)
    return x


def reader():
    """Takes the file list of the newest version, then file after file."""
    log = yield LOG
    v = len(log)
    files = tuple(sorted(fold(log, reader=True)[1]))
    del log
    for f in files:
        x = yield from place(f)
        if x is None:
            log = yield LOG
            return "done" if horizon(log) > v else "! a reader misses a file of a version that nobody has expired"


def pinner():
    """read(version=v) that must not fail: pins an older version in the log, reads it, unpins it."""
    log = yield LOG
    v = len(log)
    while True:
        log = yield LOG
        if horizon(log) > v and not bug("pin_unchecked"):
            return "done"  # refused: it is expired already
        if ("pin", v) in log:
            break
        yield ("pia", slot(len(log), ("pin", v)), ("pin", v))
    files = tuple(sorted(fold(log[:v], reader=True)[1]))
    del log
    if G.retire and not bug("pin_beside_retire"):
        yield from retirer()  # what has begun to leave has left before the places are looked up
    places = ()
    for f in files:
        x = yield from place(f)
        if x is None:
            return "! a pinned version has lost a file"
        places += (x,)
    for f in places if G.retire else ():  # a running scan holds its paths
        x = yield ("get", f)
        if x is None:
            return "! a file of a pinned version has moved under its reader"
    f = files = x = places = None
    while True:
        log = yield LOG
        if ("unpin", v) in log:
            return "done"
        yield ("pia", slot(len(log), ("unpin", v)), ("unpin", v))


def late():
    """A publisher of the seed's commit that read the log before it was published, and goes on now."""
    yield from publish_tasks((0, "s"), SEEDS[G.seed][0])


def truncater():
    """Merges the log into a checkpoint and deletes the merged entries (the corrected protocol never deletes an entry)."""
    log = yield LOG
    yield ("put", ("floor",), log)
    if bug("log_truncate") or bug("trust_put"):
        yield ("del", tuple(("slot", i) for i in range(len(log))))


def reader_of_old_floor():
    """A recoverer whose log read is not one operation: floor pointer, then entry after entry; then it publishes what it saw."""
    floor = yield ("get", ("floor",))
    log = floor or ()
    del floor
    while True:
        e = yield ("get", ("slot", len(log)))
        if e is None:
            break
        log += (e,)
    todo = tuple((e[1], t) for e in log if e[0] == "commit" and not published(log, e[1]) for t in e[2])
    del log, e
    for j, t in todo:
        yield from publish_one(j, t)


def final_driver():
    """The fault-free recovery run made after everything was killed: all intents, then abort what is open, then clean everything."""
    seen = ("F",)  # nothing is forgotten a second time
    for name, intent, shape in sorted(G.drivers + ((X,) if "looker" in G.actors else ()), key=lambda x: "xyMFRCTP".index(x[1][0])):
        if intent not in seen:
            seen += (intent,)
            r = yield from driver("R" + name, intent, shape)
            if r == "gave up":
                return r
    yield from aborter()
    todo = yield ("residue",)
    for j in todo:
        yield from abort(j)
        yield from clean(j)
    yield from cleaner()
    if "F" in [x[1] for x in G.drivers] and "x" in [x[1] for x in G.drivers]:
        r = yield from driver("Rx", "x", 0)  # what the aborted job had not forgotten, or had
        yield from cleaner()
    if any(x[1] == "P" for x in G.drivers) and any(x[1] == "x" for x in G.drivers):
        r = yield from driver("Rz", "x", 0)  # what has come since
        yield from cleaner()
    if G.seed and not G.retire:
        yield from expirer()
    return "done"


PROGRAMS = dict(
    expirer=expirer,
    looker=looker,
    reader=reader,
    pinner=pinner,
    late=late,
    driver=driver,
    attempt=attempt,
    aborter=aborter,
    cleaner=cleaner,
    truncater=truncater,
    checkpointer=checkpointer,
    checkpointers=checkpointers,
    final=final_driver,
    floorreader=reader_of_old_floor,
)


# --------------------------------------------------------------------------------------------------------------- the object store
def job_of(key):
    return key[1][1] if key[0] in ("up", "blk") else key[1]


def SIZE(p):
    return {"f": G.units, "e": 0}.get(p, 1)


def full_log(d):
    log = d.get(("floor",), ())
    while True:
        e = d.get(("slot", len(log)))
        if e is None:
            break
        log += (e,)
    if G.bug == "unnumbered_log":  # entries under names of their own, in name order, as Hudi's instants are
        log += tuple(v for k, v in sorted(((k, v) for k, v in d.items() if k[0] == "slot" and not isinstance(k[1], int)), key=repr))
    return log


def mutate(d, op):
    """Effect of a writing operation: (answer, new store)."""
    kind = op[0]
    n = dict(d)
    if kind == "put":
        n[op[1]] = op[2]
        if op[1][0] == "tmp" and op[1] in d:  # two writers in one directory: mixed content
            n[op[1]] = op[2] if d[op[1]] == op[2] else ("mixed:" + op[2][0], op[2][1])
        return None, n
    if kind == "puts":
        n.update(op[1])
        return None, n
    if kind == "pia":
        if op[1] in d:
            return "exists", d
        n[op[1]] = op[2]
        return "ok", n
    if kind == "del":
        for k in op[1]:
            n.pop(k, None)
        return None, n
    if kind == "remove_if":
        there = d.get(("src", op[1]))
        if there is not None and (there == op[2] or bug("purge_unconditional")):
            n[("gone", op[1], n.pop(("src", op[1])))] = 1
        return None, n
    if kind == "expire":
        for k in op[1]:
            n.pop(k, None)
            n[("ghost", k)] = 1
        return None, n
    if kind == "keep":
        if op[1] in d:
            n[op[2]] = n.pop(op[1])
            n[("ghost", op[1])] = 1
        return None, n
    if kind == "copy":
        if op[1] not in d:
            return "gone", d
        n[op[2]] = n[op[1]]
        return "ok", n
    if kind == "ren":
        if op[1] not in d:
            return "gone", d
        n[op[2]] = n.pop(op[1])
        return "ok", n
    if kind == "complete":
        if ("up", op[1], op[2]) not in d:
            return "gone", d
        n[op[1]] = n.pop(("up", op[1], op[2]))
        return "ok", n
    if kind == "blocklist":
        mine = ("blk", op[1], op[2])
        if mine in d:
            n[op[1]] = n[mine]
        elif op[1] not in d:  # neither staged nor committed there: InvalidBlockList
            return "gone", d
        for k in d:  # every Put Block List drops the blob's uncommitted blocks
            if k[0] == "blk" and k[1] == op[1]:
                n.pop(k)
        return "ok", n
    raise AssertionError(op)


AMBIGUOUS = {"pia", "ren", "copy", "complete", "blocklist"}


def execute(d, op, faults):
    """All outcomes of one operation: [(answer, store, spawned)]; none if the operation has to wait."""
    kind = op[0]
    if kind == "log":
        return [(full_log(d), d, None)]
    if kind == "get":
        return [(d.get(op[1]), d, None)]
    if kind == "find kept":
        return [(next((k for k in d if k[0] == "kept" and k[2] == op[1]), None), d, None)]
    if kind == "offers":
        n = max([-1] + [k[1] for k in d if k[0] == "delta"])
        return [((n, d["delta", n][0] if n >= 0 else 0), d, None)]
    if kind == "kept":
        return [(tuple(sorted((k for k in d if k[0] == "kept" and k[1] <= op[1]), key=repr)), d, None)]
    if kind == "list":
        return [(tuple(sorted((k for k in d if k[0] == op[1] and job_of(k) == op[2]), key=repr)), d, None)]
    if kind == "jobs":
        return [(tuple(sorted({k[1] for k in d if k[0] == "plan"})), d, None)]
    if kind == "planned":
        return [(tuple(sorted({k[1] for k in d if k[0] in ("plan", "parts")})), d, None)]
    if kind == "residue":
        kinds = {"tmp", "up", "seg", "man", "parts", "plan"} | ({"fin"} if G.committer == "v2" else set())
        log = full_log(d)
        named = {(j, t[0], t[1]) for j, t in commits(log)}
        return [
            (
                tuple(sorted({job_of(k) for k in d if k[0] in kinds and not (k[0] in ("seg", "fin") and (k[1], k[2], k[3]) in named)})),
                d,
                None,
            )
        ]
    if kind == "manifests":
        return [(tuple(sorted((k[2], v) for k, v in d.items() if k[0] == "man" and k[1] == op[1])), d, None)]
    if kind == "sources":
        return [(tuple(sorted((k[1], v, tuple(range(SIZE(k[1])))) for k, v in d.items() if k[0] == "src")), d, None)]
    if kind == "coverage_by_listing":
        return [(tuple(sorted({(p, u) for k, v in d.items() if k[0] == "seg" for p, ver, us, st in v[0] for u in us})), d, None)]
    if kind == "read":
        splits, removes, uncovers, st = op[1]
        covers, rows, left, real = [], [], [], []
        for x in splits:
            p, v, us = x[:3]
            if x[3:]:
                covers.append(x)  # finished: its row is carried, and nothing is read
            elif d.get(("src", p)) != v and not bug("no_if_match"):
                if bug("changed_is_quarantined"):
                    covers.append(x + ("bad",))
                else:
                    left.append(p)
            elif d.get(("bad", p)) in (v, "all"):
                if bug("quarantine_not_covered"):
                    left.append(p)
                else:
                    covers.append(x + ("bad",))
            else:
                covers.append(x + ("done",))
                rows.append(x)
                real.append((p, d.get(("src", p)), us))
        off = {(p, v, u) for p, v, us in uncovers for u in truth(us)}
        for f in removes:
            if f not in d:
                left.append(f)
            elif not bug("rewrite_drops_others"):
                for p, v, us in d[f][1]:
                    rest = tuple(u for u in truth(us) if (p, v, u) not in off or bug("rewrite_keeps_old"))
                    if rest:
                        rows.append((p, v, tuple(u for u in rest if u != "empty")))
                        real.append(rows[-1])
        return [((tuple(covers), tuple(rows), tuple(left), tuple(real)), d, None)]
    if kind == "spawn":
        return [(None, d, (op[1], op[2]))]
    if kind == "await":
        have = {k[2] for k in d if k[0] == "man" and k[1] == op[1]}
        out = []
        if have >= set(op[2]) or outcome(full_log(d), op[1]):
            out.append(("go", d, None))
        elif faults and d.get(("extra",), 0):
            for t in op[2]:
                if t not in have:
                    n = dict(d)
                    n[("extra",)] -= 1
                    out.append((t, n, None))
        return out
    res, n = mutate(d, op)
    out = [(res, n, None)]
    if faults and kind in AMBIGUOUS and d.get(("timeouts",), 0):
        for store in (n, d) if n is not d else (d,):
            m = dict(store)
            m[("timeouts",)] -= 1
            out.append((TIMEOUT, m, None))
        if G.late and kind == "pia":
            m = dict(d)
            m[("timeouts",)] -= 1
            m[("flight", op[1])] = op[2]
            out.append((TIMEOUT, m, None))
    return out


def environment(d):
    """The steps that happen without any actor of ours: [(label, store)]."""
    out = []
    for k in d:
        if k[0] == "flight":
            n = dict(d)
            v = n.pop(k)
            out.append((f"a put of {k[1]} that timed out takes effect now", mutate(n, ("pia", k[1], v))[1]))
        if k[0] in ("up", "blk") and d.get(("expire",), 0):
            n = dict(d)
            n.pop(k)
            n[("expire",)] -= 1
            out.append((f"the store expires {k}", n))
    if d.get(("replace",), 0):
        n = dict(d)
        n[("replace",)] = 0
        n[("src", "f")] = 2
        out.append(("the source file f is replaced", n))
    if d.get(("again",), 0) and d.get(("src", "f")) == 2:
        n = dict(d)
        n[("again",)] = 0
        n[("src", "f")] = 3
        out.append(("the source file f is replaced once more", n))
    if d.get(("churn",), 0):
        n = dict(d)
        n[("src", "f")] = 3 - d[("src", "f")]
        out.append(("the source file f changes", n))
    if d.get(("vanish",), 0):
        n = dict(d)
        n[("vanish",)] = 0
        n.pop(("src", "f"))
        out.append(("the source file f is deleted", n))
    if d.get(("fix",), 0):
        n = dict(d)
        n[("fix",)] = 0
        n.pop(("bad", "f"), None)
        out.append(("the source file f can be parsed now", n))
    if d.get(("arrive",), 0):
        n = dict(d)
        n[("arrive",)] = 0
        n[("src", "g")] = 1
        out.append(("a new source file g arrives", n))
    return out


# ---------------------------------------------------------------------------------------------------------------- what is promised
ANALYSIS = {}


def analysis(log):
    """The answer of the log alone: (promise broken, data files named, tasks that count, {file: content} that readers may ask for)."""
    if log not in ANALYSIS:
        decided = [e[1] for e in log if e[0] in ("commit", "abort")]
        why = "(f) one job has two outcomes in the log" if len(set(decided)) != len(decided) else fold(log, cell=truth)[2]
        must, writer = {}, {file_of(j, t): (t[2], t[4]) for e in commit_entries(log) for j, t in ((e[1], t) for t in e[2]) if t[4]}
        seen = {}
        for v in range(len(log) + 1):  # every version a reader may take
            cov, live, bad = fold(log[:v], reader=True, cell=truth)
            why = why or (bad and bad + " (as a log reader sees it)")
            done = {(plain(k[0]), k[1]) for k, x in cov.items() if x[1] in ("done",) + FINISHED}
            if seen and seen - done and not (v and log[v - 1][0] == "published" and log[v - 1][1][1][0] == "F"):
                why = why or "(h) neither: a log reader loses sight of " + str(sorted(seen - done))
            seen = done
            if v >= horizon(log) or v in pins(log):
                must.update({f: writer[f] for f in live})
        ANALYSIS[log] = why, set(writer), tuple(commits(log)), must
    return ANALYSIS[log]


def invariant(d):
    """The first promise that this store breaks, or None."""
    log = full_log(d)
    why, names, tasks, must = analysis(log)
    if why:
        return why
    if any(k[0] in ("gone", "src") for k in d):
        why = purge_promise(d, *fold(log, cell=truth)[:2])
        if why:
            return why
    for job, t in tasks:
        task, a, writer, covers, rows = t[:5]
        f = file_of(job, t)
        s = d.get(seg(job, task, a))
        if s is None:
            return f"(b) the log names a ledger segment of {task} that does not exist"
        if (s[0] != covers and not bug("partial_drop")) or s[2] != f:
            return f"(b) the ledger segment of {task} is not the committed attempt's"
        if f is None:
            continue
        x = d.get(f)
        if x is not None and x != (writer, rows):
            return f"(b,c) the file of {task} has content {x}, the log says {(writer, rows)}"
        if x is None and not G.expire and not published(log, job):
            h = handle(job, task, a)
            if G.committer == "v2" or h not in d:
                return f"(c) the committed output of {task} is gone before it was published"
            if d[h] != (writer, rows):
                return f"(c) the committed, unpublished output of {task} is another attempt's: {d[h]}"
    kept = {k[2] for k in d if k[0] == "kept"}
    for f in must:
        if f not in d and f not in kept:
            return f"(c) a version that isn't expired names a file that does not exist: {f}"
    for k in d:
        if k[0] == "fin" and k not in names and G.committer != "v2":
            return f"(d) a lister sees {k}, which no commit names"
        if k[0] == "fin" and ("ghost", k) in d:
            return f"(i) an expired file came back: {k}"
    return export_promise(d, log) if G.export else None


def offered(d):
    """(promise broken, data files that the export's readers find, the version that it offers)."""
    files, v = set(), 0
    for n in range(sum(k[0] == "delta" for k in d)):
        if ("delta", n) not in d:
            return "(l) the export has a gap", files, v
        v, adds, removes = d["delta", n]
        if files & set(adds) or set(removes) - files:
            return "(l) the export adds a file twice, or takes one out that it does not have", files, v
        files = (files | set(adds)) - set(removes)
    return None, files, v


def export_promise(d, log):
    """Readers of an export find a whole version of the destination, and each of its files in its place."""
    why, files, v = offered(d)
    if why:
        return why
    if v and files != set(fold(log[:v], reader=True)[1]):
        return f"(l) the export offers {sorted(files)}, which is not version {v}"
    gone = [f for f in files if f not in d]
    return f"(l) the export names files that have left their places: {gone}" if gone else None


def forgets(log, at):
    """Whether rows were forgotten after a version, which every file that was superseded before may hold."""
    found = (published(log, e[1]) for e in commit_entries(log) if e[1][1][0] == "F" and in_effect(log, e))
    return any(p and log.index(p) + 1 >= at for p in found)


def purge_promise(d, cov, live):
    """Each file deleted at its source is finished, and in a data file that lives; `purged` is never said of what is still there."""
    for k in d:
        if k[0] == "gone":
            for u in truth(tuple(range(SIZE(k[1])))):
                x = cov.get((done_as(*k[1:]), u))
                if x is None or x[2] not in live:
                    return f"(j) {k[1]} was deleted at its source in version {k[2]}, and the ledger does not say that this is finished"
        if k[0] == "src" and any(key[0] == done_as(k[1], d[k]) and x[1] == "purged" for key, x in cov.items()):
            return f"(j) {k[1]} is said to be purged, and it is still there"
    return None


def end_promise(d):
    """After final(): exactly once, nothing left over."""
    log = full_log(d)
    cov, live, _ = fold(log, cell=truth)
    claimed = sorted((k for k in cov if ("src", k[0]) in d), key=repr)
    want = sorted(((k[1], u) for k in d if k[0] == "src" for u in truth(tuple(range(SIZE(k[1]))))), key=repr)
    kinds = {x[1][0] for x in G.drivers} | ({"x"} if "looker" in G.actors else set())
    if "P" in kinds and any(x[1] == "purging" for x in cov.values()):
        return "(j) the ledger does not say what became of a file that was to be purged"
    if claimed != want and not (kinds <= set("RFCTP")):
        return f"(a) loss or double after recovery: {claimed} committed, {want} wanted"
    for (p, u), (v, st, f) in cov.items():
        now = d.get(("src", p))
        if now and "R" in kinds and v != now:
            return f"(a) {p} was not reprocessed: version {v} is committed, version {now} is there"
        if now and st == "bad" and ((v != now and kinds & set("xy")) or (d.get(("bad", p)) != now == v and "T" in kinds)):
            return f"(a) {p}[{u}] stays in quarantine, though it can be read"
        if st == "bad" and not G.bad:
            return f"(a) {p}[{u}] is in quarantine, though it could be read at any time"
        if st in ("done",) + FINISHED and f not in live:
            return f"(b) {p}[{u}] is said to be in {f}, which is not live"
    named = {(j, t[0], t[1]) for j, t in commits(log)}
    pinned = {f for v in pins(log) for f in fold(log[:v], reader=True)[1]}
    for k in d:
        if k[0] in ("tmp", "up", "man", "parts", "plan"):
            return f"(e) orphan after recovery and clean: {k}"
        if k[0] in ("seg", "fin") and (k[1], k[2], k[3]) not in named and not (k[3] == "" and any(n[:2] == k[1:3] for n in named)):
            return f"(e) orphan after recovery and clean: {k}"
        if (G.seed or G.retire) and k[0] == "fin" and k not in live and not pins(log):
            return f"(e) a removed file is left, and a lister sees its rows: {k}"
        if k[0] == "kept" and k[1] <= horizon(log):
            return f"(e) a file is kept, and no version that can be read has it: {k}"
        if k[0] == "kept" and forgets(log, k[1]) and not pins(log):
            return f"(k) forgotten rows are kept: {k}"
    if G.export and offered(d)[1] != set(live):
        return f"(l) the export does not offer what is there: {sorted(offered(d)[1])}"
    return None


# ------------------------------------------------------------------------------------------------------------------- the machinery
class Processes:
    """A generator's state is (where it stands, its locals), frame by frame; equal states share one number."""

    def __init__(self):
        self.ids, self.op, self.history, self.next, self.result, self.name = {}, [], [], {}, [], []

    def _number(self, gen, op, result, history):
        frames, g = [], gen
        while g is not None and getattr(g, "gi_frame", None) is not None:
            frames.append(
                (
                    g.gi_code.co_name,
                    g.gi_frame.f_lasti,
                    tuple(sorted((k, tuple(sorted(v.items())) if isinstance(v, dict) else v) for k, v in g.gi_frame.f_locals.items())),
                )
            )
            g = g.gi_yieldfrom
        key = (history[0][0], tuple(frames), op, result)
        if key not in self.ids:
            self.ids[key] = len(self.op)
            self.op.append(op)
            self.history.append(history)
            self.result.append(result)
            self.name.append(
                history[0][0] + ":" + ",".join(str(x) for x in (history[0][1][-1:] if history[0][0] == "attempt" else history[0][1][:1]))
            )
        return self.ids[key]

    def start(self, prog, args):
        return self._run(((prog, args),))

    def step(self, pid, answer):
        k = (pid, answer)
        if k not in self.next:
            self.next[k] = self._run(self.history[pid] + ((answer,),))
        return self.next[k]

    def _run(self, history):
        gen = PROGRAMS[history[0][0]](*history[0][1])
        try:
            op = next(gen)
            for (answer,) in history[1:]:
                op = gen.send(answer)
        except StopIteration as stop:
            return self._number(None, None, stop.value, history)
        return self._number(gen, op, None, history)


class Checker:
    def __init__(self, cfg, limit=2_000_000):
        global G
        G = cfg
        self.cfg, self.limit = cfg, limit
        ANALYSIS.clear()
        self.P = Processes()
        self.sids, self.stores, self.bad = {}, [], []
        self.exec, self.env, self.fin_ok, self.fin_seen = {}, {}, {}, set()

    def sid(self, d):
        key = frozenset(d.items())
        s = self.sids.get(key)
        if s is None:
            s = self.sids[key] = len(self.stores)
            self.stores.append(d)
            self.bad.append(invariant(d))
        return s

    def outcomes(self, s, pid, faults=True):
        k = (s, pid, faults)
        r = self.exec.get(k)
        if r is None:
            r = self.exec[k] = [
                (self.sid(d), self.P.step(pid, ans), ans, self.P.start(*sp) if sp else None)
                for ans, d, sp in execute(self.stores[s], self.P.op[pid], faults)
            ]
        return r

    def final(self, s):
        """Kill everything in store s, make one fault-free recovery run: what it breaks, or None."""
        d = {
            k: v
            for k, v in self.stores[s].items()
            if k[0] not in ("flight", "timeouts", "extra", "expire", "replace", "again", "arrive", "churn", "vanish", "fix")
        }
        s = self.sid(d)
        if s in self.fin_ok:
            return self.fin_ok[s]
        first, stack, path, lines = s, [self.P.start("final", ())], [], []
        why = None
        while stack:
            if (s, tuple(stack)) in self.fin_seen:
                break
            path.append((s, tuple(stack)))
            pid = stack[-1]
            if self.P.op[pid] is None:
                if self.P.result[pid] == "gave up":
                    why = "(g) the recovery run gives up"
                    break
                stack.pop()
                continue
            out = self.outcomes(s, pid, False)
            if not out:
                why = f"(g) the recovery run waits for ever at {self.P.op[pid]}"
                break
            s, stack[-1], ans, child = out[0]
            lines.append(f"  recovery: {self.P.name[pid]:9} {show(self.P.op[pid])}  ->  {show(ans)}")
            if child is not None:
                stack.append(child)
            if self.bad[s]:
                why = "in the recovery run: " + self.bad[s]
                break
            if len(path) > 2000:
                why = "(g) the recovery run does not end"
                break
        else:
            why = end_promise(self.stores[s])
        if why is None:
            self.fin_seen.update(path)
        else:
            self.fin_lines = ["everything is killed, one fault-free recovery run:"] + lines
        self.fin_ok[first] = why
        return why

    def run(self):
        """(violation or None, trace, states, transitions, stores)"""
        d = {("src", "f"): 1}
        if self.cfg.empty:
            d[("src", "e")] = 1
        if self.cfg.bad:
            d[("bad", "f")] = "all" if self.cfg.churn else 1
        if self.cfg.seed:
            d.update(seed_store(self.cfg.seed))
        if self.cfg.seed in PURGED:
            del d[("src", "f")]
        for k in ("timeouts", "extra", "expire"):
            if getattr(self.cfg, k):
                d[(k,)] = getattr(self.cfg, k)
        for k in ("replace", "again", "arrive", "churn", "vanish", "fix"):
            if getattr(self.cfg, k):
                d[(k,)] = 1
        procs = [self.P.start("driver", x) for x in self.cfg.drivers] + [self.P.start(a, ()) for a in self.cfg.actors]
        start = (self.sid(d), tuple(sorted(procs)))
        parent, queue, edges, ends, back = {start: None}, deque([start]), 0, [], {}
        numbers = {start: 0}
        pred = [[]]
        P = self.P
        while queue:
            state = queue.popleft()
            s, procs = state
            why = self.bad[s] or self.final(s)
            if why:
                return why, self.trace(parent, state) + ([] if self.bad[s] else self.fin_lines), len(parent), edges, len(self.stores)
            succ = []
            ample = next((i for i, pid in enumerate(procs) if P.op[pid] is not None and P.op[pid][0] == "spawn"), None)
            for i, pid in enumerate(procs):
                if ample is not None and i != ample:
                    continue  # starting an attempt commutes with everything else
                if i and procs[i - 1] == pid:
                    continue
                for s2, pid2, ans, child in self.outcomes(s, pid):
                    rest = procs[:i] + procs[i + 1 :]
                    if P.op[pid2] is None:
                        if str(P.result[pid2])[:1] == "!":
                            return str(P.result[pid2])[2:], self.trace(parent, state), len(parent), edges, len(self.stores)
                        if P.result[pid2] == "gave up":
                            return "(g) a driver gives up", self.trace(parent, state), len(parent), edges, len(self.stores)
                    else:
                        rest += (pid2,)
                    if child is not None:
                        rest += (child,)
                    succ.append(((s2, tuple(sorted(rest))), (pid, ans)))
            if ample is None:
                for label, d2 in self.environment(s):
                    succ.append(((d2, procs), label))
            if not procs:
                ends.append(numbers[state])
            me = numbers[state]
            for nxt, label in succ:
                edges += 1
                if nxt not in numbers:
                    numbers[nxt] = len(numbers)
                    pred.append([])
                    parent[nxt] = (state, label)
                    queue.append(nxt)
                pred[numbers[nxt]].append(me)
            if len(numbers) > self.limit:
                return f"LIMIT of {self.limit} states reached", [], len(parent), edges, len(self.stores)
        live, todo = set(ends), list(ends)
        while todo:
            for p in pred[todo.pop()]:
                if p not in live:
                    live.add(p)
                    todo.append(p)
        if len(live) != len(numbers):
            stuck = next(st for st, n in numbers.items() if n not in live)
            return "(g) no way to an end from here", self.trace(parent, stuck), len(parent), edges, len(self.stores)
        return None, [], len(parent), edges, len(self.stores)

    def environment(self, s):
        if s not in self.env:
            self.env[s] = [(label, self.sid(d)) for label, d in environment(self.stores[s])]
        return self.env[s]

    def trace(self, parent, state):
        lines = []
        while parent[state] is not None:
            state, label = parent[state]
            if isinstance(label, str):
                lines.append(label)
            else:
                pid, ans = label
                lines.append(f"{self.P.name[pid]:14} {show(self.P.op[pid])}  ->  {show(ans)}")
        return lines[::-1]


def show(x):
    t = str(x).replace("'", "")
    return t if len(t) < 150 else t[:147] + "..."


# what is committed and published before the search begins: (tasks of job (0, "s"), further log entries, other objects)
def row(p, v, *us):
    return (p, v, us)


def task(n, rows, covers=None):
    return (n, "s" + n, "s", tuple(r + ("done",) for r in rows) if covers is None else covers, rows, (), ())


MERGED = ("t0", "c", "c", (), (("f", 1, (0,)), ("g", 1, (0,))), (("fin", (0, "s"), "t0", "st0"), ("fin", (0, "s"), "t1", "st1")), ())
SEEDS = {
    "one file": ((task("t0", (row("f", 1, 0), row("g", 1, 0))),), ()),  # f and g in one data file
    "two files": ((task("t0", (row("f", 1, 0),)), task("t1", (row("g", 1, 0),))), ()),  # f and g in a data file each
    "half": ((task("t0", (row("f", 1, 0),)), task("t1", (row("f", 1, 1),))), ()),  # f's bytes in two data files
    "bad": ((task("t0", (), (("f", 1, (0,), "bad"),)),), ()),  # f is in quarantine
    "half bad": ((task("t0", (row("f", 1, 0),)), task("t1", (), (("f", 1, (1,), "bad"),))), ()),
    "open": ((task("t0", (row("f", 1, 0), row("g", 1, 0))),), ()),  # ... and a job of an older base with f, ready to commit
    "unpublished": ((task("t0", (row("f", 1, 0), row("g", 1, 0))),), ()),  # ... committed, not published
    "merged": ((task("t0", (row("f", 1, 0),)), task("t1", (row("g", 1, 0),))), (MERGED,)),  # compacted already; s is not cleaned yet
}


def finished(state):  # f was in the data file of t0
    return (("t0", "p", "p", (("f", 1, (0,), state, ("fin", (0, "s"), "t0", "st0")),), (), (), ()),)


SEEDS["purged"] = SEEDS["one file"]  # f and g in one data file, and f was purged
SEEDS["died"] = SEEDS["two files"]  # f and g in a data file each, and a purge has deleted f and died
PURGED = {
    "purged": [
        ("commit", (2, "P"), finished("purging"), ()),
        ("published", (2, "P"), ()),
        ("commit", (4, "Q"), finished("purged"), ()),
        ("published", (4, "Q"), ()),
    ],
    "died": [("commit", (2, "P"), finished("purging"), ()), ("published", (2, "P"), ())],
}


def seed_store(name):
    tasks, merged = SEEDS[name]
    d, log = {}, [("commit", (0, "s"), tasks, ()), ("published", (0, "s"), ())]
    if merged:
        log += [("commit", (2, "C"), merged, ()), ("published", (2, "C"), ())]
    if name in PURGED:
        log += PURGED[name]
        d[("gone", "f", 1)] = 1
    for e in log[::2]:
        for t in e[2]:
            d[("seg", e[1], t[0], t[1])] = (t[3], t[4], file_of(e[1], t))
            if t[4]:
                d[file_of(e[1], t)] = (t[2], t[4])
                if merged and G.committer == "copy":
                    d[tmp(e[1], t[0], t[1])] = (t[2], t[4])
            for p, v, us in tuple(c[:3] for c in t[3]):
                d[("src", p)] = 1
    if name == "unpublished":
        log.pop()
        t = tasks[0]
        d[handle((0, "s"), t[0], t[1])] = d.pop(file_of((0, "s"), t))
    if name == "open":
        j, rows = (0, "y"), (row("f", 1, 0),)
        d.update(
            {
                ("parts", j, "B9"): (("t0", (rows, (), (), "done")),),
                ("plan", j): ("B9", 0),
                handle(j, "t0", "B9"): ("B9", rows),
                seg(j, "t0", "B9"): ((("f", 1, (0,), "done"),), rows, fin(j, "t0", "B9")),
                ("man", j, "t0"): ("B9", "B9", (("f", 1, (0,), "done"),), rows, (), (), ()),
            }
        )
    d.update({("slot", i): e for i, e in enumerate(log)})
    return d


# ------------------------------------------------------------------------------------------------------------------- the scenarios
A, B = ("A", "x", 0), ("B", "x", 0)  # two drivers of one intent: they share a job
A2, B2 = ("A", "x", 1), ("B", "x", 2)  # one intent, but they pack the bytes differently
Y, Y2 = ("B", "y", 0), ("B", "y", 1)  # another intent, so another job, over the same bytes
L = ("A", "x", BOUNDED)  # each commit takes a part of a listing


def c(name, committer, *drivers, **kw):
    return Config(name, committer, drivers, **kw)


R, T, T2, F, C, C2 = ("R", "R", 0), ("T", "T", 0), ("U", "T2", 0), ("F", "F", 0), ("C", "C", 0), ("D", "C2", 0)
RR, M, X = ("R", "R", 1), ("M", "M", 0), ("A", "x", 0)
P, P2 = ("P", "P", 0), ("Q", "P", 0)


def purges():
    q = dict(timeouts=0, coarse=True)
    return [
        c("purge, a new file comes, run", "s3", P, A, seed="one file", units=1, replace=True, **q),
        c("purge against compact", "s3", P, C, seed="two files", units=1, **q),
        c("purge of what is gathered meanwhile, two bytes", "s3", P, A, seed="half", **q),
        c("purge against reprocess", "s3", P, R, seed="one file", units=1, replace=True, **q),
        c("purge against forget", "s3", P, F, seed="one file", units=1, **q),
        c("purged, a new file comes, run and forget", "s3", A, F, seed="purged", units=1, replace=True, **q),
        c("purged, a new file comes, compact", "s3", A, C, seed="died", units=1, replace=True, **q),
        c("a purge died, the next one, a new file comes", "s3", P, A, seed="died", units=1, replace=True, **q),
        c("purge, a ledger checkpoint", "s3", P, A, seed="one file", units=1, actors=("checkpointer",), **q),
        c("purge against compact, expire, a reader", "s3", P, C, seed="two files", units=1, actors=("expirer", "reader"), **q),
        c("purge, ambiguity", "s3", P, seed="one file", units=1, replace=True, coarse=True, actors=("cleaner",)),
    ]


def new_scenarios():
    q = dict(timeouts=0, coarse=True)
    return [
        c("an empty file, two jobs", "s3", A, Y, units=1, empty=True, **q),
        c("an empty file, a second attempt", "rename", A, units=1, empty=True, extra=1, coarse=True),
        c("quarantine, one job", "s3", A, bad=True, units=1, actors=("cleaner",)),
        c("quarantine, run and retry, repaired at some time", "s3", A, T, units=1, bad=True, fix=True, **q),
        c("half in quarantine, two retries", "s3", T, T2, seed="half bad", bad=True, fix=True, **q),
        c("quarantine, retry against a new version", "s3", T, A, seed="bad", units=1, bad=True, fix=True, replace=True, **q),
        c("quarantine, retry against reprocess", "s3", T, R, seed="bad", units=1, bad=True, fix=True, replace=True, **q),
        c("a source file changes for ever", "s3", A, units=1, churn=True, **q),
        c("a file that can't be parsed changes for ever", "s3", A, units=1, bad=True, churn=True, **q),
        c("a source file is deleted", "rename", A, B, units=1, vanish=True, **q),
        c(
            "reprocess, a second attempt, a recoverer",
            "s3",
            R,
            seed="one file",
            units=1,
            replace=True,
            extra=1,
            timeouts=0,
            actors=("cleaner",),
        ),
        c("two drivers reprocess, a reader", "s3", R, ("S", "R2", 0), seed="one file", units=1, replace=True, actors=("reader",), **q),
        c("reprocess against compact, two data files", "rename", R, C, seed="two files", units=1, replace=True, **q),
        c("reprocess of two tasks against compact", "s3", RR, C, seed="half", replace=True, **q),
        c("reprocess of two tasks, the store expires uploads", "s3", RR, seed="half", replace=True, expire=1, **q),
        c("reprocess, ambiguity", "s3", R, seed="one file", units=1, replace=True, coarse=True),
        c("two compactions, a reader", "rename", C, C2, seed="two files", units=1, actors=("reader",), **q),
        c("compact, the store expires uploads", "s3", C, seed="two files", units=1, expire=1, actors=("reader", "cleaner"), **q),
        c("forget against run", "s3", F, A, seed="one file", units=1, **q),
        c("forget against run, the store expires uploads", "s3", F, A, seed="one file", units=1, expire=1, **q),
        c("forget, run, a ledger checkpoint", "s3", F, A, seed="one file", units=1, actors=("checkpointer",), **q),
        c("forget, run, two ledger checkpoints", "s3", F, A, seed="one file", units=1, timeouts=0, actors=("checkpointers",), coarse=True),
        c("compact, recover(abort=open)", "s3", C, seed="two files", units=1, actors=("aborter",), coarse=True),
        c("forget against an open job of an older base", "s3", F, Y, seed="open", units=1, expire=1, **q),
        c("forget of what is in quarantine against retry", "s3", F, T, seed="bad", units=1, bad=True, fix=True, **q),
        c("reprocess of two tasks, the file changes for ever", "s3", RR, seed="half", churn=True, **q),
        c("run and forget after an unpublished commit", "s3", F, A, seed="unpublished", units=1, expire=1, **q),
        c("plan(), later plan.run(), against another run", "s3", Y, units=1, actors=("looker",), **q),
        c("plan() of a tip that isn't settled, plan.run()", "s3", F, seed="unpublished", units=1, expire=1, actors=("looker",), **q),
        c("marks against run", "s3", M, A, units=1, **q),
        c("a user's own writer, published by copy", "copy", A, extra=1, actors=("cleaner",), coarse=True),
        c("a user's own writer, two drivers", "copy", A, B, coarse=True),
        c("expire, a late publisher", "copy", seed="merged", units=1, actors=("expirer", "late", "reader"), coarse=True),
        c("expire, a late publisher", "azure", seed="merged", units=1, actors=("expirer", "late", "reader"), coarse=True),
        c("reprocess, old files leave", "s3", R, seed="one file", units=1, replace=True, retire="none", actors=("reader",), **q),
        c("compact, old files leave, a reader", "rename", C, seed="two files", units=1, retire="kept", actors=("reader", "cleaner"), **q),
        c("compact, old files leave, a pinned version", "rename", C, seed="two files", units=1, retire="kept", actors=("pinner",), **q),
        c("compact, old files leave, a pin in S3", "s3", C, seed="two files", units=1, retire="none", actors=("pinner",), **q),
        c("forget, old files leave, a pinned version", "rename", F, seed="one file", units=1, retire="kept", actors=("pinner",), **q),
        c("compact and forget, old files leave", "rename", C, F, seed="two files", units=1, retire="kept", **q),
        c(
            "old files leave, a late publisher",
            "copy",
            seed="merged",
            units=1,
            coarse=True,
            retire="none",
            actors=("cleaner", "cleaner", "late"),
        ),
        c("reprocess, lost, old files leave", "s3", RR, seed="half", replace=True, expire=1, retire="none", **q),
        c("two compactions, old files leave", "rename", C, C2, seed="two files", units=1, retire="kept", **q),
        c("compact, an export", "rename", C, seed="two files", units=1, retire="none", export=True, actors=("cleaner",), **q),
        c("two compactions, an export", "rename", C, C2, seed="two files", units=1, retire="none", export=True, timeouts=0, coarse=True),
        c("reprocess, an export", "s3", R, seed="one file", units=1, replace=True, retire="none", export=True, **q),
        c("run and forget, lost, an export", "s3", F, A, seed="unpublished", units=1, expire=1, retire="none", export=True, **q),
        c("expire, a pinned version", "s3", seed="merged", units=1, actors=("expirer", "expirer", "pinner"), **q),
        c("compact, expire, a reader", "rename", C, seed="two files", units=1, actors=("expirer", "reader"), **q),
        c("compact, expire, a pinned version", "s3", C, seed="two files", units=1, actors=("expirer", "pinner"), **q),
        c("reprocess of two tasks, lost, expire", "s3", RR, seed="half", replace=True, expire=1, actors=("expirer",), **q),
        c("compact against run, a file arrives, a reader", "s3", C, A, seed="two files", units=1, arrive=True, actors=("reader",), **q),
        c(
            "compact, ambiguity, a second attempt, expire",
            "rename",
            C,
            seed="two files",
            units=1,
            extra=1,
            coarse=True,
            actors=("expirer",),
        ),
        c("compact, ambiguity, a second attempt", "azure", C, seed="two files", units=1, extra=1, coarse=True, actors=("cleaner",)),
        c("two expirers, a late publisher, compact", "copy", C, seed="merged", units=1, coarse=True, actors=("expirer", "expirer", "late")),
        c(
            "reprocess, expire, a pinned version, a reader",
            "s3",
            R,
            seed="one file",
            units=1,
            replace=True,
            actors=("expirer", "pinner", "reader"),
            **q,
        ),
        c("marks against run, an empty file, late puts", "s3", M, A, units=1, empty=True, late=True, coarse=True),
        c("checkpoint of lost output, a file arrives", "s3", A, units=1, arrive=True, expire=1, actors=("checkpointer",), **q),
    ]


def scenarios(deep=False):
    out = new_scenarios() + purges()
    for k in ("rename", "s3", "azure", "v2"):
        out += [
            c("one job, a second attempt, a recoverer", k, A, extra=1, actors=("cleaner",)),
            c("one job of two tasks, a recoverer", k, A2, actors=("cleaner",)),
            c("bounded commits, others gather the same", k, L, Y, timeouts=0, coarse=True),
            c("one job, a user aborts it", k, A, actors=("aborter",)),
            c("two jobs, overlapping ranges, a recoverer", k, A, Y2, timeouts=0, actors=("cleaner",), coarse=True),
        ]
    for k in ("rename", "azure"):
        out += [c("one job, two drivers", k, A, B)]
    for k in ("rename", "s3"):
        out += [
            c("one job, late puts, a second attempt", k, A, extra=1, late=True),
            c("one job, late puts, a user aborts it", k, A, late=True, actors=("aborter",)),
            c("the source file is replaced", k, A, Y, units=1, replace=True, timeouts=0),
            c("a source file arrives", k, A, units=1, arrive=True, actors=("cleaner",)),
            c("variant: a merged log, no entry deleted", k, A, Y, units=1, timeouts=0, actors=("truncater",)),
        ]
    out += [
        c("bounded commits, another driver of the call", "s3", L, B, timeouts=0, coarse=True),
        c("bounded commits, a source file arrives", "s3", L, units=1, arrive=True, actors=("cleaner",), coarse=True),
        c("bounded commits, the store expires uploads", "s3", L, expire=1, timeouts=0, coarse=True),
    ]
    for k in ("s3", "azure"):
        out += [
            c("the store expires uploads", k, A, expire=1, actors=("cleaner",)),
            c("variant: final names without the attempt", k, A, B, shared=True, timeouts=0),
        ]
    out += [
        c(
            "a ledger checkpoint, the store expires uploads",
            "s3",
            A,
            Y,
            units=1,
            timeouts=0,
            expire=1,
            actors=("checkpointer",),
            coarse=True,
        )
    ]
    if deep:
        out += [
            c("deep: two purges, a new file comes", "s3", P, P2, seed="one file", units=1, replace=True, timeouts=0, coarse=True),
            c("deep: one intent, two plans", "s3", A2, B2, timeouts=0, coarse=True),
            c("deep: a user aborts, a second attempt", "rename", A, actors=("aborter",), timeouts=0, extra=1),
            c("deep: a user aborts, a recoverer", "s3", A, actors=("aborter", "cleaner"), timeouts=0),
            c("deep: one job, two drivers, clean name by name", "s3", A, B, fine=True),
            c("deep: two drivers, the store expires uploads", "s3", A, B, expire=1, timeouts=0, coarse=True),
            c("deep: two jobs, a second attempt, ambiguity", "s3", A, Y2, extra=1, timeouts=1, coarse=True),
            c("deep: two drivers, a file arrives", "s3", A, B, units=1, arrive=True, timeouts=0, coarse=True),
        ]
    return out


BUGS = {  # name: (what is done instead, a scenario in which it must be caught)
    "plan_overwrite": ("plan.entry is an ordinary put", c("", "s3", A2, B2, timeouts=0)),
    "plan_parts_shared_name": ("the plan's Parquet files have fixed names below the job", c("", "s3", A2, B2, timeouts=0)),
    "base_read_later": ("plan.entry's base version is a tip read after the ledger was", c("", "s3", A, Y, timeouts=0)),
    "backlog_as_listed": ("a bounded call plans the rest of its listing as if nobody had committed since", c("", "s3", L, Y, timeouts=0)),
    "conflict_since_restart": ("only entries newer than the driver's own start are conflicts", c("", "s3", A, Y, timeouts=0)),
    "split_id_conflict": ("conflicts compare whole splits, not ranges", c("", "s3", A, Y2, timeouts=0)),
    "conflict_by_version": ("conflicts compare (path, version), not path", c("", "s3", A, Y, units=1, replace=True, timeouts=0)),
    "partial_drop": ("an overlap is taken out of the entry, but its bytes stay in the file", c("", "s3", A, Y2, timeouts=0)),
    "retry_when_empty": ("nothing left to commit is tried again instead of being logged as an abort", c("", "s3", A, Y, timeouts=0)),
    "attempt_number": ("attempts are <task>-<n>, n counted by each driver", c("", "rename", A, B, timeouts=0)),
    "manifest_overwrite": ("the manifest is an ordinary put", c("", "s3", A, extra=1)),
    "ambiguous_loses": ("a timed-out manifest put counts as lost", c("", "s3", A, extra=1)),
    "get_absent_loses": ("after a timed-out manifest put, 'not there' counts as lost", c("", "s3", A, extra=1, late=True)),
    "segment_shared_name": ("the ledger segment is named by task, not by attempt", c("", "s3", A, extra=1)),
    "loser_deletes_segment": ("a losing attempt deletes its ledger segment itself", c("", "s3", A, extra=1, actors=("cleaner",))),
    "v2_loser_deletes_final": ("rename v2: a losing attempt deletes its final file itself", c("", "v2", A, extra=1, actors=("cleaner",))),
    "azure_shared_blocks": ("Azure: final name and block ids by task, not by attempt", c("", "azure", A, B, timeouts=0, shared=True)),
    "azure_discard_deletes": (
        "Azure: final name by task, and a loser discards by deleting the blob",
        c("", "azure", A, extra=1, shared=True, timeouts=0),
    ),
    "no_if_match": ("tasks read a source without a condition on the planned version", c("", "s3", A, units=1, replace=True, timeouts=0)),
    "commit_failure_aborts": ("a failed or timed-out commit put deletes the job's output", c("", "s3", A)),
    "commit_blind_retry": ("after losing a slot, tip+1 without a new conflict check", c("", "s3", A, Y, timeouts=0)),
    "unnumbered_log": ("entries have names of their own (as Hudi's instants), not the log's next number", c("", "s3", A, Y, timeouts=0)),
    "log_truncate": (
        "merged log entries are deleted",
        c("", "s3", A, Y, units=1, timeouts=0, actors=("truncater", "floorreader"), coarse=True),
    ),
    "trust_put": (
        "merged log entries are deleted, and a driver publishes on its put's answer",
        c("", "s3", A, Y, units=1, timeouts=0, actors=("truncater",)),
    ),
    "abort_not_logged": ("abort deletes, without an entry in the log", c("", "s3", A, actors=("aborter",))),
    "clean_open_job": ("clean deletes attempts of a job that has no outcome", c("", "s3", A, actors=("cleaner",))),
    "clean_before_publish": ("clean runs between commit and publish", c("", "s3", A)),
    "published_early": ("`published` is logged before the last file is", c("", "s3", A)),
    "reader_before_publish": ("a reader takes commits that aren't published yet", c("", "s3", A)),
    "publish_from_manifest": (
        "publish takes attempt and handle from the manifest, not from the entry",
        c("", "s3", A, extra=1, timeouts=0, actors=("cleaner",)),
    ),
    "gone_is_fatal": ("NoSuchUpload / source missing is an error", c("", "s3", A)),
    "gone_is_done": ("NoSuchUpload / source missing is success, without a look", c("", "s3", A, expire=1)),
    "copy_rename": ("rename is a copy by the client and a delete", c("", "rename", A, actors=("cleaner",))),
    "lost_not_logged": ("`published` doesn't say which outputs were lost", c("", "s3", A, expire=1)),
    "plan_before_roll_forward": ("the ledger is read before unpublished commits are rolled forward", c("", "s3", A, expire=1)),
    "ledger_lists_segments": (
        "the ledger is the listing of segments, not what the log names",
        c("", "s3", A, timeouts=0, actors=("aborter",)),
    ),
    "checkpoint_unpublished": (
        "a ledger checkpoint merges commits that aren't published",
        c("", "s3", A, units=1, timeouts=0, expire=1, actors=("checkpointer",)),
    ),
    "checkpoint_names_later_tip": (
        "a ledger checkpoint is named by a tip read after the merge",
        c("", "s3", A, ("B", "y", 0), units=1, timeouts=0, actors=("checkpointer",), coarse=True),
    ),
    "empty_not_covered": ("an empty split covers nothing", c("", "s3", A, units=1, empty=True, timeouts=0, coarse=True)),
    "empty_no_conflict": ("an empty split conflicts with nothing", c("", "s3", A, Y, units=1, empty=True, timeouts=0, coarse=True)),
    "quarantine_not_covered": (
        "a split that can't be parsed is left out, not covered",
        c("", "s3", A, units=1, bad=True, timeouts=0, coarse=True),
    ),
    "quarantine_by_path": (
        "quarantine covers the path in every version",
        c("", "s3", A, seed="bad", units=1, bad=True, replace=True, timeouts=0, coarse=True),
    ),
    "changed_is_quarantined": ("a split that changed is put in quarantine", c("", "s3", A, units=1, churn=True, timeouts=0, coarse=True)),
    "left_out_for_ever": (
        "what was left out is planned again as often as it changes",
        c("", "s3", A, units=1, churn=True, timeouts=0, coarse=True),
    ),
    "replaced_for_ever": (
        "a changed file is read as often as it changes in one call",
        c("", "s3", A, units=1, bad=True, churn=True, timeouts=0, coarse=True),
    ),
    "abort_parts_unlogged": (
        "plan Parquet without plan.entry is deleted without an abort entry",
        c("", "s3", A, units=1, timeouts=0, actors=("aborter",), coarse=True),
    ),
    "plan_run_new_base": (
        "plan.run() takes the tip of its own time as the base",
        c("", "s3", Y, units=1, timeouts=0, actors=("looker",), coarse=True),
    ),
    "look_unsettled": (
        "plan() folds a tip that isn't settled",
        c("", "s3", F, seed="one file", units=1, timeouts=0, expire=1, actors=("looker",), coarse=True),
    ),
    "abort_without_files": (
        "a commit without data files is logged as an abort",
        c("", "s3", A, units=1, bad=True, timeouts=0, coarse=True),
    ),
    "no_file_is_lost": ("a task without a data file counts as lost", c("", "s3", M, units=1, timeouts=0, coarse=True)),
    "retry_takes_old_job": (
        "a retry ends with an open job that it found",
        c("", "s3", T, seed="bad", units=1, bad=True, fix=True, timeouts=0, coarse=True),
    ),
    "uncover_whole_key": (
        "uncovers without version and ranges",
        c("", "s3", T, A, seed="half bad", bad=True, fix=True, timeouts=0, coarse=True),
    ),
    "uncover_no_conflict": (
        "uncovered keys are no conflict",
        c("", "s3", F, T, seed="bad", units=1, bad=True, fix=True, timeouts=0, coarse=True),
    ),
    "remove_no_conflict": ("removed files are no conflict", c("", "s3", C, C2, seed="two files", units=1, timeouts=0, coarse=True)),
    "conflict_net": (
        "conflicts are with what is covered in the end, not with what was touched",
        c("", "s3", F, Y, seed="open", units=1, expire=1, timeouts=0, coarse=True),
    ),
    "drop_part": ("a job that removes files drops single tasks", c("", "s3", RR, seed="half", churn=True, timeouts=0, coarse=True)),
    "rewrite_drops_others": (
        "a rewritten file doesn't carry the other paths' rows",
        c("", "s3", R, seed="one file", units=1, replace=True, timeouts=0, coarse=True),
    ),
    "rewrite_keeps_old": (
        "a rewritten file keeps the old rows of the path",
        c("", "s3", R, seed="one file", units=1, replace=True, timeouts=0, coarse=True),
    ),
    "lost_by_task": (
        "a removing job that lost one output keeps its other tasks",
        c("", "s3", RR, seed="half", replace=True, expire=1, timeouts=0, coarse=True),
    ),
    "removes_despite_lost": (
        "removes count although the replacing output was lost",
        c("", "s3", C, seed="two files", units=1, expire=1, timeouts=0, coarse=True),
    ),
    "base_unpublished": (
        "a plan's base may have unpublished commits",
        c("", "s3", F, A, seed="unpublished", units=1, expire=1, timeouts=0, coarse=True),
    ),
    "checkpoint_union": (
        "a checkpoint's reader ignores later uncovers",
        c("", "s3", F, A, seed="one file", units=1, timeouts=0, actors=("checkpointer",), coarse=True),
    ),
    "checkpoint_copies": (
        "a checkpoint copies rows of the one before that have left since",
        c("", "s3", F, A, seed="one file", units=1, timeouts=0, actors=("checkpointers",), coarse=True),
    ),
    "checkpoint_cut": (
        "a checkpoint ends before the `published` of a commit in it",
        c("", "s3", A, ("B", "y", 0), units=1, arrive=True, timeouts=0, expire=1, actors=("checkpointer",), coarse=True),
    ),
    "expire_unpublished": (
        "expire takes removals of unpublished commits for done",
        c("", "s3", C, seed="two files", units=1, timeouts=0, expire=1, actors=("expirer",), coarse=True),
    ),
    "retire_unpublished": (
        "files leave after the commit, before the new ones are in their places",
        c("", "rename", C, seed="two files", units=1, retire="none", timeouts=0, coarse=True, actors=("cleaner",)),
    ),
    "retire_without_entry": (
        "files leave, and the log does not say it",
        c("", "rename", C, seed="two files", units=1, retire="none", timeouts=0, coarse=True, actors=("reader",)),
    ),
    "retire_ignores_pins": (
        "files leave that a pin holds",
        c("", "rename", C, seed="two files", units=1, retire="kept", timeouts=0, coarse=True, actors=("pinner",)),
    ),
    "retire_pins_read_early": (
        "files leave by pins that were read before the log's slot",
        c("", "rename", C, seed="two files", units=1, retire="kept", timeouts=0, coarse=True, actors=("pinner",)),
    ),
    "pin_beside_retire": (
        "a pinned reader looks for its files while they leave",
        c("", "rename", C, seed="two files", units=1, retire="kept", timeouts=0, coarse=True, actors=("pinner",)),
    ),
    "retire_before_clean": (
        "files leave while a slow publisher still finds what it would publish",
        c("", "copy", seed="merged", units=1, retire="none", timeouts=0, coarse=True, actors=("cleaner", "late")),
    ),
    "retired_early": (
        "the log says that files have left before they have",
        c("", "rename", C, seed="two files", units=1, retire="kept", timeouts=0, coarse=True, actors=("cleaner",)),
    ),
    "forgotten_is_kept": (
        "older versions stay readable with rows that were forgotten",
        c("", "rename", F, seed="one file", units=1, retire="kept", timeouts=0, coarse=True),
    ),
    "kept_stays": (
        "files of versions that can't be read any more stay among the kept ones",
        c("", "rename", C, F, seed="two files", units=1, retire="kept", timeouts=0, coarse=True),
    ),
    "retire_ignores_exports": (
        "files leave that an export still names",
        c("", "rename", C, seed="two files", units=1, retire="none", export=True, timeouts=0, coarse=True, actors=("cleaner",)),
    ),
    "export_over": (
        "an export's commit is put over another one",
        c("", "rename", C, C2, seed="two files", units=1, retire="none", export=True, timeouts=0, coarse=True),
    ),
    "export_by_log": (
        "an export goes on from where the log says, and not from its own last commit",
        c("", "rename", C, seed="two files", units=1, retire="none", export=True, timeouts=0, coarse=True, actors=("cleaner",)),
    ),
    "export_unsettled": (
        "an export offers a version of which something is not published yet",
        c("", "s3", F, A, seed="unpublished", units=1, expire=1, retire="none", export=True, timeouts=0, coarse=True),
    ),
    "expire_without_entry": (
        "expire deletes without an entry",
        c("", "s3", seed="merged", units=1, timeouts=0, actors=("expirer", "pinner"), coarse=True),
    ),
    "expire_before_clean": (
        "expire deletes before the jobs are cleaned",
        c("", "copy", seed="merged", units=1, timeouts=0, actors=("expirer", "late"), coarse=True),
    ),
    "expire_ignores_pins": (
        "expire ignores pinned versions",
        c("", "s3", C, seed="two files", units=1, timeouts=0, actors=("expirer", "pinner"), coarse=True),
    ),
    "expire_unsettled": (
        "expire goes up to a pinned version that has unpublished commits",
        c("", "s3", C, seed="two files", units=1, timeouts=0, actors=("expirer", "pinner"), coarse=True),
    ),
    "expire_pins_read_early": (
        "expire puts its entry by pins that it read before",
        c("", "s3", C, seed="two files", units=1, timeouts=0, actors=("expirer", "pinner"), coarse=True),
    ),
    "pin_unchecked": (
        "a version is pinned without a look whether it is expired",
        c("", "s3", C, seed="two files", units=1, timeouts=0, actors=("expirer", "pinner"), coarse=True),
    ),
    "purge_before_entry": (
        "a purge deletes before the log says purging",
        c("", "s3", P, seed="one file", units=1, timeouts=0, coarse=True),
    ),
    "purge_unconditional": (
        "a purge deletes whatever version is there",
        c("", "s3", P, seed="one file", units=1, replace=True, timeouts=0, coarse=True),
    ),
    "purged_early": ("purged is said before the source is deleted", c("", "s3", P, seed="one file", units=1, timeouts=0, coarse=True)),
    "purged_never": ("nobody says purged", c("", "s3", P, seed="one file", units=1, timeouts=0, coarse=True)),
    "restate_no_conflict": (
        "commits that say what is the state of rows do not conflict with those that move them",
        c("", "s3", P, C, seed="two files", units=1, timeouts=0, coarse=True),
    ),
    "carry_forgets_purge": (
        "rows that are carried over are done, whatever they were",
        c("", "s3", C, A, seed="died", units=1, replace=True, timeouts=0, coarse=True),
    ),
    "purging_not_covered": (
        "what is about to be purged is read as if it were new",
        c("", "s3", P, A, seed="one file", units=1, timeouts=0, coarse=True),
    ),
    "purged_is_old": (
        "a new file of a purged name is taken for its next version",
        c("", "s3", A, seed="purged", units=1, replace=True, timeouts=0, coarse=True),
    ),
    "reprocess_takes_purged": (
        "a reprocess takes the rows of purged files along",
        c("", "s3", R, A, seed="purged", units=1, replace=True, again=True, timeouts=0, coarse=True),
    ),
    "forget_takes_purged": (
        "forget takes what was purged, and nobody has asked for that",
        c("", "s3", A, F, seed="purged", units=1, replace=True, timeouts=0, coarse=True),
    ),
    "uncover_takes_purged": (
        "an uncover takes the rows of purged files along",
        c("", "s3", F, A, seed="purged", units=1, replace=True, timeouts=0, coarse=True),
    ),
    "job_id_by_intent": ("the job id is a hash of the call, without the base version", c("", "s3", A, units=1, arrive=True, timeouts=0)),
}


def check(cfg, limit=6_000_000):
    t = time.time()
    why, trace, states, edges, stores = Checker(cfg, limit).run()
    return cfg, why, trace, states, edges, stores, time.time() - t


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bug", choices=BUGS), p.add_argument("--correct", action="store_true"), p.add_argument("--list", action="store_true")
    p.add_argument("--deep", action="store_true"), p.add_argument("--processes", type=int, default=2)
    o = p.parse_args()
    if o.list:
        for b, (text, cfg) in BUGS.items():
            print(f"{b:27} {text}")
        return 0
    todo, failed, total, t = [], 0, [0, 0], time.time()
    if o.bug:
        todo = [dataclasses.replace(BUGS[o.bug][1], bug=o.bug)]
    else:
        todo = scenarios(o.deep) + ([] if o.correct else [dataclasses.replace(cfg, bug=b) for b, (_, cfg) in BUGS.items()])
    with multiprocessing.Pool(o.processes, maxtasksperchild=1) as pool:
        for cfg, why, trace, states, edges, stores, secs in pool.imap(check, todo):
            total[0] += states
            total[1] += edges
            ok = why is None if not cfg.bug else why is not None and not why.startswith("LIMIT")
            failed += not ok
            verdict = ("holds" if ok else "VIOLATED " + why) if not cfg.bug else ("caught: " if ok else "NOT CAUGHT ") + str(why)
            print(
                f"{cfg.bug or cfg.name:48} {cfg.committer:7}{states:9,} states {edges:10,} transitions {stores:7,} stores {secs:5.1f} s  {verdict}",
                flush=True,
            )
            if o.bug or (why and not cfg.bug):
                print(*("    " + line for line in trace), sep="\n")
    print(f"{len(todo)} searches, {total[0]:,} states, {total[1]:,} transitions, {time.time() - t:.0f} s; unexpected results: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
