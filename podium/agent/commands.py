"""Commands that an agent runs in a sandbox: what is asked for, how one ended, and what clients are told."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypedDict, cast, get_args

from chronicle.errors import InvalidInput, WrongType
from podium.durations import seconds_of
from podium.sandbox.policy import RUNGS, Policy
from podium.settings import WORKSPACE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from chronicle.canonical import JsonObject
    from podium.sandbox.policy import Limit, Limits, Network, Rung

__all__ = [
    "COMMAND_ENDED",
    "COMMAND_OUTPUT",
    "COMMAND_STARTED",
    "Command",
    "CommandOptions",
    "FileChange",
    "Fork",
    "OnOutput",
    "Place",
    "Ran",
    "Tried",
]

COMMAND_STARTED: Final = "podium.command_start"
"""Name of the event of a command that starts: ``{"command_id", "argv"}``; the id is the key of its step."""
COMMAND_OUTPUT: Final = "podium.command_output"
"""Name of the events of its output, as it comes: ``{"command_id", "stream", "text"}``."""
COMMAND_ENDED: Final = "podium.command_end"
"""Name of the event of its end: ``{"command_id", "status", "limit", "rung"}``."""

_MAX_NAME: Final = 100
"""Characters of the name of a step that is made of that of a program."""

Place: TypeAlias = Literal["workspace", "fork"]
"""Where a command runs: in the workspace, or in a fork of it."""

OnOutput: TypeAlias = Callable[[Literal["stdout", "stderr"], str], Awaitable[None]]
"""Gets each piece of output with the stream that it is of; the command waits for it."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended, `AgentContext.run`. Nothing that it started runs any more."""

    status: int
    """Its exit status; 128 and the number of the signal that killed it, as shells say."""
    stdout: str
    """Up to 64 KiB; of more its beginning and its end. What is not UTF-8 is replaced."""
    stderr: str
    limit: Limit | None
    """The limit that ended it: ``time``, ``memory``, ``processes``, ``output`` or ``disk``."""
    rung: Rung
    """What it ran on: ``none``, ``landlock`` or ``bubblewrap``."""
    restored: tuple[str, ...] = ()
    """Paths of the workspace that it had changed and may not: hooks and configuration of git, start files of shells."""
    stdout_artifact: str | None = None
    """The artifact that has all of its output, if that is more than ``stdout`` can hold."""
    stderr_artifact: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with status 0."""
        return self.status == 0 and self.limit is None

    def to_json(self) -> JsonObject:
        """Return it for the record."""
        return {**asdict(self), "restored": [*self.restored]}

    @classmethod
    def from_json(cls, found: JsonObject) -> Ran:
        """Return what a record has."""
        fields = cast("dict[str, Any]", found)
        return cls(**{**fields, "restored": tuple(fields["restored"])})


@dataclass(frozen=True, slots=True)
class FileChange:
    """One difference between a fork and the workspace that it was made of."""

    change: Literal["added", "changed", "removed", "renamed"]
    path: str
    """Relative to the workspace."""
    old_size: int | None
    """Bytes; ``None`` for what is no file, and for an added path."""
    new_size: int | None
    """Bytes; ``None`` for what is no file, and for a removed path."""
    old_path: str | None = None
    """The former path of a renamed one."""


class Fork(Protocol):
    """What a command has made of a fork of the workspace."""

    async def diff(self, paths: Sequence[str]) -> str:
        """See `Tried.diff`."""
        ...

    async def keep(self) -> None:
        """See `Tried.keep`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Ran):
    """A command that has ended on a fork of the workspace. The workspace is as it was, unless the fork is kept."""

    changes: tuple[FileChange, ...]
    """What it has changed, by path."""
    fork: Fork = field(repr=False, compare=False)

    async def diff(self, *paths: str) -> str:
        """Return what it has changed as a unified diff, in the form of git's; of all paths, or of those given.

        Binary files, and those above 1 MiB, are only named. Bytes that are not UTF-8 are replaced.

        Raises:
            NotFound: one of these paths has not changed.
            ContextMisuse: the turn is over.
        """
        return await self.fork.diff(paths)

    async def keep(self) -> None:
        """Make the files of the fork those of the workspace; nothing runs again. It is a step, unless `run` was none.

        Raises:
            Conflict: the workspace has changed since the fork was made, or another step runs, which may change it. The
                workspace is left alone.
            ContextMisuse: the turn is over, and with it the fork.
        """
        await self.fork.keep()


class CommandOptions(TypedDict, total=False):
    """What `AgentContext.run` can be told of a command."""

    cwd: str | os.PathLike[str]
    """A directory of the workspace, which it is by default."""
    env: Mapping[str, str] | None
    """Variables besides those that the class declares. None is inherited; ``AGENT_WORKSPACE`` is set."""
    stdin: bytes | str
    """All of its input; a text as UTF-8."""
    timeout: timedelta | float | str | None
    """Its limit of time: seconds, a ``timedelta``, or a text such as ``"30s"``; by default that of the limits. It gets
    SIGTERM then, and a second later it is killed."""
    limits: Limits | None
    """In place of those of the class; of output at most ``max_artifact_bytes`` of the class."""
    sandbox: Rung | None
    """A stronger rung than that of the class."""
    network: Network | None
    """In place of that of the class."""
    readable: Sequence[str | os.PathLike[str]]
    """Absolute paths that it can read, besides those of the class."""
    name: str | None
    """Of the step; ``run PROGRAM`` by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command, with the options of `CommandOptions`."""

    argv: Sequence[str | os.PathLike[str]]
    cwd: str | os.PathLike[str] = ""
    env: Mapping[str, str] | None = None
    stdin: bytes | str = b""
    timeout: timedelta | float | str | None = None
    limits: Limits | None = None
    sandbox: Rung | None = None
    network: Network | None = None
    readable: Sequence[str | os.PathLike[str]] = ()
    name: str | None = None
    on: Place = "workspace"

    def __post_init__(self) -> None:
        """Refuse what cannot be a command.

        Raises:
            InvalidInput: a part of it cannot be used.
        """
        if isinstance(self.argv, str | bytes) or not self.argv:
            raise WrongType("run takes a program and its arguments as a list, such as ['sh', '-c', 'make | tail']")
        for part in (*self.argv, self.cwd, *self.readable):
            if not isinstance(part, str | os.PathLike):
                raise WrongType(f"run takes texts and paths, not {type(part).__name__}")
            if "\0" in os.fspath(part):
                raise InvalidInput(f"{os.fspath(part)!r} has a zero byte, so it cannot be a part of a command")
        if not isinstance(self.stdin, bytes | str):
            raise WrongType(f"the input of a command is bytes or a text, not {type(self.stdin).__name__}")
        if self.on not in get_args(Place):
            raise InvalidInput(f"a command runs on={' or on='.join(map(repr, get_args(Place)))}, not {self.on!r}")
        if self.on == "fork" and self.network not in {None, "none"}:
            raise InvalidInput("a command on a fork has no network; leave network= out")
        if self.sandbox is not None and self.sandbox not in RUNGS:
            raise InvalidInput(f"there is no sandbox {self.sandbox!r}; there are {', '.join(RUNGS)}")

    @property
    def words(self) -> list[str]:
        """The program and its arguments."""
        return [os.fspath(part) for part in self.argv]

    @property
    def title(self) -> str:
        """The name of its step."""
        return self.name or f"run {Path(self.words[0]).name}"[:_MAX_NAME]

    @property
    def input(self) -> bytes:
        """What it reads."""
        return self.stdin.encode() if isinstance(self.stdin, str) else self.stdin

    def policy(self, declared: Policy, root: Path, most_output: int) -> Policy:
        """Return what it may do: what its class declares, with what the call says, and never on a weaker rung."""
        if self.on == "fork":
            declared = replace(declared, network="none", at_least=max(declared.at_least, "landlock", key=RUNGS.index))
        limits = self.limits or declared.limits
        if self.timeout is not None:
            limits = replace(limits, time_s=seconds_of(self.timeout, "the timeout of a command"))
        return replace(
            declared,
            writable=(root,),
            readable=(*declared.readable, *map(Path, self.readable)),
            network=self.network or declared.network,
            environment={**declared.environment, WORKSPACE_VARIABLE: os.fspath(root), **(self.env or {})},
            limits=replace(limits, output_bytes=min(limits.output_bytes, most_output)),
            at_least=max(declared.at_least, self.sandbox or "none", key=RUNGS.index),
        )

    def directory(self, root: Path) -> Path:
        """Return its working directory.

        Raises:
            InvalidInput: there is none.
        """
        directory = Path(os.path.normpath(root / self.cwd))
        if not directory.is_dir():
            raise InvalidInput(f"{os.fspath(self.cwd)!r} is no directory of the workspace, so no command can run there")
        return directory
