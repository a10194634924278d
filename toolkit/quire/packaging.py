"""The distribution that this package comes in: its name, how an extra of it is installed, and another project of the package's name."""

from __future__ import annotations

import warnings
from importlib import metadata

__all__ = ["DISTRIBUTION", "another", "install", "warn_of_another"]

DISTRIBUTION = "quire-spark"
PUBLISHED = False  # whether an index has it: else it is installed from a clone, or from a wheel that was built of one
_OWN = ("quire/__init__.py", "quire.py")  # whoever brings one of these brings another package of our name


def install(*extras: str) -> str:
    """What to type for these extras, as every error says it that misses a package."""
    wanted = f"[{','.join(extras)}]" if extras else ""
    if PUBLISHED:
        return f'pip install "{DISTRIBUTION}{wanted}"'
    return f'pip install "PLACE{wanted}", where PLACE is a clone of quire or its wheel: ./quire, ./{DISTRIBUTION.replace("-", "_")}-….whl'


def another() -> str:
    """The version of another project called `quire` whose files stand beside this package, or in its place; else nothing."""
    for found in metadata.distributions(name="quire"):
        # A directory quire-spark-….dist-info, not normalised, is given for this name, too.
        if found.name.lower() == "quire" and any(str(file) in _OWN for file in found.files or ()):
            return found.version
    return ""


def warn_of_another() -> None:
    """One line where another project called `quire` is installed: the two packages have one name, and which one is imported is chance."""
    if version := another():
        message = (
            f"another project called quire ({version}) is installed beside this one, {DISTRIBUTION}, and both are imported as quire: "
            f"pip uninstall -y quire {DISTRIBUTION}, then {install()}"
        )
        warnings.warn_explicit(message, UserWarning, "quire", 1)  # without a line of code below it
