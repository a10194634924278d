"""Progress bars: in a terminal, in JupyterLab, and silent where nobody looks."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Progress:
    """One line a phase: `with progress.phase("listing", unit="file") as bar: bar.update(3)`."""

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled

    @contextmanager
    def phase(self, name: str, total: int | None = None, unit: str = "file") -> Iterator[Any]:
        """A bar for one phase; it stays when the phase ends well."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tqdm warns where ipywidgets are missing, and falls back to text
            from tqdm.auto import tqdm

            in_notebook = "notebook" in tqdm.__module__ or tqdm.__mro__[1].__module__ == "tqdm.notebook"
            bar = tqdm(
                total=total, desc=name, unit=unit, unit_scale=True, leave=True, dynamic_ncols=not in_notebook,
                disable=not self.enabled or (None if not in_notebook else False), delay=0.3,
            )  # fmt: skip
        try:
            yield bar
        finally:
            bar.close()

    def say(self, text: str) -> None:
        """One line about something that the user should know while it runs."""
        if self.enabled and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            from tqdm import tqdm

            tqdm.write(text, file=sys.stderr)
