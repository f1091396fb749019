"""The level of the cluster goes up by command, when all that have to read what is written then can: never by itself,
and never down.

Whoever is registered counts, running or not: a broker that comes back with an older version would find what it cannot
read. So does each voter, which follows the metadata log before it registers. What was written at a level stays in the
logs, in snapshots and on disks that are switched off: nobody could say when the last of it is gone, so there is no way
back (Kafka refuses one where it would lose metadata).
"""

from __future__ import annotations

from minilog.errors import UnsupportedVersion
from minilog.v1 import admin_pb2
from minilog.versions import VersionRange
from minilog_broker.controller.image import BrokerRegistration
from minilog_broker.controller.ledger import Ledger
from minilog_broker.quorum.cluster import level_record


class Levels:
    """The controller's part that raises the level of the cluster.

    `supported`: the levels that this controller's version can write.
    """

    def __init__(self, ledger: Ledger, supported: VersionRange) -> None:
        self._ledger = ledger
        self._supported = supported

    def upgrade(self, request: admin_pb2.UpgradeLevelRequest) -> admin_pb2.UpgradeLevelResponse:
        """Raises UnsupportedVersion, naming who does not support the level, or why it cannot be."""
        former = self._ledger.image.level
        self._check_voters()
        brokers = self._ledger.image.brokers.values()
        highest = max([former, self._supported.highest, *(broker.levels.highest for broker in brokers)])
        level = request.level if request.HasField("level") else highest
        if level < former:
            raise UnsupportedVersion(
                f"the cluster is at level {former} and cannot go back to {level}: what was written stays in its logs"
            )
        behind = [broker for broker in brokers if level not in broker.levels]
        if behind or level not in self._supported:
            raise UnsupportedVersion(self._refusal(level, behind))
        if level != former:
            self._ledger.write(level_record(level))
        return admin_pb2.UpgradeLevelResponse(former_level=former, level=level)

    def _check_voters(self) -> None:
        """A voter with another disk than the recorded one has registered: what it reads with is known all the same."""
        image = self._ledger.image
        unknown = sorted(voter.broker_id for voter in image.voters if voter.broker_id not in image.brokers)
        if unknown:
            raise UnsupportedVersion(
                f"voters {unknown} have never registered, and it is not known what they support: start them first"
            )

    def _refusal(self, level: int, behind: list[BrokerRegistration]) -> str:
        if not behind:
            return f"the controller supports level {self._supported}, not {level}: give one of those"
        whom = "brokers " if len(behind) > 1 else "broker "
        names = ", ".join(
            f"{broker.broker_id} (version {broker.version or 'unknown'} supports {broker.levels})"
            for broker in sorted(behind, key=lambda each: each.broker_id)
        )
        return (
            f"level {level} is not supported by {whom}{names}: start each of them with a version that supports it, "
            "then try again"
        )
