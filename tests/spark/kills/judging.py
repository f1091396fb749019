"""What may stand in the sink: each record of the source exactly once, in its partition, in order; and what may be read.

Values of the sink are `partition:offset|value`: which record of the source it is a copy of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.integration.history import Stored


@dataclass
class Verdict:
    """How many there were, and every way in which the sink or a reader of it broke the promise."""

    input: int = 0
    copies: int = 0
    duplicates: int = 0
    lost: int = 0
    wrong: list[str] = field(default_factory=list)


def copy_of(partition: int, offset: int, value: bytes) -> bytes:
    """What the driver program makes of a record of the source."""
    return b"%d:%d|" % (partition, offset) + value


def judge(source: Stored, sink: Stored, keys: int | None = None, *, in_order: bool = True) -> Verdict:
    """`source` and `sink` as read_committed readers find them when all is done.

    A copy's partition is the sum of its source's place; with `keys` that many keys decide it, each one in its way.
    A queue has no order."""
    places = {
        copy_of(partition, offset, value): (partition + offset) % (keys or len(sink))
        for partition, records in source.items()
        for offset, value in records
    }
    if keys:
        homes = _homes(places, sink)
        places = {value: homes.get(key, -1) for value, key in places.items()}
    counts = Counter(value for records in sink.values() for _, value in records)
    doubled = {value: count for value, count in counts.items() if count > 1}
    lost = places.keys() - counts.keys()
    verdict = Verdict(len(places), counts.total(), sum(doubled.values()) - len(doubled), len(lost))
    verdict.wrong += [f"{value[:40]!r} stands {count} times" for value, count in doubled.items()]
    verdict.wrong += [f"{value[:40]!r} is lost" for value in sorted(lost)]
    for partition, records in sink.items():
        values = [value for _, value in records]
        verdict.wrong += [
            f"{value[:40]!r} stands in partition {partition}, where nobody should have written it"
            for value in values
            if places.get(value) != partition
        ]
        verdict.wrong += _reordered(partition, values) if in_order else []
    return verdict


def _homes(keys: Mapping[bytes, int], sink: Stored) -> dict[int, int]:
    """Each key's partition: that of the first of its values that is found."""
    homes: dict[int, int] = {}
    for partition, records in sink.items():
        for _, value in records:
            if value in keys:
                homes.setdefault(keys[value], partition)
    return homes


def _reordered(partition: int, values: list[bytes]) -> Iterator[str]:
    last: dict[bytes, int] = {}
    for value in values:
        source, _, offset = value.partition(b"|")[0].partition(b":")
        if int(offset) <= last.get(source, -1):
            yield f"partition {partition}: {value[:40]!r} stands behind offset {last[source]} of its source"
        last[source] = int(offset)


def judge_reading(read: Stored, sink: Stored) -> list[str]:
    """Every way in which a reader that followed the sink saw something else, or in another order, than stands there."""
    wrong = []
    for partition, records in read.items():
        for number, (seen, standing) in enumerate(zip(records, sink[partition], strict=False)):
            if seen != standing:
                wrong.append(f"partition {partition}: record {number} was read as {seen}, {standing} stands there")
                break
        if len(records) != len(sink[partition]):
            wrong.append(f"partition {partition}: {len(records)} records were read, {len(sink[partition])} stand there")
    return wrong
