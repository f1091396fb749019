"""The documents keep to their limits of length."""

from __future__ import annotations

import pathlib

ROOT = pathlib.Path(__file__).parents[3]
MOST_WORDS = {"ARCHITECTURE.md": 4_500}  # somebody reads it in one sitting


def test_a_document_with_a_limit_stays_below_it() -> None:
    lengths = {name: len((ROOT / name).read_text().split()) for name in MOST_WORDS}
    assert not {name: length for name, length in lengths.items() if length > MOST_WORDS[name]}
