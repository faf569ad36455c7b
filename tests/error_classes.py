"""One instance of every exception class of the three packages, found by walking, so that a new one is among them.

Constructors are called with a sample for each parameter, chosen by its annotation; a parameter of another type needs a
sample here.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING, Any

import chronicle
import coordinator
import podium
from chronicle.error_pickling import Portable
from chronicle.ids import BlobId
from chronicle.workspace.port import TreeRef
from coordinator.operations.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAMPLES: dict[str, Any] = {
    "str": "what it says",
    "str | None": "on_init",
    "int": 7,
    "bool": True,
    "BranchId": "br_1",
    "BranchId | None": "br_1",
    "EventId | None": "evt_1",
    "int | None": 4,
    "float | None": 2.5,
    "ModelErrorKind": "rate_limited",
    "tuple[str, ...]": ("hello/a", "hello/b"),
    "tuple[BranchId, ...]": ("br_1", "br_2"),
    "Token": "field",
    "ErrorInfo": {"type": "ValueError", "message": "no"},
    "Unpack[ErrorFields]": {"code": "gone", "status": 404, "param": "key", "message_id": "msg_1", "retry_after_s": 2.5},
    "Problem": Problem(404, "unknown_page"),
    "dict[str, Any]": {"run_id": "msg_1", "schema": {"type": "boolean"}},
    "dict[str, Any] | None": {"run_id": "msg_1"},
    "TreeRef": TreeRef(BlobId("tree"), BlobId("oplog")),
}


def error_classes() -> list[type[BaseException]]:
    """All exception classes that the packages define, in a fixed order."""
    packages = (chronicle, podium, coordinator)
    for package in packages:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    names = {package.__name__ for package in packages}
    found = {cls for cls in _below(BaseException) if cls.__module__.partition(".")[0] in names}
    return sorted(found, key=name_of)


def name_of(cls: type[BaseException]) -> str:
    """A class's full name."""
    return f"{cls.__module__}.{cls.__qualname__}"


def sample(cls: type[BaseException]) -> BaseException:
    """An instance with all its fields, a note, and a cause."""
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    _, *parameters = inspect.signature(cls.__init__).parameters.values()
    for parameter in parameters:
        if parameter.annotation is parameter.empty:  # Python's own constructor: any arguments
            arguments.append(_SAMPLES["str"])
            break
        value = _SAMPLES[str(parameter.annotation)]
        if parameter.kind is parameter.KEYWORD_ONLY:
            options[parameter.name] = value
        elif parameter.kind is parameter.VAR_KEYWORD:
            options |= value
        else:
            arguments.append(value)
    error = cls(*arguments, **options)
    error.add_note("seen on the way")
    error.__cause__ = OSError(28, "No space left on device")
    return error


def seen(error: BaseException) -> dict[str, Any]:
    """All that is to be equal on the other side. Only our own roots keep the cause; Python's leave it behind."""
    cause = error.__cause__ if isinstance(error, Portable) else None
    return {
        "type": type(error),
        "text": str(error),
        "args": error.args,
        "fields": vars(error),
        "cause": None if cause is None else (type(cause), cause.args, str(cause)),
    }


def _below(cls: type[BaseException]) -> Iterator[type[BaseException]]:
    for child in type.__subclasses__(cls):
        yield child
        yield from _below(child)
