"""``podium paused``, ``podium resolve`` and ``podium link``."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.access.caller import Scope
from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.home import Home
from coordinator.homes.opening import open_records
from podium.address import Address
from podium.agent import AgentContext, BaseAgent, DeltaState
from podium.errors import PromiseRejected
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from pathlib import Path


class Shop(BaseAgent):
    """Waits for a payment."""

    class State(DeltaState):
        """What was said of it."""

        said: list[str] = []

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        (ctx.workspace / "order.txt").write_text("tea")
        try:
            ctx.state.said.append(f"paid {await ctx.promise('payment', schema=int, reason='tea')}")
        except PromiseRejected as error:
            ctx.state.said.append(f"not paid: {error}")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


def shop(home: Home, text: str | None = None) -> Any:
    """Have the agent handle what waits, or a message; return its state, or the run of the message."""

    async def handled() -> Any:
        with closing(home.journal()) as store, closing(home.blobs()) as blobs:
            async with AgentHarness(Shop, "a", store=store, blobs=blobs) as agent:
                if text is not None:
                    return (await agent.send(text)).receipt.message_id
                await agent.receive()
                return agent.state

    return asyncio.run(handled())


def run(home: Home, *arguments: str) -> int:
    return int(main([*arguments, "--home", str(home.path)]))


def test_a_promise_is_resolved_once(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    asked = shop(home, "tea")
    assert run(home, "paused") == 0
    shown = capsys.readouterr()
    assert "promise payment#1" in shown.out
    assert "podium link RUN" in shown.err
    assert run(home, "resolve", asked, "5", "--promise", "other") == ExitCode.CONFLICT
    assert run(home, "resolve", asked, '"five"', "--promise", "payment") == ExitCode.USAGE
    assert run(home, "resolve", asked, "5", "--promise", "payment", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"run_id": asked, "agent": "shop/a"}
    assert shop(home) == {"said": ["paid 5"]}
    assert run(home, "resolve", asked, "5") == ExitCode.CONFLICT


def test_the_files_of_a_run(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    asked = shop(home, "tea")
    assert run(home, "paused", asked) == 0
    assert "A order.txt" in capsys.readouterr().out
    assert run(home, "paused", asked, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["run_id"], found["base_turn"], found["files_changed"]) == (asked, 0, 1)
    assert [(each["change"], each["path"]) for each in found["files"]] == [("added", "order.txt")]
    assert run(home, "paused", "msg_none") == ExitCode.NOT_FOUND
    assert run(home, "resolve", asked, "5") == 0
    assert run(home, "paused", asked) == ExitCode.CONFLICT


def test_a_promise_is_rejected(home: Home) -> None:
    asked = shop(home, "tea")
    assert run(home, "resolve", asked, "--reject", "card refused", "--promise", "payment") == 0
    assert shop(home) == {"said": ["not paid: card refused"]}


@pytest.mark.parametrize("arguments", [(), ("5", "--reject", "no"), ("--reject", "no", "--call", "x"), ("five",)])
def test_what_is_refused(home: Home, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert run(home, "resolve", "msg_1", *arguments) == ExitCode.USAGE
    assert capsys.readouterr().err


def test_a_link_is_made_for_what_waits_and_is_shown_once(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    asked = shop(home, "tea")
    capsys.readouterr()
    assert run(home, "link", asked, "--promise", "payment", "--expires", "12h") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("/answer#pl_")
    token = shown.out.strip().partition("#")[2]
    assert "promise payment#1 of shop/a until " in shown.err
    assert token not in shown.err
    with closing(open_records(home).keys()) as keys:
        found = keys.find(token)
        assert found is not None
        assert (found.scopes, found.agent, found.tenant) == (
            frozenset({Scope.ANSWER}),
            Address("shop", "a"),
            "default",
        )
        assert run(home, "link", asked, "--json") == 0
        made = json.loads(capsys.readouterr().out)
        assert (made["run_id"], made["call_id"], made["path"]) == (
            asked,
            "promise payment#1",
            f"/answer#{made['token']}",
        )
        assert run(home, "keys", "revoke", made["link_id"]) == 0
        assert keys.find(made["token"]) is None
    assert made["token"] not in (home.logs / "audit.log").read_text()
    assert made["link_id"] in (home.logs / "audit.log").read_text()
    assert run(home, "link", asked, "--promise", "other") == ExitCode.CONFLICT
    assert run(home, "link", asked, "--expires", "31d") == ExitCode.USAGE
    assert run(home, "link", asked, "--expires", "-1d") == ExitCode.USAGE
    assert run(home, "link", "msg_none") == ExitCode.NOT_FOUND
    assert run(home, "resolve", asked, "5") == 0
    assert run(home, "link", asked) == ExitCode.CONFLICT
