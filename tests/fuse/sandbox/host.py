"""A process that runs commands in sandboxes, as a host of agents would: for root, or for a plain user.

It reads a JSON object a line: ``rung`` (null: the best one), ``argv``, ``policy``, ``cwd``, ``limits``; it answers with
one: how the command ended and what it wrote, or the name and text of the error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from podium.errors import PodiumError
from podium.sandbox.on_rung import Stream, run_on
from podium.sandbox.policy import Limits, Policy
from podium.sandbox.running import run


async def answer(asked: dict[str, Any]) -> dict[str, Any]:
    output = bytearray()

    async def keep(_: Stream, piece: bytes) -> None:
        output.extend(piece)

    policy = asked["policy"]
    try:
        made = Policy(
            writable=tuple(map(Path, policy.pop("writable"))),
            readable=tuple(map(Path, policy.pop("readable"))),
            limits=Limits(**policy.pop("limits")),
            **policy,
        )
        if asked["rung"] is None:
            ended = await run(asked["argv"], made, on_output=keep)
        else:
            ended = await run_on(asked["rung"], asked["argv"], made, on_output=keep)
    except PodiumError as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {
        "status": ended.status,
        "limit": ended.limit,
        "rung": ended.rung,
        "restored": [*map(str, ended.restored)],
        "output": output.decode(errors="replace"),
    }


def main() -> None:
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            print(json.dumps(runner.run(answer(json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
