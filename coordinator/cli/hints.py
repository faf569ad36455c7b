"""The hints of ``podium``: the command line that mends what an error reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from chronicle import errors as chronicle
from chronicle.cli_kit.hints import CHRONICLE_HINTS, HintTable, with_hint
from podium import errors as podium

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HINTS", "hint", "recorded_error"]

HINTS: Final = HintTable(
    {
        **CHRONICLE_HINTS,
        chronicle.Corrupt: "`podium verify` says what of {journal} can be read",
        chronicle.OlderVersionRuns: "`podium down` ends the service",
        podium.AgentAwake: "`podium passivate {agent}` puts it to sleep",
        podium.AgentExists: "`podium import {archive} --as AGENT` names one",
        podium.AgentInUse: "`podium delete {agent} --detach` detaches and deletes",
        podium.ArchiveNotFound: "`podium export` writes one",
        podium.AskFailed: "`podium retry AGENT MESSAGE_ID` retries a parked message",
        podium.AskRefused: None,
        podium.AskTimeout: None,
        podium.EventNotFound: "`podium log {agent} --json` lists its events",
        podium.SandboxRefused: "`podium doctor --sandbox` says what works where it runs",
        podium.UnknownArtifact: "`podium artifacts AGENT` lists an agent's artifacts",
    }
)


def hint(error: BaseException) -> str | None:
    """Return the hint for an error; for a refusal by the service, that for the error which the service names."""
    refused = getattr(error, "kind", None)
    return HINTS.hint_by_name(refused, vars(error)) if isinstance(refused, str) else HINTS.hint(error)


def recorded_error(error: Mapping[str, Any]) -> str:
    """Return the type and the message of an error that an agent's record names, and its hint."""
    return with_hint(f"{error['type']}: {error['message']}", HINTS.hint_by_name(error["type"]))
