"""A made-up next format of the journal, with which upgrades are tested.

It has one table more. A journal that this code has written is then of an older format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from chronicle.journal.sqlite import schema

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

__all__ = ["OLDER", "use"]

OLDER: Final = schema.VERSION
"""The format of this code's journals."""
_TABLE: Final = "CREATE TABLE colour (name TEXT NOT NULL);\n"


def use(set_attribute: Callable[[Any, str, object], None] = setattr) -> None:
    """Have this process read and write the next format; journals of `OLDER` are migrated when opened to write.

    Args:
        set_attribute: such as that of ``monkeypatch``, which takes it back.
    """

    def migrate(db: sqlite3.Connection) -> None:
        db.execute(_TABLE)

    set_attribute(schema, "_TABLES", f"{schema._TABLES}{_TABLE}")
    set_attribute(schema, "MIGRATIONS", {**schema.MIGRATIONS, OLDER: migrate})
    set_attribute(schema, "VERSION", OLDER + 1)
