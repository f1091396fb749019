"""A secret text: a password, a token, the passphrase of a key.

Programs do not print such texts on purpose. The texts leak when a program shows an object that holds one: in a log
line, the repr of a configuration, a traceback with its variables, or a pickled job. So a `Secret` shows itself as
`***`, and is no text: a program cannot join, add or serialize it. Code that needs the text calls `reveal()`, a word to
search for.
"""

from __future__ import annotations

import hmac
import re
from typing import Final, NoReturn, Self, SupportsIndex, final

HIDDEN: Final = "***"
_SECRET = re.compile(
    r"password|passwd|secret|token(?!auth)|credential|sasl\.jaas\.config|keystore\.key|private\.key", re.IGNORECASE
)
_PLACE = re.compile(r"\.(?:file|location|ms)$", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Whether the value of a setting of this name is probably a secret. The place of a secret, such as the name of a
    file, is no secret, and neither is a time."""
    return _SECRET.search(key) is not None and _PLACE.search(key) is None


@final
class Secret:
    """A text that shows itself as `***`. Immutable; copies are the object itself; equal in constant time."""

    __slots__ = ("_text",)
    _text: str

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a secret is text, not {type(text).__name__}: decode bytes first, and reveal() a Secret")
        object.__setattr__(self, "_text", text)

    def reveal(self) -> str:
        """The text itself. Keep it no longer than the call that needs it."""
        return self._text

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a secret does not change: make another")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a secret does not change: make another")

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, specification: str) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        """In constant time for texts of one length. A secret never equals a plain text."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_encoded(self._text), _encoded(other._text))

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a secret is not pickled: hand over where it is found, such as the name of a file")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a secret is not pickled: hand over where it is found, such as the name of a file")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # what the environment holds may be no valid UTF-8
