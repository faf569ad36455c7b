"""What the service refuses, as a gateway before it answers: from the service's socket to the status."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic import BaseModel

from coordinator.access.caller import OpenAccess
from coordinator.access.quotas import Quota
from coordinator.gateway.app import create_app
from coordinator.homes.opening import open_records
from coordinator.operations.agents import HomeAgents
from coordinator.registry.registry import RegisteredAgent, Registry
from coordinator.streams.home_streams import HomeStreams
from podium.agent import AgentContext, BaseAgent, handler
from podium.agent.handler_specs import interface_of
from podium.errors import AgentLoadError, HostDied
from podium.turn.reading import Read
from tests.unit.coordinator.service.served import HELLO, Agents, client_of, serving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from coordinator.client_messages import Admitted
    from coordinator.fleet.model import Code
    from coordinator.home import Home
    from coordinator.service.client import ServiceClient
    from podium.address import Address
    from podium.turn.stream import Frame


class Link:
    """A connection that is there."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    async def client(self) -> ServiceClient:
        return self._client


@asynccontextmanager
async def gateway(home: Home, router: Agents, registry: Registry = HELLO) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(home, router), client_of(home) as service:
        await service.register(registry)
        link = Link(service)
        agents = HomeAgents(home, link)
        streams = HomeStreams(link.client, agents)
        transport = httpx.ASGITransport(create_app(agents, OpenAccess(), streams), raise_app_exceptions=False)
        try:
            async with streams, httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                yield http
        finally:
            agents.close()


async def post(http: httpx.AsyncClient, key: str, name: str = "") -> httpx.Response:
    headers = {"Prefer": "respond-async", **({"Idempotency-Key": name} if name else {})}
    return await http.post(f"/v1/agents/hello/{key}/messages", json={"message": {"text": "hi"}}, headers=headers)


def refused(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


async def test_a_quota_of_messages(home: Home) -> None:
    open_records(home).set_quotas({"default": Quota(messages_per_minute=1)})
    async with gateway(home, Agents()) as http:
        first = await post(http, "a", "once")
        assert first.status_code == 202, first.text
        answer = await post(http, "a")
        error = refused(answer, 429)
        assert (error["type"], error["code"]) == ("rate_limit_error", "quota_exceeded")
        assert "1 messages a minute" in error["message"]
        assert f"try again in {answer.headers['Retry-After']} s" in error["message"]
        again = await post(http, "a", "once")
        assert (again.status_code, again.json()["message_id"]) == (202, first.json()["message_id"])
        open_records(home).set_quotas({})
        assert (await post(http, "a")).status_code == 202


async def test_quotas_of_agents_and_bytes(home: Home) -> None:
    open_records(home).set_quotas({"default": Quota(agents=1)})
    async with gateway(home, Agents()) as http:
        assert (await post(http, "a")).status_code == 202
        forking = await http.post("/v1/agents/hello/a/fork", json={"key": "b"})
        for answer in (await post(http, "b"), forking):
            error = refused(answer, 403)
            assert (error["type"], error["code"]) == ("permission_error", "quota_exceeded")
        open_records(home).set_quotas({"default": Quota(bytes=10)})
        error = refused(await http.put("/v1/agents/hello/a/files/big", content=b"x" * 11), 403)
        assert error["code"] == "quota_exceeded"


class Query(BaseModel):
    text: str


class Searcher(BaseAgent):
    @handler
    async def search(self, ctx: AgentContext[Any], query: Query) -> None:
        pass

    @handler(read_only=True)
    async def count(self, ctx: AgentContext[Any], query: Query) -> int:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ({"handler": "count", "input": {"text": "x"}}, "invalid_message", "message.handler"),
        ({"handler": "search", "input": {"text": 3}}, "invalid_message", "message.input.text"),
        ({"handler": "find", "input": {"text": "x"}}, "unknown_handler", "message.handler"),
        ({"text": "hi"}, "unknown_handler", "message.handler"),
    ],
)
async def test_a_message_that_does_not_fit_its_handler(
    home: Home, message: dict[str, Any], code: str, param: str
) -> None:
    agents = Agents()
    typed = Registry([RegisteredAgent("hello", "/a.py", "Searcher", interface=interface_of(Searcher))])
    async with gateway(home, agents, typed) as http:
        path = "/v1/agents/hello/a"
        error = refused(await http.post(f"{path}/messages", json={"message": message}), 422)
        assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param)
        assert (await http.get(path)).status_code == 404, "nothing is admitted"
        fits = {"message": {"handler": "search", "input": {"text": "x"}}}
        assert (await http.post(f"{path}/messages", json=fits, headers={"Prefer": "respond-async"})).status_code == 202
        for wrong in ({"handler": "search", "input": {"text": "x"}}, {"handler": "count", "input": {"text": 3}}):
            refused(await http.post(f"{path}/read", json={"message": wrong}), 422)
    assert len(agents.delivered) == 1


async def test_reads_are_under_the_quotas_of_messages_and_of_awake_agents(home: Home) -> None:
    class Readable(Agents):
        reads = 0

        async def read(self, address: Address, code: Code, message: dict[str, Any]) -> Read:
            self.reads += 1
            return Read(1, 7)

    agents = Readable()
    typed = Registry([RegisteredAgent("hello", "/a.py", "Searcher", interface=interface_of(Searcher))])
    search, count = ({"message": {"handler": name, "input": {"text": "x"}}} for name in ("search", "count"))
    async with gateway(home, agents, typed) as http:

        async def read(key: str) -> httpx.Response:
            return await http.post(f"/v1/agents/hello/{key}/read", json=count)

        for key in "ab":
            sent = await http.post(f"/v1/agents/hello/{key}/messages", json=search, headers={"Prefer": "respond-async"})
            assert sent.status_code == 202
        open_records(home).set_quotas({"default": Quota(messages_per_minute=2, awake_agents=1)})
        for key, status in (("a", 200), ("b", 403), ("a", 200), ("nobody", 404), ("a", 429)):
            answer = await read(key)
            assert answer.status_code == status, answer.text
            if status != 200 and key != "nobody":
                assert answer.json()["error"]["code"] == "quota_exceeded"
        assert 0 < int(answer.headers["Retry-After"]) <= 60
        assert agents.reads == 2
        open_records(home).set_quotas({})
        assert (await read("b")).json()["data"] == 7


async def test_a_repetition_of_a_message_that_does_not_fit_any_more_is_answered_as_the_first_one(home: Home) -> None:
    agents = Agents()
    untyped = Registry([RegisteredAgent("hello", "/a.py", "Searcher")])
    typed = Registry([RegisteredAgent("hello", "/a.py", "Searcher", interface=interface_of(Searcher))])
    path, sent = "/v1/agents/hello/a/messages", {"message": {"text": "hi"}}
    headers = {"Prefer": "respond-async", "Idempotency-Key": "k"}
    async with gateway(home, agents, untyped) as http:
        first = await http.post(path, json=sent, headers=headers)
    async with gateway(home, agents, typed) as http:
        again = await http.post(path, json=sent, headers=headers)
        assert (again.status_code, again.json()["message_id"]) == (202, first.json()["message_id"])
        refused(await http.post(path, json={"message": {"text": "ho"}}, headers=headers), 409)
        refused(await http.post(path, json=sent, headers={**headers, "Idempotency-Key": "other"}), 422)


async def test_a_bug_of_the_service_is_hidden(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Agents):
        async def cancel(self, *_: object) -> None:
            raise KeyError("a secret of the service")

    async with gateway(home, Broken()) as http:
        message_id = (await post(http, "a")).json()["message_id"]
        error = refused(await http.post(f"/v1/agents/hello/a/messages/{message_id}/cancel"), 500)
    assert error["type"] == "api_error"
    assert "secret" not in error["message"]
    assert "a secret of the service" in caplog.text
    caplog.clear()


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (AgentLoadError("/srv/app/hello.py: its module is missing"), 502, "agent_load_error"),
        (
            HostDied("it died while it imported /srv/app/hello.py; /srv/app/.podium/hosts.log says more"),
            503,
            "host_died",
        ),
        (TimeoutError(), 504, "timeout"),
        (KeyError("a bug"), 500, "refused"),
    ],
)
async def test_an_error_after_the_message_was_admitted_names_it(
    home: Home, failure: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Asleep(Agents):
        async def deliver(self, address: Address, code: Code, message: Admitted) -> AsyncGenerator[list[Frame], None]:
            self.say(message.message_id, failure)
            async for batch in super().deliver(address, code, message):
                yield batch

    path = "/v1/agents/hello/a"
    async with gateway(home, Asleep()) as http:
        error = refused(await http.post(f"{path}/messages", json={"message": {"text": "hi"}}), status)
        (waiting,) = (await http.get(f"{path}/inbox")).json()["items"]
        assert (error["code"], error["message_id"]) == (code, waiting["message_id"])
        assert "/srv" not in error["message"]
        before = refused(await http.post("/v1/agents/unknown/a/messages", json={"message": {"text": "hi"}}), 404)
        assert "message_id" not in before
    caplog.clear()
