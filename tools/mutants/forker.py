"""Runs tests in processes that are forked from one that has imported what they import: ``forker MODULES OUT``.

Imports take most of the time of a run. One line of stdin is the arguments of pytest as a JSON list; the answer is its
exit status, a line. MODULES is a file of module names; those that cannot be imported by themselves are left out. OUT is
a file that gets what the last run prints.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path

import pytest


def main(modules: Path, output: Path) -> None:
    """Fork a process for each line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of stdin ends it, after the run that is under way
    for name in modules.read_text(encoding="utf-8").split():
        with contextlib.suppress(Exception):  # whatever its import says, the test's own says it again
            importlib.import_module(name)
    sys.dont_write_bytecode = True  # of a mutant
    answers = os.dup(1)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            printed = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for descriptor in (1, 2):
                os.dup2(printed, descriptor)
            status = 70
            try:
                status = int(pytest.main(json.loads(line)))
            except BaseException:  # noqa: BLE001 - it goes no further than this process
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        os.write(answers, f"{child}\n".encode())
        _, ended = os.waitpid(child, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(ended)}\n".encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
