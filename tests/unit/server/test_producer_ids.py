"""Producer ids as a broker gives them: from blocks that its own image has, with proofs once the cluster has a key."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from minilog.errors import BrokerNotAvailable
from minilog.v1 import records_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_record
from minilog_broker.levels import FIRST_LEVEL, PROVEN_PRODUCERS_LEVEL
from minilog_broker.security.principal import USER, Principal
from minilog_broker.security.producer_proof import KEY_BYTES, NO_PROOF, WriterName
from minilog_broker.server.access.caller import NO_RULES, Caller
from minilog_broker.server.clients.controller_link import IdBlock
from minilog_broker.server.services import producer_ids
from minilog_broker.server.services.producer_ids import GivenId, ProducerIds
from tests.rules import proves

pytestmark = proves("PR.7")

ALICE = Caller(Principal(USER, "alice"), "host", "/InitProducerId", NO_RULES)
BLOCK = 4


class Metadata:
    """The metadata log as a controller writes it, and what of it this broker has replayed."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.has_key = False
        self.image = MetadataImage()
        self.log: list[records_pb2.MetadataRecord] = []
        self.hears = True
        self._ids = itertools.count(0, BLOCK)
        self.upgrade(level)
        self.catch_up(len(self.log))

    def upgrade(self, level: int) -> None:
        self.level = level
        self.log.append(records_pb2.MetadataRecord(cluster_level=records_pb2.ClusterLevelRecord(level=level)))

    async def allocate(self) -> IdBlock:
        first = next(self._ids)
        block = records_pb2.ProducerIdBlockRecord(next_producer_id=first + BLOCK)
        if self.level >= PROVEN_PRODUCERS_LEVEL and not self.has_key:
            block.proof_key, block.first_proven_id, self.has_key = b"k" * KEY_BYTES, first, True
        self.log.append(records_pb2.MetadataRecord(producer_id_block=block))
        return IdBlock(range(first, first + BLOCK), len(self.log))

    async def replayed(self, end_offset: int) -> None:
        if not self.hears:
            await asyncio.Event().wait()
        self.catch_up(end_offset)

    def catch_up(self, end_offset: int) -> None:
        for offset in range(self.image.end_offset, end_offset):
            apply_record(self.image, offset, self.log[offset])


def given(ids: ProducerIds, count: int) -> list[GivenId]:
    async def ask() -> list[GivenId]:
        return [await ids.next(ALICE) for _ in range(count)]

    return asyncio.run(ask())


def ids_of(metadata: Metadata) -> ProducerIds:
    return ProducerIds(metadata.image, metadata.allocate, metadata.replayed)


def test_each_id_is_given_once_with_its_proof() -> None:
    metadata = Metadata(PROVEN_PRODUCERS_LEVEL)
    found = given(ids_of(metadata), 2 * BLOCK)
    assert [each.name.producer_id for each in found] == list(range(2 * BLOCK))
    key = metadata.image.producer_key
    assert key is not None
    assert all(key.proves(each.proof, each.name, "User:alice") for each in found)
    assert len({each.proof for each in found}) == 2 * BLOCK


def test_an_id_of_a_transaction_is_proven_for_its_transactional_id() -> None:
    metadata = Metadata(PROVEN_PRODUCERS_LEVEL)
    found = asyncio.run(ids_of(metadata).next(ALICE, "job"))
    key = metadata.image.producer_key
    assert key is not None
    assert found == GivenId(WriterName(0, 0, "job"), key.proof(WriterName(0, 0, "job"), "User:alice"))


def test_below_the_level_of_proofs_there_is_none() -> None:
    metadata = Metadata(FIRST_LEVEL)
    assert [each.proof for each in given(ids_of(metadata), 2)] == [NO_PROOF] * 2


def test_a_block_is_used_when_this_brokers_image_has_it() -> None:
    """By then it has the key, too: a leader that knows of the key would refuse an id that has no proof."""
    metadata = Metadata(PROVEN_PRODUCERS_LEVEL)
    ids = ids_of(metadata)
    (found,) = given(ids, 1)
    assert metadata.image.next_producer_id == BLOCK
    assert found.proof != NO_PROOF


def test_a_broker_that_hears_of_no_commit_gives_no_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "REPLAY_WITHIN_S", 0.0)
    metadata = Metadata(PROVEN_PRODUCERS_LEVEL)
    metadata.hears = False
    with pytest.raises(BrokerNotAvailable, match="has received no commits"):
        given(ids_of(metadata), 1)


def test_the_rest_of_a_block_is_given_to_nobody_when_the_cluster_comes_to_have_proofs() -> None:
    metadata = Metadata(FIRST_LEVEL)
    ids = ids_of(metadata)
    (before,) = given(ids, 1)
    metadata.upgrade(PROVEN_PRODUCERS_LEVEL)
    metadata.catch_up(len(metadata.log))
    found = given(ids, 2)
    assert (before.name.producer_id, before.proof) == (0, NO_PROOF)
    assert [each.name.producer_id for each in found] == [BLOCK, BLOCK + 1]
    assert NO_PROOF not in [each.proof for each in found]


def test_nor_when_another_broker_was_the_first_to_ask_at_the_new_level() -> None:
    metadata = Metadata(FIRST_LEVEL)
    ids, others = ids_of(metadata), ids_of(metadata)
    given(ids, 1)
    metadata.upgrade(PROVEN_PRODUCERS_LEVEL)
    given(others, 1)
    (found,) = given(ids, 1)
    assert found.name.producer_id == 2 * BLOCK
    assert found.proof != NO_PROOF
