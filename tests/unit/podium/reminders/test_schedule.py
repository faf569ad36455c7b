"""When reminders are due, also around changes to and from daylight saving time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import InvalidInput
from podium.reminders.schedule import At, Cron, Every, Next, new_rule, rule_from_json
from podium.reminders.times import from_ms, to_ms

BERLIN = "Europe/Berlin"
"""On 2026-03-29 the hour from 2:00 is skipped, on 2026-10-25 it comes twice."""
LORD_HOWE = "Australia/Lord_Howe"
"""Its daylight saving time is half an hour."""
HOUR_MS = 3_600_000
ZONES = st.sampled_from(["UTC", BERLIN, LORD_HOWE, "America/New_York", "Asia/Kathmandu", "Pacific/Apia"])
INSTANTS = st.one_of(
    st.integers(to_ms(datetime(2020, 1, 1, tzinfo=UTC)), to_ms(datetime(2030, 1, 1, tzinfo=UTC))),
    *(  # around the changes of Berlin and Lord Howe
        st.integers(to_ms(around) - 30 * HOUR_MS, to_ms(around) + 30 * HOUR_MS)
        for around in (
            datetime(2026, 3, 29, 1, tzinfo=UTC),
            datetime(2026, 10, 25, 1, tzinfo=UTC),
            datetime(2026, 4, 4, 15, tzinfo=UTC),
            datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
        )
    ),
)
LINES = st.one_of(
    st.builds(lambda minute, hour: f"{minute} {hour} * * *", st.integers(0, 59), st.integers(0, 23)),
    st.builds("{} * * * *".format, st.integers(0, 59)),
    st.builds("*/{} * * * *".format, st.integers(1, 59)),
    st.builds("{} {} * * {}".format, st.integers(0, 59), st.integers(0, 23), st.integers(0, 6)),
    st.builds("{} 2 {} * *".format, st.integers(0, 59), st.integers(1, 28)),
)


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, *, tz: str = "UTC", fold: int = 0) -> int:
    return to_ms(datetime(year, month, day, hour, minute, tzinfo=ZoneInfo(tz), fold=fold))


@given(st.integers(-(10**13), 2 * 10**14))
def test_milliseconds_come_back(time_ms: int) -> None:
    assert to_ms(from_ms(time_ms)) == time_ms


# -- each rule ---------------------------------------------------------------------------------------------------------


@given(INSTANTS, st.integers(1_000, 10**10), st.integers(-(10**10), 10**12))
def test_intervals_are_whole_and_miss_none(due_ms: int, every_ms: int, late_ms: int) -> None:
    now_ms = due_ms + max(late_ms, 0)
    following = Every(every_ms).next(due_ms, now_ms)
    assert following.due_ms is not None
    assert now_ms < following.due_ms <= now_ms + every_ms
    assert following.due_ms - due_ms == (following.missed + 1) * every_ms


@given(INSTANTS, LINES, ZONES)
def test_times_of_a_line_grow_and_fit_it(now_ms: int, line: str, tz: str) -> None:
    rule = Cron(line, tz)
    minute, hour, *_ = line.split()
    time_ms = now_ms
    for _ in range(5):
        following = rule.after(time_ms)
        assert following is not None
        assert following > time_ms
        time = from_ms(following).astimezone(ZoneInfo(tz))
        skipped = time.utcoffset() != (time.astimezone(UTC) - timedelta(hours=2)).astimezone(ZoneInfo(tz)).utcoffset()
        if not skipped:
            assert time.second == 0
            assert minute.startswith("*") or time.minute == int(minute)
            assert hour == "*" or time.hour == int(hour)
        assert rule.after(following - 1) == following
        time_ms = following


@given(INSTANTS, LINES, ZONES, st.integers(0, 3 * 24 * HOUR_MS))
def test_what_a_line_missed_is_counted(due_ms: int, line: str, tz: str, late_ms: int) -> None:
    rule = Cron(line, tz)
    following = rule.next(due_ms, due_ms + late_ms)
    time_ms, passed = rule.after(due_ms), 0
    while time_ms is not None and time_ms <= due_ms + late_ms:
        time_ms, passed = rule.after(time_ms), passed + 1
    assert following == Next(time_ms, passed)


@given(INSTANTS, st.integers(0, 59), st.integers(0, 23), ZONES)
def test_a_fixed_time_comes_once_a_day(now_ms: int, minute: int, hour: int, tz: str) -> None:
    zone, rule = ZoneInfo(tz), Cron(f"{minute} {hour} * * *", tz)
    first = rule.after(now_ms)
    assert first is not None
    days, time_ms = [], first
    for _ in range(7):
        days.append(from_ms(time_ms).astimezone(zone).date())
        following = rule.after(time_ms)
        assert following is not None
        time_ms = following
    if tz != "Pacific/Apia":
        assert days == [days[0] + timedelta(days=n) for n in range(7)]


def test_a_time_that_is_skipped_comes_right_after() -> None:
    rule = Cron("30 2 * * *", BERLIN)
    first = rule.after(at(2026, 3, 28, 12, tz=BERLIN))
    assert first == at(2026, 3, 29, 3, tz=BERLIN)
    assert rule.after(first) == at(2026, 3, 30, 2, 30, tz=BERLIN)


def test_a_time_that_comes_twice_is_taken_once() -> None:
    rule = Cron("30 2 * * *", BERLIN)
    first = rule.after(at(2026, 10, 24, 12, tz=BERLIN))
    assert first == at(2026, 10, 25, 2, 30, tz=BERLIN, fold=0)
    for later in (first, at(2026, 10, 25, 2, 15, tz=BERLIN, fold=1), at(2026, 10, 25, 2, 45, tz=BERLIN, fold=1)):
        assert rule.after(later) == at(2026, 10, 26, 2, 30, tz=BERLIN)


def test_lines_of_every_hour_go_by_real_time() -> None:
    rule = Cron("0 * * * *", BERLIN)
    hours = [at(2026, 10, 25, 0, 30, tz=BERLIN)]
    for _ in range(4):
        following = rule.after(hours[-1])
        assert following is not None
        hours.append(following)
    assert [later - earlier for earlier, later in pairwise(hours[1:])] == [HOUR_MS] * 3


def test_what_passed_in_years_is_counted_up_to_a_limit() -> None:
    due_ms, now_ms = at(2020, 1, 1), at(2026, 1, 1, 0, 0) + 30_000
    assert Cron("* * * * *", "UTC").next(due_ms, now_ms) == Next(at(2026, 1, 1, 0, 1), 10_000)


def test_once_is_once() -> None:
    assert At().next(5, 10**12) == Next(None, 0)


# -- new rules ---------------------------------------------------------------------------------------------------------

NOW_MS = at(2026, 6, 1, 12)


@pytest.mark.parametrize(
    ("given_", "rule", "due_ms"),
    [
        ({"at": datetime(2026, 6, 1, 13, tzinfo=UTC)}, At(), at(2026, 6, 1, 13)),
        ({"at": datetime(2026, 6, 1, 13, tzinfo=timezone(timedelta(hours=-2)))}, At(), at(2026, 6, 1, 15)),
        ({"at": "2026-06-01T15:00", "tz": BERLIN}, At(), at(2026, 6, 1, 13)),
        ({"at": "2026-06-01T15:00+02:00"}, At(), at(2026, 6, 1, 13)),
        ({"every": 90}, Every(90_000), NOW_MS + 90_000),
        ({"every": 1.5}, Every(1_500), NOW_MS + 1_500),
        ({"every": timedelta(days=1)}, Every(86_400_000), NOW_MS + 86_400_000),
        ({"cron": "0 9  * * MON-FRI"}, Cron("0 9 * * MON-FRI", "UTC"), at(2026, 6, 2, 9)),
        ({"cron": "0 9 * * *", "tz": BERLIN}, Cron("0 9 * * *", BERLIN), at(2026, 6, 2, 7)),
    ],
)
def test_new_rules(given_: dict[str, Any], rule: object, due_ms: int) -> None:
    found = new_rule(NOW_MS, **given_)
    assert found == (rule, due_ms)
    assert rule_from_json(found[0].to_json()) == rule


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({}, "takes one of at=, every= and cron=; none is given"),
        ({"every": 5, "cron": "* * * * *"}, "takes one of at=, every= and cron=; not every and cron"),
        ({"at": datetime(2026, 6, 1, 11, 59, tzinfo=UTC)}, "is in the past; it is 2026-06-01T12:00:00"),
        ({"at": datetime(2026, 6, 1, 13)}, "has no time zone: give tz="),  # noqa: DTZ001
        ({"at": "2026-06-01T13:00+00:00", "tz": BERLIN}, "has a time zone already: leave out tz="),
        ({"at": "tomorrow"}, "at='tomorrow' is not a time"),
        ({"at": 5}, "at= takes a datetime, or text"),
        ({"at": "9999-12-31T23:59", "tz": "America/New_York"}, "cannot be used: it is at the end"),
        ({"every": 0.5}, "is too short: a second is the shortest"),
        ({"every": -5}, "is too short"),
        ({"every": float("nan")}, "cannot be used: give a number of seconds"),
        ({"every": timedelta.max}, "is too long for a reminder"),
        ({"every": True}, "every= takes a timedelta or a number of seconds, not bool"),
        ({"every": 60, "tz": BERLIN}, "an interval has no time zone"),
        ({"cron": "hourly"}, "'hourly' is not a cron line: it has 1 fields of 5"),
        ({"cron": "* * * * * *"}, "it has 6 fields of 5"),
        ({"cron": "61 * * * *"}, "its minute cannot be read"),
        ({"cron": "0 9 * * FOO"}, "its day-of-week cannot be read"),
        ({"cron": "0 0 30 2 *"}, "is never due: no month of it has such a day"),
        ({"cron": "0 0 32 2 *"}, "not a cron line: its day-of-month cannot be read"),
        ({"cron": "0 0 */31 * 1#5"}, "is never due"),
        ({"cron": 5}, "cron= takes text, not int"),
        ({"cron": "* * * * *", "tz": "Europe/Nowhere"}, "tz='Europe/Nowhere' is not a time zone"),
        ({"cron": "* * * * *", "tz": "../etc/passwd"}, "is not a time zone"),
        ({"cron": "* * * * *", "tz": "Europe"}, "is not a time zone"),
        ({"cron": "* * * * *", "tz": ""}, "is not a time zone"),
    ],
)
def test_what_cannot_be_used_is_said(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        new_rule(NOW_MS, **given_)


@given(st.text(alphabet="0123456789*/,-#L ?", max_size=20))
def test_any_text_is_a_line_or_refused(line: str) -> None:
    try:
        rule, due_ms = new_rule(NOW_MS, cron=line)
    except InvalidInput:
        return
    assert isinstance(rule, Cron)
    assert due_ms > NOW_MS
