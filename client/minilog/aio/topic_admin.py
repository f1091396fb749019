"""The calls of Admin for topics: making, changing and describing them, and their offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from minilog.admin.controller_client import ControllerClient, call_of
from minilog.admin.delete_records import END, delete_records
from minilog.admin.messages import (
    CREATION_ID_BYTES,
    describe_topic,
    new_topic,
    parts_of_topics,
    topic_alteration,
)
from minilog.errors import InvalidSchema, InvalidUpdateVersion
from minilog.limits import MAX_ADMIN_TOPICS, parts_of
from minilog.net.lookups import answered_offsets, list_offsets
from minilog.net.metadata_cache import no_topic
from minilog.net.network_client import NetworkClient
from minilog.net.offsets_query import OffsetsQuery
from minilog.net.runtime import now_s
from minilog.place_words import named_place
from minilog.types import (
    NewTopic,
    OffsetSpec,
    SchemaStep,
    SizesFrom,
    TopicAlteration,
    TopicDescription,
    TopicPartition,
)
from minilog.v1 import admin_pb2, metadata_pb2

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema
    from minilog.typed.schema.topic_schemas import TopicSchemas


_log = logging.getLogger(__name__)
_EVOLVE_TIMES = 5  # if so many clients evolve one schema at the same time, each gets its turn
_DESCRIBE_OFFSETS_S = 3.0  # a description without a partition's offsets is better than none


class TopicAdmin:
    """The methods of Admin for topics. minilog.aio.admin describes them."""

    def __init__(self, cluster: NetworkClient, controller: ControllerClient) -> None:
        self._cluster = cluster
        self._controller = controller
        self._timeout_ms = cluster.config.request_timeout_ms

    async def create(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> dict[str, str]:
        created: dict[str, str] = {}
        runtime = self._cluster.runtime
        for part in parts_of_topics([new_topic(topic, runtime.unique_bytes(CREATION_ID_BYTES)) for topic in topics]):
            request = admin_pb2.CreateTopicsRequest(
                client=self._cluster.identity,
                timeout_ms=self._timeout_ms,
                topics=part,
                validate_only=validate_only,
            )
            created |= await self._controller.change("create topics", call_of("CreateTopics", request))
        return created

    async def delete(self, names: Iterable[str]) -> None:
        for part in parts_of([admin_pb2.TopicDeletion(name=name) for name in names], MAX_ADMIN_TOPICS):
            request = admin_pb2.DeleteTopicsRequest(
                client=self._cluster.identity, timeout_ms=self._timeout_ms, topics=part
            )
            await self._controller.change("delete topics", call_of("DeleteTopics", request))

    async def alter(self, alterations: Iterable[TopicAlteration]) -> None:
        for part in parts_of_topics([topic_alteration(alteration) for alteration in alterations]):
            request = admin_pb2.AlterTopicsRequest(
                client=self._cluster.identity, timeout_ms=self._timeout_ms, topics=part
            )
            await self._controller.change("alter topics", call_of("AlterTopics", request))

    async def evolve(
        self, topic: str, change: Callable[[TopicSchema], TopicSchema], *, is_pending: bool = False
    ) -> TopicSchema:
        from minilog.typed.schema.evolution import proposal  # it loads Arrow, so only calls with a schema import it

        step = SchemaStep.PENDING if is_pending else SchemaStep.LATEST
        for attempt in range(1, _EVOLVE_TIMES + 1):
            schemas = await self._schemas(topic)
            proposed = proposal(schemas, change)
            if proposed is schemas.latest:
                return proposed
            try:
                await self.alter([TopicAlteration(topic, schema=proposed, schema_step=step)])
            except (
                InvalidUpdateVersion
            ) as error:  # another client was first: make the same change of the latest version
                if attempt == _EVOLVE_TIMES:
                    raise
                _log.debug(
                    "another client was first, so the client makes version %d of the schema of %s again: %s",
                    proposed.version,
                    topic,
                    error,
                )
            else:
                return proposed
        raise AssertionError("the last attempt returns or raises")

    async def _schemas(self, topic: str) -> TopicSchemas:
        """The schemas, not older than this client's own changes. Raises InvalidSchema if the topic has none."""
        await self._cluster.refresh([topic])
        cached = self._cluster.cache.topics.get(topic)
        if cached is None:
            raise no_topic(topic)
        if cached.schemas is None:
            raise InvalidSchema(f"topic {topic!r} has no schema: its records are keys and values")
        return cached.schemas

    async def describe(
        self,
        names: Iterable[str] | Callable[[str], bool] | None = None,
        *,
        missing_ok: bool = False,
        sizes: Callable[[TopicPartition], SizesFrom] | None = None,
        replica_ends: bool = False,
    ) -> list[TopicDescription]:
        chosen: Callable[[str], bool] = names if callable(names) else lambda name: True
        wanted = None if names is None or callable(names) else list(names)
        cached = self._cluster.cache.topics
        before = [cached[name].described for name in (cached if wanted is None else wanted) if name in cached]
        early = self._offsets_query([topic for topic in before if chosen(topic.name)], sizes, replica_ends)
        answer = await self._cluster.refresh_and_ask(wanted, early)
        topics = {topic.name: topic for topic in answer.topics if not topic.error.code and chosen(topic.name)}
        order = sorted(topics) if wanted is None else [name for name in wanted if name in topics or not missing_ok]
        for name in order:
            if name not in topics:
                raise no_topic(name)
        query = self._offsets_query(topics.values(), sizes, replica_ends)
        query.results = {partition: result for partition, result in early.results.items() if partition in query.wanted}
        if query.missing():
            await self._cluster.complete(query, min(self._cluster.deadline(), now_s() + _DESCRIBE_OFFSETS_S))
        return [describe_topic(topics[name], query.results, query.last_errors) for name in order]

    def _offsets_query(
        self,
        topics: Iterable[metadata_pb2.TopicMetadata],
        sizes: Callable[[TopicPartition], SizesFrom] | None,
        replica_ends: bool,
    ) -> OffsetsQuery:
        partitions = [
            TopicPartition(topic.name, partition.partition) for topic in topics for partition in topic.partitions
        ]
        sizes_by_partition = {} if sizes is None else {partition: sizes(partition) for partition in partitions}
        return OffsetsQuery(
            self._cluster.cache, dict.fromkeys(partitions, "latest"), sizes_by_partition, with_replicas=replica_ends
        )

    async def offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int | None]:
        times = {partition: at for partition, at in wanted.items() if isinstance(at, int)}
        ends = await list_offsets(self._cluster, {at: spec for at, spec in wanted.items() if at not in times})
        if not times:
            return ends
        from minilog.aio.first_records import offsets_for_times  # it reads records: loaded for times alone

        offsets = {**ends, **await offsets_for_times(self._cluster, times)}
        return {partition: offsets[partition] for partition in wanted}

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not before:
            return {}
        before = {at: END if named_place(offset) == "latest" else offset for at, offset in before.items()}
        emptied = [partition for partition, offset in before.items() if offset == END]
        ends = await answered_offsets(self._cluster, dict.fromkeys(emptied, "latest"))
        return await delete_records(self._cluster, before, ends)
