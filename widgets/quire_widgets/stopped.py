"""After a cancelled call: what has become of its job, and how to go on or give it up. The destination's ledger says it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import quire
from quire_widgets import as_code

__all__ = ["change", "load", "what_now"]


def what_now(dest: str, settings: Mapping[str, Any], phase: str, *, planning: bool) -> tuple[str, str]:
    """Return words for the user, and Python to copy ("" if there is nothing to do). `phase` is where the call was stopped."""
    if planning:
        return "Cancelled while looking: nothing was changed.", ""
    options = {**(settings.get("storage_options") or {}), **(settings.get("dest_options") or {})}
    found = None
    with suppress(quire.QuireError):  # no ledger yet, or the store is away: then the words go by the phase
        found = quire.Ledger(dest, options or None).summary()
    if found.unpublished if found else phase == "publishing":
        words = "Cancelled after the commit: the files are committed, and not all of them are published yet. Run again publishes the rest"
        return f"{words}, and so does:", as_code.recover(dest, settings, abort=False)
    if found.open_jobs if found else phase == "gathering":
        all_of_them = f" (all {len(found.open_jobs)} open jobs there)" if found and len(found.open_jobs) > 1 else ""
        words = (
            f"Cancelled: what is done is kept, and none of it is visible. Run again goes on where it stopped. To give it up{all_of_them}:"
        )
        return words, as_code.recover(dest, settings, abort=True)
    if found and found.commits:
        return f"Cancelled: no job is open, and what was committed stays ({found.files:,} files, version {found.version}).", ""
    return "Cancelled before anything was gathered: no job is open. Run again begins anew.", ""


def change(ledger: quire.Ledger, dest: str, options: Mapping[str, Any] | None, verb: str) -> tuple[str, str]:
    """The same after a change of a ledger, which a retry or a forget is."""
    found = ledger.refresh().summary()
    if found.unpublished:
        words = (
            f"Cancelled after the commit: the {verb} counts, and not all of it is published yet. The next call publishes it, and so does:"
        )
        return words, as_code.recover(dest, {"storage_options": options}, abort=False)
    if found.open_jobs:
        words = f"Cancelled: nothing of the {verb} is visible, and nothing is lost. The same again goes on. To give it up:"
        return words, as_code.recover(dest, {"storage_options": options}, abort=True)
    return "Cancelled: no job is open, and what was committed stays.", ""


def load(ledger: quire.Ledger, dest: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    """The same after a load that was stopped in the middle of a commit."""
    found = ledger.refresh().summary()
    if found.unpublished:
        words = "Stopped after the commit: its records count, and not all of its files are published yet. Resume publishes the rest"
        return f"{words}, and so does:", as_code.recover(dest, settings, abort=False)
    if found.open_jobs:
        words = "Stopped at once: what is done is kept, and none of it is visible. Resume goes on with its plan. To give it up:"
        return words, as_code.recover(dest, settings, abort=True)
    return f"Stopped at once: no job is open, and what was committed stays (version {found.version}).", ""
