"""The names of Spark's and Hadoop's classes and settings that decide which committer writes, and what they are where nobody sets them."""

from __future__ import annotations

# Spark's own keys
PROTOCOL = "spark.sql.sources.commitProtocolClass"
PARQUET = "spark.sql.parquet.output.committer.class"
OUTPUT = "spark.sql.sources.outputCommitterClass"
OVERWRITE = "spark.sql.sources.partitionOverwriteMode"
SPECULATION = "spark.speculation"
HADOOP = "spark.hadoop."  # before one of Hadoop's keys, when a session is started

# Hadoop's keys
ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"
ATTEMPT = "mapreduce.job.application.attempt.id"
MARK = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
SKIP_CLEANUP = "mapreduce.fileoutputcommitter.cleanup.skipped"
FACTORY = "mapreduce.outputcommitter.factory.class"  # for all schemes, before that of one
FACTORY_OF = "mapreduce.outputcommitter.factory.scheme."
PARALLEL_DELETE = "mapreduce.manifest.committer.cleanup.parallel.delete"
MAP_SPECULATION = "mapreduce.map.speculative"  # MapReduce has it on by default
REDUCE_SPECULATION = "mapreduce.reduce.speculative"
RATE = "fs.azure.io.rate.limit"
S3A_NAME = "fs.s3a.committer.name"
S3A_MAGIC = "fs.s3a.committer.magic.enabled"
S3A_CONFLICT = "fs.s3a.committer.staging.conflict-mode"
S3A_STAGING = "fs.s3a.committer.staging.tmp.path"
S3A_ABORT = "fs.s3a.committer.abort.pending.uploads"
OSS_MAGIC = "fs.oss.committer.magic.enabled"

# Spark's classes
SQL_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
PLAIN_PROTOCOL = "org.apache.spark.internal.io.HadoopMapReduceCommitProtocol"
CLOUD_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
CLOUD_PARQUET = "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
PLAIN_PARQUET = "org.apache.parquet.hadoop.ParquetOutputCommitter"
EMR_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLEmrOptimizedCommitProtocol"

# Hadoop's classes, and Alibaba's
FILE_FACTORY = "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory"
MANIFEST_FACTORY = "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory"
AZURE_FACTORY = "org.apache.hadoop.fs.azurebfs.commit.AzureManifestCommitterFactory"
S3A_FACTORY = "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
MAGIC_FACTORY = "org.apache.hadoop.fs.s3a.commit.magic.MagicS3GuardCommitterFactory"
DIRECTORY_FACTORY = "org.apache.hadoop.fs.s3a.commit.staging.DirectoryStagingCommitterFactory"
PARTITIONED_FACTORY = "org.apache.hadoop.fs.s3a.commit.staging.PartitionedStagingCommitterFactory"
JINDO = "com.aliyun.emr.fs.oss.commit.JindoOssCommitter"
JINDO_FACTORY = "com.aliyun.emr.fs.oss.commit.JindoOssCommitterFactory"

# What counts where nobody has set it: Hadoop's mapred-default.xml and core-default.xml of 3.4 and 3.5. The version of the algorithm is 2
# in that file; Spark sets 1.
DEFAULTS = {
    ALGORITHM: "1",
    ATTEMPT: "0",
    MARK: "true",
    SKIP_CLEANUP: "false",
    FACTORY_OF + "s3a": S3A_FACTORY,
    FACTORY_OF + "abfs": AZURE_FACTORY,
    FACTORY_OF + "gs": MANIFEST_FACTORY,
    S3A_NAME: "file",
    S3A_MAGIC: "true",
    S3A_CONFLICT: "append",
    S3A_STAGING: "tmp/staging",
    S3A_ABORT: "true",
}
