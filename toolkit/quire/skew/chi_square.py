"""The chi-square distribution's upper tail, so that a p-value needs no SciPy."""

from __future__ import annotations

import math

_TINY = 1e-300
_ENOUGH = 1e-16


def survival(statistic: float, dof: int) -> float:
    """Return P(X ≥ statistic) for X chi-square distributed with `dof` ≥ 1 degrees of freedom.

    It is the regularised incomplete gamma function Q(dof/2, statistic/2): the series below the mean and Lentz's
    continued fraction above it (Abramowitz and Stegun 6.5.29 and 6.5.31). The relative error is about 1e-12 up to a
    hundred degrees of freedom and 1e-8 up to a million; below 1e-300 the result may be 0.
    """
    if dof < 1 or not statistic >= 0:
        raise ValueError(f"no chi-square distribution has the statistic {statistic} and {dof} degrees of freedom")
    a, x = dof / 2, statistic / 2
    if x == 0:
        return 1.0
    if math.isinf(x):
        return 0.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    result = 1.0 - scale * _series(a, x) if x < a + 1 else scale * _fraction(a, x)
    return min(1.0, max(0.0, result))


def _series(a: float, x: float) -> float:
    term = total = 1.0 / a
    n = a
    while term > total * _ENOUGH:
        n += 1
        term *= x / n
        total += term
    return total


def _fraction(a: float, x: float) -> float:
    b = x + 1 - a
    c = 1 / _TINY
    d = 1 / b
    result = d
    i = 0
    while True:
        i += 1
        numerator = i * (a - i)
        b += 2
        d = numerator * d + b
        d = 1 / (d if abs(d) > _TINY else _TINY)
        c = b + numerator / c
        c = c if abs(c) > _TINY else _TINY
        step = c * d
        result *= step
        if abs(step - 1) < 10 * _ENOUGH:
            return result
