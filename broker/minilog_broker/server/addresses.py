"""What the host of an address must not be, where a broker listens or is advertised."""

from __future__ import annotations

import ipaddress

from minilog.addresses import address_text
from minilog.errors import InvalidConfig


def check_advertised(what: str, host: str, remedy: str) -> None:
    """Others connect to what is advertised, which must name this machine to them: every address of it (0.0.0.0, [::])
    names theirs. `what`: the option or setting that the host stands in; `remedy`: the one to say instead. Raises
    InvalidConfig."""
    try:
        unspecified = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return  # a name
    if unspecified:
        raise InvalidConfig(
            f"{what} {f'[{host}]' if ':' in host else host} cannot be advertised: nobody can connect to it from "
            f"elsewhere: give --set {remedy} with the address that others reach this broker by"
        )


def check_plaintext(option: str, host: str, port: int, *, insecure: bool) -> None:
    """Plaintext is for loopback: elsewhere others read along. Raises InvalidConfig unless that is said to be meant."""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not is_loopback and not insecure:
        raise InvalidConfig(
            f"{option} {address_text((host, port))} would be plaintext on an address that others reach: listen on "
            "127.0.0.1, turn security on (docs/guides/security.md), or give --insecure where the network is trusted"
        )
