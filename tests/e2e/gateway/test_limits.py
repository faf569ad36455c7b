"""What limits a home: the quotas of its tenants, and the warm processes of many classes, on one real service."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from tests.e2e.conftest import AGENTS, TIMEOUT_S, fresh_home, processes_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Podium

pytestmark = [pytest.mark.ray]

QUOTAS: Final = {
    "few": {"agents": 2},
    "narrow": {"awake_agents": 1},
    "small": {"bytes": 10_000},
    "full": {"bytes": 10_000},
    "calm": {"messages_per_minute": 2},
}
CLASSES: Final = 10
MAX_WARM: Final = 3
A_CLASS: Final = """
class Kind{number}(BaseAgent):
    idle_timeout_s = 0.5

    async def on_message(self, ctx, message):
        ctx.reply({{"kind": {number}, "pid": os.getpid()}})
"""


@dataclass
class Tenant:
    """One tenant of the home: its client, with a key of all scopes, and the command."""

    name: str
    http: httpx.Client
    podium: Podium

    def post(self, agent: str, *, headers: dict[str, str] | None = None, **message: Any) -> httpx.Response:
        """Send a message to an agent, and wait for the answer."""
        return self.http.post(f"/v1/agents/{agent}/messages", json={"message": message}, headers=headers)

    def say(self, agent: str, text: str, **message: Any) -> dict[str, Any]:
        """Send a message that is handled; return what the agent replied."""
        answer = self.post(agent, text=text, **message)
        assert answer.status_code == 200, answer.text
        said: dict[str, Any] = answer.json()["data"]
        return said

    def why(self, agent: str) -> dict[str, Any]:
        """What ``podium why`` says of an agent."""
        found: dict[str, Any] = self.podium.json("why", f"{self.name}:{agent}")
        return found

    def waits_for(self, agent: str, what: str) -> bool:
        return what in self.why(agent)["waits_for"]

    def heard(self, agent: str) -> list[str]:
        """What an agent has heard up to its last turn; nothing if it does not exist."""
        answer = self.http.get(f"/v1/agents/{agent}/state")
        return list(answer.json()["state"]["heard"]) if answer.status_code == 200 else []

    def sleep(self, agent: str) -> None:
        answer = self.http.post(f"/v1/agents/{agent}/passivate")
        assert answer.status_code == 200, answer.text

    @property
    def agents(self) -> list[str]:
        return [item["agent"] for item in self.http.get("/v1/agents").json()["items"]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Podium, str]]:
    """A service with quotas and many classes, and its URL."""
    project = tmp_path_factory.mktemp("limits")
    kinds = [A_CLASS.format(number=number) for number in range(CLASSES)]
    (project / "kinds.py").write_text("import os\nfrom podium import BaseAgent\n" + "".join(kinds))
    (project / "limited.py").write_text((AGENTS / "limited.py").read_text())
    classes = ["limited.py:Limited", *(f"kinds.py:Kind{number}" for number in range(CLASSES))]
    lines = [f"agents = {json.dumps(classes)}"]
    for tenant, quota in QUOTAS.items():
        lines += [f"[tenants.{tenant}.quota]", *(f"{name} = {limit}" for name, limit in quota.items())]
    (project / "podium.toml").write_text("\n".join(lines))
    with fresh_home({"PODIUM_MOST_WARM_HOSTS": str(MAX_WARM)}) as podium:
        up = podium("up", "--project", str(project / "podium.toml"), "--detach", "--port", "0", "--json")
        try:
            yield podium, json.loads(up.stdout)["url"]
        finally:
            podium("down")


@pytest.fixture
def tenant(served: tuple[Podium, str], request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """The tenant that the test's parameter names; its agents are put to sleep afterwards."""
    podium, url = served
    key = podium.json("keys", "create", "test", "--tenant", request.param, "--scope", "admin")["key"]
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S) as http:
        tenant = Tenant(request.param, http, podium)
        yield tenant
        for agent in tenant.agents:
            tenant.sleep(agent)


def assert_refused(answer: httpx.Response, says: str, status: int = 403) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == "quota_exceeded"
    assert says in error["message"]


@pytest.mark.parametrize("tenant", ["few"], indirect=True)
def test_agents_beyond_the_quota_are_not_made_and_what_is_told_them_is_held(tenant: Tenant) -> None:
    full = "the tenant few may have 2 agents, and has them"
    tenant.say("limited/a", "hi")
    tenant.say("limited/b", "hi")
    assert_refused(tenant.post("limited/c", text="hi"), full)
    assert_refused(tenant.http.post("/v1/agents/limited/a/fork", json={"key": "c"}), full)
    assert full in tenant.say("limited/a", "ask", ask="limited/c")["refused"]
    told = [["limited/c", "one"], ["limited/b", "not delayed"], ["limited/c", "two"]]
    tenant.say("limited/a", "tell", tell=told)
    wait_until(lambda: tenant.heard("limited/b") == ["hi", "not delayed"])
    wait_until(lambda: tenant.waits_for("limited/c", f"the delivery of 2 messages of other agents: {full}"))
    assert tenant.why("limited/c")["outbox"]["held_by"] == full
    assert tenant.podium.json("inbox", "few:limited/c")["outbox"]["messages"] == 2
    assert sorted(tenant.agents) == ["limited/a", "limited/b"]

    tenant.sleep("limited/b")
    assert tenant.http.delete("/v1/agents/limited/b").status_code == 200
    wait_until(lambda: tenant.heard("limited/c") == ["one", "two"], "what was held is not delivered")
    assert sorted(tenant.agents) == ["limited/a", "limited/c"]
    assert_refused(tenant.post("limited/b", text="hi"), full)


@pytest.mark.parametrize("tenant", ["narrow"], indirect=True)
def test_an_agent_beyond_the_quota_of_awake_ones_is_woken_when_another_sleeps(tenant: Tenant) -> None:
    full = "the tenant narrow may have 1 agents awake, and has them"
    tenant.say("limited/a", "hi")
    assert_refused(tenant.post("limited/b", text="hi"), full)
    assert full in tenant.say("limited/a", "ask", ask="limited/b")["refused"]
    tenant.say("limited/a", "tell", tell=[["limited/b", "one"]])
    wait_until(lambda: tenant.waits_for("limited/b", f"an agent of its tenant to sleep: {full}"))
    assert tenant.why("limited/b")["pending"] == 1
    assert tenant.heard("limited/b") == []

    tenant.sleep("limited/a")
    wait_until(lambda: tenant.heard("limited/b") == ["one"], "it is not woken")
    assert tenant.why("limited/a")["status"] == "asleep"


@pytest.mark.parametrize("tenant", ["small"], indirect=True)
def test_what_a_client_stores_counts_as_bytes(tenant: Tenant) -> None:
    def store(size: int) -> httpx.Response:
        return tenant.http.post("/v2/artifacts", json={"content": "x" * size})

    assert store(6000).status_code == 201
    assert_refused(store(6000), "bytes, and may have 10000: a record of ")
    assert store(3000).status_code == 201
    assert_refused(tenant.post("limited/a", text="x" * 1000), "bytes, and may have 10000: a message of ")
    assert tenant.agents == []


@pytest.mark.parametrize("tenant", ["full"], indirect=True)
def test_the_files_of_agents_count_as_bytes(tenant: Tenant) -> None:
    tenant.say("limited/a", "hi", write=50_000)
    says = "bytes, and may have 10000"
    assert_refused(tenant.http.put("/v1/agents/limited/a/files/more", content=b"x"), says)
    assert_refused(tenant.http.post("/v1/agents/limited/a/fork", json={"key": "b"}), says)
    assert tenant.agents == ["limited/a"]


@pytest.mark.parametrize("tenant", ["calm"], indirect=True)
def test_messages_of_clients_are_counted_and_those_of_agents_are_not(tenant: Tenant) -> None:
    once = {"Idempotency-Key": "once"}
    first = tenant.post("limited/a", text="hi", headers=once)
    tenant.say("limited/b", "tell", tell=[["limited/a", f"{number}"] for number in range(3)])
    refused = tenant.post("limited/a", text="third")
    assert_refused(refused, "the tenant calm may send 2 messages a minute", status=429)
    assert 0 < int(refused.headers["Retry-After"]) <= 60
    assert tenant.post("limited/a", text="hi", headers=once).json() == first.json(), "a repetition is not refused"
    wait_until(lambda: tenant.heard("limited/a") == ["hi", "0", "1", "2"])


@pytest.mark.parametrize("tenant", ["default"], indirect=True)
def test_more_classes_than_warm_processes_all_answer_and_few_processes_stay(tenant: Tenant) -> None:
    def hosts() -> tuple[int, int]:
        (node,) = tenant.podium.json("nodes")["nodes"]
        return node["starting"] + node["assigned"], node["warm"]

    def answer(number: int) -> int:
        said = tenant.say(f"kind{number}/a", "hi")
        assert said["kind"] == number
        return int(said["pid"])

    with ThreadPoolExecutor(CLASSES) as threads:
        pids = list(threads.map(answer, range(CLASSES)))
    assert len(set(pids)) == CLASSES, "each has a process of its own"
    wait_until(lambda: hosts()[0] == 0 and hosts()[1] <= MAX_WARM, "too many processes stay")
    wait_until(lambda: not set(pids) & set(processes_of(tenant.podium)), "a used process stays")
    assert answer(0) not in pids
