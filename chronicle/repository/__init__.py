"""Stores of workspaces, for whoever uses them without an agent: the command line, and programs."""

from __future__ import annotations

from chronicle.repository.commits import Committed
from chronicle.repository.repository import Repository
from chronicle.repository.upkeep import Check, Stats

__all__ = ["Check", "Committed", "Repository", "Stats"]
