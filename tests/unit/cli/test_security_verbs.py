"""What the options of `minilog acl` say together, and what is read of a password's file."""

from __future__ import annotations

from dataclasses import replace

import pytest
import typer

from minilog.security.access_rules import AccessRule, AccessRuleFilter, Operation, Pattern, Permission, ResourceKind
from minilog_tools.cli.acl import RuleOptions, wanted_filters, wanted_rules
from minilog_tools.cli.quota import whole_number
from minilog_tools.cli.user import one_line

TOPIC, GROUP = (ResourceKind.TOPIC, "flights"), (ResourceKind.GROUP, "report")
READ = RuleOptions(
    principals=(("User:alice", Permission.ALLOW),),
    operations=(Operation.READ,),
    resources=(TOPIC,),
    pattern=Pattern.LITERAL,
    hosts=(),
    producer=False,
    consumer=False,
)
RULE = AccessRule("User:alice", "*", Operation.READ, *TOPIC, Pattern.LITERAL, Permission.ALLOW)
NOTHING = replace(READ, principals=(), operations=(), resources=())


def test_each_principal_may_do_each_operation_on_each_resource_from_each_host() -> None:
    both = (("User:alice", Permission.ALLOW), ("User:bob", Permission.DENY))
    said = replace(READ, principals=both, operations=(Operation.READ, Operation.DELETE), resources=(TOPIC, GROUP))
    assert wanted_rules(READ) == [RULE]
    assert len(set(wanted_rules(replace(said, hosts=("::1", "10.0.0.1"))))) == 16


def test_a_consumer_reads_topics_and_groups() -> None:
    said = replace(READ, operations=(), resources=(TOPIC, GROUP), pattern=Pattern.PREFIXED, consumer=True)
    prefixed = replace(RULE, pattern=Pattern.PREFIXED)
    of_group = replace(prefixed, resource_kind=ResourceKind.GROUP, name="report")
    assert set(wanted_rules(said)) == {prefixed, replace(prefixed, operation=Operation.DESCRIBE), of_group}
    assert len(wanted_filters(said)) == 3


def test_a_producer_writes_and_creates_topics_and_writes_transactions() -> None:
    said = replace(READ, operations=(), resources=(TOPIC, (ResourceKind.TRANSACTIONAL_ID, "t")), producer=True)
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
        replace(READ, principals=()),
        replace(READ, operations=()),
        replace(READ, resources=()),
        replace(READ, producer=True, resources=(GROUP,)),
        replace(READ, consumer=True),
        replace(READ, consumer=True, resources=(TOPIC, GROUP), principals=(("User:a", Permission.DENY),)),
    ],
)
def test_a_rule_that_is_not_said_whole_is_wrong_usage(said: RuleOptions) -> None:
    with pytest.raises(typer.BadParameter):
        wanted_rules(said)


def test_what_is_not_said_of_rules_to_remove_is_anything_and_nothing_said_is_wrong_usage() -> None:
    assert wanted_filters(replace(NOTHING, resources=(TOPIC,))) == [
        AccessRuleFilter(resource_kind=ResourceKind.TOPIC, name="flights", pattern=Pattern.LITERAL)
    ]
    assert wanted_filters(replace(NOTHING, principals=(("User:a", Permission.DENY),))) == [
        AccessRuleFilter(principal="User:a", permission=Permission.DENY)
    ]
    with pytest.raises(typer.BadParameter, match="would delete all rules"):
        wanted_filters(NOTHING)


@pytest.mark.parametrize("content", [b"secret", b"secret\n", b"secret\r\n"])
def test_a_password_is_one_line(content: bytes) -> None:
    assert one_line(content, "FILE") == "secret"


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\n", b"\xff", b"x" * 4_097])
def test_what_is_no_password_is_wrong_usage(content: bytes) -> None:
    with pytest.raises(typer.BadParameter, match="FILE"):
        one_line(content, "FILE")


def test_a_quota_is_a_whole_number() -> None:
    assert whole_number("connections", "12") == 12
    for wrong in ("-1", "1.5", "", "²", "9" * 19):
        with pytest.raises(typer.BadParameter):
            whole_number("connections", wrong)
