"""A table of committers: where each may write, what it guarantees and costs, and the source of that knowledge.

The guarantees are those that the lab tries (`quire.committers.guarantees`). `measured`: the kinds of stores on which this project has
run each; what it says of others was read at its `source`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from quire.committers.guarantees import Guarantees

NEEDS = {
    "speculation": "slow tasks are started twice",
    "dynamic_overwrite": "only the partitions that get new rows are replaced",
    "append": "rows are added to what is there",
    "overwrite": "the destination is replaced as a whole",
    "concurrent_jobs": "several jobs write below the destination at once",
    "hidden_until_commit": "readers see nothing of a job that has not committed",
    "visible_together": "readers see all of a job's files at one moment",
    "restartable": "a job whose driver was killed is run again",
    "many_files": "a job writes thousands of files",
}

# Pairs that no job can have, and why.
CONTRADICTIONS = (
    ("append", "overwrite", "one write either adds rows or replaces them: ask once for each"),
    ("append", "dynamic_overwrite", "one write either adds rows or replaces partitions: ask once for each"),
    ("overwrite", "dynamic_overwrite", "one write replaces either everything or the partitions that it has rows for: ask once for each"),
    ("overwrite", "concurrent_jobs", "each job deletes the destination before it begins, and with it what the other has committed"),
    ("dynamic_overwrite", "concurrent_jobs", "two jobs that replace one partition delete each other's files, with every committer"),
    ("overwrite", "visible_together", "the old rows are deleted before the job begins, so for its whole time readers see neither"),
    ("dynamic_overwrite", "visible_together", "partitions are deleted and filled one after the other, so readers see some of each"),
)

MANIFEST_DOC = "Hadoop, manifest_committer.md"
S3A_DOC = "Hadoop, hadoop-aws/committers.md"
MEASURED = "measured by this project: docs/committer-advice.md"


@dataclass(frozen=True)
class KnownCommitter:
    """A row of the table. `stores`: kinds of places.KINDS where it may write at all."""

    title: str
    stores: tuple[str, ...]
    keeps: Guarantees
    cost: str
    lacks: tuple[str, ...]
    measured: tuple[str, ...]
    source: str
    will: str  # what a job will do, as the live check says it


HELD = Guarantees(hidden=True, visible=False, clean=True, one_copy=True, restart=False)
NONE = Guarantees(hidden=False, visible=False, clean=False, one_copy=False, restart=False)
_WINDOW = "visible together: readers that list the directory see files appear one by one while the job commits"

COMMITTERS = {
    "v1": KnownCommitter(
        "FileOutputCommitter, algorithm 1", ("local", "hdfs", "abfs_hns"), HELD,
        "a rename for each task, then one for each file, one after the other in the driver",
        (
            _WINDOW + " (10 of 800 in the measured moment), longer with each file",
            "a driver killed in that window: files that are visible stay, and a job that appends the same again doubles them",
        ),
        ("local", "hdfs"), MEASURED,
        "Output waits in _temporary; committing the job renames file by file.",
    ),
    "v2": KnownCommitter(
        "FileOutputCommitter, algorithm 2", (), NONE,
        "a rename for each file, in the tasks",
        ("anything: tasks put their files into the destination while the job still runs",),
        ("local",), f"{MEASURED}; apache/spark #29895, #33332",
        "Each task puts its files into the destination when it ends: readers see them while the job runs, and a failed job leaves them. "
        "A task that is run again may leave its rows twice.",
    ),
    "manifest": KnownCommitter(
        "manifest committer, bound by PathOutputCommitProtocol", ("local", "hdfs", "abfs", "abfs_hns", "abfs_flat", "gcs"),
        HELD,
        "a listing and a manifest for each task, then a rename for each file, many at a time; needs the jar spark-hadoop-cloud",
        (
            _WINDOW + " (1 of 800 in the measured moment)",
            "a driver killed in that window: files that are visible stay, and a job that appends the same again doubles them",
        ),
        ("local", "hdfs", "abfs_flat"), f"{MEASURED}; {MANIFEST_DOC}",
        "Output waits in _temporary/<job>; committing the job renames many files at a time.",
    ),
    "naive": KnownCommitter(
        "a committer's factory without PathOutputCommitProtocol", (), replace(NONE, one_copy=True),
        "none: that is what makes it tempting",
        ("anything: json, csv, text and orc go straight into the destination, parquet silently through algorithm 1",),
        ("local",), f"{MEASURED}; apache/incubator-gluten #9993",
        "Tasks write straight into the destination: readers see half-written jobs, a failed one stays there, and a task that is run again "
        "fails with FileAlreadyExistsException. _SUCCESS names the new committer all the same.",
    ),
    "magic": KnownCommitter(
        "S3A magic committer", ("s3", "emr"), HELD,
        "no rename and no local disk: one request a file when the job commits, many at a time; needs spark-hadoop-cloud and hadoop-aws",
        (
            _WINDOW + ": a short one",
            "a killed job leaves uploads that nobody sees and that cost like objects, until sweep() or a life-cycle rule of the bucket",
            "a driver killed while it commits: what is visible stays, and a job that appends the same again doubles it",
        ),
        ("s3",), f"{MEASURED}; {S3A_DOC}",
        "Tasks upload under the final names, and committing the job completes the uploads.",
    ),
    "directory": KnownCommitter(
        "S3A directory staging committer", ("s3", "emr"), HELD,
        "tasks keep their output on local disks until they commit, and upload it then; needs a cluster file system for the lists",
        (
            _WINDOW + ": a short one",
            "a killed job leaves uploads that nobody sees and that cost like objects, until sweep() or a life-cycle rule of the bucket",
            "a driver killed while it commits: what is visible stays, and a job that appends the same again doubles it",
        ),
        (), S3A_DOC,
        "Tasks write to local disk and upload when they commit; committing the job completes the uploads.",
    ),
    "partitioned": KnownCommitter(
        "S3A partitioned staging committer", ("s3", "emr"), HELD,
        "tasks keep their output on local disks until they commit, and upload it then; needs a cluster file system for the lists",
        (
            _WINDOW + ": a short one",
            "replaced partitions are deleted first and filled then: a driver killed in between leaves them empty or partly filled",
            "a killed job leaves uploads that nobody sees and that cost like objects, until sweep() or a life-cycle rule of the bucket",
        ),
        (), S3A_DOC,
        "Tasks write to local disk and upload when they commit; committing the job deletes the partitions that get new files if the "
        "conflict mode is replace, then completes the uploads.",
    ),
    "emrfs": KnownCommitter(
        "EMRFS S3-optimized committer (also EMR's MagicV2)", (), NONE,
        "no rename",
        ("anything more than algorithm 2: a task's files are visible as soon as it commits",),
        (), "Amazon EMR release guide: EMRFS S3-optimized committer; MagicV2 committer",
        "Each task makes its files visible when it commits, while the job still runs.",
    ),
    "emr_protocol": KnownCommitter(
        "EMRFS S3-optimized commit protocol", ("emr",), HELD,
        "no rename; only for dynamic overwrite of partitions through EMRFS",
        (
            _WINDOW,
            "replaced partitions are deleted first: a driver killed while it commits leaves them empty or partly filled",
            "a killed job leaves uploads that cost like objects",
        ),
        (), "Amazon EMR release guide: EMRFS S3-optimized commit protocol (EMR 5.30, 6.2 and later)",
        "Tasks upload under the final names, and committing the job completes the uploads.",
    ),
    "jindo": KnownCommitter(
        "JindoOssCommitter with its magic switched on", ("oss",), HELD,
        "no rename; needs EMR's JindoSDK, which comes with Alibaba's clusters and not by Maven",
        (
            _WINDOW + ": longer with each file, shorter with a larger fs.oss.committer.threads",
            "a killed job leaves uploads that cost like objects, until a life-cycle rule of the bucket",
            "anything for Hive and Presto, which ask no committer of Hadoop's",
        ),
        (), "Alibaba Cloud E-MapReduce: Use Jindo Job Committer",
        "Tasks upload under the final names, and committing the job completes the uploads.",
    ),
    "dbio": KnownCommitter(
        "Databricks' own commit protocol (DBIO), which is on by default", ("dbfs",), replace(HELD, hidden=False, clean=False),
        "no rename: files lie in the destination from the beginning, and _started_<id> and _committed_<id> beside them say which count",
        (
            "hidden until commit for readers other than Databricks' Spark, and for paths that end with *: they see all files",
            "visible together for readers that do not know the markers",
            "a killed job leaves its files, until VACUUM removes them (not with less than an hour)",
            "a volume before Databricks Runtime 13.3: what is written below /Volumes then lies on disks of the cluster, and goes with them",
        ),
        (), "Databricks: Transactional writes to cloud storage with DBIO; Unity Catalog, paths of volumes",
        "Tasks write into the destination, and Databricks' Spark ignores files without a marker that says they are committed.",
    ),
    "quire": KnownCommitter(
        "quire's own: output waits unseen, the commit log decides", ("local", "hdfs", "s3", "emr", "abfs", "abfs_hns", "abfs_flat"),
        Guarantees(True, True, True, True, True),
        "rows go through claim, process or consolidate; S3, Azure: one request a file (of a claim, a copy); disks: a rename",
        ("readers of the plain directory see a commit's files appear one by one: all at one moment is for quire.read(url)",
         "one copy of what df.write puts into the claim's path, if the session has algorithm 2 or a factory that Spark does not ask"),
        ("local", "hdfs", "s3", "abfs_flat"), "docs: README, docs/ledger.md",
        "quire publishes what its log has committed.",
    ),
}  # fmt: skip

# Who is asked first, for each kind of store; `refusals` strike out, the first that is left is advised, the others are alternatives.
ORDER = {
    "local": ("v1", "manifest", "quire"),
    "hdfs": ("v1", "manifest", "quire"),
    "s3": ("magic", "directory", "partitioned", "quire"),
    "emr": ("magic", "emr_protocol", "directory", "partitioned", "quire"),
    "abfs": ("manifest", "quire"),
    "abfs_hns": ("manifest", "v1", "quire"),
    "abfs_flat": ("manifest", "quire"),
    "gcs": ("manifest",),
    "oss": ("jindo",),
    "dbfs": ("dbio",),
}
