"""A fetch request with many conditions, split into requests with a few. Pure.

A condition costs some microseconds for each of its terms, and one message may have twenty thousand of them. Positions
do not depend on each other, and credit is an absolute count. So the parts mean the same as the whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from minilog.v1 import data_pb2

CONDITION_BYTES = 4 << 10  # of one part, plus one more position: a few milliseconds


def parts_of_request(request: data_pb2.FetchRequest) -> Iterator[data_pb2.FetchRequest]:
    """The parts. The first one has all fields of the request beside the positions. Each has the credit."""
    sizes = [
        position.selection.where.ByteSize() if position.HasField("selection") else 0 for position in request.positions
    ]
    if sum(sizes) <= CONDITION_BYTES:
        yield request
        return
    positions = list(request.positions)
    del request.positions[:]
    part, size_bytes = request, 0
    for position, position_bytes in zip(positions, sizes, strict=True):
        part.positions.append(position)
        size_bytes += position_bytes
        if size_bytes > CONDITION_BYTES:
            yield part
            part, size_bytes = data_pb2.FetchRequest(credit_bytes=request.credit_bytes), 0
    if part.positions:
        yield part
