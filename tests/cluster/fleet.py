"""A home on a fleet of machines: PostgreSQL, an S3 server, Ray nodes, gateways, and a machine for clients.

* ``db`` and ``s3``: the servers, which have networks of these machines' and are processes of this one.
* ``n1`` … : the nodes of a Ray cluster that wants a token. On the first one is the service, ``podium up --ray``, on the
  others ``podium node``. With several clusters each has as many nodes; the services of all but the first stand by.
* ``g1`` … : a gateway each, ``podium up --join``. They have no Ray.
* ``out``: for programs that use the gateways, and for commands. It has neither service nor gateway nor Ray.

Each machine with podium has a directory of the home, and the credentials of the servers; Ray has none. What is killed
comes back by the methods of `Fleet`, which stand for what restarts services on real machines.
"""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.machines import Machine, Network, new_network
from tests.contract.postgres_server import PostgresServer, new_postgres
from tests.contract.test_home_in_postgres import url_of
from tests.s3_server import BUCKET, S3Server, running_s3
from tests.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.cluster.machines import Started

__all__ = ["APART", "CONTROL", "RAYLET", "Fleet", "running_fleet"]

CONTROL: Final = "/gcs/gcs_server"
"""A part of the command line of Ray's control process."""
RAYLET: Final = "/raylet/raylet"
"""A part of the command line of Ray's process of a node."""
APART: Final = "apart"
"""A resource of all nodes but the head."""
CPUS: Final = 4
"""Of each node, as Ray counts them: forty hosts."""
_RAY: Final = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "0",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
}
"""Ray takes a node for dead after some seconds, and wants a token of all that talk to it."""
_RAY_PORT: Final = 6379
_STORE_BYTES: Final = "100000000"
_START_S: Final = 600.0
"""For what is started again until it starts, on a busy machine."""
_GATEWAY_PORT: Final = 8700
_DOOR: Final = "8702"


class Fleet:
    """A home that is served on machines.

    Args:
        project: its project file, which all machines have.
        environment: of podium's processes, besides what they need.
        clusters: among how many Ray clusters the nodes are divided.
        of_machines: what podium's processes on some machines have besides, by their names.
    """

    def __init__(
        self,
        network: Network,
        postgres: PostgresServer,
        s3: S3Server,
        project: Path,
        environment: Mapping[str, str],
        clusters: int = 1,
        of_machines: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        self.network = network
        self.postgres = postgres
        self.s3 = s3
        self.nodes = [machine for name, machine in network.machines.items() if name.startswith("n")]
        self.gateways = [machine for name, machine in network.machines.items() if name.startswith("g")]
        self.outside = network.machines["out"]
        size = len(self.nodes) // clusters
        self._heads = {node.name: self.nodes[number // size * size] for number, node in enumerate(self.nodes)}
        self.heads = self.nodes[::size]
        """Those of all clusters."""
        self._project = project
        self._of_machines = of_machines
        self.conninfo: Final = f"host={network.machines['db'].address} user=journal dbname=postgres"
        """How machines connect to the database."""
        self.settings: Final = {
            "PODIUM_JOURNAL_URL": url_of(self.conninfo, "home"),
            "PODIUM_BLOBS_URL": f"s3://{BUCKET}/home",
            "AWS_ENDPOINT_URL_S3": s3.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_COLOR": "1",
            **environment,
        }
        """Of the home and its servers."""
        self.key = ""
        """Of clients."""
        self._podium_nodes: dict[str, Started] = {}
        self._gateways: dict[str, Started] = {}

    @property
    def head(self) -> Machine:
        """The machine of Ray's head and of the service."""
        return self.nodes[0]

    @property
    def ray_address(self) -> str:
        return _ray_address(self.head)

    def cluster(self, head: Machine) -> list[Machine]:
        """The nodes of the cluster of a head."""
        return [node for node in self.nodes if self._heads[node.name] is head]

    @property
    def urls(self) -> list[str]:
        """Those of the gateways."""
        return [f"http://{machine.address}:{_GATEWAY_PORT}" for machine in self.gateways]

    def home(self, machine: Machine) -> Path:
        """A machine's directory of the home."""
        return machine.directory / "root" / "home"

    def environment(self, machine: Machine) -> dict[str, str]:
        """What podium's processes on a machine have."""
        return {
            **self.settings,
            **self._of_machines.get(machine.name, {}),
            **_RAY,
            "PODIUM_HOME": str(self.home(machine)),
            "PODIUM_SERVICE_LISTEN": f"{machine.address}:{_DOOR}",
        }

    # -- what runs --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all of it."""
        self.key = self.podium(self.outside, "keys", "create", "load").stdout.strip()
        self.podium(self.outside, "deploy", "--project", str(self._project))
        for head in self.heads:
            self.start_ray(head)
        nodes = [node for node in self.nodes if node not in self.heads]
        with ThreadPoolExecutor() as threads:
            others = [threads.submit(self.start_ray, node) for node in nodes]
            for head in self.heads:
                self.start_service(head)
            for started in [
                *others,
                *(threads.submit(self.start_node, node) for node in nodes),
                *(threads.submit(self.start_gateway, gateway) for gateway in self.gateways),
            ]:
                started.result()
        for node in self.nodes[: len(self.nodes) // len(self.heads)]:
            self.wait_for(node)

    def start_ray(self, machine: Machine) -> None:
        """Start a node of the Ray cluster; what is left of one before is ended.

        On a busy machine Ray may give a start up, and is started again.
        """
        head = self._heads[machine.name]
        role = (
            ("--head", f"--port={_RAY_PORT}", "--include-dashboard=false")
            if machine is head
            else (f"--address={_ray_address(head)}",)
        )

        def has_started() -> bool:
            if machine.processes("/ray/"):
                machine.run("ray", "stop", "--force")
            done = machine.run(
                *("ray", "start", *role, f"--node-ip-address={machine.address}", f"--node-name={machine.name}"),
                *(f"--num-cpus={CPUS}", f"--object-store-memory={_STORE_BYTES}"),
                f"--resources={json.dumps({} if machine is head else {APART: 1})}",
                check=False,
                environment=_RAY,
            )
            said = done.stdout + done.stderr
            assert not done.returncode or "timed out during startup" in said, f"{machine.name}: {said}"
            return not done.returncode

        wait_until(has_started, f"{machine.name}: Ray does not start", _START_S)

    def restart_rays(self) -> None:
        """Start Ray again where it has ended: it was killed, or others have taken it for dead."""
        ended = [machine for machine in self.nodes if not machine.processes(RAYLET)]
        with ThreadPoolExecutor() as threads:
            list(threads.map(self.start_ray, ended))

    def start_service(self, head: Machine | None = None) -> None:
        """Start the service of a cluster, with the gateway that starts it again; harmless if both run.

        It is refused while the database takes the machine's service before for alive, whose power was lost.
        """
        head = head or self.head

        def is_up() -> bool:
            done = self.podium(
                *(head, "up", "--ray", _ray_address(head), "--project", str(self._project)),
                *("--detach", "--host", head.address, "--port", str(_GATEWAY_PORT)),
                *(("--standby",) if len(self.heads) > 1 else ()),
                check=False,
            )
            refused = "another service has this home" in done.stderr
            assert refused or not done.returncode, f"{done.returncode}\n{done.stdout}{done.stderr}"
            return not done.returncode

        wait_until(is_up, "the service does not start", _START_S)

    def restart_cluster(self) -> None:
        """Do what an operator does after the end of Ray's control process: start Ray anew everywhere, and the service.

        The service comes before the other nodes, on which hosts of the cluster before may live.
        """
        self.start_ray(self.head)
        self.start_service()
        with ThreadPoolExecutor() as threads:
            list(threads.map(self.start_ray, self.nodes[1:]))

    def start_node(self, machine: Machine) -> None:
        """Start ``podium node``; return when agents may come."""
        self._podium_nodes[machine.name] = self._start(machine, "node")

    def start_gateway(self, machine: Machine) -> None:
        """Start a gateway; return when it serves."""
        self._gateways[machine.name] = self._start(
            *(machine, "up", "--join", "--project", str(self._project)),
            *("--host", machine.address, "--port", str(_GATEWAY_PORT)),
        )

    def _start(self, machine: Machine, name: str, *arguments: str) -> Started:
        """Start a command of podium that goes on, and wait for what it says when it is ready."""
        log = machine.directory / name
        seen = log.stat().st_size if log.exists() else 0
        started = machine.start("podium", name, *arguments, "--json", log=name, environment=self.environment(machine))

        def is_ready() -> bool:
            said = log.read_bytes()[seen:].decode(errors="replace")
            assert started.runs(), f"{machine.name}: podium {name} has ended:\n{said}"
            return any(line.startswith("{") and line.endswith("}") for line in said.splitlines())

        wait_until(is_ready, f"{machine.name}: podium {name} is not ready")
        return started

    def podium(self, machine: Machine, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command of podium on a machine to its end."""
        return machine.run("podium", *arguments, check=check, environment=self.environment(machine))

    def ask(self, *arguments: str) -> Any:
        """Run a command outside with ``--json``, and return what it printed."""
        return json.loads(self.podium(self.outside, *arguments, "--json").stdout)

    def places(self) -> dict[str, dict[str, Any]]:
        """What ``podium nodes`` says, by the names of the nodes."""
        return {node["node"]: node for node in self.ask("nodes")["nodes"]}

    def is_used(self, machine: Machine) -> bool:
        """Whether a machine may have agents."""
        node = self.places().get(machine.name)
        return node is not None and node["problem"] is None

    def wait_for(self, machine: Machine) -> None:
        """Wait until a machine may have agents."""
        wait_until(lambda: self.is_used(machine), f"{machine.name} has no agents")

    # -- faults -----------------------------------------------------------------------------------------------------

    def kill_podium(self, machine: Machine) -> None:
        """Kill ``podium node``, or the gateway."""
        started = (self._podium_nodes | self._gateways)[machine.name]
        started.kill()
        started.wait()

    def restart_database(self) -> None:
        """Kill PostgreSQL with all its processes, and start it again."""
        self.postgres.kill()
        with self.network.machines["db"].network():
            self.postgres.start()

    def boot(self, machine: Machine) -> None:
        """Give a machine power again, and start what belongs there."""
        machine.boot()
        if machine in self.gateways:
            self.start_gateway(machine)
        elif machine is self.head:
            self.restart_cluster()
        else:
            self.start_ray(machine)
            self.start_node(machine)

    def print_logs(self) -> None:
        """Print the ends of all logs; pytest shows them with a failed test."""
        for machine in self.network.machines.values():
            for log in sorted([*machine.directory.glob("*"), *self.home(machine).glob("logs/*")]):
                if log.is_file():
                    print(
                        f"-- {machine.name} {log.name}", *log.read_text(errors="replace").splitlines()[-40:], sep="\n"
                    )


def _ray_address(head: Machine) -> str:
    return f"{head.address}:{_RAY_PORT}"


@contextlib.contextmanager
def running_fleet(
    directory: Path,
    project: Path,
    environment: Mapping[str, str],
    *,
    nodes: int = 3,
    gateways: int = 2,
    clusters: int = 1,
    of_machines: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Iterator[Fleet]:
    """Serve a home on machines.

    Args:
        directory: for the machines' disks; `project` is below it.
        environment: of podium's processes.
        nodes: how many, of all clusters together.
        gateways: how many.
        clusters: how many.
        of_machines: as of `Fleet`.
    """
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(new_network(directory))
        database, objects, _ = network.add("db", "s3", "out")
        network.add(*(f"n{number + 1}" for number in range(nodes)), *(f"g{number + 1}" for number in range(gateways)))
        postgres = stack.enter_context(new_postgres(address=database.address))
        with database.network():
            postgres.start()
        stack.callback(postgres.stop_at_once)
        with objects.network():
            s3 = stack.enter_context(running_s3(objects.directory, address=objects.address))
        fleet = Fleet(network, postgres, s3, project, environment, clusters, of_machines)
        try:
            fleet.start()
        except BaseException:
            fleet.print_logs()
            raise
        yield fleet
