"""The limits and the reading of a browser's forms, which have a few short fields."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from minilog.errors import InvalidArgument

MAX_FORM_BYTES = 16 * 1024
MAX_FIELDS = 50
_KIND = "application/x-www-form-urlencoded"


async def form_fields(request: Request) -> dict[str, str]:
    """The fields of a form, and of several with one name the last. Raises InvalidArgument."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _KIND:
        raise InvalidArgument(f"the form has another content type than {_KIND}")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                raise InvalidArgument(f"a form has at most {MAX_FORM_BYTES} bytes")
    except ClientDisconnect:
        raise InvalidArgument("the form did not come as a whole") from None
    try:
        return dict(
            parse_qsl(
                body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="backslashreplace"
            )
        )
    except ValueError:
        raise InvalidArgument("the form is not as a browser sends it") from None


def number_field(fields: dict[str, str], name: str, what: str) -> int | None:
    """A whole number, None where the field is empty or not there. Raises InvalidArgument."""
    text = fields.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidArgument(f"{what} cannot be {text[:40]!r}: give a whole number")
    return int(text)


def text_field(fields: dict[str, str], name: str, what: str) -> str:
    """Raises InvalidArgument where it is not there."""
    text = fields.get(name, "")
    if not text:
        raise InvalidArgument(f"{what} is missing: go back and choose one")
    return text
