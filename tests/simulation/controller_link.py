"""What a life says to the active controller: as server/clients/controller_link.py. Registration, heartbeats, ISR
proposals, producer ids. A heartbeat stream that breaks is opened anew, to whoever is the controller by then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from minilog.errors import BrokerNotAvailable, MinilogError, RetriableError, StaleBrokerEpoch, error_from_wire
from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.replication.replica_effects import ProposalAnswer, ProposeInSyncReplicas
from minilog_broker.server.clients.registration import unsettled_replicas
from tests.simulation.network import Failure
from tests.simulation.stream import Stream

if TYPE_CHECKING:
    from tests.simulation.life import Life

RETRY_PAUSE_MS = 50.0
CALL_TIMEOUT_MS = 2_000.0


class ControllerLink:
    """See the module's text."""

    def __init__(self, life: Life, interval_ms: float) -> None:
        self.fenced = True
        self.wants_stop = False
        self._life = life
        self._interval_ms = interval_ms
        self._stream: Stream | None = None
        self._number = 0  # of the heartbeat that was sent last: later wishes to send look at it
        self._waiting = False  # for an answer
        self._sent_ms = 0.0
        self._again = False  # something changed meanwhile
        self._producer_ids: deque[int] = deque()
        self._askers: deque[Any] = deque()

    def _call(self, method: str, request: Any, on_answer: Any) -> None:
        controller_id = self._life.quorum_part.controller_id
        if controller_id < 0:
            self._life.process.after(RETRY_PAUSE_MS, on_answer, Failure.REFUSED)
        else:
            life = self._life
            life.network.call(life.process, controller_id, method, request, on_answer, CALL_TIMEOUT_MS)

    # -- registration

    def register(self, request: peer_pb2.RegisterRequest) -> None:
        """Until it is accepted; a refusal that will not pass ends the process."""

        def answered(answer: Any) -> None:
            life = self._life
            if not isinstance(answer, Failure):
                error = error_from_wire(answer.error)
                if error is None:
                    life.registered(answer)
                    return
                if not isinstance(error, RetriableError):
                    raise error
            life.process.after(RETRY_PAUSE_MS, lambda _: self.register(request))

        self._call("Register", request, answered)

    # -- heartbeats

    def start(self) -> None:
        self._open()

    def beat_now(self) -> None:
        """Send the next heartbeat at once: something changed that the controller should know."""
        if self._stream is None or not self._stream.open:
            return
        if self._waiting:
            self._again = True
        else:
            self._life.process.after(0.02, self._send, self._number)

    def _open(self, _: Any = None) -> None:
        life = self._life
        controller_id = life.quorum_part.controller_id
        if controller_id < 0:
            life.process.after(RETRY_PAUSE_MS, self._open)
            return
        self._stream = stream = life.network.open_stream(life.process, controller_id, "Heartbeat")
        self._waiting = self._again = False
        stream.client.on_open = lambda _: self._send(self._number)
        stream.client.on_message = lambda answer: self._answered(stream, answer)
        stream.client.on_closed = lambda _: self._lost(stream)

    def _lost(self, stream: Stream) -> None:
        if self._stream is stream:
            self._stream = None
            self._number += 1
            stream.client.close()
            self._life.process.after(RETRY_PAUSE_MS, self._open)

    def controller_moved(self) -> None:
        """Another leads the quorum by now: the former one's stream is given up."""
        if self._stream is not None:
            self._lost(self._stream)

    def _send(self, number: int) -> None:
        stream, life = self._stream, self._life
        if stream is None or number != self._number:
            return
        self._number += 1
        self._waiting, self._again = True, False
        self._sent_ms = life.now_ms
        offline = [
            (common_pb2.PartitionId(topic_id=each.key.topic_id, partition=each.key.partition), each.damaged)
            for each in life.replicas.offline.values()
        ]
        request = peer_pb2.HeartbeatRequest(
            broker_id=life.node.node_id,
            broker_epoch=-1 if life.broker_epoch is None else life.broker_epoch,
            metadata_offset=life.image.end_offset,
            wants_stop=self.wants_stop,
            offline_replicas=[partition_id for partition_id, _ in offline],
            damaged_replicas=[partition_id for partition_id, damaged in offline if damaged],
            no_space=not life.reserve.held,
            recovered_replicas=unsettled_replicas(life.log_directory),
        )
        stream.client.send(request)
        life.process.after(max(5 * self._interval_ms, 1_000.0), self._look, (stream, self._number))

    def _look(self, argument: tuple[Stream, int]) -> None:
        """The time to answer is over."""
        stream, number = argument
        if self._waiting and self._stream is stream and self._number == number:
            self._lost(stream)

    def _answered(self, stream: Stream, answer: peer_pb2.HeartbeatResponse) -> None:
        if self._stream is not stream:
            return
        self._waiting = False
        error = error_from_wire(answer.error)
        if isinstance(error, StaleBrokerEpoch):
            raise error
        if error is not None:
            self._lost(stream)
            return
        self.fenced = answer.fenced
        self._session_goes_on((self._sent_ms + answer.session_timeout_ms, answer.committed_end_offset))
        life = self._life
        life.process.after(0.02 if self._again else self._interval_ms, self._send, self._number)
        if answer.should_stop:
            life.may_stop()

    def _session_goes_on(self, argument: tuple[float, int]) -> None:
        """It counts when all is replayed that was committed when the heartbeat was answered."""
        life, (ends_ms, committed_end_offset) = self._life, argument
        if life.image.end_offset < committed_end_offset:
            life.process.after(1.0, self._session_goes_on, argument)
            return
        for leader in life.manager.led_partitions():
            life.touch(leader.key)
        life.manager.session_lasts_until(ends_ms, life.now_ms)
        life.replicas.run()

    # -- ISR proposals and producer ids

    def propose(self, effect: ProposeInSyncReplicas) -> None:
        life = self._life
        members = [peer_pb2.InSyncReplica(broker_id=broker, broker_epoch=epoch) for broker, epoch in effect.members]
        proposal = peer_pb2.InSyncReplicasProposal(
            partition_id=common_pb2.PartitionId(topic_id=effect.key.topic_id, partition=effect.key.partition),
            leader_epoch=effect.leader_epoch,
            partition_epoch=effect.partition_epoch,
            in_sync_replicas=members,
        )
        request = peer_pb2.ProposeInSyncReplicasRequest(
            broker_id=life.node.node_id, broker_epoch=life.broker_epoch or 0, proposals=[proposal]
        )

        def answered(answer: Any) -> None:
            life.touch(effect.key)
            manager, found = life.manager, None if isinstance(answer, Failure) else _proposal_answer(answer)
            if found is None:
                manager.proposal_lost(effect.key, life.now_ms)
            else:
                manager.proposal_answered(effect.key, found, life.now_ms)
            life.replicas.run()

        self._call("ProposeInSyncReplicas", request, answered)

    def create_internal_topic(self, request: peer_pb2.CreateInternalTopicRequest, tell: Any) -> None:
        """`tell` when it is answered, or not."""
        self._call("CreateInternalTopic", request, tell)

    def next_producer_id(self, tell: Any) -> None:
        """`tell(id)`, or `tell(MinilogError)`: from a block that the controller gave."""
        self._askers.append(tell)
        if len(self._askers) == 1:
            self._serve_askers()

    def _serve_askers(self) -> None:
        while self._askers and self._producer_ids:
            self._askers.popleft()(self._producer_ids.popleft())
        if not self._askers:
            return
        life = self._life
        request = peer_pb2.AllocateProducerIdsRequest(
            broker_id=life.node.node_id, broker_epoch=-1 if life.broker_epoch is None else life.broker_epoch
        )
        self._call("AllocateProducerIds", request, self._block_came)

    def _block_came(self, answer: Any) -> None:
        error: MinilogError | None
        if isinstance(answer, Failure):
            error = BrokerNotAvailable(f"the controller did not answer: {answer.value}")
        else:
            error = error_from_wire(answer.error)
        if error is not None:
            self._askers.popleft()(error)
        else:
            self._producer_ids.extend(range(answer.first_producer_id, answer.first_producer_id + answer.count))
        self._serve_askers()


def _proposal_answer(answer: peer_pb2.ProposeInSyncReplicasResponse) -> ProposalAnswer | None:
    whole = error_from_wire(answer.error)
    if (whole is not None and whole.retriable) or not answer.answers:
        return None
    return ProposalAnswer(whole or error_from_wire(answer.answers[0].error))
