"""Measurements, spans and log lines of an agent's turns, for the code that runs them."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from structlog.contextvars import bind_contextvars, reset_contextvars

from podium.events import HOOKS
from podium.messages.headers import trace_in
from podium.turn.telemetry import (
    COMMIT_DURATION,
    MESSAGES_TOLD,
    NO_TRACER,
    SEAL_DURATION,
    STEP_DURATION,
    STEPS,
    TOKENS,
    TURN_DURATION,
    TURNS,
    SpanKind,
    TurnOutcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from chronicle.clock import Clock
    from chronicle.journal.records import InboxMessage
    from podium.address import Address
    from podium.events import Cause
    from podium.turn.telemetry import Instrument, Meter, Span, Tracer

__all__ = ["TurnTelemetry", "message_attributes"]

SYSTEM: Final = "podium"
"""The messaging system, in spans."""


def message_attributes(address: Address, operation: str) -> dict[str, str]:
    """Return the attributes of a span about a message, by OpenTelemetry's conventions for messaging, without its id.

    Args:
        address: of the receiver.
        operation: ``send`` or ``process``.
    """
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": address.name,
        "messaging.destination.template": f"{address.agent_type}/{{key}}",
        "podium.tenant": address.tenant,
    }


class TurnTelemetry:
    """The measurements and spans of one activation. Turns run one at a time.

    Args:
        address: the agent's.
    """

    def __init__(self, address: Address, meter: Meter, tracer: Tracer, clock: Clock) -> None:
        self._address = address
        self._labels = address.agent_type, address.tenant
        self._meter = meter
        self._tracer = tracer
        self._clock = clock
        self._cause: Cause = "message"
        self._began_s = 0.0
        self._open = 0
        """Spans that are open: a commit outside of them, as of an agent's creation, is a part of no trace."""

    # -- spans ----------------------------------------------------------------------------------------------------

    def attempt(self, message: InboxMessage, epoch: int) -> AbstractContextManager[Span]:
        """Trace an attempt of a message, up to its commit or the record of its failure."""
        trace = trace_in(message.headers)
        if self._tracer is NO_TRACER:
            return NO_TRACER.span("", {}, parent=trace)
        return self._attempt(message, epoch, trace)

    @contextmanager
    def _attempt(self, message: InboxMessage, epoch: int, trace: str | None) -> Iterator[Span]:
        address, agent_type = self._address, self._address.agent_type
        attributes: dict[str, str | int] = {
            **message_attributes(address, "process"),
            "messaging.message.id": message.message_id,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent_type,
            "gen_ai.agent.id": str(address),
            "gen_ai.conversation.id": message.session_id,
            "podium.attempt": message.attempts + 1,
            "podium.epoch": epoch,
        }
        with (
            self._tracer.span(f"process {agent_type}", attributes, kind=SpanKind.CONSUMER, parent=trace) as span,
            self._opened(),
        ):
            yield span

    @contextmanager
    def hook(self, cause: Cause, turn: int, attempt: Span | None) -> Iterator[Span]:
        """Measure and trace a hook's turn from now on, until `committed` or `rolled_back`; log with its number.

        Args:
            attempt: the span that the turn belongs to; by default it gets one of its own.
        """
        self._cause = cause
        self._began_s = self._clock.monotonic_s()
        before = bind_contextvars(turn=turn)  # `bound_contextvars` reads all variables of the context, and takes longer
        try:
            if attempt is not None:
                attempt.set("podium.turn", turn)
                yield attempt
                return
            agent = {"gen_ai.agent.name": self._address.agent_type, "gen_ai.agent.id": str(self._address)}
            name = f"{HOOKS[cause]} {self._address.agent_type}"
            with self._tracer.span(name, {**agent, "podium.turn": turn}) as span, self._opened():
                yield span
        finally:
            reset_contextvars(**before)

    def seal(self) -> AbstractContextManager[None]:
        """Measure and trace the sealing of the workspace."""
        return self._part("seal", SEAL_DURATION)

    def commit(self) -> AbstractContextManager[None]:
        """Measure and trace a commit."""
        return self._part("commit", COMMIT_DURATION)

    @contextmanager
    def step(self, name: str, key: str, *, has_span: bool) -> Iterator[Span | None]:
        """Measure and trace a step that is run. Steps may overlap.

        Args:
            name: as the agent's code gives it.
            key: the name and the occurrence.
            has_span: whether to open a span: not if what the step calls has one.
        """
        began_s = self._clock.monotonic_s()
        try:
            with self._tracer.span(f"step {name}", {"podium.step.key": key}) if has_span else nullcontext() as span:
                yield span
        except BaseException:
            self._meter.add(STEPS, (*self._labels, "failed"))
            raise
        self._meter.add(STEPS, (*self._labels, "ended"))
        self._meter.observe(STEP_DURATION, self._labels, self._clock.monotonic_s() - began_s)

    def _part(self, name: str, histogram: Instrument) -> _Part:
        span = self._tracer.span(name, {}) if self._open else None
        return _Part(self._clock, span, lambda took_s: self._meter.observe(histogram, self._labels, took_s))

    @contextmanager
    def _opened(self) -> Iterator[None]:
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    # -- ends -----------------------------------------------------------------------------------------------------

    def committed(self, told: int) -> None:
        """Count the running turn as committed.

        Args:
            told: messages that it sent to other agents.
        """
        self._ended(TurnOutcome.COMMITTED)
        if told:
            self._meter.add(MESSAGES_TOLD, self._labels, told)

    def streamed(self, tokens: int) -> None:
        """Count what the running turn streamed, whatever becomes of it."""
        if tokens:
            self._meter.add(TOKENS, self._labels, tokens)

    def step_replayed(self) -> None:
        """Count a step that was not run, because an earlier attempt had ended it."""
        self._meter.add(STEPS, (*self._labels, "replayed"))

    def rolled_back(self, outcome: TurnOutcome, *, counted: bool = True) -> None:
        """Count the running turn as rolled back.

        Args:
            counted: whether that counts as an attempt of its message.
        """
        interrupted = self._cause == "message" and not counted
        self._ended(TurnOutcome.INTERRUPTED if interrupted else outcome)

    def lost(self, outcome: TurnOutcome) -> None:
        """Count the attempt of a message that ended with an earlier activation; nobody knows how long it took."""
        self._meter.add(TURNS, (*self._labels, "message", outcome))

    def _ended(self, outcome: TurnOutcome) -> None:
        self._meter.add(TURNS, (*self._labels, self._cause, outcome))
        self._meter.observe(TURN_DURATION, self._labels, self._clock.monotonic_s() - self._began_s)


class _Part:
    """A part of each turn that is measured, and traced. A class, as each turn has two: a generator takes longer."""

    __slots__ = ("_began_s", "_clock", "_observe", "_span")

    def __init__(
        self, clock: Clock, span: AbstractContextManager[Span] | None, observe: Callable[[float], None]
    ) -> None:
        self._clock = clock
        self._span = span
        self._observe = observe

    def __enter__(self) -> None:
        """Begin to measure."""
        self._began_s = self._clock.monotonic_s()
        if self._span is not None:
            self._span.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the measurement, unless the part failed."""
        if self._span is not None:
            self._span.__exit__(kind, error, trace)
        if error is None:
            self._observe(self._clock.monotonic_s() - self._began_s)
