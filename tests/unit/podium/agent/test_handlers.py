"""Handlers: which one a message is for, what does not fit, and which classes are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from podium.agent import AgentContext, BaseAgent, DeltaState, Reminder, handler
from podium.agent.handler_specs import handlers_of, interface_of
from podium.agent.inspect import inspect_agent
from podium.agent.loader import load_agent_class
from podium.errors import InvalidMessage, NotAnAgent
from podium.messages.inbox import list_inbox
from podium.testing import AgentHarness


class Query(BaseModel):
    text: str
    limit: int = 2

    @field_validator("text")
    @classmethod
    def _no_swearing(cls, text: str) -> str:
        if text == "damn":
            raise ValueError("mind your words")
        return text


class Hits(BaseModel):
    found: list[str]


class Joined(BaseModel):
    kind: Literal["joined"]
    name: str


class Left(BaseModel):
    kind: Literal["left"]
    reason: str = Field(alias="because")


Event = Annotated[Joined | Left, Field(discriminator="kind")]


class Searcher(BaseAgent):
    """Has handlers only."""

    class State(DeltaState):
        said: list[str] = []

    @handler
    async def search(self, ctx: AgentContext[State], query: Query) -> Hits:
        ctx.state.said.append(query.text)
        return Hits(found=[query.text] * query.limit)

    @handler
    async def note(self, ctx: AgentContext[State], event: Event) -> None:
        ctx.state.said.append(event.name if isinstance(event, Joined) else event.reason)
        ctx.reply("noted")

    @handler
    async def twice(self, ctx: AgentContext[State], query: Query) -> list[Hits]:
        return [await self.search(ctx, query), await self.search(ctx, query)]


class Chatty(Searcher):
    """Has a handler of its own, those of its base, and ``on_message``."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.reply(message)

    async def on_reminder(self, ctx: AgentContext[Any], reminder: Reminder) -> None:
        await super().on_reminder(ctx, reminder)

    @handler
    async def lies(self, ctx: AgentContext[Any], query: Query) -> Hits:
        return "no hits"  # type: ignore[return-value]

    @handler
    async def later(self, ctx: AgentContext[Any], query: Query) -> None:
        await ctx.remind("search", every=60, message={"handler": "search", "input": {"text": query.text}})


def to(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"handler": name, "input": fields}


async def test_a_message_names_its_handler_and_gets_what_that_returns() -> None:
    async with AgentHarness(Searcher) as agent:
        assert (await agent.send(to("search", text="cats"))).data == {"found": ["cats", "cats"]}
        assert (await agent.send(to("twice", text="a", limit=1))).data == [{"found": ["a"]}, {"found": ["a"]}]
        assert (await agent.send(to("note", kind="joined", name="ann"))).data == "noted", "as it replied"
        assert (await agent.send(to("note", kind="left", because="late"))).ok
        assert agent.state == {"said": ["cats", "a", "a", "ann", "late"]}
        said = [payload["message"] for _, payload in agent.events("user_message")]
        assert said[0] == to("search", text="cats"), "recorded with the handler"


@pytest.mark.parametrize(
    ("message", "kind", "says"),
    [
        (to("search"), "InvalidMessage", "message.input.text: field required"),
        ({"handler": "search"}, "InvalidMessage", "message.input.text: field required"),
        (to("search", text="x", limit="many"), "InvalidMessage", "message.input.limit: input should be a valid int"),
        (to("search", text="damn"), "InvalidMessage", "message.input.text: value error, mind your words"),
        (to("note", kind="left"), "InvalidMessage", "message.input.because: field required"),
        (to("note", kind="gone"), "InvalidMessage", "message.input.kind: input tag 'gone' found using 'kind' does not"),
        (to("note", name="ann"), "InvalidMessage", "message.input.kind: unable to extract tag using discriminator"),
        ({**to("search", text="x"), "more": 1}, "InvalidMessage", "message.more: a message for a handler has handler"),
        (to("find", text="x"), "UnknownHandler", "message.handler: there is no handler 'find'; the handlers are note"),
        (to("State"), "UnknownHandler", "message.handler: there is no handler 'State'"),
        ({"handler": 3}, "UnknownHandler", "message.handler: there is no handler 3"),
        (
            {"text": "hi"},
            "UnknownHandler",
            "message.handler: no handler is named; the handlers are note, search, twice",
        ),
    ],
)
async def test_a_message_that_does_not_fit_is_parked_at_once(message: dict[str, Any], kind: str, says: str) -> None:
    async with AgentHarness(Searcher) as agent:
        error = (await agent.send(message)).error
        assert error is not None
        assert (error["type"], str(error["message"])[: len(says)]) == (kind, says)
        (entry,) = list_inbox(agent.store, agent.blobs, agent.store.session(agent.address.name))
        assert (entry.message.status.value, entry.message.attempts) == ("parked", 1)
        assert agent.state == {"said": []}


async def test_on_message_gets_what_names_no_handler() -> None:
    async with AgentHarness(Chatty) as agent:
        assert (await agent.send({"text": "hi"})).data == {"text": "hi"}
        assert (await agent.send(to("search", text="a", limit=1))).data == {"found": ["a"]}
        error = (await agent.send(to("find", text="x"))).error
        assert error is not None
        assert error["type"] == "UnknownHandler"


async def test_a_class_without_handlers_gets_every_message() -> None:
    class Plain(BaseAgent):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            ctx.reply(message)

    async with AgentHarness(Plain) as agent:
        assert (await agent.send(to("search", text="x"))).data == to("search", text="x")
        assert interface_of(Plain) == {}


async def test_a_result_that_is_not_of_its_type_fails_the_turn() -> None:
    async with AgentHarness(Chatty) as agent:
        error = (await agent.send(to("lies", text="x"))).error
        assert error is not None
        assert str(error["message"]).startswith("lies returned something else than its annotation says")


async def test_a_reminders_message_may_name_a_handler() -> None:
    async with AgentHarness(Chatty) as agent:
        await agent.send(to("later", text="dogs"))
        await agent.advance(61)
        assert agent.state == {"said": ["dogs"]}


def test_the_message_of_an_argument() -> None:
    spec = handlers_of(Searcher)["note"]
    assert spec.message(Left(kind="left", because="late")) == to("note", kind="left", because="late")
    with pytest.raises(InvalidMessage, match=r"message\.input\.kind: unable to extract tag"):
        spec.message(Query(text="x"))


HEAD = """
from __future__ import annotations
from typing import TYPE_CHECKING, Annotated, Callable
from pydantic import BaseModel, Field
from podium.agent import BaseAgent, handler
if TYPE_CHECKING:
    from somewhere import Unknown


class Query(BaseModel):
    text: str


class Other(BaseModel):
    text: str


class Called(BaseModel):
    call: Callable[[], int]


class Agent(BaseAgent):
    @handler
"""


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def search(self, ctx, q: Query): ...", r"handler search \(.*agent\.py:\d+\) is not async; write 'async def"),
        ("async def search(self, ctx): ...", r"takes other arguments than a context and a message"),
        ("async def search(self, ctx, q: Query, r: int): ...", r"takes other arguments than a context and a message"),
        ("async def search(self, ctx, *, q: Query): ...", r"takes other arguments than a context and a message"),
        ("async def search(self, ctx, q): ...", r"q has no annotation"),
        ("async def search(self, ctx, q: dict): ...", r"q is no pydantic model; give a class that inherits"),
        ("async def search(self, ctx, q: Unknown): ...", r"cannot be read: name 'Unknown' is not defined; import"),
        (
            "async def search(self, ctx, q: Query | Other): ...",
            r"q is a union without a discriminator; write Annotated\[Query \| Other, Field\(discriminator='kind'\)\]",
        ),
        (
            "async def search(self, ctx, q: Annotated[Query | Other, Field(discriminator='text')]): ...",
            r"q has no JSON Schema: Model 'Query' needs field 'text' to be of type `Literal`",
        ),
        ("async def search(self, ctx, q: Called): ...", r"q has no JSON Schema: Cannot generate a JsonSchema"),
        ("async def search(self, ctx, q: Query) -> object(): ...", r"its result has no JSON Schema"),
        ("async def on_message(self, ctx, q: Query): ...", r"the name is one of podium's; give the handler another"),
        ("async def resources(self, ctx, q: Query): ...", r"the name is one of podium's; give the handler another"),
        (
            "async def search(self, ctx, q: Query): ...\n    @handler\n    async def search(self, ctx, q: Other): ...",
            r"agent\.py:\d+: two handlers are named search; rename one of them",
        ),
    ],
)
def test_a_handler_that_cannot_be_used(tmp_path: Any, source: str, says: str) -> None:
    file = tmp_path / "agent.py"
    file.write_text(f"{HEAD}    {source}\n")
    with pytest.raises(NotAnAgent, match=says):
        load_agent_class(file, "Agent")


def test_the_inspector_tells_the_schemas(tmp_path: Any) -> None:
    file = tmp_path / "agent.py"
    file.write_text(f"{HEAD}    async def search(self, ctx, q: Query) -> list[Other]: ...\n")
    interface: Any = inspect_agent(f"{file}:Agent").interface
    assert interface["on_message"] is False
    search = interface["handlers"]["search"]
    assert search["input"]["required"] == ["text"]
    assert search["result"]["items"] == {"$ref": "#/$defs/Other"}
    assert list(interface["sources"]) == [str(file)]
