"""Which committer for a store and what a job needs; what a session would do; what is never advised."""
