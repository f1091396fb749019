"""Many conditions of one message are read in as many turns of the loop as they need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from minilog.limits import MAX_POSITIONS
from minilog.stream_messages import StreamMessage
from minilog.v1 import common_pb2, data_pb2, typed_pb2
from minilog_broker.server.runtime.turns import SLICE_S, Turns
from minilog_broker.server.services.data_service import in_pieces
from minilog_broker.server.services.fetch_parts import CONDITION_BYTES, parts_of_request

TERMS = 95


def position(number: int, terms: int) -> data_pb2.FetchPosition:
    parts = [
        typed_pb2.Predicate(equal=typed_pb2.Comparison(field_id=1, value=typed_pb2.Bound(integer=number + each + 1)))
        for each in range(terms)
    ]
    where = typed_pb2.Predicate(any_of=typed_pb2.Predicates(parts=parts))
    return data_pb2.FetchPosition(position_number=number, selection=typed_pb2.Selection(where=where))


def request(positions: int, terms: int) -> data_pb2.FetchRequest:
    return data_pb2.FetchRequest(
        client=common_pb2.ClientIdentity(client_id="me"),
        credit_bytes=9,
        keepalive_ms=7,
        forgotten=[common_pb2.PartitionId(partition=3)],
        positions=[position(number, terms) for number in range(positions)],
    )


def test_the_parts_are_the_whole_in_its_order_and_each_has_a_few_conditions() -> None:
    whole = request(200, TERMS)
    parts = list(parts_of_request(data_pb2.FetchRequest.FromString(whole.SerializeToString())))
    assert [each for part in parts for each in part.positions] == list(whole.positions)
    assert {part.credit_bytes for part in parts} == {9}
    assert [(part.keepalive_ms, len(part.forgotten), part.HasField("client")) for part in parts] == [
        (7, 1, True),
        *[(0, 0, False)] * (len(parts) - 1),
    ]
    for part in parts:
        sizes = [each.selection.where.ByteSize() for each in part.positions]
        assert sum(sizes[:-1]) <= CONDITION_BYTES


def test_a_request_of_little_to_read_stays_in_one_part() -> None:
    for small in (request(0, 0), request(1, TERMS), request(MAX_POSITIONS, 0)):
        for each in small.positions:
            if not each.selection.where.any_of.parts:
                each.ClearField("selection")
        assert list(parts_of_request(small)) == [small]


def test_between_two_parts_that_took_their_slice_everybody_else_has_the_loop() -> None:
    """On a clock of its own: a part takes a slice and more, and others are asked for a turn meanwhile."""

    async def scenario() -> None:
        loop, came, others = asyncio.get_running_loop(), list[int](), list[int]()
        real, ahead = loop.time, 0.0
        loop.time = lambda: real() + ahead  # type: ignore[method-assign]

        async def incoming() -> AsyncIterator[StreamMessage[data_pb2.FetchRequest]]:
            yield StreamMessage(request(40, TERMS))

        def other() -> None:
            others.append(len(came))
            loop.call_soon(other)

        loop.call_soon(other)
        async for part in in_pieces(incoming(), Turns()):
            came.append(len(part.message.positions))
            ahead += 2 * SLICE_S
        assert sum(came) == 40
        assert len(came) > 5
        assert set(range(2, len(came))) <= set(others), "somebody ran after each part that took its slice"

    asyncio.run(scenario())
