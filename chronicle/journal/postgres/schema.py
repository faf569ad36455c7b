"""Schemas in PostgreSQL, such as the journal's: the tables of SQLite, and one with the format version.

Row keys are ``key << 32 | number`` here too, so that both databases run the same statements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from chronicle.errors import NotFound, OlderFormat, OlderVersionRuns, UnsupportedFormat, UnusableFormat
from chronicle.journal.sql.tables import TABLES, VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import psycopg

__all__ = ["ASSIGNED", "JOURNAL", "Migration", "SchemaKind", "prepare", "translated"]

_LOCK: Final = 0x4348_4A4C
"""The advisory lock of the process that creates the tables."""

ASSIGNED: Final = ("session", "branch", "outbox", "tombstone", "reminder", "object")
"""The tables whose keys the database assigns."""
_UPDATED: Final = "session|branch|inbox"
"""The tables whose rows change often: there is room on their pages for the new version of a row."""
_SMALL: Final = "attempts|erased|number|status"
"""The columns of few different numbers."""


def translated(tables: str) -> str:
    """Return the declarations of SQLite's tables as PostgreSQL's; text is compared bytewise."""
    for pattern, by in (
        (r" *--.*", ""),
        (" WITHOUT ROWID", ""),
        ("TEXT", 'TEXT COLLATE "C"'),
        ("BLOB", "BYTEA"),
        (rf"(?s)(TABLE (?:{'|'.join(ASSIGNED)}) \(\s+\w+ +INTEGER)", r"\1 GENERATED ALWAYS AS IDENTITY"),
        (rf"(?s)(TABLE (?:{_UPDATED}) \(.*?\n\))", r"\1 WITH (fillfactor = 70)"),
        ("INTEGER", "BIGINT"),
        (rf"\b({_SMALL})( +)BIGINT", r"\1\2INTEGER"),
    ):
        tables = re.sub(pattern, by, tables)
    return tables


@dataclass(frozen=True, slots=True)
class Migration:
    """A change of a schema to the next version."""

    statements: str
    is_additive: bool = False
    """Whether code of the older version works with the newer one: it adds what that code does not need to know."""


@dataclass(frozen=True, slots=True)
class SchemaKind:
    """A kind of schema."""

    content: str
    """What it holds, with an article, for messages."""
    version: int
    tables: str
    """The statements that create its tables, but the one of the version."""
    migrations: Mapping[int, Migration] = field(default_factory=dict)
    """By older version: the migration to the next one. Version 1 is the first."""

    @property
    def usable_from(self) -> int:
        """The oldest version whose code works with this one."""
        breaking = [step + 1 for step in range(1, self.version) if not self.is_additive(step)]
        return breaking[-1] if breaking else 1

    def is_additive(self, step: int) -> bool:
        """Whether the migration from a version is additive; one that is not known counts as breaking."""
        return step in self.migrations and self.migrations[step].is_additive


_PAUSES: Final = "CREATE INDEX inbox_paused ON inbox (session, id) WHERE status = 4"
"""What version 2 of a journal has more: code of version 1 writes no paused message, and finds none unless it serves an
agent that has paused elsewhere."""

JOURNAL: Final = SchemaKind(
    "the journal",
    VERSION,
    f"""{translated(TABLES)}
CREATE INDEX branch_of_parent ON branch (parent_branch_id) WHERE parent_branch_id IS NOT NULL;
""",
    {1: Migration(_PAUSES, is_additive=True)},
)


def prepare(
    connection: psycopg.Connection[tuple[Any, ...]],
    schema: str,
    kind: SchemaKind,
    *,
    create: bool = True,
    may_change: bool = True,
    may_migrate: Callable[[], bool] = lambda: True,
) -> int:
    """Create the schema and its tables if they do not exist, or migrate older ones; one process at a time.

    Everything is in one transaction. A backup beforehand is the operator's task.

    Args:
        kind: what the schema is to hold.
        create: false to refuse a database without these tables.
        may_change: false to check the version only.
        may_migrate: whether a migration may be made that code of the older version does not work with afterwards;
            called for such a one only.

    Returns:
        the version of the tables: the kind's, or a newer one that its code works with.

    Raises:
        NotFound: there are no tables, and none are to be created.
        UnsupportedFormat: they are newer than this code.
        OlderFormat: they are older and must not be changed.
        UnusableFormat: no migration leads from its version.
        OlderVersionRuns: it is older, and must not be migrated now.
    """
    name = sql.Identifier(schema)
    with connection.transaction():
        if may_change:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(name))
        found = connection.execute("SELECT to_regclass(%s)", (f'"{schema}".format',)).fetchone()
        if found is not None and found[0] is not None:
            version = _readable_version(connection, schema, kind)
            if version < kind.version:
                _migrate(connection, schema, kind, version, may_change=may_change, may_migrate=may_migrate)
            return max(version, kind.version)
        if not (create and may_change):
            raise NotFound(f"schema {schema} does not hold {kind.content}")
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        connection.execute("CREATE TABLE format (version INTEGER NOT NULL, usable_from INTEGER NOT NULL)")
        connection.execute(kind.tables)
        connection.execute("INSERT INTO format VALUES (%s, %s)", (kind.version, kind.usable_from))
        return kind.version


def _migrate(
    connection: psycopg.Connection[tuple[Any, ...]],
    schema: str,
    kind: SchemaKind,
    version: int,
    *,
    may_change: bool,
    may_migrate: Callable[[], bool],
) -> None:
    """Migrate older tables, in the caller's transaction."""
    missing = [step for step in range(version, kind.version) if step not in kind.migrations]
    if missing:
        raise UnusableFormat(
            f"{kind.content} in schema {schema} has format {version}; no upgrade leads from {missing[0]}"
        )
    steps = range(version, kind.version)
    is_additive = all(kind.is_additive(step) for step in steps)
    if not may_change:
        raise OlderFormat(
            f"{kind.content} in schema {schema} has format {version}; open it for writing, which upgrades it",
            version,
            kind.version,
            is_additive=is_additive,
        )
    if not is_additive and not may_migrate():
        raise OlderVersionRuns(
            f"{kind.content} in schema {schema} has format {version} and has to be upgraded to {kind.version} while no "
            "older version uses it"
        )
    for step in steps:
        connection.execute(kind.migrations[step].statements)
    connection.execute("UPDATE format SET (version, usable_from) = (%s, %s)", (kind.version, kind.usable_from))


def _readable_version(connection: psycopg.Connection[tuple[Any, ...]], schema: str, kind: SchemaKind) -> int:
    """Return the version of existing tables, unless it is a newer one that this code does not work with."""
    row = connection.execute("SELECT version, usable_from FROM format").fetchone()
    version, usable_from = row if row is not None else (0, 0)
    if usable_from > kind.version:
        raise UnsupportedFormat(
            f"{kind.content} in schema {schema} has format {version}, and this code reads up to {kind.version}"
        )
    return int(version)
