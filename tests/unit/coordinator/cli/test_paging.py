"""Lists of any length: a page at a time, the number of the rest, and a way to go on, of a home here and at a URL."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import SystemClock
from coordinator.access.caller import Caller, OpenAccess, Scope, with_implied
from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.cli.paging import say_rest
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing import AgentHarness
from tests.unit.coordinator.cli.cli_gateway import gateway_over
from tests.unit.coordinator.cli.cli_home import HomeMaker, Podium, set_reminders
from tests.unit.coordinator.models.recorded import keep, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[..., tuple[str, str]]

NAMES = ["counter/a", "counter/b", "counter/c", "publisher/a", "teller/x", "teller/y"]
LISTS = [
    ("ps",),
    ("inbox", "counter/a"),
    ("turns", "counter/a"),
    ("reminders", "counter/a"),
    ("history", "counter/a", "out.txt"),
    ("history", "counter/a@2", "out.txt"),
    ("artifacts", "publisher/a"),
    ("artifacts", "publisher/a@2"),
]
OF_THIS_MACHINE = [("models", "calls"), ("models", "calls", "--owner", "notes/alice")]
"""Lists without ``--url``."""


class Publisher(BaseAgent):
    """Publishes a note."""

    class State(DeltaState):
        pass

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await ctx.add_artifact(f"{message['text']}.txt", "a note\n")


async def publish(made: HomeMaker, *names: str) -> None:
    async with AgentHarness(Publisher, "a", store=made.store, blobs=made.blobs) as agent:
        for name in names:
            assert (await agent.send(name)).ok


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HomeMaker]:
    maker = HomeMaker(tmp_path_factory.mktemp("paged") / "home")
    agent = maker.agent("counter/a")
    for number in range(3):
        agent.turn(f"turn {number}", {"out.txt": b"%d\n" % number})
    agent.fail("bad")
    for number in range(4):
        agent.admit(f"waits {number}")
    agent.sleep()
    set_reminders(maker.store, "counter/a")
    for name in ("counter/b", "counter/c", "teller/x", "teller/y", "acme:counter/a", "acme:counter/b"):
        maker.agent(name).sleep()
    asyncio.run(publish(maker, "one", "two", "three"))
    keep(maker.path, *(record(f"call_{number}", started_ms=number // 2) for number in range(5)))
    keep(maker.path, record("call_8", owner="notes/bob"), record("call_9", tenant="acme"))
    now_ms = SystemClock().now_ms()
    for name, tenant in (("counter/b", "default"), ("counter/b", "acme"), ("teller/y", "default")):
        maker.store.acquire_lease(maker.store.session(name, tenant).session_id, "host_2", now_ms, ttl_ms=3_600_000)
    yield maker
    maker.close()


@pytest.fixture(scope="module")
def url(made: HomeMaker) -> Iterator[str]:
    with gateway_over(made.path) as url:
        yield url


@pytest.fixture(params=["here", "at a URL"])
def run(request: pytest.FixtureRequest, made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command on the home, in a tenant with one list of agents; what it writes to stdout and stderr."""
    place = ["--home", str(made.path)] if request.param == "here" else ["--url", request.getfixturevalue("url")]

    def run(*arguments: str, code: int = ExitCode.OK) -> tuple[str, str]:
        tenant = ["--tenant", "default"] if arguments[0] == "ps" and "--tenant" not in arguments else []
        capsys.readouterr()
        assert main([*arguments, *tenant, *place]) == code
        return capsys.readouterr()

    return run


def rows(arguments: tuple[str, ...], printed: str) -> list[Any]:
    found = json.loads(printed)
    keys = {"ps": "agents", "inbox": "messages", "reminders": "reminders", "turns": "turns", "models": "calls"}
    return found if isinstance(found, list) else list(found[keys[arguments[0]]])


def rest(err: str) -> tuple[int, str] | None:
    """Return the number of the rows that were not shown, and the cursor, as a command says them."""
    found = re.search(r"^… and ([0-9,]+) more: --cursor (\S+), --limit N or --all$", err, re.MULTILINE)
    return (int(found[1].replace(",", "")), found[2]) if found else None


@pytest.mark.parametrize("arguments", [*LISTS, *OF_THIS_MACHINE], ids=" ".join)
def test_pages_follow_each_other_and_count_the_rest(
    arguments: tuple[str, ...], run: Run, request: pytest.FixtureRequest
) -> None:
    if arguments in OF_THIS_MACHINE and request.node.callspec.params["run"] != "here":
        return
    out, err = run(*arguments, "--json", "--all")
    everything = rows(arguments, out)
    assert len(everything) >= 2
    assert rest(err) is None
    shown: list[Any] = []
    cursor: list[str] = []
    while True:
        out, _ = run(*arguments, "--json", "--limit", "1", *cursor)
        shown += rows(arguments, out)
        assert shown == everything[: len(shown)]
        found = json.loads(out)
        left = rest(run(*arguments, "--limit", "1", *cursor)[1])
        if isinstance(found, dict):
            assert (found["remaining"], found["next_cursor"]) == (left or (0, None))
        if left is None:
            break
        assert left[0] == len(everything) - len(shown)
        cursor = ["--cursor", left[1]]
    assert shown == everything
    assert run(*arguments, "--json", "--all", "--limit", "1")[0] == run(*arguments, "--json", "--limit", "1")[0]


def test_a_cursor_of_another_list_is_refused(run: Run) -> None:
    _, err = run("inbox", "counter/a", "--limit", "1")
    found = rest(err)
    assert found is not None
    for arguments in (("ps",), ("artifacts", "publisher/a"), ("ps", "--awake")):
        assert "cursor is of another list" in run(*arguments, "--cursor", found[1], code=ExitCode.USAGE)[1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), NAMES),
        (("--type", "counter"), NAMES[:3]),
        (("--awake",), ["counter/b", "teller/y"]),
        (("--awake", "--type", "counter"), ["counter/b"]),
        (("--tenant", "acme"), ["acme:counter/a", "acme:counter/b"]),
        (("--tenant", "acme", "--awake"), ["acme:counter/b"]),
        (("--type", "count"), []),
        (("--tenant", "nobody"), []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_agents_are_filtered(options: tuple[str, ...], expected: list[str], run: Run) -> None:
    out, _ = run("ps", *options, "--json", "--limit", "1")
    found = json.loads(out)
    assert [agent["agent"] for agent in found["agents"]] == expected[:1]
    assert found["remaining"] == max(len(expected) - 1, 0)
    assert [agent["agent"] for agent in json.loads(run("ps", *options, "--json")[0])["agents"]] == expected
    assert expected or "no agent is like that" in run("ps", *options)[1]


def test_agents_of_all_tenants_have_one_list(made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> None:
    podium = Podium(made.path, capsys)
    names = [agent["agent"] for agent in podium.json("ps")["agents"]]
    assert names == ["acme:counter/a", NAMES[0], "acme:counter/b", *NAMES[1:]]
    shown, cursor = list[str](), list[str]()
    while len(shown) < len(names):
        page = podium.json("ps", "--limit", "1", *cursor)
        shown += [agent["agent"] for agent in page["agents"]]
        assert page["remaining"] == len(names) - len(shown)
        cursor = ["--cursor", page["next_cursor"]]
    assert shown == names


@pytest.mark.parametrize(
    ("caller", "permitted"),
    [
        (Caller("key_1", with_implied([Scope.ADMIN])), True),
        (Caller("key_2", with_implied([Scope.WRITE])), False),
        (Caller("key_3", with_implied([Scope.ADMIN]), tenant="other"), False),
        (Caller("key_4", with_implied([Scope.READ]), tenant="acme"), True),
    ],
    ids=["operator", "writer", "administrator of another tenant", "its own"],
)
def test_only_operators_list_another_tenant(
    caller: Caller, permitted: bool, made: HomeMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    class Known(OpenAccess):
        async def authenticate(self, authorization: str | None) -> Caller:
            return caller

    with gateway_over(made.path, Known()) as url:
        ended = main(["ps", "--tenant", "acme", "--json", "--url", url])
    assert ended == (ExitCode.OK if permitted else ExitCode.ACCESS_REFUSED)
    assert ("acme:counter/a" in capsys.readouterr().out) == permitted


def test_a_hundred_rows_are_shown_unless_more_are_asked_for(
    run: Run, made: HomeMaker, request: pytest.FixtureRequest
) -> None:
    name = f"long/{request.node.callspec.id.replace(' ', '-')}"
    agent = made.agent(name)
    for number in range(34):
        agent.turn(f"turn {number}")
    for number in range(101):
        agent.admit(f"waits {number}")
    out, err = run("log", name, "--json")
    assert len(out.splitlines()) == 100
    assert "… and up to 3 more, to 103: --after 100, --limit N or --all\n" in err
    assert len(run("log", name, "--json", "--all")[0].splitlines()) == 103
    found = json.loads(run("inbox", name, "--json")[0])
    assert (len(found["messages"]), found["remaining"]) == (100, 1)
    made.store.delete_session(made.store.session(name).session_id, agent.lease.expires_ms)


def test_a_log_shows_a_page_and_where_the_next_one_begins(run: Run) -> None:
    whole = run("log", "counter/a", "--json", "--all")[0].splitlines()
    out, err = run("log", "counter/a", "--json", "--limit", "4")
    assert out.splitlines() == whole[:4]
    last = len(whole)
    assert f"… and up to {last - 4} more, to {last}: --after 4, --limit N or --all\n" in err
    rest_of_log, err = run("log", "counter/a", "--json", "--after", "4")
    assert (rest_of_log.splitlines(), "more" in err) == (whole[4:], False)
    assert "more" not in run("log", "counter/a", "--limit", str(last))[1]
    assert run("log", "counter/a", "--after", str(last), "--follow", "--limit", "0") == ("", "")
    assert "more" not in run("log", "counter/a", "--type", "agent.created", "--limit", "1")[1]


def test_a_rest_that_is_not_counted_is_not_said_as_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    say_rest({"next_cursor": "here", "remaining": None})
    assert "more than 1,000 more: --cursor here" in capsys.readouterr().err
