"""Hosts that a broker must not advertise, and hosts that it must not listen on in the clear."""

from __future__ import annotations

import ipaddress

from minilog.addresses import Address, address_text, is_loopback
from minilog.errors import InvalidConfig


def check_advertised(what: str, host: str, remedy: str) -> None:
    """Check the advertised host, which must name this machine to others. "Every address" (0.0.0.0, [::]) names their
    own machine instead.

    `what`: the option or setting with the host. `remedy`: the setting to use instead. Raises InvalidConfig.
    """
    try:
        unspecified = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return  # a DNS name
    if unspecified:
        raise InvalidConfig(
            f"{what} {f'[{host}]' if ':' in host else host} cannot be advertised, for no other machine can connect to "
            f"it: give -c {remedy} with this broker's address for other machines"
        )


def check_plaintext(option: str, host: str, port: int, *, insecure: bool) -> None:
    """Check that plaintext stays on loopback, since others could read it elsewhere. Raises InvalidConfig without
    `insecure`."""
    if not is_loopback(host) and not insecure:
        raise InvalidConfig(
            f"{option} {address_text((host, port))} would be plaintext on an address that other machines reach: listen "
            "on 127.0.0.1, turn security on (docs/guides/security.md), or give --insecure where the network is trusted"
        )


def check_browsers(option: str, address: Address, *, has_tls: bool, remedy: str) -> None:
    """Browsers send passwords, so a console off loopback needs TLS. `remedy`: where its certificate is given. Raises
    InvalidConfig."""
    if not has_tls and not is_loopback(address[0]):
        raise InvalidConfig(
            f"{option} {address_text(address)} would be plaintext on an address that others reach: listen on "
            f"127.0.0.1, or give a key and a certificate with {remedy}"
        )
