"""A round of kill runs in which the voters change: one comes or goes while a broker, voter or not, is killed."""

from __future__ import annotations

import threading
import time

from minilog import Admin
from minilog.errors import MinilogError
from tests.integration.rounds import Measured, RoundScene, admin_of

MOST, FEWEST = 5, 3
_AGAIN_WITHIN_S = 60.0


def change_voters(scene: RoundScene) -> Measured:
    """Up to five voters, down to three, and up again; the victim is drawn, and starts again at once."""
    voters = [voter.id for voter in scene.admin.describe_cluster().voters]
    shrinks = _shrinks(scene, voters)
    others = sorted(set(scene.cluster.ports) - set(voters))
    chosen = scene.chance.choice(voters if shrinks else others)
    victim = scene.chance.choice(sorted(scene.cluster.ports))
    scene.let_it_write()
    failure: list[BaseException] = []
    change = threading.Thread(target=_change, args=(scene, chosen, shrinks, failure))
    fault_s = time.monotonic()
    change.start()
    time.sleep(scene.chance.uniform(0.0, 0.05))
    scene.cluster.kill(victim)
    watch = scene.watch(fault_s)
    scene.cluster.start(victim)
    measured = Measured(_words(shrinks, victim == chosen), (victim,), writes_s=scene.writer.failover_s(watch))
    change.join()
    if failure:
        raise failure[0]
    measured.controller_s = scene.decided_s(watch.fault_s)
    measured.whole_s = scene.wait_whole()
    scene.writer.wait_for_more(200)
    return measured


def _shrinks(scene: RoundScene, voters: list[int]) -> bool:
    """Down where there are five, and further down in every second round of two until there are three."""
    if len(voters) >= MOST:
        return True
    return len(voters) > FEWEST and (scene.number // 2) % 2 == 1


def _words(shrinks: bool, hits: bool) -> str:
    who = "that voter" if hits else "another broker"
    return f"a voter {'goes' if shrinks else 'comes'}, SIGKILL of {who}"


def _change(scene: RoundScene, broker_id: int, shrinks: bool, failure: list[BaseException]) -> None:
    """Until it is so: the command may meet the death of the controller, or of the broker itself."""
    deadline_s = time.monotonic() + _AGAIN_WITHIN_S
    while True:
        try:
            with admin_of(scene.cluster) as admin:
                _ask(admin, broker_id, shrinks)
            return
        except MinilogError as error:
            if time.monotonic() > deadline_s:
                failure.append(error)
                return
            time.sleep(0.2)


def _ask(admin: Admin, broker_id: int, shrinks: bool) -> None:
    if shrinks:
        admin.remove_voter(broker_id)
    else:
        admin.add_voter(broker_id)
