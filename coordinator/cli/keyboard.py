"""Where a conversation's messages come from: a prompt on a terminal, lines of a pipe or a file otherwise."""

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

__all__ = ["Lines", "Prompt", "ReadLines", "chosen_lines", "interrupts"]

_CHUNK_BYTES: Final = 65_536


class Lines(Protocol):
    """A source of messages, one a line."""

    async def next(self) -> str | None:
        """Return the next line without its end; ``None`` when the user leaves or the input ends."""
        ...


class Prompt:
    """A line editor with history on a terminal. Ctrl-D leaves, and so does Ctrl-C pressed twice at an empty prompt.

    Args:
        label: what the prompt shows before the cursor.
    """

    def __init__(self, label: str) -> None:
        from prompt_toolkit import PromptSession  # noqa: PLC0415  a pipe does not need it

        self._session: PromptSession[str] = PromptSession(label)

    async def next(self) -> str | None:
        """Return the next line; a second Ctrl-C in a row counts as leaving."""
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
                say("Ctrl-D leaves, and so does Ctrl-C again.")


class ReadLines:
    """Lines of a file descriptor that is no terminal, or one without a line editor.

    It is never set to non-blocking, which would change it for the process that shares it: it is read when the loop
    says that it can be read. A regular file, which no loop can watch, never blocks.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._ended = False

    async def next(self) -> str | None:
        """Return the next line; what follows the last line end counts as a line. Invalid UTF-8 is replaced."""
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
def interrupts(handle: Callable[[], bool]) -> Iterator[None]:
    """Call ``handle`` on the loop for each Ctrl-C while the context lasts.

    Args:
        handle: returns whether it dealt with it; if not, Ctrl-C does what it did before: it leaves the program.
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
    """Put back what Ctrl-C did: the line editor leaves Python's default, which can break the loop at any point."""
    previous = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def chosen_lines() -> Lines:
    """Return the prompt when both stdin and stdout are a terminal, else the lines of stdin."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return Prompt("> ")
    return ReadLines(sys.stdin.fileno())
