"""The command ``chronicle``: versioned workspaces without an agent and without a service.

`app` lists the subcommands, each a function in `mounts`, `commits`, `versions`, `maintenance` or `bench`. To add one,
write it there, list it in `app`, and describe it in docs/chronicle.md. `targets` opens what a command line names.
"""

from __future__ import annotations

from chronicle.cli.app import app, main
from chronicle.cli.exits import ExitCode

__all__ = ["ExitCode", "app", "main"]
