"""Who is connected to the HTTP listener and who is served, and how long a request's head may be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minilog_broker.server.http.listener import MAX_HEAD_BYTES, HttpListener
from minilog_broker.server.http.places import MOST_SERVED, MOST_WAITING, PROBE_PLACES, ConnectionPlaces


class TestPlaces:
    def test_the_oldest_that_has_asked_for_nothing_is_closed_for_a_new_one(self) -> None:
        """Once: 40 half-sent requests kept /livez dead for as long as they were sent anew."""
        places = ConnectionPlaces[int]()
        closed = [places.come(number) for number in range(MOST_WAITING + 3)]
        assert closed == [None] * MOST_WAITING + [0, 1, 2]
        assert places.asks(MOST_WAITING + 2, "/livez")

    def test_a_connection_with_a_request_is_not_closed_for_others(self) -> None:
        places = ConnectionPlaces[int]()
        places.come(0)
        assert places.asks(0, "/metrics")
        assert 0 not in [places.come(number) for number in range(1, 200)]

    def test_places_are_kept_for_probes(self) -> None:
        places = ConnectionPlaces[int]()
        assert all(places.asks(number, "/metrics") for number in range(MOST_SERVED))
        assert not places.asks(100, "/metrics")
        assert all(places.asks(200 + number, "/livez") for number in range(PROBE_PLACES - 1))
        assert places.asks(300, "/readyz")
        assert not places.asks(301, "/readyz")
        places.gone(300)
        assert not places.asks(302, "/metrics")
        assert places.asks(303, "/livez")

    def test_a_closed_connection_has_no_place(self) -> None:
        places = ConnectionPlaces[int]()
        for number in range(MOST_WAITING):
            places.come(number)
        places.gone(3)
        assert places.come(100) is None
        assert places.come(101) == 0


class Wire(asyncio.Transport):
    """The transport of a connection: what is written to it is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_cut = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_cut = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_cut

    def pause_reading(self) -> None:
        """Nothing more comes."""

    def resume_reading(self) -> None:
        """Nothing more comes."""


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def head_of(size_bytes: int) -> bytes:
    begun = b"GET /livez HTTP/1.1\r\nHost: x\r\nX: "
    return begun + b"y" * (size_bytes - len(begun) - 4) + b"\r\n\r\n"


class TestHeads:
    def answer(self, *pieces: bytes) -> bytes:
        async def scenario() -> bytes:
            listener, wire = HttpListener("127.0.0.1", 0, hello), Wire()
            try:
                protocol = listener.protocol()
                protocol.connection_made(wire)
                for piece in pieces:
                    protocol.data_received(piece)
                for _ in range(5):
                    await asyncio.sleep(0)
                protocol.connection_lost(None)
            finally:
                await listener.stop()
            return wire.written

        return asyncio.run(scenario())

    @pytest.mark.parametrize("size_bytes", [70_000, MAX_HEAD_BYTES + 1])
    def test_a_head_that_is_too_long_is_refused_in_one_piece_too(self, size_bytes: int) -> None:
        """Once: 70 KB in one piece were served; the bound held for what came in several."""
        head = head_of(size_bytes)
        for pieces in ([head], [head[:5_000], head[5_000:]], [head[:MAX_HEAD_BYTES], head[MAX_HEAD_BYTES:]]):
            answer = self.answer(*pieces)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b"more than 8192 bytes" in answer

    @pytest.mark.parametrize("size_bytes", [100, MAX_HEAD_BYTES])
    def test_a_head_of_the_largest_size_is_served(self, size_bytes: int) -> None:
        head = head_of(size_bytes)
        assert self.answer(head).startswith(b"HTTP/1.1 200 ")
        assert self.answer(head[:50], head[50:]).startswith(b"HTTP/1.1 200 ")

    def test_bytes_behind_a_request_are_no_head(self) -> None:
        assert self.answer(head_of(100) + b"z" * 70_000).startswith(b"HTTP/1.1 200 ")
