"""Calls to the active controller, which follow it when it moves."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from google.protobuf.message import Message

from minilog.admin.messages import split_results
from minilog.errors import (
    BrokerNotAvailable,
    MinilogError,
    NotController,
    TimedOut,
    UnknownOutcome,
    error_from_wire,
)
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_s
from minilog.v1 import admin_pb2, admin_pb2_grpc

_Response = TypeVar(
    "_Response", admin_pb2.CreateTopicsResponse, admin_pb2.DeleteTopicsResponse, admin_pb2.AlterTopicsResponse
)
# Responses that refuse the request as a whole if the broker is not the controller.
_Decision = TypeVar(
    "_Decision",
    admin_pb2.ElectLeadersResponse,
    admin_pb2.AlterPartitionReassignmentsResponse,
    admin_pb2.ReplaceVoterResponse,
    admin_pb2.AlterVoterResponse,
)
_Answer = TypeVar("_Answer")
_PAUSE_S = 0.05
_LOST_HINT = ". An earlier attempt of this call got no answer, and may have done it"


class ControllerClient:
    """Asks the active controller of a cluster. request.timeout.ms bounds each call."""

    def __init__(self, cluster: NetworkClient) -> None:
        self._cluster = cluster
        self._timeout_ms = cluster.config.request_timeout_ms

    async def change(self, what: str, make: Callable[[Any, float], Awaitable[_Response]]) -> dict[str, str]:
        """Ask the active controller until it answers for all topics. Raises the first topic's error."""
        deadline_s = self._cluster.deadline()
        maybe_done = False
        while True:
            response = await self.ask(make, deadline_s)
            if response is None:
                maybe_done = True
            else:
                self._cluster.cache.must_show(response.metadata_offset)
                done, failed = split_results(response.results)
                moved = any(isinstance(error, NotController) for error in failed.values())
                if not moved and not failed:
                    return {name: str(uuid.UUID(bytes=i)) if len(i) == 16 else i.hex() for name, i in done.items()}
                if not moved:
                    raise _first(failed, maybe_done=maybe_done)
                maybe_done = True  # a controller that was deposed meanwhile does not know the outcome
            await self.pause(what, deadline_s, maybe_done=maybe_done)

    async def decide(
        self, what: str, make: Callable[[Any, float], Awaitable[_Decision]], *, changes: bool = True
    ) -> _Decision:
        """Ask the active controller until it decides. Raises the error of the request as a whole."""
        deadline_s = self._cluster.deadline()
        maybe_done = False
        while True:
            response = await self.ask(make, deadline_s)
            error = None if response is None else error_from_wire(response.error)
            if response is not None and not isinstance(error, NotController):
                if error is not None:
                    raise type(error)(f"{error}{_LOST_HINT}") if maybe_done else error
                self._cluster.cache.must_show(response.metadata_offset)
                return response
            maybe_done = changes
            await self.pause(what, deadline_s, maybe_done=maybe_done)

    async def pause(self, what: str, deadline_s: float, *, maybe_done: bool) -> None:
        """Pause before the next question to the controller. Raises if the time is over."""
        if now_s() >= deadline_s:
            message = f"no controller answered within request.timeout.ms={self._timeout_ms}: {what}"
            why = self._cluster.cache.why_unreachable(self._cluster.cache.controller_id)
            message += "" if why is None else f" ({why})"
            raise UnknownOutcome(f"{message}. It may be done all the same") if maybe_done else TimedOut(message)
        await asyncio.sleep(_PAUSE_S)

    async def ask(self, make: Callable[[Any, float], Awaitable[_Answer]], deadline_s: float) -> _Answer | None:
        """The controller's answer, or None if the answer was lost. Raises BrokerNotAvailable without a controller."""
        while True:
            await self._cluster.refresh([], deadline_s)
            address = self._cluster.address(self._cluster.cache.controller_id)
            if address is not None and await self._cluster.is_reachable(address, min(1.0, deadline_s - now_s())):
                break
            if now_s() >= deadline_s:
                nobody = BrokerNotAvailable("there is no active controller now: try again")
                raise self._cluster.cache.why_unreachable(self._cluster.cache.controller_id) or nobody
            await asyncio.sleep(_PAUSE_S)
        timeout_s = max(0.001, deadline_s - now_s())
        return await self._cluster.call(address, lambda channel: make(channel, timeout_s))


def call_of(method: str, request: Message) -> Callable[[Any, float], Awaitable[Any]]:
    """A function that makes one call of AdminService on a channel, within a number of seconds."""
    return lambda channel, seconds: getattr(admin_pb2_grpc.AdminServiceStub(channel), method)(request, timeout=seconds)


def _first(failed: Mapping[str, MinilogError], *, maybe_done: bool) -> MinilogError:
    name, error = next(iter(failed.items()))
    others = f" ({len(failed) - 1} more topics failed)" if len(failed) > 1 else ""
    hint = _LOST_HINT if maybe_done else ""
    return type(error)(f"topic {name!r}: {error}{others}{hint}")
