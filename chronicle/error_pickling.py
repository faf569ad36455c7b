"""Exceptions that keep their type and fields across processes.

Python pickles an exception as its class and ``args``, and calls the constructor with those in the receiver. A
constructor with its own parameters, which composes the text, then fails or composes another text; and the cause is
lost. The roots of all error trees derive from `Portable`, so no class needs a ``__reduce__`` of its own.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["Portable", "send_causes_of"]

_packages: Final = {"chronicle"}
"""Top-level packages that every process has."""
_PLAIN: Final = (str, bytes, int, float, bool, type(None))


class Portable(Exception):
    """An exception whose type, text, fields, notes and cause survive pickling and copying.

    The constructor is not called again. Fields must be picklable. A cause is sent if the receiver can load it: a
    `Portable` of a package that every process has (`send_causes_of`), or one of Python's own exceptions with plain
    arguments. Any other class, such as one of a user's code, may not exist in the receiving process, and the whole
    exception would fail to load there.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how pickle rebuilds this exception: an empty one, and the attributes to set on it."""
        cause = self.__cause__
        fields = vars(self) if cause is None or not _loads_anywhere(cause) else {**vars(self), "__cause__": cause}
        return _blank, (type(self), self.args), fields


def send_causes_of(package: str) -> None:
    """Send causes whose classes a top-level package defines; for packages that every process has."""
    _packages.add(package)


def _blank(cls: type[Portable], args: tuple[Any, ...]) -> Portable:
    return cls.__new__(cls, *args)


def _loads_anywhere(cause: BaseException) -> bool:
    if isinstance(cause, Portable):
        return type(cause).__module__.partition(".")[0] in _packages  # users derive classes from ours
    is_builtin = type(cause).__module__ == "builtins"
    return is_builtin and not vars(cause).keys() - {"__notes__"} and all(type(arg) in _PLAIN for arg in cause.args)
