"""Copying all rows of some tables into another database that has the same ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.journal.sql.port import Cursor

__all__ = ["columns_of", "copy_rows"]

_TABLE: Final = re.compile(r"CREATE TABLE (\w+) \((.*?)\n *\)", re.DOTALL)
_COLUMN: Final = re.compile(r"^ +(\w+) +(?:TEXT|INTEGER|BLOB)\b", re.MULTILINE)
_KEY: Final = re.compile(r"^ +PRIMARY KEY \((.*?)\)", re.MULTILINE)
_ROWS: Final = 500
"""Rows that are read at a time: with bodies of a megabyte they are in memory at once."""


class Executes(Protocol):
    """A connection."""

    def execute(self, sql: str, values: Sequence[object] = ..., /) -> Cursor:
        """Run a statement."""


def columns_of(declarations: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return the columns, and those of the primary key, of each table that is declared; without a key the first one."""
    found = {}
    for table, body in _TABLE.findall(declarations):
        columns, key = _COLUMN.findall(body), _KEY.search(body)
        found[table] = columns, key.group(1).split(", ") if key is not None else columns[:1]
    return found


def copy_rows(
    source: Executes, target: Executes, declarations: str, on_rows: Callable[[int], None], given_keys: str = ""
) -> None:
    """Replace all rows of the declared tables by those of another database.

    Args:
        source: sees one moment.
        target: in a transaction.
        declarations: of the tables.
        on_rows: called with the number of rows copied so far.
        given_keys: the clause of an ``INSERT`` with values for keys that the target assigns.
    """
    copied = 0
    for table, (columns, key) in columns_of(declarations).items():
        target.execute(f"DELETE FROM {table}")
        names, order = ", ".join(columns), ", ".join(key)
        marks = ", ".join("?" * len(columns))
        insert = f"INSERT INTO {table} ({names}){given_keys} VALUES ({marks})"
        after = ""
        last: tuple[object, ...] = ()
        while True:
            query = f"SELECT {names} FROM {table} {after} ORDER BY {order} LIMIT {_ROWS}"
            rows = source.execute(query, last).fetchall()
            if not rows:
                break
            for row in rows:
                target.execute(insert, row)
            copied += len(rows)
            on_rows(copied)
            after = f"WHERE ({order}) > ({', '.join('?' * len(key))})"
            last = tuple(rows[-1][columns.index(name)] for name in key)
