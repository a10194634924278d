"""Kafka: its topics, and how ranges of their offsets are read."""
