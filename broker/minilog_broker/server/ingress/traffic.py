"""What each connection took and gave, and what the broker's memory allows, for all ports of one kind.

A connection of streams knows itself what it holds (minilog.net.stream_connection). gRPC hands over whole messages: what
it holds besides is what the kernel counts on the socket less what is counted here (connections.py).

    kernel ──received──► gRPC ──taken──► a call ──given──► gRPC ──acknowledged──► kernel
              half-received                         unsent
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minilog.errors import ResourceExhausted
from minilog.security.quota_keys import CONNECTIONS
from minilog_broker.security.principal import Principal
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.ingress.budget import Budget
from minilog_broker.server.ingress.throttle import Throttle
from minilog_broker.server.runtime.turns import Turns

_OF_ONE_LINE = 8  # a part of the budget of requests may wait for one quota of one principal: others have the rest


@dataclass(slots=True)
class Traffic:
    """One connection, since it was opened. `broker_calls`: streams of another broker that are open on it."""

    taken_bytes: int = 0
    taken_messages: int = 0
    given_bytes: int = 0
    broker_calls: int = 0
    principal: Principal | None = None
    """Whose calls come on it, where clients are known."""
    receiving_since_s: float | None = None
    """Since when more than a little of a message has come, and not all of it."""

    def receiving_for_s(self, now_s: float, *, is_receiving: bool) -> float:
        """For how long more than a little of a message has been here, and not all of it, at this look."""
        if not is_receiving:
            self.receiving_since_s = None
        elif self.receiving_since_s is None:
            self.receiving_since_s = now_s
        return 0.0 if self.receiving_since_s is None else now_s - self.receiving_since_s

    def took(self, size_bytes: int) -> None:
        self.taken_bytes += size_bytes
        self.taken_messages += 1


class Flow:
    """All traffic of one port: by the other side's address as gRPC names it, the two budgets, which the ports of one
    kind share, turns for what is large, and where quotas are waited for. `together`: the flows of those ports; this one
    is added."""

    def __init__(self, requests: Budget, responses: Budget, turns: Turns, together: list[Flow] | None = None) -> None:
        self.requests = requests
        self.responses = responses
        self.turns = turns
        self.by_peer: dict[str, Traffic] = {}
        self._together = [] if together is None else together
        first = self._together[0] if self._together else None
        self.throttle: Throttle = Throttle(requests.limit_bytes // _OF_ONE_LINE) if first is None else first.throttle
        self._together.append(self)

    @property
    def connections(self) -> int:
        """Of all ports that share the budgets."""
        return sum(len(each.by_peer) for each in self._together)

    def of(self, peer: str) -> Traffic:
        traffic = self.by_peer.get(peer)
        if traffic is None:
            traffic = self.by_peer[peer] = Traffic()
        return traffic

    def belongs_to(self, peer: str, caller: Caller) -> None:
        """A call of this caller has come on it. Raises ResourceExhausted where he has too many connections: those that
        were closed a moment ago count, until the kernel is looked at again."""
        traffic = self.of(peer)
        if traffic.principal == caller.principal:
            return
        most = caller.most(CONNECTIONS)
        if most is not None and self._connections_of(caller.principal) >= most:
            raise ResourceExhausted(f"{caller.principal} has {most} connections to this broker, its quota: close some")
        traffic.principal = caller.principal

    def _connections_of(self, principal: Principal) -> int:
        """On whichever port."""
        every = (traffic for each in self._together for traffic in each.by_peer.values())
        return sum(traffic.principal == principal for traffic in every)

    def gone(self, peer: str) -> None:
        """This connection is."""
        self.by_peer.pop(peer, None)

    def keep_only(self, peers: Iterable[str]) -> None:
        """All other connections are gone."""
        for peer in self.by_peer.keys() - set(peers):
            del self.by_peer[peer]
