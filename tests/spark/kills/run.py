"""One run: input flows, somebody is killed again and again, all is let finish, and what stands there is judged."""

from __future__ import annotations

import contextlib
import pathlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from minilog import Admin
from tests.cluster import Cluster, running_cluster
from tests.integration.clients import Reader, Writer, read_all
from tests.integration.forms import KEYS, RECORDS, ROWS, Form
from tests.integration.history import History, Stored, judge_copies
from tests.secured import running_secured_cluster
from tests.spark.kills.copying import Copying, wait_for
from tests.spark.kills.judging import Verdict, judge, judge_reading
from tests.spark.kills.victims import BROKERS, SINK, SOURCE, VICTIMS, KillScene
from tests.spark.standalone import standalone

PARTITIONS = 2
LOCAL = "local[2,4]"  # a task is tried four times, as in a cluster
STANDALONE = "standalone"  # a master and two workers, of our own
RECORDS_PER_S = 20  # fewer than are copied while nobody is killed
SHORT_TOKENS = {"delegation.token.expiry.time.ms": "20000", "delegation.token.max.lifetime.ms": "60000"}
"""Of a secured run: the tokens of its tasks are renewed, and replaced, in the middle of it."""
QUEUE_SETTINGS = {"group.share.record.lock.duration.ms": "10000", "group.share.delivery.count.limit": "1000"}
"""Some drivers come back before their locks end, and some after it. No message dies of kills."""
FLOWS_WITHIN_S = 180.0
"""Until input is copied again: a driver starts in 5 s on an idle machine, in 30 s on a busy one."""
_MORE_RECORDS = range(5, 60)
_OPEN_WITHIN_S = 10.0
_WRITING_S = 0.3


@dataclass(frozen=True, slots=True)
class Killed:
    """One kill: whom, seconds until a micro-batch that began after it was committed, starts of the driver meanwhile."""

    victim: str
    who: str
    flows_again_s: float
    driver_starts: int


@dataclass
class CopyOutcome:
    """One run. `aborted`: records that stand in the sink, and are given to no read_committed reader."""

    seed: int
    kills: list[Killed] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    acknowledged: int = 0
    read: int = 0
    aborted: int = 0


@contextlib.contextmanager
def running_scene(
    directory: pathlib.Path,
    seed: int,
    *,
    master: str = LOCAL,
    at_least_once: bool = False,
    form: Form = RECORDS,
    secured: bool = False,
    queue: str | None = None,
) -> Iterator[KillScene]:
    """Brokers with default settings, a copy from a topic to another, a writer and a reader; all gone afterwards. With
    `queue` the copy takes its records from it."""
    with _running_brokers(directory / "brokers", secured=secured) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(cluster.client) as admin:
            admin.create_topics([form.new_topic(each, PARTITIONS, 3) for each in (SOURCE, SINK)])
            if queue:
                admin.alter_queue(queue, set=QUEUE_SETTINGS)
        arguments = [servers, SOURCE, SINK, "--partitions", str(PARTITIONS)]
        arguments += ["--at-least-once"] if at_least_once else []
        arguments += ["--typed"] if form is ROWS else []
        arguments += ["--queue", queue] if queue else []
        arguments += ["--config-file", str(cluster.directory / "client.properties")] if secured else []
        with contextlib.ExitStack() as stack:
            if master == STANDALONE:
                spark = stack.enter_context(standalone(directory))
                copying = Copying(directory / "spark", arguments, master=spark.url, worker_ids=spark.worker_ids)
            else:
                copying = Copying(directory / "spark", arguments, master=master)
            stack.callback(copying.end)
            writer = Writer(cluster.client, SOURCE, in_flight=100, pause_s=1 / RECORDS_PER_S, form=form)
            stack.callback(writer.stop)
            reader = Reader(cluster.client, SINK, PARTITIONS, form=form)
            stack.callback(reader.stop)
            scene = KillScene(cluster, copying, writer, reader, random.Random(seed), form)
            wait_for("the first records to be copied", lambda: scene.seen() > 0, FLOWS_WITHIN_S)
            yield scene


@contextlib.contextmanager
def _running_brokers(directory: pathlib.Path, *, secured: bool) -> Iterator[Cluster]:
    if not secured:
        with running_cluster(directory) as cluster:
            yield cluster
        return
    with running_secured_cluster(directory, settings=SHORT_TOKENS) as closed:
        yield closed


def play(scene: KillScene, victim: str) -> Killed:
    """Kill somebody at a random moment, wait until input is copied again, and mend what was broken."""
    goal = scene.seen() + scene.chance.choice(_MORE_RECORDS)
    wait_for(f"{goal} copies", lambda: scene.seen() >= goal, FLOWS_WITHIN_S)
    _wait_for_the_moment(scene)
    scene.evolve()
    starts = scene.copying.starts
    goal_batch = scene.copying.finished_batch() + 2  # the next one may have begun before the kill
    who = VICTIMS[victim](scene)
    flows_again_s = wait_for(
        f"micro-batch {goal_batch} after the end of {who}",
        lambda: scene.copying.finished_batch() >= goal_batch,
        FLOWS_WITHIN_S,
    )
    scene.mend()
    return Killed(victim, who, flows_again_s, scene.copying.starts - starts)


def _wait_for_the_moment(scene: KillScene) -> None:
    """Any in a micro-batch, or, every other time, one at which its transaction is open. (Records are seen at commits,
    so a moment soon after one was seen is never the latter.)"""
    if scene.chance.random() < 0.5:
        scene.pause(scene.chance.uniform(0.0, scene.copying.batch_s()))
        return
    with contextlib.suppress(AssertionError):  # where there are no transactions, any moment will do
        wait_for("an open transaction", scene.is_open, _OPEN_WITHIN_S)
    scene.pause(scene.chance.uniform(0.0, _WRITING_S))


def tell(scene: KillScene, outcome: CopyOutcome) -> None:
    """Print a line about the last kill."""
    each = outcome.kills[-1]
    print(
        f"{len(outcome.kills)}. {each.who}: a batch after {each.flows_again_s:.2f} s, driver started "
        f"{each.driver_starts} times; {scene.writer.acknowledged()} written, {scene.seen()} copied",
        flush=True,
    )


def finish(scene: KillScene, outcome: CopyOutcome, *, in_order: bool = True) -> None:
    """Let all input be copied, stop everything in order, and judge."""
    client = scene.cluster.client
    history = scene.writer.stop()
    source = read_all(client, SOURCE, form=scene.form)
    _catch_up(scene, sum(map(len, source.values())))
    code = scene.copying.stop()
    sink = read_all(client, SINK, form=scene.form)
    stored = read_all(client, SINK, isolation="read_uncommitted", form=scene.form)
    read = scene.reader.stop()
    outcome.acknowledged, outcome.read = len(history.acknowledged), sum(map(len, read.values()))
    outcome.aborted = sum(map(len, stored.values())) - sum(map(len, sink.values()))
    outcome.verdict = _judged(history, source, sink, read, KEYS if scene.form is ROWS else None, in_order)
    wrong = outcome.verdict.wrong
    if code != 0:
        wrong.append(f"the driver ended with {code}: {scene.copying.log.read_text()[-2000:]}")
    wrong += [
        f"the driver was started {each.driver_starts} times after the end of {each.who}, which is none of its concern"
        for each in outcome.kills
        if each.victim in BROKERS and each.driver_starts
    ]
    wrong += _left_open(scene)
    wrong += _judge_brokers(scene)


def _catch_up(scene: KillScene, total: int) -> None:
    """Until so many are copied, or none is any more: what is missing is for the judgement to say."""
    with contextlib.suppress(AssertionError):
        while (seen := scene.seen()) < total:
            wait_for("one more copy", lambda seen=seen: scene.seen() > seen, FLOWS_WITHIN_S)  # type: ignore[misc]


def _judged(history: History, source: Stored, sink: Stored, read: Stored, keys: int | None, in_order: bool) -> Verdict:
    verdict = judge(source, sink, keys, in_order=in_order)
    verdict.wrong += history.judge(source)
    verdict.wrong += judge_reading(read, sink)
    verdict.wrong += [f"{value[:40]!r} was not written: {error}" for value, error in history.failed.items()]
    return verdict


def _left_open(scene: KillScene) -> list[str]:
    """V19: no transaction is open that nobody owns, and none holds readers up."""
    with scene.admin() as admin:
        transactions = admin.list_transactions()
        partitions = admin.describe_topics([SINK])[0].partitions
    return [f"{each} is not idle" for each in transactions if each.state != "idle"] + [
        f"{each}: readers are held up" for each in partitions if each.last_stable_offset != each.high_watermark
    ]


def _judge_brokers(scene: KillScene) -> list[str]:
    """Clean ends, no tracebacks, and equal copies."""
    cluster = scene.cluster
    wrong = [f"broker {name} ended with {code}" for name, code in cluster.stop().items() if code != 0]
    wrong += [
        f"broker {name} said a traceback: {cluster.log_text(name)[-2000:]}"
        for name in cluster.ports
        if "Traceback" in cluster.log_text(name)
    ]
    directories = [cluster.data_directory(each) for each in cluster.ports]
    return wrong + judge_copies(directories, SOURCE) + judge_copies(directories, SINK)


def run(
    victims: Iterable[str],
    seed: int,
    directory: pathlib.Path,
    *,
    master: str = LOCAL,
    at_least_once: bool = False,
    form: Form = RECORDS,
    secured: bool = False,
    queue: str | None = None,
) -> CopyOutcome:
    """Kill these in turn. Prints a line for each; raises AssertionError where something stands still."""
    outcome = CopyOutcome(seed)
    scene_of = running_scene(
        directory, seed, master=master, at_least_once=at_least_once, form=form, secured=secured, queue=queue
    )
    with scene_of as scene:
        for victim in victims:
            outcome.kills.append(play(scene, victim))
            tell(scene, outcome)
        finish(scene, outcome, in_order=queue is None)
    return outcome
