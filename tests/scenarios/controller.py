"""The verbs of the controller: what brokers, leaders and operators ask of it. It runs over a log in memory.

The trace shows for each partition its leader in `leader epoch.partition epoch`, the ISR and the replicas. For each
broker it shows whether the broker is alive, fenced or stopping. The decision of a command is committed at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from minilog.partition_key import PartitionKey
from minilog.v1 import admin_pb2, peer_pb2
from minilog_broker.controller.controller_effects import PartitionWaits, ProbeBroker, UncleanElection
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState
from tests.scenarios.world import CommandError, World
from tests.unit.controller.cluster import DOUBTFUL, MISSING, WHOLE, ControllerCluster, Found, error_of

FOUND = {"whole": WHOLE, "doubtful": DOUBTFUL, "missing": MISSING}
ATTEMPTS = 1_000
"""Topics are made until one has the replicas that a scenario wants: the controller draws their order."""


class ControllerWorld(World):
    """A controller, its log, and the brokers that call it."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster(0)

    def cluster(self, brokers: int = 3, *, voters: tuple[int, ...] = (1,), level: int | None = None) -> None:
        """So many brokers, all alive. `level`: of the cluster from now on."""
        self._cluster = ControllerCluster(voters=voters)
        self._cluster.start_all(brokers)
        if level is not None:
            self._cluster.upgrade(level)
        self._lives: dict[int, list[int]] = {}  # the broker epochs of each broker
        self._note_lives()
        self._seen = self.observed()

    def _note_lives(self) -> None:
        for broker in self._cluster.image.brokers.values():
            lives = self._lives.setdefault(broker.broker_id, [])
            if broker.broker_epoch not in lives:
                lives.append(broker.broker_epoch)

    def _former(self, broker_id: int) -> int:
        """The broker epoch of the life before."""
        lives = self._lives.get(broker_id, [])
        return lives[-2] if len(lives) > 1 else 1

    def _key(self, name: str) -> PartitionKey:
        topic, _, number = name.rpartition("-")
        if topic not in self._cluster.image.topic_ids:
            raise CommandError(f"there is no topic {topic!r}")
        return PartitionKey(self._cluster.image.topic_ids[topic], int(number))

    # -- topics

    def topic(self, name: str, *replicas: int, **configs: str) -> None:
        """A topic of one partition with these replicas, in this order. The first leads."""
        for _ in range(ATTEMPTS):
            key = self._cluster.created(name, 1, len(replicas), **configs)
            if self._cluster.state(key).replicas == replicas:
                return
            self._cluster.delete(name)
        raise CommandError(f"no topic has the replicas {replicas}")

    def create(
        self, name: str, partitions: int = 1, factor: int | None = None, *, validate: bool = False, **configs: str
    ) -> None:
        """Where the controller draws the replicas: the trace has no partitions of it."""
        result = self._cluster.create(name, partitions, factor, validate_only=validate, **configs)
        self.outcome(f"create {name}", error_of(result))

    def alter(self, name: str, partitions: int | None = None, *, unset: tuple[str, ...] = (), **configs: str) -> None:
        self.outcome(f"alter {name}", error_of(self._cluster.alter(name, partitions, unset, **configs)))

    def settings(self, name: str) -> None:
        """Those that a topic has of its own."""
        found = self._cluster.image.topic_config(self._cluster.image.topic_ids[name])
        self.note(f"settings of {name}: {', '.join(f'{key}={value}' for key, value in found.items())}")

    def delete(self, name: str) -> None:
        self.outcome(f"delete {name}", error_of(self._cluster.delete(name)))

    def internal(self, name: str) -> None:
        """A broker asks for an internal topic."""
        self.outcome(f"create {name}", error_of(self._cluster.create_internal(name)))

    # -- lives of brokers

    def register(
        self,
        broker_id: int,
        *,
        clean: str = "no",
        disk: int = 0,
        boot: str = "boot",
        cluster: str = "the-cluster",
        voters: tuple[int, ...] = (1,),
        damaged: tuple[str, ...] = (),
        found: tuple[str, ...] = (),
    ) -> None:
        """`clean`: with the mark of the `last` life, of one by its number, of `none` that ever was, or without one.
        `found`: of a copy, `t-0:doubtful`."""
        lives = self._lives.get(broker_id, [])
        marks = {"no": None, "none": 10_000, "last": lives[-1] if lives else None}
        mark = lives[int(clean) - 1] if clean.isdecimal() else marks[clean]
        answer = self._cluster.register(
            broker_id,
            clean=mark,
            disk=disk,
            boot=boot,
            cluster_id=cluster,
            voters=voters,
            damaged=[self._key(each) for each in damaged],
            found=dict(self._found(each) for each in found),
        )
        if (error := error_of(answer)) is not None:
            self.outcome(f"register {broker_id}", error)

    def _found(self, word: str) -> tuple[PartitionKey, Found]:
        name, _, finding = word.partition(":")
        return self._key(name), FOUND[finding]

    def start(
        self,
        broker_id: int,
        *,
        clean: str = "no",
        disk: int = 0,
        boot: str = "boot",
        damaged: tuple[str, ...] = (),
        found: tuple[str, ...] = (),
    ) -> None:
        """A broker registers, and is let in."""
        self.register(broker_id, clean=clean, disk=disk, boot=boot, damaged=damaged, found=found)
        self._cluster.heartbeat(broker_id)

    def restart(
        self,
        broker_id: int,
        *,
        clean: str = "no",
        boot: str = "boot",
        damaged: tuple[str, ...] = (),
        found: tuple[str, ...] = (),
    ) -> None:
        """A broker is killed or stopped, and starts again."""
        self.fence(broker_id)
        self.start(broker_id, clean=clean, boot=boot, damaged=damaged, found=found)

    def heartbeat(
        self,
        *brokers: int,
        stops: bool = False,
        former: bool = False,
        behind: bool = False,
        offline: tuple[str, ...] = (),
        damaged: tuple[str, ...] = (),
        full: bool = False,
        slow: bool = False,
        stalled: bool = False,
    ) -> None:
        """`former`: of the life before. `behind`: a broker that has replayed nothing. `stops`: it asks whether it may
        stop. `full`, `slow`, `stalled`: what it says of its disk."""
        for broker_id in brokers:
            known = self._cluster.image.brokers.get(broker_id)
            epoch = self._former(broker_id) if former else known.broker_epoch if known is not None else 1
            hurt = [self._key(each).to_wire() for each in damaged]
            request = peer_pb2.HeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=epoch,
                metadata_offset=0 if behind else self._cluster.image.end_offset,
                wants_stop=stops,
                offline_replicas=[*(self._key(each).to_wire() for each in offline), *hurt],
                damaged_replicas=hurt,
                no_space=full,
                disk_stalled=stalled,
                disk_is_slow=slow or stalled,
            )
            ticket = self._cluster.ticket()
            self._cluster.controller.heartbeat(ticket, request, self._cluster.now_ms)
            answer = self._cluster.answer(ticket, peer_pb2.HeartbeatResponse)
            if (error := error_of(answer)) is not None:
                self.outcome(f"heartbeat of {broker_id}", error)
            elif stops:
                self.note(f"broker {broker_id} {'may stop' if answer.should_stop else 'is not to stop yet'}")

    def breaks(self, broker_id: int, *, former: bool = False) -> None:
        """The stream of its heartbeats breaks."""
        epoch = self._former(broker_id) if former else self._cluster.epoch(broker_id)
        self._cluster.controller.heartbeat_stream_broken(broker_id, epoch, self._cluster.now_ms)

    def refuses(self, broker_id: int) -> None:
        """A broker refuses a connection: nobody is there."""
        epoch = self._cluster.epoch(broker_id)
        self._cluster.controller.broker_refused_connection(broker_id, epoch, self._cluster.now_ms)

    def fence(self, *brokers: int) -> None:
        """They are killed: their streams break, and they refuse connections."""
        for broker_id in brokers:
            self._cluster.fence(broker_id)
            self._cluster.effects = [each for each in self._cluster.effects if not isinstance(each, ProbeBroker)]

    # -- leaders and operators

    def propose(
        self,
        name: str,
        members: tuple[int, ...],
        *,
        by: int | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        former: tuple[int, ...] = (),
    ) -> None:
        """A leader proposes an ISR, from the current state but for what is given. `former`: members in the life
        before."""
        answer = self._cluster.propose(
            self._key(name),
            members,
            proposer=by,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            epochs={each: self._former(each) for each in former},
        )
        if (error := error_of(answer)) is not None:
            self.outcome(f"propose {name}", error)

    def reassign(self, name: str, replicas: tuple[int, ...], *, throttle: int = 0) -> None:
        """Other replicas for a partition; none: cancel."""
        error = error_of(self._cluster.reassign(self._key(name), replicas, throttle))
        if error is not None:
            self.outcome(f"reassign {name}", error)

    def elect(self, *names: str, partitions: tuple[int, ...] = ()) -> None:
        """The preferred leaders of topics, or of all."""
        for result in self._cluster.elect(*names, partitions=partitions):
            done = f"{result.leader_id} leads"
            self.outcome(f"elect {result.name}-{result.partition}", error_of(result), done)

    def _alter_broker(self, broker_id: int, change: admin_pb2.BrokerChange.ValueType, throttle: int = 0) -> None:
        ticket = self._cluster.ticket()
        request = admin_pb2.AlterBrokerRequest(broker_id=broker_id, change=change, throttle_bytes_per_second=throttle)
        self._cluster.controller.alter_broker(ticket, request, self._cluster.now_ms)
        error = error_of(self._cluster.answer(ticket, admin_pb2.AlterBrokerResponse))
        if error is not None:
            self.outcome(f"broker {broker_id}", error)

    def cordon(self, broker_id: int) -> None:
        self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_CORDON)

    def uncordon(self, broker_id: int) -> None:
        self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_UNCORDON)

    def decommission(self, broker_id: int, *, throttle: int = 0) -> None:
        self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_DECOMMISSION, throttle)

    def forget(self, broker_id: int) -> None:
        self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_FORGET)

    def replicas(self, broker_id: int) -> None:
        """How many partitions a broker has."""
        self.note(f"broker {broker_id} has {len(self._cluster.image.replicas_on(broker_id))} replicas")

    # -- time and controllers

    def advance(self, ms: float) -> None:
        """Time passes, and no broker is heard."""
        self._cluster.advance(ms)

    def beat(self, ms: float, *brokers: int) -> None:
        """Time passes, and these brokers are heard; all, where none is named."""
        end_ms = self._cluster.now_ms + ms
        while self._cluster.now_ms < end_ms:
            self._cluster.advance(min(300.0, end_ms - self._cluster.now_ms))
            for broker_id in brokers or self._cluster.image.brokers:
                self._cluster.heartbeat(broker_id)

    def stand_still(self, ms: float) -> None:
        """The process of the controller stands still, and has one tick then."""
        self._cluster.now_ms += ms
        self._cluster.controller.tick(self._cluster.now_ms, self._cluster.wall_ms)

    def fail_over(self) -> None:
        """Another controller, with what is committed."""
        self._cluster.fail_over()

    # -- what follows, and what is seen

    def settle_down(self) -> None:
        self._cluster.commit()
        self._note_lives()
        for effect in self._cluster.effects:
            match effect:
                case ProbeBroker(broker_id=broker_id, is_stopping=is_stopping):
                    self.note(f"asks whether {broker_id} is there" + (", which was to stop" if is_stopping else ""))
                case PartitionWaits():
                    self.note(f"{effect.topic_name} waits: {effect.reason}")
                case UncleanElection():
                    self.note(f"{effect.topic_name}: an unclean election")
        self._cluster.effects.clear()

    def observed(self) -> Mapping[str, str]:
        found = {}
        for broker in self._cluster.image.brokers.values():
            words = [word for word, holds in (("fenced", broker.fenced), ("stopping", broker.stopping)) if holds]
            cordon = self._cluster.image.cordons.get(broker.broker_id)
            if cordon is not None:
                throttle = f" at {cordon.throttle_bytes_per_second} bytes/s" if cordon.throttle_bytes_per_second else ""
                words.append(f"decommissioned{throttle}" if cordon.decommissioning else "cordoned")
            found[f"broker {broker.broker_id}"] = " ".join(words) or "alive"
        for key, state in self._cluster.image.partitions.items():
            topic = self._cluster.image.topics[key.topic_id]
            if topic.partition_count == 1 and not topic.internal:
                found[f"{state.topic_name}-{key.partition}"] = _partition(state)
        return found


def _partition(state: PartitionState) -> str:
    leader = "nobody leads" if state.leader_id == NO_LEADER else f"{state.leader_id} leads"
    words = [f"{leader} in {state.leader_epoch}.{state.partition_epoch}", f"isr {_ids(state.in_sync_replicas)}"]
    others = {
        "eligible": state.eligible_leaders,
        "damaged": state.damaged_replicas,
        "adding": state.adding_replicas,
        "removing": state.removing_replicas,
    }
    words += [f"{name} {_ids(ids)}" for name, ids in others.items() if ids]
    if state.throttle_bytes_per_second:
        words.append(f"{state.throttle_bytes_per_second} bytes/s")
    return ", ".join([*words, "of " + " ".join(map(str, state.replicas))])


def _ids(ids: tuple[int, ...]) -> str:
    return " ".join(map(str, sorted(ids)))
