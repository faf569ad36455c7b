"""An agent that does what the text of its message says, for clients of other makes: one command a line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from coordinator.access.caller import OpenAccess
from coordinator.gateway.app import AppOptions, create_app
from coordinator.streams.home_streams import HomeStreams
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from tests.unit.coordinator.gateway.served_home import ServedHome, served_home
from tests.unit.coordinator.gateway.test_streams import on_a_socket

__all__ = ["Chatter", "Served", "served"]


class Chatter(BaseAgent):
    """Says what it is told to, waits where it is told to, and keeps what it heard in its state and in a file."""

    agent_type = "chatter"
    max_attempts = 2
    accepts_client_state = True
    steps: ClassVar[asyncio.Semaphore]
    """The waits that end."""
    failures: ClassVar[int] = 0

    class State(DeltaState):
        heard: list[str] = []
        likes: str = ""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        text: str = message["text"]
        ctx.state.heard.append(text)
        with (ctx.workspace / "heard.txt").open("a") as file:
            file.write(f"{json.dumps(text)}\n")
        match message.get("ag_ui"):
            case {"state": {"likes": str(likes)}}:
                ctx.state.likes = likes
        reply = await ctx.send_message()
        for line in text.split("\n"):
            command, _, rest = line.partition(" ")
            match command:
                case "wait":
                    await Chatter.steps.acquire()
                case "fail":
                    if Chatter.failures:
                        Chatter.failures -= 1
                        raise ValueError("as told")
                case "artifact":
                    await ctx.add_artifact(rest, "content", media_type="text/plain")
                case "emit":
                    await ctx.emit(rest, {"at": rest})
                case "again":
                    await reply.finish()
                    reply = await ctx.send_message()
                case "data":
                    ctx.reply({"said": rest})
                case _:
                    await reply.stream_token(line)
        await reply.finish()

    async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.heard.append(f"steered: {message['text']}")


@dataclass
class Served:
    """A home with the agent, and the URLs of two gateways."""

    home: ServedHome
    urls: tuple[str, str]

    @property
    def url(self) -> str:
        return self.urls[0]

    async def get(self, path: str, status: int = 200) -> Any:
        answer = await self.home.http.get(path)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def heard(self, key: str) -> list[str]:
        """Return what an agent keeps of what it heard; its file says the same."""
        state = (await self.get(f"/v1/agents/chatter/{key}/state"))["state"]
        text = (await self.home.http.get(f"/v1/agents/chatter/{key}/files/heard.txt")).text
        heard: list[str] = state["heard"]
        assert [line for line in heard if not line.startswith("steered")] == [
            json.loads(line) for line in text.splitlines()
        ]
        return heard


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Serve a home with the agent at two gateways."""
    Chatter.steps = asyncio.Semaphore(0)
    Chatter.failures = 0
    options = AppOptions(accepts_state=lambda _: True)
    async with (
        served_home(tmp_path / "home", Chatter) as home,
        HomeStreams(home.fleet.client, home.agents) as one,
        HomeStreams(home.fleet.client, home.agents) as two,
        on_a_socket(create_app(home.agents, OpenAccess(), one, options=options)) as first,
        on_a_socket(create_app(home.agents, OpenAccess(), two, options=options)) as second,
    ):
        try:
            yield Served(home, (first, second))
        finally:
            go_on(1000)
            one.close()
            two.close()


def go_on(steps: int = 1) -> None:
    """End waits of the agent."""
    for _ in range(steps):
        Chatter.steps.release()
