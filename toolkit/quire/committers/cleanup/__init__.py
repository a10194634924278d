"""Finding and sweeping the leftovers of Spark's jobs."""
