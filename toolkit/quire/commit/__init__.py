"""The exactly-once protocol: the log decides, every other object has one writer or is put if absent, and nobody acts on the
answer to a write.
"""
