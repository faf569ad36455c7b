"""Hints: one table per command from errors to the command line that mends what they report.

The messages of the libraries `chronicle` and `podium` name no command line of either command, as the libraries do not
know under which command they are shown; `coordinator` is an application, and its messages may. The table belongs to the
command, and its text follows the message.
"""

from __future__ import annotations

import shlex
from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from chronicle import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CHRONICLE_HINTS", "HintTable", "with_hint"]

CHRONICLE_HINTS: Final[Mapping[type[BaseException], str | None]] = {
    errors.UnsupportedFormat: "upgrade podium",  # the distribution that has this package and its commands
    errors.UnusableFormat: None,
}
"""The rows that the tables of all commands have in common."""


class HintTable:
    """The hints of one command.

    Args:
        rows: by error class, the hint for it and its subclasses; ``None`` takes an ancestor's hint away. ``{name}`` is
            replaced by the error's attribute of that name, quoted for a shell. An error that has no value there has
            no hint.
    """

    def __init__(self, rows: Mapping[type[BaseException], str | None]) -> None:
        self.rows = rows
        self._by_name = {kind.__name__: text for kind, text in rows.items()}

    def hint(self, error: BaseException) -> str | None:
        """Return the hint for an error; ``None`` if it has none."""
        text = next((self.rows[kind] for kind in type(error).__mro__ if kind in self.rows), None)
        return _filled(text, vars(error)) if text is not None else None

    def hint_by_name(self, error_type: str, fields: Mapping[str, object] = MappingProxyType({})) -> str | None:
        """Return the hint for an error of which another process sent no more than its class's name and its text.

        Args:
            fields: what is known of its attributes.
        """
        text = self._by_name.get(error_type)
        return _filled(text, fields) if text is not None else None


def with_hint(message: str, hint: str | None) -> str:
    """Return a message, followed by a hint if there is one."""
    return f"{message}; {hint}" if hint else message


def _filled(text: str, fields: Mapping[str, object]) -> str | None:
    names = [name for _, name, _, _ in Formatter().parse(text) if name]
    if any(fields.get(name) is None for name in names):
        return None
    return text.format_map({name: shlex.quote(str(fields[name])) for name in names})
