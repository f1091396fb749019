"""The command that raises the level of the cluster. The level never rises by itself, and never falls.

All readers have to support the new level. Each registered broker counts, running or not: it could come back with an
older version, and find records that it cannot read. Each voter counts, for it follows the metadata log before it
registers. There is no way back, since forms of a level stay in logs, in snapshots and on disks that are switched off.
(Kafka refuses a way back where it would lose metadata.)
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
        """Raise the level. Raises UnsupportedVersion with the brokers that do not support it, or with another
        reason."""
        former = self._ledger.image.level
        self._check_voters()
        brokers = self._ledger.image.brokers.values()
        highest = max([former, self._supported.highest, *(broker.levels.highest for broker in brokers)])
        level = request.level if request.HasField("level") else highest
        if level < former:
            raise UnsupportedVersion(
                f"the cluster is at level {former} and cannot go back to {level}: its logs have records of {former}"
            )
        behind = [broker for broker in brokers if level not in broker.levels]
        if behind or level not in self._supported:
            raise UnsupportedVersion(self._refusal(level, behind))
        if level != former:
            self._ledger.write(level_record(level))
        return admin_pb2.UpgradeLevelResponse(former_level=former, level=level)

    def _check_voters(self) -> None:
        """Raises UnsupportedVersion for a voter that never registered. One with another disk than the recorded one has:
        its levels are known."""
        image = self._ledger.image
        unknown = sorted(voter.broker_id for voter in image.voters if voter.broker_id not in image.brokers)
        if unknown:
            raise UnsupportedVersion(
                f"voters {unknown} have never registered, and the controller does not know their levels: start them "
                "first"
            )

    def _refusal(self, level: int, behind: list[BrokerRegistration]) -> str:
        if not behind:
            return f"the controller supports level {self._supported}, not {level}: give a supported one"
        noun = "brokers" if len(behind) > 1 else "broker"
        names = ", ".join(
            f"{broker.broker_id} (version {broker.version or 'unknown'} supports {broker.levels})"
            for broker in sorted(behind, key=lambda broker: broker.broker_id)
        )
        return (
            f"level {level} is not supported by {noun} {names}: start each of them with a version that supports it, "
            "then try again"
        )
