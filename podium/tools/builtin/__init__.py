"""Built-in tools: files of the workspace, memory, commands, other agents. Begin with `add_builtins`.

The tools of files are held to the workspace, and kept from secrets (`secrets`).
"""

from __future__ import annotations

from podium.tools.builtin.functions import BUILTINS, add_builtins

__all__ = ["BUILTINS", "add_builtins"]
