"""Logins of `minilog console` before brokers that have users: a viewer has the rights of its own user, while they
accept this user."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from minilog import Admin, NewTopic
from minilog.admin.security import QuotaAlteration, UserDeletion, UserUpsertion
from minilog.security.access_rules import AccessRuleFilter, Operation
from tests.console.visiting import RunningConsole, Visitor, running_console
from tests.integration.moving import wait_until
from tests.integration.users import PASSWORD, rule
from tests.pool import SECURED, shared_cluster
from tests.rules import proves
from tests.secured import SecuredCluster

shared = shared_cluster(SECURED)


@pytest.fixture(scope="module")
def secured(shared: SecuredCluster) -> SecuredCluster:
    with Admin(shared.client) as admin:
        admin.create_topics([NewTopic(name, num_partitions=1) for name in ("open", "unseen-topic")])
        admin.alter_quotas([QuotaAlteration("User:alice", "connections", 50)])
    return shared


@pytest.fixture(scope="module")
def closed(secured: SecuredCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    arguments = ("--command-config", str(secured.security.client_properties), "-b", secured.bootstrap_servers)
    with running_console(tmp_path_factory.mktemp("closed"), *arguments, "--actions") as running:
        yield running


def viewer(secured: SecuredCluster, closed: RunningConsole, name: str, *operations: Operation) -> Visitor:
    """A visitor after its login, with rights for these operations on the topic `open`."""
    with Admin(secured.client) as admin:
        admin.alter_users([UserUpsertion(name, PASSWORD, iterations=4_096)])
        admin.create_access_rules([rule(name, operation) for operation in operations])
    visitor = Visitor(closed.port)
    wait_until(lambda: visitor.log_in(name, PASSWORD).status == 303)
    return visitor


def test_a_wrong_password_is_refused_and_the_next_attempt_waits(closed: RunningConsole) -> None:
    stranger = Visitor(closed.port)
    assert stranger.log_in("admin", "wrong").status == 403
    assert stranger.log_in("admin", "wrong").status == 429
    assert stranger.get("/").status == 303
    time.sleep(1.2)


def test_a_viewer_sees_what_its_rules_allow(secured: SecuredCluster, closed: RunningConsole) -> None:
    alice = viewer(secured, closed, "alice", Operation.DESCRIBE)
    topics = alice.get("/topics").text
    assert ">open<" in topics
    assert "unseen-topic" not in topics
    assert alice.get("/topic?name=unseen-topic").status in (403, 404)
    assert alice.get("/users").status == 403
    refused = alice.send("/trim", {"topic": "open", "partition": "0", "to": "0", "sure": "yes"})
    assert refused.status == 403
    assert "minilog acl add" in refused.text


@pytest.mark.dear("it waits for the end of a session")
@proves("CON.2")
def test_a_session_loses_the_rights_that_its_user_loses_and_ends_with_its_user(
    secured: SecuredCluster, closed: RunningConsole
) -> None:
    bob = viewer(secured, closed, "bob", Operation.READ)
    carol = viewer(secured, closed, "carol", Operation.READ)
    assert bob.get("/topic?name=open").status == carol.get("/topic?name=open").status == 200
    with Admin(secured.client) as admin:
        admin.delete_access_rules([AccessRuleFilter(principal="User:bob")])
        admin.alter_users([UserDeletion("carol")])
    wait_until(lambda: bob.get("/topic?name=open").status in (403, 404))
    assert ">open<" not in bob.get("/topics").text
    wait_until(lambda: carol.get("/topics").status == 303)
    assert carol.get("/topics", {"x-minilog-part": "1"}).status == 401
    assert carol.log_in("carol", PASSWORD).status in (403, 429)
    time.sleep(2.5)


def test_a_delegation_token_lets_its_owner_in_and_a_logout_ends_it(
    secured: SecuredCluster, closed: RunningConsole
) -> None:
    with Admin(secured.client) as admin:
        token = admin.create_delegation_token()
    visitor = Visitor(closed.port)
    before = dict(visitor.cookies)
    page = visitor.log_in(token.information.token_id, token.hmac.reveal(), "token", "/users")
    assert (page.status, page.headers["location"]) == (303, "/users")
    assert visitor.cookies != before, "a login has a session of its own"
    assert "alice" in visitor.get("/users").text
    assert "connections" in visitor.get("/quotas").text
    cookies = dict(visitor.cookies)
    assert visitor.send("/logout", {}).status == 303
    visitor.cookies = cookies
    assert visitor.get("/users").status == 303
