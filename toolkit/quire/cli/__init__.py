"""The same verbs from a shell, a file for each group of commands."""

from quire.cli.app import main

__all__ = ["main"]
