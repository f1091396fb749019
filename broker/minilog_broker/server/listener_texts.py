"""The texts in which users name listeners: `NAME://HOST:PORT`, `NAME:PROTOCOL`, `listener.name.NAME.SETTING`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from minilog.addresses import Address, address_text, parse_address
from minilog.security.protocols import SecurityProtocol

OVERRIDE_PREFIX = "listener.name."
KEYSTORE, TRUSTSTORE = "ssl.keystore.location", "ssl.truststore.location"
OVERRIDABLE = (KEYSTORE, TRUSTSTORE)
"""Settings with a value of its own for a named listener."""
MOST_LISTENERS = 16
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
Named = tuple[tuple[str, Address], ...]
Overrides = Mapping[tuple[str, str], str]
"""By listener and setting."""


def parse_name(text: str) -> str:
    """The name of a listener. Raises ValueError for an invalid one."""
    name = text.strip().lower()
    if not _NAME.fullmatch(name):
        raise ValueError(text)
    return name


def parse_named(text: str) -> Named:
    """The listeners in `NAME://HOST:PORT,...`. Raises ValueError where the text is not valid, or has too many."""
    listeners = []
    for part in filter(None, (entry.strip() for entry in text.split(","))):
        name, separator, address = part.partition("://")
        if not separator:
            raise ValueError(text)
        listeners.append((parse_name(name), parse_address(address)))
    if len(listeners) > MOST_LISTENERS:
        raise ValueError(text)
    return tuple(listeners)


def tell_named(named: Named) -> str:
    """The text of listeners, as users type it."""
    return ",".join(f"{name}://{address_text(address)}" for name, address in named)


def tell_protocols(protocols: Iterable[tuple[str, SecurityProtocol]]) -> str:
    """The text of protocols, as users type it."""
    return ",".join(f"{name}:{protocol.value}" for name, protocol in protocols)


def parse_protocols(text: str) -> tuple[tuple[str, SecurityProtocol], ...]:
    """The protocols in `NAME:PROTOCOL,...`. Raises ValueError where the text is not valid."""
    protocols = []
    for part in filter(None, (entry.strip() for entry in text.split(","))):
        name, _, protocol = part.partition(":")
        protocols.append((parse_name(name), SecurityProtocol(protocol.strip())))
    return tuple(protocols)


def override_name(overridden: tuple[str, str]) -> str:
    """The name of a listener's setting, as users type it."""
    listener, setting = overridden
    return f"{OVERRIDE_PREFIX}{listener}.{setting}"


def parse_override(setting: str) -> tuple[str, str] | None:
    """The listener and the setting in `listener.name.NAME.SETTING`; None for another setting. Raises ValueError where
    one of them is not valid."""
    if not setting.startswith(OVERRIDE_PREFIX):
        return None
    name, _, overridden = setting.removeprefix(OVERRIDE_PREFIX).partition(".")
    if overridden not in OVERRIDABLE:
        raise ValueError(setting)
    return parse_name(name), overridden
