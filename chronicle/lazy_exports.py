"""Names and modules that are imported at their first use: importing what has them stays cheap."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazy_exports", "lazy_module", "lazy_names"]


def lazy_exports(
    package: str, modules: Mapping[str, str], others: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package (PEP 562).

    Args:
        package: its ``__name__``.
        modules: the module of each public name.
        others: a module whose public names are the package's, too; its ``__all__`` is then made from both.
    """

    def others_names() -> list[str]:
        return import_module(others).__all__ if others is not None else []

    def get(name: str) -> Any:
        if name == "__all__" and others is not None:
            return sorted({*modules, *others_names()})
        module = modules.get(name) or (others if not name.startswith("_") and name in others_names() else None)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules, *others_names()})

    return get, names


def lazy_names(package: str, *modules: str) -> Callable[[str], Any]:
    """Return ``__getattr__`` for a package: its ``__all__``, and its names, are those of its modules."""

    def get(name: str) -> Any:
        found = (import_module(f"{package}.{module}") for module in modules)
        if name == "__all__":
            return sorted(public for module in found for public in module.__all__)
        for module in found if not name.startswith("_") else ():
            if name in module.__all__:
                value = getattr(module, name)
                setattr(sys.modules[package], name, value)
                return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get


def lazy_module(name: str) -> Any:
    """Return what has the attributes of a module, which is imported when the first of them is read."""
    return _LazyModule(name)


class _LazyModule:
    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)
