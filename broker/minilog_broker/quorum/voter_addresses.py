"""The addresses of the voters: from the log, from other voters' answers, and from this broker's start.

A voter may have several addresses here, and the broker tries them in turn. From the first change of the voters on, the
recorded addresses come first. Then comes the one at which the voter's broker is registered. A voter that has moved is
found there, until `move-voter` records it. Before that change the addresses of this broker's start come first. The
first entry of a log has only the addresses of its brokers' first start, and a copied directory must not find the
cluster that it was copied from.

So a broker that was away finds the leader, though its own log names former voters (KIP-853 has the leader's endpoint in
answers for the same reason). It believes the word of a broker only on a channel that it has opened itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minilog.addresses import Address
from minilog.v1 import peer_pb2
from minilog_broker.quorum.voters import Voter, VoterHistory

_MOST_INTRODUCED = 16  # leaders that others named: a cluster has at most five voters


class VoterAddresses:
    """The addresses that one node knows. `own`: its own address. `given`: the voters that its broker was started
    with. `registered`: the address of the broker that is registered with this data directory, from the replayed
    metadata."""

    def __init__(
        self,
        node_id: int,
        own: Address,
        given: Sequence[peer_pb2.VoterAddress],
        history: VoterHistory,
        registered: Callable[[Voter], Address | None],
    ) -> None:
        self._node_id = node_id
        self._own = own
        self._given: dict[int, Address] = {voter.broker_id: (voter.host, voter.port) for voter in given}
        self._history = history
        self._registered = registered
        self._introduced: dict[int, Address] = {}

    def of(self, broker_id: int) -> tuple[Address, ...]:
        """The addresses at which the broker may listen for votes and for the metadata log, the likeliest first. Empty:
        not known."""
        if broker_id == self._node_id:
            return (self._own,)
        recorded = {voter.broker_id: (voter.host, voter.port) for voter in self._history.current}
        running = {
            voter.broker_id: address
            for voter in self._history.current
            if voter.broker_id == broker_id and (address := self._registered(voter)) is not None
        }
        sources: tuple[dict[int, Address], ...] = (recorded, running, self._introduced, self._given)
        if not self._history.has_addresses:
            sources = (self._given, self._introduced, {} if broker_id in self._given else recorded)
        return tuple(dict.fromkeys(source[broker_id] for source in sources if broker_id in source))

    def known_ids(self) -> list[int]:
        """The brokers that may know the leader, whether they vote or not: those given, and leaders that others
        named."""
        return sorted((self._given.keys() | self._introduced.keys()) - {self._node_id})

    def introduce(self, leader: peer_pb2.VoterAddress) -> None:
        """Take a peer's word of a leader, which our log may not know."""
        if not leader.host or leader.broker_id == self._node_id:
            return
        if len(self._introduced) >= _MOST_INTRODUCED and leader.broker_id not in self._introduced:
            self._introduced.clear()
        self._introduced[leader.broker_id] = leader.host, leader.port

    def word_of(self, leader_id: int) -> peer_pb2.VoterAddress | None:
        """Our own word of a leader, for an answer."""
        addresses = self.of(leader_id)
        return _wire(leader_id, addresses[0]) if addresses else None

    def voters(self) -> list[peer_pb2.VoterAddress]:
        """The current voters with their addresses. While a cluster is founded, the given ones."""
        voter_ids = [voter.broker_id for voter in self._history.current] or list(self._given)
        return [_wire(broker_id, self.of(broker_id)[0]) for broker_id in sorted(voter_ids)]


def _wire(broker_id: int, address: Address) -> peer_pb2.VoterAddress:
    return peer_pb2.VoterAddress(broker_id=broker_id, host=address[0], port=address[1])
