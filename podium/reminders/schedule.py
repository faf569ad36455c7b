"""When a reminder is due: at a time, in intervals, or by a cron line in a time zone. Pure; the time is an argument.

Intervals are of real time, also across a change to or from daylight saving time. Cron lines are those of Debian's cron:
a line with fixed hours and minutes runs once on a day on which its time is skipped or comes twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from chronicle.errors import InvalidInput
from podium.reminders.times import from_ms, to_ms

if TYPE_CHECKING:
    from chronicle.canonical import Json, JsonObject

__all__ = ["At", "Cron", "Every", "Next", "Rule", "new_rule", "rule_from_json"]

_SHORTEST_MS: Final = 1_000
"""Shortest interval: a turn takes longer than a few of it."""
_LATEST_MS: Final = 253_370_764_800_000
"""The year 9999, in which `datetime` ends."""
_MAX_MISSED: Final = 10_000
"""Missed times of a cron line that are counted: each takes some 20 µs, and a line may be due each minute for years."""
_FIELDS: Final = 5


@dataclass(frozen=True, slots=True)
class Next:
    """Next state of a reminder after a time at which it was due."""

    due_ms: int | None
    """When it is due again, after now; ``None`` for never."""
    missed: int
    """The times between the one before and the next, which have passed already."""


@dataclass(frozen=True, slots=True)
class At:
    """Once."""

    def next(self, due_ms: int, now_ms: int) -> Next:  # noqa: ARG002 - all rules have it
        """Return that there is no other time."""
        return Next(None, 0)

    def to_json(self) -> JsonObject:
        """Return the rule as JSON."""
        return {}


@dataclass(frozen=True, slots=True)
class Every:
    """At the first time, and in fixed intervals from it."""

    every_ms: int

    def next(self, due_ms: int, now_ms: int) -> Next:
        """Return the first time after now that is whole intervals from ``due_ms``."""
        passed = max(now_ms - due_ms, 0) // self.every_ms
        return Next(due_ms + (passed + 1) * self.every_ms, passed)

    def to_json(self) -> JsonObject:
        """Return the rule as JSON."""
        return {"every_ms": self.every_ms}


@dataclass(frozen=True, slots=True)
class Cron:
    """By a cron line of five fields."""

    line: str
    tz: str

    def next(self, due_ms: int, now_ms: int) -> Next:
        """Return the first time after now; without one within 50 years, ``None``."""
        missed, at_ms = 0, due_ms
        while missed < _MAX_MISSED:
            following = self.after(at_ms)
            if following is None or following > now_ms:
                return Next(following, missed)
            missed, at_ms = missed + 1, following
        return Next(self.after(max(now_ms, at_ms)), missed)

    def after(self, time_ms: int) -> int | None:
        """Return the first time after ``time_ms``; ``None`` if there is none within 50 years."""
        times = CronSim(self.line, datetime.fromtimestamp(time_ms // 1000, _zone(self.tz)))
        # In the hour that comes twice, the library begins with times of its first half.
        return next((ms for ms in map(to_ms, times) if ms > time_ms), None)

    def to_json(self) -> JsonObject:
        """Return the rule as JSON."""
        return {"cron": self.line, "tz": self.tz}


Rule: TypeAlias = At | Every | Cron


def new_rule(
    now_ms: int,
    at: datetime | str | None = None,
    every: timedelta | float | None = None,
    cron: str | None = None,
    tz: str | None = None,
    since_ms: int | None = None,
) -> tuple[Rule, int]:
    """Return a rule, and when it is due first, as epoch milliseconds.

    Args:
        at: a time in the future, or after ``since_ms``; text is ISO 8601.
        every: an interval, in seconds if it is a number; the first time is one interval from now.
        cron: a cron line.
        tz: the name of the time zone of ``cron``, by default UTC, or of an ``at`` that has none.
        since_ms: the time before which ``at`` is in the past; by default now.

    Raises:
        InvalidInput: not exactly one of ``at``, ``every`` and ``cron`` is given, or one of the values cannot be used.
    """
    given = [name for name, value in (("at", at), ("every", every), ("cron", cron)) if value is not None]
    if len(given) != 1:
        found = f"not {' and '.join(given)}" if given else "none is given"
        raise InvalidInput(f"a reminder takes one of at=, every= and cron=; {found}")
    if tz is not None:
        _zone(tz)
    if at is not None:
        return At(), _time_of(at, tz, now_ms, now_ms if since_ms is None else min(now_ms, since_ms))
    if every is not None:
        if tz is not None:
            raise InvalidInput("an interval has no time zone: leave out tz=, or give cron= instead of every=")
        every_ms = _interval_of(every)
        if now_ms + every_ms > _LATEST_MS:
            raise InvalidInput(f"every={every!r} is too long for a reminder")
        return Every(every_ms), now_ms + every_ms
    assert cron is not None
    rule = Cron(_cron_line(cron), tz or "UTC")
    due_ms = rule.after(now_ms)
    if due_ms is None:
        raise InvalidInput(f"the cron line {cron!r} is never due")
    return rule, due_ms


def rule_from_json(value: JsonObject) -> Rule:
    """Return the rule of its JSON.

    Raises:
        InvalidInput: it is of another version, or its time zone is not known here.
    """
    match value:
        case {"every_ms": int(every_ms)} if every_ms >= _SHORTEST_MS:
            return Every(every_ms)
        case {"cron": str(line), "tz": str(tz)}:
            _zone(tz)
            return Cron(_cron_line(line), tz)
        case _ if not value:
            return At()
        case _:
            raise InvalidInput("the reminder has a rule that this version does not know")


def _time_of(at: Json | datetime, tz: str | None, now_ms: int, since_ms: int) -> int:
    time: object = at
    if isinstance(at, str):
        try:
            time = datetime.fromisoformat(at)
        except ValueError as error:
            raise InvalidInput(f"at={at!r} is not a time: write it as 2030-12-31T09:00+01:00") from error
    if not isinstance(time, datetime):
        raise InvalidInput(f"at= takes a datetime, or text such as 2030-12-31T09:00+01:00, not {type(at).__name__}")
    if time.tzinfo is None:
        if tz is None:
            raise InvalidInput(f"at={time.isoformat()} has no time zone: give tz=, such as tz='Europe/Berlin'")
        time = time.replace(tzinfo=_zone(tz))
    elif tz is not None:
        raise InvalidInput(f"at={time.isoformat()} has a time zone already: leave out tz=")
    try:
        due_ms = to_ms(time)
    except OverflowError as error:
        raise InvalidInput(f"at={time.isoformat()} cannot be used: it is at the end of all time") from error
    if due_ms <= since_ms:
        raise InvalidInput(
            f"at={time.isoformat()} is in the past; it is {from_ms(now_ms).isoformat()} now: give a later time"
        )
    return due_ms


def _interval_of(every: timedelta | float) -> int:
    if isinstance(every, bool) or not isinstance(every, timedelta | int | float):
        raise InvalidInput(f"every= takes a timedelta or a number of seconds, not {type(every).__name__}")
    try:
        every_ms = (every if isinstance(every, timedelta) else timedelta(seconds=every)) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"every={every!r} cannot be used: give a number of seconds") from error
    if every_ms < _SHORTEST_MS:
        raise InvalidInput(f"every={every!r} is too short: a second is the shortest interval of reminders")
    return every_ms


def _cron_line(line: object) -> str:
    if not isinstance(line, str):
        raise InvalidInput(f"cron= takes text, not {type(line).__name__}")
    fields = line.split()
    if len(fields) != _FIELDS:
        raise InvalidInput(
            f"{line!r} is not a cron line: it has {len(fields)} fields of 5 (minute, hour, day of the month, month, "
            "day of the week), such as '0 9 * * MON-FRI'"
        )
    try:
        CronSim(line, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, AssertionError) as error:
        if _is_readable(" ".join((*fields[:3], "*", fields[4]))):
            raise InvalidInput(f"the cron line {line!r} is never due: no month of it has such a day") from error
        problem = str(error).removeprefix("Bad ") or "a field"
        raise InvalidInput(
            f"{line!r} is not a cron line: its {problem} cannot be read; write it as in '0 9 * * MON-FRI'"
        ) from error
    return " ".join(fields)


def _is_readable(line: str) -> bool:
    try:
        CronSim(line, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, AssertionError):
        return False
    return True


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise InvalidInput(
            f"tz={name!r} is not a time zone that this machine knows: give one such as 'Europe/Berlin' or 'UTC'"
        ) from error
