"""Keys of one hash, for each hash function of Arrow's tables: the worst that somebody who knows them can write."""

from __future__ import annotations

import struct

_WORD, _LONG = (1 << 32) - 1, (1 << 64) - 1
_FIRST, _SECOND = 0x9E3779B1, 0x85EBCA77  # the primes of xxHash32
_FIRST_LONG, _SECOND_LONG = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F  # and of xxHash64


def keys_of_one_memo_hash(count: int) -> list[bytes]:
    """16 bytes each, for `dictionary_encode`, `unique`, `is_in` and `index_in`: the hash is an xor of two products."""
    inverse = pow(_FIRST_LONG, -1, 1 << 64)
    return [struct.pack("<QQ", low, inverse * (_SECOND_LONG * low & _LONG) & _LONG) for low in range(1, count + 1)]


def keys_of_one_group_hash(count: int) -> list[bytes]:
    """16 bytes each, for `group_by`: the hash is a sum of four words, each mixed by itself."""
    starts = (_FIRST + _SECOND) & _WORD, _SECOND, 0, -_FIRST & _WORD
    undo_first, undo_second = pow(_FIRST, -1, 1 << 32), pow(_SECOND, -1, 1 << 32)
    keys = []
    for number in range(1, count + 1):
        words = (number, 7, 9)
        mixed = [_turned(start + word * _SECOND, 13) * _FIRST for start, word in zip(starts, words, strict=False)]
        rest = -sum(_turned(word, turn) for word, turn in zip(mixed, (1, 7, 12), strict=True)) & _WORD
        last = (_turned(_turned(rest, 32 - 18) * undo_first, 32 - 13) - starts[3]) * undo_second & _WORD
        keys.append(struct.pack("<IIII", *words, last))
    return keys


def _turned(word: int, bits: int) -> int:
    word &= _WORD
    return (word << bits | word >> (32 - bits)) & _WORD
