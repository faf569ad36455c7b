"""The exit codes of ``podium``; its help and ``docs/cli.md`` show the same table."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from chronicle import errors as chronicle
from chronicle.cli_kit.exits import CHRONICLE_ERRORS, ExitTable
from podium import errors as podium

__all__ = ["EXITS", "ExitCode", "exit_code", "exit_code_of_frame"]


class ExitCode(IntEnum):
    """Exit codes of ``podium``: those of every command, with the same numbers, and its own."""

    OK = 0
    ERROR = 1
    USAGE = 2
    INVALID_ADDRESS = 10
    FILE_NOT_FOUND = 11
    FILE_BROKEN = 12
    CLASS_NOT_FOUND = 13
    NOT_AN_AGENT = 14
    LOAD_ERROR = 15
    UNKNOWN_AGENT = 20
    UNKNOWN_MOMENT = 21
    NOT_FOUND = 22
    AGENT_EXISTS = 23
    UNKNOWN_ARTIFACT = 24
    UNKNOWN_AGENT_TYPE = 25
    TURN_FAILED = 30
    TURN_CANCELLED = 31
    STATE_REFUSED = 32
    RUN_PAUSED = 33
    HOME_ERROR = 40
    HOME_NOT_WRITABLE = 41
    HOME_TOO_NEW = 42
    UNAVAILABLE = 50
    CONFLICT = 51
    AGENT_BUSY = 52
    GATEWAY_RUNS = 53
    PORT_TAKEN = 54
    ACCESS_REFUSED = 55
    DAMAGED = 60
    UNFIT = 61
    BUG = 70
    OS_ERROR = 74
    INTERRUPTED = 130
    BROKEN_PIPE = 141


EXITS: Final = ExitTable(
    meanings={
        ExitCode.OK: "done",
        ExitCode.ERROR: "an error that has no code of its own; stderr says which",
        ExitCode.USAGE: "the command line cannot be understood, or a value in it cannot be used",
        ExitCode.INVALID_ADDRESS: "an agent's type or key cannot be used",
        ExitCode.FILE_NOT_FOUND: "the agent's file does not exist",
        ExitCode.FILE_BROKEN: "the agent's file does not import: syntax error, missing module, exception",
        ExitCode.CLASS_NOT_FOUND: "the agent's file has no such class",
        ExitCode.NOT_AN_AGENT: "the class is not a usable BaseAgent",
        ExitCode.LOAD_ERROR: "the agent's class could not be loaded for another reason",
        ExitCode.UNKNOWN_AGENT: "no such agent in this home",
        ExitCode.UNKNOWN_MOMENT: "the agent never had that turn",
        ExitCode.NOT_FOUND: "no such path, iteration, message or home",
        ExitCode.AGENT_EXISTS: "there is an agent of that address already",
        ExitCode.UNKNOWN_ARTIFACT: "no such artifact in this home",
        ExitCode.UNKNOWN_AGENT_TYPE: "no agent class of that type is known",
        ExitCode.TURN_FAILED: "a message could not be handled: on_message raised or ran out of time",
        ExitCode.TURN_CANCELLED: "the reply was cancelled",
        ExitCode.STATE_REFUSED: "the agent's state cannot be stored or read: a value JSON cannot hold, a newer version",
        ExitCode.RUN_PAUSED: "the turn is paused; podium paused shows what it waits for",
        ExitCode.HOME_ERROR: "the home directory cannot be used",
        ExitCode.HOME_NOT_WRITABLE: "the home directory cannot be written",
        ExitCode.HOME_TOO_NEW: "the home or its journal was written by a newer version",
        ExitCode.UNAVAILABLE: "the service or a store did not answer",
        ExitCode.CONFLICT: "a concurrent change was first, the agent is awake, or the inbox is full; try again",
        ExitCode.AGENT_BUSY: "the agent is busy with another message, and --when-busy reject was given",
        ExitCode.GATEWAY_RUNS: "another gateway serves the home",
        ExitCode.PORT_TAKEN: "another program listens at the gateway's port",
        ExitCode.ACCESS_REFUSED: "the API key is missing or not valid, or its scopes do not include the operation",
        ExitCode.DAMAGED: "stored bytes are not what was written (verify found a bad event or blob)",
        ExitCode.UNFIT: "doctor found something that does not work; its report says what to do",
        ExitCode.BUG: "an unexpected exception: a bug in podium",
        ExitCode.OS_ERROR: "the operating system refused: disk full, I/O error, permissions",
        ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
        ExitCode.BROKEN_PIPE: "the reader of the output closed it",
    },
    errors={
        **{kind: ExitCode(code) for kind, code in CHRONICLE_ERRORS.items()},
        podium.PodiumError: ExitCode.ERROR,
        podium.InvalidAddress: ExitCode.INVALID_ADDRESS,
        podium.AgentLoadError: ExitCode.LOAD_ERROR,
        podium.AgentFileNotFound: ExitCode.FILE_NOT_FOUND,
        podium.AgentFileBroken: ExitCode.FILE_BROKEN,
        podium.AgentClassNotFound: ExitCode.CLASS_NOT_FOUND,
        podium.NotAnAgent: ExitCode.NOT_AN_AGENT,
        podium.NotAFile: ExitCode.USAGE,
        podium.UnknownAgent: ExitCode.UNKNOWN_AGENT,
        podium.UnknownAgentType: ExitCode.UNKNOWN_AGENT_TYPE,
        podium.InvalidMessage: ExitCode.USAGE,
        podium.UnknownMoment: ExitCode.UNKNOWN_MOMENT,
        podium.UnknownArtifact: ExitCode.UNKNOWN_ARTIFACT,
        podium.AgentExists: ExitCode.AGENT_EXISTS,
        podium.AgentAwake: ExitCode.CONFLICT,
        podium.AgentBusy: ExitCode.AGENT_BUSY,
        podium.AgentInUse: ExitCode.CONFLICT,
        podium.AgentAsleep: ExitCode.UNAVAILABLE,
        podium.HostDied: ExitCode.UNAVAILABLE,
        podium.Evicted: ExitCode.UNAVAILABLE,
        podium.TurnsLost: ExitCode.UNAVAILABLE,
        podium.RunNotFound: ExitCode.NOT_FOUND,
        podium.RunNotPaused: ExitCode.CONFLICT,
        podium.DecisionExpired: ExitCode.CONFLICT,
        podium.DecisionInvalid: ExitCode.USAGE,
        podium.HomeError: ExitCode.HOME_ERROR,
        podium.HomeNotWritable: ExitCode.HOME_NOT_WRITABLE,
        podium.HomeTooNew: ExitCode.HOME_TOO_NEW,
        chronicle.InboxFull: ExitCode.CONFLICT,
        BrokenPipeError: ExitCode.BROKEN_PIPE,
        "coordinator.gateway.process.listener.PortTaken": ExitCode.PORT_TAKEN,
        "coordinator.gateway_record.GatewayRuns": ExitCode.GATEWAY_RUNS,
        "coordinator.operations.errors.InvalidCursor": ExitCode.USAGE,
        "coordinator.service.client.ServiceError": ExitCode.UNAVAILABLE,  # its module imports asyncio
        "coordinator.service.client.ServiceRefused": ExitCode.UNAVAILABLE,
        "coordinator.client.errors.InvalidRequest": ExitCode.USAGE,  # their module is for remote homes only
        "coordinator.access.caller.NotPermitted": ExitCode.ACCESS_REFUSED,
        "coordinator.client.errors.AuthenticationFailed": ExitCode.ACCESS_REFUSED,
        "coordinator.client.errors.PermissionDenied": ExitCode.ACCESS_REFUSED,
        "coordinator.client.errors.ResourceNotFound": ExitCode.NOT_FOUND,
        "coordinator.client.errors.RequestConflict": ExitCode.CONFLICT,
        "coordinator.client.errors.RateLimited": ExitCode.CONFLICT,
        "coordinator.client.errors.ServerFailed": ExitCode.UNAVAILABLE,
        "coordinator.client.errors.MessageFailed": ExitCode.TURN_FAILED,
        "coordinator.client.errors.MessageCancelled": ExitCode.TURN_CANCELLED,
        "coordinator.client.errors.RunPaused": ExitCode.RUN_PAUSED,
        "coordinator.client.errors.AnswerTimeout": ExitCode.UNAVAILABLE,
        "coordinator.client.errors.Unreachable": ExitCode.UNAVAILABLE,
    },
    bug=ExitCode.BUG,
)

CANCELLED: Final = "Cancelled"
"""The error type of an ``error`` frame whose message was cancelled."""


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code of an error; of a refusal by the service, that of the error which the service names."""
    refused = getattr(error, "kind", None)
    named = _named(refused) if isinstance(refused, str) else None
    return named if named is not None else EXITS.code(error)


def exit_code_of_frame(error_type: str) -> ExitCode:
    """Return the code of an ``error`` frame, which names its error; an exception of the agent's own: a failed turn."""
    if error_type == CANCELLED:
        return ExitCode.TURN_CANCELLED
    if error_type == chronicle.StorageRefused.__name__:
        return ExitCode.OS_ERROR
    return ExitCode.STATE_REFUSED if _is_of_state(error_type) else ExitCode.TURN_FAILED


def _named(error_type: str) -> ExitCode | None:
    for module in (podium, chronicle):
        if error_type in module.__all__:
            kind: type[BaseException] = getattr(module, error_type)
            return next((EXITS.errors[base] for base in kind.__mro__ if base in EXITS.errors), None)
    return ExitCode.STATE_REFUSED if _is_of_state(error_type) else None


def _is_of_state(error_type: str) -> bool:
    from podium.state import errors  # noqa: PLC0415  brings pydantic along

    return error_type in errors.__all__
