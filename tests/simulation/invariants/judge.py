"""The judge: sits behind the cluster's events and asks the invariants about what each event touched.

V1 V2 V3 V9      mirror.py       every replica's log, data and metadata
V1 V15           transactions.py last stable offsets, ends of transactions
V15              registrations.py  who may write, and who may win
V4 - V8 V10      partition.py    members, high watermarks, elections, "latest"
V14 V17 V18
V11 V20 V21      quorum.py       votes, epochs, tenures
V12 V13          metadata.py     what is committed, and what images are
V1 KIP-107       trims.py        log starts, and what is deleted
V7               here            acknowledgements, and what a disk kept from life to life
V20 of brokers   fencing.py      silence fences after a session time-out, and no controller's own (mutant 30)
V14 V16 V8       history.py      what clients saw;  V19: liveness.py
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from minilog.record_batch.header import decode_header
from minilog_broker.quorum.records import METADATA_KEY
from minilog_broker.replication.partition_state import PartitionKey
from tests.simulation.invariants.fencing import Fencing
from tests.simulation.invariants.metadata import Decided, MetadataTruth
from tests.simulation.invariants.mirror import Mirror
from tests.simulation.invariants.partition import PartitionTruth
from tests.simulation.invariants.quorum import QuorumTruth
from tests.simulation.invariants.registrations import Registrations
from tests.simulation.invariants.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.history import History
    from tests.simulation.life import Life
    from tests.simulation.node import Node
    from tests.simulation.touched import Answered, Sent, Touched, TrimAnswered, TrimAsked

ON_ITS_WAY_MS = 500.0  # no link is slower for so long
_ACKS_ALL = -1


class Judge:
    """See the module's text. Attach it by `cluster.observers.append(judge)`; `states` counts what was reached."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self.cluster = cluster
        self.history = history
        self.states: Counter[str] = Counter()
        self.partitions: dict[PartitionKey, PartitionTruth] = {}
        self.metadata = MetadataTruth()
        self.quorum = QuorumTruth(cluster.plan.fetch_timeout_ms)
        self.fencing = Fencing(cluster.plan.broker_session_timeout_ms)
        self.registrations = Registrations(history.transactions.may_win)
        self._fates: dict[int, bool] = {}  # of transactional producers, by their first marker
        if cluster.plan.transactions:
            history.why_not_skipped = self.why_not_skipped
            history.transactions.is_marked = self.is_marked
        history.may_be_deleted = self.may_be_deleted
        self._lives: dict[int, int] = {}  # node: the number of the life that was seen begin
        self._boots: dict[int, int] = {}  # node: the kernel that ran when its life ended

    def __call__(self, touched: Touched) -> None:
        """After one event."""
        if touched.ended or touched.began:
            self._incarnations_changed(touched)
        for node_id, key in touched.recovered:
            self._recovered(self.cluster.nodes[node_id], key)
        self._stood_still(touched)
        nodes = self.cluster.nodes
        for asked in touched.trims_asked:
            self._trim_asked(asked)
        now_ms = self.cluster.now_ms
        if touched.heard:
            for source, target in touched.heard:
                self.quorum.heard(source, target, now_ms)
        for one, other in touched.broken:
            self.quorum.broken(one, other, now_ms)
        for node_id in touched.quorum:
            if (life := nodes[node_id].life) is not None:
                self._look_at_quorum(nodes[node_id], life)
        for node_id in touched.images:
            if (life := nodes[node_id].life) is not None:
                self.metadata.check_image(node_id, life.image)
                for key in life.logs:  # a life that ended moves the high watermark of partitions that did not change
                    self._look_at_replica(node_id, life, key)
        for node_id, key in touched.replicas:
            if (life := nodes[node_id].life) is not None:
                self._look_at_replica(node_id, life, key)
        for answered in touched.answers:
            self._check_answer(answered)
        for said in touched.trims_answered:
            self._trim_answered(said)
        for sent in touched.sent:
            self._check_sent(sent)
        for voted in touched.votes:
            self.quorum.voted(nodes[voted.node_id], voted)
        for node_id, broker_id, broker_epoch in touched.heartbeats:
            if (life := nodes[node_id].life) is not None:
                self.fencing.heard((node_id, life.quorum.epoch), broker_id, broker_epoch, now_ms)
        for node_id in touched.decided:
            if (life := nodes[node_id].life) is not None:
                self._look_at_controller(node_id, life)
        voters = self._voters()
        for node_id in touched.nodes:
            if not nodes[node_id].paused:
                self.quorum.check_heard(node_id, voters, now_ms)

    def _voters(self) -> list[int]:
        recorded = self.metadata.image.voters
        return [voter.broker_id for voter in recorded] if recorded else list(self.cluster.plan.voter_ids)

    # -- lives

    def _incarnations_changed(self, touched: Touched) -> None:
        now_ms = self.cluster.now_ms
        for node_id, how in touched.ended:
            self.quorum.disturbed(node_id, now_ms)
            self.quorum.ended(node_id)
            self._died(self.cluster.nodes[node_id], how)
        for node_id in touched.began:
            self.quorum.disturbed(node_id, now_ms)
            node = self.cluster.nodes[node_id]
            if node.life is not None and self._lives.get(node_id) != node.life.number:
                self._lives[node_id] = node.life.number
                self._reborn(node, node.life)

    def _died(self, node: Node, how: str) -> None:
        self.states[f"lives ended: {how}"] += 1
        self._boots[node.node_id] = node.boot
        power = how == "power"
        for truth in self.partitions.values():
            if (mirror := truth.mirrors.get(node.node_id)) is not None and mirror.kept_end is None:
                self._kept(truth, mirror, power=power)
        mirror = self.metadata.mirrors.get(node.node_id)
        if mirror is not None and mirror.kept_end is None:
            mirror.died()

    def _kept(self, truth: PartitionTruth, mirror: Mirror, *, power: bool) -> None:
        if power and mirror.synced_end < mirror.durable_end:
            self._exempt(truth, "power lost under flush.policy=os")
        mirror.died(power=power)

    def _look_whether_unpowered(self, node: Node) -> None:
        """Its machine may have lost power while it was down: what a killed life left to the kernel is gone, too."""
        if node.boot == self._boots.get(node.node_id, node.boot):
            return
        for truth in self.partitions.values():
            if (mirror := truth.mirrors.get(node.node_id)) is not None and mirror.kept_end is not None:
                self._kept(truth, mirror, power=True)

    def _reborn(self, node: Node, life: Life) -> None:
        node_id, harmed = node.node_id, node.harmed
        self._look_whether_unpowered(node)
        for key, log in life.logs.items():
            truth = self.partitions.get(key)
            if truth is None:
                continue
            mirror = self._mirror(truth.mirrors, truth, node_id, key)
            damaged = key in harmed
            if damaged:
                truth.excused[node_id] = self.metadata.broker_epochs().get(node_id)
            counted = truth.is_counted(node_id)
            mirror.reborn(log, life.number, damaged=damaged, counted=counted)
            if log.recovery.damaged:
                self.states["damaged logs found"] += 1
        for key, truth in self.partitions.items():
            if node_id in truth.mirrors and key not in life.logs:
                self._lost(truth, node_id, damaged=key in harmed)
        mirror = self._mirror(self.metadata.mirrors, self.metadata, node_id, METADATA_KEY)
        damaged = METADATA_KEY in harmed
        mirror.reborn(life.metadata_log, life.number, damaged=damaged, counted=True)
        if METADATA_KEY in harmed:
            self.quorum.wiped(node_id)

    def _recovered(self, node: Node, key: PartitionKey) -> None:
        """A log was cut where it was damaged, in the middle of a life: what it had may be gone, as with a new life."""
        truth = self.partitions.get(key)
        if truth is None or node.life is None:
            return
        mirror = self._mirror(truth.mirrors, truth, node.node_id, key)
        mirror.died()
        damaged = key in node.harmed
        if damaged:
            truth.excused[node.node_id] = None  # it is out of the ISR: when it joins, it is for what it has now
        mirror.reborn(node.life.logs[key], node.life.number, damaged=damaged, counted=truth.is_counted(node.node_id))
        self.states["damaged logs cut in one life"] += 1

    def _lost(self, truth: PartitionTruth, node_id: int, *, damaged: bool) -> None:
        """A new life has no log of a partition that the last one had."""
        mirror = truth.mirrors.pop(node_id)
        if damaged:
            truth.excused[node_id] = self.metadata.broker_epochs().get(node_id)
        elif truth.is_counted(node_id) and mirror.kept_end is not None and mirror.kept_end > mirror.start:
            text = f"node {node_id} has lost partition {truth.key.partition} up to {mirror.kept_end}, which was durable"
            raise Violation("V7", text, nodes=(node_id,), key=truth.key)

    def _exempt(self, truth: PartitionTruth, why: str) -> None:
        if truth.exempt is None:
            truth.exempt = why
            self.states[f"exempt: {why}"] += 1
        self.history.exempt(truth.key)

    def _stood_still(self, touched: Touched) -> None:
        for node_id in touched.nodes:
            life = self.cluster.nodes[node_id].life
            paused = life is not None and life.process.paused
            if self.fencing.saw(node_id, paused, self.cluster.now_ms):
                self.quorum.disturbed(node_id, self.cluster.now_ms)

    # -- logs

    @staticmethod
    def _mirror(
        mirrors: dict[int, Mirror], truth: PartitionTruth | MetadataTruth, node_id: int, key: PartitionKey
    ) -> Mirror:
        mirror = mirrors.get(node_id)
        if mirror is None:
            mirror = mirrors[node_id] = Mirror(node_id, key, truth.committed)
        return mirror

    def _look_at_replica(self, node_id: int, life: Life, key: PartitionKey) -> None:
        truth = self.partitions.get(key)
        if truth is None:
            return
        self._look_at_log(node_id, life, truth)
        if self.cluster.plan.transactions and truth.exempt is None:
            self._look_at_transactions(node_id, life, truth)

    def _look_at_transactions(self, node_id: int, life: Life, truth: PartitionTruth) -> None:
        log, replica = life.logs.get(truth.key), life.manager._replicas.get(truth.key)
        if log is None or replica is None or replica.log is None:
            return
        for producer_id, committed, _ in truth.transactions.advance(log):
            self.states["markers committed"] += 1
            if self._fates.setdefault(producer_id, committed) != committed:
                text = f"producer {producer_id} is committed in one partition, and aborted in another"
                raise Violation("V15", text, key=truth.key)
            self.history.transactions.marked(producer_id, committed=committed)
        part = life.coordinating.parts.get(truth.key)
        if part is not None and part.taken_for_committed > replica.log.high_watermark:
            text = f"the coordinator on node {node_id} acts on decisions up to {part.taken_for_committed}, and only "
            text += f"{replica.log.high_watermark} are committed"
            raise Violation("V15", text, nodes=(node_id,), key=truth.key)
        if part is not None:
            self.registrations.look(node_id, truth.key, part.taken_for_committed, part.core.committed_state)
        ends = replica.log.high_watermark, replica.log.last_stable_offset
        truth.transactions.check_stable(node_id, *ends, replica.log.log_start)

    def why_not_skipped(self, key: PartitionKey, start: int, end: int, *, committed: bool) -> str | None:
        """See history.WhyNotSkipped."""
        truth = self.partitions.get(key)
        if truth is None or truth.exempt is not None:
            return None
        return truth.transactions.why_not_skipped(start, end, committed=committed)

    def is_marked(self, key: PartitionKey, producer_id: int) -> bool | None:
        """Whether the end of a producer is committed there; None where nothing is known."""
        truth = self.partitions.get(key)
        if truth is None or truth.exempt is not None or not truth.transactions.knows_all:
            return None
        return producer_id in truth.transactions.fates

    def _look_at_log(self, node_id: int, life: Life, truth: PartitionTruth) -> None:
        key = truth.key
        log = life.logs.get(key)
        if log is None:
            truth.mirrors.pop(node_id, None)
            return
        mirror = self._mirror(truth.mirrors, truth, node_id, key)
        mirror.life = life.number
        changed = mirror.look(log)
        if changed and truth.exempt is None:
            truth.trims.check_start(node_id, mirror.start)
        replica = life.manager._replicas.get(key)
        leader = replica.leader if replica is not None else None
        if leader is not None and leader.leading:
            running_ms = self.fencing.running_ms(node_id, self.cluster.now_ms)
            truth.check_lag(leader, running_ms, self.cluster.plan.replica_lag_time_max_ms)
            if truth.check_leader(node_id, life.number, leader):
                truth.check_members()
                return
        elif changed and truth.exempt is None:
            truth.commit_of_former_leader(mirror)
            mirror.check_high_watermark()
        if changed:
            truth.check_member(node_id)

    def _look_at_quorum(self, node: Node, life: Life) -> None:
        node_id, quorum = node.node_id, life.quorum
        self._check_voters(node_id, life)
        mirror = self._mirror(self.metadata.mirrors, self.metadata, node_id, METADATA_KEY)
        changed = mirror.look(life.metadata_log)
        voters = self._voters()
        intact = all(
            self.cluster.nodes[voter.broker_id].directory_id == voter.directory_id.hex()
            for voter in self.metadata.image.voters
        )
        for state in self.quorum.look(node, life, voters, self.cluster.now_ms, intact=intact):
            self.states[state] += 1
        epoch = quorum.epoch if quorum.is_leader else None
        for decided in self.metadata.advance(node_id, life.metadata_log, quorum.committed_end_offset, epoch):
            self._decided(decided)
        if changed:
            mirror.check_high_watermark()

    def _check_voters(self, node_id: int, life: Life) -> None:
        """Who was started with other voters than the recorded ones is refused, and never takes part."""
        recorded = sorted(voter.broker_id for voter in self.metadata.image.voters)
        if recorded and life.broker_epoch is not None and sorted(life.voter_ids) != recorded:
            text = f"node {node_id} takes part with voters {sorted(life.voter_ids)}, recorded are {recorded}"
            raise Violation("V11", text, nodes=(node_id,))

    # -- committed metadata

    def _decided(self, decided: Decided) -> None:
        image = self.metadata.image
        for key in decided.removed:
            self.partitions.pop(key, None)
            self.states["partitions deleted"] += 1
        for state in decided.states:
            truth = self.partitions.get(state.key)
            if truth is None:
                if state.key not in image.partitions:
                    continue  # deleted behind this record
                truth = self.partitions[state.key] = PartitionTruth(state.key)
                truth.transactions.may_write = self.registrations.check
                self.states["partitions created"] += 1
            if state.key.topic_id in image.topics:
                truth.unclean_allowed = image.effective_config(state.key.topic_id).unclean_leader_election
            for event in truth.decided(state, decided.broker_epochs, self.cluster.now_ms):
                self.states[event] += 1
            if truth.exempt is not None:
                self._exempt(truth, truth.exempt)

    def _look_at_controller(self, node_id: int, life: Life) -> None:
        image = life.controller.image
        if image is not None:
            hosts = self.cluster.network.hosts
            alive = {
                other_id: other.life.broker_epoch
                for other_id, other in self.cluster.nodes.items()
                if other.life is not None and hosts.get(other_id) is not None  # it listens
            }
            self.fencing.check((node_id, life.quorum.epoch), image, alive, self.cluster.now_ms)

    # -- acknowledgements

    def _check_answer(self, answered: Answered) -> None:
        """V7: what is acknowledged under acks=all is committed, where the answer says."""
        answer, truth = answered.answer, self.partitions.get(answered.key)
        if answer.error is None and truth is not None and truth.unclean_election is not None:
            self._check_stopped(answered, *truth.unclean_election)
        if answer.error is not None or truth is None or answered.acks != _ACKS_ALL or truth.exempt is not None:
            return
        found = truth.committed.find(answer.base_offset)
        crc = decode_header(answered.batch).crc
        if found is None or found.crc != crc:
            text = f"node {answered.node_id} acknowledges offset {answer.base_offset}, where {found} is committed"
            raise Violation("V7", text, nodes=(answered.node_id,), key=answered.key, epoch=answer.leader_epoch)

    def _check_stopped(self, answered: Answered, elected_epoch: int, elected_ms: float) -> None:
        """Whoever led when another was elected uncleanly has stopped by then: its session with the controller is over.

        A controller that is deposed answers heartbeats for a while yet (V21), and an answer is under way."""
        late_ms = self.cluster.now_ms - elected_ms - self.cluster.plan.fetch_timeout_ms - ON_ITS_WAY_MS
        if answered.answer.leader_epoch < elected_epoch and late_ms > 0.0:
            text = f"node {answered.node_id} acknowledges in epoch {answered.answer.leader_epoch}, though another was"
            text += f" elected uncleanly in epoch {elected_epoch}, {self.cluster.now_ms - elected_ms:.0f} ms ago"
            raise Violation("session", text, nodes=(answered.node_id,), key=answered.key)

    # -- deleting records

    def may_be_deleted(self, key: PartitionKey) -> int:
        """See History. Of a partition that is gone, all."""
        truth = self.partitions.get(key)
        return 1 << 60 if truth is None or truth.exempt is not None else truth.trims.granted

    def _trim_asked(self, asked: TrimAsked) -> None:
        life, truth = self.cluster.nodes[asked.node_id].life, self.partitions.get(asked.key)
        replica = life.manager._replicas.get(asked.key) if life is not None else None
        if truth is None or replica is None or replica.leader is None or replica.log is None:
            return
        if replica.leader.leading:
            granted = truth.trims.asked(asked.offset, replica.log.last_stable_offset)
            self.states["trims granted" if granted else "trims refused"] += 1

    def _trim_answered(self, said: TrimAnswered) -> None:
        truth = self.partitions.get(said.key)
        if truth is not None and truth.exempt is None:
            truth.trims.say(said.node_id, said.offset, said.low_watermark)
            truth.check_members()
            self.states["trims answered"] += 1

    def _check_sent(self, sent: Sent) -> None:
        truth = self.partitions.get(sent.key)
        if truth is not None and truth.exempt is None and truth.is_relied_on(sent.node_id):
            truth.trims.check_sent(sent.node_id, decode_header(sent.batches).next_offset)
