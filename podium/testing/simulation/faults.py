"""Fault injection of the simulator: rates of faults, and the link between a host and the world.

All external calls of a host pass through its `Link`: each may be slow, fail, succeed with its answer lost, happen after
its caller has timed out, or kill the host. A dead host's code still unwinds, as Python requires, but its calls have no
effect.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from chronicle.errors import ChronicleError, Unavailable
from chronicle.journal.records import StepWrite
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine

    from chronicle.ids import SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.reserve import Reserve
    from chronicle.journal.records import Commit, Head, StoredStep

__all__ = ["LATEST_S", "NO_FAULTS", "FaultRates", "Link", "LinkedWorkspace", "SharedCommitter"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FaultRates:
    """The probability of each fault per call."""

    read_fails: float = 0.0
    """A read of the journal raises `Unavailable`."""
    write_fails: float = 0.0
    """A write raises `Unavailable`, and nothing was written."""
    answer_lost: float = 0.0
    """A write raises `Unavailable`, and everything was written."""
    late: float = 0.0
    """A write raises `Unavailable`, and happens some time later."""
    workspace_fails: float = 0.0
    """A call of the workspace raises `Unavailable`, half of the time after doing its work."""
    dies: float = 0.0
    """The host dies before or after a call."""
    stalls: float = 0.0
    """The host stalls for seconds, and then continues."""
    slow: float = 0.0
    """A call takes some time; others run meanwhile."""

    @classmethod
    def of(cls, generator: random.Random) -> FaultRates:
        """Draw the rates of a run: mostly a few faults, sometimes all of them, sometimes none."""

        def one(*rates: float) -> float:
            return generator.choice(rates)

        return cls(
            read_fails=one(0, 0, 0.02, 0.1),
            write_fails=one(0, 0, 0.05, 0.2),
            answer_lost=one(0, 0, 0.05, 0.3),
            late=one(0, 0, 0.05, 0.2),
            workspace_fails=one(0, 0, 0, 0.02),
            dies=one(0, 0, 0.005, 0.02, 0.05),
            stalls=one(0, 0, 0.005, 0.02),
            slow=one(0.05, 0.3, 0.8),
        )


NO_FAULTS = FaultRates()
LATEST_S: Final = 3.0
"""Longest delay of a late write after its caller got an error."""
_WRITES: Final = frozenset(
    {
        "acquire_lease",
        "admit",
        "admit_many",
        "cancel_reminder",
        "commit_many",
        "drop_steps",
        "end_pause",
        "ensure_session",
        "erase",
        "fire_reminder",
        "fold",
        "fork_session",
        "outbox_delivered",
        "put_step",
        "release_lease",
        "renew_leases",
        "retry_message",
        "send_reminder",
    }
)


class Link:
    """The link between a host and the world.

    Args:
        store: the journal that all hosts share.
        generator: the source of randomness.
        fault_rates: returns the current rates.
        note: adds a line to the protocol.
        committer: commits for all hosts of the node; without one, each host commits by itself.
    """

    def __init__(
        self,
        store: JournalStore,
        generator: random.Random,
        fault_rates: Callable[[], FaultRates],
        note: Callable[..., None],
        committer: SharedCommitter | None = None,
    ) -> None:
        self._committer = committer
        self._generator = generator
        self._fault_rates = fault_rates
        self._note = note
        self._tasks = BackgroundTasks()
        self._stalled_until_s = 0.0
        self.alive = True
        self.companions: list[Link] = []
        """The links of the agents in the same process, which die together; shared with them."""
        self.died_alone = True
        """Whether a dead host had the process for itself."""
        self.store = cast("JournalStore", _LinkedStore(store, self))

    # -- the host's life ------------------------------------------------------------------------------------------

    def spawn(self, coroutine: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        """Start a task of this host's; it ends with the host."""
        return self._tasks.start(coroutine, name)

    def die(self) -> None:
        """Kill the host: its calls have no effect from now on."""
        if self.alive:
            self._note("dies")
            self.alive = False
            self._tasks.cancel()
            companions = list(self.companions)
            self.companions.clear()
            for companion in companions:
                companion.died_alone = len(companions) == 1
                companion.die()

    def stall(self, seconds: float) -> None:
        """Stall the host at its next call for some seconds."""
        self._note("stalls", f"{seconds:.1f}s")
        self._stalled_until_s = asyncio.get_running_loop().time() + seconds

    def maybe_die(self) -> None:
        """Perhaps kill the host here; raises ``CancelledError`` in a dead host."""
        self.check_alive()
        rate = self._fault_rates().dies
        if rate and self._generator.random() < rate:
            self.die()
        self.check_alive()

    def check_alive(self) -> None:
        """Raise ``CancelledError`` in a dead host."""
        if not self.alive:
            raise asyncio.CancelledError

    # -- its calls ------------------------------------------------------------------------------------------------

    async def run_blocking(self, call: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Make a call; a `podium.blocking.BlockingRunner`."""
        await self._pass()
        answer = call(*args, **kwargs)
        await self._pass()
        return answer

    async def commit(self, commit: Commit) -> Head:
        """Commit; a `podium.turn.journal.ledger.Committer`."""
        await self._pass()
        head = await self._committer.commit(commit) if self._committer is not None else self.store.commit(commit)
        await self._pass()
        return head

    async def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        """Store a step; a `podium.turn.journal.ledger.Committer`."""
        await self._pass()
        if self._committer is not None:
            await self._committer.put_step(session_id, step, epoch)
        else:
            self.store.put_step(session_id, step, epoch)
        await self._pass()

    async def _pass(self) -> None:
        """Let time pass between the host and the world, and perhaps kill the host."""
        self.maybe_die()
        fault_rates, draw = self._fault_rates(), self._generator.random
        if fault_rates.stalls and draw() < fault_rates.stalls:
            self.stall(0.5 + 5 * draw())
        loop = asyncio.get_running_loop()
        if loop.time() < self._stalled_until_s:
            await asyncio.sleep(self._stalled_until_s - loop.time())
        elif fault_rates.slow and draw() < fault_rates.slow:
            await asyncio.sleep(0.1 * draw() ** 3)
        self.check_alive()

    def read(self, call: Callable[[], _T]) -> _T:
        """Read; may fail."""
        self.check_alive()
        self._maybe_fail(self._fault_rates().read_fails, "a read")
        return call()

    def write(self, call: Callable[[], _T], what: str) -> _T:
        """Write; may fail, lose its answer, or happen later."""
        self.check_alive()
        fault_rates = self._fault_rates()
        self._maybe_fail(fault_rates.write_fails, what)
        if fault_rates.late and self._generator.random() < fault_rates.late:
            asyncio.get_running_loop().call_later(LATEST_S * self._generator.random() ** 2, self._do_late, call, what)
            raise Unavailable(f"simulated: {what} is late")
        answer = call()
        self._maybe_fail(fault_rates.answer_lost, f"the answer to {what}")
        return answer

    def touch(self, call: Callable[[], _T]) -> _T:
        """Make a call of the workspace, which may fail before or after doing its work."""
        self.check_alive()
        rate = self._fault_rates().workspace_fails / 2
        self._maybe_fail(rate, "the workspace")
        answer = call()
        self._maybe_fail(rate, "the workspace's answer")
        return answer

    def _do_late(self, call: Callable[[], object], what: str) -> None:
        try:
            call()
        except ChronicleError as error:
            self._note("late", what, type(error).__name__)

    def _maybe_fail(self, rate: float, what: str) -> None:
        if rate and self._generator.random() < rate:
            self._note("fails", what)
            raise Unavailable(f"simulated: {what} failed")


class SharedCommitter:
    """Group commit for the hosts of a node, as `chronicle.journal.committer.GroupCommitter` is for threads.

    Args:
        link: its own link, where a whole batch fails, loses its answer, or is late.
        generator: draws the latency of the disk.
        slowest_s: longest latency of the disk.
    """

    def __init__(self, link: Link, generator: random.Random, slowest_s: float) -> None:
        self._link = link
        self._slowest_s = slowest_s
        self._generator = generator
        self._waiting: list[tuple[Commit | StepWrite, asyncio.Future[Head | None]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def commit(self, commit: Commit) -> Head:
        """Commit with the next batch. If the caller dies before its batch starts, its commit is left out."""
        head = await self._written(commit)
        assert head is not None
        return head

    async def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        """Store a step with the next batch, likewise."""
        await self._written(StepWrite(session_id, step, epoch))

    async def _written(self, write: Commit | StepWrite) -> Head | None:
        future: asyncio.Future[Head | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, future))
        if self._writer is None:
            self._writer = self._link.spawn(self._write(), "writer")
        return await future

    async def _write(self) -> None:
        while self._waiting:
            batch = [(write, future) for write, future in self._waiting if not future.cancelled()]
            self._waiting.clear()
            outcomes: list[Head | Exception | None]
            try:
                outcomes = self._link.store.commit_many([write for write, _ in batch]) if batch else []
            except Unavailable as error:
                outcomes = [error] * len(batch)
            # Meanwhile, the next batch gathers.
            await asyncio.sleep(self._slowest_s * self._generator.random() ** 3)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if future.done():
                    continue
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)
        self._writer = None


class _LinkedStore:
    """The journal behind a link: the methods of `_WRITES` write, all others read."""

    def __init__(self, store: JournalStore, link: Link) -> None:
        self._store = store
        self._link = link

    def commit(self, commit: Commit) -> Head:
        """Commit."""
        return self._link.write(lambda: self._store.commit(commit), f"commit of {commit.events[-1].type}")

    @property
    def reserve(self) -> Reserve:
        """The space that the store reserves."""
        return self._store.reserve

    def __getattr__(self, name: str) -> Any:
        """Return a method that goes through the link."""
        method = getattr(self._store, name)
        writes = name in _WRITES

        def through(*args: Any, **kwargs: Any) -> Any:
            if writes:
                return self._link.write(lambda: method(*args, **kwargs), name)
            return self._link.read(lambda: method(*args, **kwargs))

        return through


class LinkedWorkspace:
    """A workspace behind a link.

    Args:
        workspace: the workspace, a `chronicle.workspace.port.Workspace`.
    """

    def __init__(self, workspace: Any, link: Link) -> None:
        self.workspace = workspace
        self._link = link

    def __getattr__(self, name: str) -> Any:
        """Return an attribute; methods that work on the files go through the link."""
        attribute = getattr(self.workspace, name)
        if name not in {"begin_turn", "seal", "adopt", "move_to", "rollback"}:
            return attribute
        return lambda *args: self._link.touch(lambda: attribute(*args))
