"""A shop that waits for payments, behind a gateway with keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podium.agent import AgentContext, BaseAgent, DeltaState
from podium.errors import PromiseRejected

if TYPE_CHECKING:
    from coordinator.access.caller import Scope
    from coordinator.homes.sqlite.keys import SqliteKeyRecords
    from tests.unit.coordinator.gateway.served_home import ServedHome

__all__ = ["Shop", "paused", "settled", "with_key"]


class Shop(BaseAgent):
    """Waits for a payment."""

    agent_type = "shop"

    class State(DeltaState):
        _entity_type = "shop"
        _version = 1
        paid: int = 0

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        new = ctx.workspace / "dir" / "new"
        if new.exists():
            new.unlink()
        else:
            new.parent.mkdir()
            new.write_text("x")
        with (ctx.workspace / "order").open("a") as file:
            file.write("tea")
        try:
            ctx.state.paid += await ctx.promise("payment", schema=int, reason=message["text"])
        except PromiseRejected as error:
            ctx.reply(str(error))


def with_key(keys: SqliteKeyRecords, scope: Scope, tenant: str = "acme") -> dict[str, str]:
    return {"Authorization": f"Bearer {keys.create('test', tenant, [scope], 1)[1]}"}


async def paused(home: ServedHome, headers: dict[str, str], agent: str = "shop/a") -> str:
    """Send a message, and return the run that waits for its payment."""
    answer = await home.http.post(f"/v1/agents/{agent}/messages", json={"message": {"text": "tea"}}, headers=headers)
    assert answer.status_code == 202, answer.text
    run: str = answer.json()["run_id"]
    return run


async def settled(home: ServedHome, headers: dict[str, str], run: str) -> dict[str, Any]:
    harness = await home.fleet.harness("acme:shop/a")
    await harness.receive()
    found = await home.http.get(f"/v1/agents/shop/a/messages/{run}", headers=headers)
    answer: dict[str, Any] = found.json()
    assert answer["status"] == "consumed", answer
    return answer
