"""What the options of `minilog acl` say together, and what is read of a password's file."""

from __future__ import annotations

from dataclasses import replace

import pytest
import typer

from minilog.security.access_rules import AccessRule, AccessRuleFilter, Operation, Pattern, Permission, ResourceKind
from minilog_tools.cli.acl import ResourceOptions, RuleOptions, wanted_filters, wanted_rules
from minilog_tools.cli.quota import whole_number
from minilog_tools.cli.user import one_line

OF_TOPIC, OF_GROUP = ResourceOptions(topics=["flights"]), ResourceOptions(groups=["report"])
OF_BOTH = ResourceOptions(topics=["flights"], groups=["report"])
READ = RuleOptions(allowed=["User:alice"], operations=[Operation.READ], named=OF_TOPIC)
RULE = AccessRule("User:alice", "*", Operation.READ, ResourceKind.TOPIC, "flights", Pattern.LITERAL, Permission.ALLOW)


def test_each_principal_may_do_each_operation_on_each_resource_from_each_host() -> None:
    said = replace(READ, denied=["User:bob"], operations=[Operation.READ, Operation.DELETE], named=OF_BOTH)
    assert wanted_rules(READ) == [RULE]
    assert len(set(wanted_rules(replace(said, hosts=["::1", "10.0.0.1"])))) == 16


def test_a_consumer_reads_topics_and_groups() -> None:
    said = replace(READ, operations=None, named=OF_BOTH, prefixed=True, consumer=True)
    prefixed = replace(RULE, pattern=Pattern.PREFIXED)
    of_group = replace(prefixed, resource_kind=ResourceKind.GROUP, name="report")
    assert set(wanted_rules(said)) == {prefixed, replace(prefixed, operation=Operation.DESCRIBE), of_group}
    assert len(wanted_filters(said)) == 3


def test_a_producer_writes_and_creates_topics_and_writes_transactions() -> None:
    named = ResourceOptions(topics=["flights"], transactional_ids=["t"])
    said = replace(READ, operations=None, named=named, producer=True)
    found = {(each.resource_kind.value, each.operation.value) for each in wanted_rules(said)}
    assert found == {
        ("topic", "write"),
        ("topic", "describe"),
        ("topic", "create"),
        ("transactional-id", "write"),
        ("transactional-id", "describe"),
    }


@pytest.mark.parametrize(
    "said",
    [
        replace(READ, allowed=None),
        replace(READ, operations=None),
        replace(READ, named=ResourceOptions()),
        replace(READ, producer=True, named=OF_GROUP),
        replace(READ, consumer=True),
        replace(READ, consumer=True, named=OF_BOTH, denied=["User:a"]),
    ],
)
def test_a_rule_that_is_not_said_whole_is_wrong_usage(said: RuleOptions) -> None:
    with pytest.raises(typer.BadParameter):
        wanted_rules(said)


def test_a_removal_of_rules_needs_a_filter_and_absent_ones_match_anything() -> None:
    assert wanted_filters(RuleOptions(named=OF_TOPIC)) == [
        AccessRuleFilter(resource_kind=ResourceKind.TOPIC, name="flights", pattern=Pattern.LITERAL)
    ]
    assert wanted_filters(RuleOptions(denied=["User:a"])) == [
        AccessRuleFilter(principal="User:a", permission=Permission.DENY)
    ]
    with pytest.raises(typer.BadParameter, match="would delete all rules"):
        wanted_filters(RuleOptions())


@pytest.mark.parametrize("content", [b"secret", b"secret\n", b"secret\r\n"])
def test_a_password_is_one_line(content: bytes) -> None:
    assert one_line(content, "FILE") == "secret"


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\n", b"\xff", b"x" * 4_097])
def test_a_text_that_is_no_password_is_wrong_usage(content: bytes) -> None:
    with pytest.raises(typer.BadParameter, match="FILE"):
        one_line(content, "FILE")


def test_a_quota_is_a_whole_number() -> None:
    assert whole_number("connections", "12") == 12
    for wrong in ("-1", "1.5", "", "²", "9" * 19):
        with pytest.raises(typer.BadParameter):
            whole_number("connections", wrong)
