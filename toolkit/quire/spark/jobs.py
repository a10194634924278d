"""Spark's jobs as quire runs them: a group that can be interrupted alone, without the user's own jobs.

There are three ways, and no session knows all of them: a session of its own, whose jobs are interrupted together; a tag; and the group of
jobs of a thread. Where there is a context, a tag ends nothing (seen on Spark 4.0 and 4.3).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Protocol

from quire.spark.releases import release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Way(Protocol):
    """How jobs are marked, by the thread that runs them, and ended, by another one."""

    session: SparkSession

    def begin(self) -> None: ...

    def over(self) -> None: ...

    def interrupt(self) -> None: ...


class _Own:
    """A session of its own beside the user's, in one context."""

    def __init__(self, spark: SparkSession) -> None:
        self.session = spark.newSession()

    def begin(self) -> None:
        """The session is the mark."""

    def over(self) -> None:
        """And it goes by itself."""

    def interrupt(self) -> None:
        self.session.interruptAll()


class _Tag:
    """A tag of the jobs of a thread, over Spark Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self.session, self.tag = spark, _name()

    def begin(self) -> None:
        self.session.addTag(self.tag)

    def over(self) -> None:
        self.session.removeTag(self.tag)

    def interrupt(self) -> None:
        self.session.interruptTag(self.tag)


class _Group:
    """A group of the jobs of a thread, in a context; Spark 3.5 has no other way there."""

    def __init__(self, spark: SparkSession) -> None:
        self.session, self.group = spark, _name()
        self.context: Any = spark.sparkContext

    def begin(self) -> None:
        self.context.setJobGroup(self.group, "a job of quire's")

    def over(self) -> None:
        for key in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            self.context.setLocalProperty(key, None)

    def interrupt(self) -> None:
        self.context.cancelJobGroup(self.group)


def _name() -> str:
    return f"quire-{uuid.uuid4().hex}"


class SparkJob:
    """A group of Spark jobs that can be interrupted alone; what runs in `with job:` belongs to it, with frames of its `session`.

    Where there is a context, it is a session of its own; over Spark Connect a tag, as a new session there has neither the files that were
    sent to the user's nor its Python workers. `within`: the frame is of the user's session already, so it is a group there.
    """

    def __init__(self, spark: SparkSession, *, within: bool = False) -> None:
        if not hasattr(spark, "_sc"):
            self._way: _Way = _Tag(spark)
        else:
            self._way = _Group(spark) if within or release() < (4, 0) else _Own(spark)
        self.session = self._way.session

    def __enter__(self) -> None:
        self._way.begin()

    def __exit__(self, *_: object) -> None:
        self._way.over()

    def interrupt(self) -> None:
        """End what runs."""
        self._way.interrupt()
