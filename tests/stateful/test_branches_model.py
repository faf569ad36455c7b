"""Turns, failures, deaths, forks and rewinds of agents against a model of what each had at each turn."""

from __future__ import annotations

import asyncio
import copy
import io
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import NotFound
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.verify import verify_session
from chronicle.testing.workspace_contract import files_below, files_in
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.trees.tree import EMPTY
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import list_agents, read_agent
from podium.errors import NotAFile, UnknownFile
from podium.events import PARTS, USER_MESSAGE
from podium.history.branching import fork_agent, rewind_agent
from podium.history.transcript import transcript_events, visible_transcript
from podium.testing import AgentHarness
from podium.turn.upload import change_file, store_content
from tests.usage import measure

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from podium.agent_record import AgentRecord
    from podium.events import Part

PATHS = ["a", "b", "dir/a", "dir/b"]
files_written = st.dictionaries(st.sampled_from(PATHS), st.sampled_from([b"", b"x", b"yy", None]), max_size=3)


class Writer(BaseAgent):
    """Writes and removes the files that it is told to, and notes it."""

    max_attempts = 1

    class State(DeltaState):
        _entity_type = "writer"
        done: list[dict[str, str | None]] = []
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        ctx.state.done.append(message["files"])
        for path, text in message["files"].items():
            file = ctx.workspace / path
            if text is None:
                file.unlink(missing_ok=True)
            else:
                file.parent.mkdir(exist_ok=True)
                file.write_text(text)
        if message["fail"]:
            raise ValueError("as told")


@dataclass
class Moment:
    """What an agent has at the end of a turn."""

    state: dict[str, Any] = field(default_factory=lambda: {"done": [], "count": 0})
    files: dict[str, bytes | None] = field(default_factory=dict)
    """Path → content, None for a directory."""
    said: tuple[str, ...] = ()
    """The ids of the visible messages, in order."""


@dataclass
class Model:
    """An agent: its moments by turn, and every number that a path was seen to have."""

    turns: list[Moment] = field(default_factory=lambda: [Moment()])
    given: dict[str, dict[int, tuple[str, str]]] = field(default_factory=dict)


class BranchesModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryJournalStore()
        self.blobs = MemoryBlobStore()
        self.clock = ManualClock()
        self.ids = IdSource()
        self.models = {"k0": Model()}
        self.harnesses: dict[str, AgentHarness] = {}
        self.runner = asyncio.Runner()
        self.awake("k0")

    def teardown(self) -> None:
        for session in list_agents(self.store):
            assert verify_session(self.store, session).ok
        for harness in self.harnesses.values():
            self.run(harness.__aexit__())
        self.runner.close()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    def awake(self, key: str) -> AgentHarness:
        """Return a harness in which the agent is awake."""
        harness = self.harnesses.get(key)
        if harness is None:
            harness = AgentHarness(Writer, key, store=self.store, blobs=self.blobs, clock=self.clock)
            self.harnesses[key] = harness
            self.run(harness.__aenter__())
        elif not harness.awake:
            self.run(harness._wake(unclean=False))
        return harness

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.models)))

    def see(self, key: str) -> None:
        """Compare the numbers of an agent's files with those that were seen before."""
        workspace = self.harnesses[key].activation.workspace
        for path in [*PATHS, "dir"]:
            try:
                versions = workspace.history(path)
            except NotFound:
                continue
            numbers = [version.iteration for version in versions]
            assert numbers == sorted(set(numbers))
            given = self.models[key].given.setdefault(path, {})
            for version in versions:
                what = (version.op, version.hash)
                assert given.setdefault(version.iteration, what) == what
            assert all(number in numbers for number in given)

    def said(self, record: AgentRecord) -> tuple[str, ...]:
        """Return the ids of the messages that are visible at a turn."""
        transcript = visible_transcript(self.store, self.blobs, record.address, record.head, record.version_seq)
        events = transcript_events(self.store, record.head.branch_id, transcript)
        return tuple(str(event.correlation_id) for event in events if event.type == USER_MESSAGE)

    @rule(data=st.data(), files=files_written, fail=st.integers(0, 4))
    def turn(self, data: st.DataObject, files: dict[str, bytes | None], fail: int) -> None:
        key = self.pick(data)
        model = self.models[key]
        told = {path: content.decode() if content is not None else None for path, content in files.items()}
        harness = self.awake(key)
        exchange = self.run(harness.send({"files": told, "fail": fail == 0}))
        assert exchange.ok == (fail != 0)
        if fail:
            moment = copy.deepcopy(model.turns[-1])
            moment.state["count"] += 1
            moment.state["done"].append(told)
            moment.said = (*moment.said, exchange.receipt.message_id)
            for path, content in files.items():
                if content is None:
                    moment.files.pop(path, None)
                else:
                    moment.files[path] = content
                    if "/" in path:
                        moment.files["dir"] = None
            model.turns.append(moment)
        self.see(key)

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.run(self.awake(self.pick(data)).kill())

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        if len(self.models) == 4:
            return
        key = self.pick(data)
        model = self.models[key]
        turn = data.draw(st.one_of(st.none(), st.integers(0, len(model.turns) - 1)))
        target = f"k{len(self.models)}"
        fork_agent(self.store, Address("writer", key), turn, Address("writer", target), self.ids, self.clock.now_ms())
        last = len(model.turns) - 1 if turn is None else turn
        self.models[target] = Model(copy.deepcopy(model.turns[: last + 1]))
        self.awake(target)
        self.see(target)

    @rule(data=st.data(), only=st.sets(st.sampled_from(PARTS), min_size=1))
    def rewind(self, data: st.DataObject, only: set[Part]) -> None:
        key = self.pick(data)
        model = self.models[key]
        turn = data.draw(st.integers(0, len(model.turns) - 1))
        self.run(self.awake(key).sleep())
        now, then = model.turns[-1], model.turns[turn]
        plan, head = rewind_agent(
            self.store, self.blobs, Address("writer", key), turn, only, self.ids, self.clock.now_ms()
        )
        wanted = Moment(
            copy.deepcopy(then.state if "state" in only else now.state),
            dict(then.files if "files" in only else now.files),
            then.said if "transcript" in only else now.said,
        )
        assert plan.now.state == now.state
        assert (head is None) == (wanted == now)
        if head is not None:
            assert head.turn == len(model.turns)
            model.turns.append(wanted)
        lost = [event for event, _ in self.awake(key).events("turn.failed") if event.seq > plan.now.head.seq]
        assert not lost
        self.see(key)

    @rule(
        data=st.data(),
        path=st.sampled_from([*PATHS, "new/deep/file", "a/below"]),
        content=st.sampled_from([None, b"", b"x", b"up"]),
    )
    def upload(self, data: st.DataObject, path: str, content: bytes | None) -> None:
        key = self.pick(data)
        model = self.models[key]
        self.run(self.awake(key).sleep())
        now = model.turns[-1]
        if path == "a/below" and not isinstance(now.files.get("a"), bytes):
            path = "a"  # the agent writes to it as a file
        stored = store_content(self.blobs, io.BytesIO(content)) if content is not None else None
        address, now_ms = Address("writer", key), self.clock.now_ms()
        parents = [str(parent) for parent in PurePosixPath(path).parents][:-1]
        refused = (
            NotAFile
            if any(isinstance(now.files.get(parent), bytes) for parent in parents)
            else UnknownFile
            if content is None and path not in now.files
            else None
        )
        if refused is not None:
            with pytest.raises(refused):
                change_file(self.store, self.blobs, address, path, stored, self.ids, now_ms)
        else:
            changed = change_file(self.store, self.blobs, address, path, stored, self.ids, now_ms)
            if now.files.get(path, content) != content or path not in now.files:
                wanted = copy.deepcopy(now)
                if content is None:
                    del wanted.files[path]
                else:
                    wanted.files.update(dict.fromkeys(parents))
                    wanted.files[path] = content
                model.turns.append(wanted)
            assert changed.turn == len(model.turns) - 1
            record = read_agent(self.store, self.blobs, address)
            assert record.tree is not None
            root = read_root(self.blobs, record.tree.oplog_id)
            assert root.usage == measure(self.blobs, root.tree_id)
            TreeChecker(self.blobs).check(record.tree)
        self.awake(key)
        self.see(key)

    @invariant()
    def every_turn_is_as_it_was(self) -> None:
        for key, model in self.models.items():
            for turn, moment in enumerate(model.turns):
                record = read_agent(self.store, self.blobs, Address("writer", key), turn)
                assert record.state == moment.state
                assert self.said(record) == moment.said
                tree_id = record.tree.tree_id if record.tree is not None else EMPTY
                assert files_in(self.blobs, tree_id) == moment.files
            assert read_agent(self.store, self.blobs, Address("writer", key)).turn == len(model.turns) - 1

    @invariant()
    def what_is_awake_has_its_last_turn(self) -> None:
        for key, harness in self.harnesses.items():
            if harness.awake:
                assert files_below(harness.workspace) == self.models[key].turns[-1].files


TestBranches = BranchesModel.TestCase
TestBranches.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
