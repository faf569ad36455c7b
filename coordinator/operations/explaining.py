"""Why an agent does what it does, or does not: what the journal and the running service know of it, in one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from chronicle.journal.payloads import payload_of
from chronicle.journal.records import MessageStatus
from coordinator.operations import objects
from podium.agent_record import find_session
from podium.errors import UnknownAgent
from podium.events import TURN_FAILED

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BranchId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.ports.outbox import OutboxRecords
    from chronicle.journal.records import Lease
    from coordinator.fleet.facts import AgentFacts, HostFacts, QueueFacts
    from podium.address import Address
    from podium.events import TurnFailed

__all__ = ["outbox_object", "why_object"]

_SEARCHED: Final = 500
"""The last error is looked for among so many of the latest events: reading all of a long history takes seconds."""


def why_object(
    store: JournalStore, blobs: BlobReader, address: Address, facts: AgentFacts | None, now_ms: int
) -> objects.Why:
    """Return what is known of an agent, and what it waits for.

    Args:
        facts: what the service knows; ``None`` if none runs.

    Raises:
        UnknownAgent: there is no such agent.
    """
    outbox = outbox_object(store, address, facts)
    try:
        session = find_session(store, address)
    except UnknownAgent:
        if outbox is None:
            raise
        return _not_made(address, outbox, facts)
    lease, head = store.lease(session.session_id), store.head(session.main_branch_id)
    in_force = lease if lease is not None and lease.expires_ms > now_ms else None
    pending = len(store.messages(session.session_id, MessageStatus.PENDING))
    host = facts["host"] if facts is not None else None
    retry = facts["retry"] if facts is not None else None
    return objects.Why(
        agent=address.name,
        status="awake" if in_force is not None else "asleep",
        waits_for=_waits_for(pending, in_force, facts, outbox),
        service=facts is not None,
        turn=head.turn,
        pending=pending,
        parked=len(store.messages(session.session_id, MessageStatus.PARKED)),
        outbox=outbox,
        message_id=host["message_id"] if host is not None else None,
        host_id=host["host_id"] if host is not None else None,
        node=host["node"] if host is not None else None,
        pid=host["pid"] if host is not None else None,
        isolation=host["isolation"] if host is not None else None,
        sandbox=host["sandbox"] if host is not None else None,
        sandbox_works=host["sandbox_works"] if host is not None else None,
        quarantine=facts["quarantine"] if facts is not None else None,
        epoch=lease.epoch if lease is not None else None,
        holder=in_force.holder if in_force is not None else None,
        lease_expires_at=in_force.expires_ms if in_force is not None else None,
        held=facts is not None and facts["held"],
        problem=facts["problem"] if facts is not None else None,
        retry_at=now_ms + round(retry["in_s"] * 1000) if retry is not None else None,
        failed_wakes=retry["failures"] if retry is not None else 0,
        wake_error=retry["error"] if retry is not None else None,
        last_death=facts["death"] if facts is not None else None,
        last_error=_last_error(store, blobs, session.main_branch_id, head.seq),
    )


def outbox_object(store: OutboxRecords, address: Address, facts: AgentFacts | None) -> objects.Outbox | None:
    """Return what is in the outbox for an agent, which need not exist; ``None`` if there is nothing.

    Args:
        facts: what the service knows; ``None`` if none runs.
    """
    sent_ms = [
        envelope.created_ms
        for envelope in store.outbox_envelopes()
        if (envelope.target, envelope.namespace) == (address.name, address.tenant)
    ]
    if not sent_ms:
        return None
    return objects.Outbox(
        messages=len(sent_ms),
        oldest_at=min(sent_ms),
        held_by=facts["outbox_held"] if facts is not None else None,
    )


def _not_made(address: Address, outbox: objects.Outbox, facts: AgentFacts | None) -> objects.Why:
    """Return what is known of an agent that does not exist yet, although other agents have sent messages to it."""
    return objects.Why(
        agent=address.name,
        status="asleep",
        waits_for=_waits_for(0, None, facts, outbox),
        service=facts is not None,
        outbox=outbox,
        problem=facts["problem"] if facts is not None else None,
    )


def _waits_for(pending: int, lease: Lease | None, facts: AgentFacts | None, outbox: objects.Outbox | None) -> str:
    """Return what an agent waits for, as the end of a sentence."""
    if facts is None:
        if lease is not None:
            return f"the end of {lease.holder}, which has its lease, or of that lease"
        return "a service: none runs" if pending or outbox is not None else "a message"
    if facts["held"]:
        return "the end of an operation that needs it asleep, such as a rewind"
    if (host := facts["host"]) is not None:
        return _waits_at(host, pending)
    if facts["over_quota"] is not None:
        return f"an agent of its tenant to sleep: {facts['over_quota']}"
    if (queue := facts["queue"]) is not None:
        return _waits_in(queue)
    if lease is not None:
        return f"the end of {lease.holder}, which has its lease"
    if not pending and outbox is not None:
        number = f"{outbox.messages} message{'s' if outbox.messages > 1 else ''}"
        why = f": {outbox.held_by}" if outbox.held_by is not None else ""
        return f"the delivery of {number} of other agents{why}"
    if not pending:
        return "a message"
    if facts["problem"] is not None:
        return f"its class, which cannot be loaded: {facts['problem']}"
    if not facts["known"]:
        return "a project or a command that names its class: no class of its type is known"
    if (retry := facts["retry"]) is not None:
        return f"the next attempt to wake it, in {retry['in_s']:.0f} s: {retry['error']}"
    return "its next message, `podium retry`, or an edit of its class: its last wake failed for good"


def _waits_at(host: HostFacts, pending: int) -> str:
    if not host["activated"]:
        return f"its activation in {host['host_id']}, which opens its workspace and loads its state"
    if host["silence"] is not None:
        return f"its host, which does not answer: {host['silence']}"
    if host["message_id"] is None:
        return "its host, which takes the next message" if pending else "a message"
    left_s = host["left_s"]
    if left_s is None:
        limit = "without a limit"
    else:
        limit = f"limit in {left_s:.0f} s" if left_s >= 0 else f"limit passed {-left_s:.0f} s ago"
    return f"the end of its turn for {host['message_id']} ({limit})"


def _waits_in(queue: QueueFacts) -> str:
    before, starting = queue["before"], queue["starting"]
    behind = f", behind {before} other agent{'s' if before > 1 else ''}" if before else ""
    lacking = ""
    if queue["lacking"] is not None:
        why = "a node, for which Ray's autoscaler is asked, as" if queue["asked"] else "other hosts have what it needs:"
        lacking = f"; {why} {queue['lacking']}"
    return f"a host of its class ({starting} starting){behind}{lacking}"


def _last_error(store: EventRecords, blobs: BlobReader, branch_id: BranchId, head_seq: int) -> objects.LastError | None:
    """Return the error of the last failed attempt, if it is not long ago."""
    last = None
    for event in store.events(branch_id, after_seq=max(0, head_seq - _SEARCHED), types=(TURN_FAILED,)):
        last = event if not event.erased else last
    if last is None:
        return None
    failed = cast("TurnFailed", payload_of(last, blobs))
    return objects.LastError(
        type=failed["error"]["type"],
        message=failed["error"]["message"],
        message_id=failed["message_id"],
        attempt=failed["attempt"],
        at=last.ts,
    )
