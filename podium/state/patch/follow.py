"""Following a state from outside: a client's copy of the document, moved forward by the patches of the agent's turns.

The jsonpatch library applies them, not `podium.state.patch.apply`: a client needs nothing of podium for it, and a test
that follows a state this way checks podium's patches by other code than podium's.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from podium.state.errors import PatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chronicle.canonical import Json, JsonObject

__all__ = ["follow"]


def follow(document: Mapping[str, Json], patches: Iterable[Sequence[Mapping[str, Json]]]) -> JsonObject:
    """Return the state that a document becomes by the patches of the turns after it.

    Each patch costs what it changes; the copy of the document at the start costs the document's size.

    Args:
        document: the state at the end of a turn, as ``podium state --json`` prints it. It is not changed.
        patches: of the following turns in order, each as its ``turn_end`` frame or ``turn.committed`` event has it.

    Raises:
        PatchError: a patch does not fit: a turn is missing, or the document is of another turn.
    """
    import jsonpatch  # noqa: PLC0415  not at import: waking an agent does without it
    import jsonpointer  # noqa: PLC0415

    state = deepcopy(dict(document))
    for patch in patches:
        try:
            state = jsonpatch.apply_patch(state, deepcopy(list(patch)), in_place=True)
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
            raise PatchError(f"the patch does not fit the state: {error}; read the state anew") from error
    return state
