"""Processed input: ledger segments, their fold by the log, the anti-join with a listing, and conflicts between jobs."""
