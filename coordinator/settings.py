"""Settings of a process, read once from the environment (``PODIUM_…``) by its main function and passed down.

Each field says its unit, its default and why. ``docs/settings.md`` lists them for users.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from chronicle.errors import InvalidInput

__all__ = ["Settings", "read_settings"]


class Settings(BaseSettings):
    """The settings of a process, frozen."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_", frozen=True, extra="ignore")

    home: Path = Path(".podium")
    """Where everything is kept; ``--home`` wins."""
    blobs_url: str = ""
    """Where a new home keeps its blobs, such as ``s3://bucket/prefix``; empty: in the home. The home remembers it, and
    no two homes can have the same."""
    workspaces: Path = Path("/tmp")  # noqa: S108  a directory of mode 0700 and of a random name is made in it
    """Absolute directory in which agents' workspaces are mounted, below ``podium-<home id>``. It is a part of each
    workspace's path, which is to stay the same: give each node and each service of a home the same one, and a short
    one."""
    presentation: Literal["auto", "fuse", "dir"] = "auto"
    """How agents see their workspace. ``auto`` uses FUSE where it works and reports once where it does not."""
    fuse_transport: Literal["raw", "pyfuse3"] = "raw"
    """How mounts speak to the kernel: by its own protocol, or through pyfuse3, which is slower and to be installed."""
    warm_hosts: int = Field(default=1, ge=0)
    """Processes kept ready with an agent's code imported: one hides a cold start of over a second from a first
    message; each costs about 90 MB."""
    most_starting: int = Field(default_factory=lambda: max(2, os.cpu_count() or 1), ge=1)
    """Hosts that may be starting at a time; a start keeps a core busy for about a second. By default one for each core,
    and at least two."""
    log_bytes: int = Field(default=16 * 1024 * 1024, ge=1)
    """Approximate limit of a log file before it is rotated. Its content is then kept beside it as ``….1``, replacing an
    older one, so that both take at most twice as much."""
    host_cpus: float = Field(default=0.1, gt=0)
    """CPUs that Ray sets aside for a host. Agents mostly wait; with 0.1 a node takes ten for each of its CPUs."""
    lease_ttl_s: float = Field(default=15.0, gt=0)
    """Time to live of a host's lease: for so long a host that is cut off keeps its agent. Renewed every third of it."""
    silence_s: float = Field(default=60.0, gt=0)
    """Silence after which a process counts as dead. User code that holds the interpreter's lock silences its process; a
    busy machine must not be mistaken for a dead one."""
    start_timeout_s: float = Field(default=120.0, gt=0)
    """Longest wait for Ray: 4 to 17 s were measured on two busy cores."""
    wake_timeout_s: float = Field(default=60.0, gt=0)
    """Longest wait for a host to take an agent, its code's imports included."""
    stop_timeout_s: float = Field(default=20.0, gt=0)
    """Longest wait for agents to end in order when the service ends."""
    inbox_limit: int = Field(default=1000, ge=1)
    """Messages that may wait for one agent; more are refused."""

    @field_validator("workspaces")
    @classmethod
    def _is_absolute(cls, value: Path) -> Path:
        if not value.is_absolute():
            raise ValueError("give an absolute path")
        return value


def read_settings() -> Settings:
    """Read the settings of this process from its environment.

    Raises:
        InvalidInput: a variable has a value that cannot be used; the message names the variable and the value.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = f"{Settings.model_config['env_prefix']}{first['loc'][0]}".upper()
        raise InvalidInput(f"{name}={first['input']} cannot be used: {first['msg'].lower()}") from error
