"""The words for the two ends of a log. All verbs, calls and options take each of them.

    the first record      earliest    start    beginning
    behind the last one   latest      end

Inside the client there are two words, Kafka's: earliest and latest.
"""

from __future__ import annotations

from typing import TypeVar

PLACE_WORDS = {
    "earliest": "earliest",
    "start": "earliest",
    "beginning": "earliest",
    "latest": "latest",
    "end": "latest",
}
_Place = TypeVar("_Place")


def named_place(place: _Place) -> _Place | str:
    """Kafka's word for a word of the table, in any case of its letters. Everything else stays as it is."""
    return PLACE_WORDS.get(place.strip().lower(), place) if isinstance(place, str) else place
