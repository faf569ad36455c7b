"""The steps of one turn: runs those without a record, and puts back what the others did.

The durable end of a step, and what a kill at each point leaves::

    function returns ─ drain state ─ seal files ─ put large parts ─ put step ─ the program gets the result
    └──────────────── the step runs again ──────────────────────────────────┘└── it does not ──────────────

Ends and replays are one at a time, in the order in which they begin. Semantics: docs/internals/steps.md.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from chronicle.canonical import encode
from chronicle.errors import Conflict, InvalidInput
from chronicle.journal.records import StoredStep
from podium.agent_record import read_agent
from podium.blocking import to_its_end
from podium.errors import ContextMisuse, ProgramChanged, StepsOutdated
from podium.history.step_record import StepRecord, args_hash, read_record, summary_of, write_record
from podium.state import PatchError, StateError, apply_patch, change, diff, drain_unfinished, to_json
from podium.state.plain_json import plain_json
from podium.turn.steps.changes import Misfit, holding, is_given_up
from podium.turn.steps.effects import RunningStep, current_step
from podium.turn.steps.failures import failed_step
from podium.turn.steps.fitting import check_fit
from podium.turn.steps.pausing import Pause
from podium.turn.steps.replay import Replay

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
    from typing import Any, NoReturn

    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import BlobId, MessageId
    from chronicle.workspace.port import TreeRef, Workspace
    from podium.address import Address
    from podium.agent.models.delta_state import DeltaState
    from podium.errors import Permanent
    from podium.events import ModelCallSummary
    from podium.history.step_record import FailedStep, PauseRecord
    from podium.state import Patch
    from podium.turn.journal.ledger import Ledger
    from podium.turn.ports import Environment
    from podium.turn.steps.kinds import StepKind
    from podium.turn.steps.pausing import PauseRequest
    from podium.turn.turn_telemetry import TurnTelemetry

__all__ = ["LiveAgent", "TurnSteps"]


_RESUME_ITERATIONS: Final = 8
"""Iterations of the event loop until code that awaits a step through tasks has run: two or three for each task between.
asyncio does not tell when a task waits, so they are counted, in the first attempt and in a replay alike."""
_FAILURE_ROUNDS: Final = 4
"""How often an end waits for what comes of failures: a program that tries a step again and again handles them."""


@dataclass(frozen=True, slots=True)
class LiveAgent:
    """An agent in memory, as the steps of its turns record it and put it back."""

    address: Address
    env: Environment
    ledger: Ledger
    workspace: Workspace
    state: DeltaState
    telemetry: TurnTelemetry


class TurnSteps:
    """The steps of a turn that handles a message. Create it in the task of the hook.

    Args:
        message_id: the message that the turn handles.
        stored: the steps that earlier attempts ended.
        base: returns the state's document at the beginning of the turn.
        steer: steers the turn with a message that steered an earlier attempt; returns whether it is still there.
        stop: stops the hook, because the turn pauses.
    """

    def __init__(
        self,
        agent: LiveAgent,
        message_id: MessageId,
        stored: Sequence[StoredStep],
        base: Callable[[], Awaitable[JsonObject]],
        steer: Callable[[str], Awaitable[bool]],
        stop: Callable[[], None],
    ) -> None:
        self._address = agent.address
        self._message_id = message_id
        self._env = agent.env
        self._ledger = agent.ledger
        self._workspace = agent.workspace
        self._state = agent.state
        self._version = type(agent.state)._version  # noqa: SLF001
        self._base = base
        self._base_turn = agent.ledger.head.turn
        self._steer = steer
        self._stop = stop
        self._telemetry = agent.telemetry
        self._bodies = [step.body for step in stored]
        records = [read_record(body, agent.env.blobs) for body in self._bodies]
        self._records = holding(records) if records else records
        self.is_given_up = is_given_up(records)
        """Whether a person has given the turn up, so that it is not to run."""
        self._replay = Replay(self._records)
        self._occurrences: defaultdict[str, int] = defaultdict(int)
        self._ending = asyncio.Lock()
        """Held while a step ends or is replayed."""
        self._running: list[RunningStep] = []
        self._ended = asyncio.Event()
        """Set, and replaced, when a step is not running any more."""
        self._begins_again: asyncio.Event | None = None
        """While no step begins, as a pause is being written or the files are replaced: set once that is over."""
        self._sources: set[AsyncGenerator[Json, None]] = set()
        """Sources of the steps that stream."""
        self._failed: list[FailedStep] = []
        self._steered: list[str] = []
        self._steered_again: dict[str, bool] = {}
        """The messages that steered an earlier attempt, and whether they are still there."""
        self._unrecorded: Patch = []
        """Changes of the state that were drained since the last recorded or replayed step."""
        self._document: tuple[int, JsonObject] | None = None
        """The document at the end of so many recorded steps, once one was needed."""
        self.misfit: Misfit | None = None
        """Why the recorded steps do not fit."""
        self._over = False
        self.pause_at: Pause | None = None
        """Where the turn pauses; no step begins any more."""
        self.patch: Patch = []
        """All changes of the state that were drained for steps, since the beginning of the turn."""
        self.recheck = False
        """Whether the state has to be validated as a whole at the end of the turn."""

    @property
    def summary(self) -> JsonObject | None:
        """Summary of the steps for ``turn.committed``; ``None`` if there were none."""
        if not self._bodies and not self._failed:
            return None
        return cast("JsonObject", summary_of(self._bodies, self._failed))

    @property
    def replays(self) -> bool:
        """Whether recorded steps are still to be returned."""
        return not self._replay.over

    async def check_fit(self) -> None:
        """Check that no turn between has changed what recorded steps changed; call it first.

        Raises:
            StepsOutdated: one has.
        """
        records = [record for record in self._records if record.version == self._version]
        try:
            await check_fit(records, self._base_turn, self._base, self._document_of)
        except StepsOutdated as misfit:
            self._note(misfit)
            raise

    def steered(self, message_id: str) -> None:
        """Note that a message begins to steer the turn."""
        if message_id not in self._steered_again:
            self._steered.append(message_id)

    async def run(self, kind: StepKind, prefix: str = "") -> Json:
        """Run a step, or return its result in an earlier attempt; see `AgentContext.step`.

        Args:
            kind: a step of one part.
            prefix: of its key; tells the steps of several hooks of the turn apart.

        Raises:
            ProgramChanged: the program asks for other steps than an earlier attempt.
            Exception: what the step raised.
        """
        async with aclosing(self.stream(kind, prefix)) as parts:
            return await anext(parts)

    async def stream(self, kind: StepKind, prefix: str = "") -> AsyncGenerator[Json, None]:
        """Run a step whose result are the parts that its source yields, and yield each when it comes.

        The step has ended when the last part is yielded. A further attempt yields the recorded parts, with state and
        files put back before the last one: what the program does with the others, it does again. If the program leaves
        the step before its end, the source is closed, and a further attempt yields what the program got.

        Args:
            kind: what it runs.
            prefix: of its key; tells the steps of several hooks of the turn apart.

        Raises:
            ProgramChanged: the program asks for other steps than an earlier attempt.
            Exception: what the source raised.
        """
        key, hashed = self._asked(kind.name, kind.arguments, prefix)
        replay = self._replay
        try:
            if not replay.over:
                await self._steer_again()
            replay.asked(key)
            failure, record = replay.failure(key, hashed), replay.record(key, hashed)
            recorded = kind.parts(record.result) if record is not None else failure.get("parts", []) if failure else []
            parts = list(recorded)
            last = [parts.pop()] if record is not None and parts and kind.is_last(parts[-1]) else []
            for part in parts:
                yield part
            if record is not None:
                await replay.until_returned(key)
                kind.check(key, record.result)
                await self._restore(record)
                await kind.repeat(record.effects)
            if failure is not None:  # one with a record was cancelled while it ended
                await replay.fail_again(key, failure)
            if record is not None:
                self._telemetry.step_replayed()
                for part in last:
                    yield part
                return
            await replay.until_over(key)
            await self._ledger.make_sure()
            while self._begins_again is not None:
                await self._begins_again.wait()
            if self.pause_at is not None:
                await _for_ever()
        except (ProgramChanged, StepsOutdated) as misfit:  # raised again at the hook's end, if the program catches it
            self._note(misfit)
            raise
        step = self._begin(kind, key, hashed)
        made: list[Json] = []
        source = kind.source(step)
        self._sources.add(source)
        try:
            with self._telemetry.step(kind.name, key, has_span=kind.has_span) as step.span:
                async for part in source:
                    made.append(part)
                    if not kind.is_last(part):
                        yield part
                async with self._ending:  # the program goes on before the next step ends
                    await self._end_durably(kind, step, made)
        except BaseException as error:
            failed = failed_step(step, error, self._env.clock.now_ms())
            self._failed.append(kind.failed(failed, made, left=isinstance(error, GeneratorExit)))
            raise
        finally:
            self._running.remove(step)
            self._ended.set()
            self._ended = asyncio.Event()
            self._sources.discard(source)
            await source.aclose()
        if made and kind.is_last(made[-1]):
            yield made[-1]

    async def pause(self, request: PauseRequest) -> StepRecord:
        """Pause the turn at a step: the hook is stopped. If the pause has ended, return the step's record.

        Steps that run are ended before. The pause is durable as an open step when the hook is stopped.

        Raises:
            ProgramChanged: the program asks for other steps than an earlier attempt.
            ContextMisuse: the turn is over, this is called inside of a step, or an answer is being read.
        """
        key, hashed = self._asked(request.step, (request.schema, request.reason))
        replay = self._replay
        try:
            if not replay.over:
                await self._steer_again()
            replay.asked(key)
            record = replay.record(key, hashed)
            if record is not None:
                await replay.until_returned(key)
                await self._restore(record)
                self._telemetry.step_replayed()
                if not record.is_open:
                    return record
            else:
                await replay.until_over(key)
                await self._end_open(request, key, hashed)
        except (ProgramChanged, StepsOutdated) as misfit:
            self._note(misfit)
            raise
        return await _for_ever()

    async def finish(self) -> None:
        """Close the steps at the end of the hook.

        Raises:
            ProgramChanged: the program asked for other steps than an earlier attempt, or for fewer.
        """
        await self.close()
        if self.misfit is not None:
            raise self.misfit.error
        try:
            self._replay.check_over()
        except ProgramChanged as misfit:
            self._note(misfit)
            raise

    async def close(self) -> None:
        """Refuse further steps, and wait for the one that is ending. Idempotent."""
        if self._over and not self._sources:
            return
        async with self._ending:
            self._over = True
        for source in list(self._sources):
            with suppress(RuntimeError):  # a task of the hook reads it still
                await source.aclose()

    # -- the files ------------------------------------------------------------------------------------------------

    async def seal(self) -> TreeRef:
        """Return the files as they are now, as a tree; steps may run."""
        async with self._ending:
            return await to_its_end(self._env.run_blocking(self._workspace.seal), "seal for a fork")

    async def alone(self, call: Callable[[], None]) -> None:
        """Make a blocking call that replaces files, while no other step runs, ends or begins.

        Raises:
            Conflict: another step runs, which may change the files.
        """
        async with self._ending:
            others = [step.key for step in self._running if step is not current_step()]
            if others:
                raise Conflict(f"step {others[0]!r} runs, and may change the files of the agent")
            with self._none_begins():
                await to_its_end(self._env.run_blocking(call), "replace the files")

    @contextmanager
    def _none_begins(self) -> Iterator[None]:
        self._begins_again = over = asyncio.Event()
        try:
            yield
        finally:
            self._begins_again = None
            over.set()

    # -- a step ---------------------------------------------------------------------------------------------------

    def _asked(self, name: str, arguments: object, prefix: str = "") -> tuple[str, str]:
        """Return the key of the step that the program asks for, and the hash of its arguments."""
        self._check_open(name)
        outer = current_step()
        if outer is not None:
            raise ContextMisuse(
                f"step {name!r} is called inside of step {outer.key!r}; a step is a plain function: call its function "
                "directly, or begin the step in the hook"
            )
        if not name:
            raise InvalidInput("a step has no name; give a text that tells what it does")
        self._occurrences[prefix + name] += 1
        return f"{prefix}{name}#{self._occurrences[prefix + name]}", args_hash(plain_json(arguments))

    def _begin(self, kind: StepKind, key: str, hashed: str) -> RunningStep:
        self._check_open(kind.name)  # the turn may have ended since the step was asked for
        self._drain()
        for other in self._running:
            other.overlaps = True
        now_ms = self._env.clock.now_ms()
        step = RunningStep(
            key,
            kind.name,
            hashed,
            now_ms,
            len(self._unrecorded),
            overlaps=bool(self._running),
            is_read=kind.repeats_changes,
        )
        self._running.append(step)
        return step

    async def _end_open(self, request: PauseRequest, key: str, hashed: str) -> None:
        """Make the step of a pause durable, without a result, once no other step runs."""
        while True:
            reading = next((step for step in self._running if step.is_read), None)
            if reading is not None:
                raise ContextMisuse(
                    f"the turn cannot pause at {key!r} while the answer of step {reading.key!r} is being read: read it "
                    "to its end first"
                )
            if self._running:
                await self._ended.wait()
                continue
            async with self._ending:
                await self._let_failures_be_handled()
                if self._running:
                    continue
                if self.pause_at is None:
                    with self._none_begins():
                        await self._put_open(request, key, hashed)
                    return
            await _for_ever()  # another task came first

    async def _put_open(self, request: PauseRequest, key: str, hashed: str) -> None:
        self._drain()
        now_ms = self._env.clock.now_ms()
        step = RunningStep(key, request.step, hashed, now_ms, len(self._unrecorded), overlaps=False)
        pause: PauseRecord = {
            "kind": request.kind,
            "reason": request.reason,
            "schema": request.schema,
            "expires": request.expires_ms,
        }
        if request.agents:
            pause["agents"] = list(request.agents)
        await to_its_end(self._end(step, None, None, pause), f"end of step {step.key}")

    async def _let_failures_be_handled(self) -> None:
        """Wait until who does not handle a failed step has ended those beside it: the failure is not recorded then."""
        failed = 0
        for _ in range(_FAILURE_ROUNDS):
            if failed == len(self._failed):
                return
            failed = len(self._failed)
            await _let_others_continue()

    def _pause_at(self, pause: Pause) -> None:
        """Stop the hook at a pause, which is durable: also if the task that asked for it was cancelled meanwhile."""
        self.pause_at = pause
        self._stop()

    async def _end_durably(self, kind: StepKind, step: RunningStep, parts: list[Json]) -> None:
        """Make a step durable. The lock is held."""
        if kind.repeats_changes:
            self._drain()
            step.before = len(self._unrecorded)
        if step.overlaps:
            await _let_others_continue()
        await self._let_failures_be_handled()
        result, call = kind.result(parts), kind.described(step.args_hash, parts)
        # What is drained and sealed has to be recorded.
        await to_its_end(self._end(step, result, call), f"end of step {step.key}")

    def _end(
        self, step: RunningStep, result: Json, call: ModelCallSummary | None, pause: PauseRecord | None = None
    ) -> Coroutine[Any, Any, None]:
        """Take what a step has changed so far, and return what makes it durable. The lock is held."""
        self._check_open(step.key)
        self._drain()
        counts = len(self._unrecorded), len(self._failed), len(self._steered)
        return self._write(step, result, call, pause, counts)

    async def _write(
        self,
        step: RunningStep,
        result: Json,
        call: ModelCallSummary | None,
        pause: PauseRecord | None,
        counts: tuple[int, int, int],
    ) -> None:
        drained, failed, steered = counts
        tree = await self._env.run_blocking(self._workspace.seal)
        record = StepRecord(
            step.key,
            step.name,
            step.args_hash,
            result,
            step.effects,
            self._unrecorded[:drained],
            None if step.overlaps else step.before,
            self._version,
            tree,
            tree != self._workspace.base,
            step.started_ms,
            self._env.clock.now_ms(),
            [other.key for other in self._running if other is not step],
            self._failed[:failed],
            self._steered[:steered],
            self._base_turn,
            step.attempts,
            call,
            pause,
        )
        large: dict[BlobId, bytes] = {}
        body = write_record(record, large)
        if large:
            await self._env.run_blocking(self._env.blobs.put, large)
        number = len(self._bodies) + 1
        await self._ledger.put_step(StoredStep(self._message_id, number, step.key, body))
        if pause is not None:
            self._pause_at(Pause(number, record))
        self._bodies.append(body)
        del self._unrecorded[:drained], self._failed[:failed], self._steered[:steered]

    # -- a replay -------------------------------------------------------------------------------------------------

    async def _restore(self, record: StepRecord) -> None:
        """Make state and files what they were at the end of the recorded step that is next."""
        async with self._ending:
            self._check_open(record.key)
            if self._replay.next is not record:
                return  # another task came first
            if record.before is None:
                await _let_others_continue()
            if record.version != self._version:
                raise ProgramChanged(
                    f"step {record.key!r} was recorded with version {record.version} of the state class, which is at "
                    f"version {self._version} now"
                )
            tree = record.tree if record.changes_files else self._workspace.base
            try:
                if not self._continues(record) or not self._repeat_changes(record):
                    document = await self._document_at(self._replay.place)
                    change(self._state, diff(to_json(self._state), document))
                self._drain()
                self._unrecorded.clear()
                await self._env.run_blocking(self._workspace.move_to, tree)
            except (PatchError, Conflict) as error:
                raise StepsOutdated(
                    f"step {record.key!r} does not fit the agent any more, which was changed since by another turn "
                    f"({error})"
                ) from error
            if record.is_open:  # before other tasks go on, which begin no step any more
                self._pause_at(Pause(len(self._bodies), record))
            self._replay.advance()
        await self._steer_again()

    def _continues(self, record: StepRecord) -> bool:
        """Return whether the state is now exactly what it was when a recorded step began."""
        self._drain()
        if record.before is None:
            return False
        before = record.patch[: record.before]
        return encode(cast("Json", self._unrecorded)) == encode(cast("Json", before))

    def _repeat_changes(self, record: StepRecord) -> bool:
        """Repeat the changes that a step itself made; return whether they fit."""
        try:
            change(self._state, record.patch[record.before :])
        except StateError:
            return False
        return True

    async def _document_at(self, place: int) -> JsonObject:
        """Return the state's document at the end of a recorded step."""
        done, document = self._document or (0, await self._base())
        for record in self._records[done : place + 1]:
            document = cast("JsonObject", apply_patch(document, record.patch))
        self._document = (place + 1, document)
        return document

    async def _document_of(self, turn: int) -> JsonObject:
        """Return the state's document at the end of a committed turn."""
        store, blobs = self._env.store, self._env.blobs
        return (await self._ledger.read(lambda: read_agent(store, blobs, self._address, turn))).state

    async def _steer_again(self) -> None:
        """Steer the turn with the messages that steered an earlier attempt before its next recorded step ended."""
        record = self._replay.next
        while record is not None:
            for message_id in record.steered:
                if message_id not in self._steered_again:
                    self._steered_again[message_id] = await self._steer(message_id)
                    await asyncio.sleep(0)  # its on_steer runs up to where it waits
                    await asyncio.sleep(0)
            if not any(
                record.key.startswith(f"{gone}:") for gone, is_there in self._steered_again.items() if not is_there
            ):
                return
            await self._restore(record)  # of a message that was cancelled since: nobody will ask for it
            record = self._replay.next

    # -- inside ---------------------------------------------------------------------------------------------------

    def _note(self, misfit: Permanent) -> None:
        """Note that the recorded steps do not fit, whatever the program makes of it."""
        self.misfit = self.misfit or Misfit(misfit, self._replay.fits)

    def _drain(self) -> None:
        patch, holds = drain_unfinished(self._state)
        self.recheck = self.recheck or not holds
        self.patch += patch
        self._unrecorded += patch

    def _check_open(self, name: str) -> None:
        if self._over:
            raise ContextMisuse(
                f"the turn of step {name!r} is over; await the steps that a hook begins before the hook returns"
            )


async def _for_ever() -> NoReturn:
    """Wait until the hook is stopped."""
    while True:
        await asyncio.Event().wait()


async def _let_others_continue() -> None:
    """Let the code behind a step that has just ended run up to where it waits, also through a few tasks between."""
    for _ in range(_RESUME_ITERATIONS):
        await asyncio.sleep(0)
