"""Feature levels. A broker writes only forms that all brokers of its cluster can read (docs/spec/levels.md).

    SUPPORTED_LEVELS    the levels that this version can read and write; a broker sends them with its registration and
                        its votes
    the cluster's level is a record of the metadata log (MetadataImage.level); only `minilog cluster upgrade` raises it
    ClusterLevel        the level as one broker knows it; code that writes a new form asks `allows` first

The controller asks its own image instead, which is ahead of the committed end. That is safe: a record that needs a
level stands behind the record of the level in the same log.
"""

from __future__ import annotations

from minilog.errors import LevelNotReached, UnsupportedVersion
from minilog.net.coordinators_of import QUEUES_TOPIC_NAME
from minilog.versions import VersionRange

SUPPORTED_LEVELS = VersionRange(1, 7)
FIRST_LEVEL = 1  # the level of a cluster without a record of one
TYPED_TOPICS_LEVEL = 2  # brought topic_schema to the metadata log, and typed batches
SECURITY_LEVEL = 3  # brought users, access rules, quotas and tokens to the metadata log, and peers' listeners
PROVEN_PRODUCERS_LEVEL = 4  # brought the key of proofs to producer_id_block
OPERATIONS_LEVEL = 5  # brought states and settings of brokers to the metadata log
GROUP_MEMBERS_LEVEL = 5  # brought members of groups to __groups; one release raises the level once
KEYED_TOPICS_LEVEL = 6  # brought deletions of typed topics, compaction and its settings
QUEUES_LEVEL = 7  # brought __queues
PENDING_SCHEMAS_LEVEL = 7  # brought topic_schema_state; the level of the same release
COLUMN_COMMENTS_LEVEL = 7  # brought comments to topic_schema; one release raises the level once
_UPGRADE = "When all brokers support it, run `minilog cluster upgrade`"


class ClusterLevel:
    """The level that counts on this broker. It rises after the data directory has recorded the new level durably, and
    never falls."""

    def __init__(self, supported: VersionRange) -> None:
        self.supported = supported
        self.current = FIRST_LEVEL

    def allows(self, level: int) -> bool:
        """Whether this broker may write the forms that `level` brought."""
        return level <= self.current

    def reach(self, level: int) -> None:
        """Rise to `level`, which the data directory has recorded. Raises UnsupportedVersion as check_level does."""
        check_level(level, self.supported, "the cluster")
        self.current = max(self.current, level)


def check_reached(level: int, needed: int, what: str, remedy: str = _UPGRADE) -> None:
    """Raises LevelNotReached where the cluster's `level` is below the `needed` one. `what`: a sentence that ends in
    "came"."""
    if level < needed:
        raise LevelNotReached(f"{what} with level {needed}, and the cluster is at level {level}. {remedy}")


def check_internal_topic(level: int, name: str) -> None:
    """Raises LevelNotReached where the cluster's level does not have the internal topic yet. An earlier broker does not
    know its coordinators."""
    if name == QUEUES_TOPIC_NAME:
        check_reached(level, QUEUES_LEVEL, "there are no queues yet: they came")


def check_level(level: int, supported: VersionRange, what: str) -> None:
    """Raises UnsupportedVersion where this version cannot read the level. `what`: the thing that has the level."""
    if level in supported:
        return
    if level > supported.highest:
        raise UnsupportedVersion(
            f"{what} is at level {level}: it was written by a later version than this one, which supports {supported}. "
            f"Start this broker with a version that supports level {level}. Its data are unchanged"
        )
    raise UnsupportedVersion(
        f"{what} is at level {level}, and this version supports {supported}. Start the broker with its former version, "
        f"raise the level (`minilog cluster upgrade`), and then start this version"
    )
