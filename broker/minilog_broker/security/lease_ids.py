"""The ids of leases: each belongs to the principal that got it, and nobody guesses one. Pure.

An id has 63 bits: 32 of a number that the coordinator uses once, and 31 that follow from a key of the cluster, the
number and the principal. So each coordinator knows whose a lease is, and nothing of it is stored. A cluster that has
given no producer id yet has no key, and its leases have ids under an empty one, which stay good.

Trying many ids gains nothing, so 31 bits are enough. A caller is asked for the proof of its own principal. Of one
number two ids pass for it, whatever it tries, and each is another's lease with a chance of 1 in 2^31. Not even an id
that was seen helps another principal.
"""

from __future__ import annotations

import hashlib

_NUMBER_BITS, _PROOF_BITS = 32, 31
_NO_KEY = b""


def new_lease_id(key: bytes | None, number: int, principal: str) -> int:
    """The id of the principal's lease with this number."""
    short = number & ((1 << _NUMBER_BITS) - 1)
    return short << _PROOF_BITS | _proof(key or _NO_KEY, short, principal)


def is_lease_of(key: bytes | None, lease_id: int, principal: str) -> bool:
    """Whether the principal got the lease."""
    number, proof = lease_id >> _PROOF_BITS, lease_id & ((1 << _PROOF_BITS) - 1)
    if not 0 <= number < 1 << _NUMBER_BITS:
        return False
    return proof in (_proof(key or _NO_KEY, number, principal), _proof(_NO_KEY, number, principal))


def _proof(key: bytes, number: int, principal: str) -> int:
    signed = number.to_bytes(8, "big") + principal.encode()
    return int.from_bytes(hashlib.blake2b(signed, digest_size=4, key=key[:64], person=b"lease").digest(), "big") >> 1
