"""Break brokers while a producer writes, many times; judge the history, and measure how long writes stood still.

    python -m tests.integration.kill_runs leader     --times 50    SIGKILL of a leader that is not the controller
    python -m tests.integration.kill_runs controller --times 50    SIGKILL of the controller
    python -m tests.integration.kill_runs both       --times 50    SIGKILL of both; --brokers 3: of the one that is both
    python -m tests.integration.kill_runs all        --times 20    SIGKILL of every broker at once, all started again
    python -m tests.integration.kill_runs turns      --times 20    SIGKILL of each broker in turn
    python -m tests.integration.kill_runs rolling    --times 20    SIGTERM of each broker in turn: clean stops
    python -m tests.integration.kill_runs hang       --times 20    SIGSTOP of a leader, the controller, a follower
    python -m tests.integration.kill_runs cut        --times 20    one-way and two-way cuts between brokers
    python -m tests.integration.kill_runs spoil      --times 5     slow links, losses, resets
    python -m tests.integration.kill_runs isolate    --times 20    an old leader with a client on its side
    python -m tests.integration.kill_runs voters     --times 20    SIGKILL of a broker while the voters change
    python -m tests.integration.kill_runs members    --minutes 10  members of a group come, leave, hang, stop and die
                                                                   beside kills of brokers; see member_runs.py
    python -m tests.integration.kill_runs queues     --minutes 10  the same of workers of a queue; see queue_runs.py
    python -m tests.integration.kill_runs compaction --times 50    SIGKILL of a broker in the middle of a cleaning; see
                                                                   compaction_runs.py

--secured: a cluster that is closed to strangers, and clients that log in: TLS, SCRAM, a listener of brokers' own.
--typed: rows of a typed topic, whose schema evolves before each round, so that the fault may meet it on its way.

Prints a line per round, then a table (median and worst of the rounds), then what was acknowledged, lost and doubled;
--json FILE writes the same. Exit 1 when anything was lost, doubled, reordered or made up, when copies
differ, or when a write failed of the client that always reaches a majority.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import pathlib
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from tests.cluster import Cluster, running_cluster
from tests.integration import compaction_runs, member_runs, queue_runs, rounds, voter_round
from tests.integration.clients import Reader, Writer, read_all
from tests.integration.forms import RECORDS, ROWS, Form
from tests.integration.history import History, judge_copies, judge_reading
from tests.integration.isolation import isolate
from tests.integration.member_runs import MemberRunOptions
from tests.integration.queue_runs import QueueRunOptions
from tests.integration.rounds import TOPIC, Measured, Round, RoundScene, admin_of
from tests.integration.side_client import SideResult
from tests.secured import running_secured_cluster

ROUNDS: dict[str, Round] = {
    "leader": rounds.kill_leader,
    "controller": rounds.kill_controller,
    "both": rounds.kill_both,
    "all": rounds.kill_all,
    "turns": rounds.kill_turn,
    "rolling": rounds.roll,
    "hang": rounds.hang,
    "cut": rounds.cut,
    "spoil": rounds.spoil,
    "voters": voter_round.change_voters,
}
MODES = (*ROUNDS, "isolate", "members", "queues", "compaction")
PROXIED = ("cut", "spoil", "isolate")
PARTITIONS = 3


@dataclass
class KillRunOutcome:
    """One run: what was measured, what became of the writes, what is wrong."""

    mode: str
    seed: int
    measured: list[Measured] = field(default_factory=list)
    history: History = field(default_factory=History)
    refused: int = 0
    """Writes that failed of the client that always reaches a majority: there are none. A client on the other side of an
    isolation has some, and they are right."""
    wrong: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        """For machines: seconds, counts, and every round."""
        return {
            "mode": self.mode,
            "seed": self.seed,
            "rounds": [dataclasses.asdict(each) for each in self.measured],
            "acknowledged": len(self.history.acknowledged),
            "unknown": len(self.history.unknown),
            "failed": len(self.history.failed),
            "longest_stall_s": round(self.history.longest_stall_s, 3),
            "refused": self.refused,
            "wrong": self.wrong,
        }


def run(
    mode: str,
    times: int,
    seed: int,
    directory: pathlib.Path,
    *,
    brokers: int = 3,
    voters: int | None = None,
    settings: Mapping[str, str] | None = None,
    form: Form = RECORDS,
    secured: bool = False,
) -> KillRunOutcome:
    """All rounds on one cluster, and the judgement."""
    outcome = KillRunOutcome(mode, seed)
    cluster_of: contextlib.AbstractContextManager[Cluster] = (
        running_secured_cluster(directory, brokers, settings)
        if secured
        else running_cluster(directory, brokers, settings, voters=voters, proxied=mode in PROXIED)
    )
    with cluster_of as cluster, admin_of(cluster) as admin:
        partitions = max(PARTITIONS, brokers)
        admin.create_topics([form.new_topic(TOPIC, partitions, brokers)])
        writer = Writer(cluster.client, TOPIC, form=form)
        reader = Reader(cluster.client, TOPIC, partitions, form=form)
        sides: list[SideResult] = []
        try:
            scene = RoundScene(cluster, admin, writer, random.Random(seed), partitions)
            for scene.number in range(times):
                form.evolve(admin, TOPIC)
                outcome.measured.append(_play(mode, scene, directory, sides))
                print(f"round {scene.number + 1}: {_words(outcome.measured[-1])}, {writer.acknowledged()}", flush=True)
        finally:
            outcome.history = writer.stop()
            outcome.refused = len(outcome.history.failed)
            read = reader.stop()
        outcome.wrong = _judge(cluster, scene, outcome, [read, *(each.read for each in sides)], sides, form)
    return outcome


def _play(mode: str, scene: RoundScene, directory: pathlib.Path, sides: list[SideResult]) -> Measured:
    if mode != "isolate":
        return ROUNDS[mode](scene)
    measured, side = isolate(scene, directory)
    sides.append(side)
    return measured


def _judge(
    cluster: Cluster,
    scene: RoundScene,
    outcome: KillRunOutcome,
    reads: list[dict[int, list[tuple[int, bytes]]]],
    sides: list[SideResult],
    form: Form,
) -> list[str]:
    for side in sides:
        outcome.history = outcome.history.joined(side.history)
    scene.wait_whole()
    stored = read_all(cluster.client, TOPIC, form=form)
    wrong = outcome.history.judge(stored)
    for read in reads:
        wrong += judge_reading(read, stored)
    for name, code in cluster.stop().items():
        if code != 0:
            wrong.append(f"broker {name} ended with {code}: {cluster.log_text(name)[-2000:]}")
    for name in cluster.ports:
        if "Traceback" in cluster.log_text(name):
            wrong.append(f"broker {name} said a traceback: {cluster.log_text(name)[-2000:]}")
    return wrong + judge_copies(map(cluster.data_directory, cluster.ports), TOPIC)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _words(measured: Measured) -> str:
    return (
        f"{measured.fault} {measured.victims}: writes after {_seconds(measured.writes_s)}, controller after "
        f"{_seconds(measured.controller_s)}, whole after {_seconds(measured.whole_s)}"
    )


def show(outcome: KillRunOutcome) -> None:
    """The table, by fault: median and worst."""
    table = Table("fault", "rounds", "writes: median", "worst", "controller: median", "worst", "whole: median", "worst")
    by_fault: dict[str, list[Measured]] = {}
    for each in outcome.measured:
        by_fault.setdefault(each.fault, []).append(each)
    for fault, group in by_fault.items():
        cells = [fault, str(len(group))]
        for name in ("writes_s", "controller_s", "whole_s"):
            found = [value for each in group if (value := getattr(each, name)) is not None]
            cells += [_seconds(statistics.median(found)), _seconds(max(found))] if found else ["-", "-"]
        table.add_row(*cells)
    Console(width=150).print(table)
    history = outcome.history
    print(
        f"{outcome.mode} x {len(outcome.measured)}, seed {outcome.seed}: acknowledged {len(history.acknowledged)}, "
        f"unknown {len(history.unknown)}, failed {len(history.failed)}, "
        f"longest stall {history.longest_stall_s:.2f} s, wrong {len(outcome.wrong)}"
    )
    for line in outcome.wrong[:20]:
        print("  " + line)


def _voters_of(mode: str, brokers: int) -> int | None:
    if mode == "voters":
        return 1
    return 5 if mode == "both" and brokers == 5 else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10.0, help="of members and queues")
    parser.add_argument("--members", type=int, default=50, help="at most so many at one moment")
    parser.add_argument("--workers", type=int, default=50, help="of queues: at most so many at one moment")
    parser.add_argument("--calm", action="store_true", help="of members: they come and leave, and nothing else happens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, help="default: 5 for both, else 3")
    parser.add_argument("--voters", type=int, help="default: as many as a cluster of this size has")
    parser.add_argument("--typed", action="store_true", help="not of isolate")
    parser.add_argument("--secured", action="store_true", help="not where links are cut")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    chosen = parser.parse_args()
    if chosen.mode == "members":
        options = MemberRunOptions(chosen.minutes * 60.0, chosen.members, chosen.seed, calm=chosen.calm)
        return member_runs.main(options, chosen.json)
    if chosen.mode == "queues":
        return queue_runs.main(QueueRunOptions(chosen.minutes * 60.0, chosen.workers, chosen.seed), chosen.json)
    if chosen.mode == "compaction":
        return compaction_runs.main(chosen.times, chosen.seed)
    if chosen.typed and chosen.mode == "isolate":
        parser.error("the client beside an old leader writes records: isolate has no --typed")
    if chosen.secured and (chosen.mode in PROXIED or chosen.voters):
        parser.error("a secured cluster has no proxies, and each of its brokers is a voter")
    brokers = chosen.brokers or (5 if chosen.mode in ("both", "voters") else 3)
    voters = chosen.voters or _voters_of(chosen.mode, brokers)
    with tempfile.TemporaryDirectory(prefix="minilog-kill-") as folder:
        form = ROWS if chosen.typed else RECORDS
        directory = pathlib.Path(folder)
        outcome = run(
            chosen.mode,
            chosen.times,
            chosen.seed,
            directory,
            brokers=brokers,
            voters=voters,
            form=form,
            secured=chosen.secured,
        )
    show(outcome)
    if chosen.json:
        chosen.json.write_text(json.dumps(outcome.summary(), indent=2) + "\n")
    return 1 if outcome.wrong or outcome.refused else 0


if __name__ == "__main__":
    sys.exit(main())
