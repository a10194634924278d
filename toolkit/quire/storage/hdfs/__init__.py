"""HDFS, over WebHDFS or its own protocol."""
