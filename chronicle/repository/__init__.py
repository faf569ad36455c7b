"""Stores of workspaces, for whoever uses them without an agent: the command line, and programs."""

from __future__ import annotations

from chronicle.repository.commit_log import Committed
from chronicle.repository.maintenance import Check, Stats
from chronicle.repository.repository import Repository

__all__ = ["Check", "Committed", "Repository", "Stats"]
