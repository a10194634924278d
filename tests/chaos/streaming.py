"""A driver that streams one destination's rows into another, run as a program until it is killed, or has taken all that is there.

python streaming.py FROM TO CHECKPOINT follow|once
"""

from __future__ import annotations

import sys

import quire


def main(source: str, dest: str, checkpoint: str, how: str) -> None:
    spark = quire.session({"spark.driver.memory": "1g", "spark.ui.enabled": "false"}, master="local[2]")
    frame = spark.readStream.format("quire").option("maxCommitsPerTrigger", "1").load(source)
    writer = frame.writeStream.format("quire").option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if how == "once" else writer.trigger(processingTime="200 milliseconds")
    query = writer.start(dest)
    print("begun", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
