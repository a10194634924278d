"""Amazon S3, and whatever speaks its protocol."""
