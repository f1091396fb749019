"""Leases belong to the principals that got them (security/lease_ids.py). Another's is answered as one that is not
there."""

from __future__ import annotations

from minilog.v1 import queue_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.lease_ids import is_lease_of, new_lease_id

NO_LEASE = -1  # no lease has this id


class LeaseOwners:
    """Whose the leases are. `image` has the key of the cluster."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def new_lease_id(self, number: int, principal: str) -> int:
        """The id of the principal's lease with this number of a coordinator."""
        return new_lease_id(self._key, number, principal)

    def settlement(self, request: queue_pb2.SettleRequest, principal: str) -> queue_pb2.SettleRequest:
        """What the principal may say in it: settlements of others' leases are for no lease."""
        if all(is_lease_of(self._key, settlement.lease_id, principal) for settlement in request.settlements):
            return request
        own = queue_pb2.SettleRequest()
        own.CopyFrom(request)
        for settlement in own.settlements:
            if not is_lease_of(self._key, settlement.lease_id, principal):
                settlement.lease_id = NO_LEASE
        return own

    def renewal(
        self, request: queue_pb2.RenewLeasesRequest, principal: str
    ) -> tuple[queue_pb2.RenewLeasesRequest, list[int]]:
        """The request with the leases of the principal, and the leases of others, which count as ended."""
        others = [lease_id for lease_id in request.lease_ids if not is_lease_of(self._key, lease_id, principal)]
        if not others:
            return request, []
        own = queue_pb2.RenewLeasesRequest()
        own.CopyFrom(request)
        own.ClearField("lease_ids")
        own.lease_ids.extend(lease_id for lease_id in request.lease_ids if lease_id not in set(others))
        return own, others

    @property
    def _key(self) -> bytes | None:
        key = self._image.producer_key
        return None if key is None else key.key
