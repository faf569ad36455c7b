"""Agents that ask each other, and whose processes die meanwhile; messages are JSON in a text."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.agent import AgentContext, Answered, AnswerText, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.messages.asking import StoreAsker

if TYPE_CHECKING:
    from podium.address import Address


def note(path: str, line: str) -> None:
    """Note that something ran, outside of what is rolled back."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


class Asker(BaseAgent):
    """Asks, as a step between two others, and writes down the answer."""

    class State(DeltaState):
        _entity_type = "asker"
        answers: list[Any] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        plan = json.loads(message["text"])
        note(plan["notes"], f"asker {os.getpid()}")
        await ctx.step("before", note, plan["notes"], "before")
        answer = await ctx.ask(plan["ask"], plan)
        await ctx.step("behind", note, plan["notes"], "behind")
        ctx.state.answers.append(answer.data)
        (ctx.workspace / "answer.txt").write_text(answer.text)


class Answerer(BaseAgent):
    """Dies once behind a step if told to, waits for a file if told to, and answers."""

    class State(DeltaState):
        _entity_type = "answerer"
        asked: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if "notes" not in message:
            return
        ctx.state.asked += 1
        note(message["notes"], f"answerer {os.getpid()}")
        await ctx.step("work", note, message["notes"], "work")
        if message.get("dies") and Path(message["notes"]).read_text().count("answerer") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while "until" in message and not Path(message["until"]).exists():
            await asyncio.sleep(0.05)
        await ctx.send_message(f"asked by {ctx.sender}")
        ctx.reply({"asked": ctx.state.asked})


class Listener(BaseAgent):
    """Notes what it hears of an answer, as it hears it."""

    class State(DeltaState):
        _entity_type = "listener"
        heard: list[str] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        plan = json.loads(message["text"])
        async for part in ctx.ask(plan["ask"], plan).stream():
            match part:
                case AnswerText():
                    ctx.state.heard.append(part.text)
                case Answered():
                    ctx.state.heard.append(f"answered {part.result['said']}")
                case _:
                    ctx.state.heard.append(type(part).__name__)
            note(plan["notes"], f"heard {ctx.state.heard[-1]}")


class Speaker(BaseAgent):
    """Says a word, waits until the listener has heard it, and dies of it the first time."""

    class State(DeltaState):
        _entity_type = "speaker"

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if "notes" not in message:
            return
        notes = Path(message["notes"])
        note(message["notes"], "speaker")
        attempt = notes.read_text().count("speaker")
        reply = await ctx.send_message("well, ")
        while notes.read_text().count("heard well, ") < attempt:
            await asyncio.sleep(0.05)
        if attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        await reply.stream_token("done", final=True)
        ctx.reply({"said": attempt})


class LostAsker(BaseAgent):
    """Its process is killed right after its question is in the inbox, and has one attempt."""

    max_attempts = 1

    class State(DeltaState):
        _entity_type = "lostasker"

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        plan = json.loads(message["text"])

        async def die(_: Address) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        for asker in gc.get_objects():
            if isinstance(asker, StoreAsker):
                asker._wake = die
        await ctx.ask(plan["ask"], plan)
