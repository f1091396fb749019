"""The hosts that only this machine reaches."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone. `host`: a name without its port, or an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
