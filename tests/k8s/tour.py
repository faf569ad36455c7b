"""``make cluster-trial``: the cluster without Kubernetes as a command, which shows what it can do, and ends.

It says what is where. An agent handles a message on a mount of pyfuse3; then its worker gets the notice of a spot node
in the middle of a turn, and the agent goes on at another one. With ``--stay`` it then serves until Ctrl-C, or SIGTERM.
What it says is checked, so a tour that does not go as it says fails.
"""

from __future__ import annotations

import argparse
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tests.k8s.trial import Trial, running_trial, workers
from tests.leftovers import new_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["CHANGE", "place_of", "replied", "take_tour"]

_WORKERS: Final = 2
CHANGE: Final = {
    "workers": [workers(_WORKERS, 2 * _WORKERS)],
    "settings": {"fuse_transport": "pyfuse3"},
    "drainSeconds": 300,
}
"""The values of the tour's chart. A turn has 60 % of ``drainSeconds``, on a machine that may be slow."""
_AGENT: Final = """
import asyncio
import os
from pathlib import Path
from podium import BaseAgent, DeltaState

class Clerk(BaseAgent):
    idle_timeout_s = 600

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx, message):
        ctx.state.count += 1
        notes = ctx.workspace / "notes.txt"
        with notes.open("a") as file:
            file.write(message["text"] + "\\n")
        if gate := message.get("until"):
            (Path(gate) / "begun").touch()
            while not (Path(gate) / "open").exists():
                await asyncio.sleep(0.1)
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        above = [each for each in mounts if Path(os.path.realpath(notes)).is_relative_to(each[1])]
        kind = max(above, key=lambda each: len(each[1]))[2]
        ctx.reply({"count": ctx.state.count, "notes": notes.read_text().splitlines(), "file system": kind})
"""
_NAME: Final = "clerk/ann"
_WHERE: Final = """
The cluster serves at {url}, by a balancer before the gateways:

    export PODIUM_URL={url} PODIUM_KEY={key}
    podium nodes
    podium deploy && podium send AGENT hello        # in a project

{pods}
    {directory} has the pods' logs and disks
"""


def take_tour(trial: Trial, directory: Path, say: Callable[[str], None]) -> None:
    """Show, with a cluster that is ready, a turn, and the notice of a spot node in the middle of another one.

    Args:
        directory: for a project.
        say: is told what is done.
    """
    (directory / "clerk.py").write_text(_AGENT)
    (directory / "podium.toml").write_text('agents = ["clerk.py:Clerk"]\n')
    say("$ podium deploy        # a project with an agent, Clerk, that keeps notes in a file")
    trial.podium("deploy", "--project", str(directory / "podium.toml"))

    say(f"$ podium send {_NAME} 'the first'")
    answer = replied(trial.podium("send", _NAME, "the first", "--json"))
    say(f"{answer}")
    assert (answer["count"], answer["notes"]) == (1, ["the first"])
    assert answer["file system"].startswith("fuse"), answer
    place = place_of(trial, _NAME)
    say(f"It runs on {place.name}, and its files are on a mount of pyfuse3 there.\n")

    gate = trial.network.directory / "gate"  # pods have that in common with this machine
    gate.mkdir()
    gate.chmod(0o777)
    message = json.dumps({"text": "the second", "until": str(gate)})
    with ThreadPoolExecutor(1) as follower:
        say(f"$ podium send {_NAME} 'the second' &        # a turn that takes a while")
        sent = follower.submit(trial.podium, "send", _NAME, "--json-message", message, "--json")
        try:
            trial.wait(lambda: sent.done() or (gate / "begun").exists(), "the turn has not begun")
            say(f"A spot notice: the pod {place.name} is ended, and the turn runs.")
            ended = trial.end(place)
            trial.wait(lambda: place.name not in usable_workers(trial), "the worker takes agents still")
            say(f"{place.name} is drained: it waits for the turn, and takes no other.")
            assert place.runs("ray-worker")
        finally:
            (gate / "open").touch()
        answer = replied(sent.result())
    say(f"{answer}")
    assert (answer["count"], answer["notes"]) == (2, ["the first", "the second"])
    ended.result()
    say(f"The turn has ended, and {place.name} has gone.\n")

    say(f"$ podium send {_NAME} 'the third'")
    answer = replied(trial.podium("send", _NAME, "the third", "--json"))
    say(f"{answer}")
    assert (answer["count"], answer["notes"]) == (3, ["the first", "the second", "the third"])
    assert place_of(trial, _NAME) is not place
    assert "turn.failed" not in trial.podium("log", _NAME, "--json")
    say(f"It goes on at {place_of(trial, _NAME).name}, with its state and its files, and no attempt has failed.\n")


def usable_workers(trial: Trial) -> dict[str, str]:
    """Return the presentations of the workers that may have agents, by name."""
    nodes = json.loads(trial.podium("nodes", "--json"))["nodes"]
    there = [each for each in nodes if each["problem"] is None and not each["drained"]]
    return {each["node"]: each["presentation"] for each in there if "worker" in each["node"]}


def place_of(trial: Trial, agent: str) -> Any:
    """Return the pod of an agent that is awake."""
    return trial.pods[json.loads(trial.podium("why", agent, "--json"))["node"]]


def replied(lines: str) -> dict[str, Any]:
    """Return the value that an agent has replied with, of the frames of a message."""
    frames = [json.loads(line) for line in lines.splitlines()]
    (found,) = (frame["data"] for frame in frames if frame.get("data"))
    return dict(found)


def main() -> None:
    """Take the tour."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stay", action="store_true", help="serve until Ctrl-C after the tour")
    parser.add_argument("--port", type=int, default=0, help="of the balancer, on this machine")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), new_directory("podium-trial-") as directory:
        _say("PostgreSQL, a server that speaks S3, and the pods of the chart start, which takes a minute or two.")
        with running_trial(directory, CHANGE, port=options.port) as trial:
            trial.wait_until_ready()
            pods = "".join(f"    {name:24} {pod.machine.address}\n" for name, pod in sorted(trial.pods.items()))
            _say(_WHERE.format(url=trial.url, key=trial.key, pods=pods, directory=trial.network.directory))
            take_tour(trial, directory, _say)
            if options.stay:
                _say("It serves until Ctrl-C. Kill what you like: it is started again.")
                trial.wait_for_ever()
            _say("All of it ends, the workers first.")
            trial.end_workers()
            trial.end(trial.head).result()
    _say("It has ended.")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
