"""What consumers were sent, by session and partition: one who asks for it again may have got it damaged.

Nothing else tells a leader that its own copy has rotted where every follower has the batch already: what is sent is not
looked at again (one checksum per batch read would cost more than the disk), so a reader's coming back is the sign.
"""

from __future__ import annotations

from minilog.v1 import data_pb2
from minilog_broker.replication.session import Audience, Session, SubscriptionState
from minilog_broker.replication.state import PartitionKey

REMEMBERED = 1_000  # partitions per session: who asks again does it soon


class SentEnds:
    """See the module's text."""

    def __init__(self) -> None:
        self._ends: dict[int, dict[PartitionKey, int]] = {}

    def note(self, session: Session, key: PartitionKey) -> None:
        """Remember how far the partition was sent: its position is about to change, or to be forgotten."""
        found = session.subscriptions.get(key)
        if session.audience is not Audience.CONSUMER or found is None or found.state is not SubscriptionState.SENDING:
            return
        ends = self._ends.setdefault(session.session_id, {})
        ends.pop(key, None)
        ends[key] = found.next_offset
        if len(ends) > REMEMBERED:
            del ends[next(iter(ends))]

    def asked_again_up_to(self, session: Session, key: PartitionKey, position: data_pb2.FetchPosition) -> int | None:
        """The end of what a consumer was sent already and wants again; None: nothing. Before the position is taken."""
        self.note(session, key)
        sent_end = self._ends.get(session.session_id, {}).get(key, -1)
        return sent_end if position.fetch_offset < sent_end else None

    def close(self, session_id: int) -> None:
        """The session is gone."""
        self._ends.pop(session_id, None)
