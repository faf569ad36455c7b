"""Errors as plain values, for connections between processes: the class by its name, with arguments, fields and cause.

Unlike a pickle, a value from the other end calls nothing here, whatever it says: its class is a `Portable` of a package
that every process has, or, for a cause, one of Python's own exceptions. A module that is not loaded is imported only if
it is called ``errors``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from chronicle.error_pickling import Portable, is_everywhere, loads_anywhere

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["error_from_wire", "error_to_wire"]

_NOTES: Final = "__notes__"
_PLAIN: Final = (str, int, float, bool, type(None))
_MAX_CAUSES: Final = 16
"""Causes of causes that are sent: an error that was raised from itself has no end of them."""


def error_to_wire(error: BaseException, otherwise: type[Portable]) -> dict[str, Any]:
    """Return an error as JSON or MessagePack can write it.

    Fields that hold other objects than strings, numbers, sequences and maps of them stay behind.

    Args:
        otherwise: the class of which an error arrives whose own class may not exist in the receiver, such as one of a
            user's code; its text then begins with the name of its own.
    """
    if not (isinstance(error, Portable) and loads_anywhere(type(error))):
        error = otherwise(f"{type(error).__name__}: {error}")
    return _to_wire(error, _MAX_CAUSES)


def error_from_wire(value: Mapping[str, Any], otherwise: type[Portable]) -> Portable:
    """Return the error that `error_to_wire` was given, or one of another class with its text if it has none here."""
    cls = _class_of(value["type"])
    args = _as_tuples(value["args"])
    if cls is None or not issubclass(cls, Portable):
        return otherwise(*args[:1])
    error = cls.__new__(cls, *args)  # a constructor may take something else, and compose the text of it
    vars(error).update(_as_tuples(value["fields"]))
    for note in value["notes"]:
        error.add_note(note)
    cause = value["cause"]
    if cause is not None and (kind := _class_of(cause["type"])) is not None:
        ours = issubclass(kind, Portable)
        error.__cause__ = error_from_wire(cause, otherwise) if ours else kind(*_as_tuples(cause["args"]))
    return error


def _to_wire(error: BaseException, causes: int) -> dict[str, Any]:
    fields, cause = vars(error), error.__cause__
    goes_along = causes and cause is not None and loads_anywhere(type(cause)) and _is_plain(cause.args)
    return {
        "type": f"{type(error).__module__}:{type(error).__qualname__}",
        "args": list(error.args) if _is_plain(error.args) else [str(error)],
        "fields": {name: field for name, field in fields.items() if name != _NOTES and _is_plain(field)},
        "notes": fields.get(_NOTES, []),
        "cause": _to_wire(cause, causes - 1) if cause is not None and goes_along else None,
    }


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(type(name) is str and _is_plain(field) for name, field in value.items())
    return type(value) in _PLAIN


def _as_tuples(value: Any) -> Any:
    """Return a value whose sequences are tuples, as errors have them."""
    if isinstance(value, list):
        return tuple(map(_as_tuples, value))
    return {name: _as_tuples(field) for name, field in value.items()} if isinstance(value, dict) else value


def _class_of(name: str) -> type[Exception] | None:
    """Return the class of a name; ``None`` if this process has none, or it is not one of errors that may arrive."""
    module, _, qualname = name.partition(":")
    if not is_everywhere(module) or (module not in sys.modules and not module.endswith(".errors")):
        return None
    try:
        cls = vars(sys.modules.get(module) or import_module(module)).get(qualname)
    except ImportError:
        return None
    return cls if isinstance(cls, type) and issubclass(cls, Exception) and loads_anywhere(cls) else None
