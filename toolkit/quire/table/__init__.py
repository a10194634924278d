"""The incremental table: rows by key in the format of Apache Hudi, table version 6."""
