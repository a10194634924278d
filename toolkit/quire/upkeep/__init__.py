"""What changes a ledger that is there: forget, compact, retry, expire and pins. Each is one job of the protocol, or entries of the log."""
