"""The errors of Podium, drawn::

    PodiumError
    ├── InvalidAddress          an agent's type or key cannot be used
    ├── AgentLoadError          the user's class could not be loaded
    │   ├── AgentFileNotFound   no such file
    │   ├── AgentFileBroken     the file does not import: syntax error, missing module, an exception while importing
    │   ├── AgentClassNotFound  the file has no such class
    │   ├── BundleRefused       deployed code does not fit the node: another Podium or Python, a missing library
    │   └── NotAnAgent          the class is not a usable BaseAgent; tells what is missing
    ├── UnknownAgent            no agent of that address in this home
    ├── UnknownAgentType        no agent class of that type is known
    ├── InvalidMessage          a message does not fit the handlers of its agent; has the field that is wrong
    │   └── UnknownHandler      it names a handler that its agent does not have
    ├── UnknownMoment           the agent has no such turn, or does not keep it
    ├── UnknownArtifact         no artifact of that id in this home
    ├── AgentExists             there is an agent of that address already
    ├── AgentAwake              the agent is awake; only its activation may write its branch
    ├── AgentBusy               a message waits or is being handled, and the sender's policy is to reject
    ├── AgentInUse              forks read the agent's history
    ├── NotAFile                a path names no file where a file is needed
    ├── AgentAsleep             the activation is ending; wake the agent and deliver again
    ├── HostDied                a process ended while it woke an agent, or does not answer liveness probes
    ├── Evicted                 this activation lost its lease: another one runs the agent
    ├── TurnsLost               the journal has lost turns of an activation: it was restored, or replaced
    ├── Permanent               for agents' code to raise: no further attempt can succeed
    │   ├── AnswerInvalid       a model's answer does not fit the type that an agent asks for
    │   ├── ContextTooLarge     a conversation is above its hard cap, and nothing of it is left to summarise
    │   ├── ContextMisuse       agents' code uses its context in a place or at a time where it does not work
    │   │   └── ReadOnly        a read-only handler tries to change or to send something
    │   ├── ProgramChanged      an attempt asks for other steps than the record of an earlier one has
    │   ├── SandboxRefused      no sandbox here keeps what a policy asks for
    │   └── StepsOutdated       recorded steps do not fit what the agent has become since
    ├── AskCycle                an agent asks one that waits for its own answer
    ├── AskFailed               an agent that was asked did not answer
    │   ├── AskRefused          it was not asked: a quota of the tenant is reached
    │   └── AskTimeout          it did not answer in time
    ├── CommandNotStarted       there is no such program, or a sandbox does not let it be read
    ├── ReadFailed              a read-only handler raised, or took too long
    ├── DecisionExpired         nobody decided in time
    ├── InvalidTool             a function or a file cannot be a tool, or two tools have one name
    ├── PromiseRejected         a promise was rejected
    ├── RunNotPaused            a run does not wait for an answer, or for another one
    ├── StepFailed              a recorded failure of a step whose exception class is not loaded any more
    ├── ToolNotRegistered       a run waits for a decision about a tool that its loop does not have
    └── HomeError               the home directory cannot be used
        ├── HomeNotWritable     no permission, a file in the way, a full or read-only disk
        └── HomeTooNew          written by a newer version

    chronicle.errors.InvalidInput
    └── DecisionInvalid         an answer does not fit its schema, or a schema cannot be used

    chronicle.errors.NotFound
    ├── RunNotFound             the agent has no message of that id
    ├── ArchiveNotFound         no file at the path of an archive to import
    ├── EventNotFound           the agent has no event of that id
    └── UnknownFile             an agent has no file at a path, at a moment

State errors (:mod:`podium.state.errors`), the error of models (:mod:`podium.models.errors`) and Chronicle's errors have
trees of their own. Each message tells in a line or two what is wrong, where, and how to fix it. Exit codes and statuses
are assigned at the edges, not here.
"""

from __future__ import annotations

from chronicle.error_pickling import Portable, send_causes_of
from chronicle.errors import InvalidInput, NotFound

__all__ = [
    "AgentAsleep",
    "AgentAwake",
    "AgentBusy",
    "AgentClassNotFound",
    "AgentExists",
    "AgentFileBroken",
    "AgentFileNotFound",
    "AgentInUse",
    "AgentLoadError",
    "AnswerInvalid",
    "ArchiveNotFound",
    "AskCycle",
    "AskFailed",
    "AskRefused",
    "AskTimeout",
    "BundleRefused",
    "CommandNotStarted",
    "ContextMisuse",
    "ContextTooLarge",
    "DecisionExpired",
    "DecisionInvalid",
    "EventNotFound",
    "Evicted",
    "HomeError",
    "HomeNotWritable",
    "HomeTooNew",
    "HostDied",
    "InvalidAddress",
    "InvalidMessage",
    "InvalidTool",
    "NotAFile",
    "NotAnAgent",
    "Permanent",
    "PodiumError",
    "ProgramChanged",
    "PromiseRejected",
    "ReadFailed",
    "ReadOnly",
    "RunNotFound",
    "RunNotPaused",
    "SandboxRefused",
    "StepFailed",
    "StepsOutdated",
    "ToolNotRegistered",
    "TurnsLost",
    "UnknownAgent",
    "UnknownAgentType",
    "UnknownArtifact",
    "UnknownFile",
    "UnknownHandler",
    "UnknownMoment",
]


send_causes_of("podium")


class PodiumError(Portable):
    """Root of all errors that Podium raises on purpose."""


class InvalidAddress(PodiumError):
    """An agent's type or key cannot be used."""


class AgentLoadError(PodiumError):
    """The user's class could not be loaded.

    Attributes:
        detail: the traceback of the user's code, for ``--debug``; empty when there is none.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class AgentFileNotFound(AgentLoadError):
    """No such file."""


class AgentFileBroken(AgentLoadError):
    """The file exists but does not import."""


class AgentClassNotFound(AgentLoadError):
    """The file imports but has no such class."""


class BundleRefused(AgentLoadError):
    """Deployed code does not fit the node: it is for another Podium or Python, or requires what is not installed."""


class NotAnAgent(AgentLoadError):
    """The class exists but is not a usable agent."""


class UnknownAgent(PodiumError):
    """No agent of that address in this home."""


class UnknownAgentType(PodiumError):
    """No agent class of that type is known. Nothing was stored.

    Attributes:
        agent_type: the type.
        known: the known types, sorted.
    """

    def __init__(self, agent_type: str, known: tuple[str, ...]) -> None:
        types = f"the known types are {', '.join(known)}" if known else "no types are known"
        super().__init__(f"no agent class of type {agent_type!r}: {types}")
        self.agent_type = agent_type
        self.known = known


class InvalidMessage(PodiumError):
    """A message does not fit the handlers of its agent. A service does not store it; one that is stored is parked.

    Attributes:
        param: the field that is wrong, such as ``message.input.text``.
    """

    def __init__(self, message: str, param: str = "message") -> None:
        super().__init__(f"{param}: {message}")
        self.param = param


class UnknownHandler(InvalidMessage):
    """A message names a handler that its agent does not have, or none, and the agent has handlers only."""


class InvalidTool(PodiumError):
    """A function or a file cannot be a tool, or two tools have one name. The message has the places."""


class UnknownMoment(PodiumError):
    """The agent has no such turn, or its history up to there was dropped."""


class UnknownArtifact(PodiumError):
    """No artifact of that id in this home, or it was removed."""


class AgentExists(PodiumError):
    """There is an agent of that address already; it was not changed.

    Attributes:
        archive: the file to import under another address; ``None`` if a fork was refused.
    """

    def __init__(self, message: str, archive: str | None = None) -> None:
        super().__init__(message)
        self.archive = archive


class AgentAwake(PodiumError):
    """The agent is awake, and only its activation may write its branch. Nothing was written.

    Attributes:
        agent: its address; ``None`` if all agents of a home have to sleep.
    """

    def __init__(self, message: str, agent: str | None = None) -> None:
        super().__init__(message)
        self.agent = agent


class AgentBusy(PodiumError):
    """A message waits or is being handled, and the sender's policy is to reject. Nothing was stored."""


class AgentInUse(PodiumError):
    """An agent cannot be deleted or folded, as forks read its history. Nothing was changed.

    Attributes:
        forks: their addresses.
        agent: the agent to delete, which a deletion with the detachment of its forks does; ``None`` in other cases.
    """

    def __init__(self, message: str, forks: tuple[str, ...], agent: str | None = None) -> None:
        super().__init__(message)
        self.forks = forks
        self.agent = agent


class NotAFile(PodiumError):
    """A path names no file where a file is needed: a directory or a link is there, or above it. Nothing was written."""


class AgentAsleep(PodiumError):
    """The activation is ending. The message is in the inbox: wake the agent and deliver again."""


class HostDied(PodiumError):
    """An agent's process ended while it woke the agent, or hangs. The messages stay in the inbox."""


class Evicted(PodiumError):
    """This activation lost its lease to another one; it must stop and write nothing more."""


class TurnsLost(PodiumError):
    """The journal has lost turns that this activation has committed; it must stop and write nothing more."""


class Permanent(PodiumError):
    """For agents' code to raise: the turn fails, and its message is parked at once, without further attempts.

    A step that raises it is not tried again by its `Retry`.
    """


class AnswerInvalid(Permanent):
    """A model's answer does not fit the type that an agent asks for."""


class ContextTooLarge(Permanent):
    """A conversation is above its hard cap, and nothing of it is left to summarise.

    Attributes:
        chars: characters of what would be sent.
        hard_cap_chars: the most that may be.
        min_tail_turns: the last turns that are not summarised.
    """

    def __init__(self, chars: int, hard_cap_chars: int, min_tail_turns: int) -> None:
        super().__init__(
            f"the conversation has {chars} characters, and at most hard_cap_chars = {hard_cap_chars} are sent; nothing "
            f"before the last {min_tail_turns} turns (min_tail_turns) is left to summarise: send less, or raise the cap"
        )
        self.chars = chars
        self.hard_cap_chars = hard_cap_chars
        self.min_tail_turns = min_tail_turns


class ContextMisuse(Permanent):
    """Agents' code uses its context where or when it does not work, such as in another hook or after the turn."""


class ReadOnly(ContextMisuse):
    """A read-only handler tries to change the state, to send something, or to use files. Nothing was changed."""


class ReadFailed(PodiumError):
    """A read-only handler raised, or took longer than its limit."""


class ProgramChanged(Permanent):
    """An attempt asks for other steps than the record of an earlier attempt has. The record is kept."""


class StepsOutdated(Permanent):
    """The agent was changed between two attempts, so that recorded steps do not fit any more. The record is kept."""


class AskCycle(PodiumError):
    """An agent asks itself, or one that waits for its own answer: neither could go on. Nothing was sent."""


class AskFailed(PodiumError):
    """An agent that was asked did not answer: its handling of the question failed, or was cancelled."""


class AskRefused(AskFailed):
    """An agent was not asked, because a quota of the tenant forbids to make or to wake it. Nothing was sent."""


class AskTimeout(AskFailed, TimeoutError):
    """An agent that was asked did not answer in time. It drops the question unless it has begun to handle it."""


class DecisionExpired(PodiumError, TimeoutError):
    """Nobody decided in time, or an answer is late."""


class PromiseRejected(PodiumError):
    """A promise for which a turn waited was rejected; the message says why."""


class DecisionInvalid(InvalidInput):
    """An answer does not fit its schema, or a schema cannot be used.

    Attributes:
        errors: what is wrong, each with its place; empty if the schema cannot be used.
    """

    def __init__(self, message: str, errors: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.errors = errors


class RunNotPaused(PodiumError):
    """A run does not wait for an answer: it was answered, has ended, or waits for something else."""


class ToolNotRegistered(PodiumError):
    """A run waits for a decision about a tool that its loop does not have (any more). The run is kept.

    Attributes:
        run_id: the run.
        tool_name: the tool.
    """

    def __init__(self, run_id: str, tool_name: str) -> None:
        super().__init__(f"run {run_id} waits for a decision about {tool_name!r}, a tool that its loop does not have")
        self.run_id = run_id
        self.tool_name = tool_name


class SandboxRefused(Permanent):
    """No sandbox here keeps what a policy asks for, or there can be none; nothing was run."""


class CommandNotStarted(PodiumError):
    """There is no such program, or a sandbox does not let it be read."""


class StepFailed(PodiumError):
    """A step failed in an earlier attempt with an exception whose class is not loaded any more."""


class HomeError(PodiumError):
    """The home directory cannot be used."""


class HomeNotWritable(HomeError):
    """The home directory cannot be written."""


class HomeTooNew(HomeError):
    """The home directory was written by a newer version of Podium."""


class RunNotFound(NotFound):
    """The agent has no message of that id."""


class ArchiveNotFound(NotFound):
    """There is no file at the path of an archive to import."""


class EventNotFound(NotFound):
    """An agent has no event of an id.

    Attributes:
        agent: its address.
    """

    def __init__(self, message: str, agent: str) -> None:
        super().__init__(message)
        self.agent = agent


class UnknownFile(NotFound):
    """An agent has no file at a path, at a moment, or no such version of it."""
