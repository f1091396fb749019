"""Schemas of topics: the first version with a topic, the next ones one by one. What is proposed is checked whole.

Whoever proposes a version has looked at the one before it, and says so by its number: of two who evolve a topic at once
the second is told to look again. Ids of fields are given here for a new topic, and by who proposes for a new field:
evolution.py says which ids those are.
"""

from __future__ import annotations

from minilog.errors import InvalidSchema, InvalidUpdateVersion, LevelNotReached
from minilog.typed.evolution import check_evolution
from minilog.typed.topic_schema import TopicSchema
from minilog.typed.topic_schemas import MAX_VERSIONS
from minilog.typed.wire import proposed_from_wire, with_new_ids
from minilog.v1 import admin_pb2
from minilog_broker.controller.image import TopicImage
from minilog_broker.controller.ledger import Ledger
from minilog_broker.levels import TYPED_TOPICS_LEVEL


class Schemas:
    """See the module's text."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def first(self, request: admin_pb2.NewTopic) -> TopicSchema:
        """That of a new topic. Raises InvalidSchema, LevelNotReached."""
        level = self._ledger.image.level
        if level < TYPED_TOPICS_LEVEL:
            raise LevelNotReached(
                f"topic {request.name} is to have a schema, which needs level {TYPED_TOPICS_LEVEL}, and the cluster is "
                f"at level {level}: upgrade all brokers, then run `minilog cluster upgrade`"
            )
        return with_new_ids(proposed_from_wire(request.schema))

    def following(self, topic: TopicImage, request: admin_pb2.TopicAlteration) -> TopicSchema:
        """The next version of a topic's schema. Raises InvalidSchema, InvalidUpdateVersion."""
        found = self._ledger.image.schemas.get(topic.topic_id)
        if found is None:
            raise InvalidSchema(f"topic {topic.name} has no schema, and cannot be given one: create another topic")
        latest, proposed = found.latest, proposed_from_wire(request.schema)
        if proposed.version != latest.version + 1:
            raise InvalidUpdateVersion(
                f"version {proposed.version} of the schema of topic {topic.name} was proposed, and the latest is "
                f"{latest.version}: somebody else evolved it meanwhile; look at it, and try again"
            )
        if proposed.version > MAX_VERSIONS:
            raise InvalidSchema(f"topic {topic.name} has {MAX_VERSIONS} versions of its schema, which is the most")
        check_evolution(latest, proposed)
        return proposed
