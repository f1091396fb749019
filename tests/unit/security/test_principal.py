"""Principals are written as Kafka writes them."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidPrincipal
from minilog_broker.security.principal import ANONYMOUS, Principal, user_of


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("User:alice", Principal("User", "alice")),
        ("User:CN=alice,O=ours:1", Principal("User", "CN=alice,O=ours:1")),
        ("Broker:the-cluster:1", Principal("Broker", "the-cluster:1")),
        ("User:ANONYMOUS", ANONYMOUS),
    ],
)
def test_written_principals_are_read(text: str, principal: Principal) -> None:
    assert Principal.parse(text) == principal
    assert str(principal) == text


@pytest.mark.parametrize(
    "text", ["", "alice", "user:alice", "Group:g", "User:", "User: a", "User:a\nb", "User:" + "x" * 256]
)
def test_texts_that_name_no_principal_are_refused(text: str) -> None:
    with pytest.raises(InvalidPrincipal):
        Principal.parse(text)


def test_rules_and_quotas_are_of_users() -> None:
    assert user_of("User:*").name == "*"
    with pytest.raises(InvalidPrincipal, match="is not a user"):
        user_of("Broker:c:1")
