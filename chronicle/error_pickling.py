"""Exceptions that stay what they are when they are sent to another process.

Python pickles an exception as its class and ``args``, and calls the constructor with those on the other side. A
constructor with parameters of its own, which makes the text from them, then fails or makes another text; and the cause
is left behind. The roots of all our errors derive from `Portable`, so no class needs a ``__reduce__`` of its own.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["Portable"]

_OUR_PACKAGES: Final = ("chronicle", "podium", "coordinator")
_PLAIN: Final = (str, bytes, int, float, bool, type(None))


class Portable(Exception):
    """An exception that pickling and copying give back with its type, text, fields, notes and cause.

    The constructor is not called again. Fields must be picklable. A cause is sent if the receiver can load it: one of
    ours, or one of Python's own exceptions with plain arguments. A class of a user's code may not exist in the other
    process, and an exception that does not load there would take this one with it.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how pickle rebuilds this exception: an empty one, and what is then set on it."""
        cause = self.__cause__
        fields = vars(self) if cause is None or not _loads_anywhere(cause) else {**vars(self), "__cause__": cause}
        return _blank, (type(self), self.args), fields


def _blank(cls: type[Portable], args: tuple[Any, ...]) -> Portable:
    return cls.__new__(cls, *args)


def _loads_anywhere(cause: BaseException) -> bool:
    if isinstance(cause, Portable):
        return type(cause).__module__.partition(".")[0] in _OUR_PACKAGES  # users derive classes from ours
    is_python_s = type(cause).__module__ == "builtins"
    return is_python_s and not vars(cause).keys() - {"__notes__"} and all(type(arg) in _PLAIN for arg in cause.args)
