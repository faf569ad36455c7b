"""The operations of a client that are one request each: the client's table.

A method is a row: its signature and its documentation for programs, and the `Request` that both backends know. Lists
are in `coordinator.client.paging`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coordinator.client.backends.port import Request
from coordinator.client.texts import address_of
from coordinator.client.twin import Twin, waiting
from coordinator.operations import objects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from coordinator.client.backends.port import Backend

__all__ = ["AsyncRequests", "Requests"]


class AsyncRequests:
    """The methods of `coordinator.client.AsyncPodium` that are one request each."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def message(self, agent: str, message_id: str) -> objects.Message:
        """Return a message and its outcome so far.

        Raises:
            ResourceNotFound: no such message.
        """
        request = Request("GET", "messages/{message_id}", "message", lambda: objects.Message)
        return await self._backend.call(request, address_of(agent), message_id=message_id)

    async def read(self, agent: str, message: dict[str, Any]) -> objects.ReadResult:
        """Call a read-only handler of an agent, beside its turns; nothing is recorded.

        Args:
            message: ``{"handler": NAME, "input": {...}}``.

        Raises:
            ResourceNotFound: no such agent.
            InvalidRequest: the message does not fit, or names no read-only handler.
            ServerFailed: the handler failed.
        """
        request = Request("POST", "read", "read_only", lambda: objects.ReadResult)
        return await self._backend.call(request, address_of(agent), message=message)

    async def cancel(self, agent: str, message_id: str) -> None:
        """Cancel a pending, running, paused or parked message: its turn is rolled back; durable on return.

        Raises:
            RequestConflict: it was handled already.
        """
        request = Request("POST", "messages/{message_id}/cancel", "cancel", lambda: objects.Message)
        await self._backend.call(request, address_of(agent), message_id=message_id)

    async def cancel_reminder(self, agent: str, name: str) -> None:
        """Cancel a reminder of an agent; a message that it has sent already stays in the inbox.

        Raises:
            ResourceNotFound: the agent has no such reminder.
        """
        request = Request("DELETE", "reminders/{name}", "cancel_reminder", lambda: objects.CancelledReminder)
        await self._backend.call(request, address_of(agent), name=name)

    async def retry(self, agent: str, message_id: str, *, drop_steps: bool = False) -> None:
        """Make a parked message pending again, at its place in the inbox, and wake the agent.

        Args:
            drop_steps: its next attempt runs all steps anew.

        Raises:
            RequestConflict: its steps are to be dropped, and it is pending at an agent that is awake.
        """
        request = Request("POST", "messages/{message_id}/retry", "retry", lambda: objects.Message)
        await self._backend.call(request, address_of(agent), message_id=message_id, drop_steps=drop_steps)

    async def drop(self, agent: str, message_id: str) -> None:
        """Remove a pending, paused or parked message permanently; one that is being handled is cancelled."""
        request = Request("POST", "messages/{message_id}/drop", "drop", lambda: objects.Message)
        await self._backend.call(request, address_of(agent), message_id=message_id)

    async def paused_run(self, run_id: str) -> objects.PausedRunFiles:
        """Return a paused run, and which files its turn has changed so far.

        Raises:
            ResourceNotFound: no such run.
            RequestConflict: it is not paused (``run_not_paused``).
        """
        request = Request("GET", "/runs/{run_id}", "run", lambda: objects.PausedRunFiles)
        return await self._backend.call(request, run_id=run_id)

    async def resume(
        self,
        run_id: str,
        decision: Any,
        *,
        call_id: str | None = None,
        args_hash: str | None = None,
        promise: str | None = None,
    ) -> objects.Resumed:
        """Answer a paused run, which then goes on; durable on return. `AsyncPodium.follow` reads what it says.

        Args:
            run_id: the id of its message.
            decision: JSON that fits the schema of the request.
            call_id, args_hash: the request that is answered; by default the one that is open.
            promise: the name of the promise that is resolved; by default what is open.

        Raises:
            ResourceNotFound: no such run.
            RequestConflict: it does not wait for this answer (``run_not_paused``), or the answer is late
                (``decision_expired``).
            InvalidRequest: the answer does not fit the schema (``invalid_decision``).
        """
        request = Request("POST", "/runs/{run_id}/decision", "decide", lambda: objects.Resumed)
        return await self._backend.call(
            request, run_id=run_id, answer=decision, call_id=call_id, args_hash=args_hash, promise=promise
        )

    async def reject(self, run_id: str, reason: str, *, promise: str | None = None) -> objects.Resumed:
        """Reject the promise that a paused run waits for, which then goes on; durable on return.

        Args:
            run_id: the id of its message.
            reason: why; the agent gets it with `podium.PromiseRejected`.
            promise: the name of the promise; by default the one that is open.

        Raises:
            ResourceNotFound: no such run.
            RequestConflict: it does not wait for it (``run_not_paused``), or it is late (``decision_expired``).
            InvalidRequest: it waits for something else than a promise (``invalid_decision``).
        """
        request = Request("POST", "/runs/{run_id}/decision", "decide", lambda: objects.Resumed)
        return await self._backend.call(request, run_id=run_id, rejection=reason, promise=promise)

    async def link(
        self, run_id: str, *, promise: str | None = None, expires_in_s: int | None = None
    ) -> objects.RunLink:
        """Make a link by which whoever has it answers, once, what a paused run waits for now, and nothing else.

        Args:
            run_id: the id of its message.
            promise: the name of the promise; by default what is open.
            expires_in_s: by default two days; it ends with the question at the latest.

        Raises:
            ResourceNotFound: no such run.
            RequestConflict: it waits for nothing, or for something else (``run_not_paused``).
            InvalidRequest: it would live for more than 30 days.
        """
        request = Request("POST", "/runs/{run_id}/links", "link", lambda: objects.RunLink)
        return await self._backend.call(request, run_id=run_id, promise=promise, expires_in_s=expires_in_s)

    async def agent(self, agent: str) -> objects.Agent:
        """Return one agent.

        Raises:
            ResourceNotFound: there is none.
        """
        return await self._backend.call(Request("GET", "", "agent", lambda: objects.Agent), address_of(agent))

    async def delete(self, agent: str, *, detach: bool = False) -> objects.Deleted:
        """Delete an agent permanently: its events, state, files and messages.

        Args:
            detach: detach forks first; they lose the history that they inherited.

        Raises:
            RequestConflict: forks read its history, or it is awake.
        """
        request = Request("DELETE", "", "delete", lambda: objects.Deleted)
        return await self._backend.call(request, address_of(agent), detach=detach)

    async def fork(self, agent: str, key: str, *, at: int | None = None) -> objects.Forked:
        """Make a new agent that continues another one, with its state, files and history.

        Args:
            key: the new agent's; its type is the other one's.
            at: the turn that it continues; the last one by default.

        Raises:
            RequestConflict: there is an agent of that key already.
        """
        request = Request("POST", "fork", "fork", lambda: objects.Forked, {"turn": "at"})
        return await self._backend.call(request, address_of(agent), key=key, turn=at)

    async def rewind(self, agent: str, turn: int, *, only: Sequence[str] = ()) -> objects.Rewound:
        """Return an agent to an earlier turn, as a new turn; nothing is deleted.

        Args:
            only: the parts to restore, of ``state``, ``files`` and ``transcript``; all by default.

        Raises:
            ResourceNotFound: it has no such turn.
        """
        request = Request("POST", "rewind", "rewind", lambda: objects.Rewound)
        return await self._backend.call(request, address_of(agent), turn=turn, only=list(only) or None)

    async def fold(
        self, agent: str, *, keep_turns: int | None = None, keep_days: float | None = None, dry_run: bool = False
    ) -> objects.Folded:
        """Drop the older history of an agent for good; state, files and versions of files stay.

        Args:
            keep_turns: keep the last turns, so many at least.
            keep_days: keep what is younger at least. Without both limits all history before now is dropped.
            dry_run: change nothing, and return what would be done.

        Raises:
            RequestConflict: it is awake, or forks read what would be dropped.
        """
        request = Request("POST", "fold", "fold", lambda: objects.Folded)
        limits = {"keep_turns": keep_turns, "keep_days": keep_days}
        return await self._backend.call(request, address_of(agent), **limits, dry_run=dry_run)

    async def erase(self, agent: str, events: Sequence[str]) -> objects.Erased:
        """Erase the content of messages, replies, results and artifacts for good; the chain of events still verifies.

        Args:
            events: ids of events, or of artifacts.

        Raises:
            ResourceNotFound: the agent has no event of one of the ids; nothing was erased.
        """
        request = Request("POST", "erase", "erase", lambda: objects.Erased, {"event_ids": "events"})
        return await self._backend.call(request, address_of(agent), event_ids=list(events))

    async def import_archive(self, agent: str, content: bytes | AsyncIterator[bytes]) -> objects.Imported:
        """Create an agent from an archive, which is verified as a whole before anything is written.

        Args:
            agent: the address of the new agent.
            content: what `export` yielded.

        Raises:
            RequestConflict: there is an agent of that address.
            InvalidRequest: the content is no archive, or a damaged one.
            PermissionDenied: the key is not an operator's.
        """
        request = Request("PUT", "archive", "import_agent", lambda: objects.Imported)
        return await self._backend.call(request, address_of(agent), content=content)

    async def why(self, agent: str) -> objects.Why:
        """Return what an agent waits for, and what is known of its host, its lease, its inbox and its last failures.

        Raises:
            ResourceNotFound: no such agent.
        """
        return await self._backend.call(Request("GET", "why", "why", lambda: objects.Why), address_of(agent))

    async def types(self) -> list[objects.AgentClass]:
        """Return the agent types that are known, with the JSON Schemas of their typed messages.

        Raises:
            PermissionDenied: the key may not read, or is for one agent.
            ServerFailed: no service runs.
        """
        request = Request("GET", "/types", "types", lambda: objects.AgentClassList)
        return list((await self._backend.call(request)).items)

    async def nodes(self) -> list[objects.Node]:
        """Return the nodes that run agents.

        Raises:
            PermissionDenied: the key is not an operator's.
            ServerFailed: no service runs.
        """
        return list((await self._backend.call(Request("GET", "/nodes", "nodes", lambda: objects.NodeList))).items)

    async def drain(self, node: str, *, undo: bool = False) -> objects.Node:
        """Move the agents of a node to other nodes after their running turns, and keep it empty; return the node.

        Args:
            undo: use a drained node again instead.

        Raises:
            ResourceNotFound: no such node.
            PermissionDenied: the key is not an operator's.
        """
        request = Request("POST", "/nodes/{node}/drain", "drain", lambda: objects.Node)
        return await self._backend.call(request, node=node, undo=undo)

    async def deploys(self) -> list[objects.Deploy]:
        """Return the deploys of the home's code, the current one last.

        Raises:
            PermissionDenied: the key may not deploy.
        """
        request = Request("GET", "/deploys", "deploys", lambda: objects.DeployList)
        return list((await self._backend.call(request)).items)

    async def deploy(self, content: bytes | AsyncIterator[bytes]) -> objects.Deployed:
        """Make a code bundle that of the home's agents, which move to it after their running turns.

        Args:
            content: as `podium.code.transfer.sent` yields it.

        Raises:
            InvalidRequest: it is no bundle, a damaged one, or a larger one than may be.
            RequestConflict: another deploy was made at the same moment.
            PermissionDenied: the key may not deploy.
        """
        request = Request("PUT", "/deploys/current", "deploy", lambda: objects.Deployed)
        return await self._backend.call(request, content=content)

    async def deploy_previous(self) -> objects.Deployed:
        """Make the code of the deploy before the current one current.

        Raises:
            ResourceNotFound: there is none.
            RequestConflict, PermissionDenied: as of `deploy`.
        """
        return await self._backend.call(
            Request("POST", "/deploys/previous", "deploy_previous", lambda: objects.Deployed)
        )

    async def withdraw_deploy(self) -> objects.Deployed:
        """Have agents run the files of the service's machine again.

        Raises:
            RequestConflict, PermissionDenied: as of `deploy`.
        """
        return await self._backend.call(
            Request("DELETE", "/deploys/current", "withdraw_deploy", lambda: objects.Deployed)
        )

    async def passivate(self, agent: str) -> None:
        """Put an agent to sleep after its running turn; return when it sleeps."""
        request = Request("POST", "passivate", "passivate", lambda: objects.Passivated)
        await self._backend.call(request, address_of(agent))

    async def verify(self, agent: str) -> objects.Verification:
        """Check all stored data of an agent against its hashes. Damage is returned, not raised."""
        request = Request("POST", "verify", "verify", lambda: objects.Verification)
        return await self._backend.call(request, address_of(agent))

    async def state(self, agent: str, *, at: int | None = None) -> objects.State:
        """Return an agent's committed state.

        Args:
            at: the turn at whose end it is; the last one by default.

        Raises:
            ResourceNotFound: no such agent, or no such turn.
        """
        request = Request("GET", "state", "history.state_object", lambda: objects.State, {"turn": "at"})
        return await self._backend.call(request, address_of(agent), turn=at)

    async def context(self, agent: str, *, at: int | None = None) -> objects.ModelContext:
        """Return what an agent's models were sent in a turn, and what they answered.

        Args:
            at: the turn; the last one with calls of models by default.

        Raises:
            ResourceNotFound: no such agent, or no such turn.
        """
        request = Request("GET", "context", "history.context_object", lambda: objects.ModelContext, {"turn": "at"})
        return await self._backend.call(request, address_of(agent), turn=at)

    async def diff(
        self, agent: str, before: int | None = None, after: int | None = None, *, other: str | None = None
    ) -> objects.Difference:
        """Return the differences between two turns, of an agent or of two agents: in state, files and transcript.

        Args:
            before: a turn of the agent; the last one by default.
            after: another one; the last one by default.
            other: the agent that ``after`` is a turn of, such as a fork; by default the same one.
        """
        names = {"before": "from", "after": "to", "other": "with"}
        request = Request("GET", "diff", "history.difference", lambda: objects.Difference, names)
        compared = address_of(other) if other is not None else None
        return await self._backend.call(request, address_of(agent), before=before, after=after, other=compared)

    async def find_artifact(self, artifact_id: str) -> objects.FoundArtifact:
        """Return an artifact by its id alone, with an agent that has it.

        Raises:
            ResourceNotFound: no agent has it.
        """
        request = Request(
            "GET", "/artifacts/{artifact_id}", "artifacts.artifact_of_tenant", lambda: objects.FoundArtifact
        )
        return await self._backend.call(request, artifact_id=artifact_id)


class Requests(Twin):
    """The blocking twin of `AsyncRequests`."""

    message = waiting(AsyncRequests.message)
    read = waiting(AsyncRequests.read)
    cancel = waiting(AsyncRequests.cancel)
    cancel_reminder = waiting(AsyncRequests.cancel_reminder)
    retry = waiting(AsyncRequests.retry)
    drop = waiting(AsyncRequests.drop)
    paused_run = waiting(AsyncRequests.paused_run)
    resume = waiting(AsyncRequests.resume)
    link = waiting(AsyncRequests.link)
    reject = waiting(AsyncRequests.reject)
    agent = waiting(AsyncRequests.agent)
    delete = waiting(AsyncRequests.delete)
    fork = waiting(AsyncRequests.fork)
    rewind = waiting(AsyncRequests.rewind)
    fold = waiting(AsyncRequests.fold)
    erase = waiting(AsyncRequests.erase)
    import_archive = waiting(AsyncRequests.import_archive)
    why = waiting(AsyncRequests.why)
    types = waiting(AsyncRequests.types)
    nodes = waiting(AsyncRequests.nodes)
    drain = waiting(AsyncRequests.drain)
    deploys = waiting(AsyncRequests.deploys)
    deploy = waiting(AsyncRequests.deploy)
    deploy_previous = waiting(AsyncRequests.deploy_previous)
    withdraw_deploy = waiting(AsyncRequests.withdraw_deploy)
    passivate = waiting(AsyncRequests.passivate)
    verify = waiting(AsyncRequests.verify)
    state = waiting(AsyncRequests.state)
    diff = waiting(AsyncRequests.diff)
    find_artifact = waiting(AsyncRequests.find_artifact)
