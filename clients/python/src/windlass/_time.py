"""Durations and moments as people write them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TypeAlias

#: Length of time: seconds as a number, text such as `"90s"`, `"1h30m"` or `"7d"`, or a `timedelta`.
Duration: TypeAlias = float | str | timedelta
#: Point in time: a `datetime` (local time if it has no zone), seconds since 1970, or RFC 3339 text.
Moment: TypeAlias = datetime | float | str

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")


def seconds(
    value: Duration | None = None,
    *,
    milliseconds: float = 0,
    seconds: float = 0,
    minutes: float = 0,
    hours: float = 0,
    days: float = 0,
    weeks: float = 0,
) -> float:
    """Seconds of a duration; the keyword arguments are added to it.

    >>> seconds("1h30m"), seconds(minutes=5), seconds(0.5)
    (5400.0, 300.0, 0.5)
    """
    total = timedelta(
        milliseconds=milliseconds, seconds=seconds, minutes=minutes, hours=hours, days=days, weeks=weeks
    ).total_seconds()
    if value is not None:
        total += _seconds_of(value)
    if total < 0:
        raise ValueError(f"a duration must not be negative: {value!r}")
    return total


def _seconds_of(value: Duration) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)):
        return float(value)
    text, total, end = value.strip(), 0.0, 0
    while part := _PART.match(text, end):
        total += float(part[1]) * _UNITS[part[2]]
        end = part.end()
    if not text or end != len(text):
        raise ValueError(f"{value!r} is not a duration; write for example 90s, 1h30m or 7d")
    return total


def milliseconds(value: Duration) -> int:
    """Whole milliseconds of a duration."""
    return round(seconds(value) * 1000)


def moment(at: Moment) -> int | str:
    """Point in time as the API takes it: milliseconds since 1970, or text."""
    if isinstance(at, datetime):
        return round(at.timestamp() * 1000)
    return at if isinstance(at, str) else round(at * 1000)


def moment_ms(at: Moment) -> int:
    """Milliseconds since 1970 of a point in time."""
    said = moment(at)
    if isinstance(said, str):
        return round(datetime.fromisoformat(said.replace("Z", "+00:00")).timestamp() * 1000)
    return said
