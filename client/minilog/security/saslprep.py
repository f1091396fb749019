"""Names and passwords in one form, whatever keyboard they were typed on: SASLprep (RFC 4013, a profile of RFC 3454).

`é` typed as one character or as two is the same password; so are a normal space and one that does not break. What
cannot be typed again with certainty (control characters, private ones, a mix of writing directions) is refused.
The tables are those of Unicode 3.2, as the standard demands: a character that came later is "unassigned". It may be
asked for and not be stored, since its normal form was not yet settled.
"""

from __future__ import annotations

import stringprep
import unicodedata

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


class UnpreparedText(ValueError):
    """A name or password that SASLprep refuses. The message does not show the text: it may be a password."""


def saslprep(text: str, *, what: str, stored: bool) -> str:
    """`text` in its normal form; `what` names it in an error ("the user name").

    `stored` is True for what is kept (a name that is created, a password that verifiers are made of), False for what is
    compared with it. Raises UnpreparedText.
    """
    if text.isascii() and text.isprintable() and text:
        return text  # the usual one: each step below leaves it as it is
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", _mapped(text))
    if not prepared:
        raise UnpreparedText(f"{what} is empty, or has nothing but characters that are not seen: give one")
    if any(prohibits(character) for character in prepared for prohibits in _PROHIBITED):
        raise UnpreparedText(
            f"{what} has a control character, a private or another one that SASLprep forbids: leave it out"
        )
    if stored and any(stringprep.in_table_a1(character) for character in prepared):
        raise UnpreparedText(f"{what} has a character that is newer than Unicode 3.2, such as an emoji: leave it out")
    _check_directions(prepared, what)
    return prepared


def _mapped(text: str) -> str:
    kept = (character for character in text if not stringprep.in_table_b1(character))
    return "".join(" " if stringprep.in_table_c12(character) else character for character in kept)


def _check_directions(prepared: str, what: str) -> None:
    """RFC 3454 section 6: with letters from right to left, it begins and ends with one, and has none of the others."""
    if not any(stringprep.in_table_d1(character) for character in prepared):
        return
    ends_well = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
    if not ends_well or any(stringprep.in_table_d2(character) for character in prepared):
        raise UnpreparedText(f"{what} mixes letters from right to left with others: use one direction")
