"""How SCRAM's messages are written (RFC 5802 section 7), for both sides: attributes, names, nonces, base64.

A message is read as strictly as the grammar allows: what is not exactly one is a ScramError, and nothing else is raised
whatever the bytes are. No message is shown in an error: it has what a password can be guessed with.
"""

from __future__ import annotations

import base64
import binascii
import re

# A name of 255 characters, four bytes each, each escaped, and two nonces: below 4 KiB. More is no SCRAM message.
MAX_MESSAGE_BYTES = 4_096
MAX_NAME_CHARACTERS = 255
# 16 characters of a random text are 96 bits: no two exchanges share one by chance.
MIN_NONCE_CHARACTERS = 16
MAX_NONCE_CHARACTERS = 256  # of one side

# What a client adds to its first message that shows a delegation token: Kafka's extension (KIP-48). Its name is longer
# than RFC 5802 lets one be, so it is no attribute here.
TOKEN_EXTENSION = ",tokenauth=true"

_ATTRIBUTE = re.compile(r"([A-Za-z])=([^\0,]+)", re.DOTALL)
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")  # printable ASCII without the comma
_ESCAPED_NAME = re.compile(r"(?:[^\0=,]|=2C|=3D)+", re.DOTALL)
_MANDATORY_EXTENSION = "m"


class ScramError(Exception):
    """The exchange cannot go on: a message is malformed, out of bounds or out of order. Begin a new exchange."""


class ScramRefused(ScramError):
    """The server said no: the user or the password is wrong. The same exchange will not succeed later."""


def text_of(message: bytes, sender: str) -> str:
    """The message as text; `sender` is named in errors ("the server")."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise ScramError(f"{sender} sent a message of {len(message)} bytes: at most {MAX_MESSAGE_BYTES} are SCRAM's")
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise ScramError(f"{sender} sent a message that is not UTF-8: it does not speak SCRAM") from None


def attributes_of(text: str, expected: str, sender: str) -> dict[str, str]:
    """The values of the attributes that `expected` names, in this order at the beginning (`rsi` for r, s and i).

    What follows them are extensions: unknown ones are passed over, as RFC 5802 section 5.1 says; one that must be
    understood (`m=`) is refused, and so is a second value of an attribute that was expected.
    """
    matches = [_ATTRIBUTE.fullmatch(part) for part in text.split(",")]
    names = "".join(match.group(1) for match in matches if match is not None)
    if len(names) != len(matches) or not names.startswith(expected):
        raise ScramError(f"{sender} sent a message that has not the attributes {', '.join(expected)}")
    if _MANDATORY_EXTENSION in names:
        raise ScramError(f"{sender} demands an extension of SCRAM that is not known here")
    if set(expected) & set(names[len(expected) :]):
        raise ScramError(f"{sender} sent a message that has one attribute twice")
    values = (match.group(2) for match in matches if match is not None)
    return dict(zip(expected, values, strict=False))


def decoded(value: str, sender: str) -> bytes:
    """The bytes of a base64 value, in its one canonical form."""
    try:
        content = base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        content = b""
    if not content or encoded(content) != value:
        raise ScramError(f"{sender} sent a value that is not base64")
    return content


def encoded(content: bytes) -> str:
    """Base64, as values are written."""
    return base64.b64encode(content).decode("ascii")


def check_own_nonce(nonce: str) -> None:
    """Raises ValueError unless it is a nonce that may be sent: the caller draws it, from a source for secrets."""
    if _NONCE.fullmatch(nonce) is None or not MIN_NONCE_CHARACTERS <= len(nonce) <= MAX_NONCE_CHARACTERS:
        raise ValueError(
            f"a nonce has {MIN_NONCE_CHARACTERS} to {MAX_NONCE_CHARACTERS} printable ASCII characters without a comma: "
            "take secrets.token_urlsafe(24)"
        )


def check_nonce(nonce: str, longest: int, sender: str) -> None:
    """What the other side sent as a nonce is one, and not longer than `longest` characters."""
    if _NONCE.fullmatch(nonce) is None or len(nonce) > longest:
        raise ScramError(f"{sender} sent a nonce that is none")


def escaped_name(name: str) -> str:
    """A user name as it stands in a message: `=` and `,` have a meaning there."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped_name(value: str, sender: str) -> str:
    """The name of an escaped one."""
    if _ESCAPED_NAME.fullmatch(value) is None:
        raise ScramError(f"{sender} sent a user name with an escape that is none: only =2C and =3D are")
    name = value.replace("=2C", ",").replace("=3D", "=")
    if len(name) > MAX_NAME_CHARACTERS:
        raise ScramError(
            f"{sender} sent a user name of {len(name)} characters: at most {MAX_NAME_CHARACTERS} are allowed"
        )
    return name
