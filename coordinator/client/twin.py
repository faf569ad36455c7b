"""Blocking twins of asynchronous objects: their methods, run on a loop in a thread.

No method is written twice. Each is made from its asynchronous twin, with its signature and its documentation.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator

    from coordinator.client.loop_thread import LoopThread

__all__ = ["Twin", "iterating", "making", "opening", "waiting"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_A = TypeVar("_A")
_B = TypeVar("_B")


class Twin:
    """An object whose methods run those of an asynchronous one on a loop in a thread."""

    def __init__(self, twin: Any, loop: LoopThread) -> None:
        self._twin = twin
        self._loop = loop


def waiting(
    method: Callable[Concatenate[_A, _P], Coroutine[Any, Any, _R]],
) -> Callable[Concatenate[Twin, _P], _R]:
    """Return a method that waits for the result of an asynchronous one."""

    @wraps(method)
    def call(self: Twin, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._loop.run(method(self._twin, *args, **kwargs))

    return call


def iterating(
    method: Callable[Concatenate[_A, _P], AsyncGenerator[_R]],
) -> Callable[Concatenate[Twin, _P], Iterator[_R]]:
    """Return a method that yields what an asynchronous one does."""

    @wraps(method)
    def call(self: Twin, /, *args: _P.args, **kwargs: _P.kwargs) -> Iterator[_R]:
        return self._loop.iterate(method(self._twin, *args, **kwargs))

    return call


def making(
    method: Callable[Concatenate[_A, _P], _B], twin_of: Callable[[_B, LoopThread], _R]
) -> Callable[Concatenate[Twin, _P], _R]:
    """Return a method that returns the twin of the object that another one returns."""

    @wraps(method)
    def call(self: Twin, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return twin_of(method(self._twin, *args, **kwargs), self._loop)

    return call


def opening(
    method: Callable[Concatenate[_A, _P], Coroutine[Any, Any, _B]], twin_of: Callable[[_B, LoopThread], _R]
) -> Callable[Concatenate[Twin, _P], _R]:
    """Return a method that waits for an object and returns its twin."""

    @wraps(method)
    def call(self: Twin, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return twin_of(self._loop.run(method(self._twin, *args, **kwargs)), self._loop)

    return call
