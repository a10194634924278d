package quire.lab;

import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.OutputCommitter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitterFactory;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.internal.io.HadoopMapReduceCommitProtocol;
import scala.Option;

/** Asks the factory of the destination's scheme for the committer, and writes where that one says: what a cloud committer needs. */
public class Bound extends HadoopMapReduceCommitProtocol {
  private final String dest;
  private transient PathOutputCommitter bound;

  public Bound(String jobId, String path, boolean dynamicPartitionOverwrite) {
    super(jobId, path, false);
    if (dynamicPartitionOverwrite) {
      throw new IllegalArgumentException("not for dynamic partition overwrite");
    }
    dest = path;
  }

  @Override
  public OutputCommitter setupCommitter(TaskAttemptContext context) {
    try {
      Path path = new Path(dest);
      bound = PathOutputCommitterFactory.getCommitterFactory(path, context.getConfiguration()).createOutputCommitter(path, context);
      return bound;
    } catch (java.io.IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Override
  public String newTaskTempFile(TaskAttemptContext context, Option<String> dir, FileNameSpec spec) {
    try {
      Path work = bound.getWorkPath();
      Path parent = dir.isDefined() ? new Path(work, dir.get()) : work;
      return new Path(parent, getFilename(context, spec)).toString();
    } catch (java.io.IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }
}
