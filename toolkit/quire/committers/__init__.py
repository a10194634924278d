"""Committers for users' own jobs: Hadoop's interface over quire's commit log.

    committer = quire.committers.OutputCommitter("s3://lake/orders")      the article's calls, one by one
    quire.committers.run(spark, write, "s3://lake/orders", tasks=8)       a whole job in their order

Other packages bring committers of their own by an entry point of the group `quire.committers`; `known()` lists all names.
"""

from __future__ import annotations

from quire.commit.committers import Adopting, Committer, known
from quire.committers.attempts import TaskAttempt
from quire.committers.interface import Committed, Job, LostError, OutputCommitter
from quire.committers.running import run

__all__ = ["Adopting", "Committed", "Committer", "Job", "LostError", "OutputCommitter", "TaskAttempt", "known", "run"]
