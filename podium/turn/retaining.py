"""Retention of an agent's history: expired events are dropped, and marks appended at which history can begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import BranchInUse
from podium.history.branching import rolled_back_trees
from podium.history.fold import mark_commit, plan_retention

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.journal.records import Commit
    from podium.agent_record import AgentRecord
    from podium.history.retention import Retention
    from podium.turn.journal.commit import NextCommit
    from podium.turn.journal.ledger import Ledger
    from podium.turn.ports import Environment

    Append = Callable[[Callable[[NextCommit], Commit]], Awaitable[object]]

__all__ = ["retain"]


async def retain(
    retention: Retention, env: Environment, ledger: Ledger, read: Callable[[], Awaitable[AgentRecord]], append: Append
) -> None:
    """Drop expired history, and append a mark if one is due; each of the two is atomic and does not change the agent.

    Args:
        read: reads the agent at its head.
        append: builds a commit on top of the head, and commits it.

    Raises:
        Evicted: the lease is lost.
        ChronicleError: the retention was applied in part or not at all.
    """
    store, branch_id, now_ms = env.store, ledger.head.branch_id, env.clock.now_ms()
    todo = await ledger.read(lambda: plan_retention(store, store.branch(branch_id), retention, now_ms))
    if todo.fold_to is not None:
        try:
            await env.run_blocking(store.fold, branch_id, todo.fold_to.seq, now_ms)
        except BranchInUse:
            return  # forks read it; marks would pile up while they exist
    if todo.mark:
        record = await read()
        trees = await ledger.read(lambda: rolled_back_trees(store, env.blobs, record))
        await append(
            lambda at: mark_commit(record, at.head, trees, at.epoch, at.ids.event(at.now_ms), at.now_ms, at.large)
        )
