"""What of a ledger's quarantine a verb is told to take: all of it, or what has one reason; as arguments, and as Python."""

from __future__ import annotations

from typing import Any

import quire
from quire import reasons
from quire_widgets import as_code

__all__ = ["Chosen"]


class Chosen:
    """All of the quarantine, or with a `reason` what has that one, as `Ledger.reasons` tells them apart; `condition` holds for all."""

    def __init__(self, reason: str | None, condition: str, spark: Any) -> None:
        self._reason = reason
        self.told: dict[str, Any] = {}
        self.before = ""  # Python that has to come before
        kind = "" if reason is None else reasons.condition(reason)
        if where := " and ".join(part for part in (condition, kind) if part):
            self.told = {"where": where}
            if isinstance(spark, quire.InProcess):  # SQL needs Spark
                self.told = {"paths": as_code.Variable("paths")}
                of_reason = "" if reason is None else f"[failed['reason'].map(reasons.kind) == {reason!r}]"
                imported = "" if reason is None else "from quire import reasons\n\n"
                self.before = f"{imported}failed = ledger.failed()\npaths = failed{of_reason}['path'].tolist()\n"

    def named(self, ledger: quire.Ledger) -> dict[str, Any]:
        """The same as arguments."""
        if "paths" not in self.told:
            return self.told
        failed = ledger.failed()
        mine = failed if self._reason is None else failed[failed["reason"].map(reasons.kind) == self._reason]
        return {"paths": mine["path"].tolist()}
