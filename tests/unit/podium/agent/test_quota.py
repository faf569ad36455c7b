"""An agent's class says how much its workspace may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chronicle.ids import BlobId
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.port import Quota
from podium.agent import BaseAgent
from podium.agent.base import workspace_quota_of
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from podium.agent import AgentContext


class Hoarder(BaseAgent):
    workspace_quota_bytes = 1000
    max_attempts = 1

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        (ctx.workspace / message["name"]).write_bytes(b"x" * message["size"])


async def test_a_turn_that_leaves_too_much_fails_and_what_it_wrote_is_kept() -> None:
    async with AgentHarness(Hoarder) as agent:
        assert (await agent.send({"name": "a", "size": 900})).ok
        failed = await agent.send({"name": "b", "size": 101})
        assert failed.error is not None
        assert failed.error["type"] == "OverQuota"
        assert "1001 bytes and may hold 1000" in str(failed.error["message"])
        _, failure = agent.events("turn.failed")[-1]
        assert files_in(agent.blobs, BlobId(str(failure["tree_id"]))) == {"a": b"x" * 900, "b": b"x" * 101}
        assert [path.name for path in agent.activation.workspace.root.iterdir()] == ["a"]
        assert (await agent.send({"name": "b", "size": 100})).ok


def test_what_a_class_says() -> None:
    assert workspace_quota_of(Hoarder) == Quota(bytes=1000)
    assert workspace_quota_of(BaseAgent) is None
