"""Queues: what waits, what workers have, and what has died."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minilog_tools.console.forms import text_field
from minilog_tools.console.pages.page import Page, Visit, piece_of
from minilog_tools.console.queue_look import MOST_QUEUES

MOST_RANGES = 200


async def queues(visit: Visit) -> Mapping[str, Any]:
    """A list of all queues, and a look at the queues that one piece of it shows."""
    listings = await visit.view.look("queue list", lambda admin: admin.list_queues())
    piece = piece_of(visit, listings, lambda listing: listing.queue, MOST_QUEUES)
    looks = await visit.view.queues(tuple(listing.queue for listing in piece.items))
    return {"piece": piece.of(looks), "every": len(listings)}


async def queue(visit: Visit) -> Mapping[str, Any]:
    """One queue, with what is not settled over time."""
    name = text_field(visit.fields, "name", "the name of a queue")
    (look,) = await visit.view.queues((name,))
    if look.trouble is not None:
        raise look.trouble
    return {
        "look": look,
        "positions": piece_of(visit, look.positions, lambda position: f"{position.topic}-{position.partition}"),
        "ranges": look.ranges[:MOST_RANGES],
        "unsettled": visit.view.history.series(("queue", name)),
    }


PAGES = (
    Page("/queues", "queues.html", "Queues", queues),
    Page("/queue", "queue.html", "Queues", queue),
)
"""The pages: of each a function from a visit to the values of its template."""
