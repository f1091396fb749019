"""Groups, among them Spark queries that commit their offsets as a group, and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minilog_tools.console.cluster_view import MOST_GROUPS
from minilog_tools.console.forms import text_field
from minilog_tools.console.pages.page import Page, Visit, piece_of


async def groups(visit: Visit) -> Mapping[str, Any]:
    """A list of all groups, and a look at the groups that one piece of it shows."""
    listings = await visit.view.look("group list", lambda admin: admin.list_groups())
    piece = piece_of(visit, listings, lambda listing: listing.group_id, MOST_GROUPS)
    looks = await visit.view.groups(tuple(listing.group_id for listing in piece.items))
    return {"piece": piece.of(looks), "every": len(listings)}


async def group(visit: Visit) -> Mapping[str, Any]:
    """One group, with its lag over time."""
    group_id = text_field(visit.fields, "id", "the id of a group")
    (look,) = await visit.view.groups((group_id,))
    if look.trouble is not None:
        raise look.trouble
    assert look.description is not None
    return {
        "look": look,
        "offsets": piece_of(visit, look.description.offsets, lambda offset: f"{offset.topic}-{offset.partition}"),
        "lag": visit.view.history.series(("group", group_id)),
        "lag_seconds": visit.view.history.series(("group seconds", group_id)),
    }


async def transactions(visit: Visit) -> Mapping[str, Any]:
    """A list, the open ones first."""
    listings = await visit.view.look("transactions", lambda admin: admin.list_transactions())
    order = {"open": 0, "ending": 1}
    ordered = sorted(listings, key=lambda listing: (order.get(listing.state, 2), listing.transactional_id))
    return {"piece": piece_of(visit, ordered, lambda listing: listing.transactional_id), "every": len(listings)}


async def transaction(visit: Visit) -> Mapping[str, Any]:
    """One transactional id."""
    name = text_field(visit.fields, "id", "a transactional id")
    description = await visit.view.look(("transaction", name), lambda admin: admin.describe_transaction(name))
    return {"transaction": description}


PAGES = (
    Page("/groups", "groups.html", "Groups", groups),
    Page("/group", "group.html", "Groups", group),
    Page("/transactions", "transactions.html", "Transactions", transactions),
    Page("/transaction", "transaction.html", "Transactions", transaction),
)
