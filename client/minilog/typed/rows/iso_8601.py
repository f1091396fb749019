"""Dates and times as text of ISO 8601, in every year that 32 bits of days or 64 bits of microseconds reach. Pure.

Python's datetime ends with the years 1 and 9999, and Arrow's own text with 32767. Spark writes values beyond both: the
last second of 9999 in New York is in the year 10000 of UTC. A year outside of 0 to 9999 has a sign and as many digits
as it needs, as ISO 8601 says of expanded years and as Spark does: `+10000-01-01`. Inside, the text is that of Python's
`isoformat`. The calendar is the proleptic Gregorian one. The year 0 is 1 BC.
"""

from __future__ import annotations

import re

_ERA_DAYS, _ERA_YEARS = 146_097, 400  # the calendar repeats itself
_EPOCH_OF_ERAS = 719_468  # days from 0000-03-01 to 1970-01-01: years begin in March here, so a leap day ends one
_DAY_US = 86_400_000_000
_TEXT = re.compile(
    r"(?P<year>\d{4}|[+-]\d{4,7})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?:[T ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?)?"
)


def date_text(days: int) -> str:
    """`days` since 1970-01-01, such as 2024-05-01."""
    era, day_of_era = divmod(days + _EPOCH_OF_ERAS, _ERA_DAYS)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    year = era * _ERA_YEARS + year_of_era + (month >= 10)
    number = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{number}-{(month + 2) % 12 + 1:02}-{day:02}"


def timestamp_text(microseconds: int, *, has_zone: bool) -> str:
    """`microseconds` since 1970, such as 2024-05-01T12:00:00+00:00; an instant is told in UTC."""
    days, rest_us = divmod(microseconds, _DAY_US)
    seconds, fraction = divmod(rest_us, 1_000_000)
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{date_text(days)}T{time}{f'.{fraction:06}' if fraction else ''}{'+00:00' if has_zone else ''}"


def days_of(text: str) -> int | None:
    """The days since 1970-01-01 of a date; None where the text is no date."""
    match = _TEXT.fullmatch(text)
    return None if match is None or match["hour"] is not None else _days(match)


def microseconds_of(text: str, *, has_zone: bool) -> int | None:
    """The microseconds since 1970 of a date with a time, which has a zone or has none; None for any other text."""
    match = _TEXT.fullmatch(text)
    if match is None or match["hour"] is None or (match["zone"] is not None) != has_zone:
        return None
    days, hour, minute, second = _days(match), int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int((match["fraction"] or "").ljust(6, "0"))
    local_s = hour * 3600 + minute * 60 + second - _zone_s(match["zone"])
    return days * _DAY_US + local_s * 1_000_000 + fraction


def _days(match: re.Match[str]) -> int | None:
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    if not (1 <= month <= 12 and day >= 1):
        return None
    era, year_of_era = divmod(year - (month <= 2), _ERA_YEARS)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = era * _ERA_DAYS + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _EPOCH_OF_ERAS
    # The 31st of a shorter month is a day of the next one.
    return days if date_text(days).endswith(f"-{month:02}-{day:02}") else None


def _zone_s(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -seconds if zone[0] == "-" else seconds
