"""Stores of workspaces without an agent, for the command line and for programs.

`repository` has the public class. `store_directory` locates and opens a store, `commit_log` reads commits from its
journal, `commit_writer` writes them, `remote_commits` keeps them in an object store; `mounts`, `checkout` and
`maintenance` are the other use cases.
"""

from __future__ import annotations

from chronicle.repository.commit_log import Committed
from chronicle.repository.maintenance import Check, Stats
from chronicle.repository.repository import Repository

__all__ = ["Check", "Committed", "Repository", "Stats"]
