"""Committers for users' own jobs: which one for this store, whether the session has it, what it guarantees; and Hadoop's interface.

    advice = quire.committers.advise("s3a://lake/events", needs={"append", "speculation"})
    print(advice.defaults); spark = advice.apply(SparkSession.builder).getOrCreate()      before any other session starts
    quire.committers.advise.check(spark, url="s3a://lake/events", format="parquet")
    quire.committers.inspect_success("s3a://lake/events"); quire.committers.sweep("s3a://lake/events")
    quire.committers.lab.run(…)                                           committer × fault → the guarantees, measured on this machine

    committer = quire.committers.OutputCommitter("s3://lake/orders")      the article's calls, one by one, over quire's commit log
    quire.committers.run(write, "s3://lake/orders", tasks=8)       a whole job in their order

They give an `Advice` with each `Alternative` and `Refusal`, a `Check` with each `Finding`, an `Inspection`, what was `Swept`, a `Job`, a
`TaskAttempt` and what was `Committed`:

    advice: Advice = quire.committers.advise(url)
    refused: Refusal = advice.refused[0]; other: Alternative = advice.alternatives[0]; advice.as_dict()
    checked: Check = quire.committers.advise.check(spark, url=url); found: Finding = checked.findings[0]; checked.as_dict()
    inspected: Inspection = quire.committers.inspect_success(url); inspected.as_dict()
    swept: Swept = quire.committers.sweep(url); swept.as_dict()
    job: Job = committer.setup_job(tasks=8); attempt: TaskAttempt = committer.setup_task(job, 0); names = quire.committers.known()
    done: Committed = quire.committers.run(write, url, tasks=8); done.as_dict()

Other packages bring committers of their own by an entry point of the group `quire.committers`; `known()` lists all names.
"""

from __future__ import annotations

from typing import Any

from quire.commit.committers import Adopting, Committer, known
from quire.committers.advice.advise import Advice, Alternative, Refusal, advise
from quire.committers.advice.checking import Check, Finding
from quire.committers.cleanup.success import Inspection, inspect_success
from quire.committers.cleanup.sweeping import Swept, sweep
from quire.committers.output.attempts import TaskAttempt
from quire.committers.output.interface import Committed, Job, LostError, OutputCommitter
from quire.committers.output.running import run

__all__ = [
    "Adopting", "Advice", "Alternative", "Check", "Committed", "Committer", "Finding", "Inspection", "Job", "LostError", "OutputCommitter",
    "Refusal", "Swept", "TaskAttempt", "advise", "inspect_success", "known", "run", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """`quire.committers.lab`, when it is first asked for: jobs need none of it."""
    if name == "lab":
        import importlib

        return importlib.import_module("quire.committers.lab")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
