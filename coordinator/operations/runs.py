"""Runs that pause: what they wait for, and answering one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from chronicle.errors import NotFound, UnsupportedFormat
from chronicle.ids import MessageId
from chronicle.workspace.trees.tree import EMPTY
from chronicle.workspace.trees.tree_diff import changes
from coordinator.operations import objects
from coordinator.operations.cursors import cursor_after, place_after
from coordinator.operations.history import change_of_path
from podium.address import Address, label
from podium.agent_record import find_session, read_agent
from podium.errors import RunNotFound, RunNotPaused, UnknownMoment
from podium.history.step_record import args_hash_of, base_turn_of, open_pause, roots_of
from podium.messages.answers import Answer, answer_run, question_of

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import InboxMessage, Session, StoredStep
    from chronicle.workspace.trees.tree_diff import Change
    from coordinator.operations.cursors import Rest
    from podium.messages.answers import Question

__all__ = ["agent_of", "decide", "paused_page", "paused_run", "question"]

_MAX_FILES: Final = 1_000
_COUNTED: Final = 1_000
"""Runs that are counted behind a page at most: a count of 100,000 would cost more than the page."""
_FIELDS: Final = tuple(field.name for field in fields(objects.PausedRun))


def paused_page(
    store: JournalStore, tenant: str | None, agent: Address | None, limit: int, cursor: str | None
) -> objects.Page[objects.PausedRun]:
    """Return a page of paused runs.

    Args:
        tenant: only of its agents; ``None`` for all, whose addresses are then whole.
        agent: only of this one, which has at most one.

    Raises:
        InvalidCursor: it is of another list.
        UnknownAgent: there is no such agent.
    """
    of = [tenant, str(agent) if agent is not None else None]
    after = place_after(cursor, "paused runs", of, -1)
    if agent is not None:
        session = find_session(store, agent)
        message = store.paused_message(session.session_id)
        steps = store.steps(message.message_id) if message is not None else ()
        found = _object(session, message, steps[-1], of_all=False) if message is not None and steps else None
        return objects.Page(items=[found] if found is not None else [])
    page = store.paused_messages(tenant, after=after, limit=limit + 1)
    rest: Rest = {"next_cursor": None, "remaining": 0}
    if len(page) > limit:
        page = page[:limit]
        last = page[-1].place
        left = store.count_paused(tenant, after=last, limit=_COUNTED + 1)
        rest = {
            "next_cursor": cursor_after("paused runs", of, last),
            "remaining": left if left <= _COUNTED else None,
        }
    items = [
        _object(each.session, each.message, each.step, of_all=tenant is None) for each in page if each.step is not None
    ]
    return objects.Page(items=[item for item in items if item is not None], **rest)


def agent_of(store: JournalStore, tenant: str, run_id: str) -> Address:
    """Return the agent of a run.

    Raises:
        RunNotFound: no agent of the tenant has it.
    """
    try:
        session = store.session_of_id(store.message(MessageId(run_id)).session_id)
    except NotFound as error:
        raise RunNotFound(f"no run {run_id}") from error
    if session.namespace != tenant:
        raise RunNotFound(f"no run {run_id}")
    return Address.of(session)


def decide(store: JournalStore, address: Address, run_id: str, answer: Answer, now_ms: int) -> objects.Resumed:
    """Answer a paused run, durably. The caller wakes its agent.

    Raises:
        RunNotFound, RunNotPaused, DecisionExpired, DecisionInvalid: the answer is not taken.
    """
    session = find_session(store, address)
    answer_run(store, session, MessageId(run_id), answer, now_ms)
    return objects.Resumed(run_id=run_id, agent=address.name)


def question(
    store: JournalStore, tenant: str, run_id: str, promise: str | None, request: str | None, now_ms: int
) -> tuple[Address, Question]:
    """Return what a run of a tenant waits for, and its agent; see `question_of`."""
    address = agent_of(store, tenant, run_id)
    of = Answer(None, None, promise=promise, request=request)
    return address, question_of(store, find_session(store, address), MessageId(run_id), of, now_ms)


def paused_run(store: JournalStore, blobs: BlobReader, tenant: str, run_id: str) -> objects.PausedRunFiles:
    """Return a paused run, and which files its turn has changed so far.

    The files are those of the step at which it has paused, compared with those of the turn that it began on.

    Raises:
        RunNotFound: no agent of the tenant has it.
        RunNotPaused: it is not paused.
    """
    address = agent_of(store, tenant, run_id)
    session = find_session(store, address)
    message = store.paused_message(session.session_id)
    step = next(iter(store.steps(message.message_id)[-1:]), None) if message is not None else None
    found = _object(session, message, step, of_all=False) if message is not None and step is not None else None
    if found is None or step is None or found.run_id != run_id:
        raise RunNotPaused(f"run {run_id} is not paused")
    base, tree = base_turn_of(step.body), roots_of(step.body)[0][0]
    files: list[Change] | None = None
    with suppress(UnknownMoment):  # a rewind has left it, and its history was dropped
        before = read_agent(store, blobs, address, base).tree
        files = changes(blobs, before.tree_id if before is not None else EMPTY, tree.tree_id)
    return objects.PausedRunFiles(
        **{name: getattr(found, name) for name in _FIELDS},
        base_turn=base,
        files=tuple(change_of_path(change) for change in files[:_MAX_FILES]) if files is not None else None,
        files_changed=len(files) if files is not None else None,
    )


def _object(session: Session, message: InboxMessage, step: StoredStep, *, of_all: bool) -> objects.PausedRun | None:
    """Return a paused run as a JSON object; ``None`` if it goes on at this moment.

    One whose record cannot be read, of a newer version or forged, is one that nobody can answer.
    """
    try:
        pause = open_pause(step.body)
    except UnsupportedFormat as error:
        return objects.PausedRun(
            run_id=message.message_id,
            agent=label(session) if of_all else session.name,
            call_id=step.key,
            kind="decide",
            reason=str(error),
            schema=False,
            args_hash=None,
            expires=None,
        )
    if pause is None:
        return None
    return objects.PausedRun(
        run_id=message.message_id,
        agent=label(session) if of_all else session.name,
        call_id=step.key,
        kind=pause["kind"],
        reason=pause["reason"],
        schema=pause["schema"],
        args_hash=args_hash_of(step.body),
        expires=pause["expires"],
        agents=tuple(pause.get("agents", ())),
    )
