"""A live session, looked into: by its JVM where there is one, over Spark Connect by its settings alone."""

from __future__ import annotations

import re
from typing import Any

from quire.committers.advice import classes as k
from quire.committers.advice.binding import CommitterSettings
from quire.committers.advice.versions import hadoop_conf, jvm_of
from quire.errors import scrub
from quire.spark import releases


class Session:
    """The questions of a check to a session. Questions that only a JVM answers are answered by None over Connect."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.jvm = jvm_of(spark)
        self._hadoop = hadoop_conf(spark) if self.jvm is not None else None
        self.settings = CommitterSettings(self._of_spark, self._of_hadoop)

    @property
    def seen(self) -> bool:
        """Whether the JVM can be asked."""
        return self.jvm is not None

    def _of_spark(self, key: str) -> str | None:
        found = self.spark.conf.get(key, None)
        return None if found is None else str(found)

    def _of_hadoop(self, key: str) -> str | None:
        if self._hadoop is not None:
            found = self._hadoop.get(key)
            return None if found is None else str(found)
        return self._of_spark(key) or self._of_spark(k.HADOOP + key)  # as a session has it for each of its jobs, or was started with

    def loadable(self, name: str) -> bool | None:
        """Whether a class can be loaded where Hadoop would load it."""
        return None if self._hadoop is None else self._hadoop.getClassByNameOrNull(name) is not None

    def jar(self, name: str) -> str:
        """The file name of the jar that a class comes from; empty where it cannot be told."""
        found = self._hadoop.getClassByNameOrNull(name) if self._hadoop is not None else None
        source = found.getProtectionDomain().getCodeSource() if found is not None else None
        return str(source.getLocation().getPath()).rpartition("/")[2] if source is not None else ""

    def file_system(self, scheme: str) -> bool | str | None:
        """Whether Hadoop has a file system for a scheme whose class can be loaded, else why not."""
        if self.jvm is None:
            return None
        from py4j.protocol import Py4JJavaError

        try:
            self.jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, self._hadoop)
        except Py4JJavaError as e:
            return scrub(str(e.java_exception.getMessage()), 150)
        return True

    def factory(self, url: str) -> tuple[str, str]:
        """The class of the committers' factory that Hadoop gives for a URL, or why it gives none: (class, reason)."""
        assert self.jvm is not None
        from py4j.protocol import Py4JJavaError

        try:
            path = self.jvm.org.apache.hadoop.fs.Path(url)
            made = self.jvm.org.apache.hadoop.mapreduce.lib.output.PathOutputCommitterFactory.getCommitterFactory(path, self._hadoop)
        except Py4JJavaError as e:
            return "", scrub(str(e.java_exception.getMessage()), 200)
        return str(made.getClass().getName()), ""

    def too_late(self) -> list[tuple[str, str, str]]:
        """Settings of Hadoop's that were given with `spark.hadoop.` after the start, which nobody reads: (key, given, what counts)."""
        if self._hadoop is None:
            return []
        found = []
        for key, given in sorted(releases.settings(self.spark).items()):
            plain = key.removeprefix(k.HADOOP)
            if plain == key or not re.match(r"mapreduce\.|fs\.s3a\.(bucket\.[^.]+\.)?committer|fs\.azure\.io", plain):
                continue
            counts = self._hadoop.get(plain)
            if counts != given and counts != self._of_spark(plain):
                found.append((key, str(given), "nothing" if counts is None else str(counts)))
        return found


def version_of(jar: str) -> str:
    """The version in a jar's file name: hadoop-aws-3.4.1.jar → 3.4.1."""
    match = re.search(r"-(\d+\.\d+\.\d+[^/]*?)\.jar$", jar)
    return match[1] if match else ""
