"""Addresses in the form that people type, and in the form of sockets. Pure.

    text       HOST:PORT, an IPv6 host in brackets: [::1]:9092
    Address    (host, port): the host without brackets

Only the text has brackets. Code that reads an address takes them off, and code that writes one puts them on. An IPv6
address without brackets is refused, because its last group and its port could not be separated.
"""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]


def parse_address(text: str) -> Address:
    """The address in a text. Raises ValueError, with a sentence, if the text is not HOST:PORT."""
    host, separator, port = text.strip().rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port from 1 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} has an IPv6 address without brackets: write [{host}]:{port}")
    if not host or "[" in host or "]" in host:
        raise ValueError(f"{text!r} is not HOST:PORT: brackets are for an IPv6 address, such as [::1]:9092")
    return host, int(port)


def address_text(address: Address) -> str:
    """The address in the form that people type."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host: a name without its port, or an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The host of HTTP's header Host, without its port and without brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
