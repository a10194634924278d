"""Committers under test, as data. A Spark committer is its settings and jars; one of quire's own is its name."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from quire.commit.committers import known as ours
from quire.commit.committers import serving
from quire.committers.advice.classes import CLOUD_PROTOCOL, FILE_FACTORY, PROTOCOL, SQL_PROTOCOL
from quire.committers.lab.watch import LabPlace
from quire.errors import UsageError, about, choose, quoted, scrub
from quire.spark.java import find_java

_MANIFEST = "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory"
_S3A = "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
_FACTORY = "spark.hadoop.mapreduce.outputcommitter.factory.scheme"
_PLAIN = {PROTOCOL: SQL_PROTOCOL}  # said, since Spark takes the other one where it finds spark-hadoop-cloud
STAND_IN = "quire.lab.Bound"
VISIBLE = ""  # the sign is that readers of the directory see a file


@dataclass(frozen=True)
class UnderTest:
    """A committer as the lab tries it.

    name       as it stands in the matrix
    about      one line
    conf       Spark's settings, as a user would paste them
    jars       files that the job needs beside pip's pyspark
    per_job    Hadoop settings that get a number of their own for each job
    schemes    the kinds of store it is for, as Spark names them
    sign       a regular expression: a name below the destination by which it shows that a task is being committed; "" where readers
               of the directory see it, None where nothing shows it
    quire      the name of quire's committer (also one that another package has registered), instead of a Spark job
    frame      a Spark job all the same: its rows go through df.write.format("quire"), with that committer
    classes    classes that must be there: what names them in a settings file, and is not, would be another committer
    stand_in   whether it is bound by the lab's own small commit protocol, where spark-hadoop-cloud is not there
    """

    name: str
    about: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    jars: tuple[str, ...] = ()
    per_job: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ("file", "hdfs", "s3a", "abfs", "abfss")
    sign: str | None = None
    quire: str = ""
    frame: bool = False
    classes: tuple[str, ...] = ()
    stand_in: bool = False

    @property
    def logged(self) -> bool:
        """Whether there is a log, whose readers see other things than readers of the directory."""
        return bool(self.quire)

    @property
    def pipeline(self) -> bool:
        """Whether the job is one of quire's own, in which each file of the source is a task."""
        return bool(self.quire) and not self.frame


def _v(number: int) -> dict[str, str]:
    factories = {f"{_FACTORY}.{scheme}": FILE_FACTORY for scheme in ("s3a", "abfs", "abfss")}
    return {"spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": str(number), **_PLAIN, **factories}


def _bound(*schemes: str, factory: str = _MANIFEST, **more: str) -> dict[str, str]:
    return {**{f"{_FACTORY}.{scheme}": factory for scheme in schemes}, PROTOCOL: CLOUD_PROTOCOL, **more}


def _s3a(name: str) -> dict[str, str]:
    return _bound("s3a", factory=_S3A) | {
        "spark.hadoop.fs.s3a.committer.name": name, "spark.hadoop.fs.s3a.committer.magic.enabled": "true",
        "spark.hadoop.fs.s3a.committer.staging.conflict-mode": "append",
    }  # fmt: skip


_RENAMES, _S3 = ("file", "hdfs", "abfs", "abfss", "s3a"), ("s3a",)
_S3AFS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_MANIFEST_OF_OURS = r"_quire/jobs/[^/]+/tasks/"
_MANIFESTS = r"_temporary/[^/]+/[0-9]+/manifests/"  # below the id of the job, or Spark's of the write
_ALL = (
    UnderTest("v1", "FileOutputCommitter, algorithm 1: Spark's default", _v(1), schemes=_RENAMES, sign=r"_temporary/[^/]+/task_"),
    UnderTest("v2", "FileOutputCommitter, algorithm 2: files are renamed at task commit", _v(2), schemes=_RENAMES, sign=VISIBLE),
    UnderTest(
        "v1_attempt_id", "v1 with an attempt id of its own for each job", _v(1), schemes=_RENAMES, sign=r"_temporary/[^/]+/task_",
        per_job=("mapreduce.job.application.attempt.id",),
    ),
    UnderTest(
        "manifest", "the manifest committer, bound by a commit protocol that asks the factory", _bound("file", "hdfs", "abfs", "abfss"),
        schemes=("file", "hdfs", "abfs", "abfss"), sign=_MANIFESTS, stand_in=True,
    ),
    UnderTest(
        "manifest_naive", "the manifest committer's factory set, and Spark's own commit protocol left",
        _PLAIN | {f"{_FACTORY}.{scheme}": _MANIFEST for scheme in ("file", "hdfs", "abfs", "abfss")},
        schemes=("file", "hdfs", "abfs", "abfss"),
    ),
    UnderTest(
        "magic", "S3A magic: parts of uploads, completed at job commit", _s3a("magic"), schemes=_S3, sign=r"__magic[^/]*/.*\.pendingset$",
        stand_in=True, classes=(_S3AFS,),
    ),
    UnderTest(
        "directory", "S3A staging, directory: uploads at task commit", _s3a("directory"), schemes=_S3, stand_in=True, classes=(_S3AFS,)
    ),
    UnderTest("partitioned", "S3A staging, partitioned", _s3a("partitioned"), schemes=_S3, stand_in=True, classes=(_S3AFS,)),
    UnderTest("quire_rename", "quire: renames after the decision is in the log", quire="rename", sign=_MANIFEST_OF_OURS),
    UnderTest("quire_rename_v2", "quire: renames at task commit, for comparison", quire="rename_v2", sign=VISIBLE),
    UnderTest("quire_upload", "quire: uploads, completed after the decision is in the log", quire="upload", sign=_MANIFEST_OF_OURS),
    UnderTest("quire_write", 'quire: df.write.format("quire"), renames after the decision is in the log', quire="rename", frame=True),
    UnderTest(
        "quire_write_upload", 'quire: df.write.format("quire"), uploads, completed after the decision is in the log', quire="upload",
        frame=True,
    ),
)  # fmt: skip
COMMITTERS: Mapping[str, UnderTest] = MappingProxyType({one.name: one for one in _ALL})


def chosen(committers: Iterable[str | UnderTest] | str | UnderTest | None) -> list[UnderTest]:
    """The committers that a call means: names, or ones of the caller's own; None: all that the lab knows."""
    if committers is None:
        return list(_ALL)
    given = [committers] if isinstance(committers, str | UnderTest) else list(committers)
    names = [one.name if isinstance(one, UnderTest) else one for one in given]
    others = {f"quire_{name}": UnderTest(f"quire_{name}", quire=name, sign=_MANIFEST_OF_OURS) for name in ours()}
    known = {**COMMITTERS, **{name: one for name, one in others.items() if name not in COMMITTERS}}
    with about("committers"):
        if not given:
            raise UsageError(f"the lab was given no committer. Name some of {', '.join(known)}.")
        if len(set(map(str, names))) < len(names):
            raise UsageError("the lab was given a committer twice: name each once.")
        for one in given:
            if not isinstance(one, UnderTest):
                choose(one, known, "committer")
            elif not one.name.replace("_", "").isalnum():
                raise UsageError(f"a committer's name is of letters, digits and _, not {quoted(one.name)}.")
            elif missing := [jar for jar in one.jars if not Path(jar).is_file()]:
                raise UsageError(f"the jar {scrub(missing[0])} of the committer {one.name!r} is not there. Look at its path.")
    return [one if isinstance(one, UnderTest) else known[one] for one in given]


# ---------------------------------------------------------------------------------------------------------------------- what is there
def check(one: UnderTest, place: LabPlace) -> None:
    """UsageError where a committer has no business."""
    if not one.quire:
        if place.kind not in one.schemes:
            raise UsageError(f"{one.name} is for {', '.join(one.schemes)}, and this is {place.kind}")
        return
    if one.quire not in ours():
        raise UsageError(f"quire knows no committer {one.quire!r}. Register it, or check its spelling.")
    if one.quire not in [by.name for by in serving(place.store(), one.quire)]:
        raise UsageError(f"quire's {one.quire} does not work on this kind of store")


def with_jars(one: UnderTest, jars: Iterable[Path], scratch: Path) -> tuple[UnderTest, str]:
    """The committer with all that it needs of these jars, and what is said of how; UsageError for what is not there."""
    if one.quire:
        return one, ""
    jars = [*_not_of_spark(jars), *(Path(jar).absolute() for jar in one.jars)]
    for name in one.classes:
        if not any(_holds(jar, name) for jar in jars):
            raise UsageError(f"no jar that was given holds {name}: pass jars= with hadoop-aws or hadoop-azure of this Hadoop's version")
    if one.stand_in and not any(_holds(jar, CLOUD_PROTOCOL) for jar in jars):
        made = compiled(scratch)
        conf = {key: STAND_IN if value == CLOUD_PROTOCOL else value for key, value in one.conf.items()}
        return UnderTest(**{**vars(one), "conf": conf, "jars": (*map(str, jars), str(made))}), "bound by the lab's stand-in"
    return UnderTest(**{**vars(one), "jars": tuple(map(str, jars))}), ""


def _not_of_spark(jars: Iterable[Path]) -> list[Path]:
    """The jars but for those that Spark has itself: another version before its own would break it."""
    import pyspark

    own = {_artifact(jar) for jar in Path(pyspark.__file__).parent.glob("jars/*.jar")}
    return [jar for jar in jars if _artifact(jar) not in own]


def _artifact(jar: Path) -> str:
    return re.sub(r"-[0-9][^-]*$", "", jar.stem)


def jars_of(given: Any) -> list[Path]:
    """The jar files of a directory, or a list of jar files."""
    if given is None:
        return []
    named = [given] if isinstance(given, str | os.PathLike) else list(given)
    places = [Path(one).absolute() for one in named]  # the jobs run in a directory of their own
    found = [jar for place in places for jar in (sorted(place.glob("*.jar")) if place.is_dir() else [place])]
    with about("jars"):
        for jar in found:
            if not jar.is_file():
                raise UsageError(f"the jar {scrub(str(jar))} is not there. Look at its path.")
            _holds(jar, "")
        if not found:
            raise UsageError(f"no jar in {scrub(str(given))}. Look at the path.")
        _same_hadoop(found)
    return found


def _same_hadoop(jars: Iterable[Path]) -> None:
    import pyspark

    ours = next(Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar"), None)
    version = ours.stem.removeprefix("hadoop-client-api-") if ours else ""
    for jar in jars:
        for name in ("hadoop-aws", "hadoop-azure"):
            if version and jar.name.startswith(f"{name}-") and jar.stem.removeprefix(f"{name}-") != version:
                raise UsageError(f"{jar.name} is of another Hadoop than this Spark's, {version}. Get {name}:{version}.")


@functools.lru_cache(4096)
def _holds(jar: Path, name: str) -> bool:
    try:
        with zipfile.ZipFile(jar) as opened:
            return f"{name.replace('.', '/')}.class" in opened.NameToInfo
    except (OSError, zipfile.BadZipFile):
        raise UsageError(f"{scrub(str(jar))} is not a jar. Check its path.") from None


def compiled(scratch: Path) -> Path:
    """The stand-in for spark-hadoop-cloud's commit protocol, compiled against this Spark; UsageError where no compiler is."""
    import pyspark

    jar = scratch / "bound.jar"
    if jar.exists():
        return jar
    javac = find_java().home / "bin" / "javac"
    tool = str(javac) if javac.exists() else shutil.which("javac")
    if not tool:
        raise UsageError("neither spark-hadoop-cloud's jar nor a javac is here: pass jars=, or install a JDK")
    out = scratch / "bound"
    out.mkdir()
    command = [tool, "-nowarn", "-cp", f"{Path(pyspark.__file__).parent}/jars/*", "-d", str(out), str(Path(__file__).parent / "Bound.java")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"the stand-in for spark-hadoop-cloud does not compile against this Spark: {scrub(done.stderr)}")
    with zipfile.ZipFile(jar, "w") as made:
        for one in out.rglob("*.class"):
            made.write(one, str(one.relative_to(out)))
    return jar
