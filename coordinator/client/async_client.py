"""The asynchronous client of a home: over HTTP, or of a home on this machine."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from coordinator.client.backends.choosing import choose_backend
from coordinator.client.errors import AnswerTimeout, BadAnswer
from coordinator.client.files import AsyncFiles
from coordinator.client.paging import PAGE_ITEMS, AsyncPages, items_of
from coordinator.client.results import (
    Agent,
    Answer,
    Artifact,
    Deleted,
    Difference,
    Erased,
    Event,
    Folded,
    Forked,
    FoundArtifact,
    Imported,
    InboxMessage,
    Message,
    Node,
    Receipt,
    Reminder,
    Rewound,
    State,
    Verification,
    Why,
    read_result,
)
from coordinator.client.texts import address_of
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from coordinator.client.backends.port import Frames, Wire
    from coordinator.client.run import AsyncRun

__all__ = ["AsyncPodium"]


class AsyncPodium:
    """A client of one home, for one event loop. It connects at its first use; its context closes it.

    An agent is named by its address, such as ``hello/alice``. A message is a JSON object, or a text, which stands for
    ``{"text": …}``.

    Args:
        url: the gateway's, such as ``http://127.0.0.1:8700``; by default ``$PODIUM_URL``.
        key: the API key; by default ``$PODIUM_KEY``, else the local key if ``url`` is that of this user's gateway of
            ``$PODIUM_HOME``, ``.podium`` or the project, also of one that starts later. Empty for none.
        home: the directory of a home on this machine, instead of a gateway; by default, without a URL, ``$PODIUM_HOME``
            or ``.podium``. Messages need its service, which ``podium up`` keeps.
        reconnect_s: time without a connection at which a stream, or a repeated request, fails with `Unreachable`; by
            default ``$PODIUM_RECONNECT_S``, 60 s.

    Raises:
        InvalidRequest: both ``url`` and ``home`` are given, or the URL is none.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        key: str | None = None,
        home: Path | str | None = None,
        reconnect_s: float | None = None,
    ) -> None:
        self._backend = choose_backend(url, key, home, reconnect_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Messages that were sent are handled nevertheless."""
        await self._backend.close()

    async def metrics(self) -> Mapping[tuple[str, tuple[str, ...]], float | list[float]]:
        """Return the metrics of the home, by name and the values of their labels; docs/observability.md lists them.

        The value of a histogram is the sum of what was observed, followed by the number of observations in each bucket
        alone. While the service does not answer, only what waits in the journal is there.

        Raises:
            PermissionDenied: the key does not have the scope ``metrics``.
        """
        return await self._backend.metrics()

    # -- messages -------------------------------------------------------------------------------------------------

    async def send(
        self,
        agent: str,
        message: Mapping[str, Any] | str,
        *,
        idempotency_key: str | None = None,
        when_busy: BusyPolicy | str = BusyPolicy.ENQUEUE,
    ) -> Receipt:
        """Send a message; return when it is durably in the agent's inbox.

        Args:
            idempotency_key: a name for the message: a second message with it is a repetition, and gets the receipt of
                the first. By default a new one, so that a repetition after a lost connection does no harm.
            when_busy: what happens if the agent is handling another message.

        Raises:
            RequestConflict: the agent is busy and the policy is ``reject``, or the idempotency key was used with
                another message.
            RateLimited: the inbox is full, or a limit is reached.
            ResourceNotFound: no agent type of that name.
        """
        key, policy = idempotency_key or uuid4().hex, BusyPolicy(when_busy).value
        return read_result(Receipt, await self._backend.send(address_of(agent), _body(message), key, policy))

    async def stream(
        self,
        agent: str,
        message: Mapping[str, Any] | str,
        *,
        idempotency_key: str | None = None,
        when_busy: BusyPolicy | str = BusyPolicy.ENQUEUE,
    ) -> AsyncRun:
        """Send a message; return its run, from which frames and answer are read, when it is durably in the inbox.

        Args:
            idempotency_key: as for `send`; of a repetition, the frames are those of the first message.
            when_busy: as for `send`.

        Raises:
            ClientError: as `send`.
        """
        from coordinator.client.run import AsyncRun  # noqa: PLC0415  readings need none

        key, policy = idempotency_key or uuid4().hex, BusyPolicy(when_busy).value
        address = address_of(agent)
        frames = self._backend.submit(address, _body(message), key, policy)
        try:
            first = await anext(frames, None)
            if first is None or first[1]["type"] != "accepted":
                raise BadAnswer("the stream of the message does not begin with its receipt")
            receipt = read_result(Receipt, {**first[1], "agent": agent})
        except BaseException:
            await frames.aclose()
            raise
        return AsyncRun(self._backend, address, receipt.message_id, receipt=receipt, opened=_with_first(first, frames))

    def resume(self, agent: str, message_id: str, *, after: str = "") -> AsyncRun:
        """Return the run of a message that was sent before, by this process or any other.

        Args:
            after: the `AsyncRun.position` after which its frames begin; by default they begin with the first one.
        """
        from coordinator.client.run import AsyncRun  # noqa: PLC0415

        return AsyncRun(self._backend, address_of(agent), message_id, after=after)

    async def ask(
        self,
        agent: str,
        message: Mapping[str, Any] | str,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
        when_busy: BusyPolicy | str = BusyPolicy.ENQUEUE,
    ) -> Answer:
        """Send a message and return its answer, when its turn is committed.

        Args:
            timeout: for the answer, seconds; without one there is no limit. The message is not cancelled after it.

        Raises:
            AnswerTimeout: there was no answer in time. Its ``message_id`` is ``None`` if the message may not have been
                admitted.
            MessageFailed: the message failed, or is parked.
            ClientError: as `send`.
        """
        message_id: str | None = None
        try:
            async with asyncio.timeout(timeout):
                async with await self.stream(
                    agent, message, idempotency_key=idempotency_key, when_busy=when_busy
                ) as run:
                    message_id = run.message_id
                    return await run.answer()
        except TimeoutError:
            raise AnswerTimeout(
                f"{agent} did not answer {message_id or 'the message'} within {timeout:g} s", message_id=message_id
            ) from None

    async def message(self, agent: str, message_id: str) -> Message:
        """Return a message and its outcome so far.

        Raises:
            ResourceNotFound: no such message.
        """
        return read_result(Message, await self._backend.message(address_of(agent), message_id))

    async def cancel(self, agent: str, message_id: str) -> None:
        """Cancel a pending, running or parked message: its turn is rolled back; durable on return.

        Raises:
            RequestConflict: it was handled already.
        """
        await self._backend.cancel(address_of(agent), message_id)

    async def inbox(self, agent: str) -> list[InboxMessage]:
        """Return the pending and parked messages of an agent, by position."""
        address = address_of(agent)
        return [
            found async for found in items_of(InboxMessage, lambda at: self._backend.inbox(address, PAGE_ITEMS, at))
        ]

    async def reminders(self, agent: str) -> list[Reminder]:
        """Return the reminders that an agent has set, by name."""
        address = address_of(agent)
        return [
            found async for found in items_of(Reminder, lambda at: self._backend.reminders(address, PAGE_ITEMS, at))
        ]

    async def cancel_reminder(self, agent: str, name: str) -> None:
        """Cancel a reminder of an agent; a message that it has sent already stays in the inbox.

        Raises:
            ResourceNotFound: the agent has no such reminder.
        """
        await self._backend.cancel_reminder(address_of(agent), name)

    async def retry(self, agent: str, message_id: str, *, drop_steps: bool = False) -> None:
        """Make a parked message pending again, at its place in the inbox, and wake the agent.

        Args:
            drop_steps: its next attempt runs all steps anew.

        Raises:
            RequestConflict: its steps are to be dropped, and it is pending at an agent that is awake.
        """
        await self._backend.retry(address_of(agent), message_id, drop_steps=drop_steps)

    async def drop(self, agent: str, message_id: str) -> None:
        """Remove a pending or parked message permanently; one that is being handled is cancelled."""
        await self._backend.drop(address_of(agent), message_id)

    # -- agents ---------------------------------------------------------------------------------------------------

    async def agents(
        self, *, agent_type: str | None = None, tenant: str | None = None, awake: bool = False
    ) -> AsyncGenerator[Agent]:
        """Yield the home's agents, by address.

        Args:
            agent_type: only agents of this type.
            tenant: agents of this tenant; by default of the key's. Of another one it takes an operator's key.
            awake: only agents that are awake.
        """
        async for found in items_of(
            Agent, lambda at: self._backend.agents(agent_type, tenant, PAGE_ITEMS, at, awake=awake)
        ):
            yield found

    def pages(self) -> AsyncPages:
        """Return the lists of the home, a page at a time."""
        return AsyncPages(self._backend)

    async def agent(self, agent: str) -> Agent:
        """Return one agent.

        Raises:
            ResourceNotFound: there is none.
        """
        return read_result(Agent, await self._backend.agent(address_of(agent)))

    async def delete(self, agent: str, *, detach: bool = False) -> Deleted:
        """Delete an agent permanently: its events, state, files and messages.

        Args:
            detach: detach forks first; they lose the history that they inherited.

        Raises:
            RequestConflict: forks read its history, or it is awake.
        """
        return read_result(Deleted, await self._backend.delete(address_of(agent), detach=detach))

    async def fork(self, agent: str, key: str, *, at: int | None = None) -> Forked:
        """Make a new agent that continues another one, with its state, files and history.

        Args:
            key: the new agent's; its type is the other one's.
            at: the turn that it continues; the last one by default.

        Raises:
            RequestConflict: there is an agent of that key already.
        """
        return read_result(Forked, await self._backend.fork(address_of(agent), key, at))

    async def rewind(self, agent: str, turn: int, *, only: Sequence[str] = ()) -> Rewound:
        """Return an agent to an earlier turn, as a new turn; nothing is deleted.

        Args:
            only: the parts to restore, of ``state``, ``files`` and ``transcript``; all by default.

        Raises:
            ResourceNotFound: it has no such turn.
        """
        return read_result(Rewound, await self._backend.rewind(address_of(agent), turn, only))

    async def fold(
        self, agent: str, *, keep_turns: int | None = None, keep_days: float | None = None, dry_run: bool = False
    ) -> Folded:
        """Drop the older history of an agent for good; state, files and versions of files stay.

        Args:
            keep_turns: keep the last turns, so many at least.
            keep_days: keep what is younger at least. Without both limits all history before now is dropped.
            dry_run: change nothing, and return what would be done.

        Raises:
            RequestConflict: it is awake, or forks read what would be dropped.
        """
        found = await self._backend.fold(address_of(agent), keep_turns, keep_days, dry_run=dry_run)
        return read_result(Folded, found)

    async def erase(self, agent: str, events: Sequence[str]) -> Erased:
        """Erase the content of messages, replies, results and artifacts for good; the chain of events still verifies.

        Args:
            events: ids of events, or of artifacts.

        Raises:
            ResourceNotFound: the agent has no event of one of the ids; nothing was erased.
        """
        return read_result(Erased, await self._backend.erase(address_of(agent), events))

    async def export(self, agent: str) -> AsyncGenerator[bytes]:
        """Yield the bytes of an archive of an agent: all its events, and all versions of its files."""
        async with aclosing(self._backend.export(address_of(agent))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def import_archive(self, agent: str, content: bytes | AsyncIterator[bytes]) -> Imported:
        """Create an agent from an archive, which is verified as a whole before anything is written.

        Args:
            agent: the address of the new agent.
            content: what `export` yielded.

        Raises:
            RequestConflict: there is an agent of that address.
            InvalidRequest: the content is no archive, or a damaged one.
            PermissionDenied: the key is not an operator's.
        """
        return read_result(Imported, await self._backend.import_archive(address_of(agent), content))

    async def why(self, agent: str) -> Why:
        """Return what an agent waits for, and what is known of its host, its lease, its inbox and its last failures.

        Raises:
            ResourceNotFound: no such agent.
        """
        return read_result(Why, await self._backend.why(address_of(agent)))

    async def nodes(self) -> list[Node]:
        """Return the nodes that run agents.

        Raises:
            PermissionDenied: the key is not an operator's.
            ServerFailed: no service runs.
        """
        return [read_result(Node, node) for node in (await self._backend.nodes())["items"]]

    async def passivate(self, agent: str) -> None:
        """Put an agent to sleep after its running turn; return when it sleeps."""
        await self._backend.passivate(address_of(agent))

    async def verify(self, agent: str) -> Verification:
        """Check all stored data of an agent against its hashes. Damage is returned, not raised."""
        return read_result(Verification, await self._backend.verify(address_of(agent)))

    # -- history --------------------------------------------------------------------------------------------------

    async def events(
        self, agent: str, *, after: int = 0, types: Sequence[str] = (), follow: bool = False
    ) -> AsyncGenerator[Event]:
        """Yield an agent's recorded events, oldest first.

        Args:
            after: only events after this ``seq``.
            types: only events of these types; all by default.
            follow: after the last one, wait for new ones, without an end.
        """
        address = address_of(agent)
        if follow:
            async with aclosing(self._backend.tail(address, after)) as events:
                async for event in events:
                    if not types or event["type"] in types:
                        yield read_result(Event, event)
            return
        async for found in items_of(Event, lambda at: self._backend.events(address, after, types, at)):
            yield found

    async def state(self, agent: str, *, at: int | None = None) -> State:
        """Return an agent's committed state.

        Args:
            at: the turn at whose end it is; the last one by default.

        Raises:
            ResourceNotFound: no such agent, or no such turn.
        """
        return read_result(State, await self._backend.state(address_of(agent), at))

    async def follow_state(self, agent: str) -> AsyncGenerator[State]:
        """Yield an agent's state, and again after each turn, without an end.

        Only the patches of the turns are sent, and applied here. Each state is a value of its own; it costs a copy.
        """
        from coordinator.client.state_following import followed  # noqa: PLC0415  only here

        following = followed(lambda: self.state(agent), lambda version: self.events(agent, after=version, follow=True))
        async with aclosing(following) as states:
            async for state in states:
                yield state

    async def diff(
        self, agent: str, before: int | None = None, after: int | None = None, *, other: str | None = None
    ) -> Difference:
        """Return the differences between two turns, of an agent or of two agents: in state, files and transcript.

        Args:
            before: a turn of the agent; the last one by default.
            after: another one; the last one by default.
            other: the agent that ``after`` is a turn of, such as a fork; by default the same one.
        """
        compared = address_of(other) if other is not None else None
        return read_result(Difference, await self._backend.difference(address_of(agent), before, after, compared))

    # -- files and artifacts --------------------------------------------------------------------------------------

    def files(self, agent: str) -> AsyncFiles:
        """Return the files of an agent's workspace."""
        return AsyncFiles(self._backend, address_of(agent))

    async def artifacts(self, agent: str) -> list[Artifact]:
        """Return the artifacts of an agent, oldest first."""
        address = address_of(agent)
        return [
            found
            async for found in items_of(Artifact, lambda at: self._backend.artifacts(address, None, PAGE_ITEMS, at))
        ]

    async def artifact(self, agent: str, artifact_id: str) -> bytes:
        """Return the content of an artifact.

        Raises:
            ResourceNotFound: there is none of that id.
        """
        async with aclosing(self._backend.read_artifact(address_of(agent), artifact_id)) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def find_artifact(self, artifact_id: str) -> FoundArtifact:
        """Return an artifact by its id alone, with an agent that has it.

        Raises:
            ResourceNotFound: no agent has it.
        """
        return read_result(FoundArtifact, await self._backend.find_artifact(artifact_id))


def _body(message: Mapping[str, Any] | str) -> Mapping[str, Any]:
    return {"text": message} if isinstance(message, str) else message


async def _with_first(first: tuple[str, Wire], rest: Frames) -> Frames:
    async with aclosing(rest):
        yield first
        async for each in rest:
            yield each
