"""Logging of Podium's processes: each writes one line per event to a log file in the home.

The output of user code goes there too. Tracebacks are plain: values of variables may be secrets.
"""

from __future__ import annotations

import io
import logging
import os
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

import structlog

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["configure_logging", "log_into", "log_to", "rotate_logs"]

_FORMAT: Final = "%(asctime)s [%(levelname)s] %(name)s: %(message)s"
_log: Final = structlog.stdlib.get_logger("coordinator.logs")


def configure_logging(stream: TextIO | None = None) -> None:
    """Have structlog and the stdlib log to a stream: one plain line per event, tracebacks below.

    Args:
        stream: standard output by default.
    """
    to = stream or sys.stdout
    logging.basicConfig(format=_FORMAT, level=logging.INFO, stream=to)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_WithContext(_FORMAT))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ],
        logger_factory=lambda *_: _LineLogger(to),
        cache_logger_on_first_use=False,
    )


class _WithContext(logging.Formatter):
    """Appends what structlog's context has, such as the agent and the turn, to the lines of the stdlib's loggers."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the base class names it
        line = super().formatMessage(record)
        fields = structlog.contextvars.get_contextvars()
        return line + "".join(f" {name}={value}" for name, value in sorted(fields.items()))


class _LineLogger:
    """Writes each event as a line to a stream's file; drops a line that cannot be written, as on a full disk.

    It bypasses the stream, which keeps a line that it failed to write in its buffer, tries it again with the next
    one, and raises in the code that logs or prints then.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, message: str) -> None:
        """Write a line."""
        with suppress(OSError, ValueError):
            self._stream.flush()
        with suppress(OSError, ValueError):
            os.write(self._stream.fileno(), f"{message}\n".encode(errors="backslashreplace"))

    log = debug = info = warn = warning = error = critical = failure = fatal = exception = msg


def rotate_logs(directory: Path, most_bytes: int) -> None:
    """Truncate each log file that exceeds a size, after copying its end to ``….1`` beside it.

    The files are truncated, not replaced: processes started by user code write to them too, all in append mode. A line
    written between the copy and the truncation is lost.

    Args:
        directory: of the ``*.log`` files.
        most_bytes: the size that starts a rotation, and the most that is copied.
    """
    for path in directory.glob("*.log"):
        try:
            if path.stat().st_size > most_bytes:
                _rotate(path, most_bytes)
        except OSError as error:  # its agent was deleted, or the disk is full: the log is kept as it is
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


def log_into(path: Path) -> None:
    """Append the log of this process to a file that only its user may read; its output stays where it goes."""
    configure_logging(open(path, "a", encoding="utf-8", opener=_private))  # noqa: SIM115  until the process ends


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def log_to(path: Path) -> None:
    """Append all output and logs of this process to a file that only its user may read, from now on."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(fd, sys.stdout.fileno())
    os.dup2(fd, sys.stderr.fileno())
    os.close(fd)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # the output of a killed process is complete up to its last line
    configure_logging()
