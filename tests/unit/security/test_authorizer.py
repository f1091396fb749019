"""Access rules: each sentence of the authorizer's text, and a reference that looks at every rule."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog_broker.security.access import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.principal import ANONYMOUS, BROKER, USER, Principal

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
BROKER_1 = Principal(BROKER, "cluster:1")
HOST, OTHER_HOST = "10.0.0.1", "10.0.0.2"
TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def rule(
    name: str,
    operation: Operation = READ,
    permission: Permission = Permission.ALLOW,
    *,
    principal: str = "User:alice",
    host: str = "*",
    kind: ResourceKind = TOPIC,
    pattern: Pattern = Pattern.LITERAL,
) -> AccessRule:
    return AccessRule(principal, host, operation, kind, name, pattern, permission)


def prefixed(name: str, permission: Permission = Permission.ALLOW) -> AccessRule:
    return rule(name, READ, permission, pattern=Pattern.PREFIXED)


def denied(name: str, operation: Operation = READ) -> AccessRule:
    return rule(name, operation, Permission.DENY)


def reads(authorizer: Authorizer, name: str, principal: Principal = ALICE, host: str = HOST) -> bool:
    return authorizer.is_allowed(principal, host, READ, TOPIC, name)


def test_without_a_rule_everything_is_denied() -> None:
    nothing = Authorizer([], [])
    asked = list(itertools.product((ALICE, ANONYMOUS), Operation, ResourceKind))
    assert not any(nothing.is_allowed(who, HOST, operation, kind, "x") for who, operation, kind in asked)
    assert not any(nothing.is_allowed_any(who, HOST, operation, kind) for who, operation, kind in asked)


def test_a_literal_rule_is_for_its_name_operation_kind_and_principal_alone() -> None:
    authorizer = Authorizer([rule("flights")], [])
    assert reads(authorizer, "flights")
    assert not reads(authorizer, "flights2")
    assert not reads(authorizer, "flight")
    assert not reads(authorizer, "flights", BOB)
    assert not reads(authorizer, "flights", ANONYMOUS)
    assert not authorizer.is_allowed(ALICE, HOST, WRITE, TOPIC, "flights")
    assert not authorizer.is_allowed(ALICE, HOST, READ, GROUP, "flights")


def test_the_name_star_is_every_name() -> None:
    authorizer = Authorizer([rule("*")], [])
    assert reads(authorizer, "flights")
    assert reads(authorizer, "*")


def test_a_prefix_is_for_what_begins_with_it() -> None:
    authorizer = Authorizer([prefixed("team-a-"), prefixed("team-"), prefixed("x")], [])
    for name in ("team-", "team-a-", "team-a-1", "team-b", "x", "xyz"):
        assert reads(authorizer, name)
    for name in ("team", "t", "", "w", "y", "Team-a"):
        assert not reads(authorizer, name)


def test_a_prefix_that_is_a_star_is_a_letter() -> None:
    authorizer = Authorizer([prefixed("*")], [])
    assert reads(authorizer, "*x")
    assert not reads(authorizer, "x")


@pytest.mark.parametrize("against", [denied("flights"), denied("*"), prefixed("fl", Permission.DENY)])
@pytest.mark.parametrize("for_it", [rule("flights"), rule("*"), prefixed("fli"), rule("*", Operation.ALL)])
def test_a_rule_that_denies_wins(against: AccessRule, for_it: AccessRule) -> None:
    for rules in ([against, for_it], [for_it, against]):
        assert not reads(Authorizer(rules, []), "flights")


def test_a_denial_to_everybody_wins_over_an_allowance() -> None:
    everybody = rule("flights", READ, Permission.DENY, principal="User:*")
    assert not reads(Authorizer([rule("flights"), everybody], []), "flights")


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_an_allowance_implies_describe(operation: Operation) -> None:
    authorizer = Authorizer([rule("flights", operation)], [])
    assert authorizer.is_allowed(ALICE, HOST, DESCRIBE, TOPIC, "flights")
    assert not authorizer.is_allowed(ALICE, HOST, Operation.DESCRIBE_CONFIGS, TOPIC, "flights")


def test_alter_configs_implies_describe_configs_and_not_describe() -> None:
    authorizer = Authorizer([rule("flights", Operation.ALTER_CONFIGS)], [])
    assert authorizer.is_allowed(ALICE, HOST, Operation.DESCRIBE_CONFIGS, TOPIC, "flights")
    assert not authorizer.is_allowed(ALICE, HOST, DESCRIBE, TOPIC, "flights")


def test_a_denial_implies_nothing() -> None:
    authorizer = Authorizer([rule("flights", DESCRIBE), denied("flights", READ)], [])
    assert authorizer.is_allowed(ALICE, HOST, DESCRIBE, TOPIC, "flights")
    describe_denied = Authorizer([rule("flights", READ), denied("flights", DESCRIBE)], [])
    assert reads(describe_denied, "flights")
    assert not describe_denied.is_allowed(ALICE, HOST, DESCRIBE, TOPIC, "flights")


@pytest.mark.parametrize("operation", [each for each in Operation if each not in (READ, DESCRIBE)])
def test_read_implies_nothing_else(operation: Operation) -> None:
    assert not Authorizer([rule("x", READ)], []).is_allowed(ALICE, HOST, operation, TOPIC, "x")


@pytest.mark.parametrize("operation", Operation)
def test_all_is_each_operation(operation: Operation) -> None:
    assert Authorizer([rule("x", Operation.ALL)], []).is_allowed(ALICE, HOST, operation, TOPIC, "x")
    both = [rule("x", operation), denied("x", Operation.ALL)]
    assert not Authorizer(both, []).is_allowed(ALICE, HOST, operation, TOPIC, "x")


def test_hosts_are_compared_letter_by_letter() -> None:
    authorizer = Authorizer([rule("x", host=HOST)], [])
    assert reads(authorizer, "x", host=HOST)
    assert not reads(authorizer, "x", host=OTHER_HOST)
    assert not reads(authorizer, "x", host="10.0.0.10")
    both = Authorizer([rule("x"), rule("x", READ, Permission.DENY, host=HOST)], [])
    assert not reads(both, "x", host=HOST)
    assert reads(both, "x", host=OTHER_HOST)


def test_everybody_is_every_user_and_who_is_not_known() -> None:
    authorizer = Authorizer([rule("x", principal="User:*")], [])
    assert all(reads(authorizer, "x", who) for who in (ALICE, BOB, ANONYMOUS))
    assert not reads(authorizer, "x", BROKER_1)


def test_a_super_user_may_do_everything() -> None:
    authorizer = Authorizer([denied("*", Operation.ALL)], ["User:alice"])
    for operation, kind in itertools.product(Operation, ResourceKind):
        assert authorizer.is_allowed(ALICE, HOST, operation, kind, "x")
        assert authorizer.is_allowed_any(ALICE, HOST, operation, kind)
    assert not reads(authorizer, "x", BOB)
    assert not reads(authorizer, "x", Principal(USER, "Alice"))
    assert not reads(authorizer, "x", Principal(BROKER, "alice"))


@pytest.mark.parametrize("wrong", ["User:*", "User:", "alice", "", "Broker:c:1", "user:alice"])
def test_a_super_user_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="not one user"):
        Authorizer([], [wrong])


def test_a_broker_may_do_cluster_action_and_nothing_of_a_clients() -> None:
    everything = [
        rule("*", Operation.ALL, principal=who, kind=kind)
        for who in ("User:*", "Broker:cluster:1", "Broker:*")
        for kind in ResourceKind
    ]
    for authorizer in (Authorizer([], []), Authorizer(everything, [])):
        for operation, kind in itertools.product(Operation, ResourceKind):
            expected = (operation, kind) == (Operation.CLUSTER_ACTION, CLUSTER)
            assert authorizer.is_allowed(BROKER_1, HOST, operation, kind, "x") == expected
            assert authorizer.is_allowed_any(BROKER_1, HOST, operation, kind) == expected


def test_a_principal_of_a_kind_that_nobody_knows_may_do_nothing() -> None:
    authorizer = Authorizer([rule("*", Operation.ALL, principal=who) for who in ("User:*", "Robot:r")], [])
    assert not reads(authorizer, "x", Principal("Robot", "r"))


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([rule("x")], True),
        ([rule("x"), denied("x")], False),
        ([rule("x"), denied("y")], True),
        ([rule("x"), prefixed("", Permission.DENY)], False),
        ([rule("*"), prefixed("x", Permission.DENY)], True),
        ([rule("*"), denied("*")], False),
        ([rule("*"), prefixed("", Permission.DENY)], False),
        ([prefixed("ab"), prefixed("a", Permission.DENY)], False),
        ([prefixed("a"), prefixed("ab", Permission.DENY), denied("a")], True),
        ([rule("x", host=OTHER_HOST)], False),
        ([rule("x", WRITE)], False),
        ([denied("x")], False),
    ],
)
def test_any_name_is_allowed_where_one_is_left(rules: list[AccessRule], expected: bool) -> None:
    assert Authorizer(rules, []).is_allowed_any(ALICE, HOST, READ, TOPIC) == expected


IMPLIES = {
    READ: {DESCRIBE},
    WRITE: {DESCRIBE},
    Operation.DELETE: {DESCRIBE},
    Operation.ALTER: {DESCRIBE},
    Operation.ALTER_CONFIGS: {Operation.DESCRIBE_CONFIGS},
}


class Reference:
    """Every rule is looked at, as the sentences say."""

    def __init__(self, rules: list[AccessRule]) -> None:
        self._rules = rules

    def is_allowed(self, principal: str, host: str, operation: Operation, name: str) -> bool:
        found = [each for each in self._rules if self._fits(each, principal, host, name)]
        if any(each.permission is Permission.DENY and each.operation in (operation, Operation.ALL) for each in found):
            return False
        return any(
            each.permission is Permission.ALLOW
            and (each.operation in (operation, Operation.ALL) or operation in IMPLIES.get(each.operation, ()))
            for each in found
        )

    def _fits(self, each: AccessRule, principal: str, host: str, name: str) -> bool:
        names_fit = name.startswith(each.name) if each.pattern is Pattern.PREFIXED else each.name in (name, "*")
        return each.principal in (principal, "User:*") and each.host in (host, "*") and names_fit


NAMES = ["a", "b", "aa", "ab", "ba", "*", "\U0010ffff", "a\U0010ffff"]
RULES = st.builds(
    AccessRule,
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from([HOST, OTHER_HOST, "*"]),
    st.sampled_from(Operation),
    st.just(TOPIC),
    st.sampled_from(NAMES),
    st.sampled_from(Pattern),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
ASKED = ["".join(each) for length in range(1, 4) for each in itertools.product("abc", repeat=length)]
ASKED += ["*", "**", "\U0010ffff", "a\U0010ffff", "\U0010ffffc", "a\U0010ffffc", "*c", "z"]


@settings(max_examples=300, deadline=None)
@given(st.lists(RULES, max_size=12), st.sampled_from([ALICE, BOB, ANONYMOUS]), st.sampled_from(Operation))
def test_tables_decide_as_a_look_at_every_rule(rules: list[AccessRule], who: Principal, operation: Operation) -> None:
    authorizer, reference = Authorizer(rules, []), Reference(rules)
    expected = {name: reference.is_allowed(str(who), HOST, operation, name) for name in ASKED}
    assert {name: authorizer.is_allowed(who, HOST, operation, TOPIC, name) for name in ASKED} == expected
    assert authorizer.is_allowed_any(who, HOST, operation, TOPIC) == any(expected.values())


def test_ten_thousand_rules_cost_no_more_than_ten() -> None:
    """By the ratio: a look at every rule would cost a thousand times as much."""

    def fastest_s(count: int) -> float:
        names = [f"team-{number}" for number in range(count)]
        authorizer = Authorizer([each for name in names for each in (rule(name), prefixed(name + "-"))], [])
        took = []
        for _ in range(5):
            begun = time.perf_counter()
            for _ in range(500):
                authorizer.is_allowed(ALICE, HOST, READ, TOPIC, "team-4-x")
            took.append(time.perf_counter() - begun)
        return min(took)

    assert fastest_s(5_000) < 20 * fastest_s(5)
