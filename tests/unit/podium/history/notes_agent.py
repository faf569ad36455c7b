"""An agent that keeps what it is told, for tests of what becomes of its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coordinator.verification import Verifier
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobStore
    from chronicle.journal.port import JournalStore
    from podium.testing import AgentHarness

__all__ = ["Notes", "problems", "told"]


class Notes(BaseAgent):
    """Keeps what it is told, in its state and in a file; told to fail, it does so after it has written."""

    class State(DeltaState):
        _entity_type = "notes"
        said: list[str] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.said.append(message["text"])
        (ctx.workspace / "notes.txt").write_text("\n".join(ctx.state.said))
        if message["text"] == "fail":
            raise ValueError("as told")


async def told(agent: AgentHarness, *texts: str) -> None:
    """Send messages and let the agent sleep."""
    for text in texts:
        await agent.send(text)
    await agent.sleep()


def problems(store: JournalStore, blobs: BlobStore) -> list[str]:
    """Verify everything, and return what is wrong."""
    verifier = Verifier(store, blobs)
    found = [verifier.check(session).problem for session in store.sessions()]
    return [problem for problem in found if problem is not None]
