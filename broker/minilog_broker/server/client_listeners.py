"""The listeners that clients come to: the one of `--listen`, which has no name, and those of `listeners`.

    --listen HOST:PORT                           advertised.address        security.protocol
    listeners=NAME://HOST:PORT,...               advertised.listeners      listener.security.protocol.map
                                                 listener.name.NAME.ssl.keystore.location, .ssl.truststore.location

Who bootstraps on a listener is told the addresses of that listener, of every broker, and never those of another. Each
is whole, or in the clear as a whole; what would do nothing is refused, for who gives it believes that it does. The
settings are Kafka's, and names are small letters here, however they are typed. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.addresses import Address, address_text, parse_address
from minilog.errors import InvalidConfig
from minilog.security.protocols import SecurityProtocol
from minilog_broker.server.addresses import check_advertised, check_plaintext

if TYPE_CHECKING:
    from minilog_broker.server.config import BrokerConfig

OVERRIDE_PREFIX = "listener.name."
KEYSTORE, TRUSTSTORE = "ssl.keystore.location", "ssl.truststore.location"
OVERRIDABLE = (KEYSTORE, TRUSTSTORE)
"""Settings that a named listener may have a value of its own of."""
MOST_LISTENERS = 16
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_ADVERTISED_ADDRESS = "advertised.address=HOST:PORT"
_SECURED = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
Named = tuple[tuple[str, Address], ...]
Overrides = Mapping[tuple[str, str], str]
"""By listener and setting."""


@dataclass(frozen=True, slots=True)
class ClientListener:
    """One of them; `name` empty: that of `--listen`. `advertised`: what clients are told that came by it."""

    name: str
    address: Address
    advertised: Address
    protocol: SecurityProtocol
    keystore: str = ""
    truststore: str = ""

    @property
    def is_open(self) -> bool:
        """In the clear: nobody is asked who he is."""
        return self.protocol is SecurityProtocol.PLAINTEXT

    def __str__(self) -> str:
        return f"listeners={self.name}://{address_text(self.address)}" if self.name else "--listen"


def parse_name(text: str) -> str:
    """The name of a listener. ValueError where it is none."""
    name = text.strip().lower()
    if not _NAME.fullmatch(name):
        raise ValueError(text)
    return name


def parse_named(text: str) -> Named:
    """`NAME://HOST:PORT,...`. ValueError where it is none, or too many."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, separator, address = part.partition("://")
        if not separator:
            raise ValueError(text)
        found.append((parse_name(name), parse_address(address)))
    if len(found) > MOST_LISTENERS:
        raise ValueError(text)
    return tuple(found)


def tell_named(named: Named) -> str:
    """As it is typed."""
    return ",".join(f"{name}://{address_text(address)}" for name, address in named)


def tell_protocols(protocols: Iterable[tuple[str, SecurityProtocol]]) -> str:
    """As it is typed."""
    return ",".join(f"{name}:{protocol.value}" for name, protocol in protocols)


def parse_protocols(text: str) -> tuple[tuple[str, SecurityProtocol], ...]:
    """`NAME:PROTOCOL,...`. ValueError where it is none."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, protocol = part.partition(":")
        found.append((parse_name(name), SecurityProtocol(protocol.strip())))
    return tuple(found)


def override_name(overridden: tuple[str, str]) -> str:
    """Of a listener and its setting, as it is typed."""
    listener, setting = overridden
    return f"{OVERRIDE_PREFIX}{listener}.{setting}"


def parse_override(setting: str) -> tuple[str, str] | None:
    """`listener.name.NAME.SETTING` as the two; None where it is another setting. Raises ValueError where one of them is
    none."""
    if not setting.startswith(OVERRIDE_PREFIX):
        return None
    name, _, overridden = setting.removeprefix(OVERRIDE_PREFIX).partition(".")
    if overridden not in OVERRIDABLE:
        raise ValueError(setting)
    return parse_name(name), overridden


def client_listeners(listen: Address | None, config: BrokerConfig) -> tuple[ClientListener, ...]:
    """All of them, that of `--listen` first. Raises InvalidConfig where there is none, or two share a port."""
    found = named_listeners(config)
    if listen is not None:
        advertised = listen if config.advertised_address is None else parse_address(config.advertised_address)
        protocol = SecurityProtocol(config.security_protocol)
        truststore = config.ssl_truststore_location if protocol is SecurityProtocol.SSL else ""
        unnamed = ClientListener("", listen, advertised, protocol, config.ssl_keystore_location, truststore)
        found = (unnamed, *found)
    elif not found:
        raise InvalidConfig("this broker listens nowhere: give --listen HOST:PORT, or --set listeners=NAME://HOST:PORT")
    elif config.inter_broker_listen is None:
        raise InvalidConfig("inter.broker.listen is missing: without --listen other brokers have nowhere to come to")
    elif config.advertised_address is not None or config.security_protocol != SecurityProtocol.PLAINTEXT.value:
        name = "security.protocol" if config.advertised_address is None else "advertised.address"
        raise InvalidConfig(f"{name} is given, and --listen, whose it is, is not: named listeners have their own")
    _check_ports(found, config)
    return found


def file_settings(listener: ClientListener, config: BrokerConfig) -> tuple[str, str]:
    """Which settings its keystore and truststore were told by."""
    own = [(listener.name, each) in config.listener_overrides for each in (KEYSTORE, TRUSTSTORE)]
    prefixes = [f"{OVERRIDE_PREFIX}{listener.name}." if each else "" for each in own]
    return prefixes[0] + KEYSTORE, prefixes[1] + TRUSTSTORE


def named_listeners(config: BrokerConfig) -> tuple[ClientListener, ...]:
    """Those of `listeners`. Raises InvalidConfig where anything about one is missing, or said of none."""
    advertised, protocols = dict(config.advertised_listeners), dict(config.listener_security_protocol_map)
    given = (
        ("listeners", config.listeners),
        ("advertised.listeners", config.advertised_listeners),
        ("listener.security.protocol.map", config.listener_security_protocol_map),
    )
    for setting, pairs in given:
        _check_once(setting, [name for name, _ in pairs])
    known = [name for name, _ in config.listeners]
    _check_known("advertised.listeners", advertised, known)
    _check_known("listener.security.protocol.map", protocols, known)
    for name, setting in config.listener_overrides:
        _check_known(f"{OVERRIDE_PREFIX}{name}.{setting}", [name], known)
    return tuple(
        _named(name, address, advertised.get(name, address), _protocol(name, protocols), config)
        for name, address in config.listeners
    )


def _named(
    name: str, address: Address, advertised: Address, protocol: SecurityProtocol, config: BrokerConfig
) -> ClientListener:
    """With the files of its own, else those of all listeners."""
    own = {setting: config.listener_overrides.get((name, setting), "") for setting in OVERRIDABLE}
    takes = {KEYSTORE: _SECURED, TRUSTSTORE: (SecurityProtocol.SSL,)}
    for setting, value in own.items():
        if value and protocol not in takes[setting]:
            raise InvalidConfig(
                f"{OVERRIDE_PREFIX}{name}.{setting} is given, and the listener {name} is {protocol.value}: it must be "
                f"{_words(takes[setting])}, else it would do nothing"
            )
    keystore = own[KEYSTORE] or config.ssl_keystore_location if protocol in _SECURED else ""
    truststore = own[TRUSTSTORE] or config.ssl_truststore_location if protocol is SecurityProtocol.SSL else ""
    return ClientListener(name, address, advertised, protocol, keystore, truststore)


def _protocol(name: str, protocols: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
    """As the map says; one that is called as a protocol has that."""
    if name in protocols:
        return protocols[name]
    for protocol in SecurityProtocol:
        if name == protocol.value.lower():
            return protocol
    raise InvalidConfig(
        f"listener.security.protocol.map has no protocol for the listener {name}: add {name}:SASL_SSL, or another of "
        f"{_words(SecurityProtocol)}"
    )


def _words(protocols: Iterable[SecurityProtocol]) -> str:
    return " or ".join(each.value for each in protocols)


def _check_once(setting: str, names: Iterable[str]) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidConfig(f"{setting} names {twice[0]} twice: each listener has a name of its own")


def _check_known(setting: str, names: Iterable[str], known: Iterable[str]) -> None:
    if unknown := sorted(set(names) - set(known)):
        there = ", ".join(sorted(known)) or "none"
        raise InvalidConfig(f"{setting} names {unknown[0]}, which is no listener of this broker: listeners has {there}")


def _check_ports(listeners: Iterable[ClientListener], config: BrokerConfig) -> None:
    """One port, one listener: connections are told apart by the port that they came to."""
    seen: dict[int, str] = {}
    places = [(str(each), each.address) for each in listeners]
    if config.inter_broker_listen is not None:
        places.append(("inter.broker.listen", parse_address(config.inter_broker_listen)))
    offset = config.stream_port_offset
    for what, (_, port) in places:
        if not 1 <= port + offset <= 65535 or offset == 0:
            raise InvalidConfig(
                f"stream.port.offset={offset} gives {what} no port of streams: {port} and {offset} must be two ports "
                "from 1 to 65535 together"
            )
    places += [(f"the port of streams of {what}", config.stream_address(address)) for what, address in places]
    for what, (_, port) in places:
        if port in seen:
            raise InvalidConfig(f"{what} has port {port}, and so has {seen[port]}: each listener has a port of its own")
        seen[port] = what


_ONLY_WITH: Mapping[str, tuple[SecurityProtocol, ...]] = {
    KEYSTORE: _SECURED,
    "super.users": _SECURED,
    TRUSTSTORE: (SecurityProtocol.SSL,),
    "sasl.scram.users.file": (SecurityProtocol.SASL_SSL,),
    "sasl.oauthbearer.jwks.file": (SecurityProtocol.SASL_SSL,),
    "sasl.oauthbearer.jwks.endpoint.url": (SecurityProtocol.SASL_SSL,),
}
"""What means nothing where no listener has such a protocol: who gives it believes that the broker is closed."""


def check_security(config: BrokerConfig) -> None:
    """Whether the settings of the listeners are whole, and none is for nothing. Raises InvalidConfig."""
    if config.inter_broker_listen is None and config.inter_broker_ssl_keystore_location:
        raise InvalidConfig("inter.broker.ssl.keystore.location is given, and inter.broker.listen is not")
    if config.inter_broker_listen is not None:
        for name in ("inter.broker.ssl.keystore.location", "inter.broker.ssl.truststore.location"):
            if not getattr(config, name.replace(".", "_")):
                raise InvalidConfig(f"{name} is missing: inter.broker.listen is given (minilog cert create broker)")
    unnamed = SecurityProtocol(config.security_protocol)
    named = named_listeners(config)
    protocols = {unnamed, *(each.protocol for each in named)}
    for name, wanted in _ONLY_WITH.items():
        if getattr(config, name.replace(".", "_")) and protocols.isdisjoint(wanted):
            others = " and no named listener is another" if named else ""
            raise InvalidConfig(
                f"{name} is given, and security.protocol is {unnamed.value}{others}: it must be "
                f"{_words(wanted)}, else it would do nothing"
            )
    _check_files("", unnamed, config.ssl_keystore_location, config.ssl_truststore_location)
    for each in named:
        _check_files(each.name, each.protocol, each.keystore, each.truststore)
    if config.inter_broker_listen is None and (closed := [each for each in _SECURED if each in protocols]):
        raise InvalidConfig(
            f"inter.broker.listen is missing: {_of_protocol(unnamed, named, closed[0])} is {closed[0].value}, and "
            "brokers need a listener of their own then"
        )


def _check_files(name: str, protocol: SecurityProtocol, keystore: str, truststore: str) -> None:
    """What a protocol needs. Raises InvalidConfig."""
    what = f"the listener {name}" if name else "security.protocol"
    for setting, value, is_needed in (
        (KEYSTORE, keystore, protocol in _SECURED),
        (TRUSTSTORE, truststore, protocol is SecurityProtocol.SSL),
    ):
        if is_needed and not value:
            typed = f"{OVERRIDE_PREFIX}{name}.{setting}, or {setting}," if name else setting
            raise InvalidConfig(f"{typed} is missing: {what} is {protocol.value}")


def _of_protocol(unnamed: SecurityProtocol, named: Iterable[ClientListener], protocol: SecurityProtocol) -> str:
    """Who has it."""
    if unnamed is protocol:
        return "security.protocol"
    return f"the listener {next(each.name for each in named if each.protocol is protocol)}"


def check_reachable(listeners: Iterable[ClientListener], config: BrokerConfig, *, insecure: bool) -> None:
    """In the clear only on loopback, and nothing advertised that nobody can connect to. Raises InvalidConfig."""
    for each in listeners:
        if each.is_open:
            check_plaintext(f"the listener {each.name}" if each.name else "--listen", *each.address, insecure=insecure)
    for each in listeners:
        if each.name:
            what, remedy = f"the listener {each.name}:", f"advertised.listeners={each.name}://HOST:PORT"
        else:
            what, remedy = "advertised.address" if config.advertised_address else "--listen", _ADVERTISED_ADDRESS
        check_advertised(what, each.advertised[0], remedy)
    if config.inter_broker_listen is not None:
        own = config.inter_broker_advertised_address
        what = "inter.broker.advertised.address" if own else "inter.broker.listen"
        host, _ = parse_address(own or config.inter_broker_listen)
        check_advertised(what, host, "inter.broker.advertised.address=HOST:PORT")
