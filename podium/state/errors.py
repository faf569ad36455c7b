"""The errors of state, drawn::

    StateError
    ├── InvalidValue            a value was refused where it was put; the state is as it was before
    ├── OutsideTurn             a change by a thread that is not the turn's, or after the turn; nothing was changed
    ├── UnseenChange            a container was changed by something else than its own methods
    ├── InvalidState            a validator refused the state as a whole at commit
    ├── UnstorableState         a state was built with a value that cannot be kept
    ├── UnsupportedType         a declared type cannot be kept: its values do not come back from JSON
    ├── PatchError              a patch does not fit the document it was applied to; the document is as it was before
    └── StateLoadError          stored state could not be loaded; nothing was guessed and nothing changed
        ├── StateTooNew         written by a newer class than this one
        ├── MigrationMissing    no step declared from a version on the way
        └── MigrationFailed     a declared step raised, or did not return a document

Every message names the place by its RFC 6901 pointer and says how to mend it. None of them is worth a retry unchanged.
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


class InvalidValue(StateError, ValueError):
    """A value was refused where it was put, because of its type or because JSON cannot hold it.

    The mutation had no effect at all, also where it would have put several values.

    Attributes:
        path: RFC 6901 pointer of the refused value, from the state's root.
        reason: why, and how to mend it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or '(the whole value)'}: {reason}")
        self.path = path
        self.reason = reason


class OutsideTurn(StateError, RuntimeError):
    """An agent's state was to be changed by a thread that is not the turn's, or while no turn of that code runs.

    The change had no effect at all: it would be in no turn's commit.

    Attributes:
        path: RFC 6901 pointer of the container that was to be changed, from the state's root.
        reason: why, and how to mend it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or '(the whole state)'}: {reason}")
        self.path = path
        self.reason = reason


class UnseenChange(StateError, RuntimeError):
    """At commit, a container does not have as many members as its own methods have left in it.

    Attributes:
        path: RFC 6901 pointer of the container.
    """

    def __init__(self, path: str, found: int, noted: int) -> None:
        super().__init__(
            f"{path or '(the whole state)'}: it has {found} members, but {noted} by what was noted of its changes; "
            "nothing of this turn is committed. heapq, and calls like list.append(items, x), change a list unseen: "
            "work on a list of your own, and assign it"
        )
        self.path = path


class InvalidState(StateError, ValueError):
    """A validator refused the state as a whole at commit.

    Attributes:
        path: RFC 6901 pointer of the part that its validator refused.
        reason: what the validator said.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path or '(the whole state)'}: {reason}; nothing of this turn is committed. "
            "Change the state so that its own validators accept it before the turn ends"
        )
        self.path = path
        self.reason = reason


class UnstorableState(StateError):
    """A state was built (``State(...)``, its defaults included) with a value that cannot be kept.

    What pydantic itself refuses while building is a `pydantic.ValidationError`, as for any model.

    Attributes:
        path: RFC 6901 pointer of the refused value.
        reason: why, and how to mend it.
    """

    # No ValueError: pydantic would wrap it into a ValidationError on its way out of the constructor.

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or '(the whole state)'}: {reason}")
        self.path = path
        self.reason = reason


class UnsupportedType(StateError, TypeError):
    """A type declared in a state class cannot be kept. The message names the field and what to declare instead."""


class PatchError(StateError, ValueError):
    """A patch does not fit the document. The document is as it was before."""


class StateLoadError(StateError):
    """Stored state could not be loaded into the class. The stored state is untouched."""


class StateTooNew(StateLoadError):
    """Stored state is of a newer version than the class.

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
    """The class declares no step from a version that is on the way.

    Attributes:
        from_version: the version no step leads away from.
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
        from_version: the version the step leads away from.
    """

    def __init__(self, name: str, from_version: int, reason: str) -> None:
        super().__init__(f"{name}: the migration from version {from_version} to {from_version + 1} failed: {reason}")
        self.from_version = from_version
