"""A table in a Hive metastore, whose service is spoken to over Thrift."""
