"""What connections may ask of a broker's memory, a well-behaved client beside them: who attacks waits or is cut."""

from __future__ import annotations

import pathlib

import pytest

from tests.cluster import running_cluster
from tests.integration import memory_attacks
from tests.integration.memory_attacks import MIB
from tests.integration.well_behaved import Attack, unnoticed
from tests.rules import proves

pytestmark = [pytest.mark.quiet, proves("DK.17"), pytest.mark.long]

BUDGET = 256 * MIB
BETWEEN_LOOKS = 256 * MIB  # what a fast sender on the same machine gets in before it is seen
NOISE = 100 * MIB

MOST_GROWTH: dict[Attack, int] = {
    memory_attacks.frames_of_120_mib: NOISE,  # refused at their first bytes
    memory_attacks.frames_of_60_mib: BUDGET + BETWEEN_LOOKS + 3 * 66 * MIB,  # one at a time is parsed, in three copies
    memory_attacks.streams_that_never_read: BUDGET + BETWEEN_LOOKS,
    memory_attacks.half_sent_messages: BUDGET + BETWEEN_LOOKS,
    memory_attacks.idle_connections: NOISE,
    memory_attacks.streams_on_a_connection: NOISE,
    memory_attacks.empty_frames: NOISE,
    memory_attacks.long_headers: 512 * MIB,  # gRPC unpacks each call's headers before it refuses them (known-limits.md)
    memory_attacks.pings: NOISE,
}


# A frame of 60 MiB is legal, and is parsed in one piece in some tenths of a second: twelve at once are more than the
# client beside should notice (known-limits.md). gRPC answers pings on threads of its own.
@pytest.mark.parametrize("attack", memory_attacks.ATTACKS, ids=lambda attack: attack.__name__)
def test_memory_is_bounded_and_a_well_behaved_client_hardly_notices(tmp_path: pathlib.Path, attack: Attack) -> None:
    report, _ = unnoticed(tmp_path, attack, running_cluster)
    for broker_id, memory in report.memory.items():
        growth = memory.peak_bytes - memory.before_bytes
        assert growth < MOST_GROWTH[attack], f"broker {broker_id} grew by {growth >> 20} MiB\n{report}"
