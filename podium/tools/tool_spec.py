"""`Tool`: a function with a name and a schema, whatever it is made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from chronicle.error_pickling import Portable
from chronicle.errors import InvalidInput, WrongType
from podium.durations import seconds_of
from podium.errors import InvalidTool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.canonical import Json, JsonObject
    from podium.agent.retry import Retry

__all__ = ["CONSENT_MODES", "BadArguments", "Implementation", "RunsAt", "Tool"]

RunsAt: TypeAlias = Literal["server", "client"]

CONSENT_MODES: Final = frozenset({"local", "destructive"})
"""The modes whose tools need consent."""
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What the providers of models take."""


class BadArguments(Portable):
    """The arguments of a call do not fit the tool.

    Attributes:
        problems: what is wrong, each with its field.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Implementation(Protocol):
    """What a tool is made of: a function of Python, a command of a shell, a request over HTTP."""

    def bind(self, arguments: JsonObject) -> Mapping[str, object]:
        """Return the arguments as the call takes them.

        Raises:
            BadArguments: they do not fit.
        """
        ...

    def call(self, bound: Mapping[str, object], context: object) -> object:
        """Begin the call. Return an awaitable, whose value is the result, or an async generator.

        Args:
            context: of the turn; ``None`` without one.
        """
        ...

    @property
    def needs_context(self) -> bool:
        """Whether it works in a turn only."""
        ...


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of a router. The decorator `podium.tools.tool`, and files of tools, make it.

    Raises:
        InvalidTool: it cannot be used.
    """

    name: str
    description: str
    parameters: JsonObject
    """The JSON Schema of its arguments, an object."""
    implementation: Implementation
    mode: str = "write"
    """What it does: ``read`` (calls may overlap), ``write``, ``safe_write``, ``local``, ``destructive``, ``external``;
    another word counts as ``write``."""
    requires_approval: bool = False
    decision: Json = None
    """The JSON Schema of the decision of a person that it needs; ``None`` if it needs none."""
    timeout_s: float | None = 120.0
    """Longest time of a call, in seconds; ``None`` for no limit."""
    retry: Retry | None = None
    runs: RunsAt = "server"
    """Where it runs: ``client`` for a tool that the client of the agent has."""
    require_consent: bool = False
    """Whether a call needs consent."""
    no_resume: bool = False
    """Whether a run that is repeated from its record must not call it again."""
    steps: bool = False
    """Whether its function begins steps of its own, so that it is code of the hook rather than of one step."""
    place: str = ""
    """Where it is declared: file and line."""

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise InvalidTool(
                f"{self.place}: {self.name!r} cannot name a tool: take up to 64 of the characters a-z A-Z 0-9 _ -"
            )
        if not self.mode:
            raise InvalidTool(f"{self.place}: tool {self.name} has no mode: give 'read', 'write' or 'destructive'")
        if self.runs not in {"server", "client"}:
            raise InvalidTool(f"{self.place}: tool {self.name} runs at 'server' or 'client', not {self.runs!r}")
        if self.timeout_s is not None:
            try:
                seconds_of(self.timeout_s, "a call")
            except (InvalidInput, WrongType) as error:
                raise InvalidTool(f"{self.place}: the limit of tool {self.name} cannot be used: {error}") from error

    @property
    def is_read(self) -> bool:
        """Whether its calls may overlap with each other."""
        return self.mode == "read"

    @property
    def definition(self) -> JsonObject:
        """What models and clients get: name, description and parameters, and what it needs besides."""
        needs: JsonObject = {"mode": self.mode}
        if self.requires_approval:
            needs["requires_approval"] = True
        if self.decision is not None:
            needs["decision"] = self.decision
        if self.runs == "client":
            needs["runs"] = self.runs
        return {"name": self.name, "description": self.description, "parameters": self.parameters, **needs}
