"""Circles of dead-letter topics, which are refused where they are set: a letter would be a message again, and die
again, without an end. Pure.

The coordinator knows its own queues. A circle through a queue of another coordinator is not found here, and neither is
one through a topic that does not exist yet. A worker that leases from the dead-letter topic itself carries no letter.
"""

from __future__ import annotations

from minilog.errors import InvalidConfig
from minilog_broker.coordinators.queues.records import Queue
from minilog_broker.coordinators.queues.settings import DEAD_LETTER_TOPIC
from minilog_broker.coordinators.queues.view import QueueView


def check_no_circle(view: QueueView, name: str, queue: Queue) -> None:
    """`queue`: as it would be. Raises InvalidConfig where its letters come back to one of its topics."""
    first = _dead_letters_to(view, queue)
    if first is None:
        return
    others = [view.queue(other) for other in view.names() if other != name]
    ways = [(other.topics, target) for other in others if (target := _dead_letters_to(view, other)) is not None]
    reached, waiting = {first}, [first]
    while waiting:
        topic_id = waiting.pop()
        if topic_id in queue.topics:
            own, letters = topic_id == first, queue.settings[DEAD_LETTER_TOPIC]
            how = "which is a topic of this queue" if own else "and other queues would carry its letters back here"
            raise InvalidConfig(
                f"queue '{name}' would have the dead-letter topic '{letters}', {how}: each letter would be a message "
                f"again, without an end. Set {DEAD_LETTER_TOPIC} to a topic that no such queue reads, or subscribe to "
                "other topics"
            )
        for topics, target in ways:
            if topic_id in topics and target not in reached:
                reached.add(target)
                waiting.append(target)


def _dead_letters_to(view: QueueView, queue: Queue) -> bytes | None:
    topic = queue.settings.get(DEAD_LETTER_TOPIC, "")
    return view.topic_id(topic) if topic else None
