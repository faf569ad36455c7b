"""The commands that read a home, on real SQLite journals and blob stores."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.ident import blob_id
from chronicle.clock import ManualClock, SystemClock
from chronicle.workspace.port import TreeRef
from chronicle.workspace.trees.nodes.node import encode_node
from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.cli.views.agents import show_agents
from podium import events
from podium.agent import AgentContext, BaseAgent
from podium.testing import AgentHarness
from tests.terminal import TerminalProcess
from tests.unit.coordinator.cli.cli_home import HomeMaker, Podium

if TYPE_CHECKING:
    from collections.abc import Iterator

BINARY = bytes(range(256))
PODIUM = Path(sys.executable).with_name("podium")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HomeMaker]:
    """A home with ``counter/a`` (three turns, one file with three versions) and ``counter/b`` (new)."""
    maker = HomeMaker(tmp_path / "home")
    agent = maker.agent("counter/a")
    agent.turn("one", {"out.txt": b"first\n", "dir/deep.bin": BINARY})
    agent.turn("two", {"out.txt": b"second\n", "gone": b"x"})
    agent.fail("bad")
    agent.turn("three", {"out.txt": b"third\n", "gone": None, "caf\udce9": b"", "big": BINARY * 2048})
    agent.sleep()
    maker.agent("counter/b").sleep()
    yield maker
    maker.close()


@pytest.fixture
def podium(made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Podium:
    return Podium(made.path, capsys)


# -- ps ----------------------------------------------------------------------------------------------------------------


def test_ps(made: HomeMaker, podium: Podium) -> None:
    made.agent("counter/c").admit("waits")  # its lease is in force, by a clock of 2023
    assert podium.json("ps") == {
        "home": str(made.path),
        "service": False,
        "agents": [
            {
                "agent": "counter/a",
                "type": "counter",
                "key": "a",
                "status": "asleep",
                "turn": 3,
                "version": 11,
                "created_at": made.store.session("counter/a").created_ms,
                "updated_at": made.clock.now_ms(),
                "pending": 0,
                "parked": 1,
                "isolation": None,
                "sandbox": None,
                "memory": None,
            },
            {
                "agent": "counter/b",
                "type": "counter",
                "key": "b",
                "status": "asleep",
                "turn": 0,
                "version": 1,
                "created_at": made.store.session("counter/b").created_ms,
                "updated_at": made.clock.now_ms(),
                "pending": 0,
                "parked": 0,
                "isolation": None,
                "sandbox": None,
                "memory": None,
            },
            {
                "agent": "counter/c",
                "type": "counter",
                "key": "c",
                "status": "asleep",
                "turn": 0,
                "version": 1,
                "created_at": made.store.session("counter/c").created_ms,
                "updated_at": made.clock.now_ms(),
                "pending": 1,
                "parked": 0,
                "isolation": None,
                "sandbox": None,
                "memory": None,
            },
        ],
        "next_cursor": None,
        "remaining": 0,
    }
    lines = podium("ps").splitlines()
    headings = "AGENT STATUS TURN VERSION LAST ACTIVITY PENDING PARKED ISOLATION SANDBOX MEMORY"
    assert lines[0].split() == headings.split()
    assert lines[1].startswith("counter/a  asleep")
    assert "no service is running" in podium.err


def test_an_agent_is_awake_while_its_lease_is_in_force(made: HomeMaker, podium: Podium) -> None:
    session = made.store.session("counter/b")
    made.store.acquire_lease(session.session_id, "host_2", SystemClock().now_ms(), ttl_ms=600_000)
    assert [agent["status"] for agent in podium.json("ps")["agents"]] == ["asleep", "awake"]


def test_ps_shows_the_processes_of_those_that_are_awake(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "agent": "counter/a",
        "status": "awake",
        "turn": 3,
        "version": 11,
        "updated_at": 0,
        "pending": 0,
        "parked": 1,
    }
    rows = [
        {**row, "isolation": "shared", "sandbox": None, "memory": 81_920},
        {**row, "isolation": "process", "sandbox": "landlock", "memory": 66_060_288},
        {**row, "status": "asleep", "isolation": None, "sandbox": None, "memory": None},
    ]
    show_agents(rows, 0)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-3:] for line in lines[1:3]] == [["shared", "80", "KiB"], ["landlock", "63.0", "MiB"]]
    assert lines[3].split()[-1] == "1"


def test_ps_of_an_empty_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    HomeMaker(tmp_path / "home").close()
    podium = Podium(tmp_path / "home", capsys)
    assert podium.json("ps")["agents"] == []
    assert podium("ps") == ""
    assert "no agents yet" in podium.err


# -- log ---------------------------------------------------------------------------------------------------------------

FIELDS = [
    "branch_id",
    "seq",
    "event_id",
    "type",
    "turn",
    "ts",
    "payload",
    "payload_ref",
    "correlation_id",
    "causation_id",
    "prev_hash",
    "hash",
    "visible",
]


def test_log_gives_an_event_a_line_with_the_journal_s_names(podium: Podium) -> None:
    events = [json.loads(line) for line in podium("log", "counter/a", "--json").splitlines()]
    assert [list(event) for event in events] == [FIELDS] * 11
    assert [event["seq"] for event in events] == list(range(1, 12))
    assert [event["type"] for event in events][:5] == [
        "agent.created",
        "user_message",
        "assistant_message",
        "turn.committed",
        "user_message",
    ]
    assert all(after["prev_hash"] == before["hash"] for before, after in pairwise(events))
    committed = events[3]
    assert committed["turn"] == 1
    assert committed["payload"]["state"]["patch"] == [{"op": "replace", "path": "/count", "value": 1}]
    assert committed["correlation_id"] == events[1]["payload"]["message_id"]


def test_log_takes_a_part(podium: Podium) -> None:
    def seqs(*options: str) -> list[int]:
        return [json.loads(line)["seq"] for line in podium("log", "counter/a", "--json", *options).splitlines()]

    assert seqs("--after", "9") == [10, 11]
    assert seqs("--after", "2", "--limit", "3") == [3, 4, 5]
    assert seqs("--limit", "0") == []
    assert seqs("--type", "turn.committed") == [4, 7, 11]
    assert seqs("--type", "turn.failed", "--type", "agent.created") == [1, 8]
    assert seqs("--type", "checkpoint") == []
    assert podium("log", "counter/a", "--type", "turn.commited", code=ExitCode.USAGE) == ""
    assert podium.err == "podium: no events of type 'turn.commited'; did you mean turn.committed or turn.failed?\n"
    podium("log", "counter/a", "--type", "foo", code=ExitCode.USAGE)
    assert "there is agent.created, " in podium.err


def test_log_knows_every_type_that_is_written() -> None:
    names = {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    assert names <= events.EVENT_TYPES
    documented = (Path(__file__).parents[5] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in sorted(names) if f"`{name}`" not in documented] == []


def test_log_as_text_is_one_line_an_event(podium: Podium) -> None:
    lines = podium("log", "counter/a").splitlines()
    assert len(lines) == 11
    assert lines[1].endswith("turn 1     user_message       one")
    assert lines[3].endswith('[{"op":"replace","path":"/count","value":1}]')
    assert lines[7].endswith("attempt 1, parked: ValueError: no — bad")


class Teller(BaseAgent):
    """Tells another agent."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        for receiver in message.get("to", ()):
            await ctx.tell(receiver, {"text": f"{ctx.key} says:\nhello"})


def test_log_as_text_shows_who_was_told_what_and_who_told(made: HomeMaker, podium: Podium) -> None:
    async def tell() -> None:
        async with AgentHarness(Teller, "x", store=made.store, blobs=made.blobs) as sender:
            await sender.send({"to": ["teller/y", "teller/z"]})
        async with AgentHarness(Teller, "y", store=made.store, blobs=made.blobs) as receiver:
            await receiver.receive()

    asyncio.run(tell())
    # What teller/y handled is in its own log; what teller/z has not handled is shown here.
    assert (
        podium("log", "teller/x", "--type", "turn.committed")
        .rstrip()
        .endswith("[] — to teller/y; to teller/z: x says: …")
    )
    heard = podium("log", "teller/y", "--type", "user_message").rstrip()
    assert heard.endswith("from teller/x: x says:\\nhello")


class Sleeper(BaseAgent):
    """Reminds itself each minute."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if "every" in message:
            await ctx.remind("look again", every=message["every"], message={"text": "look"})


def test_log_as_text_shows_which_reminder_sent_a_message(made: HomeMaker, podium: Podium) -> None:
    async def remind() -> None:
        async with AgentHarness(Sleeper, "x", store=made.store, blobs=made.blobs, clock=ManualClock()) as agent:
            await agent.send({"every": 60})
            await agent.advance(60)
            await agent.advance(180)

    asyncio.run(remind())
    sent, first, later = podium("log", "sleeper/x", "--type", "user_message").splitlines()
    assert sent.endswith('{"every":60}')
    assert re.search(r" reminder look again of \d{4}-\d\d-\d\dT\S+: look$", first)
    assert later.endswith(", 2 missed: look")


class Stepper(BaseAgent):
    """Takes as many steps as it is told, after one that fails."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        with contextlib.suppress(ZeroDivisionError):
            await ctx.step("divide", lambda: 1 // 0)
        for _ in range(message["steps"]):
            await ctx.step("count", lambda: 1)


def test_log_as_text_shows_the_steps_of_a_turn(made: HomeMaker, podium: Podium) -> None:
    async def take(*numbers: int) -> None:
        async with AgentHarness(Stepper, "x", store=made.store, blobs=made.blobs, clock=ManualClock()) as agent:
            for steps in numbers:
                await agent.send({"steps": steps})

    asyncio.run(take(1, 20))
    one, many = podium("log", "stepper/x", "--type", "turn.committed").splitlines()
    assert one.endswith("[] after 2 steps (divide#1 0 ms failed: ZeroDivisionError, count#1 0 ms)")
    assert many.endswith("count#7 0 ms, 13 more)")
    shown = json.loads(podium("log", "stepper/x", "--type", "turn.committed", "--json").splitlines()[-1])
    assert [step["key"] for step in shown["payload"]["steps"]["steps"]][-1] == "count#20"


# -- state -------------------------------------------------------------------------------------------------------------


def test_state_now_and_then(podium: Podium) -> None:
    now = {"agent": "counter/a", "version": 11, "turn": 3, "state": {"count": 3}}
    assert podium.json("state", "counter/a") == now
    assert podium.json("state", "counter/a@2") == now | {"version": 7, "turn": 2, "state": {"count": 2}}
    assert podium.json("state", "counter/a@0") == now | {"version": 1, "turn": 0, "state": {"count": 0}}
    assert json.loads(podium("state", "counter/a@1")) == {"count": 1}
    assert podium.err == "counter/a after turn 1\n"


def test_a_moment_that_never_was(podium: Podium) -> None:
    podium("state", "counter/a@4", code=ExitCode.UNKNOWN_MOMENT)
    assert podium.err == "podium: counter/a has turns 0 to 3; there is no turn 4\n"


def test_a_key_may_look_like_a_moment(made: HomeMaker, podium: Podium) -> None:
    made.agent("counter/a@2").turn("x")
    assert podium.json("state", "counter/a@2")["turn"] == 1
    assert podium.json("state", "counter/a@1")["agent"] == "counter/a"
    assert podium.json("state", "counter/a@2@0")["agent"] == "counter/a@2"


# -- agents that are not there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["log", "state", "verify"])
def test_an_unknown_agent_is_answered_with_what_looks_like_it(podium: Podium, command: str) -> None:
    podium(command, "conter/a", code=ExitCode.UNKNOWN_AGENT)
    assert podium.err == "podium: no agent conter/a in this home; did you mean counter/a or counter/b?\n"


def test_an_unknown_agent_is_answered_with_what_there_is(podium: Podium, made: HomeMaker) -> None:
    for number in range(5):
        made.agent(f"other/{number}")
    podium("log", "zzz", code=ExitCode.UNKNOWN_AGENT)
    assert podium.err == (
        "podium: no agent zzz in this home; there is counter/a, counter/b, other/0, other/1, other/2 and 2 more\n"
    )


# -- files -------------------------------------------------------------------------------------------------------------


def test_history(podium: Podium) -> None:
    versions = podium.json("history", "counter/a", "out.txt")
    assert [list(version) for version in versions] == [["iteration", "timestamp", "size", "hash", "op", "turn"]] * 3
    assert [(v["iteration"], v["size"], v["op"], v["turn"]) for v in versions] == [
        (1, 6, "write", 1),
        (2, 7, "write", 2),
        (3, 6, "write", 3),
    ]
    assert len({version["hash"] for version in versions}) == 3
    gone = podium.json("history", "counter/a", "./gone")
    assert [(v["op"], v["size"], v["hash"]) for v in gone][1] == ("delete", 0, "")
    assert len(podium.json("history", "counter/a@1", "out.txt")) == 1
    lines = podium("history", "counter/a", "out.txt").splitlines()
    assert len(lines) == 4
    assert lines[3].split()[0] == "3"


def test_cat_prints_the_bytes_as_they_are(made: HomeMaker) -> None:
    def cat(*arguments: str) -> bytes:
        command = [str(PODIUM), "cat", *arguments, "--home", str(made.path)]
        return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout

    assert cat("counter/a", "dir/deep.bin") == BINARY
    assert cat("counter/a", "big") == BINARY * 2048
    assert cat("counter/a", "caf\udce9") == b""


def test_cat_now_and_then(podium: Podium) -> None:
    assert podium("cat", "counter/a", "out.txt") == "third\n"
    assert podium("cat", "counter/a", "out.txt@1") == "first\n"
    assert podium("cat", "counter/a", "/out.txt", "--iteration", "2") == "second\n"
    assert podium("cat", "counter/a@2", "out.txt") == "second\n"
    assert podium("cat", "counter/a", "gone@1") == "x"


def test_cat_as_json(podium: Podium) -> None:
    text = podium.json("cat", "counter/a", "out.txt@2")
    assert text == {
        "agent": "counter/a",
        "path": "out.txt",
        "iteration": 2,
        "size": 7,
        "hash": podium.json("history", "counter/a", "out.txt")[1]["hash"],
        "encoding": "utf-8",
        "content": "second\n",
    }
    binary = podium.json("cat", "counter/a", "dir/deep.bin")
    assert (binary["encoding"], base64.b64decode(binary["content"])) == ("base64", BINARY)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["counter/a", "out.tx"], ExitCode.NOT_FOUND, "has no file 'out.tx' after turn 3; did you mean out.txt?"),
        (["counter/a", "gone"], ExitCode.NOT_FOUND, "it was deleted, and podium history lists its versions"),
        (["counter/a", "out.txt@9"], ExitCode.NOT_FOUND, "has iterations 1 to 3; there is no iteration 9"),
        (["counter/a", "gone@2"], ExitCode.NOT_FOUND, "iteration 2 of gone is its deletion"),
        (["counter/a", "dir"], ExitCode.USAGE, "dir is a directory; only files have content"),
        (["counter/a", "../x"], ExitCode.USAGE, "does not name a file in a workspace"),
        (["counter/b", "out.txt"], ExitCode.NOT_FOUND, "counter/b had no workspace at turn 0"),
    ],
)
def test_files_that_are_not_there(podium: Podium, arguments: list[str], code: int, message: str) -> None:
    podium("cat", *arguments, code=code)
    assert message in podium.err
    assert len(podium.err.splitlines()) == 1


def test_on_a_terminal_nothing_an_agent_wrote_can_steer_it(made: HomeMaker) -> None:
    nasty = "a\x1b]0;owned\x07\x9b2Jb\r\u202e"
    made.agent("counter/nasty").turn(nasty, {"nasty.txt": nasty.encode(), "\x1b[31m": b"x"})
    commands: list[list[str]] = [
        ["cat", "counter/nasty", "nasty.txt"],
        ["cat", "counter/nasty", "nasty.txt", "--json"],
        ["log", "counter/nasty"],
        ["log", "counter/nasty", "--json"],
        ["cat", "counter/nasty", "nasty.tx"],
        ["cat", "counter/nasty", "[31"],
        ["state", "counter/nast\x1b[31my"],
    ]
    for command in commands:
        with TerminalProcess([str(PODIUM), *command, "--home", str(made.path)], made.path) as terminal:
            terminal.wait()
        assert set(terminal.raw) & {"\x1b", "\x07", "\x9b"} == set(), command
        assert "a" in terminal.raw


# -- verify ------------------------------------------------------------------------------------------------------------


# S2.32
def test_verify_counts_what_it_checked(podium: Podium) -> None:
    found = podium.json("verify")
    assert found["ok"] is True
    assert found["events"] == 12
    assert found["blobs"] == sum(agent["blobs"] for agent in found["agents"]) > 10
    assert [(agent["agent"], agent["events"], agent["problem"]) for agent in found["agents"]] == [
        ("counter/a", 11, None),
        ("counter/b", 1, None),
    ]
    assert podium("verify", "counter/b").splitlines() == [
        "counter/b: 1 events, 0 blobs: good",
        "1 events and 0 blobs checked: no damage was found",
    ]


# S2.32
def test_verify_finds_a_changed_event(made: HomeMaker, podium: Podium) -> None:
    made.close()
    damage(made.path / "journal.db", b'"text":"two"', b'"text":"2wo"')
    found = podium.json("verify", code=ExitCode.DAMAGED)
    assert [agent["ok"] for agent in found["agents"]] == [False, True]
    assert "event 5" in found["agents"][0]["problem"]
    assert "BAD" in podium("verify", code=ExitCode.DAMAGED)


def test_verify_finds_a_missing_blob(made: HomeMaker, podium: Podium) -> None:
    made.close()
    packs = [path for path in (made.path / "blobs").rglob("*") if path.is_file()]
    assert packs
    for pack in packs:
        pack.unlink()
    found = podium.json("verify", code=ExitCode.DAMAGED)
    assert [agent["ok"] for agent in found["agents"]] == [False, True]
    assert "turn.committed of turn 1" in found["agents"][0]["problem"]


def test_verify_gives_the_hint_for_a_newer_format(made: HomeMaker, podium: Podium) -> None:
    agent = made.agent("counter/newer")
    agent.turn("one", {"out.txt": b"first\n"})
    assert agent.ref is not None
    newer = b"\x1f" + encode_node(0, [b"k"], [b"v"])[1:]
    made.blobs.put({blob_id(newer): newer})
    agent.ref = TreeRef(blob_id(newer), agent.ref.oplog_id)
    agent.turn("two")
    problem = podium.json("verify", "counter/newer", code=ExitCode.DAMAGED)["agents"][0]["problem"]
    assert problem.endswith("a tree node has format 31; this code reads 1")
    line, *_ = podium("verify", "counter/newer", code=ExitCode.DAMAGED).splitlines()
    assert line.endswith(f"BAD: {problem}; upgrade podium")


def damage(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


# -- the home ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["ps"], ["log", "a/b"], ["state", "a/b"], ["cat", "a/b", "c"], ["verify"]])
def test_what_is_no_home_is_not_made_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    podium = Podium(tmp_path / "nowhere", capsys)
    podium(*command, code=ExitCode.HOME_ERROR)
    assert "is not a podium home; run an agent first" in podium.err
    assert not (tmp_path / "nowhere").exists()


def test_a_home_of_a_newer_format(made: HomeMaker, podium: Podium) -> None:
    (made.path / "format").write_text('{"format": 99}')
    podium("ps", code=ExitCode.HOME_TOO_NEW)
    assert "upgrade podium" in podium.err


def test_the_home_comes_from_the_environment(
    made: HomeMaker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(made.path))
    assert main(["state", "counter/a", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["turn"] == 3


# -- the edge ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--debug", "state", "no/one"], ["state", "no/one", "--debug"]])
def test_a_traceback_only_with_debug(podium: Podium, arguments: list[str]) -> None:
    podium(*arguments, code=ExitCode.UNKNOWN_AGENT)
    assert "Traceback (most recent call last)" in podium.err
    podium("state", "no/one", code=ExitCode.UNKNOWN_AGENT)
    assert "Traceback" not in podium.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "No such command 'nope'"),
        (["state"], "Missing argument"),
        (["log", "a/b", "--limit", "-1"], "Invalid value for '--limit'"),
        (["ps", "--nope"], "No such option: --nope"),
    ],
)
def test_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(arguments) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.startswith("podium: ")
    assert captured.err.splitlines()[-1].startswith("see: podium")


def test_help_lists_commands_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitCode.OK
    text = capsys.readouterr().out
    assert main(["--help"]) == ExitCode.OK
    assert capsys.readouterr().out == text
    for word in ("run", "ps", "log", "state", "history", "cat", "verify", " 70  an unexpected exception"):
        assert word in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.OK
    assert re.fullmatch(r"podium \d+\.\d+.*\n", capsys.readouterr().out)


def test_a_reader_that_leaves_is_no_error(made: HomeMaker) -> None:
    made.agent("counter/long").turn("x" * 500_000)  # more than a pipe holds
    command = [str(PODIUM), "log", "counter/long", "--json", "--home", str(made.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == ExitCode.BROKEN_PIPE


def test_a_client_imports_neither_ray_nor_what_only_other_commands_need() -> None:
    code = "import sys, coordinator.cli.main; print([m for m in %r if m in sys.modules])"
    heavy = ["ray", "pydantic", "asyncio", "sqlite3", "fsspec", "prompt_toolkit", "rich"]
    out = subprocess.run([sys.executable, "-c", code % heavy], check=True, capture_output=True, text=True, timeout=60)
    assert out.stdout.strip() == "[]"
