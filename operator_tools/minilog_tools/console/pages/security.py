"""Users, rules, and quotas, as far as the viewer may see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minilog_tools.console.pages.page import Page, Visit, piece_of


async def users(visit: Visit) -> Mapping[str, Any]:
    """The users, and the access rules."""
    all_users = await visit.view.look("users", lambda admin: admin.describe_users())
    rules = await visit.view.look("rules", lambda admin: admin.describe_access_rules())
    ordered = sorted(rules, key=lambda rule: rule.order)
    return {
        "users": all_users,
        "piece": piece_of(visit, ordered, lambda rule: f"{rule.principal} {rule.resource_kind.value} {rule.name}"),
        "every": len(rules),
    }


async def quotas(visit: Visit) -> Mapping[str, Any]:
    """All quotas."""
    all_quotas = await visit.view.look("quotas", lambda admin: admin.describe_quotas())
    ordered = sorted(all_quotas, key=lambda quota: (quota.entity, quota.key))
    return {"piece": piece_of(visit, ordered, lambda quota: f"{quota.entity} {quota.key}"), "every": len(all_quotas)}


PAGES = (
    Page("/users", "users.html", "Users", users),
    Page("/quotas", "quotas.html", "Quotas", quotas),
)
