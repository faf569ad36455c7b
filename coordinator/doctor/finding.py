"""What a check is about, and what it returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from chronicle.clock import Clock
    from coordinator.home import Home
    from coordinator.settings import Settings

__all__ = ["Finding", "Status", "Subject", "failed", "good", "skipped", "warning"]

Status = Literal["ok", "warning", "failed", "skipped"]
"""``skipped``: it does not apply here."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is examined."""

    home: Home
    """Its directory need not exist."""
    journal_url: str
    """Of a server; empty for a journal in the home's directory."""
    blobs_url: str
    """Of an object store; empty for blobs in the home's directory."""
    ray: str
    """``HOST:PORT`` of a Ray cluster; empty for none that podium joins."""
    url: str
    """Of a gateway; empty for that of the home on this machine, if one runs."""
    key: str
    """An API key for it; empty for none."""
    reaches: tuple[str, ...]
    """``HOST:PORT`` of what this machine has to reach."""
    misses: tuple[str, ...]
    """The same of what it must not reach."""
    settings: Settings
    clock: Clock


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found."""

    status: Status
    found: str
    """A sentence or two. That of an error of podium says what to do, too."""
    remedy: str = ""
    """What to do about it; empty if nothing, or if ``found`` says it."""

    def as_json(self) -> dict[str, Any]:
        """Return it as ``--json`` shows it."""
        return asdict(self)


def good(found: str) -> Finding:
    """Return that all is well."""
    return Finding("ok", found)


def skipped(found: str) -> Finding:
    """Return why a check does not apply."""
    return Finding("skipped", found)


def warning(found: str, remedy: str) -> Finding:
    """Return what works, and should be otherwise."""
    return Finding("warning", found, remedy)


def failed(found: str, remedy: str = "") -> Finding:
    """Return what does not work."""
    return Finding("failed", found, remedy)
