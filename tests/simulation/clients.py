"""The side of a simulated client: a process of its own, that reaches brokers over the simulated network only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minilog.v1 import peer_pb2
from tests.simulation.network import AnswerHandler, Network
from tests.simulation.process import EPOCH_US, Process
from tests.simulation.stream import Stream

if TYPE_CHECKING:
    from tests.simulation.events import Scheduler

PORT = 9092


def node_address(node_id: int) -> peer_pb2.VoterAddress:
    """Where a node listens."""
    return peer_pb2.VoterAddress(broker_id=node_id, host=f"node-{node_id}", port=PORT)


def node_at(host: str) -> int:
    """Whose host that is."""
    return int(host.removeprefix("node-"))


class ClientProcess:
    """One client's process. Methods are those of the services by name, requests and responses protobuf messages.

    Unary: GetMetadata, ListOffsets, InitProducerId, CreateTopics, DeleteTopics, AlterTopics, ...
    Streams: Produce, Fetch.
    """

    def __init__(self, scheduler: Scheduler, network: Network, endpoint_id: int, origin_ms: float) -> None:
        self.process = Process(scheduler, endpoint_id, origin_ms)
        self._network = network

    @property
    def endpoint_id(self) -> int:
        return self.process.endpoint_id

    @property
    def now_ms(self) -> float:
        """This process's monotonic clock: what its cores are told."""
        return self.process.now_ms

    @property
    def now_us(self) -> int:
        """The wall clock."""
        return EPOCH_US + int(self.process.scheduler.now_ms * 1000.0)

    def after(self, delay_ms: float, action: Callable[[Any], None], argument: Any = None) -> None:
        """Run `action(argument)` in this process in `delay_ms`."""
        self.process.after(delay_ms, action, argument)

    def call(
        self, node_id: int, method: str, request: Any, on_answer: AnswerHandler, *, timeout_ms: float = 2_000.0
    ) -> None:
        """A unary call; `on_answer` gets the response, or a network.Failure. Once."""
        self._network.call(self.process, node_id, method, request, on_answer, timeout_ms)

    def open_stream(self, node_id: int, method: str) -> Stream:
        """A stream (`Produce`, `Fetch`): set the handlers of `stream.client`, and send there, from now on.

        `client.on_open(None)`: the connection stands; `on_message(response)`; `on_closed(None)`: refused, ended or
        broken. `client.send(request)` while `client.has_room`; `client.close()` is told to the broker only.
        """
        return self._network.open_stream(self.process, node_id, method)
