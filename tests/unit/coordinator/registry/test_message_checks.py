"""Messages checked by schemas alone: the field that is wrong, and what only the agent's process can tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from chronicle.errors import InvalidInput
from coordinator.registry.known_agents import KnownAgents, keep_known_agents, kept_known_agents
from coordinator.registry.message_checks import MessageChecks
from coordinator.registry.registry import RegisteredAgent, Registry
from podium.agent import AgentContext, BaseAgent, handler
from podium.agent.handler_specs import interface_of
from podium.agent.sources import marks_of
from podium.errors import InvalidMessage, UnknownHandler


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(pattern=r"^(a+)+$", max_length=60_000)] = "a"
    count: int | None = None


class Circle(BaseModel):
    shape: Literal["circle", "disc"]
    radius: float


class Square(BaseModel):
    shape: Literal["square"]
    parts: list[Item]


class Painter(BaseAgent):
    @handler
    async def draw(
        self, ctx: AgentContext[Any], shape: Annotated[Circle | Square, Field(discriminator="shape")]
    ) -> None:
        pass

    @handler
    async def order(self, ctx: AgentContext[Any], item: Item) -> None:
        pass


PAINTER = RegisteredAgent("painter", "/a.py", "Painter", interface=interface_of(Painter))


def to(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"handler": name, "input": fields}


@pytest.mark.parametrize(
    "message",
    [
        to("draw", shape="circle", radius=1),
        to("draw", shape="disc", radius=1),
        to("draw", shape="square", parts=[{"name": "a"}, {}]),
        to("order", count=None),
        {"handler": "order"},
    ],
)
async def test_what_fits(message: dict[str, Any]) -> None:
    await MessageChecks().check(PAINTER, message)


@pytest.mark.parametrize(
    ("message", "kind", "param"),
    [
        (to("draw", shape="circle", radius="1"), InvalidMessage, "message.input.radius"),
        (to("draw", shape="circle"), InvalidMessage, "message.input.radius"),
        (to("draw", shape="line"), InvalidMessage, "message.input.shape"),
        (to("draw"), InvalidMessage, "message.input.shape"),
        ({"handler": "draw", "input": 3}, InvalidMessage, "message.input"),
        (to("draw", shape="square", parts=[{}, {"count": "x"}]), InvalidMessage, "message.input.parts.1.count"),
        (to("draw", shape="square", parts=[{"size": 3}]), InvalidMessage, "message.input.parts.0.size"),
        (to("order", name="b"), InvalidMessage, "message.input.name"),
        ({**to("order"), "text": "x"}, InvalidMessage, "message.text"),
        (to("paint"), UnknownHandler, "message.handler"),
        ({"handler": ["order"]}, UnknownHandler, "message.handler"),
        ({"text": "hi"}, UnknownHandler, "message.handler"),
    ],
)
async def test_what_does_not_fit(message: dict[str, Any], kind: type[InvalidMessage], param: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        await MessageChecks().check(PAINTER, message)
    assert (type(caught.value), caught.value.param) == (kind, param)
    assert str(caught.value).startswith(f"{param}: ")


async def test_a_class_without_handlers_takes_any_message_and_one_with_both_those_that_name_none() -> None:
    checks = MessageChecks()
    await checks.check(replace(PAINTER, interface={}), {"handler": "paint"})
    both = replace(PAINTER, interface={**PAINTER.interface, "on_message": True})
    await checks.check(both, {"text": "hi"})
    with pytest.raises(UnknownHandler):
        await checks.check(both, to("paint"))


async def test_a_pattern_of_exponential_effort_takes_none() -> None:
    with pytest.raises(InvalidMessage):
        await MessageChecks().check(PAINTER, to("order", name="a" * 50_000 + "b"))


async def test_after_an_edit_the_agents_process_decides(tmp_path: Path) -> None:
    file, checks = tmp_path / "a.py", MessageChecks()
    file.write_text("one")
    painter = replace(PAINTER, interface={**PAINTER.interface, "sources": marks_of([str(file)])})
    with pytest.raises(UnknownHandler):
        await checks.check(painter, to("new"))
    file.write_text("other")
    await checks.check(painter, to("new"))


async def test_a_schema_that_cannot_be_compiled_is_left_to_the_agents_process(caplog: pytest.LogCaptureFixture) -> None:
    interface: Any = {"handlers": {"order": {"input": {"pattern": "(?<=a)b"}}}, "on_message": False}
    await MessageChecks().check(replace(PAINTER, interface=interface), to("order"))
    assert "schema_not_usable" in caplog.text
    caplog.clear()


def test_a_class_keeps_its_interface_on_the_wire_and_in_the_file_of_a_coordinator(tmp_path: Path) -> None:
    assert RegisteredAgent.from_wire(PAINTER.to_wire()) == PAINTER
    known = KnownAgents(Registry([PAINTER]))
    keep_known_agents(tmp_path / "known", known)
    assert kept_known_agents(tmp_path / "known") == known


@pytest.mark.parametrize(
    "interface",
    [3, [], {"handlers": {}}, {"handlers": [], "on_message": True}, {"handlers": {"a": 3}, "on_message": True}],
)
def test_an_interface_of_another_form_is_refused(interface: object) -> None:
    with pytest.raises(InvalidInput, match="interface"):
        RegisteredAgent.from_wire({**PAINTER.to_wire(), "interface": interface})
