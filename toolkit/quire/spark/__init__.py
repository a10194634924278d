"""Spark: its session, Java, how work is spread over it, and which of a call's places its executors see."""
