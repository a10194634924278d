"""Mistakes, each as a replacement in the source: what must be caught, and the rule or pitfall of protocol.md (§11) that it breaks.

A line of the source is a line here, however long.
"""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import dataclass

PROTOCOL, LOG, NAMES, RENAME = "commit/protocol.py", "commit/log.py", "commit/names.py", "commit/rename.py"
UPLOAD, COMMITTERS, PARQUET = "commit/upload.py", "commit/committers.py", "formats/parquet.py"
LOCAL, DURABLE, MEMORY, RETRY = "storage/local.py", "storage/durable.py", "storage/memory.py", "storage/retry.py"
ATTEMPT, SPLITTING, JOBS, ROUNDS = "attempt.py", "splitting.py", "jobs.py", "rounds.py"
CONFLICTS, FOLD, ANTIJOIN, SEGMENTS = "coverage/conflicts.py", "coverage/fold.py", "coverage/antijoin.py", "coverage/segments.py"
CONSOLIDATE = "consolidate.py"
ENTRIES, SHUFFLE, CLAIMS, RUNNER = "commit/entries.py", "shuffle.py", "claims.py", "runner.py"
INTERFACE, ATTEMPTS, RUNNING, RULES = "committers/interface.py", "committers/attempts.py", "committers/running.py", "committers/rules.py"
REFUSALS, BINDING, SWEEPING = "committers/refusals.py", "committers/binding.py", "committers/sweeping.py"
PROCESSES, FACTS = "committers/lab/processes.py", "committers/lab/watch.py"
WHOLE, COMPACT = "upkeep/whole.py", "upkeep/compact.py"
CHECKPOINT, CHECKPOINTS = "coverage/checkpoint.py", "commit/checkpoints.py"
LOADING, PLANNED, OFFSETS, CLIENT = "loading.py", "planning/offsets.py", "sources/offsets.py", "sources/kafka_client.py"
HELD, RANGES = "commit/held.py", "coverage/ranges.py"
UNCOVERED = "coverage/uncovered.py"
CARRY, TAILS, UPKEEP, EXPIRE = "coverage/carry.py", "coverage/tails.py", "upkeep/job.py", "upkeep/expire.py"


@dataclass(frozen=True)
class Mutant:
    """In `file` each `old` is there exactly once and becomes `new`."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    first: str = ""  # the tests that are likely to catch it


def m(name: str, file: str, old: str, new: str = "", *more: tuple[str, str], first: str = "") -> Mutant:
    return Mutant(name, file, ((old, new), *more), first)


MUTANTS = (
    # plans
    m("plan_overwrite", PROTOCOL, "    store.put_if_absent(names.plan_head(", "    store.put(names.plan_head("),
    m("only the first range of a file says of which kind it is", ATTEMPT, "if start and self.convert.takes_text and not self.convert.holds:", "if False:", first="tests/test_kinds_of_files.py"),
    m("plan_parts_shared_name", NAMES, "plan-{plan}{piece and", "plan-{'0' * 12}{piece and"),
    m("job_id_by_intent", ROUNDS, 'return f"{base}-{made.intent_hash}"', 'return f"0-{made.intent_hash}"'),
    m("plan_before_roll_forward", ROUNDS, "        log = protocol.recover(store, held=made.held)\n", "        log = Log(store).refresh()\n"),
    m("a loop trusts the log that it holds", HELD, "== base and log.stands()", "== base", first="tests/test_load_loop.py"),
    m("a loop passes over a checkpoint", HELD, "checkpoints.seek(log.store)[:1] == base and ", "", first="tests/test_load_loop.py"),
    m("a loop keeps ranges that were taken out", RANGES, "known.of != of or ", "", first="tests/test_load_loop.py"),
    m("base_unpublished", ROUNDS, "if not log.settled():", "if False:"),
    m("look_unsettled", LOG, "return version if open_since == at_most + 1 else self.settled_version(version)", "return at_most"),
    m("settled version looked for once", LOG, "return version if open_since == at_most + 1 else self.settled_version(version)", "return version",
      first="tests/test_matrix.py"),
    m("abort_parts_unlogged: plans that are not frozen are never given up", PROTOCOL,
      'if any("/plan" in name for name in left)]', "if names.plan_head(job) in left]"),
    m("plan.json goes first", PROTOCOL, "    store.remove_tree(names.manifests(job))\n",
      "    store.remove(names.plan_head(job))\n    store.remove_tree(names.manifests(job))\n"),
    m("a producer's time wraps", OFFSETS, "(moments < FIRST_TIME) | (moments > LAST_TIME)", "(moments < FIRST_TIME) & (moments > LAST_TIME)", first="tests/test_fuzz.py"),
    m("headers are not counted", OFFSETS, " + _size(part[2])", "", first="tests/test_load_edges.py"),
    m("a value that names no directory stops a topic", "sources/records.py", "            self._check_folders(made)\n", "", first="tests/test_load_edges.py"),
    m("aborted records are silence", OFFSETS, "if self.moved or self._come() > come:", "if self.moved:", first="tests/test_load_edges.py"),
    m("lost for ever", JOBS, "    if losses >= LOSSES:\n", "    if False:\n", first="tests/test_upload.py"),
    m("left_out_for_ever, replaced_for_ever", ROUNDS, "if n >= most)", "if n >= 10**9)"),
    # sources that go, marks
    m("a source is deleted whatever its version", "storage/base.py", "    if entry is not None and entry.version != version:", "    if False:", first="tests/test_purge.py"),
    m("a source is deleted though its record does not verify", "upkeep/purge.py", '                if found != row["checksum"]:', "                if False:", first="tests/test_purge.py"),
    m("a source is deleted though its content is another one", "upkeep/purge.py", "                    if written == would_be:", "                    if written is not None:", first="tests/test_purge.py"),
    m("a purged file is taken for one that was rewritten", "coverage/antijoin.py", '        there = [r for r in there if r["state"] not in FINISHED]', "        finished = []", first="tests/test_purged_names.py"),
    m("a compaction forgets that a file was purged", "coverage/conflicts.py", "        if said.restated and said.segment and moving.removes:", "        if False:", first="tests/test_purged_names.py"),
    m("a carried row is done, whatever it was", "attempt.py", '                        if each["state"] != "done":', "                        if False:", first="tests/test_purged_names.py"),
    m("the last copy is forgotten without a question", "upkeep/forget.py", "        if not last_copy:", "        if False:", first="tests/test_purged_names.py"),
    m("a file that may still be written to is purged", "upkeep/purge.py", "entry.modified > self.job.newest", "False", first="tests/test_purged_names.py"),
    m("a source is deleted though what it became was forgotten meanwhile", "upkeep/purge.py", "            if path in uncovered or any(", "            if False and any(", first="tests/test_purge.py"),
    m("a marker speaks of a file that changed after it", "upkeep/markers.py", "marker.modified < file.modified:", "False:", first="tests/test_markers.py"),
    m("overlapping markers cover a byte twice", "upkeep/markers.py", "        before += new\n", "        pass\n", first="tests/test_markers.py"),
    m("content that changed after the listing is taken for what was listed", "sources/identity.py", "same = not whole or _version(xxhash.xxh3_128(content), len(content)) == version", "same = True", first="tests/test_identity.py"),
    m("a file is quarantined for what the machine lacks", DURABLE, "    if e.errno in STARVED:", "    if False:", first="tests/test_bad_input.py"),
    m("what others put among the jobs is taken for a job", PROTOCOL, " if names.base_of(job) is not None}", "}", first="tests/test_recover.py"),
    m("readers' pins are never merged", CHECKPOINT, "return bool(commits or log.base) and", "return bool(recent) and", first="tests/test_checkpoints.py"),
    m("a name that a checkpoint has merged is committed again", LOG, "        yield from (entry for entry in decided if isinstance(entry, Commit))\n", "", first="tests/test_checkpoints.py"),
    # interrupts
    m("an interrupt that Python forgets is forgotten", "interrupts.py", "        raise _under_way.noted\n", "        return\n", first="tests/test_interrupts.py"),
    m("an interrupt after the last look is forgotten", "interrupts.py", "        if mine.noted is not None:\n            raise mine.noted\n        return result", "        return result", first="tests/test_interrupts.py"),
    m("an interrupt leaves Spark's job behind", RUNNER, "    while not over.is_set() and ", "    while False and ", first="tests/test_interrupts.py"),
    m("a handler of the user's own is not asked", "interrupts.py", "not in PLAIN:", "in ():", first="tests/test_interrupts.py"),
    # conflicts
    m("no conflict check", PROTOCOL, "found = conflicts(log, head, tasks)", "found = set()"),
    m("a conflict drops nothing", PROTOCOL, "if t.task not in found and (", "if ("),
    m("conflict_since_restart", CONFLICTS, "log.commits(after=head.base)", "log.commits(after=log.tip)"),
    m("conflict_by_version", CONFLICTS, "> 1 or overlap(", "== 1 and overlap("),
    m("split_id_conflict", CONFLICTS, "overlap(*([r[1:] for r in ranges] for ranges in both))", "not set(both[0]).isdisjoint(both[1])"),
    m("empty_no_conflict", UNCOVERED, "if not points[0].isdisjoint(points[1]):", "if False:"),
    m("remove_no_conflict", CONFLICTS, "                set(task.removes) & set(other.removes)\n                or ", "                "),
    m("uncover_no_conflict", FOLD, "        found[uncover.path].extend(", "        list("),
    m("the paths' ends are left out", CONFLICTS, "a.first <= b.last and b.first <= a.last", "a.first < b.last and b.first < a.last"),
    m("drop_part", PROTOCOL, "(removing and (found or any(t.left for t in tasks)))", "False", first="tests/test_supersede.py"),
    m("a new version without anything good takes good rows out", JOBS, "and (stays := _not_taken(log, head, tasks)):", "and (stays := ()):", first="tests/test_process.py"),
    m("each task decides alone whether a new version is good", "coverage/superseded.py", "    for task in read if found else ():", "    for task in (t for t in read if found and t.set_aside):", first="tests/test_process.py"),
    m("retry_when_empty", PROTOCOL, "        if not kept or (", "        if not kept:\n            return None\n        if ("),
    m("abort_without_files", PROTOCOL, "(t.segment or t.removes or t.uncovers)", "t.files"),
    m("two transforms in one destination", CONFLICTS, "if there is not None and head.words.said and there.words != head.words:", "if False:"),
    # the log
    m("an entry is put, not put if absent", LOG, "self.store.put_if_absent(names.entry(", "self.store.put(names.entry("),
    m("commit_blind_retry", LOG, "        while True:\n            self.refresh()\n            entry = compute(self)\n            if entry is None:\n",
      "        entry = compute(self.refresh())\n        while True:\n            if entry is None or entry in self.refresh().entries:\n"),
    m("the end of the listing is the tip", LOG, "            self._opened = True\n        self._read_on()\n", "            self._opened = True\n            return self\n        self._read_on()\n"),
    m("a commit of a job that is over", PROTOCOL, "        if log.outcome(head.job) is not None:\n            return None\n        try:\n",
      "        if isinstance(log.outcome(head.job), Commit):\n            return None\n        try:\n"),
    m("a long entry's tasks are not written", LOG, "        self.store.put(name, out.getvalue().to_pybytes())\n"),
    # attempts and manifests
    m("attempt_number: ids that are not drawn", NAMES, "return uuid.uuid4().hex[:12]", 'return "0" * 12'),
    m("attempts share a folder", NAMES, 'return f"{attempts(job)}/{task}-{attempt}"', 'return f"{attempts(job)}/{task}-{\'0\' * 12}"'),
    m("segment_shared_name", NAMES, 'return f"{LEDGER}/{job}-{task}-{attempt}.parquet"', 'return f"{LEDGER}/{job}-{task}-{\'0\' * 12}.parquet"'),
    m("manifest_overwrite", PROTOCOL, "    if store.put_if_absent(names.manifest(job, task.task), encode(Manifest(job=job, task=task))):\n        return True\n",
      "    store.put(names.manifest(job, task.task), encode(Manifest(job=job, task=task)))\n    return True\n"),
    m("get_absent_loses", PROTOCOL, "return there is None or there.attempt", "return there is not None and there.attempt"),
    m("ambiguous_loses: taken, so another has won", PROTOCOL, "    there = get_manifest(store, job, task.task)\n", "    return False\n    there = get_manifest(store, job, task.task)\n"),
    m("no answer, so the attempt's output is deleted", ATTEMPT, "            if not put_manifest(store, job, done):\n",
      "            try:\n                won = put_manifest(store, job, done)\n            except Exception:\n                won = False\n            if not won:\n"),
    m("manifest before segment", ATTEMPT, "        if name and segment:\n",
      "        put_manifest(self.store, self.work.head.job, done)\n        if name and segment:\n"),
    m("the segment is not written", ATTEMPT, "            self.store.put(name, segment)\n", "            pass\n"),
    m("loser_deletes_segment", ATTEMPT, "            if not put_manifest(store, job, done):\n                one.abort()\n",
      "            put_manifest(store, job, done)\n            there = get_manifest(store, job, task)\n            if there is None or there.attempt != one.id:\n"
      "                one.abort()\n                store.remove(names.segment(job, task, one.id))\n"),
    m("a lost attempt's folder stays", ATTEMPT, "done):\n                one.abort()\n", "done):\n                pass\n"),
    m("discarding takes the others' folders too", RENAME, "store.remove_tree(names.attempt_folder(job, task, attempt))", "store.remove_tree(names.attempts(job))"),
    m("no_if_match (memory)", MEMORY, "elif found.version != request.version:", "elif False:"),
    m("no_if_match (disk)", LOCAL, 'if len(data) == size == status.st_size and f"{status.st_mtime_ns}-{size}" == version:', "if True:", first="tests/test_storage.py"),
    m("no_if_match (disk, while a long file is read)", LOCAL, '            if version_of(os.fstat(fd)) != version:\n                raise Gone("changed while it was read")\n',
      "", first="tests/test_storage.py"),
    m("changed_is_quarantined", ATTEMPT, "        except Gone as e:\n            self._leave_out(", "        except _Lost as e:\n            self._leave_out(",
      ("except (BadContent, Unreadable) as e:", "except (BadContent, Unreadable, Gone) as e:")),
    m("quarantine_not_covered", ATTEMPT, '(file.path, file.version, start, length, "bad", reason,', '(file.path, "", start, length, "bad", reason,'),
    m("set aside without a reason", ATTEMPT, "e.reason if isinstance(e, BadContent) else str(e)", "None"),
    # functions, once a split
    m("rejected records are covered with the others", SPLITTING, "            at = sum(aside[-1])\n", "            at = first\n", first="tests/test_process.py"),
    m("pieces of a split that name no output", SPLITTING, "        if written and len(done) > 1:", "        if False:", first="tests/test_process.py"),
    m("pieces of a split that stay when their output goes", CARRY, '"riders": riders[r["offset"], r["skip"]]', '"riders": []', first="tests/test_process.py"),
    m("a chosen piece goes alone", "upkeep/verbs.py", "forget.with_riders(store, folded, drops)", "drops", first="tests/test_process.py"),
    m("a line belongs to the range in which it ends", "sources/ranges.py", "search = [data], asked.start, max(end - 1, first)", "search = [data], asked.start, max(end, first)", first="tests/test_process.py"),
    m("a row group belongs to the ranges behind it too", "sources/rowgroups.py", "if start <= span.first < start + length]", "if span.first < start + length]", first="tests/test_process.py"),
    m("quarantine files without a manifest count", PROTOCOL, "for folder in (names.LEDGER, names.QUARANTINE) for e in _of_job(", "for folder in (names.LEDGER,) for e in _of_job(", first="tests/test_process.py"),
    m("expire deletes what is still in quarantine", "coverage/quarantine.py", "if name not in live and _named(log, below, name)]", "if _named(log, below, name)]", first="tests/test_process.py"),
    m("the columns are looked for again after a kill", "process.py", "_of_open_job(store, log, made) or self._of_first_rows", "self._of_first_rows", first="tests/test_process.py"),
    # commit, publish, abort
    m("published_early", PROTOCOL, "    lost = set[int]()\n",
      "    lost = set[int]()\n    log.append(lambda log: None if log.published(entry.job) else Published(job=entry.job, time=now()))\n"),
    m("recovery forgets to publish", PROTOCOL, "        publish(log, entry, progress)\n", "        pass\n"),
    m("a run does not publish", JOBS, "                protocol.publish(log, entry, lambda done, _: bar.to(done))\n", "                pass\n"),
    m("lost_not_logged", PROTOCOL, "lost=tuple(sorted(lost))", "lost=()"),
    m("gone_is_done: published without looking", RENAME, "be another's.\n            return store.stat(file.name) is not None", "be another's.\n            return True"),
    m("gone_is_done (rename_v2)", RENAME, "bool:\n        return store.stat(file.name) is not None", "bool:\n        return True"),
    m("gone_is_fatal", RENAME, "            # Somebody else published it", "            raise\n            # Somebody else published it"),
    m("gone is lost, without looking", RENAME, "be another's.\n            return store.stat(file.name) is not None", "be another's.\n            return False", first="tests/test_crash.py"),
    m("output is published when the task ends", RENAME, "-> None:\n        pass\n", "-> None:\n        for file in task.files:\n            store.rename(file.handle, file.name)\n"),
    m("output is written where readers list it", RENAME, 'return f"{names.attempt_folder(job, task, attempt)}/{final}"', "return final"),
    m("attempts are deleted before they are published", PROTOCOL, "    by = committer(entry.committer, log.store)\n    files =",
      "    by = committer(entry.committer, log.store)\n    log.store.remove_tree(names.attempts(entry.job))\n    files ="),
    m("abort_not_logged", PROTOCOL, "    log.append(lambda log: None if log.outcome(job) else Abort(job=job, why=why, time=now(), committer=by))\n    clean(log, job)\n",
      "    if log.refresh().outcome(job) is None:\n        log.store.remove_tree(names.job_folder(job))\n    clean(log, job)\n"),
    m("abort does not look at the log", PROTOCOL, "    log.append(lambda log: None if log.outcome(job) else Abort(job=job, why=why, time=now(), committer=by))\n",
      "    log.append(lambda log: None if log.outcome(job) else Abort(job=job, why=why, time=now(), committer=by))\n    log.store.remove_tree(names.job_folder(job))\n"),
    m("no_file_is_lost", PROTOCOL, "    lost = set[int]()\n", "    lost = {task.task for task in entry.tasks if not task.files}\n"),
    # clean and recover
    m("clean_before_publish", PROTOCOL, "(isinstance(outcome, Commit) and published is None)", "False", ("        assert published is not None\n", "")),
    m("clean_open_job", PROTOCOL, "    if outcome is None or (isinstance", "    if (isinstance",
      ("    for by in _committers_of(outcome.committer, store):", "    for by in serving(store):"), ("if job and log.outcome(job) is not None}", "if job}")),
    m("clean deletes segments that the log names", PROTOCOL, "== job and e.name not in segments:", "== job:"),
    m("clean leaves the losers' segments", PROTOCOL, "== job and e.name not in segments:", "== job and False:"),
    m("clean leaves the manifests", PROTOCOL, "    store.remove_tree(names.manifests(job))\n", "",
      ("if e.name != names.plan_head(job)])", 'if e.name != names.plan_head(job) and "/tasks/" not in e.name])'),
      ("    store.remove_tree(names.job_folder(job))\n", "")),
    m("clean leaves an aborted job's parts", PROTOCOL, "names.job_of_part(e.name) == job and e.name != part:", "False:"),
    m("rename_v2 leaves what is not committed", RENAME, "if name not in keep and not", "if False and not"),
    m("rename_v2 deletes what is committed", RENAME, "keep = set(named)\n        for", "keep = set[str]()\n        for"),
    m("v2_loser_deletes_final", RENAME, "    leaks = True\n", "    leaks = True\n\n    def abort_task(self, store: Store, job: str, task: int, attempt: str, outputs: Mapping[str, Sink]) -> None:\n"
      "        for e in list(store.walk()):\n            if names.job_of_data_file(e.name) == job and attempt in e.name:\n                store.remove(e.name)\n"),
    # uploads
    m("gone_is_done (upload)", UPLOAD, "return store.complete(file.name, file.handle)", "return store.complete(file.name, file.handle) or True", first="tests/test_upload.py"),
    m("completed by another is lost (upload)", MEMORY, "            return self.stat(name) is not None\n", "                return True\n            return False\n", first="tests/test_upload.py"),
    m("publish completes an upload only if it is open", UPLOAD, "        return store.complete(file.name, file.handle)",
      "        return any(name == file.name for name, _ in store.pending()) and store.complete(file.name, file.handle)", first="tests/test_upload.py"),
    m("uploads are completed when the task ends", UPLOAD, "        pass\n", "        for file in task.files:\n            store.complete(file.name, file.handle)\n", first="tests/test_crash.py"),
    m("clean forgets the open uploads", UPLOAD, "            store.give_up(name, handle)\n\n    def leftovers", "            pass\n\n    def leftovers", first="tests/test_upload.py"),
    m("clean gives up every job's uploads", UPLOAD, "if names.job_of_data_file(found[0]) == job]", "if names.job_of_data_file(found[0])]", first="tests/test_upload.py"),
    m("a zombie's uploads are not found", UPLOAD, "        return {job for name, _ in pending if (job := names.job_of_data_file(name))}", "        return set()", first="tests/test_upload.py"),
    m("the loser gives up the winner's upload", UPLOAD, '            if handle := cast("Upload", sink).handle:  # else it was not closed, and its writer has discarded it\n                store.give_up(final, handle)\n',
      '            for name, handle in list(store.pending()):\n                if f"{job}-{task}-" in name:\n                    store.give_up(name, handle)\n', first="tests/test_upload.py"),
    m("the loser's uploads stay until the job is cleaned", UPLOAD, "                store.give_up(final, handle)\n", "                pass\n", first="tests/test_upload.py"),
    m("what is not answered is given up", ATTEMPT, "            if not put_manifest(store, job, done):\n                one.abort()\n",
      "            try:\n                won = put_manifest(store, job, done)\n            except Exception:\n                one.abort()\n                raise\n            if not won:\n                one.abort()\n", first="tests/test_upload.py"),
    m("the abort of a damaged plan leaves the uploads", PROTOCOL, 'if committer in ("", by.name)]', "if committer == by.name]", first="tests/test_upload.py"),
    m("a committer works in any store", COMMITTERS, "    if not found.serves(store):\n", "    if False:\n", first="tests/test_upload.py"),
    m("a discarded table is written on", PARQUET, "            file.given_up = True", "            file.given_up = False", first="tests/test_upload.py"),
    m("handles of other files are taken", MEMORY, " and _uploads[handle][0] == self._path(name)", "", first="tests/test_upload.py"),
    m("a run does not clean", JOBS, "    protocol.clean(log, job)\n", "    pass\n", first="tests/test_crash.py"),
    m("recovery does not clean", PROTOCOL, "    for job in sorted(_leftovers(store, log, everywhere=held.looks())):\n        clean(log, job)\n"),
    m("a zombie's segments are not found", PROTOCOL, "for e in store.walk(folder) if e.name not in named]", "for e in store.walk(folder) if False]", first="tests/test_matrix.py"),
    m("a zombie's files are not found (rename_v2)", PROTOCOL, "found |= by.leftovers(store, (file.name", "found |= set() and by.leftovers(store, (file.name", first="tests/test_matrix.py"),
    m("temporary files are not swept", LOCAL, "        self.remove_tree(TEMPORARY)\n", "        pass\n", first="tests/test_crash.py"),
    m("a dead writer's empty directory stays", LOCAL, "                    _rmdir(path)\n", "                    pass\n", first="tests/test_crash.py"),
    # readers and the ledger
    m("reader_before_publish", LOG, "return () if reader else commit.tasks", "return commit.tasks"),
    m("readers are told of what is lost", LOG, "        if not published.lost:\n", "        if published:\n"),
    m("lost_by_task, removes_despite_lost", LOG, "return () if commit.removing else tuple(", "return tuple("),
    m("a missing segment is an empty one", SEGMENTS, "    except (NotFoundError, *DAMAGED) as e:\n        if piece:\n",
      "    except NotFoundError:\n        return pa.schema([schema.field(c) for c in columns]).empty_table()\n    except DAMAGED as e:\n        if piece:\n"),
    m("checkpoint_cut, checkpoint_unpublished", CHECKPOINT, "    version = log.settled_version()\n", "    version = log.tip\n", first="tests/test_checkpoints.py"),
    m("checkpoint_names_later_tip", CHECKPOINT, "        version=version, id=made,", "        version=Log(store).refresh().tip, id=made,", first="tests/test_checkpoints.py"),
    m("checkpoint_union", FOLD, "Source(log.base.version, name,", "Source(1 << 60, name,", first="tests/test_checkpoints.py"),
    m("a checkpoint's head comes first", CHECKPOINTS, "    return all(there.get(name) == piece.size for name, piece in named)", "    return True", first="tests/test_checkpoints.py"),
    m("segments are swept that a readable version needs", CHECKPOINT, "checkpoints.newest(store, log.expired())", "checkpoints.newest(store)", first="tests/test_checkpoints.py"),
    m("a late entry decides again what a checkpoint says is over", LOG, "if self._earlier(entry.job)[0] in (0, number):", "if True:", first="tests/test_checkpoints.py"),
    m("removed files keep their rows", FOLD, "                removed.setdefault(file, number)\n", "                pass\n", first="tests/test_matrix.py"),
    m("uncovered ranges keep their rows", FOLD, "                uncovered[uncover.path].append((number, uncover))\n", "                pass\n"),
    m("uncover_whole_key", UNCOVERED, "int(self.by[first:end].max(initial=-1))", "int(self.by.max(initial=-1))"),
    m("quarantine_by_path", ANTIJOIN, ' if r["version"] == version or not bad]', "]"),
    m("empty_not_covered", ANTIJOIN, "covered = pc.and_(known, pc.fill_null(pc.and_(same, taken), False))",
      'covered = pc.and_(pc.and_(known, pc.fill_null(same, False)), pc.greater(listing.column("size"), 0))',
      ("return [] if covered else [(0, 0)]", "return [(0, 0)]")),
    m("covered in any version", ANTIJOIN, "covered = pc.and_(known, pc.fill_null(pc.and_(same, taken), False))", "covered = known"),
    # what changes a ledger
    m("rewrite_drops_others", CARRY, '(r["path"], r["version"], r["start"], r["length"]) not in without.keys', "False", first="tests/test_upkeep.py"),
    m("rewrite_keeps_old", CARRY, '(r["path"], r["version"], r["start"], r["length"]) not in without.keys', "True", first="tests/test_upkeep.py"),
    m("a damaged record is carried", CARRY, '    if found != row["checksum"]:', "    if False:", first="tests/test_upkeep.py"),
    m("removed files still count", FOLD, "                removed.setdefault(file, number)\n", "                pass\n", first="tests/test_upkeep.py"),
    m("retry_takes_old_job", UPKEEP, "if head is not None and fresh:", "if False:", first="tests/test_upkeep.py"),
    m("expire_without_entry", EXPIRE, "    log.append(compute)\n", "    pass\n", first="tests/test_upkeep.py"),
    m("expire_ignores_pins", EXPIRE, "min([wanted, *log.pins().values()])", "wanted", first="tests/test_upkeep.py"),
    m("pin_unchecked", EXPIRE, "        if log.expired() > version:", "        if False:", first="tests/test_upkeep.py"),
    m("a tail without a look at what lies before it", TAILS, "xxhash.xxh3_64_intdigest(seen) != mark.fingerprint", "False", first="tests/test_tails.py"),
    m("half a line is taken", ATTEMPT, "if self.convert.holds and not whole.endswith", "if False and not whole.endswith", first="tests/test_tails.py"),
    m("what was rejected is given again when its file grows", ANTIJOIN, '(r["records"] == 1 and', "(False and", first="tests/test_process.py"),
    m("what waits is taken for done", ANTIJOIN, "pc.and_(same, taken)", "same", first="tests/test_tails.py"),
    m("an appended file that is being written to is never read", SPLITTING, "    seen = reread(store, request.name", "    return file, content\n    seen = reread(store, request.name", first="tests/test_tails.py"),
    # durability
    m("no fsync of an object", LOCAL, "            write_all(fd, data)\n            os.fsync(fd)\n", "            write_all(fd, data)\n", first="tests/test_matrix.py"),
    m("no fsync of a data file", DURABLE, "                os.fsync(self.fd)\n", "                pass\n", first="tests/test_matrix.py"),
    m("no fsync of a data file's directory", DURABLE, "            sync_folder(os.path.dirname(self.path))\n", "", first="tests/test_matrix.py"),
    m("no fsync of the directory after put", LOCAL, "                sync_folder_of(path)\n                return\n", "                return\n", first="tests/test_matrix.py"),
    m("no fsync of the directory after put_if_absent", LOCAL, "                sync_folder_of(path)\n                return True\n", "                return True\n", first="tests/test_matrix.py"),
    m("no fsync where the name was taken", LOCAL, "                    sync_folder_of(path)\n                    return False\n", "                    return False\n", first="tests/test_matrix.py"),
    m("no fsync of the target's directory", LOCAL, "                sync_folder_of(target)\n", "                pass\n", first="tests/test_matrix.py"),
    m("no fsync where another has published", LOCAL, "            finally:\n                # Also where", "            except FileNotFoundError:\n                raise\n            else:\n                # Also where", first="tests/test_matrix.py"),
    m("no fsync of the source's directory", LOCAL, "            sync_folder_of(source)\n", "", first="tests/test_matrix.py"),
    m("no fsync of a new directory's name", DURABLE, "            sync_folder(os.path.dirname(folder))\n", "            pass\n", first="tests/test_matrix.py"),
    m("no fsync of the name of a directory that another has made", DURABLE, "        try:\n            sync_folder(", "        try:\n            ours and sync_folder(", first="tests/test_matrix.py"),
    m("put_if_absent replaces", LOCAL, "os.link(temporary, path)", "os.replace(temporary, path)", first="tests/test_matrix.py"),
    m("put writes in place", LOCAL, "                    os.replace(self._temporary(data), path)\n",
      "                    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)\n                    write_all(fd, data)\n                    os.fsync(fd)\n"
      "                    os.close(fd)\n", first="tests/test_matrix.py"),
    m("put_if_absent leaves its temporary file", LOCAL, "                finally:\n                    unlink(temporary)\n", "                finally:\n                    pass\n", first="tests/test_crash.py"),
    m("a full disk is not noticed", DURABLE, "        view = view[os.write(fd, view) :]\n", "        try:\n            view = view[os.write(fd, view) :]\n        except OSError:\n            return\n", first="tests/test_crash.py"),
    # files of many splits
    m("a conflict takes only its own task out of a shuffle", PROTOCOL, "if kept and not found else []", "if kept else []", first="tests/test_shuffle.py"),
    m("what is lost of a shuffle is a task like another", ENTRIES, "return self.whole or any(", "return any(", first="tests/test_crash.py"),
    m("a shuffle's input is shown beside its output", SHUFFLE, 'replace(task, files=(), schema="")', "task", first="tests/test_shuffle.py"),
    m("two runs of a shuffle share their names", SHUFFLE, "secrets.randbelow(10**12)", "0", first="tests/test_shuffle.py"),
    m("a thread that dies before its answer has collected nothing", RUNNER, "        try:  # around all of it: what ends this thread anywhere else is seen by nobody\n", "        job.__enter__()\n        try:\n",
      ('        raise SparkFailed("the thread that waited for Spark\'s job has ended without an answer")\n', "        return []\n"), first="tests/test_shuffle.py"),
    m("a part of a shuffle that did not answer", SHUFFLE, "        if part != expected:\n", "        if False:\n", first="tests/test_shuffle.py"),
    m("rows of a part that did not come", SHUFFLE, "in files)) != rows:", "in files)) > rows:", first="tests/test_shuffle.py"),
    m("rows that were staged and are not there", SHUFFLE, "    if rows != part.records:\n", "    if False:\n", first="tests/test_shuffle.py"),
    m("a commit without all results", PROTOCOL, "    if [task.task for task in tasks] != list(range(head.tasks + head.closing)):\n", "    if False:\n", first="tests/test_pitfalls.py"),
    m("an item that Spark returned nothing for is left out", RUNNER, "return {i: outcomes.get(i, lost) for group in groups for i in group}", "return outcomes", first="tests/test_shuffle.py"),
    m("rows leave a shuffle and its files stay", WHOLE, "for number in sorted(touched):\n", "for number in ():\n", first="tests/test_shuffle.py"),
    m("one file leaves a shuffle", WHOLE, "sorted(touched & staying.keys())", "()", first="tests/test_shuffle.py"),
    m("what was claimed is compacted", COMPACT, "if words_of(log).traced else []", "", first="tests/test_claim.py"),
    m("a claim that raises is committed", CLAIMS, "        except BaseException as e:\n", "        except StorageError as e:\n", first="tests/test_claim.py"),
    m("a killed claim is never gone on with", CLAIMS, "if head.intent == made.intent), None)", "if False), None)", first="tests/test_claim.py"),
    m("a claim ends where another has ended before it read its splits", CLAIMS, "            except _Over:\n", "            except ZeroDivisionError:\n", first="tests/test_claim.py"),
    m("a claim that came second says nothing", CLAIMS, "        _check_ours(log, head, marks, attempt, taken)\n", "", first="tests/test_claim.py"),
    m("a copy of another version", MEMORY, "if value is None or (version and self._entry(old, value).version != version):", "if value is None:",
      first="tests/services/test_conformance.py"),
    # programs that call a committer themselves
    m("two jobs of one name are both committed", RULES, "    if twin is not None:\n", "    if False:\n", first="tests/test_committers.py"),
    m("a name that is committed begins anew", INTERFACE, "of_name(log, ending_of(name))) is not None:", "of_name(log, ending_of(name))) is False:", first="tests/test_committers.py"),
    m("a name of which another job was lost is taken", RULES, "for commit in found if log.in_effect(commit)), None)", "for commit in found), None)", first="tests/test_committers.py"),
    m("a job is committed without some of its tasks", INTERFACE, "        if missing:\n", "        if False:\n", first="tests/test_committers.py"),
    m("what may count is removed (abort_task)", INTERFACE, "            if won is None or won.attempt == attempt.id:\n", "            if False:\n", first="tests/test_committers.py"),
    m("a zombie's task is taken", INTERFACE, "            if protocol.plan_head(attempt.store, attempt.job) is None:\n", "            if False:\n", first="tests/test_committers.py"),
    m("an attempt that came second counts", INTERFACE, 'attempt.state = "committed" if won else "lost"', 'attempt.state, won = "committed", True', first="tests/test_committers.py"),
    m("the output of an attempt that came second stays", INTERFACE, "                attempt.discard()\n            attempt.state =", "                pass\n            attempt.state =", first="tests/test_committers.py"),
    m("half of a file is committed", ATTEMPTS, "            if file.failed:\n", "            if False:\n", first="tests/test_committers.py"),
    m("two attempts share their names", ATTEMPTS, "names.new_id()", '"0" * 12', first="tests/test_committers.py"),
    m("a job of one's own that was lost in part counts in part", ENTRIES, "return self.closing or self.verb == WRITE", "return self.closing", first="tests/services/test_committing.py"),
    m("tasks that cover nothing are dropped", PROTOCOL, "        if head.verb == WRITE and not found:\n", "        if False:\n", first="tests/test_committers.py"),
    m("an interrupted job is given up", RUNNING, "if name is None or isinstance(e, _Failed):", "if True:", first="tests/test_committers.py"),
    # committers of others
    m("algorithm 2 is advised", REFUSALS, '    if committer != "v2":\n', "    if True:\n", first="tests/test_committer_advice.py"),
    m("a dead job's files are taken up", REFUSALS, '    if committer != "v1 without attempt id" or not asked.appends:\n', "    if True:\n", first="tests/test_committer_advice.py"),
    m("S3A's committers replace partitions", REFUSALS, '    if committer not in ("magic", "directory") or "dynamic_overwrite" not in asked.needs:\n', "    if True:\n", first="tests/test_committer_advice.py"),
    m("the manifest committer replaces partitions", REFUSALS, '    if committer != "manifest" or "dynamic_overwrite" not in asked.needs:\n', "    if True:\n", first="tests/test_committer_advice.py"),
    m("jobs at once share _temporary", REFUSALS, '    if committer != "v1" or "concurrent_jobs" not in asked.needs:\n', "    if True:\n", first="tests/test_committer_advice.py"),
    m("a factory that nobody asks counts", BINDING, 'return of_factory if of_factory in ("v1", "v2", "unknown") else "naive"', "return of_factory", first="tests/test_committer_check.py"),
    m("what a running job writes is swept", SWEEPING, "        if quiet and item.age < quiet:\n", "        if False:\n", first="tests/test_committer_leftovers.py"),
    m("what nobody knows the age of is swept", SWEEPING, "        if quiet and item.age < quiet:\n", "        if quiet and 0 <= item.age < quiet:\n", first="tests/test_committer_leftovers.py"),
    m("a dry run sweeps", SWEEPING, "    if not dry_run:\n", "    if True:\n", first="tests/test_committer_leftovers.py"),
    m("who is asleep outlives the lab", PROCESSES, "read -r _ || kill -KILL", "read -r _ || true", first="tests/test_lab.py"),
    m("all files at once are a part of them", FACTS, "sum(0 < seen < whole for _, seen in self.states)", "sum(0 < seen <= whole for _, seen in self.states)", first="tests/test_lab.py"),
    # loads
    m("an offset behind the range is loaded, too", LOADING, "Span(one.key, one.start, one.end)", "Span(one.key, one.start, one.end + 1)", first="tests/test_load_matrix.py"),
    m("a range is what there is by now, and not what was planned", LOADING, "Span(one.key, one.start, one.end)", "Span(one.key, one.start, cluster.ends([one.key])[one.key])", first="tests/test_load_matrix.py"),
    m("a topic that was made again is loaded on", PLANNED, "[version for version in versions if version != now]", "[]", first="tests/test_load_matrix.py"),
    m("a topic that was made again while it was read counts", LOADING, "            if now.get(topic) != version:\n", "            if topic not in now:\n", first="tests/test_load_matrix.py"),
    m("aborted records are loaded", CLIENT, '"isolation.level": "read_committed"', '"isolation.level": "read_uncommitted"', first="tests/test_load_matrix.py"),
    m("what an open transaction can change is planned", CLIENT, "isolation = self.kafka.IsolationLevel.READ_COMMITTED if", "isolation = self.kafka.IsolationLevel.READ_UNCOMMITTED if", first="tests/test_load_matrix.py"),
    m("what was removed before it was read is done", LOADING, "(*key, found.start, length, LOST, _WHY[LOST],", '(*key, found.start, length, "done", None,', first="tests/test_load_matrix.py"),
    m("what was removed before it was planned stands nowhere", PLANNED, "_Range(key, gone, until, (LOST, start, gone))", "_Range(key, gone, until)", first="tests/test_load_matrix.py"),
    m("any end of a partition ends a range", OFFSETS, "            if chain is not None and message.offset() >= chain.end:\n", "            if chain is not None:\n", first="tests/test_load_matrix.py"),
    m("markers and aborted records at a range's end are not covered", OFFSETS, "        yield from self._given(chain, chain.end)\n", "        yield from self._given(chain, chain.next)\n", first="tests/test_load_matrix.py"),
    m("what a topic had lost before is not marked", PLANNED, 'mark = ("mark", 0, low) if low or low >= end else None', "mark = None", first="tests/test_load_matrix.py"),
    m("a new leader ends a load", CLIENT, "code in {getattr(kinds, name, None) for name in _PASSING}", "code == kinds.NOT_LEADER_FOR_PARTITION", first="tests/test_load_matrix.py"),
    # addresses
    m("a row may lie anywhere", "sources/files.py", "if url.startswith(place) and (chooser", "if (chooser", first="tests/test_addresses.py"),
    m("a row may lead out of its root", "sources/files.py", " and is_safe(url[len(place) :]):", ":", first="tests/test_addresses.py"),
    m("a place of Azure goes without its account", "storage/azure_account.py", "    if not endpoint:\n        return url\n", "    return url\n", first="tests/test_addresses.py"),
    m("any host is the service's", "storage/azure_account.py", "    if found and (cloud in ", "    if found and (True or cloud in ", first="tests/test_addresses.py"),
    m("a source has as many URLs as spellings", "sources/files.py", 'root = Root(canonical(text, options), ("",), options)', 'root = Root(normalise(text), ("",), options)', first="tests/test_addresses.py"),
    m("each namenode is a place", "storage/hdfs_access.py", "if netloc in (service, *hosts)", "if netloc == service", first="tests/test_addresses.py"),
    # errors that pass
    m("what is busy is not tried again", RETRY, "        except TransientError as e:\n", "        except TimeoutError as e:\n", first="tests/test_retry.py"),
    m("a second rename that finds nothing has failed", RETRY, "            if patience.tries and unsure is not None and ", "            if False and ", first="tests/test_retry.py"),
    m("a rename that finds nothing has come to pass", RETRY, "            if patience.tries and unsure is not None and ", "            if unsure is not None and ", first="tests/test_retry.py"),
    m("a file that cannot be read just now is set aside", RETRY, "if isinstance(content, Busy) else content", "if False else content", first="tests/test_retry.py"),
    m("a file that cannot be looked up just now is left out", RETRY, '            if item.__class__ is Trouble and item.kind == "busy":\n', '            if item.__class__ is Trouble and item.kind == "busy" and False:\n', first="tests/test_retry.py"),
    m("a bad disk is tried again, and what it lost is taken for written", DURABLE, "    errno.EAGAIN,", "    errno.EIO, errno.EAGAIN,", first="tests/test_retry.py"),
)  # fmt: skip
