"""Names and modules that are imported at their first use: importing what has them stays cheap."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazy_exports", "lazy_module"]


def lazy_exports(
    package: str, modules: Mapping[str, str], *others: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package (PEP 562).

    Args:
        package: its ``__name__``.
        modules: the module of each public name.
        others: modules all of whose public names are the package's, too. They are searched in this order, and the
            package's ``__all__``, if it has none, is made of both.
    """

    def public() -> list[str]:
        return sorted({*modules, *(name for module in others for name in import_module(module).__all__)})

    def get(name: str) -> Any:
        if name == "__all__":
            return public()
        module = modules.get(name)
        if module is None and not name.startswith("_"):
            module = next((each for each in others if name in import_module(each).__all__), None)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *public()})


def lazy_module(name: str) -> Any:
    """Return what has the attributes of a module, which is imported when the first of them is read."""
    return _LazyModule(name)


class _LazyModule:
    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)
