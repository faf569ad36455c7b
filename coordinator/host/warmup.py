"""The warm-up of a host: it activates an agent of its own before it gets one.

The first activation of a process costs five times the CPU time of the next ones: statements are compiled, modules and
threads are made at their first use, the interpreter specialises the code that runs. A warm host has done that when it
gets its agent.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from chronicle.journal.committer import DirectCommitter
from chronicle.journal.opening import open_journal
from chronicle.journal.records import NewMessage
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.blocking import at_once
from podium.turn.activation import Activation
from podium.turn.ports import Environment

if TYPE_CHECKING:
    from chronicle.workspace.port import Opened
    from podium.turn.ports import WorkspaceRequest

__all__ = ["warm_up"]

_ACTOR: Final = Address("warm-up", "default")
_LIVES: Final = 2
"""The second one begins with a stored state."""
_LEASE_MS: Final = 60_000

_log = structlog.stdlib.get_logger("coordinator.host")


class _WarmUpAgent(BaseAgent):
    """Does a little of what agents do."""

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        await ctx.send_message(message["text"])


async def warm_up() -> None:
    """Activate an agent in a journal of its own, which is removed, and have it handle a message.

    A failure is logged: the first activation is slower then.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="podium-warm-up-") as directory:
            await _warm_up_in(Path(directory))
    except Exception:  # noqa: BLE001  an agent may be activated without it
        _log.exception("not_warmed_up")


async def _warm_up_in(directory: Path) -> None:
    clock, ids = SystemClock(), IdSource()
    with (
        closing(open_journal(str(directory / "journal.db"))) as store,
        closing(PackBlobStore(f"file://{directory / 'blobs'}")) as blobs,
    ):

        async def open_workspace(request: WorkspaceRequest) -> Opened:
            workspace_id = request.address.workspace_id
            spec = LayerSpec(workspace_id, directory / "layers", request.base, request.epoch, request.turn)
            return open_dir_workspace(spec, blobs, directory / "files", clock)

        environment = Environment(store, blobs, DirectCommitter(store), clock, ids, open_workspace, run_store=at_once)
        for _ in range(_LIVES):
            now_ms = clock.now_ms()
            session = store.ensure_session(_ACTOR.name, ids.session(now_ms), ids.branch(now_ms), now_ms)
            store.admit(session.session_id, NewMessage(ids.message(now_ms), b'{"text":"hello"}', now_ms))
            lease = store.acquire_lease(session.session_id, "warm-up", now_ms, _LEASE_MS)
            activation = Activation(_WarmUpAgent, _ACTOR, lease, environment)
            await activation.start()
            await activation.handle_next()
            await activation.stop()
            store.release_lease(session.session_id, lease.epoch)
