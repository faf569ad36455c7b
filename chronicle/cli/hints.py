"""The hints of ``chronicle``: the command line that mends what an error reports."""

from __future__ import annotations

from typing import Final

from chronicle.cli_kit.hints import CHRONICLE_HINTS, HintTable

__all__ = ["HINTS"]

HINTS: Final = HintTable({**CHRONICLE_HINTS})
