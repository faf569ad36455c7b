"""Load on a fleet, and the faults that it is to survive.

Clients outside send to clerks through all gateways (`tests.e2e.chaos.sender`), while something of the fleet is killed,
cut off or restarted. After each fault the next one comes when all agents have answered further messages; some seconds
after it the clients send little, until shortly before the next one. At the end `tests.e2e.chaos.judge` compares what
there is with what the clients were told.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.cluster.fleet import CONTROL, RAYLET
from tests.e2e.chaos.judge import told
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.cluster.fleet import Fleet
    from tests.cluster.machines import Machine, Started

__all__ = ["ALL_FAULTS", "FAULTS", "Chaos"]

TYPES: Final = ("clerk", "sharedclerk")
PROCESSES: Final = {
    "host": "ray::HostActor",
    "node manager": "ray::NodeManagerActor",
    "coordinator": "ray::CoordinatorActor",
    "mount server": "chronicle.fuse.zygote.main",
    "store process": "coordinator.store.process",
    "service": "coordinator.service.daemon",
}
"""What is killed and started again by others, by a part of its command line."""
FAULTS: Final = (
    *("host", "store process", "coordinator", "podium node", "gateway", "database", "node manager", "object store"),
    *("link", "raylet", "power"),
)
"""Those of machines."""
ALL_FAULTS: Final = (
    *(*FAULTS, "client", "mount server", "service", "power of a gateway"),
    *("bucket away", "control process", "power of the head"),
)
"""Those of one machine, too, and those that take their time."""
AWAY_S: Final = 3.0
"""For the object store."""
LONG_AWAY_S: Final = 60.0
"""The same, in the long form."""
RECOVERY_S: Final = 600.0
"""For anything on a busy machine; what happens within it is checked at the end."""


class Chaos:
    """Clients of a fleet, what they were told, and faults.

    Args:
        directory: for what clients and agents write.
        clients: how many programs send.
        keys: agents of each type.
        seed: of the choice of what is hit.
    """

    def __init__(self, fleet: Fleet, directory: Path, *, clients: int, keys: int, seed: int) -> None:
        self.fleet = fleet
        self.directory = directory
        self.draw = random.Random(seed)
        self._agents = [f"{agent_type}/{key}" for key in range(keys) for agent_type in TYPES]
        self._clients: list[Started] = []
        self._started = 0
        directory.mkdir(exist_ok=True)
        for _ in range(clients):
            self._start_client()

    def _start_client(self) -> None:
        """Start a client, which has messages of its own."""
        self._started += 1
        self._clients.append(
            self.fleet.outside.start(
                *(
                    "python",
                    "-m",
                    "tests.e2e.chaos.sender",
                    ",".join(self.fleet.urls),
                    f"{self.directory.name}-client{self._started}",
                ),
                *(str(self.directory), *self._agents),
                log="clients",
                environment={"PODIUM_KEY": self.fleet.key},
            )
        )

    # -- what happens -----------------------------------------------------------------------------------------------

    def play(self, faults: Sequence[str], answers: int) -> None:
        """Have the faults happen one after the other, each under load, and mend what nobody else does."""
        for fault in faults:
            (self.directory / "fault").touch()
            self.wait_for_answers(answers, f"what was before: {fault}")
            (self.directory / "fault").touch()  # the load that has begun lasts some seconds more
            print("fault", fault, len(told(self.directory, "answered")), f"{time.monotonic():.1f}", flush=True)
            self.suffer(fault, answers)
            self.wait_for_answers(answers, fault)
            self.fleet.restart_rays()

    def suffer(self, fault: str, answers: int) -> None:
        """Have a fault happen, and mend it when all agents have answered."""
        fleet, draw = self.fleet, self.draw
        gateway = draw.choice(fleet.gateways)
        match fault:
            case "client":
                client = self._clients.pop(draw.randrange(len(self._clients)))
                client.kill()
                client.wait()
                self._start_client()
            case "gateway":
                fleet.kill_podium(gateway)
                self.wait_for_answers(answers, fault)
                fleet.start_gateway(gateway)
            case "power of a gateway":
                gateway.lose_power()
                self.wait_for_answers(answers, fault)
                fleet.boot(gateway)
            case "podium node":
                machine = self._busiest()
                fleet.kill_podium(machine)
                self._wait_until_gone(machine, answers, fault)
                fleet.start_node(machine)
            case "database":
                fleet.restart_database()
            case "object store" | "bucket away":
                store = fleet.network.machines["s3"]
                store.cut()
                time.sleep(AWAY_S if fault == "object store" else LONG_AWAY_S)
                store.mend()
            case "power of the head":
                fleet.head.lose_power()
                fleet.boot(fleet.head)
            case "control process":
                assert fleet.head.kill(CONTROL)
                fleet.podium(fleet.head, "down")
                fleet.restart_cluster()
            case "link":
                machine = self._busiest()
                machine.cut()
                self._wait_until_gone(machine, answers, fault)
                machine.mend()  # the copies there go on, and learn that there are others
            case "power":
                machine = self._busiest()
                machine.lose_power()
                self._wait_until_gone(machine, answers, fault)
                fleet.boot(machine)
            case "raylet":
                machine = self._busiest()
                machine.kill(RAYLET)
                self._wait_until_gone(machine, answers, fault)
            case _:
                self._kill_one(PROCESSES[fault])

    def _busiest(self) -> Machine:
        """The machine with the most agents, of those that may be lost: the first one has Ray's control process."""
        places = self.fleet.places()
        return max(self.fleet.nodes[1:], key=lambda machine: places.get(machine.name, {}).get("agents", 0))

    def _wait_until_gone(self, machine: Machine, answers: int, fault: str) -> None:
        """Wait until a machine is known to be lost, and its agents have answered elsewhere."""
        wait_until(lambda: not self.fleet.is_used(machine), f"{machine.name} is not lost: {fault}", RECOVERY_S)
        self.wait_for_answers(answers, fault)

    def _kill_one(self, text: str) -> None:
        """Kill one process of any machine; an agent may sleep, and none of a kind run."""
        found = [pid for machine in self.fleet.nodes for pid in machine.processes(text)]
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.draw.choice(found), signal.SIGKILL)

    # -- what follows -----------------------------------------------------------------------------------------------

    def wait_for_answers(self, more: int, after: str) -> None:
        """Wait until each agent has answered so many further messages."""
        before = self._answered()

        def are_behind() -> list[str]:
            now = self._answered()
            return [agent for agent in self._agents if now[agent] < before[agent] + more]

        wait_until(lambda: not are_behind(), f"no answers after: {after}", RECOVERY_S)
        assert all(client.runs() for client in self._clients), "a client has failed"

    def _answered(self) -> Counter[str]:
        """How many messages each agent has answered."""
        return Counter(line.split()[0] for line in told(self.directory, "answered"))

    def finish(self) -> None:
        """Have the clients end when all their messages are answered, and judge."""
        print("end", len(told(self.directory, "answered")), f"{time.monotonic():.1f}", flush=True)
        (self.directory / "enough").touch()
        for client in self._clients:
            assert client.wait(RECOVERY_S) == 0, "a client has failed"
        outside = self.fleet.outside
        outside.run(
            *("python", "-m", "tests.e2e.chaos.judge", str(self.directory), *self._agents),
            environment=self.fleet.environment(outside),
        )

        for machine in self.fleet.nodes:
            for log in self.fleet.home(machine).glob("logs/*"):
                assert "Exception in callback" not in log.read_text(errors="replace"), f"{machine.name} {log.name}"

    def end(self) -> None:
        """Kill the clients that a failed test left."""
        for client in self._clients:
            client.kill()
            client.wait()
