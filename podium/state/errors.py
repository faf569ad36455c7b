"""The errors of state, drawn::

    StateError
    ├── InvalidValue            an assigned value was refused; the state is unchanged
    ├── OutsideTurn             a change by code that is not the running turn's; the state is unchanged
    ├── UnseenChange            a container was changed by other code than its own methods
    ├── InvalidState            a validator refused the state as a whole at commit
    ├── UnstorableState         a state was built with a value that cannot be stored
    ├── UnsupportedType         a declared type cannot be stored: its values do not survive the round trip through JSON
    ├── PatchError              a patch does not fit the document; the document is unchanged
    └── StateLoadError          a stored state could not be loaded; it is unchanged
        ├── StateTooNew         written by a newer class than this one
        ├── MigrationMissing    a migration on the way is not declared
        └── MigrationFailed     a migration raised, or did not return a document

Every message has the path as an RFC 6901 pointer and tells how to fix the problem. None is worth an unchanged retry.
"""

from __future__ import annotations

from chronicle.error_pickling import Portable

__all__ = [
    "InvalidState",
    "InvalidValue",
    "MigrationFailed",
    "MigrationMissing",
    "OutsideTurn",
    "PatchError",
    "StateError",
    "StateLoadError",
    "StateTooNew",
    "UnseenChange",
    "UnstorableState",
    "UnsupportedType",
]


class StateError(Portable):
    """Root of all errors about state."""


class _Misplaced(StateError):
    """An error about a part of a state.

    Attributes:
        path: RFC 6901 pointer of the part, from the state's root.
        reason: why, and how to fix it.
    """

    _whole = "the whole state"
    _advice = ""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or f'({self._whole})'}: {reason}{self._advice}")
        self.path = path
        self.reason = reason


class InvalidValue(_Misplaced, ValueError):
    """An assigned value was refused, because of its type or because JSON cannot represent it.

    The operation had no effect at all, even if it would have assigned several values.

    Attributes:
        path: RFC 6901 pointer of the refused value, from the state's root.
        reason: why, and how to fix it.
    """

    _whole = "the whole value"


class OutsideTurn(_Misplaced, RuntimeError):
    """Code that is not the running turn's tried to change an agent's state: another thread, or a turn that is over.

    The change had no effect: it would be in no turn's commit.

    Attributes:
        path: RFC 6901 pointer of the container, from the state's root.
        reason: why, and how to fix it.
    """


class UnseenChange(StateError, RuntimeError):
    """At commit, a container does not have as many members as its recorded changes imply.

    Attributes:
        path: RFC 6901 pointer of the container.
    """

    def __init__(self, path: str, found: int, recorded: int) -> None:
        super().__init__(
            f"{path or '(the whole state)'}: it has {found} members, but {recorded} by its recorded changes; nothing "
            "of this turn is committed. heapq, and calls like list.append(items, x), change a list untracked: use "
            "a list of your own, and assign it"
        )
        self.path = path


class InvalidState(_Misplaced, ValueError):
    """A validator refused the state as a whole at commit.

    Attributes:
        path: RFC 6901 pointer of the part that its validator refused.
        reason: what the validator said.
    """

    _advice = (
        "; nothing of this turn is committed. "
        "Change the state so that its own validators accept it before the turn ends"
    )


class UnstorableState(_Misplaced):
    """A state was built (``State(...)``, defaults included) with a value that cannot be stored.

    What pydantic itself refuses is a `pydantic.ValidationError`, as for any model.

    Attributes:
        path: RFC 6901 pointer of the refused value.
        reason: why, and how to fix it.
    """

    # Not a ValueError: pydantic would wrap it into a ValidationError in the constructor.


class UnsupportedType(StateError, TypeError):
    """A type declared in a state class cannot be stored. The message names the field and an alternative."""


class PatchError(StateError, ValueError):
    """A patch does not fit the document. The document is unchanged."""


class StateLoadError(StateError):
    """A stored state could not be loaded into the class. The stored state is unchanged."""


class StateTooNew(StateLoadError):
    """A stored state is of a newer version than the class.

    Attributes:
        version: the stored state's.
        current: the class's.
    """

    def __init__(self, name: str, version: int, current: int) -> None:
        super().__init__(
            f"the stored state has version {version}, but {name} is at _version = {current}; run the newer code"
        )
        self.version = version
        self.current = current


class MigrationMissing(StateLoadError):
    """The class lacks a migration on the way to its current version.

    Attributes:
        from_version: the version without a migration.
    """

    def __init__(self, name: str, from_version: int, version: int, current: int) -> None:
        super().__init__(
            f"the stored state has version {version} and {name} is at _version = {current}, but no migration leads "
            f"from {from_version} to {from_version + 1}; declare one in {name} with "
            f"@migration(from_version={from_version})"
        )
        self.from_version = from_version


class MigrationFailed(StateLoadError):
    """A declared migration raised, or did not return a document.

    Attributes:
        from_version: of the migration.
    """

    def __init__(self, name: str, from_version: int, reason: str) -> None:
        super().__init__(f"{name}: the migration from version {from_version} to {from_version + 1} failed: {reason}")
        self.from_version = from_version
