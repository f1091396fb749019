"""An isolated old leader with a client on its side.

What that client was told is written stands there in the end; what it was not told is unknown; what it read stands
there too. The others elect a leader and go on; the old one truncates when it is back.
"""

from __future__ import annotations

import pathlib
import time

from tests.cluster import broker_name
from tests.integration.rounds import TOPIC, Measured, RoundScene
from tests.integration.side_client import DELIVERY_TIMEOUT_S, SideClient, SideResult
from tests.proxy import CLIENT, CUT

SIDE_SETTLES_S = 1.0
"""Before the cut the side client writes for this long; behind its delivery time-out the cut lasts as long."""


def isolate(scene: RoundScene, folder: pathlib.Path) -> tuple[Measured, SideResult]:
    """One round: a leader and a client are cut off and come back; in odd rounds the leader is the controller too."""
    controller = scene.controller()
    alone = scene.cluster.voters == [controller]
    victim = controller if scene.number % 2 and not alone else scene.other_leader(controller)
    partitions = scene.partition_count
    name = f"side-{scene.number}"
    side = SideClient(f"127.0.0.1:{scene.cluster.ports[victim]}", TOPIC, partitions, name, folder)
    scene.proxy.name(side.pid, name)
    try:
        time.sleep(SIDE_SETTLES_S)
        scene.let_it_write()
        measured = _apart(scene, victim, name)
    finally:
        scene.proxy.heal()
        result = side.stop()
    measured.whole_s = scene.wait_whole()
    scene.writer.wait_for_more(200)
    return measured, result


def _apart(scene: RoundScene, victim: int, side: str) -> Measured:
    """The cut, and what the greater side makes of it."""
    fault_s = time.monotonic()
    old = broker_name(victim)
    scene.proxy.set_rule_both_ways(CLIENT, old, CUT)
    for other in map(broker_name, set(scene.cluster.ports) - {victim}):
        scene.proxy.set_rule_both_ways(old, other, CUT)
        scene.proxy.set_rule_both_ways(side, other, CUT)
    watch = scene.watch(fault_s)
    what = "the controller" if scene.number % 2 and len(scene.cluster.voters) > 1 else "a leader"
    measured = Measured(f"isolation of {what} with a client", (victim,), writes_s=scene.writer.failover_s(watch))
    measured.controller_s = scene.decided_s(fault_s)
    # So long that what was under way on the wrong side when the link was cut is unknown, whoever was quick.
    time.sleep(max(SIDE_SETTLES_S, fault_s + DELIVERY_TIMEOUT_S + SIDE_SETTLES_S - time.monotonic()))
    scene.proxy.heal()
    return measured
