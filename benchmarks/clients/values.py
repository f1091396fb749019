"""What both sides write: values that differ, of random bytes, so that nothing can be compressed away."""

from __future__ import annotations

import random

_POOL_BYTES = 1 << 20
_STEP_BYTES = 37


def values(count: int, record_bytes: int) -> list[bytes]:
    """`count` values of `record_bytes` each."""
    pool = random.Random(1).randbytes(_POOL_BYTES)
    room = _POOL_BYTES - record_bytes
    return [pool[start : start + record_bytes] for start in ((number * _STEP_BYTES) % room for number in range(count))]


def quantiles_ms(latencies_ns: list[int]) -> dict[str, float]:
    """p50, p99 and the worst, in ms."""
    ordered = sorted(latencies_ns)
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6 for name, share in at.items()}
