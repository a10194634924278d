"""One attempt of a task: its own folder or uploads, under an id that its process has drawn."""

from __future__ import annotations

import time
from typing import NoReturn

from quire.commit import names
from quire.commit.committers import Adopting, Committer, known
from quire.commit.entries import Coverage, DataFile, Stats, Task
from quire.committers.output.files import Output, adopted, ending, inside
from quire.engine import own_files
from quire.errors import RefusedError, UsageError
from quire.storage import Store


class TaskAttempt:
    """Where one attempt of a task writes. It stays in the process that has set it up; what travels is the job.

    job, task   which task of which job
    id          the attempt's own, random: two attempts of a task never write the same name
    state       open, committed, lost (another attempt of the task counts), aborted, or unknown (commit_task got no answer: call it again)
    files       what was created so far
    store, by   where it writes, and the committer

        attempt = committer.setup_task(job, 0)
        with attempt.create("day=1/orders.parquet") as file:
            file.write(data)
        attempt.work_path                      # for writers that take a path
        attempt.finish(), attempt.discard()    # what commit_task and abort_task call

    Calls raise UsageError for wrong names and once the attempt is over, and StorageError where the store fails.
    """

    def __init__(self, store: Store, by: Committer, job: str, task: int) -> None:
        self.job, self.task, self.id = job, task, names.new_id()
        self.state = "open"
        self.files = list[Output]()
        self.store, self.by = store, by
        self.started = time.time()
        self.done: Task | None = None  # the manifest, once it was made
        self._folder = False  # whether somebody may have written into it

    def __repr__(self) -> str:
        return f"TaskAttempt({self.job!r}, task={self.task}, id={self.id!r}, state={self.state!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a task attempt stays in its process: pass the job on, and call setup_task where the task runs")

    def create(self, name: str) -> Output:
        """A file to write bytes to, seen by nobody before commit_job.

        `name` ("day=1/orders.parquet") keeps its directories and ending; between them quire puts a name that no other attempt
        uses. Parquet, text, CSV or JSON (plain, .gz or .zst); all files of a destination are of one kind. A text's lines end by newlines.
        """
        self._check_open("create a file")
        folder = inside(name).rpartition("/")[0]
        final = names.data_file(folder, self.job, self.task, self.id, len(self.files), ending(name))
        found = Output(name, final, self.by.create(self.store, self.job, self.task, self.id, final))
        self.files.append(found)
        return found

    @property
    def work_path(self) -> str:
        """A directory that is not there yet, spelled as Spark takes it, for whoever writes files by path; all that lies there counts.

        RefusedError where output waits as uploads, which have no path: use `create`, or the committer "copy".
        """
        self._check_open("write files")
        if not isinstance(self.by, Adopting):
            raise RefusedError(
                f"the committer {self.by.name!r} takes no files that others write by path. Write them with task.create(name), or choose "
                f"another committer ({', '.join(name for name in known() if name != self.by.name)})."
            )
        self._folder = True
        return own_files.hadoop_url(f"{self.store.url}/{names.attempt_folder(self.job, self.task, self.id)}")

    # --------------------------------------------------------------------------------------------------- for the committer alone
    def _check_open(self, what: str) -> None:
        if self.state != "open":
            raise UsageError(f"attempt {self.id} of task {self.task} is {self.state}: it cannot {what} any more. Set up another attempt.")

    def finish(self) -> Task:
        """The manifest: made once, so that a put without an answer can be repeated. UsageError for a file that is not whole."""
        if self.done is not None and self.state != "open":  # else more may have been written since
            return self.done
        for file in self.files:
            if file.failed:
                raise UsageError(
                    f"{file.name!r} was not written to its end ({file.failed}): the task was not committed. Call abort_task, or "
                    f"discard() the file if the task is whole without it."
                )
            if not file.closed:
                raise UsageError(f"{file.name!r} is not closed: the task was not committed. Close it (or use `with`), and call again.")
        written = [file for file in self.files if not file.discarded]
        found = [self._told(file) for file in written]
        schemas = {file.schema for file in written}
        if self._folder:
            others, more = adopted(self.by, self.store, self.job, self.task, self.id, self.files)
            found, schemas = found + others, schemas | more
        if found:
            own_files.spec_of_files([file.name for file in found], "the task")  # of one kind
        if len(schemas := schemas - {""}) > 1:
            first, second, *_ = sorted(schemas)
            raise RefusedError(f"the task has written rows of two schemas, ({first}) and ({second}): nothing is visible.")
        self.done = Task(
            task=self.task, attempt=self.id, data_files=tuple(found), schema=next(iter(schemas), ""), coverage=Coverage(),
            stats=Stats(started=round(self.started, 3), seconds=round(time.time() - self.started, 3)),
        )  # fmt: skip
        return self.done

    def _told(self, file: Output) -> DataFile:
        return DataFile(file.final, file.size, file.records, self.by.handle(self.job, self.task, self.id, file.final, file.sink))

    def discard(self) -> None:
        """Remove what only this attempt can have written."""
        for file in self.files:
            if not file.closed:
                file.discard()
        self.by.abort_task(self.store, self.job, self.task, self.id, {file.final: file.sink for file in self.files})
