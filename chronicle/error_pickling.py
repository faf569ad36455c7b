"""Exceptions that keep their type and fields across processes.

Python pickles an exception as its class and ``args``, and calls the constructor with those in the receiver. A
constructor with its own parameters, which composes the text, then fails or composes another text; and the cause is
lost. The roots of all error trees derive from `Portable`, so no class needs a ``__reduce__`` of its own.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["Portable", "is_everywhere", "loads_anywhere", "send_causes_of"]

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
        fields = vars(self) if cause is None or not _may_go_along(cause) else {**vars(self), "__cause__": cause}
        return _blank, (type(self), self.args), fields


def send_causes_of(package: str) -> None:
    """Send causes whose classes a top-level package defines; for packages that every process has."""
    _packages.add(package)


def loads_anywhere(cls: type[BaseException]) -> bool:
    """Whether every process has a class: one of Python's own, or a `Portable` that no user derived from ours."""
    return is_everywhere(cls.__module__) and (cls.__module__ == "builtins" or issubclass(cls, Portable))


def is_everywhere(module: str) -> bool:
    """Whether every process has a module: Python's builtins, or one of a package that every process has."""
    return module == "builtins" or module.partition(".")[0] in _packages


def _blank(cls: type[Portable], args: tuple[Any, ...]) -> Portable:
    return cls.__new__(cls, *args)


def _may_go_along(cause: BaseException) -> bool:
    if isinstance(cause, Portable) or not loads_anywhere(type(cause)):
        return loads_anywhere(type(cause))
    return not vars(cause).keys() - {"__notes__"} and all(type(arg) in _PLAIN for arg in cause.args)
