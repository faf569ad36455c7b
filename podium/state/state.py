"""Operations on a whole state: drain, check, encode, load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import ValidationError

from chronicle.canonical import Json, JsonObject, encode
from chronicle.errors import InvalidInput
from podium.state.checks import check_tree
from podium.state.errors import InvalidState, StateError, StateLoadError, UnstorableState
from podium.state.migrations import migrate, migrations_of
from podium.state.patch.diff import diff
from podium.state.pointer import join
from podium.state.tracked.drain import collect, mark_drained
from podium.state.tracked.guarded import guard_of
from podium.state.tracked.in_place import patch_in_place
from podium.state.tracked.node import Tracked
from podium.state.tracked.shape import of_validation
from podium.state.undeclared_fields import undeclared_field

if TYPE_CHECKING:
    from podium.agent.models.delta_state import DeltaState
    from podium.state.patch.apply import Patch

__all__ = [
    "change",
    "check",
    "drain",
    "drain_unfinished",
    "from_json",
    "is_dirty",
    "migration_patch",
    "take",
    "to_json",
]

S = TypeVar("S", bound="DeltaState")


def is_dirty(state: DeltaState) -> bool:
    """Return whether the state may have changed since the last drain; O(1). A drain may still return an empty patch."""
    return _root(state)._podium.changed


def check(state: DeltaState) -> None:
    """Run the validators that see more than one value, on members that changed since the last drain.

    Raises:
        InvalidState: a validator refused; the state is unchanged, for the caller to correct or to drop.
        UnseenChange: a changed container does not match its recorded changes.
        InvalidValue: a validator assigned a value that cannot be stored.
    """
    root = _root(state)
    with guard_of(root).lock:
        if root._podium.changed:
            check_tree(root)


def drain(state: DeltaState) -> Patch:
    """Check the state, and return its changes since the last drain (or since it was built or loaded) as a patch.

    Returns:
        RFC 6902 operations (add, replace, remove) from the document that `to_json` returned then to the one that it
        returns now. ``[]`` if nothing changed. The cost is that of the changes.

    Raises:
        InvalidState: a validator refused; nothing counts as drained.
        UnseenChange: a container does not match its recorded changes; nothing counts as drained.
    """
    root = _root(state)
    with (root._podium.guard or guard_of(root)).lock:
        if not root._podium.changed:
            return []
        check_tree(root)
        patch = collect(root)
        mark_drained(root)
        return patch


def drain_unfinished(state: DeltaState) -> tuple[Patch, bool]:
    """Drain the state in the middle of a turn, where validators that see more than one value need not hold yet.

    Returns:
        the patch, as from `drain`, and whether they hold. If they do not, the changes count as drained without being
        checked: give ``recheck`` to `take` at the end of the turn.

    Raises:
        UnseenChange: as for `drain`.
    """
    root = _root(state)
    with guard_of(root).lock:
        try:
            return drain(state), True
        except InvalidState:
            patch = collect(root)
            mark_drained(root)
            return patch, False


def change(state: DeltaState, patch: Patch) -> None:
    """Apply a patch to a live state in place, as changes of the calling code; see `podium.state.tracked.in_place`.

    Raises:
        StateError: an operation does not fit; those before it are applied.
    """
    patch_in_place(_root(state), patch)


def take(state: DeltaState, *, whole: bool, recheck: bool = False) -> tuple[Patch, JsonObject | None]:
    """Drain an agent's state at the end of a turn, and close it until the next turn gets a permit.

    Atomic: no change comes between the patch and the document, nor after both.

    Args:
        state: its root.
        whole: return the document, too; that costs its size.
        recheck: validate all of it, not only members that changed since the last drain; that costs its size.

    Returns:
        the patch, as from `drain`, and the document.

    Raises:
        InvalidState: a validator refused.
        UnseenChange: as for `drain`.
    """
    root = _root(state)
    guard = guard_of(root)
    with guard.lock:
        if recheck:
            check_tree(root, new=True)
        check(state)  # the drain validates corrections by validators once more
        patch = drain(state)
        document = to_json(state) if whole else None
        guard.revoke()
    return patch, document


def to_json(state: DeltaState) -> JsonObject:
    """Return the whole state as a document, with fields under their own names, not their aliases; O(size)."""
    root = _root(state)
    return cast("JsonObject", root._podium.shape.encode(root))


def from_json(cls: type[S], data: Mapping[str, Json], version: int) -> S:
    """Return a state loaded from a stored document; it is clean.

    Args:
        cls: the state class.
        data: a document from `to_json`, with later patches applied. It is not changed.
        version: the ``_version`` of the class that wrote it.

    Raises:
        StateTooNew: the class is older than the document.
        MigrationMissing: the class lacks a migration on the way.
        MigrationFailed: a migration failed.
        StateLoadError: the document does not fit the class, or has fields that the class no longer declares.
    """
    name = cls.__qualname__
    if type(version) is not int or version < 1:
        raise StateLoadError(f"{name}: the stored state's version is {version!r}, not a whole number from 1")
    document = migrate(name, migrations_of(cls), dict(data), version, cls._version)
    try:
        state = cls.model_validate_json(encode(document), by_alias=False, by_name=True)
    except ValidationError as error:
        refusal = of_validation(error, document)
        raise StateLoadError(
            f"the stored state does not fit {name}: {join(reversed(refusal.tail)) or '(the whole state)'}: "
            f"{refusal.reason}; {_hint(cls)}"
        ) from error
    except (InvalidInput, UnstorableState) as error:
        raise StateLoadError(f"the stored state does not fit {name}: {error}; {_hint(cls)}") from error
    except StateError:
        raise
    except Exception as error:  # a user's validator: pydantic passes on all but ValueError and AssertionError
        raise StateLoadError(
            f"the stored state does not fit {name}: a validator raised {type(error).__name__}: {error}; {_hint(cls)}"
        ) from error
    undeclared = undeclared_field(cast("Tracked", state), document)
    if undeclared is not None:
        raise StateLoadError(
            f"the stored state has {join(undeclared)}, which {name} does not declare; declare the field again, or drop "
            f"it in a migration: {_hint(cls)}"
        )
    return state


def migration_patch(data: Mapping[str, Json], state: DeltaState) -> Patch:
    """Return the patch from a stored document to the state that `from_json` loaded from it.

    It is empty unless the class has changed since: a migration ran, or a new field has a default. Later drains apply to
    the document with this patch applied first.
    """
    document, now = dict(data), to_json(state)
    return [] if encode(document) == encode(now) else diff(document, now)


def _hint(cls: type[DeltaState]) -> str:
    return (
        f"if the class changed, set its _version to {cls._version + 1} and declare "
        f"@migration(from_version={cls._version})"
    )


def _root(state: Any) -> Tracked:
    if not isinstance(state, Tracked) or not hasattr(state, "_podium"):
        raise StateError(f"a {type(state).__name__} is not a state")
    if state._podium.parent is not None:
        raise StateError("this is a part of a state; use the state that it belongs to")
    return state
