"""Telemetry of turns: the ports `Meter` and `Tracer`, the instruments, and ports that do nothing.

The ports are called on the path of each turn, so an implementation neither waits nor raises. This module knows no
library of metrics or traces: `coordinator.telemetry` has the implementations.

Instruments are named as Prometheus asks: base units, ``_total`` for counters. No label has an agent's key: the number
of series must not grow with the number of agents.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

__all__ = [
    "COMMIT_DURATION",
    "MESSAGES_TOLD",
    "NO_METER",
    "NO_TRACER",
    "SEAL_DURATION",
    "SHORT_S",
    "STEPS",
    "STEP_DURATION",
    "TOKENS",
    "TURNS",
    "TURN_DURATION",
    "TURN_INSTRUMENTS",
    "Attributes",
    "Instrument",
    "Meter",
    "Span",
    "SpanKind",
    "Tracer",
    "TurnOutcome",
]

SHORT_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of what takes a part of a second, in seconds."""
_TURN_S: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    600.0,
)


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric: its name, its kind and its labels. Series of it differ in the values of the labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, ascending, without the infinite one."""


_OF_AGENT: Final = ("agent_type", "tenant")

TURNS: Final = Instrument(
    "podium_turns_total",
    "counter",
    "Turns that ended, by what caused them (`message`, or the hook that ran) and their outcome.",
    (*_OF_AGENT, "cause", "outcome"),
)
TURN_DURATION: Final = Instrument(
    "podium_turn_duration_seconds",
    "histogram",
    "Time from the call of the hook until the turn is committed, or rolled back.",
    _OF_AGENT,
    _TURN_S,
)
SEAL_DURATION: Final = Instrument(
    "podium_seal_duration_seconds",
    "histogram",
    "Time to make the files of a turn durable, before its commit.",
    _OF_AGENT,
    SHORT_S,
)
COMMIT_DURATION: Final = Instrument(
    "podium_commit_duration_seconds",
    "histogram",
    "Time of a commit to the journal, the sync to disk included.",
    _OF_AGENT,
    SHORT_S,
)
TOKENS: Final = Instrument(
    "podium_tokens_total",
    "counter",
    "Pieces of text that agents streamed, one for each call of `stream_token`.",
    _OF_AGENT,
)
MESSAGES_TOLD: Final = Instrument(
    "podium_messages_told_total",
    "counter",
    "Messages that committed turns sent to other agents.",
    _OF_AGENT,
)
STEPS: Final = Instrument(
    "podium_steps_total",
    "counter",
    "Steps that ended, by outcome: `ended`, `failed`, or `replayed` (not run, as an earlier attempt had ended it).",
    (*_OF_AGENT, "outcome"),
)
STEP_DURATION: Final = Instrument(
    "podium_step_duration_seconds",
    "histogram",
    "Time of a step that was run and ended, from the call of its function until its result is durable.",
    _OF_AGENT,
    _TURN_S,
)
TURN_INSTRUMENTS: Final = (
    TURNS,
    TURN_DURATION,
    SEAL_DURATION,
    COMMIT_DURATION,
    STEPS,
    STEP_DURATION,
    TOKENS,
    MESSAGES_TOLD,
)
"""Instruments of activations."""


class TurnOutcome(StrEnum):
    """How a turn ended, as the label ``outcome`` has it."""

    COMMITTED = "committed"
    FAILED = "failed"
    """Rolled back, to be retried."""
    PARKED = "parked"
    """Rolled back after the last attempt."""
    CANCELLED = "cancelled"
    PAUSED = "paused"
    """Rolled back, to go on where it paused when it gets what it waits for."""
    INTERRUPTED = "interrupted"
    """Rolled back because its activation had to end; no attempt is counted."""


class Meter(Protocol):
    """Takes measurements. Thread-safe; it neither waits nor raises.

    Args of its methods: the instrument, the values of its labels in their order, and what was measured.
    """

    def add(self, counter: Instrument, labels: tuple[str, ...], amount: float = 1) -> None:
        """Add to a counter."""
        ...

    def observe(self, histogram: Instrument, labels: tuple[str, ...], value: float) -> None:
        """Add a value to a histogram."""
        ...


class SpanKind(StrEnum):
    """The kinds of spans, as OpenTelemetry has them."""

    INTERNAL = "internal"
    PRODUCER = "producer"
    """Sends a message that is handled later."""
    CONSUMER = "consumer"
    """Handles a message."""
    SERVER = "server"
    """Answers a request."""


Attributes: TypeAlias = "Mapping[str, str | int | float | bool]"
"""Attributes of a span, by the names of OpenTelemetry's semantic conventions where there are such names."""


class Span(Protocol):
    """A part of a trace, open while its context lasts."""

    @property
    def traceparent(self) -> str | None:
        """W3C ``traceparent`` that makes other spans children of this one; ``None`` if nothing is traced."""
        ...

    def rename(self, name: str) -> None:
        """Give it another name, of low cardinality, that was not known at its beginning."""
        ...

    def set(self, key: str, value: str | float | bool) -> None:
        """Set an attribute."""
        ...

    def fail(self, kind: str, message: str) -> None:
        """Mark what the span covers as failed, with the type and the text of the error."""
        ...


class Tracer(Protocol):
    """Opens spans. It neither waits nor raises; a trace that cannot be exported is lost."""

    def span(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: str | None = None,
        since_s: float = 0.0,
    ) -> AbstractContextManager[Span]:
        """Open a span for the duration of the context. An exception that leaves the context marks it as failed.

        Args:
            name: of low cardinality: it has no agent's key.
            parent: the ``traceparent`` of the parent; by default the span of the current task. One that cannot be read
                counts as none.
            since_s: how long ago it began.
        """
        ...


class _NoMeter:
    def add(self, counter: Instrument, labels: tuple[str, ...], amount: float = 1) -> None:
        """Do nothing."""

    def observe(self, histogram: Instrument, labels: tuple[str, ...], value: float) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class _NoSpan:
    traceparent: str | None
    """The parent's: a trace of others passes through."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Do nothing."""

    def rename(self, name: str) -> None:
        """Do nothing."""

    def set(self, key: str, value: str | float | bool) -> None:
        """Do nothing."""

    def fail(self, kind: str, message: str) -> None:
        """Do nothing."""


class _NoTracer:
    def span(
        self,
        name: str,  # noqa: ARG002  the port has it
        attributes: Attributes,  # noqa: ARG002
        *,
        kind: SpanKind = SpanKind.INTERNAL,  # noqa: ARG002
        parent: str | None = None,
        since_s: float = 0.0,  # noqa: ARG002
    ) -> _NoSpan:
        """Trace nothing."""
        return _NoSpan(parent)


NO_METER: Final[Meter] = _NoMeter()
NO_TRACER: Final[Tracer] = _NoTracer()
