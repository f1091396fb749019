"""Addresses as people type them: HOST:PORT, and what a host must not be."""

from __future__ import annotations

import ipaddress

from minilog.config import Address
from minilog.errors import InvalidConfig


def parse_address(text: str) -> Address:
    """`HOST:PORT` (an IPv6 host in brackets) as its two parts; ValueError where it is not one."""
    host, separator, port = text.strip().rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port from 1 to 65535")
    return host, int(port)


def address_text(address: Address) -> str:
    """As it is typed."""
    return f"{address[0]}:{address[1]}"


def check_advertised(what: str, host: str, remedy: str) -> None:
    """Others connect to what is advertised, which must name this machine to them: every address of it (0.0.0.0, [::])
    names theirs. `what`: the option or setting that the host stands in; `remedy`: the one to say instead. Raises
    InvalidConfig."""
    try:
        unspecified = ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return  # a name
    if unspecified:
        raise InvalidConfig(
            f"{what} {host} cannot be advertised: nobody can connect to it from elsewhere; say --set {remedy} with the "
            "address that others reach this broker by"
        )


def check_plaintext(option: str, host: str, port: int, *, insecure: bool) -> None:
    """Plaintext is for loopback: elsewhere others read along. Raises InvalidConfig unless that is said to be meant."""
    name = host.strip("[]")
    try:
        is_loopback = ipaddress.ip_address(name).is_loopback
    except ValueError:
        is_loopback = name == "localhost"
    if not is_loopback and not insecure:
        raise InvalidConfig(
            f"{option} {host}:{port} would be plaintext on an address that others reach: listen on 127.0.0.1, turn "
            "security on (docs/security.md), or say --insecure where the network is trusted"
        )
