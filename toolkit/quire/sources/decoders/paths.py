"""Paths into JSON documents: the part of RFC 9535 that names values, `$.order.lines[*].sku`.

Taken are `.name`, `['any name']`, `[0]`, `[-1]`, `[*]` and `.*` (the items of an array; of an object its values). Filters, slices and `..`
are not: general libraries that have them took 4 to 25 times as long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from quire.errors import UsageError, quoted

ALL: Final = None  # the step to all items
Step = str | int | None

_STEP = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*)|(?P<all>\.\*|\[\s*\*\s*\])|\[\s*(?P<index>-?(?:0|[1-9][0-9]{0,15}))\s*\]"""
    r"""|\[\s*(?:'(?P<single>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)")\s*\]"""
)


@dataclass(frozen=True)
class Path:
    """A path, ready to be followed."""

    text: str
    steps: tuple[Step, ...]

    @property
    def definite(self) -> bool:
        """Whether it names one value at most."""
        return ALL not in self.steps

    def of(self, document: Any) -> list[Any]:
        """The values that it names, in their order."""
        found = [document]
        for step in self.steps:
            if step is ALL:
                found = [item for each in found for item in (each if type(each) is list else each.values() if type(each) is dict else ())]
            elif type(step) is int:
                found = [each[step] for each in found if type(each) is list and -len(each) <= step < len(each)]
            else:
                found = [each[step] for each in found if type(each) is dict and step in each]
        return found


def path(text: str) -> Path:
    """Read a path; UsageError says where it is wrong."""
    at, steps = 1, list[Step]()
    if not text.startswith("$"):
        raise _wrong(text, 0)
    while at < len(text):
        if (found := _STEP.match(text, at)) is None:
            raise _wrong(text, at)
        if found["all"]:
            steps.append(ALL)
        elif found["index"]:
            steps.append(int(found["index"]))
        else:
            steps.append(found["name"] or re.sub(r"\\(.)", r"\1", found["single"] or found["double"] or ""))
        at = found.end()
    return Path(text, tuple(steps))


def _wrong(text: str, at: int) -> UsageError:
    return UsageError(
        f"the path {quoted(text, 200)} is wrong at character {at + 1}. Write for example $.order.id, $.lines[0].sku, $.lines[*].sku or "
        f"$['any name']."
    )
