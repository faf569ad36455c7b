"""Runs a command under a policy, on the strongest rung that works here: what a step of a turn calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podium.sandbox.on_rung import run_on
from podium.sandbox.probe import best_rung

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from podium.sandbox.egress.proxy import OnDenied
    from podium.sandbox.on_rung import Stream
    from podium.sandbox.policy import Ended, Policy

__all__ = ["run"]


async def run(
    argv: Sequence[str],
    policy: Policy,
    *,
    on_output: Callable[[Stream, bytes], Awaitable[None]],
    on_denied: OnDenied | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
) -> Ended:
    """Run a command to its end, and end all that it has left running.

    Cancellation kills all of it, and is raised when that has happened; so does the death of this process.

    Args:
        argv: the program, found by the policy's ``PATH``, and its arguments.
        policy: what it may do; its paths have to be there.
        on_output: gets each piece of output as it comes; the command waits for it.
        on_denied: gets what a network of some hosts has kept it from, each once; that connection waits for it.
        cwd: an absolute path; the first writable one by default.
        stdin: all that it reads.

    Raises:
        SandboxRefused: no rung here keeps the policy; nothing was run.
        CommandNotStarted: there is no such program, or the policy keeps it from being read.
    """
    rung = await best_rung(policy)
    return await run_on(rung, argv, policy, on_output=on_output, on_denied=on_denied, cwd=cwd, stdin=stdin)
