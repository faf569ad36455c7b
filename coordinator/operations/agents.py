"""`HomeAgents`: everything that a client may do to the agents of a home.

Reads and writes of the stores run in threads. The home's service admits messages, and does what is done to an agent
that is awake. A call whose caller is cancelled may have happened; each write is atomic.
"""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import InvalidInput
from chronicle.lazy_exports import lazy_module
from coordinator.operations import objects
from coordinator.operations.deploys import HomeDeploys
from podium.address import ALL_TENANTS, DEFAULT_TENANT, Address, label
from podium.errors import AgentAwake
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from coordinator.fleet.facts import AgentFacts
    from coordinator.operations import (
        answers,
        branches,
        dropping,
        explaining,
        history,
        listing,
        messages,
        model_calls,
        reminders,
        runs,
    )
    from coordinator.service import client as service
    from coordinator.telemetry import instruments, snapshots
    from coordinator.telemetry.recorder import Series, Value
    from podium.caller import Caller
    from podium.events import Part
    from podium.messages.answers import Question
else:  # One call needs few of them, and a command makes few calls.
    answers = lazy_module("coordinator.operations.answers")
    branches = lazy_module("coordinator.operations.branches")
    dropping = lazy_module("coordinator.operations.dropping")
    explaining = lazy_module("coordinator.operations.explaining")
    history = lazy_module("coordinator.operations.history")
    listing = lazy_module("coordinator.operations.listing")
    messages = lazy_module("coordinator.operations.messages")
    model_calls = lazy_module("coordinator.operations.model_calls")
    reminders = lazy_module("coordinator.operations.reminders")
    runs = lazy_module("coordinator.operations.runs")
    instruments = lazy_module("coordinator.telemetry.instruments")
    snapshots = lazy_module("coordinator.telemetry.snapshots")
    service = lazy_module("coordinator.service.client")

__all__ = ["HomeAgents"]

_ITEMS: Final = 100
"""Items of a page, unless the caller says how many."""
_AWAKE_S: Final = 5.0
"""Timeout for what a list of agents shows of those that are awake, which it does without otherwise."""
_FORGET_S: Final = 15.0
"""Timeout of the nodes to remove what they keep of an agent that is deleted."""
_METRICS_S: Final = 8.0
"""Timeout of metrics: Prometheus gives a scrape ten seconds."""


class HomeAgents(HomeDeploys):
    """The agents of a home.

    An address names its tenant; no call reaches an agent of another one. Every call raises `ServiceError` if it needs
    the service and cannot reach it, and `Unavailable` if a store cannot be reached.

    Args:
        home: an existing home.
        link: the connection to its service.
        clock: the time.
    """

    shows_error_texts = True
    """Whether its errors have the texts that agents' code gave them."""

    async def check_ready(self) -> None:
        """Check that the home's service and its stores can be reached.

        Raises:
            ServiceError: the service cannot be reached.
            Unavailable: a store cannot.
        """
        await self._link.client()
        await self._stores.read_journal(lambda store: store.sessions("/"))

    async def metrics(self) -> dict[Series, Value]:
        """Return the metrics of the home; while its service does not answer, those of its journal.

        Raises:
            HomeError: no agent has run in the home yet.
        """
        with suppress(service.ServiceError, service.ServiceRefused, TimeoutError):
            async with asyncio.timeout(_METRICS_S):
                return await (await self._link.client()).metrics()
        now_ms = self._clock.now_ms()
        backlog = await self._stores.read_journal(lambda store: store.backlog())
        return {(instruments.SERVICE_UP.name, ()): 0, **snapshots.of_backlog(backlog, 0, now_ms)}

    # -- agents ---------------------------------------------------------------------------------------------------

    async def agents(
        self,
        agent_type: str | None = None,
        limit: int = _ITEMS,
        cursor: str | None = None,
        *,
        awake: bool = False,
        tenant: str = DEFAULT_TENANT,
    ) -> objects.Page[objects.Agent]:
        """Return a page of a tenant's agents, by address; see `listing.agent_page`.

        Args:
            tenant: ``*`` for the agents of all, each with its whole address.
        """
        now_ms, of_all = self._clock.now_ms(), tenant == ALL_TENANTS
        wanted = listing.AgentFilter(None if of_all else tenant, agent_type, awake)
        page, rest = await self._stores.read_journal(
            lambda store: listing.agent_page(store, wanted, limit, cursor, now_ms)
        )
        items = [listing.agent_of_summary(summary, now_ms) for summary in page]
        if of_all:
            items = [replace(item, agent=label(found.session)) for item, found in zip(items, page, strict=True)]
        return objects.Page(items=await self._with_awake(items, DEFAULT_TENANT if of_all else tenant), **rest)

    async def agent(self, address: Address) -> objects.Agent:
        """Return one agent.

        Raises:
            UnknownAgent: there is none.
        """
        (agent,) = await self._with_awake([await self._listed(address)], address.tenant)
        return agent

    async def _with_awake(self, agents: Sequence[objects.Agent], tenant: str) -> Sequence[objects.Agent]:
        """Return agents with what the service knows of those that are awake, if it runs and answers."""
        addresses = [str(Address.parse(agent.agent, tenant)) for agent in agents]
        awake = [address for address, agent in zip(addresses, agents, strict=True) if agent.status == "awake"]
        if awake:
            with suppress(service.ServiceError, service.ServiceRefused, TimeoutError):
                async with asyncio.timeout(_AWAKE_S):
                    facts = await (await self._link.client()).awake(awake)
                return [
                    listing.with_awake(agent, facts.get(name)) for name, agent in zip(addresses, agents, strict=True)
                ]
        return agents

    async def delete(self, address: Address, *, detach: bool = False) -> objects.Deleted:
        """Delete a sleeping agent permanently; see `branches.delete`.

        What nodes of other machines keep of it is removed if a service runs.
        """
        now_ms, home, loop = self._clock.now_ms(), self._stores.home, asyncio.get_running_loop()

        async def forget() -> None:
            with suppress(service.ServiceError, service.ServiceRefused, TimeoutError):
                async with asyncio.timeout(_FORGET_S):
                    await (await self._link.client()).forget(str(address))

        def forget_elsewhere() -> None:
            if home.is_shared:
                asyncio.run_coroutine_threadsafe(forget(), loop).result()

        return await self._stores.write(
            lambda store, blobs: branches.delete(
                home, store, blobs, address, self._ids, now_ms, detach=detach, forget=forget_elsewhere
            )
        )

    async def fold(
        self,
        address: Address,
        *,
        keep_turns: int | None = None,
        keep_days: float | None = None,
        dry_run: bool = False,
    ) -> objects.Folded:
        """Drop the older history of a sleeping agent for good; see `dropping.fold`."""
        now_ms = self._clock.now_ms()
        return await self._stores.write(
            dropping.fold, address, keep_turns, keep_days, self._ids, now_ms, dry_run=dry_run
        )

    async def erase(self, address: Address, event_ids: Sequence[str]) -> objects.Erased:
        """Erase messages, replies, results and artifacts of an agent for good; see `dropping.erase`.

        Raises:
            EventNotFound: the agent has no event of one of the ids; nothing was erased.
        """
        await self._stores.read_journal(lambda store: dropping.check_events(store, address, event_ids))
        return await self._stores.write(lambda store, _: dropping.erase(store, address, event_ids))

    async def why(self, address: Address) -> objects.Why:
        """Return what an agent waits for, and what is known of its host, its lease, its inbox and its last failures.

        Without a running service it returns what the journal has. Of an agent that does not exist yet it returns why
        messages of other agents to it are held.

        Raises:
            UnknownAgent: there is no such agent, and no message to it.
        """
        await self._stores.read(explaining.why_object, address, None, 0)
        facts: AgentFacts | None = None
        with suppress(service.ServiceError):
            facts = await (await self._link.client()).facts(str(address))
        now_ms = self._clock.now_ms()
        return await self._stores.read(explaining.why_object, address, facts, now_ms)

    async def types(self) -> objects.AgentClassList:
        """Return the agent types that the home's service knows, with their handlers."""
        types = await (await self._link.client()).types()
        return objects.AgentClassList(
            items=tuple(
                objects.AgentClass(
                    agent_type=each["type"],
                    class_name=each["class"],
                    on_message=each["on_message"],
                    handlers=each["handlers"],
                )
                for each in types
            )
        )

    async def nodes(self) -> objects.NodeList:
        """Return the nodes of the home's service."""
        nodes = await (await self._link.client()).nodes()
        return objects.NodeList(items=tuple(objects.Node(**node) for node in nodes))

    async def drain(self, node: str, *, undo: bool = False) -> objects.Node:
        """Move the agents of a node to other nodes after their running turns, and keep it empty; return the node.

        Args:
            undo: use a drained node again instead.

        Raises:
            NotFound: there is no such node.
        """
        await (await self._link.client()).drain(node, undo=undo)
        return next(each for each in (await self.nodes()).items if each.node == node)

    async def passivate(self, address: Address) -> objects.Passivated:
        """Put an agent to sleep after its running turn; return when it sleeps. Its next message wakes it.

        Raises:
            UnknownAgent: there is no such agent.
        """
        await self.agent(address)
        await (await self._link.client()).passivate(str(address))
        return objects.Passivated(agent=address.name)

    async def verify(self, address: Address) -> objects.Verification:
        """Check an agent's stored data against its hashes; reads all of it."""
        return await self._stores.read_journal(lambda store: branches.verify(self._stores.home, store, address))

    # -- messages -------------------------------------------------------------------------------------------------

    async def send(
        self,
        address: Address,
        message: dict[str, Any],
        *,
        idempotency_key: str | None = None,
        when_busy: BusyPolicy = BusyPolicy.ENQUEUE,
        trace: str | None = None,
        caller: Caller,
    ) -> objects.Receipt:
        """Admit a message, durably. The agent handles it whether anyone waits for the answer or not.

        Args:
            address: of an agent of a type that the home knows; the agent need not exist yet.
            idempotency_key: a repetition with the same message gets the same receipt.
            trace: the W3C ``traceparent`` of what sends it; one that cannot be read is ignored.
            caller: who asks; agents see it.

        Raises:
            UnknownAgentType: the home knows no such type.
            AgentBusy: the policy is ``REJECT``, and a message waits or is being handled.
            InboxFull: too many messages wait.
            IdempotencyConflict: the key was used with another message.
            InvalidInput: the message is not JSON.
        """
        while True:
            fleet = await self._link.client()
            with suppress(service.ServiceLeft):  # it has not admitted it: the next one is asked
                admitted = await fleet.admit(str(address), message, idempotency_key, when_busy, trace, caller)
                break
        return objects.Receipt(
            message_id=admitted.message_id,
            agent=address.name,
            position=admitted.position,
            before=admitted.before,
        )

    async def answer(self, address: Address, message_id: str) -> objects.Answer:
        """Wait until a message is settled, and return its answer.

        Raises:
            MessageNotAnswered: it failed, was parked or was cancelled.
            MessagePaused: its turn is paused.
            NotFound: the agent never got it.
            ServiceError: the service cannot be reached again after a loss. The message stays in the inbox.
        """
        while True:
            fleet = await self._link.client()
            builder = answers.AnswerBuilder(address.name, message_id)
            with suppress(
                service.ServiceError
            ):  # the connection broke: the service follows the message again from its beginning
                async for frame in fleet.follow(str(address), message_id):
                    if (answer := builder.add(frame)) is not None:
                        return answer

    async def receipt(self, address: Address, message_id: str) -> objects.Receipt:
        """Return the receipt of an admitted message, with the messages that are ahead of it now.

        Raises:
            UnknownAgent, NotFound: the agent never got it, or its record was pruned.
        """
        return await self._stores.read_journal(lambda store: messages.receipt(store, address, message_id))

    async def message(self, address: Address, message_id: str) -> objects.Message:
        """Return a message with its status, and its answer or its error; see `messages.message_object`."""
        return await self._stores.read(messages.message_object, address, message_id)

    async def inbox(
        self, address: Address, limit: int = _ITEMS, cursor: str | None = None
    ) -> objects.Page[objects.InboxMessage]:
        """Return a page of an agent's pending, paused and parked messages, by position."""
        return await self._stores.read(messages.inbox_page, address, limit, cursor)

    async def cancel(self, address: Address, message_id: str) -> objects.Message:
        """Cancel a pending, running, paused or parked message, durably; return it.

        Raises:
            UnknownAgent, NotFound: the agent never got it, or handled it already.
        """
        await self.message(address, message_id)
        await (await self._link.client()).cancel(str(address), message_id)
        await self._wake_if_waiting(address)  # its turn may have held up the inbox
        return await self.message(address, message_id)

    async def retry(self, address: Address, message_id: str, *, drop_steps: bool = False) -> objects.Message:
        """Make a parked message pending again, at its place, and wake the agent; return the message.

        Without a service, the next one wakes the agent.

        Args:
            drop_steps: its next attempt runs all steps anew.

        Raises:
            UnknownAgent, NotFound: the agent never got it, or the message was handled or cancelled.
            AgentAwake: its steps are to be dropped, and it is pending at an agent that is awake.
        """
        now_ms = self._clock.now_ms()
        await self._stores.write(
            lambda store, _: messages.retry(store, address, message_id, now_ms, drop_steps=drop_steps)
        )
        await self._poke(address)
        return await self.message(address, message_id)

    async def drop(self, address: Address, message_id: str) -> objects.Message:
        """Remove a pending, paused or parked message permanently; one that is being handled is cancelled. Return it.

        Raises:
            UnknownAgent, NotFound: the agent never got it, or handled it already.
        """
        now_ms = self._clock.now_ms()
        try:
            was_paused = await self._stores.write(
                lambda store, _: messages.drop(store, address, message_id, self._ids, now_ms)
            )
        except AgentAwake as awake:
            await (await self._service_of(awake)).cancel(str(address), message_id)
        else:
            if was_paused:  # those behind it are pending now
                await self._wake_if_waiting(address)
        return await self.message(address, message_id)

    async def read_only(self, address: Address, message: dict[str, Any]) -> objects.ReadResult:
        """Call a read-only handler of an agent, beside its turns; nothing is admitted or recorded.

        Raises:
            UnknownAgent: there is no such agent.
            InvalidMessage: the message does not fit, or names no read-only handler.
            ReadOnly: the handler tried to change or to send something.
            ReadFailed: it raised, or took too long.
            QuotaExceeded: the tenant may not send as many messages, or wake another agent.
        """
        turn, data = await (await self._link.client()).read(str(address), message)
        return objects.ReadResult(agent=address.name, turn=turn, data=data)

    # -- runs -----------------------------------------------------------------------------------------------------

    async def runs(
        self,
        status: str,
        of_agent: Address | None = None,
        limit: int = _ITEMS,
        cursor: str | None = None,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> objects.Page[objects.PausedRun]:
        """Return a page of the runs of a tenant's agents, or of one agent; see `runs.paused_page`.

        Args:
            status: ``paused``: others are not listed.
            tenant: ``*`` for those of all, each with the whole address of its agent.
        """
        if status != "paused":
            raise InvalidInput(f"runs are listed by the status paused, not {status!r}")
        of = None if tenant == ALL_TENANTS else tenant
        return await self._stores.read_journal(lambda store: runs.paused_page(store, of, of_agent, limit, cursor))

    async def run(self, run_id: str, *, tenant: str = DEFAULT_TENANT) -> objects.PausedRunFiles:
        """Return a paused run, and which files its turn has changed so far; see `runs.paused_run`."""
        return await self._stores.read(lambda store, blobs: runs.paused_run(store, blobs, tenant, run_id))

    async def agent_of_run(self, run_id: str, *, tenant: str = DEFAULT_TENANT) -> Address:
        """Return the agent of a run.

        Raises:
            RunNotFound: no agent of the tenant has it.
        """
        return await self._stores.read_journal(lambda store: runs.agent_of(store, tenant, run_id))

    async def decide(
        self,
        run_id: str,
        answer: Any = None,
        *,
        call_id: str | None = None,
        args_hash: str | None = None,
        promise: str | None = None,
        rejection: str | None = None,
        request: str | None = None,
        by: str | None = None,
        tenant: str = DEFAULT_TENANT,
    ) -> objects.Resumed:
        """Answer a paused run, durably, and wake its agent. Without a service, the next one does.

        Args:
            answer: JSON that fits the schema of the request.
            call_id, args_hash, promise, request: the request that is answered; by default the one that is open.
            rejection: why a promise is rejected, in place of an answer.
            by: who answers.

        Raises:
            RunNotFound: no agent of the tenant has the run.
            RunNotPaused: it does not wait for this answer.
            DecisionExpired: the answer is late.
            DecisionInvalid: it does not fit the schema.
        """
        from podium.messages.answers import Answer  # noqa: PLC0415

        now_ms = self._clock.now_ms()
        address = await self.agent_of_run(run_id, tenant=tenant)
        found = Answer(answer, by, call_id, args_hash, promise, rejection, request)
        resumed = await self._stores.write(lambda store, _: runs.decide(store, address, run_id, found, now_ms))
        await self._poke(address)
        return resumed

    async def question(
        self, run_id: str, *, promise: str | None = None, request: str | None = None, tenant: str = DEFAULT_TENANT
    ) -> tuple[Address, Question]:
        """Return what a paused run waits for, and its agent.

        Args:
            promise, request: what it is to wait for; by default anything.

        Raises:
            RunNotFound: no agent of the tenant has the run.
            RunNotPaused: it waits for nothing, or for something else.
            DecisionExpired: its time is over.
        """
        now_ms = self._clock.now_ms()
        return await self._stores.read_journal(
            lambda store: runs.question(store, tenant, run_id, promise, request, now_ms)
        )

    async def link(
        self,
        run_id: str,
        *,
        promise: str | None = None,
        expires_in_s: int | None = None,
        tenant: str = DEFAULT_TENANT,
    ) -> objects.RunLink:
        """Make a link that answers what a run waits for, for the operator; see `links.make_link`."""
        from coordinator.access.administration import KeyAdministration  # noqa: PLC0415  few processes make any
        from coordinator.access.audit import Audit  # noqa: PLC0415
        from coordinator.access.caller import ANYONE  # noqa: PLC0415
        from coordinator.access.lifetimes import DEFAULT_LINK_S  # noqa: PLC0415
        from coordinator.homes.opening import open_records  # noqa: PLC0415
        from coordinator.operations.links import make_link  # noqa: PLC0415

        home, caller = self._stores.home, replace(ANYONE, tenant=tenant)
        address, question = await self.question(run_id, promise=promise, tenant=tenant)
        with closing(await asyncio.to_thread(open_records(home).keys)) as keys:
            administration = KeyAdministration(keys, Audit(home.logs, self._clock), self._clock)
            return await make_link(administration, caller, None, address, question, expires_in_s or DEFAULT_LINK_S)

    # -- reminders ------------------------------------------------------------------------------------------------

    async def reminders(
        self, address: Address, limit: int = _ITEMS, cursor: str | None = None
    ) -> objects.Page[objects.Reminder]:
        """Return a page of an agent's reminders, by name."""
        return await self._stores.read_journal(lambda store: reminders.reminder_page(store, address, limit, cursor))

    async def cancel_reminder(self, address: Address, name: str) -> objects.CancelledReminder:
        """Cancel a reminder of an agent, durably; a message that it has sent stays in the inbox.

        Raises:
            UnknownAgent, NotFound: there is none of that name.
        """
        await self._stores.write(lambda store, _: reminders.cancel(store, address, name))
        return objects.CancelledReminder(agent=address.name, name=name)

    # -- models ---------------------------------------------------------------------------------------------------

    async def model_calls(
        self, tenant: str, owner: str | None, profile: str | None, limit: int = _ITEMS, cursor: str | None = None
    ) -> objects.Page[model_calls.ModelCall]:
        """Return a page of a tenant's calls of models, the latest first."""
        from coordinator.homes.opening import open_records  # noqa: PLC0415

        log = open_records(self._stores.home).call_log()
        return await asyncio.to_thread(model_calls.call_page, log, tenant, owner, profile, limit, cursor)

    # -- history --------------------------------------------------------------------------------------------------

    async def version(self, address: Address) -> int:
        """Return the seq of an agent's last event.

        Raises:
            UnknownAgent: there is no such agent.
        """
        return await self._stores.read_journal(lambda store: history.version(store, address))

    async def events(
        self,
        address: Address,
        *,
        after_seq: int = 0,
        types: Sequence[str] = (),
        limit: int = _ITEMS,
        cursor: str | None = None,
    ) -> objects.EventPage:
        """Return a page of an agent's events, oldest first; see `history.event_page`."""
        page = await self._stores.read(
            history.event_page, address, after_seq=after_seq, types=types, limit=limit, cursor=cursor
        )
        return replace(page, items=tuple(map(self._shown, page.items)))

    def _shown(self, event: objects.Event) -> objects.Event:
        """Return an event as the caller may see it."""
        return event

    async def difference(
        self, address: Address, before: int | None, after: int | None, other: Address | None
    ) -> objects.Difference:
        """Return the differences between two turns; see `history.difference`."""
        return await self._stores.read(history.difference, address, before, after, other)

    async def fork(self, address: Address, key: str, turn: int | None = None) -> objects.Forked:
        """Make an agent of the same type that continues another one; see `branches.fork`.

        Raises:
            QuotaExceeded: the tenant has as many agents, or bytes, as it may have.
        """
        target = Address(address.agent_type, key, address.tenant)
        await self._quotas.check(lambda quotas: quotas.check_fork(target))
        now_ms = self._clock.now_ms()
        forked, _ = await self._stores.write(
            lambda store, _: branches.fork(store, address, turn, key, self._ids, now_ms)
        )
        return forked

    async def rewind(self, address: Address, turn: int, only: Collection[Part] | None = None) -> objects.Rewound:
        """Return an agent to a turn, as a turn of its own; one that is awake is put to sleep for it.

        Args:
            only: the parts to restore; all if ``None``.

        Raises:
            UnknownAgent: there is no such agent, or it never started.
            UnknownMoment: it has not committed that turn.
        """
        now_ms = self._clock.now_ms()
        try:
            done = await self._stores.write(branches.rewind, address, turn, only, self._ids, now_ms)
        except AgentAwake as awake:
            answer = await (await self._service_of(awake)).rewind(str(address), turn, only)
            done = await self._stores.read(branches.rewound_by_service, address, turn, only, answer)
        else:
            if done.made is not None:
                await self._wake_if_waiting(address)
        return branches.rewound_object(done.plan, done.made)
