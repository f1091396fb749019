"""What the judge of rights takes for allowed: against cases by hand, against the product's tables, and in time."""

from __future__ import annotations

import itertools
import random

import pytest

from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog_broker.security.access import check_rule
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.principal import USER, Principal
from minilog_broker.server.access.table import ROWS, OfPeers, OpenToAll
from tests.simulation.clients.probes import PROBES
from tests.simulation.clients.rights import HOSTS, rules_of
from tests.simulation.judge.rights_of_calls import NEEDS
from tests.simulation.judge.rules import Asker, Right, RulesOfTime, is_about

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
ANN = Asker("ann", "10.0.0.1")


def rule(
    permission: Permission = ALLOW,
    operation: Operation = Operation.READ,
    name: str = "t",
    pattern: Pattern = LITERAL,
    *,
    user: str = "ann",
    host: str = "*",
) -> AccessRule:
    return AccessRule(f"User:{user}", host, operation, ResourceKind.TOPIC, name, pattern, permission)


def right(operation: Operation = Operation.READ, name: str = "t") -> Right:
    return Right(operation, ResourceKind.TOPIC, name)


def allowed(*rules: AccessRule, asked: Right | None = None) -> bool:
    found = RulesOfTime()
    for offset, each in enumerate(rules):
        found.changed(offset, each, removed=False)
    return found.is_allowed_now(ANN, asked or right())


def test_every_call_that_rules_govern_is_judged_and_tried() -> None:
    governed = {path for path, row in ROWS.items() if not isinstance(row, OfPeers | OpenToAll)}
    assert NEEDS.keys() == governed
    streams = {
        "/minilog.v1.DataService/Produce",
        "/minilog.v1.DataService/Fetch",
        "/minilog.v1.GroupService/Member",
    }
    assert PROBES.keys() == governed - streams


def test_the_rules_of_the_menu_are_rules() -> None:
    for user in HOSTS:
        for each in rules_of(user):
            check_rule(each)


@pytest.mark.parametrize(
    ("rules", "asked", "is_allowed"),
    [
        ((), right(), False),
        ((rule(),), right(), True),
        ((rule(), rule(DENY)), right(), False),
        ((rule(), rule(DENY, Operation.WRITE)), right(), True),
        ((rule(), rule(DENY, host="10.0.0.2")), right(), True),
        ((rule(host="10.0.0.2"),), right(), False),
        ((rule(host="10.0.0.1"),), right(), True),
        ((rule(user="*"),), right(), True),
        ((rule(user="bob"),), right(), False),
        ((rule(name="*"),), right(), True),
        ((rule(),), right(name="tt"), False),
        ((rule(pattern=PREFIXED),), right(name="tt"), True),
        ((rule(pattern=PREFIXED), rule(DENY, name="tt")), right(name="tt"), False),
        ((rule(operation=Operation.ALL),), right(Operation.ALTER), True),
        ((rule(DENY, Operation.ALL), rule()), right(), False),
        ((rule(operation=Operation.WRITE),), right(Operation.DESCRIBE), True),
        ((rule(), rule(DENY)), right(Operation.DESCRIBE), True),
        ((rule(operation=Operation.DESCRIBE),), right(), False),
    ],
)
def test_rules_allow_the_listed_calls(rules: tuple[AccessRule, ...], asked: Right, is_allowed: bool) -> None:
    assert allowed(*rules, asked=asked) is is_allowed


def test_the_plain_list_and_the_tables_of_brokers_allow_the_same() -> None:
    chance = random.Random(22)
    names, hosts, users = ("a", "ab", "abc", "b", "*"), ("*", "10.0.0.1", "10.0.0.2"), ("ann", "bob", "*")
    operations = [Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS]
    compared = 0
    for _ in range(200):
        rules = [
            rule(
                chance.choice((ALLOW, ALLOW, DENY)),
                chance.choice(operations),
                name := chance.choice(names),
                chance.choice((LITERAL, PREFIXED)) if name != "*" else LITERAL,
                user=chance.choice(users),
                host=chance.choice(hosts),
            )
            for _ in range(chance.randrange(7))
        ]
        authorizer, found = Authorizer(rules, ()), RulesOfTime()
        for offset, each in enumerate(rules):
            found.changed(offset, each, removed=False)
        for user, host, operation, name in itertools.product(users[:2], hosts[1:], operations[1:], names[:4]):
            asked = right(operation, name)
            told = authorizer.is_allowed(Principal(USER, user), host, operation, ResourceKind.TOPIC, name)
            assert found.is_allowed_now(Asker(user, host), asked) is told, (rules, user, host, asked)
            compared += told
    assert compared > 500


def test_a_rule_may_be_gone_by_what_came_later_and_may_be_there_until_it_is_known_to_be_gone() -> None:
    rules = RulesOfTime()
    rules.changed(10, rule(), removed=False)
    rules.changed(20, rule(), removed=True)
    assert [rules.may_be_allowed(ANN, right(), below) for below in (0, 10, 11, 20, 21, 99)] == [True] * 4 + [False] * 2
    rules.changed(30, rule(), removed=False)
    assert rules.may_be_allowed(ANN, right(), 21)


def test_a_denial_is_certain_only_where_no_later_rule_takes_it_back() -> None:
    rules = RulesOfTime()
    rules.changed(10, rule(), removed=False)
    rules.changed(20, rule(DENY), removed=False)
    assert rules.may_be_allowed(ANN, right(), 20)
    assert not rules.may_be_allowed(ANN, right(), 21)
    rules.changed(30, rule(DENY), removed=True)
    assert rules.may_be_allowed(ANN, right(), 21)


def test_a_rule_is_about_its_own_kind_of_resource() -> None:
    assert not is_about(rule(), ANN, Right(Operation.READ, ResourceKind.GROUP, "t"))
