"""The model gateway as a process: started with the service or at the first call, again after its death, and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import threading
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.ids import IdSource
from coordinator import socket_process
from coordinator.channel import read_packet
from coordinator.home import Home
from coordinator.homes.opening import open_records
from coordinator.homes.sqlite.calls import CALLS, SqliteCallLog
from coordinator.models.calls import CallRecord, ModelRequest
from coordinator.models.client import ModelClient
from coordinator.models.config_file import store_config
from coordinator.models.profiles import Limits, ModelsConfig, Price, Profile
from coordinator.models.supervisor import ModelProcess
from podium.models import Finished, LLMMessage, ModelError, TextDelta, Usage
from podium.models.quality import QualityOfService
from tests.model_server.answers import Answer
from tests.model_server.replies import Reply, hold_after, page, refusal
from tests.model_server.server import ModelServer
from tests.otlp_receiver import otlp_receiver
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from coordinator.models.profiles import ProviderName
    from podium.models import LLMStreamChunk

IDS = IdSource()
ASKED = (LLMMessage("user", "one two three"),)


class Served:
    """A home whose model gateway this process supervises, as a service does."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.client = ModelClient(home.models_socket)

    def profiles(self, *profiles: Profile, **budgets: str) -> None:
        store_config(open_records(self.home).documents(), ModelsConfig({each.name: each for each in profiles}, budgets))

    def script(self, *answers: Any) -> str:
        path = self.home.path / "answers.json"
        path.write_text(json.dumps(answers))
        return str(path)

    async def call(self, profile: str, **parts: Any) -> list[LLMStreamChunk | CallRecord]:
        async with aclosing(self.client.stream(request(profile, **parts))) as answers:
            return [answer async for answer in answers]

    def records(self, tenant: str | None = None) -> list[CallRecord]:
        return SqliteCallLog(self.home.path).latest(tenant, 100)


def request(profile: str, **parts: Any) -> ModelRequest:
    parts = {"tenant": "default", "messages": ASKED, "owner": "hello/alice", "turn": 1, **parts}
    return ModelRequest(IDS.other("call_", 0), profile=profile, **parts)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home").create()
    made.make_run_dir()
    yield made
    made.remove_run_dir()


@pytest.fixture
async def served(home: Home) -> AsyncIterator[Served]:
    async with ModelProcess(home, open_records(home).documents(), dict(os.environ)):
        yield Served(home)


async def test_a_call_is_answered_and_recorded(served: Served) -> None:
    price = Price("1", "1000000", cached="0.5")
    usage = {"input_tokens": 100, "output_tokens": 2, "cached_tokens": 50}
    script = served.script({"text": "hello there", "usage": usage})
    served.profiles(Profile("fast", "scripted", script=script, price=price))
    *chunks, record = await served.call("fast", tenant="acme")
    assert chunks == [
        TextDelta("hello"),
        TextDelta(" there"),
        Usage(100, 2, 50),
        Finished("stop", "scripted", "scr_1", cost="2.000075"),
    ]
    assert isinstance(record, CallRecord)
    assert served.records() == [record]
    assert (record.status, record.owner, record.turn, record.tenant) == ("completed", "hello/alice", 1, "acme")
    assert (record.provider, record.model, record.profile) == ("scripted", "scripted", "fast")
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (100, 2, 50)
    assert record.cost == "2.000075"
    assert record.ttft_ms is not None
    (attempt,) = record.attempts
    assert (attempt.error, attempt.profile) == (None, "fast")
    assert served.records("default") == []


async def test_the_process_starts_with_the_first_call_and_only_its_user_may_call(served: Served) -> None:
    assert stat.S_IMODE(served.home.models_socket.stat().st_mode) == 0o600
    assert not (served.home.logs / "models.log").exists()
    first = await served.client.process_id()
    assert first != os.getpid()
    assert await served.client.process_id() == first


async def test_the_process_of_a_home_with_profiles_starts_with_the_service(home: Home) -> None:
    store_config(
        open_records(home).documents(),
        ModelsConfig({"m": Profile("m", "openai", "m", base_url="http://127.0.0.1:9/v1")}),
    )
    async with ModelProcess(home, open_records(home).documents(), dict(os.environ)):
        await until((home.logs / "models.log").exists, "nobody has called")
        process_id = await ModelClient(home.models_socket).process_id()
        loaded = Path(f"/proc/{process_id}/maps").read_text()
        assert "/pydantic_core/" in loaded, "a part of the vendor's library is there before the first call"


async def test_calls_run_side_by_side(served: Served) -> None:
    served.profiles(Profile("echo", "scripted"))
    asked = [[LLMMessage("user", f"number {number}")] for number in range(20)]
    answers = await asyncio.gather(*(served.call("echo", messages=messages) for messages in asked))
    said = ["".join(chunk.text for chunk in answer if isinstance(chunk, TextDelta)) for answer in answers]
    assert said == [messages[0].text for messages in asked]
    assert len(served.records()) == 20


@pytest.mark.usefixtures("caplog")
async def test_a_process_that_was_killed_in_a_call_is_started_again(served: Served) -> None:
    script = served.script({"when": "one two", "text": "word " * 1000, "delay_ms": 20}, "later")
    served.profiles(Profile("slow", "scripted", script=script))
    process_id = await served.client.process_id()
    call = served.client.stream(request("slow"))
    await anext(call)
    os.kill(process_id, signal.SIGKILL)
    with pytest.raises(ModelError, match="died during the call") as died:
        [chunk async for chunk in call]
    assert died.value.kind == "unavailable"
    *_, record = await served.call("slow", messages=[LLMMessage("user", "again")])
    assert isinstance(record, CallRecord)
    assert record.status == "completed"
    assert await served.client.process_id() != process_id
    second, first = served.records()
    assert second == record
    assert (first.status, first.cost, first.latency_ms) == ("lost", None, None)
    assert first.error is not None


async def test_a_caller_that_leaves_ends_its_call(served: Served) -> None:
    served.profiles(Profile("slow", "scripted", script=served.script({"text": "word " * 1000, "delay_ms": 20})))
    async with aclosing(served.client.stream(request("slow"))) as chunks:
        async for _ in chunks:
            break
    await until(lambda: served.records()[0].status == "cancelled", "the end of the call is recorded")
    (record,) = served.records()
    assert record.attempts[0].error == "cancelled: the caller left"
    assert record.latency_ms is not None


async def test_the_end_of_the_service_ends_running_calls_and_the_process(home: Home) -> None:
    async with ModelProcess(home, open_records(home).documents(), dict(os.environ)):
        served = Served(home)
        served.profiles(Profile("slow", "scripted", script=served.script({"text": "word " * 1000, "delay_ms": 20})))
        process_id = await served.client.process_id()
        call = served.client.stream(request("slow"))
        assert isinstance(await anext(call), TextDelta)
    with pytest.raises(ModelError, match="the model gateway ends with the service") as ended:
        [chunk async for chunk in call]
    assert ended.value.kind == "unavailable"
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)
    assert served.records()[0].status == "cancelled"
    with pytest.raises(ModelError, match="no service of the home runs"):
        await served.call("slow")


@pytest.mark.usefixtures("caplog")
async def test_calls_do_not_wait_for_a_process_that_cannot_start(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_process, "_BACK_OFF_S", tuple(pause_s / 20 for pause_s in socket_process._BACK_OFF_S))
    served.profiles(Profile("echo", "scripted"))
    damaged = served.home.path / CALLS.name
    damaged.write_bytes(b"no database of calls" * 100)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"logs/models\.log of the home has the reason") as refused:
            async with asyncio.timeout(60):
                await served.call("echo")
        assert refused.value.kind == "unavailable"
    assert f"{CALLS.name} is damaged" in (served.home.logs / "models.log").read_text()
    damaged.unlink()
    *_, record = await served.call("echo")
    assert isinstance(record, CallRecord)
    assert record.status == "completed"


async def test_what_is_wrong_with_a_call_is_told_and_recorded(served: Served) -> None:
    served.profiles(
        Profile("keyless", "openai", "m", api_key_env="NO_SUCH_KEY_ANYWHERE"),
        Profile("scriptless", "scripted", script="/nowhere/answers.json"),
        Profile("cut", "scripted", script=served.script({"text": "cut after this", "finish": None})),
    )
    for profile, kind, text in (
        ("nothing", "unknown_profile", "there is no profile 'nothing'; the profiles are: cut, keyless, scriptless"),
        ("keyless", "auth", "from the variable NO_SUCH_KEY_ANYWHERE, which the service"),
        ("scriptless", "bad_request", "/nowhere/answers.json is no script of answers"),
        ("cut", "protocol", "ended in the middle"),
    ):
        with pytest.raises(ModelError) as failed:
            await served.call(profile)
        assert failed.value.kind == kind
        assert text in str(failed.value)
        record = served.records()[0]
        assert (record.profile, record.status) == (profile, "failed")
        assert record.error is not None
        assert record.error["kind"] == kind


async def test_a_call_without_its_parts_is_refused(served: Served) -> None:
    served.profiles(Profile("echo", "scripted"))
    same = request("echo")
    async with aclosing(served.client.stream(same)) as answers:
        assert len([answer async for answer in answers]) > 2
    with pytest.raises(ModelError, match="give each call an id of its own"):
        await anext(served.client.stream(same))
    for data in (b"nothing", b"[]", b'{"op": "call"}', b'{"op": "call", "request": {}}', b'{"op": "x"}'):
        reader, writer = await asyncio.open_unix_connection(str(served.home.models_socket))
        writer.write(len(data).to_bytes(4, "big") + data)
        answer = json.loads(await read_packet(reader) or b"")
        assert answer["error"]["kind"] == "bad_request"
        writer.close()
    assert len(served.records()) == 1


async def test_a_fallback_answers_before_the_first_token_only(served: Served) -> None:  # S0.28, S0.31
    busy = served.script({"error": {"kind": "overloaded", "message": "too much to do"}})
    served.profiles(
        Profile("busy", "scripted", "first", script=busy, fallbacks=("echo",), price=Price("1", "1")),
        Profile("echo", "scripted", "second", price=Price("0", "500000")),
    )
    *_, record = await served.call("busy")
    assert isinstance(record, CallRecord)
    assert (record.profile, record.model, record.status) == ("busy", "second", "completed")
    assert [(each.profile, each.error is None) for each in record.attempts][-1] == ("echo", True)
    assert record.attempts[0].error == "overloaded: too much to do"
    assert record.cost == "2"  # 4 tokens, by the price of what answered


@pytest.mark.usefixtures("caplog")
async def test_a_budget_that_is_used_up_refuses_calls(served: Served) -> None:
    served.profiles(Profile("echo", "scripted", price=Price("0", "500000")), acme="3.0")
    await served.call("echo", tenant="acme")  # 2
    await served.call("echo", tenant="acme")  # 4
    with pytest.raises(ModelError, match=r"used up its budget of the day: 4 of 3\.0") as refused:
        await served.call("echo", tenant="acme")
    assert refused.value.kind == "budget_exceeded"
    assert refused.value.retry_after_s is not None
    assert 0 < refused.value.retry_after_s <= 86_400
    await served.call("echo", tenant="other")
    os.kill(await served.client.process_id(), signal.SIGKILL)
    with pytest.raises(ModelError, match="used up its budget"):  # another process reads what was spent
        await served.call("echo", tenant="acme")


async def test_metrics_and_profiles(home: Home) -> None:
    async with ModelProcess(home, open_records(home).documents(), dict(os.environ)) as process:
        served = Served(home)
        assert await process.metrics() == {}
        served.profiles(Profile("echo", "scripted", "m", fallbacks=("other",)), Profile("other", "scripted"))
        await served.call("echo")
        with pytest.raises(ModelError):
            await served.call("anything")
        measured = await process.metrics()
        assert measured["podium_model_calls_total", ("echo", "default", "completed", "")] == 1
        assert measured["podium_model_calls_total", ("", "default", "failed", "unknown_profile")] == 1
        assert measured["podium_model_tokens_total", ("echo", "default", "output")] == 4
        assert measured["podium_model_calls_running", ()] == 0
        assert await served.client.profiles() == {
            "echo": {"provider": "scripted", "model": "m", "fallbacks": ["other"]},
            "other": {"provider": "scripted", "model": "", "fallbacks": []},
        }


async def test_keys_of_home_and_tenant_reach_their_own_servers(home: Home, tmp_path: Path) -> None:  # S0.31
    (tmp_path / "acme-key").write_text("key-of-acme\n")
    with ModelServer() as ours, ModelServer() as theirs:
        own = {"api_key_file": str(tmp_path / "acme-key"), "base_url": theirs.openai_url}
        async with ModelProcess(home, open_records(home).documents(), {**os.environ, "OUR_KEY": "key-of-home"}):
            served = Served(home)
            profile = Profile("fast", "openai", "m", base_url=ours.openai_url, api_key_env="OUR_KEY")
            served.profiles(replace(profile, max_output_tokens=50, tenants={"acme": own}))
            await served.call("fast", tenant="acme", max_output_tokens=20)
            await served.call("fast", max_output_tokens=500)
            (tmp_path / "acme-key").write_text("another-key")
            await served.call("fast", tenant="acme")
    assert [each.headers["authorization"] for each in ours.requests] == ["Bearer key-of-home"]
    assert [each.headers["authorization"] for each in theirs.requests] == ["Bearer key-of-acme", "Bearer another-key"]
    limits = [each.body.get("max_tokens") or each.body.get("max_completion_tokens") for each in theirs.requests]
    assert limits == [20, 50]
    for file in home.path.rglob("*"):
        assert not file.is_file() or b"key-of-" not in file.read_bytes(), f"{file} has a key"


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_each_wire_format_goes_through(served: Served, provider: ProviderName) -> None:
    with ModelServer() as server:
        url = server.url if provider == "anthropic" else server.openai_url
        served.profiles(Profile("m", provider, "model-1", base_url=url))
        server.will("hello there")
        *chunks, record = await served.call("m")
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta)) == "hello there"
    assert isinstance(record, CallRecord)
    assert (record.status, record.provider, record.attempts[0].model) == ("completed", provider, "model-1")
    assert record.output_tokens is not None


@pytest.mark.parametrize(
    ("provider", "prompt_cache", "said"),
    [
        ("openai", "breakpoints", {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}),
        ("openai", "retention", {"prompt_cache_retention": "24h"}),
        ("openai-responses", "breakpoints", {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}),
        ("anthropic", "breakpoints", {"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
    ],
)
async def test_what_a_profile_says_reaches_its_server(
    served: Served, provider: ProviderName, prompt_cache: str, said: dict[str, Any]
) -> None:  # S0.25, S1.37, S4.27
    with ModelServer() as server:
        url = server.url if provider == "anthropic" else server.openai_url
        profile = Profile("code.fast", provider, "model-1", base_url=url, cache="long", extra={"seed": 7})
        served.profiles(replace(profile, prompt_cache=prompt_cache), replace(profile, name="plain", cache=None))
        await served.call("code.fast", temperature=0.25)
        await served.call("plain")
    hinted, plain = (each.body for each in server.requests)
    for key, value in said.items():
        assert f"{json.dumps(key)}: {json.dumps(value)}" in json.dumps(hinted)
        assert key not in json.dumps(plain)
    assert (hinted["model"], hinted["temperature"], hinted["seed"]) == ("model-1", 0.25, 7)
    assert "temperature" not in plain


async def test_a_saturated_profile_degrades_and_the_record_tells(served: Served) -> None:  # S0.28
    gate = threading.Event()
    with ModelServer() as server:
        server.will(Reply(Answer("first"), shape=hold_after(1, gate)))
        served.profiles(
            Profile("main", "openai", "m", base_url=server.openai_url, fallbacks=("echo",), limits=Limits(1)),
            Profile("echo", "scripted"),
        )
        first = asyncio.create_task(served.call("main"))
        await asyncio.to_thread(server.wait_for_requests, 1)
        soon = QualityOfService("interactive", target_ttft_ms=200)
        *_, record = await served.call("main", qos=soon)
        gate.set()
        await first
    assert isinstance(record, CallRecord)
    assert (record.status, record.provider) == ("completed", "scripted")
    assert record.qos_outcome["degraded"] is True
    assert record.qos_outcome["degraded_because"] == "saturated"
    assert record.qos_outcome["profile"] == "echo"


async def test_a_server_that_is_away_or_no_model_server_is_told(served: Served) -> None:
    with ModelServer() as server:
        server.will(page(), page(), page())
        served.profiles(
            Profile("away", "openai", "m", base_url="http://127.0.0.1:9/v1"),
            Profile("html", "openai", "m", base_url=server.openai_url),
        )
        soon = QualityOfService(deadline_ms=20_000)
        for profile, kind in (("away", "unavailable"), ("html", "protocol")):
            with pytest.raises(ModelError) as failed:
                await served.call(profile, qos=soon)
            assert failed.value.kind == kind
            assert served.records()[0].error is not None
            assert served.records()[0].error["kind"] == kind  # type: ignore[index]
            assert len(served.records()[0].attempts) > 1


async def test_a_deadline_in_the_past_asks_nothing(served: Served) -> None:
    served.profiles(Profile("echo", "scripted"))
    with pytest.raises(ModelError) as late:
        await served.call("echo", qos=QualityOfService(deadline_ms=0))
    assert late.value.kind == "deadline_exceeded"
    assert served.records()[0].attempts == ()


async def test_a_deadline_counts_from_when_the_caller_was_asked(served: Served) -> None:  # S0.28
    served.profiles(Profile("echo", "scripted"))
    asked_s = time.monotonic() - 3600
    with pytest.raises(ModelError) as late:
        await served.call("echo", qos=QualityOfService(deadline_ms=3_599_999), asked_s=asked_s)
    assert late.value.kind == "deadline_exceeded"
    assert served.records()[0].attempts == ()
    *_, record = await served.call("echo", qos=QualityOfService(deadline_ms=7_200_000), asked_s=asked_s)
    assert isinstance(record, CallRecord)
    assert record.qos_outcome["deadline_ms"] == 7_200_000, "as it was asked for"
    assert record.qos_outcome["deadline_met"] is True
    assert record.ttft_ms is not None
    assert record.ttft_ms >= 3_600_000


async def test_openrouter_answers_when_the_primary_is_broken(home: Home, tmp_path: Path) -> None:  # S0.31
    (tmp_path / "acme-key").write_text("key-of-acme")
    broken = refusal(500, "server_error", "out of order")
    with ModelServer(lambda _: broken) as vendor, ModelServer() as openrouter:
        async with ModelProcess(
            home, open_records(home).documents(), {**os.environ, "OPENROUTER_KEY": "key-of-openrouter"}
        ):
            served = Served(home)
            main = Profile("main", "openai", "m", base_url=vendor.openai_url, emergency_fallback="openrouter")
            tenants = {"acme": {"api_key_file": str(tmp_path / "acme-key")}}
            router = Profile(
                "openrouter", "openai", "vendor/m", base_url=openrouter.openai_url, api_key_env="OPENROUTER_KEY"
            )
            served.profiles(replace(main, tenants=tenants), router, replace(main, name="off", emergency_fallback=None))
            *_, record = await served.call("main")
            assert isinstance(record, CallRecord)
            assert [each.profile for each in record.attempts] == ["main"] * 3 + ["openrouter"], "after all attempts"
            assert record.qos_outcome["profile"] == "openrouter"
            assert record.qos_outcome["degraded_because"] == "failed"
            forbid = QualityOfService(degrade_policy="forbid")
            refused: list[tuple[str, dict[str, Any]]] = [
                ("main", {"tenant": "acme"}),
                ("off", {}),
                ("main", {"qos": forbid}),
            ]
            for profile, parts in refused:
                with pytest.raises(ModelError):
                    await served.call(profile, **parts)
    (request_of_home,) = openrouter.requests
    assert request_of_home.headers["authorization"] == "Bearer key-of-openrouter"
    assert request_of_home.body["model"] == "vendor/m"


async def test_a_call_is_a_span_of_its_callers_trace(home: Home) -> None:  # S1.30
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    with otlp_receiver() as receiver:
        async with ModelProcess(
            home, open_records(home).documents(), {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        ):
            served = Served(home)
            served.profiles(Profile("echo", "scripted", "model-1"))
            await served.call("echo", traceparent=f"00-{trace}-{parent}-01")
            with pytest.raises(ModelError):
                await served.call("nothing", traceparent=f"00-{trace}-{parent}-01")
    made, failed = receiver.spans
    assert (made.name, made.trace_id, made.parent_id, made.failed) == ("llm.complete", trace, parent, False)
    assert made.attributes["gen_ai.request.model"] == "echo"
    assert made.attributes["gen_ai.response.model"] == "model-1"
    assert made.attributes["gen_ai.usage.input_tokens"] == 4
    assert (failed.name, failed.failed) == ("llm.complete", True)
