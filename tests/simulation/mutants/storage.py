"""Wrong rules of the disk, and of what a start finds on it: 2, 19, 20, 25, 32, V6 and V19."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import google_crc32c

from minilog_broker.controller import brokers, election
from minilog_broker.controller.brokers import BrokerRegistrations
from minilog_broker.controller.election import Departure
from minilog_broker.controller.torn_tails import TornTails
from minilog_broker.replication.follower.partition import FollowerPartition
from minilog_broker.replication.rules.divergence import Diverged
from minilog_broker.server.broker import Broker
from minilog_broker.server.disk import vote_file
from minilog_broker.storage import log as log_module
from minilog_broker.storage.epoch_cache import EpochCache
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.recovery import Finding, Recovered, Recovery
from tests.rules import Patches
from tests.world.disk import MemoryDisk


def one_lookup_then_high_watermark() -> Patches:
    """The leader's answer is for another epoch than was asked: no second look, but down to the high watermark."""
    diverged = FollowerPartition._diverged

    def mutant(self: FollowerPartition, told: Diverged, leader_log_start: int, now_ms: float) -> None:
        if told.epoch != self.log.last_epoch and self.log.last_epoch is not None:
            told = Diverged(self.log.last_epoch, self.log.high_watermark)
        diverged(self, told, leader_log_start, now_ms)

    return [(FollowerPartition, "_diverged", mutant)]


def epoch_start_not_recorded() -> Patches:
    def nothing(self: Log, *_: Any) -> None:
        pass

    return [(Log, "assign_epoch", nothing), (Log, "_assign_epochs", nothing)]


def _write_unsynced(files: FileSystem, path: str, content: bytes) -> None:
    """As write_durable_file, but nothing is synced: after a loss of power the old file may be there, or none."""
    file = files.open(path + ".tmp", create=True)
    file.truncate(0)
    file.write([content, b"\ncrc32c=%08x\n" % google_crc32c.value(content)], 0)
    file.close()
    files.rename(path + ".tmp", path)


def vote_not_synced() -> Patches:
    return [(vote_file, "write_durable_file", _write_unsynced)]


def epoch_file_not_synced() -> Patches:
    """And what recovery finds is believed, where the true one compares it with the batches."""
    return [(log_module, "write_durable_file", _write_unsynced), (EpochCache, "agrees", lambda *_: True)]


def directory_entries_not_synced() -> Patches:
    """A new segment's entry in its directory is not synced: a loss of power takes the file, synced as it is."""
    roll = Log._roll

    def unsynced() -> AbstractContextManager[Any]:
        return patch.object(MemoryDisk, "fsync_dir", lambda self, path: None)

    def mutant(self: Log) -> None:
        with unsynced():
            roll(self)

    return [(Log, "_roll", mutant)]


def unsynced_tail_served() -> Patches:
    return [(Recovery, "_sync", lambda self: None)]


def damage_not_said() -> Patches:
    """A damaged replica registers as a sound one."""
    run = Recovery.run

    def mutant(self: Recovery) -> Recovered:
        recovered = run(self)
        return replace(recovered, report=replace(recovered.report, finding=Finding.WHOLE))

    return [(Recovery, "run", mutant)]


def damage_not_heeded() -> Patches:
    """The controller treats a damaged replica, and an emptied one, as one that was away."""
    depart = election.depart

    def mutant(state: Any, broker_id: int, departure: Departure, rules: Any) -> Any:
        return depart(state, broker_id, Departure.OUT, rules)

    return [(brokers, "depart", mutant)]


def torn_tail_is_damage() -> Patches:
    """What was never synced, and survived in part, makes the whole copy damaged."""
    mark = Recovery._mark

    def mutant(self: Recovery) -> None:
        if self._surplus_bytes:
            self._damage.append("its tail is torn")
        mark(self)

    return [(Recovery, "_mark", mutant)]


def unclean_start_loses_eligibility() -> Patches:
    depart = BrokerRegistrations._departure

    def mutant(self: BrokerRegistrations, *arguments: Any, clean: bool) -> Departure:
        departure = depart(self, *arguments, clean=clean)
        return Departure.UNCLEAN if departure is Departure.OUT and not clean else departure

    return [(BrokerRegistrations, "_departure", mutant)]


def torn_copy_leads_alone() -> Patches:
    """A copy that was cut is taken for whole: no other is asked."""
    return [(TornTails, "end_of", lambda *_: None)]


def strays_before_the_image_is_there() -> Patches:
    """Whatever log the image does not know when the broker registers is a stray, however old that image is."""
    register = Broker._register

    async def mutant(self: Broker) -> None:
        replayed = self._stored.quorum.replayed

        async def set_aside_before(end_offset: int) -> None:
            self._set_strays_aside()
            await replayed(end_offset)

        with patch.object(self._stored.quorum, "replayed", set_aside_before):
            await register(self)

    return [(Broker, "_register", mutant)]
