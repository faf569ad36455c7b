"""What is done with a whole state: drain it, check it, write it, load it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import ValidationError

from chronicle.canonical import Json, JsonObject, encode
from chronicle.errors import InvalidInput
from podium.state.checks import check_tree
from podium.state.dropped_fields import lost_field
from podium.state.errors import StateError, StateLoadError, UnstorableState
from podium.state.migrations import migrate, migrations_of
from podium.state.patch.diff import diff
from podium.state.pointer import join
from podium.state.tracked.drain import collect, settle
from podium.state.tracked.guarded import guard_of
from podium.state.tracked.node import Tracked
from podium.state.tracked.scalars import of_validation

if TYPE_CHECKING:
    from podium.agent.models.delta_state import DeltaState
    from podium.state.patch.apply import Patch

__all__ = ["check", "drain", "from_json", "is_dirty", "migration_patch", "take", "to_json"]

S = TypeVar("S", bound="DeltaState")


def is_dirty(state: DeltaState) -> bool:
    """Return whether something may have changed since the last drain; O(1). A drain may still give no operation."""
    return _root(state)._podium.changed


def check(state: DeltaState) -> None:
    """Run the validators that see more than one value, where something changed since the last drain.

    Raises:
        InvalidState: one of them refused; the state is left as it is, for the caller to mend or to drop.
        UnseenChange: a container that was changed does not have as many members as was noted.
        InvalidValue: one of them assigned what cannot be kept.
    """
    root = _root(state)
    with guard_of(root).lock:
        if root._podium.changed:
            check_tree(root)


def drain(state: DeltaState) -> Patch:
    """Check the state, and return what changed since the last drain (or since it was made or loaded) as a patch.

    Returns:
        RFC 6902 operations (add, replace, remove) for the document that `to_json` gave then; they make it into what
        `to_json` gives now. ``[]`` if nothing changed. The cost grows with what changed.

    Raises:
        InvalidState: a validator refused; nothing counts as drained.
        UnseenChange: a container does not have as many members as was noted; nothing counts as drained.
    """
    root = _root(state)
    with (root._podium.guard or guard_of(root)).lock:
        if not root._podium.changed:
            return []
        check_tree(root)
        patch = collect(root)
        settle(root)
        return patch


def take(state: DeltaState, *, whole: bool) -> tuple[Patch, JsonObject | None]:
    """Drain an agent's state at the end of a turn, and let nobody change it until the next turn has a permit.

    All of it is of one moment: no change comes between the patch and the document, nor after both.

    Args:
        state: its root.
        whole: return the document, too; that costs its size.

    Returns:
        the patch, as `drain` gives it, and the document.

    Raises:
        InvalidState: a validator refused.
        UnseenChange: as for `drain`.
    """
    guard = guard_of(_root(state))
    with guard.lock:
        check(state)  # what a validator corrects is validated once more by the drain
        patch = drain(state)
        document = to_json(state) if whole else None
        guard.revoke()
    return patch, document


def to_json(state: DeltaState) -> JsonObject:
    """Return the whole state as a document, fields under their own names whatever their aliases; O(size)."""
    root = _root(state)
    return cast("JsonObject", root._podium.shape.encode(root))


def from_json(cls: type[S], data: Mapping[str, Json], version: int) -> S:
    """Return a state loaded from a stored document; nothing of it is dirty.

    Args:
        cls: the state class.
        data: what `to_json` gave, or a document with the patches since applied. It is not changed.
        version: the ``_version`` of the class that wrote it.

    Raises:
        StateTooNew: the class is older than the document.
        MigrationMissing: the class declares no step from a version on the way.
        MigrationFailed: a step failed.
        StateLoadError: the document does not fit the class, or holds fields that the class does not declare any more.
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
            f"{refusal.reason}; {_mend(cls)}"
        ) from error
    except (InvalidInput, UnstorableState) as error:
        raise StateLoadError(f"the stored state does not fit {name}: {error}; {_mend(cls)}") from error
    except StateError:
        raise
    except Exception as error:  # a user's validator: pydantic passes on all but ValueError and AssertionError
        raise StateLoadError(
            f"the stored state does not fit {name}: a validator raised {type(error).__name__}: {error}; {_mend(cls)}"
        ) from error
    lost = lost_field(cast("Tracked", state), document)
    if lost is not None:
        raise StateLoadError(
            f"the stored state has {join(lost)}, which {name} does not declare; declare the field again, or drop it in "
            f"a migration: {_mend(cls)}"
        )
    return state


def migration_patch(data: Mapping[str, Json], state: DeltaState) -> Patch:
    """Return the patch from a stored document to the state that `from_json` just made of it.

    It is empty unless the class has changed since: a migration ran, or a new field has a default. What is drained
    later applies to the document with this patch applied first.
    """
    document, now = dict(data), to_json(state)
    return [] if encode(document) == encode(now) else diff(document, now)


def _mend(cls: type[DeltaState]) -> str:
    return (
        f"if the class changed, set its _version to {cls._version + 1} and declare "
        f"@migration(from_version={cls._version})"
    )


def _root(state: Any) -> Tracked:
    if not isinstance(state, Tracked) or not hasattr(state, "_podium"):
        raise StateError(f"a {type(state).__name__} is not a state")
    if state._podium.parent is not None:
        raise StateError("this is a part of a state; drain, check and write the state it belongs to")
    return state
