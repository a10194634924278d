"""`df.write.format("quire")` and `df.writeStream.format("quire")`: rows of any DataFrame, through quire's committers and in its log."""
