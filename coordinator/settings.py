"""Settings of a process, read once from the environment (``PODIUM_…``) by its main function and passed down.

Each field states its unit, its default and the reason. ``docs/settings.md`` lists them for users.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from chronicle.errors import InvalidInput
from coordinator.environment import DEFAULT_HOME
from coordinator.memory_limit import memory_limit

__all__ = ["Settings", "read_settings"]

_RUN_DIR_BYTES: Final = 40
"""The path of a socket has at most 107 bytes; those of an embedded Ray have 66 below this directory."""


class Settings(BaseSettings):
    """The settings of a process, frozen."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_", frozen=True, extra="ignore")

    home: Path = DEFAULT_HOME
    """The home directory, which holds all persistent data; ``--home`` takes precedence."""
    blobs_url: str = ""
    """Where a new home stores its blobs, such as ``s3://bucket/prefix``; empty: in the home. The home records the URL,
    and two homes cannot share one. The store must honour conditional creation (``If-None-Match: *``), return what it
    has acknowledged, and have about this machine's clock; one that does not is refused."""
    journal_url: str = ""
    """Where a new home keeps its journal, keys and quotas, such as ``postgresql://user@host/database``; empty: in the
    home. With one the blobs are in an object store, too. The home records the URL, without a password: give it again
    with one, or have libpq find it (``PGPASSFILE``). A new directory with the URL of a home becomes another directory
    of that home."""
    service_listen: str = ""
    """``HOST:PORT`` at which the service of a home on servers takes gateways and commands of other machines, which
    find it through the database; empty: those of this machine only. ``podium node`` takes services there, and needs it.
    Without a certificate, what is said can be read on the network."""
    service_host: str = ""
    """The name or address by which other machines reach that; needed where the service listens at all addresses
    (``0.0.0.0``), and by default the host of ``PODIUM_SERVICE_LISTEN``."""
    service_name: str = ""
    """The name of a service that stands by, and of `podium hand-over`; by default the machine's hostname."""
    service_tls_cert: Path | None = None
    """Certificate chain of the service, or of ``podium node``, PEM: TLS. Callers know it by the database, so nobody has
    to sign it."""
    service_tls_key: Path | None = None
    """Its private key, PEM."""
    health_listen: str = ""
    """``HOST:PORT`` at which ``podium node`` answers probes over HTTP; empty: nowhere. ``/healthz`` is 200 while it
    works, ``/readyz`` while agents may come: its store process runs, and the database has heard of it lately; both are
    503 otherwise."""
    run_dir: Path | None = None
    """Absolute directory of this home's sockets, short (40 bytes at most) and of no other home; by default one below
    ``TMPDIR``, named after the home's directory. It is made at the start and removed at the end; a directory
    that has other files is refused. The same for all commands of the home on a machine."""
    hosts_dir: Path | None = None
    """Absolute directory, short (36 bytes at most), of what belongs to agents' processes, their sockets, layers and
    logs, if Ray runs them as another user than that of ``podium node``. It has the group to which both users belong,
    and which may connect to the sockets in ``PODIUM_RUN_DIR``. By default both are one user, and all of it is in the
    home."""
    workspaces: Path = Path("/tmp")  # noqa: S108  holds a directory with mode 0700 and a random name
    """Absolute directory in which agents' workspaces are mounted, below ``podium-<home id>``. It is part of each
    workspace path, which must not change: use one short directory for all nodes and services of a home."""
    presentation: Literal["auto", "fuse", "dir"] = "auto"
    """How workspaces are presented to agents. ``auto`` uses FUSE if available, else reports that once."""
    fuse_transport: Literal["raw", "pyfuse3"] = "raw"
    """How mounts talk to the kernel: by the raw protocol, or with pyfuse3, a slower optional dependency."""
    warm_hosts: int = Field(default=1, ge=0)
    """Warm processes with an agent's code imported, per agent class and node: one hides a cold start of over a second
    from a first message; each takes about 35 MB."""
    most_warm_hosts: int = Field(default=6, ge=0)
    """Limit of the warm processes of all agent classes together on a node: with more classes, those that were used last
    have them, and a first message to another one waits for the start of a process. Each warm process takes about 35 MB,
    and ``PODIUM_HOST_CPUS`` of the machine."""
    most_starting: int | None = Field(default=None, ge=1)
    """Limit of hosts that start concurrently on a node; a start occupies a core for about a second. By default one per
    core, at least two."""
    log_bytes: int = Field(default=16 * 1024 * 1024, ge=1)
    """Approximate size, in bytes, at which a log file is rotated to ``….1``, which is replaced: both files together
    take at most twice as much."""
    log_stderr: bool = False
    """Whether ``podium up`` (without ``--detach``) and ``podium node`` also write to stderr what podium's processes on
    this machine log, each line after the name of its log: for who collects the output of containers. The logs of agents
    are not among them."""
    host_cpus: float = Field(default=0.1, gt=0)
    """CPUs that Ray reserves for a host. Agents mostly wait; with 0.1 a machine takes 40 hosts per core, as its own Ray
    counts each core as four CPUs, and a node of a cluster that was joined (``RAY_ADDRESS``) ten per CPU."""
    autoscaler: bool = False
    """Whether the Ray cluster that was joined (``RAY_ADDRESS``) has an autoscaler: an agent for which no node has room
    is then not refused, but waits for a node, for which the autoscaler is asked."""
    lease_ttl_s: float = Field(default=15.0, gt=0)
    """Time to live of a host's lease: a partitioned host keeps its agent for that long. Renewed every third of it."""
    shared_agents: int = Field(default=5000, ge=1)
    """Limit of awake agents on one host of a class with shared isolation; beyond it another host is started."""
    shared_host_bytes: int = Field(default_factory=lambda: memory_limit() // 4, ge=1)
    """Memory, in bytes, above which a process that agents share takes no more of them, lets their turns end, and is
    replaced; at least 64 MiB more than it takes at its start. By default a quarter of the machine's memory, or of that
    which a cgroup permits."""
    block_limit_s: float = Field(default=10.0, gt=0)
    """Seconds for which an agent's code may block the event loop of a shared host. Then the process is ended, which
    interrupts its other agents, and the agent gets a process of its own."""
    silence_s: float = Field(default=60.0, gt=0)
    """Seconds without an answer to a liveness probe after which a process counts as dead. User code that holds the
    interpreter's lock blocks the answer; a busy machine must not be mistaken for a dead one. A process that is silent
    otherwise is probed after a sixth of it."""
    hang_s: float = Field(default=5.0, gt=0)
    """Seconds without an answer to a liveness probe after which a process of agents counts as dead if it does not
    compute either, nor wait for a processor or the disk: it was stopped, or waits for itself."""
    start_timeout_s: float = Field(default=120.0, gt=0)
    """Timeout for the start of Ray: 4 to 17 s were measured on two busy cores."""
    start_wait_s: float = Field(default=0.0, ge=0)
    """Time for which ``podium up`` (without ``--detach``) and ``podium node`` wait at their start for what cannot be
    reached: the database, the bucket, the Ray cluster; with ``--join`` also the service, and at an address that other
    machines reach the first key. 0: none, they end with an error. Each reason is said once on stderr, and probes of the
    gateway's address are answered meanwhile: ``/healthz`` with 200, all else with 503."""
    wake_timeout_s: float = Field(default=60.0, gt=0)
    """Timeout for a host to activate an agent, the imports of its code included."""
    stop_timeout_s: float = Field(default=20.0, gt=0)
    """Timeout for an orderly end of all agents when the service ends, and of those of its machine when ``podium node``
    ends."""
    inbox_limit: int = Field(default=1000, ge=1)
    """Messages that may be pending for one agent; further ones are refused."""
    metrics_interval_s: float = Field(default=5.0, ge=0)
    """Shortest time between two reports of measurements by an agent's process, which loses those since the last one
    if it is killed. 0: turns are not measured, and the other metrics stay."""
    url: str = ""
    """The gateway that clients and commands use, such as ``http://127.0.0.1:8700``; empty: the home on this machine.
    ``--url`` takes precedence."""
    key: SecretStr = SecretStr("")
    """The API key that clients and commands send to the gateway; ``--key`` takes precedence."""
    reconnect_s: float = Field(default=60.0, gt=0)
    """Time without a connection to the gateway after which a client's stream fails. A gateway restarts in seconds."""

    body_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    """Longest body of a request to the gateway, but of an uploaded file."""
    upload_bytes: int = Field(default=1024 * 1024 * 1024, ge=1)
    """Largest file that can be uploaded through the gateway."""
    requests_per_s: float = Field(default=100.0, ge=0)
    """Requests of one key, and of one address that is not loopback, per second in the long run; twice as many, at least
    20, are accepted at once. Not of the operator's keys. 0: no limit."""
    connections: int = Field(default=4096, ge=0)
    """Open connections of the gateway. 0: no limit."""
    connections_per_address: int = Field(default=256, ge=0)
    """Open connections of one address that is neither loopback nor a trusted proxy. 0: no limit."""

    error_details: Literal["all", "operators"] = "all"
    """Receivers of the texts of errors that agents' code and models make over HTTP: every key that may read the agent,
    or those with the scope ``admin``. The others get the type of an error, and the id of its message, under which
    ``podium why`` and ``podium log`` have the text. An archive has the texts, too, and needs the scope ``write``."""

    @field_validator("workspaces", "run_dir", "hosts_dir")
    @classmethod
    def _is_absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("give an absolute path")
        return value

    @field_validator("run_dir", "hosts_dir")
    @classmethod
    def _is_short(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        most = _RUN_DIR_BYTES - (len("/run") if info.field_name == "hosts_dir" else 0)
        if value is not None and len(os.fsencode(value)) > most:
            raise ValueError(f"give a path of at most {most} bytes, as those of sockets in it are limited")
        return value


def read_settings() -> Settings:
    """Read the settings of this process from its environment.

    Raises:
        InvalidInput: a variable has an invalid value; the message names the variable and the value.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = f"{Settings.model_config['env_prefix']}{first['loc'][0]}".upper()
        raise InvalidInput(f"{name}={first['input']} cannot be used: {first['msg'].lower()}") from error
