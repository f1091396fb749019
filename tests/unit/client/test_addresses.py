"""Brackets of an IPv6 address belong to the text alone."""

from __future__ import annotations

import pytest

from minilog.addresses import address_text, parse_address
from minilog.config import parse_config
from minilog.errors import InvalidConfig
from minilog_broker.server.listener_texts import parse_named


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("broker-1.example:9092", ("broker-1.example", 9092)),
        ("[::1]:9092", ("::1", 9092)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
    ],
)
def test_an_address_is_read_without_brackets_and_written_with_them(text: str, address: tuple[str, int]) -> None:
    assert parse_address(f" {text} ") == address
    assert address_text(address) == text


@pytest.mark.parametrize("text", ["9092", "host:", ":9092", "host:0", "host:65536", "host:x", "", "[]:1", "[::1:1"])
def test_an_address_needs_host_and_port(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets"):
        parse_address(text)


def test_an_ipv6_address_without_brackets_is_refused_with_the_right_text() -> None:
    with pytest.raises(ValueError, match=r"without brackets: write \[2001:db8::1\]:9092"):
        parse_address("2001:db8::1:9092")
    with pytest.raises(InvalidConfig, match=r"is not possible: .*write \[::1\]:2"):
        parse_config({"bootstrap.servers": "a:1,::1:2"})


def test_a_named_listener_has_a_host_without_brackets() -> None:
    assert parse_named("INSIDE://[::1]:9094") == (("inside", ("::1", 9094)),)
