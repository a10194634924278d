"""Reading: exactly the committed files of a version, as a Spark DataFrame (`quire.read`), or by Spark's own door (`format("quire")`)."""

from quire.read.content import live
from quire.read.frame import read
from quire.read.shell import first_rows

__all__ = ["first_rows", "live", "read"]
