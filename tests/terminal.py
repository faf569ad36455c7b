"""A process on a pseudo-terminal, as a person has it in a terminal window."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

__all__ = ["CTRL_C", "CTRL_D", "TerminalProcess"]

CTRL_C, CTRL_D = "\x03", "\x04"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>]")


class TerminalProcess:
    """A command whose stdin, stdout, stderr and controlling terminal are a pseudo-terminal.

    Args:
        limit_s: longest wait for output that is expected.
    """

    def __init__(self, command: Sequence[str], cwd: Path, limit_s: float = 60.0) -> None:
        self._limit_s = limit_s
        self._master, slave = pty.openpty()
        self._slave: int | None = slave
        termios.tcsetwinsize(slave, (24, 200))
        # The shell leads a session of its own, so the terminal that it opens first becomes its controlling one.
        tty = os.ttyname(slave)
        script = f'exec "$@" <{tty} >{tty} 2>&1'
        inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            ["sh", "-c", script, "sh", *command],
            start_new_session=True,
            cwd=cwd,
            env={**inherited, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        )
        self.seen = ""
        """All that was shown, without escape sequences."""
        self.raw = ""
        """All that was shown, as it came."""
        self._at = 0

    def press(self, keys: str) -> None:
        """Press keys; ``\\r`` is Enter."""
        os.write(self._master, keys.encode())

    def expect(self, text: str) -> None:
        """Wait until a text is shown, after what was expected before."""
        deadline = time.monotonic() + self._limit_s
        while (found := self.seen.find(text, self._at)) < 0:
            assert self._read(deadline), f"{text!r} was not shown; this was:\n{self.seen}"
        self._at = found + len(text)

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        deadline = time.monotonic() + self._limit_s
        while self._read(deadline):
            pass
        return self.process.wait(timeout=max(1.0, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._master)
        if self._slave is not None:
            os.close(self._slave)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # what a terminal says when its last process has gone
            return False
        if self._slave is not None:  # the process has it open by now, so its end will show
            os.close(self._slave)
            self._slave = None
        text = data.decode(errors="replace")
        self.raw += text
        self.seen += _ESCAPES.sub("", text)
        return bool(data)
