"""The checks of each call and of each of its messages at the gate, whatever carries them."""

from __future__ import annotations

from typing import Any

from minilog.errors import InvalidArgument
from minilog.record_batch.header import Buffer
from minilog.security.quota_keys import REQUEST_RATE
from minilog.stream_messages import StreamMessage
from minilog_broker.security.principal import ANONYMOUS
from minilog_broker.server.access.caller import Caller, has_quotas
from minilog_broker.server.ingress.rules.arrival import Arrival
from minilog_broker.server.ingress.rules.client_stream import Parse
from minilog_broker.server.ingress.rules.gate import Gate
from minilog_broker.server.ingress.rules.throttle import MAX_DELAY_S
from minilog_broker.server.ingress.rules.traffic import Flow

MAX_STRANGERS_BYTES = 64 << 10  # of one message from a client that has not logged in


async def admitted(gate: Gate, flow: Flow, path: str, arrival: Arrival, held_bytes: int = 0) -> Caller:
    """The caller of a call. The call is charged in any case. Raises the errors of the gate, and ResourceExhausted."""
    caller = gate.admit(path, arrival)
    await flow.throttle.pay(caller, REQUEST_RATE, 1, held_bytes, MAX_DELAY_S)
    if has_quotas(caller):
        flow.belongs_to(arrival.peer, caller)
    return caller


def checked_parse(gate: Gate, path: str, caller: Caller, parse: Parse) -> Parse:
    """A parser that also asks the gate about each request. Raises the errors of both."""
    if caller.is_everybody:
        return parse
    is_first = True

    async def checked(content: Buffer) -> Any:
        nonlocal is_first
        if caller.principal == ANONYMOUS and len(content) > MAX_STRANGERS_BYTES:
            raise InvalidArgument(
                f"a message before a login has {len(content)} bytes: the limit is {MAX_STRANGERS_BYTES}"
            )
        request = await parse(content)
        message = request.message if isinstance(request, StreamMessage) else request
        gate.check(path, caller, message, is_first=is_first)
        is_first = False
        return request

    return checked
