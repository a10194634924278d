"""The promises of a job committer, by name: the four guarantees of a distributed write, and two that users need beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

FOUR = ("hidden", "visible", "clean", "one_copy")
BESIDE = ("restart", "concurrent")
WORDS: Mapping[str, str] = MappingProxyType({
    "hidden": "nothing in between is visible",
    "visible": "all results appear together",
    "clean": "a failed job leaves nothing to be seen",
    "one_copy": "retries and speculation leave one copy",
    "restart": "a dead driver's job can be run again",
    "concurrent": "two jobs at once keep all of both",
})  # fmt: skip


@dataclass(frozen=True)
class Guarantees:
    """True: it holds; False: it does not; None: not known.

    hidden     before commitJob no reader of the directory sees output
    visible    readers of the directory see all of a job's output or none; `visible_in_log`: readers of a log do (None: without a log)
    clean      a job that fails leaves no output that readers see
    one_copy   tasks that are retried, or run twice at once, leave each row once
    restart    after the driver died, or while it is only asleep, running the job again leaves each row once
    concurrent two jobs that append to one directory at once both keep all of their rows, or say that they failed
    """

    hidden: bool | None = None
    visible: bool | None = None
    clean: bool | None = None
    one_copy: bool | None = None
    restart: bool | None = None
    concurrent: bool | None = None
    visible_in_log: bool | None = None

    def as_dict(self) -> dict[str, bool | None]:
        """By their names, in this order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __str__(self) -> str:
        return ", ".join(f"{name} {MARKS[value]}" for name, value in self.as_dict().items() if name != "visible_in_log")


MARKS: Mapping[bool | None, str] = MappingProxyType({True: "✔", False: "✘", None: "–"})
