"""Each run that is sent to a reader, follower or consumer, is of the position that it names.

The first has the record that the position begins at, and each other begins where the one before it ended; or at the
position again, where that was judged again. So what was read for one position is never sent to another, however long
it took to read. Looks at wires alone. Of a run with a header that has rotted on the disk only what is before that
header can be judged, and nothing that its position is sent later: the reader finds the damage and begins another.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minilog.errors import CorruptMessage, UnsupportedVersion
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, Buffer, iterate_headers
from tests.judges.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.machines.wire import Said

_READS = ("/minilog.v1.DataService/Fetch", "/minilog.v1.PeerService/Replicate")
_Place = tuple[PartitionKey, int]  # a partition, and the number of the position


class Positions:
    """Of all streams: where each position begins, and up to where it was sent."""

    def __init__(self) -> None:
        self._asked: weakref.WeakKeyDictionary[Said, dict[_Place, int]] = weakref.WeakKeyDictionary()
        self._sent: weakref.WeakKeyDictionary[Said, dict[_Place, int | None]] = weakref.WeakKeyDictionary()

    def saw(self, call: Said, message: Any, payloads: Sequence[Buffer], answers: bool) -> None:
        """A message is sent, with its payloads."""
        if call.method not in _READS:
            return
        if not answers:
            asked = self._asked.setdefault(call, {})
            for position in message.positions:
                asked[PartitionKey.of(position.partition_id), position.position_number] = position.fetch_offset
            return
        for run, payload in zip(message.runs, payloads, strict=True) if payloads else ():
            if payload:
                self._look_at(call, run, payload)

    def _look_at(self, call: Said, run: Any, payload: Buffer) -> None:
        key = PartitionKey.of(run.partition_id)
        place = key, run.position_number
        begins = self._asked.get(call, {}).get(place)
        if begins is None:
            raise Violation("sessions", f"{call.host} sends {call.client} a run of position {place[1]}")
        sent = self._sent.setdefault(call, {})
        sent_up_to = sent.get(place, begins)
        if sent_up_to is None:
            return
        headers, is_sound = _headers_before_damage(payload)
        leads = call.method == _READS[1]
        if headers:
            first, end = headers[0].base_offset, headers[-1].next_offset
            begins_within = first <= begins and (begins < end or not is_sound)
            is_joined = not leads and _is_gap_around(headers[0], sent_up_to)
            if first != sent_up_to and not begins_within and not is_joined:
                text = f"{call.host} sends {call.client} offsets {first} to {end} for a position at {begins}, sent up "
                raise Violation("sessions", f"{text}to {sent_up_to}")
            sent[place] = end
        if not is_sound:
            sent[place] = None


def _is_gap_around(header: BatchHeader, offset: int) -> bool:
    """Compaction may have joined gaps since a consumer was sent the first. A follower is sent the rest alone."""
    return header.has_gaps and not header.record_count and header.base_offset < offset < header.next_offset


def _headers_before_damage(payload: Buffer) -> tuple[list[BatchHeader], bool]:
    """The headers of a run before the first that cannot be read, and whether all can."""
    headers: list[BatchHeader] = []
    try:
        for _, header in iterate_headers(payload):
            headers.append(header)
    except (CorruptMessage, UnsupportedVersion):
        return headers, False
    return headers, True
