"""To which part of its directory a file belongs, by the hash of its name (the small-files article's partitioning)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

FUNCTIONS = ("xxh64", "java", "java_without_abs")


def parts_of(names: list[str], parts: int, function: str) -> npt.NDArray[np.int64]:
    """The part of each name: in [0, parts), but for `java_without_abs` in (-parts, parts): the article's bug.

    `xxh64`: the unsigned 64-bit hash of the UTF-8 name, modulo parts. `java`: the absolute value of String.hashCode's truncated
    remainder, so that parts agree with those of the article's SmallFilesMerge.
    """
    if function == "xxh64":
        digest = xxhash.xxh64_intdigest
        return np.fromiter((digest(name.encode()) % parts for name in names), np.int64, len(names))
    found = np.fmod(java_hashes(names), np.int32(parts)).astype(np.int64)
    return np.abs(found) if function == "java" else found


def java_hashes(names: list[str]) -> npt.NDArray[np.int32]:
    """Java's String.hashCode of each name: s[0]·31^(n-1) + … + s[n-1] over UTF-16 code units, in 32-bit arithmetic."""
    units = np.frombuffer("".join(names).encode("utf-16-le"), "<u2")
    lengths = np.fromiter(map(len, names), np.int64, len(names))
    if len(units) != lengths.sum():  # a character beyond 16 bits is two units
        lengths = np.fromiter((len(name.encode("utf-16-le")) // 2 for name in names), np.int64, len(names))
    longest_first = np.argsort(-lengths, kind="stable")
    starts, hashes = (np.cumsum(lengths) - lengths)[longest_first], np.zeros(len(names), np.uint32)
    ends = len(names) - np.searchsorted(np.sort(lengths), np.arange(lengths.max(initial=0)), side="right")  # how many are longer
    for column, end in enumerate(ends.tolist()):
        hashes[:end] = hashes[:end] * np.uint32(31) + units[starts[:end] + column]
    found = np.empty(len(names), np.uint32)
    found[longest_first] = hashes
    return found.view(np.int32)
