"""Patterns of the texts that requests hold, for the OpenAPI document: what the server takes, as JSON Schema says it.

They are documentation: the texts are checked where they are used, with an error that tells what is wrong. A pattern
cannot say which characters are printable in each version of Unicode, so `KEY` leaves out those of the first plane that
never are.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ADDRESS", "CURSOR", "FILE_PATH", "KEY", "TENANT", "TYPE"]

_TYPE: Final = r"[A-Za-z_](\.?[A-Za-z0-9_-])*\.?"
_TENANT: Final = r"[a-z0-9][a-z0-9_-]{0,62}"
_VISIBLE: Final = (
    r"[^\u0000- \u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff0-\ufffb/]"
)
_KEY: Final = rf"(?!.*\.\.)(?!\.$){_VISIBLE}( *{_VISIBLE})*"

TYPE: Final = f"^{_TYPE}$"
TENANT: Final = f"^{_TENANT}$"
KEY: Final = f"^{_KEY}$"
ADDRESS: Final = f"^({_TENANT}:)?{_TYPE}/{_KEY}$"
CURSOR: Final = "^[A-Za-z0-9_-]+$"
FILE_PATH: Final = r"^[^\u0000]*$"
