"""The ``chronicle`` command: versioned workspaces on the command line, with no agent and no service."""

from __future__ import annotations

from chronicle.cli.app import app, main
from chronicle.cli.exits import ExitCode

__all__ = ["ExitCode", "app", "main"]
