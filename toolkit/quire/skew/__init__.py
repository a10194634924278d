"""Diagnostics of skew: chi-square, the ratio to the mean, and the signature of a missing abs()."""

from quire.skew.diagnosis import check
from quire.skew.result import SkewResult

__all__ = ["SkewResult", "check"]
