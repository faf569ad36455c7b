"""The input of a conversation: a prompt on a terminal, the lines of a pipe or a file otherwise."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from chronicle.cli_kit.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DescriptorLines", "LineSource", "Prompt", "chosen_input", "interrupts_handled_by"]

_CHUNK_BYTES: Final = 65_536


class LineSource(Protocol):
    """A source of messages, one a line."""

    async def next(self) -> str | None:
        """Return the next line without its end; ``None`` when the user leaves or the input ends."""
        ...


class Prompt:
    """A line editor with history on a terminal. Ctrl-D ends it, and so does Ctrl-C pressed twice at an empty prompt.

    Args:
        label: the text before the cursor.
    """

    def __init__(self, label: str) -> None:
        from prompt_toolkit import PromptSession  # noqa: PLC0415 - a pipe does not need it

        self._session: PromptSession[str] = PromptSession(label)

    async def next(self) -> str | None:
        """Return the next line; ``None`` after Ctrl-D, or a second Ctrl-C in a row."""
        warned = False
        while True:
            try:
                with _sigint_restored():
                    return await self._session.prompt_async()
            except EOFError:
                return None
            except KeyboardInterrupt:
                if warned:
                    return None
                warned = True
                say("Ctrl-D exits, and so does Ctrl-C again.")


class DescriptorLines:
    """Lines of a file descriptor that is not a terminal, or of a terminal without the line editor.

    It is never set to non-blocking, because processes that share its file description would be affected; it is read
    when the event loop reports it readable. A regular file, which an event loop cannot watch, never blocks.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._ended = False

    async def next(self) -> str | None:
        """Return the next line; text after the last newline is a line, too. Invalid UTF-8 is replaced."""
        while b"\n" not in self._buffer and not self._ended:
            await self._wait()
            data = os.read(self._descriptor, _CHUNK_BYTES)
            self._ended = not data
            self._buffer += data
        if not self._buffer:
            return None
        line, end, rest = self._buffer.partition(b"\n")
        self._buffer = rest
        return line.decode(errors="replace").removesuffix("\r") if end or line else None

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except PermissionError:  # epoll refuses regular files
            return
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)


@contextmanager
def interrupts_handled_by(handle: Callable[[], bool]) -> Iterator[None]:
    """Call ``handle`` on the event loop for each Ctrl-C during the context.

    Args:
        handle: returns whether it handled the signal; if not, the previous handler is called, which ends the program.
    """
    previous = signal.getsignal(signal.SIGINT)
    loop = asyncio.get_running_loop()

    def handle_or_leave() -> None:
        if not handle() and callable(previous):
            previous(signal.SIGINT, None)

    loop.add_signal_handler(signal.SIGINT, handle_or_leave)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _sigint_restored() -> Iterator[None]:
    """Restore the SIGINT handler: the line editor leaves Python's default, which can raise at any point of the loop."""
    previous = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def chosen_input() -> LineSource:
    """Return the prompt when both stdin and stdout are a terminal, else the lines of stdin."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return Prompt("> ")
    return DescriptorLines(sys.stdin.fileno())
