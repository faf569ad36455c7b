"""Where a process of Podium writes what happens: its own log file in the home, a line an event.

User code's prints go there too. Tracebacks are plain: values of variables may be secrets.
"""

from __future__ import annotations

import io
import logging
import os
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["configure_logging", "log_to", "rotate_logs"]

_log: Final = structlog.stdlib.get_logger("coordinator.logs")


def configure_logging() -> None:
    """Write events to standard output, one plain line each, tracebacks below; from structlog and the stdlib alike."""
    logging.basicConfig(
        format="%(asctime)s [%(levelname)s] %(name)s: %(message)s", level=logging.INFO, stream=sys.stdout
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ],
        logger_factory=_LineLogger,
        cache_logger_on_first_use=False,
    )


class _LineLogger:
    """Writes each event as a line to standard output; one that cannot be written, as the disk is full, is left out.

    It does not go through ``sys.stdout``: what that could not write it tries to write again with the next line, and
    raises in the middle of whatever logs or prints.
    """

    def __init__(self, *_: object) -> None:
        """Take what structlog gives to loggers: their names."""

    def msg(self, message: str) -> None:
        """Write a line."""
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError, ValueError):
            os.write(sys.stdout.fileno(), f"{message}\n".encode(errors="backslashreplace"))

    log = debug = info = warn = warning = error = critical = failure = fatal = exception = msg


def rotate_logs(directory: Path, most_bytes: int) -> None:
    """Begin anew with each log file that has grown over a size; the end of what it had is kept beside it, as ``….1``.

    The files are emptied, not replaced: processes that a user's code started write to them, too, and all append. What
    is written in the moment between copying and emptying is lost.

    Args:
        directory: of ``*.log`` files.
    """
    for path in directory.glob("*.log"):
        try:
            if path.stat().st_size > most_bytes:
                _rotate(path, most_bytes)
        except OSError as error:  # its agent was deleted, or the disk is full: then it stays as it is
            _log.info("log_not_rotated", path=str(path), error=str(error))
            path.with_name(f"{path.name}.1.new").unlink(missing_ok=True)


def _rotate(path: Path, most_bytes: int) -> None:
    old = path.with_name(f"{path.name}.1")
    copy = path.with_name(f"{path.name}.1.new")
    copy.touch(mode=0o600)
    with path.open("rb") as source, copy.open("wb") as target:
        source.seek(max(0, path.stat().st_size - most_bytes))
        shutil.copyfileobj(source, target)
        os.truncate(path, 0)
    copy.replace(old)


def log_to(path: Path) -> None:
    """Send all that this process prints and logs from now on to the end of a file that only its user may read."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(fd, sys.stdout.fileno())
    os.dup2(fd, sys.stderr.fileno())
    os.close(fd)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # a process that is killed shows what it had printed
    configure_logging()
