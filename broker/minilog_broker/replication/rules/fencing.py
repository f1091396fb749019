"""The rules that decide whether a leader may serve: the leader epoch of a call, and the broker's controller session.

A leader that cannot reach the controller goes on serving. The records that it acknowledges are on every member of its
ISR, and the controller elects only those members (V5). Under unclean.leader.election.enable the controller may elect
another replica as soon as it misses this broker. So there the leader stops at the end of its session. The broker counts
the session on its own clock: from the sending of the last answered heartbeat, for the time that the controller gave
(docs/spec/replication.md § A leader that is cut off).

    a stopped leader does not                                  it goes on
    append, whatever the acks                                  serving reads below the high watermark: that is committed
    acknowledge: it answers waiting writes as unknown          sending its followers the records that they lack
    move the high watermark, answer ends, delete               sending ISR proposals, which do not arrive

It serves again when the controller has answered a heartbeat and the broker has replayed all metadata that was committed
by then. The shell does not prolong the session before that. If the controller elected another leader meanwhile, this
one has stopped leading by then.
"""

from __future__ import annotations

from minilog.errors import FencedLeaderEpoch, LeaderNotAvailable, UnknownLeaderEpoch
from minilog_broker.replication.context import ReplicationContext
from minilog_broker.replication.partition_state import TopicConfig


def check_epoch(name: str, epoch: int, leader_epoch: int) -> None:
    """Raises unless `epoch` is the leader epoch of the partition `name`, or -1, for a caller that does not know it."""
    if 0 <= epoch < leader_epoch:
        raise FencedLeaderEpoch(
            f"{name}: leader epoch {epoch} is over, and the current one is {leader_epoch}: ask for metadata"
        )
    if epoch > leader_epoch:
        raise UnknownLeaderEpoch(
            f"{name}: this broker knows leader epochs up to {leader_epoch}, and not yet {epoch}: retry"
        )


def is_cut_off(context: ReplicationContext, config: TopicConfig, now_ms: float) -> bool:
    """Whether a leader has to stop until the controller answers again."""
    return config.unclean_leader_election and now_ms >= context.session_ends_ms


def cut_off(context: ReplicationContext) -> str:
    """The reason why a leader stopped, with the remedy."""
    return (
        f"broker {context.broker_id} has not heard the controller for a session, and with "
        f"unclean.leader.election.enable another replica may lead by now: ask another broker for the leader, and "
        f"make sure that broker {context.broker_id} reaches the voters"
    )


def check_session(name: str, context: ReplicationContext, config: TopicConfig, now_ms: float) -> None:
    """Raises LeaderNotAvailable while a leader has to stop because it is cut off."""
    if is_cut_off(context, config, now_ms):
        raise LeaderNotAvailable(f"{name}: {cut_off(context)}")
