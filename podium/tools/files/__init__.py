"""Tools as files: a directory of ``*.py`` with decorated functions, and of ``*.yml`` with requests and commands.

Begin with `load_tools`. In a template an argument is a value, whatever stands around it: `shell_template`,
`url_template` and `body_template` say how. What a file may have is in docs/guide/tools.md.
"""

from __future__ import annotations

from podium.tools.files.loading import load_tools

__all__ = ["load_tools"]
