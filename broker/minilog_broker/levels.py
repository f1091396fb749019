"""Feature levels: what the brokers of a cluster may write, so that all of them can read it (docs/spec/levels.md).

    SUPPORTED_LEVELS    what this version can read and write; a broker tells it when it registers, and in its votes
    the cluster's level is a record of the metadata log (MetadataImage.level); only `minilog cluster upgrade` raises it
    ClusterLevel        the level as it holds on one broker: whoever writes something new asks `allows` first

The controller asks its own image instead, which is ahead of what is committed: what rests on a level stands behind it
in the same log.
"""

from __future__ import annotations

from minilog.errors import LevelNotReached, UnsupportedVersion
from minilog.versions import VersionRange

SUPPORTED_LEVELS = VersionRange(1, 5)
FIRST_LEVEL = 1  # of a cluster until a record says another
TYPED_TOPICS_LEVEL = 2  # brought topic_schema to the metadata log, and typed batches
SECURITY_LEVEL = 3  # brought users, access rules, quotas and tokens to the metadata log, and peers' listeners
PROVEN_PRODUCERS_LEVEL = 4  # brought the key of proofs to producer_id_block
OPERATIONS_LEVEL = 5  # brought states and settings of brokers to the metadata log
_UPGRADE = "When all brokers support it, run `minilog cluster upgrade`"


class ClusterLevel:
    """The level that counts on this broker: it moves when the data directory says so, durably, and never back."""

    def __init__(self, supported: VersionRange) -> None:
        self.supported = supported
        self.current = FIRST_LEVEL

    def allows(self, level: int) -> bool:
        """Whether what came with `level` may be written."""
        return level <= self.current

    def reach(self, level: int) -> None:
        """The cluster is at `level`, and the data directory says so. Raises as check_level."""
        check_level(level, self.supported, "the cluster")
        self.current = max(self.current, level)


def check_reached(level: int, needed: int, what: str, remedy: str = _UPGRADE) -> None:
    """Raises LevelNotReached where a cluster at `level` is below the one that is needed. `what`: a sentence that ends
    in "came"."""
    if level < needed:
        raise LevelNotReached(f"{what} with level {needed}, and the cluster is at level {level}. {remedy}")


def check_level(level: int, supported: VersionRange, what: str) -> None:
    """Raises UnsupportedVersion where `what` has a level that this version cannot read."""
    if level in supported:
        return
    if level > supported.highest:
        raise UnsupportedVersion(
            f"{what} is at level {level}: it was written by a later version than this one, which supports {supported}. "
            f"Start this broker with a version that supports level {level}; its data were left as they are"
        )
    raise UnsupportedVersion(
        f"{what} is at level {level}, this version supports {supported}: start it with the version it had, raise the "
        f"level (`minilog cluster upgrade`), and then go on to this one"
    )
