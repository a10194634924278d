"""The bytes of a table in the format of Apache Hudi: each module turns one kind of object into bytes, and bytes into that object.

Nothing here opens a store or knows a task. Hudi's table version 6 is written; whatever else is read says so in one line.
"""
