"""The clients of a simulation: they send, repeat, follow and cancel messages, and choose busy policies."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from chronicle.canonical import encode
from chronicle.errors import IdempotencyConflict, Unavailable
from chronicle.journal.records import NewMessage
from podium.errors import (
    AgentAsleep,
    DecisionExpired,
    DecisionInvalid,
    Evicted,
    RunNotFound,
    RunNotPaused,
    UnknownAgent,
)
from podium.history.step_record import open_pause
from podium.messages.answers import Answer, answer_run
from podium.testing.simulation.puppet import KEYS, script
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import MessageId
    from chronicle.journal.records import Receipt, Session, StoredStep
    from podium.testing.simulation.fleet import SimulatedFleet
    from podium.testing.simulation.host import SimulatedAgent
    from podium.testing.simulation.world import World
    from podium.turn.activation import Activation
    from podium.turn.stream import Frame

__all__ = ["Clients"]


class Clients:
    """The senders of messages to a fleet."""

    def __init__(self, world: World, fleet: SimulatedFleet) -> None:
        self._world = world
        self._fleet = fleet

    async def send_one(self, number: int) -> None:
        """Send one message; then follow it, cancel it, preempt with it, repeat it, or leave."""
        draw = self._world.generator
        await asyncio.sleep(draw.random() * self._world.arrivals_s)
        agent = draw.choice(self._fleet.agents)
        asks = f"puppet/{KEYS[1]}" if self._world.with_asks and agent.address.key == KEYS[0] else None
        kinds = {"with_steps": self._world.with_steps, "with_pauses": self._world.with_pauses}
        body = encode(script(draw, number, **kinds, asks=asks))
        key = f"key {number}" if draw.random() < 0.8 else None
        receipt = await self._admit(agent, body, key)
        if receipt is None:
            return
        self._fleet.poke(agent)
        what = draw.random()
        if what < 0.5:
            await self._follow(agent, receipt)
        elif what < 0.65:
            await asyncio.sleep(draw.random() * 2)
            if agent.host is not None and agent.host.activation is not None:
                self._world.note("client", "takes back", receipt.message_id[-6:])
                with suppress(Evicted):  # then the next activation handles it
                    await agent.host.activation.cancel(receipt.message_id)
                self._fleet.poke(agent)
            await self._follow(agent, receipt)
        elif what < 0.8:
            await asyncio.sleep(draw.random() * 0.5)
            policy = draw.choice((BusyPolicy.INTERRUPT, BusyPolicy.ROLLBACK, BusyPolicy.STEER))
            if agent.host is not None and agent.host.activation is not None:
                self._world.note("client", "asks to", policy, "for", receipt.message_id[-6:])
                with suppress(Evicted):  # as it would have cancelled a paused turn
                    await agent.host.activation.preempt(receipt.message_id, policy)
                if self._world.with_pauses:  # a paused turn may have held up the inbox
                    self._fleet.poke(agent)
            await self._follow(agent, receipt)
        elif what < 0.9 and key is not None:
            await asyncio.sleep(draw.random() * 3)
            again = await self._admit(agent, body, key)
            if again is not None and again.message_id != receipt.message_id:
                self._world.oracle.verdict.fail(f"{key!r} was admitted twice")
            await self._must_conflict(agent, key)

    async def decide(self) -> None:
        """Answer paused turns: soon or late, several times at once, and wrongly."""
        world, draw = self._world, self._world.generator
        while not world.over:
            await asyncio.sleep(draw.random())
            for paused in world.store.paused_messages():
                if draw.random() < 0.4:
                    continue
                self._answer(paused.session, paused.message.message_id)
                if draw.random() < 0.3:  # somebody else, at the same time
                    self._answer(paused.session, paused.message.message_id)
                for agent in self._fleet.agents:
                    if agent.session == paused.session and draw.random() < 0.9:
                        self._fleet.poke(agent)

    async def look(self) -> None:
        """Read agents beside their turns: what a read sees is the state of one commit."""
        world, draw = self._world, self._world.generator
        while not world.over:
            await asyncio.sleep(draw.random())
            agent = draw.choice(self._fleet.agents)
            host = agent.host
            if host is None or host.ended or host.activation is None:
                continue
            reading = host.link.spawn(host.activation.read({"handler": "look", "input": {}}), "looking")
            await asyncio.wait({reading})
            error = None if reading.cancelled() else reading.exception()
            if isinstance(error, AgentAsleep | Unavailable | UnknownAgent) or reading.cancelled():
                continue
            found, line = reading.result(), world.oracle.line(agent.session.session_id)
            if found.turn in line.past:  # it is not folded meanwhile
                state = line.past[found.turn].state
                seen = {"log": state["log"], "table": state["table"]}
                world.oracle.verdict.same(line, f"what a read of turn {found.turn} saw", found.data, seen)

    async def judge(self) -> None:
        """Decide about steps that do not fit any more; by chance, but without a draw of the others' generator."""
        world = self._world
        while not world.over:
            await asyncio.sleep(0.7)
            for paused in world.store.paused_messages():
                choices = _choices(paused.step)
                if not choices:
                    continue
                draw = random.Random(f"{paused.message.message_id} {paused.place} {world.clock.now_ms()}")
                world.note("client", "judges", paused.message.message_id[-6:])
                self._send_answer(paused.session, paused.message.message_id, draw.choice(choices))
                for agent in self._fleet.agents:
                    if agent.session == paused.session:
                        self._fleet.poke(agent)

    def _answer(self, session: Session, message_id: MessageId) -> None:
        world = self._world
        answer: Json = "no number" if world.generator.random() < 0.1 else world.next_run()
        self._send_answer(session, message_id, answer)

    def _send_answer(self, session: Session, message_id: MessageId, answer: Json) -> None:
        world = self._world
        with suppress(RunNotPaused, RunNotFound, DecisionExpired, DecisionInvalid, Unavailable):
            answer_run(world.link.store, session, message_id, Answer(answer, "a client"), world.clock.now_ms())

    async def _admit(self, agent: SimulatedAgent, body: bytes, key: str | None) -> Receipt | None:
        """Admit a message; with a key, retry until it is admitted."""
        while True:
            now_ms = self._world.clock.now_ms()
            message = NewMessage(self._world.ids.message(now_ms), body, now_ms, key)
            try:
                return self._world.link.store.admit(agent.session.session_id, message)
            except Unavailable:
                if key is None:
                    return None
                await asyncio.sleep(0.2)

    async def _must_conflict(self, agent: SimulatedAgent, key: str) -> None:
        try:
            await self._admit(agent, b'{"another":"body"}', key)
        except IdempotencyConflict:
            return
        self._world.oracle.verdict.fail(f"{key!r} was accepted for another message")

    async def _follow(self, agent: SimulatedAgent, receipt: Receipt) -> None:
        """Read a message's frames to the end, from the agent's current host."""
        while True:
            host = agent.host
            frames: list[Frame] = []
            if host is None or host.ended or host.activation is None:
                if self._world.oracle.line(agent.session.session_id).messages[receipt.message_id].status.is_settled:
                    return
                await asyncio.sleep(0.3)
                continue
            reading = host.link.spawn(_read_all(host.activation, receipt, frames), "reading")
            await asyncio.wait({reading})
            if reading.cancelled():
                continue
            error = reading.exception()
            if error is None:
                self._world.oracle.shown(agent.session.session_id, receipt.message_id, frames)
                return
            if not isinstance(error, AgentAsleep):
                raise error
            await asyncio.sleep(0.1)


async def _read_all(activation: Activation, receipt: Receipt, frames: list[Frame]) -> None:
    async for batch in activation.follow(receipt.message_id):
        frames.extend(batch)


def _choices(step: StoredStep | None) -> list[Json]:
    """Return the answers to a question about steps that do not fit; none to another question."""
    pause = open_pause(step.body) if step is not None else None
    if pause is None or pause["kind"] != "program":
        return []
    return cast("list[Json]", cast("JsonObject", pause["schema"])["enum"])
