"""Migrations: bring a stored state of an older version to the class's current version.

A migration is a function from the document of one version to that of the next, declared in the state class::

    class State(DeltaState):
        _version = 2
        full_name: str = ""

        @migration(from_version=1)
        def join_names(doc):
            doc["full_name"] = f"{doc.pop('first')} {doc.pop('last')}"
            return doc

Migrations see plain JSON, never instances, so they keep working when the class changes again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from chronicle.canonical import Json, JsonObject
from podium.state.errors import MigrationFailed, MigrationMissing, StateTooNew, UnsupportedType
from podium.state.patch.apply import copy_json

__all__ = ["Migration", "migrate", "migration", "migrations_of"]

Migration = Callable[[JsonObject], JsonObject]
"""From a document of one version to one of the next. It may change its argument and return it."""

_MARK: Final = "__podium_migrates_from__"


def migration(*, from_version: int) -> Callable[[Callable[[Any], Any]], staticmethod[[JsonObject], JsonObject]]:
    """Declare, in a state class, the migration from one version to the next.

    Args:
        from_version: the version of its argument; it returns a document of ``from_version + 1``.

    Returns:
        a decorator for a function with one argument, the document, and no ``self``. A subclass inherits the migration
        and may declare its own for the same version.
    """
    if type(from_version) is not int or from_version < 1:
        raise UnsupportedType(f"@migration(from_version={from_version!r}): versions are whole numbers from 1")

    def declare(step: Callable[[Any], Any]) -> staticmethod[[JsonObject], JsonObject]:
        function = step.__func__ if isinstance(step, staticmethod) else step
        setattr(function, _MARK, from_version)
        return staticmethod(function)

    return declare


def migrations_of(cls: type) -> dict[int, Migration]:
    """Return the migrations that a class declares or inherits, by their ``from_version``.

    Raises:
        UnsupportedType: one class declares two for the same version.
    """
    found: dict[int, Migration] = {}
    for base in reversed(cls.__mro__):
        own: dict[int, Migration] = {}
        for value in vars(base).values():
            function = value.__func__ if isinstance(value, staticmethod) else None
            from_version = getattr(function, _MARK, None)
            if function is None or from_version is None:
                continue
            if from_version in own:
                raise UnsupportedType(f"{base.__qualname__} declares two migrations from version {from_version}")
            own[from_version] = function
        found |= own
    return found


def migrate(name: str, steps: Mapping[int, Migration], document: JsonObject, version: int, current: int) -> JsonObject:
    """Return a document migrated to the current version, one version at a time.

    Args:
        name: of the class, for messages.
        steps: the migrations, by their ``from_version``.
        document: of ``version``; it is not changed.
        version: of the document.
        current: the class's.

    Raises:
        StateTooNew: the document is newer than the class.
        MigrationMissing: a migration is not declared.
        MigrationFailed: a migration raised, or did not return a document.
    """
    if version > current:
        raise StateTooNew(name, version, current)
    if version == current:
        return document
    for at in range(version, current):
        if at not in steps:
            raise MigrationMissing(name, at, version, current)
    here: Json = copy_json(document)
    for at in range(version, current):
        try:
            here = steps[at](here)  # type: ignore[arg-type]  # checked below, and a document at first
        except Exception as error:
            raise MigrationFailed(name, at, f"{type(error).__name__}: {error}") from error
        if not isinstance(here, dict):
            raise MigrationFailed(name, at, f"it returned {type(here).__name__}; it must return the document, a dict")
    return here  # type: ignore[return-value]  # a dict, as checked
