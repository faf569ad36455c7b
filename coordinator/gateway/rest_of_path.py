"""The ``rest`` convertor of routes: the rest of a request's path, to its last byte.

Starlette's own ``path`` stops before a newline, which the name of a file may contain, so that ``a%0A`` would be ``a``.
"""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor

__all__ = ["register"]


class _RestOfPath(Convertor[str]):
    """``{name:rest}`` in a route: any text, slashes and newlines included; it may be empty."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        """Return the text as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Return the text as it is."""
        return value


def register() -> None:
    """Make the convertor known to routes that are declared from now on."""
    register_url_convertor("rest", _RestOfPath())
