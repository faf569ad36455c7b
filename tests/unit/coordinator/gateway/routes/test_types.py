"""The agent types, and their typed messages in the OpenAPI document: whom it shows them, and what it says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import jsonschema_rs
import schemathesis
from pydantic import BaseModel, Field

from coordinator.access.caller import Scope
from coordinator.gateway.app import create_app
from coordinator.gateway.typed_messages import with_typed_messages
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from coordinator.operations.objects import AgentClass
from coordinator.registry.registry import RegisteredAgent
from podium.address import Address
from podium.agent import AgentContext, BaseAgent, handler
from podium.agent.handler_specs import interface_of
from tests.unit.coordinator.gateway.agent_classes import Notes, Searcher
from tests.unit.coordinator.gateway.served_home import served_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATH = "/v1/agents/{}/{{key}}/messages"


class Leaf(BaseModel):
    kind: Literal["leaf"]


class Branch(BaseModel):
    kind: Literal["branch"]
    left: Tree
    right: Tree


Tree = Annotated[Leaf | Branch, Field(discriminator="kind")]


class Found(BaseModel):
    depth: int = 0


def other_model() -> type[BaseModel]:
    class Found(BaseModel):
        depth: str

    return Found


Other: Any = other_model()


class Gardener(BaseAgent):
    """Has models that refer to themselves, and two of one name."""

    @handler
    async def plant(self, ctx: AgentContext[Any], tree: Tree) -> Found:
        raise NotImplementedError

    @handler
    async def find(self, ctx: AgentContext[Any], found: Other) -> list[Found]:
        raise NotImplementedError


class Mixed(BaseAgent):
    """Takes any message, too."""

    @handler
    async def find(self, ctx: AgentContext[Any], found: Found) -> None: ...

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None: ...


def described(kind: type[BaseAgent], name: str) -> AgentClass:
    found: dict[str, Any] = RegisteredAgent(name, "a.py", kind.__name__, interface=interface_of(kind)).described
    return AgentClass(
        agent_type=found["type"],
        class_name=found["class"],
        on_message=found["on_message"],
        handlers=found["handlers"],
    )


def references(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, each in value.items():
                if key == "$ref" and isinstance(each, str):
                    yield each
                elif key == "mapping":
                    yield from each.values()
                else:
                    yield from references(each)
        case list():
            for each in value:
                yield from references(each)


def fits(document: dict[str, Any], shape: str, value: object) -> bool:
    schema = {"$ref": f"#/components/schemas/{shape}", "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(schema).is_valid(value)


async def test_the_document_has_the_typed_messages_and_what_it_says_is_answered(tmp_path: Path) -> None:
    async with served_home(tmp_path / "home", Notes, Searcher) as home:
        before = home.app.openapi()
        document = (await home.http.get("/openapi.json")).json()
        read = "/v1/agents/searcher/{key}/read"
        assert document["paths"].keys() - before["paths"].keys() == {PATH.format("searcher"), read}
        operation = document["paths"][PATH.format("searcher")]["post"]
        assert operation["operationId"] == "send_message_of_searcher"
        assert "type" not in {each["name"] for each in operation["parameters"]}
        sent = {"message": {"handler": "search", "input": {"text": "cat"}}}
        assert fits(document, "searcher.MessageBody", sent)
        assert not fits(document, "searcher.MessageBody", {"message": {"text": "cat"}})
        answer = await home.http.post("/v1/agents/searcher/ann/messages", json=sent)
        assert answer.json()["data"] == {"found": ["cat", "cat"]}
        assert fits(document, "searcher.Answer", answer.json())
        assert not fits(document, "searcher.Answer", {**answer.json(), "data": {"found": 3}})
        asked = {"message": {"handler": "turns", "input": {"text": "x"}}}
        assert document["paths"][read]["post"]["operationId"] == "read_agent_of_searcher"
        assert (fits(document, "searcher.ReadBody", asked), fits(document, "searcher.ReadBody", sent)) == (True, False)
        answer = await home.http.post("/v1/agents/searcher/ann/read", json=asked)
        assert fits(document, "searcher.ReadResult", answer.json())
        assert "searcher.MessageBody" not in str(home.app.openapi()), "the document without types stays as it is"

        notes, searcher = (await home.get("/types"))["items"]
        assert notes == {"type": "notes", "class": "agents.py:Notes", "on_message": True, "handlers": {}}
        assert searcher["handlers"]["search"]["input"]["required"] == ["text"]


def test_models_of_one_name_are_told_apart_and_every_reference_leads_somewhere() -> None:
    unused: Any = None
    general = create_app(unused, unused, unused).openapi()
    document = with_typed_messages(general, [described(Gardener, "gardener"), described(Mixed, "mixed")])
    shapes = document["components"]["schemas"]
    assert all(at.removeprefix("#/components/schemas/") in shapes for at in references(document))
    schemathesis.openapi.from_dict(document)  # a generator of requests reads it
    tree = {"kind": "branch", "left": {"kind": "leaf"}, "right": {"kind": "leaf"}}
    for shape, value, good in (
        ("gardener.MessageBody", {"handler": "plant", "input": tree}, True),
        ("gardener.MessageBody", {"handler": "plant", "input": {**tree, "left": {"kind": "root"}}}, False),
        ("gardener.MessageBody", {"handler": "find", "input": {"depth": "3"}}, True),
        ("gardener.MessageBody", {"handler": "find", "input": {"depth": 3}}, False),
        ("gardener.MessageBody", {"handler": "dig", "input": {}}, False),
        ("mixed.MessageBody", {"handler": "find", "input": {"depth": 3}}, True),
        ("mixed.MessageBody", {"handler": "find", "input": {"depth": "3"}}, False),
        ("mixed.MessageBody", {"text": "any"}, True),
    ):
        assert fits(document, shape, {"message": value}) == good, (shape, value)


async def test_the_types_are_for_keys_that_may_read_all_agents(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    keys = SqliteKeyRecords(tmp_path / "keys", "home1")
    async with served_home(tmp_path / "home", Searcher, keys=keys) as home:

        async def shown(*scopes: Scope, agent: Address | None = None) -> tuple[bool, int]:
            headers = (
                {"Authorization": f"Bearer {keys.create('k', 'default', scopes, 1, agent=agent)[1]}"} if scopes else {}
            )
            document = await home.http.get("/openapi.json", headers=headers)
            assert document.status_code == 200
            listed = await home.http.get("/v1/types", headers=headers)
            return PATH.format("searcher") in document.json()["paths"], listed.status_code

        assert await shown(Scope.READ) == (True, 200)
        assert await shown() == (False, 401)
        assert await shown(Scope.METRICS) == (False, 403)
        assert await shown(Scope.WRITE, agent=Address("searcher", "ann")) == (False, 403)
        wrong = await home.http.get("/openapi.json", headers={"Authorization": "Bearer pod_wrong"})
        assert wrong.status_code == 401
    keys.close()
