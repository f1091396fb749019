"""The broker's end of one member's stream: what its coordinator has for it and it has not taken yet.

That is one message at the most. A newer one takes the place of one that waits, and keeps its question for names, and
its assignment where it has none of its own. So a member that reads slowly costs no memory, and misses nothing: an
assignment is whole.
"""

from __future__ import annotations

import asyncio

from minilog.stream_messages import StreamMessage
from minilog.v1 import coordinator_pb2


class MemberStream:
    """Filled by the coordinator, emptied by the service. Nothing follows an error or a farewell."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self._waiting: coordinator_pb2.MemberResponse | None = None
        self._is_over = False

    def put(self, message: coordinator_pb2.MemberResponse) -> None:
        """The coordinator's next message."""
        if self._is_over:
            return
        self._is_over = bool(message.error.code) or message.member_epoch < 0
        before = self._waiting
        if before is not None and not self._is_over:
            message.names_wanted |= before.names_wanted
            if before.HasField("assignment") and not message.HasField("assignment"):
                message.assignment.CopyFrom(before.assignment)
        self._waiting = message
        self.ready.set()

    def next_message(self) -> StreamMessage[coordinator_pb2.MemberResponse] | None:
        """None: nothing waits. Raises StreamOver behind the last one."""
        if self._waiting is None:
            if self._is_over:
                raise StreamOver
            return None
        message, self._waiting = self._waiting, None
        return StreamMessage(message)


class StreamOver(Exception):
    """The last message went: the broker ends the stream."""
