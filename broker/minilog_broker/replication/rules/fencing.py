"""Whether a leader may serve: the leader epoch that is asked of it, and its broker's session with the controller.

A leader cut off from the controller goes on: what it acknowledges is on every member of its ISR, and only they are
elected (V5). Under unclean.leader.election.enable another replica may lead as soon as the controller misses this
broker, so there it stops at the end of its session: counted on its own clock, from the sending of the last heartbeat
that was answered, for as long as the controller said (docs/spec/replication.md § A leader that is cut off).

    stopped, it                                                goes on with
    appends nothing, whatever the acks                         reading below the high watermark, which was committed
    answers what waits as unknown, and acknowledges nothing    sending its followers what they lack
    moves no high watermark, tells no end, deletes nothing     ISR proposals, which nobody hears

It serves again when a heartbeat is answered and all is replayed that was committed by then: the shell tells no longer
session before. Had another been elected meanwhile, it leads no more.
"""

from __future__ import annotations

from minilog.errors import FencedLeaderEpoch, LeaderNotAvailable, UnknownLeaderEpoch
from minilog_broker.replication.context import ReplicationContext
from minilog_broker.replication.partition_state import TopicConfig


def check_epoch(name: str, asked: int, leader_epoch: int) -> None:
    """Raises unless `asked` (-1: not known to whoever asks) is the leader epoch of the partition `name`."""
    if 0 <= asked < leader_epoch:
        raise FencedLeaderEpoch(f"{name}: leader epoch {asked} is over, it is {leader_epoch}: ask for metadata")
    if asked > leader_epoch:
        raise UnknownLeaderEpoch(f"{name}: leader epoch {asked} is not known here yet, {leader_epoch} is: retry")


def is_cut_off(context: ReplicationContext, config: TopicConfig, now_ms: float) -> bool:
    """Whether a leader has to stop until the controller is heard again."""
    return config.unclean_leader_election and now_ms >= context.session_ends_ms


def cut_off(context: ReplicationContext) -> str:
    """Why it stopped, and what would help."""
    return (
        f"broker {context.broker_id} has not heard the controller for a session, and with "
        f"unclean.leader.election.enable another may lead by now: ask other brokers who leads, and see that "
        f"broker {context.broker_id} reaches the voters"
    )


def check_session(name: str, context: ReplicationContext, config: TopicConfig, now_ms: float) -> None:
    """Raises LeaderNotAvailable while a leader is cut off, and has to stop."""
    if is_cut_off(context, config, now_ms):
        raise LeaderNotAvailable(f"{name}: {cut_off(context)}")
