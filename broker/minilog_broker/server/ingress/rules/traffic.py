"""The bytes of each connection, and the budgets of the broker's memory, for all ports of one kind.

A connection of streams knows the bytes that it holds (minilog.net.stream_connection). gRPC hands over whole messages.
The rest of its bytes is the kernel's count of the socket less the count here (connections.py).

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
from minilog_broker.server.ingress.rules.budget import Budget
from minilog_broker.server.ingress.rules.throttle import Throttle
from minilog_broker.server.runtime.turns import Turns

_OF_ONE_LINE = 8  # one line of a quota may hold this part of the budget of requests: others have the rest


@dataclass(slots=True)
class Traffic:
    """One connection, since its begin. `broker_calls`: the open streams of another broker on it."""

    taken_bytes: int = 0
    taken_messages: int = 0
    given_bytes: int = 0
    broker_calls: int = 0
    principal: Principal | None = None
    """The principal of its calls, where clients log in."""
    receiving_since_s: float | None = None
    """The begin of the time in which a large part of a message is here, and not all of it."""

    def receiving_for_s(self, now_s: float, *, is_receiving: bool) -> float:
        """The time for which a large part of a message has been here, and not all of it, at this look."""
        if not is_receiving:
            self.receiving_since_s = None
        elif self.receiving_since_s is None:
            self.receiving_since_s = now_s
        return 0.0 if self.receiving_since_s is None else now_s - self.receiving_since_s

    def took(self, size_bytes: int) -> None:
        self.taken_bytes += size_bytes
        self.taken_messages += 1


class Flow:
    """All traffic of one port.

    It has the connections by the other side's address in gRPC's form, the two budgets, which the ports of one kind
    share, the turns of large messages, and the throttle of quotas. `together`: the flows of those ports; this one is
    added.
    """

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
        """The connections of all ports that share the budgets."""
        return sum(len(flow.by_peer) for flow in self._together)

    def of(self, peer: str) -> Traffic:
        traffic = self.by_peer.get(peer)
        if traffic is None:
            traffic = self.by_peer[peer] = Traffic()
        return traffic

    def belongs_to(self, peer: str, caller: Caller) -> None:
        """Note a call of this caller on a connection. Raises ResourceExhausted where it has too many connections.
        Recently closed ones count, until the next look at the kernel."""
        traffic = self.of(peer)
        if traffic.principal == caller.principal:
            return
        most = caller.most(CONNECTIONS)
        if most is not None and self._connections_of(caller.principal) >= most:
            raise ResourceExhausted(
                f"{caller.principal} has {most} connections to this broker, which is its quota: close some"
            )
        traffic.principal = caller.principal

    def _connections_of(self, principal: Principal) -> int:
        """The principal's connections on all ports."""
        every = (traffic for flow in self._together for traffic in flow.by_peer.values())
        return sum(traffic.principal == principal for traffic in every)

    def gone(self, peer: str) -> None:
        """Drop a connection that has ended."""
        self.by_peer.pop(peer, None)

    def keep_only(self, peers: Iterable[str]) -> None:
        """Drop all other connections, which have ended."""
        for peer in self.by_peer.keys() - set(peers):
            del self.by_peer[peer]
