"""The port of stores of runs. `podium.testing.RunStoreContract` has its promises as tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from podium.runs.run import AgentRun

__all__ = ["RunStore"]


class RunStore(Protocol):
    """Runs by their ids.

    Runs cross the border as copies: a change of one that was saved, or was loaded, changes nothing in the store. A call
    that is cancelled leaves the run as it was before the call, or as it would be after it.
    """

    async def save(self, run: AgentRun) -> None:
        """Store a run, in place of an earlier one of its id; nothing of it is changed, its times neither.

        Raises:
            InvalidInput: a value in it is not JSON; nothing was stored.
        """

    async def load(self, run_id: str) -> AgentRun | None:
        """Return a run; ``None`` if there is none of that id.

        Raises:
            UnsupportedFormat: a later version of Podium saved it.
        """

    async def delete(self, run_id: str) -> None:
        """Delete a run, if there is one of that id."""
