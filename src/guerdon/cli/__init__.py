"""The command line: `guerdon COMMAND`."""

from guerdon.cli.commands import app, main

__all__ = ["app", "main"]
