"""Records which lines of the product's functions run, in every process of a traced run of tests.

`trials` has each Python process call `start`. In the process of pytest, `tools.mutants.plugin` says which test runs.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["OUTPUT", "PACKAGES", "TREE", "lines_in", "record", "record_in_children", "start"]

OUTPUT: Final = "MUTANTS_LINES"
"""The variable with the file that lines are appended to, as ``path:number``; empty: none is recorded."""
TREE: Final = "MUTANTS_TREE"
"""The variable with the directory of the packages; unset: nothing is traced."""
PACKAGES: Final = ("chronicle", "podium", "coordinator")
_OPTIMIZED: Final = 1
"""The flag of functions' code, which that of modules and classes has not: `inspect.CO_OPTIMIZED`."""
_seen: set[tuple[str, int]] = set()
_output = ""


def lines_in(output: Path, tree: Path) -> dict[str, list[int]]:
    """Return the recorded lines of each file, by its path in the tree."""
    found: dict[str, set[int]] = {}
    for line in output.read_text(encoding="utf-8").splitlines() if output.exists() else []:
        path, _, number = line.rpartition(":")
        found.setdefault(Path(path).relative_to(tree).as_posix(), set()).add(int(number))
    return {path: sorted(lines) for path, lines in found.items()}


def record(output: str) -> None:
    """Record to another file from here on, here and in processes that are started; empty: nothing."""
    global _output
    _seen.clear()
    _output = os.environ[OUTPUT] = output


def record_in_children(output: str) -> None:
    """Record to a file in processes that are started from here on, and not here."""
    os.environ[OUTPUT] = output


def start() -> None:
    """Trace this process and its threads, if the variable is set."""
    tree = os.environ.get(TREE)
    if tree is None:
        return
    global _output
    _output = os.environ.get(OUTPUT, "")
    product = tuple(os.path.join(tree, package, "") for package in PACKAGES)  # noqa: PTH118 - at each start of Python

    def trace(frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        ours = _output and code.co_flags & _OPTIMIZED and code.co_filename.startswith(product)
        return trace_lines if ours else None

    def trace_lines(frame: FrameType, event: str, _argument: object) -> Any:
        place = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and place not in _seen and _output:
            _seen.add(place)
            with open(_output, "a", encoding="utf-8") as file:  # noqa: PTH123 - kept open, it might be another's file
                file.write(f"{place[0]}:{place[1]}\n")
        return trace_lines

    threading.settrace(trace)
    sys.settrace(trace)
