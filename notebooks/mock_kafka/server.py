"""librdkafka's mock cluster, in a process of its own: `python server.py BROKERS`.

It says its address in the first line. Then each line of JSON that it reads, a name of `CALLS` and its arguments, is done, and answered by a
line with an error code of librdkafka, 0 for none. It ends with its input, so it does not outlive who started it.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import c_char_p, c_int, c_int16, c_int32, c_int64, c_size_t, c_void_p

from confluent_kafka import cimpl

# The client's own library, wherever its package keeps it. Only the mock's part of it is called, which its Python has no words for.
_C = ctypes.CDLL(cimpl.__file__)
_PRODUCER = 0

CALLS = {
    "topic_create": [c_char_p, c_int, c_int],  # topic, partitions, replication factor
    "topic_delete": [c_char_p],
    "topic_set_error": [c_char_p, c_int],  # what its metadata say instead; 0: nothing any more
    "partition_delete_records": [c_char_p, c_int32, c_int64],  # below this offset
    "partition_set_leader": [c_char_p, c_int32, c_int32],  # broker; -1: none
    "broker_set_down": [c_int32],  # -1: all of them
    "broker_set_up": [c_int32],
    "broker_set_rtt": [c_int32, c_int],  # milliseconds
    "set_controller_id": [c_int32],
}


def main(brokers: int) -> None:
    """Run it until the input ends."""
    _C.rd_kafka_conf_new.restype = _C.rd_kafka_new.restype = _C.rd_kafka_mock_cluster_new.restype = c_void_p
    _C.rd_kafka_mock_cluster_bootstraps.restype = c_char_p
    conf = c_void_p(_C.rd_kafka_conf_new())
    _C.rd_kafka_conf_set(conf, b"log_level", b"0", None, c_size_t(0))  # else it says that it has no cluster to connect to
    cluster = c_void_p(_C.rd_kafka_mock_cluster_new(c_void_p(_C.rd_kafka_new(_PRODUCER, conf, None, c_size_t(0))), brokers))
    print(_C.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        name, args = json.loads(line)
        print(_fail(cluster, *args) if name == "fail" else _call(cluster, name, args), flush=True)


def _call(cluster: c_void_p, name: str, args: list[str | int]) -> int:
    values = [kind(arg.encode() if isinstance(arg, str) else arg) for kind, arg in zip(CALLS[name], args, strict=True)]
    function = getattr(_C, f"rd_kafka_mock_{name}")
    if name == "topic_set_error":  # the one that returns nothing
        function.restype = None
    return function(cluster, *values) or 0


def _fail(cluster: c_void_p, request: int, errors: list[int]) -> int:
    """The next requests of this kind are answered with these errors."""
    function = _C.rd_kafka_mock_push_request_errors_array
    function.restype = None
    function(cluster, c_int16(request), c_size_t(len(errors)), (c_int * len(errors))(*errors))
    return 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
