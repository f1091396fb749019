"""Wrong rules of what clients are told and send: 13, 28."""

from __future__ import annotations

from typing import Any

from minilog.errors import MinilogError, NotLeaderOrFollower
from minilog.producer import sender as sender_module
from minilog.producer.sender import Sender
from minilog_broker.replication.leader.produce import ProduceHandler
from tests.rules import Patches


def unknown_reported_as_failed() -> Patches:
    """At the end of its time, a batch that may be written is reported with the last refusal."""

    def mutant(batch: Any, error: MinilogError) -> MinilogError:
        return error

    return [(sender_module, "unknown", mutant)]


def lost_connection_is_a_refusal() -> Patches:
    """What was on a connection that broke counts as not written."""
    lost = Sender.connection_lost

    def mutant(self: Sender, broker_id: int, now_ms: float) -> None:
        before = [
            (batch, batch.maybe_written) for out_broker, _, batch in self._out.values() if out_broker == broker_id
        ]
        lost(self, broker_id, now_ms)
        for batch, maybe_written in before:
            batch.maybe_written = maybe_written

    return [(Sender, "connection_lost", mutant)]


def deposed_leader_refuses() -> Patches:
    """A leader that is deposed answers what waits as if it had refused it."""

    def mutant(self: ProduceHandler, why: str) -> None:
        for parked in (*self._pending_all.take_above(-1), *self._pending_leader.take_above(-1)):
            self._answer(parked.ticket, NotLeaderOrFollower(f"{self._name}: {why}"), -1)

    return [(ProduceHandler, "resign", mutant)]


def buffer_reused() -> Patches:
    """Three buffers are used in turn: a batch sent again has the bytes of one that was encoded later."""
    send = Sender._send

    def mutant(self: Sender, lane: Any, batch: Any, *rest: Any) -> None:
        buffers, slot = self.__dict__.setdefault("_buffers", {}), batch.number % 3
        if batch.attempts == 0:
            buffers[slot] = batch.encoded
        batch.encoded = buffers[slot]
        send(self, lane, batch, *rest)

    return [(Sender, "_send", mutant)]
