"""The browser of records: its form, and the records for it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from minilog.errors import InvalidArgument, MinilogError
from minilog_tools.console.forms import number_field, text_field
from minilog_tools.console.pages.page import Page, Visit
from minilog_tools.console.record_reader import MOST_RECORDS, RecordsFound, Start, Wanted
from minilog_tools.console.shown_bytes import Form

_USUAL_COUNT = 20
_HEX = "0x"
_TIME_DIGITS = 15  # milliseconds up to the year 33658. A time stamp has microseconds, in 64 bits


def wanted_records(fields: dict[str, str]) -> Wanted:
    """The form as a request to the record reader. Raises InvalidArgument."""
    start = _one_of(Start, fields.get("start") or "latest", "start")
    partition = number_field(fields, "partition", "a partition")
    count = number_field(fields, "count", "a number of records")
    at: int | None = None
    if start is Start.OFFSET:
        at = number_field(fields, "at", "an offset")
    elif start is Start.TIME:
        at = _time_ms(fields.get("at", ""))
    return Wanted(
        start=start,
        count=min(MOST_RECORDS, max(1, _USUAL_COUNT if count is None else count)),
        partition=partition,
        at=at,
        key=_bytes(fields.get("key", ""), "the key"),
        value=_bytes(fields.get("value", ""), "the text in values"),
        form=_one_of(Form, fields.get("form") or "text", "form"),
        columns=tuple(column.strip() for column in fields.get("columns", "").split(",") if column.strip()),
        where=fields.get("where", "").strip() or None,
    )


def _one_of(kind: Any, text: str, what: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise InvalidArgument(
            f"{what} cannot be {text[:40]!r}: it is {', '.join(choice.value for choice in kind)}"
        ) from None


def _bytes(text: str, what: str) -> bytes | None:
    """UTF-8, or bytes as 0x and hexadecimal digits."""
    if not text:
        return None
    if text.startswith(_HEX):
        try:
            return bytes.fromhex(text.removeprefix(_HEX))
        except ValueError:
            raise InvalidArgument(f"{what} {text[:40]!r} begins with 0x, and is not hexadecimal digits") from None
    return text.encode("utf-8", "surrogatepass")


def _time_ms(text: str) -> int | None:
    """ISO 8601 (of UTC, where it names no zone), or milliseconds since 1970."""
    text = text.strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) <= _TIME_DIGITS:
        return int(text)
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"the time {text[:40]!r} cannot be read: write it as 2026-05-01T12:00, or as milliseconds since 1970"
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)
    return int(at.timestamp() * 1000)


async def records(visit: Visit) -> Mapping[str, Any]:
    """A form, and its records. An error in the form is shown beside it."""
    name = text_field(visit.fields, "topic", "the name of a topic")
    topic = await visit.view.topic(name)
    result, trouble = RecordsFound([], 0), ""
    try:
        wanted = wanted_records(visit.fields)
        result = await visit.view.act(lambda admin: visit.reader.read(visit.view.client, admin, topic, wanted))
    except MinilogError as error:
        trouble = str(error)
    return {
        "is_live": visit.field("follow") == "1" and not trouble,
        "topic": topic,
        "fields": visit.fields,
        "result": result,
        "trouble": trouble,
        "is_typed": topic.schemas is not None,
        "forms": [choice.value for choice in Form],
        "starts": [choice.value for choice in Start],
        "onward": {**visit.fields, "start": "offset", "at": str(result.next_offset)},
        "former": {**visit.fields, "start": "offset", "at": str(result.former_offset)},
    }


PAGES = (Page("/records", "records.html", "Topics", records, is_live=False),)
