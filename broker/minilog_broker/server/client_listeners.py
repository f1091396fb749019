"""The listeners of clients: the one of `--listen`, which has no name, and those of `listeners`.

    --listen HOST:PORT                           advertised.address        security.protocol
    listeners=NAME://HOST:PORT,...               advertised.listeners      listener.security.protocol.map
                                                 listener.name.NAME.ssl.keystore.location, .ssl.truststore.location

A client gets the brokers' addresses on the listener that it came by, and never those of another. Each listener is
secured as a whole, or in the clear as a whole. A setting without an effect is refused, for its author would rely on it.
The settings are Kafka's. Names become small letters, however they are typed. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minilog.addresses import Address, address_text, parse_address
from minilog.errors import InvalidConfig
from minilog.security.protocols import SecurityProtocol
from minilog_broker.server.addresses import check_advertised, check_plaintext
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.listener_texts import KEYSTORE, OVERRIDABLE, OVERRIDE_PREFIX, TRUSTSTORE

_ADVERTISED_ADDRESS = "advertised.address=HOST:PORT"
_SECURED = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class ClientListener:
    """A listener of clients. `name` empty: that of `--listen`. `advertised`: the address for clients that came by
    it."""

    name: str
    address: Address
    advertised: Address
    protocol: SecurityProtocol
    keystore: str = ""
    truststore: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the listener is in the clear, without logins."""
        return self.protocol is SecurityProtocol.PLAINTEXT

    def __str__(self) -> str:
        return f"listeners={self.name}://{address_text(self.address)}" if self.name else "--listen"


def client_listeners(listen: Address | None, config: BrokerConfig) -> tuple[ClientListener, ...]:
    """All listeners of clients, that of `--listen` first. Raises InvalidConfig where there is none, or two share a
    port."""
    listeners = named_listeners(config)
    if listen is not None:
        advertised = listen if config.advertised_address is None else parse_address(config.advertised_address)
        protocol = SecurityProtocol(config.security_protocol)
        truststore = config.ssl_truststore_location if protocol is SecurityProtocol.SSL else ""
        unnamed = ClientListener("", listen, advertised, protocol, config.ssl_keystore_location, truststore)
        listeners = (unnamed, *listeners)
    elif not listeners:
        raise InvalidConfig("this broker listens nowhere: give --listen HOST:PORT, or -c listeners=NAME://HOST:PORT")
    elif config.inter_broker_listen is None:
        raise InvalidConfig("inter.broker.listen is missing: without --listen other brokers have no listener to use")
    elif config.advertised_address is not None or config.security_protocol != SecurityProtocol.PLAINTEXT.value:
        name = "security.protocol" if config.advertised_address is None else "advertised.address"
        raise InvalidConfig(
            f"{name} is given, and --listen is not, which it belongs to: named listeners have their own"
        )
    _check_ports(listeners, config)
    return listeners


def file_settings(listener: ClientListener, config: BrokerConfig) -> tuple[str, str]:
    """The settings that name the listener's keystore and truststore."""
    is_own = [(listener.name, setting) in config.listener_overrides for setting in (KEYSTORE, TRUSTSTORE)]
    prefixes = [f"{OVERRIDE_PREFIX}{listener.name}." if own else "" for own in is_own]
    return prefixes[0] + KEYSTORE, prefixes[1] + TRUSTSTORE


def named_listeners(config: BrokerConfig) -> tuple[ClientListener, ...]:
    """The listeners of `listeners`. Raises InvalidConfig where a part of one is missing, or a setting names none."""
    advertised, protocols = dict(config.advertised_listeners), dict(config.listener_security_protocol_map)
    given = (
        ("listeners", config.listeners),
        ("advertised.listeners", config.advertised_listeners),
        ("listener.security.protocol.map", config.listener_security_protocol_map),
    )
    for setting, pairs in given:
        _check_once(setting, [name for name, _ in pairs])
    names = [name for name, _ in config.listeners]
    _check_names("advertised.listeners", advertised, names)
    _check_names("listener.security.protocol.map", protocols, names)
    for name, setting in config.listener_overrides:
        _check_names(f"{OVERRIDE_PREFIX}{name}.{setting}", [name], names)
    return tuple(
        _named(name, address, advertised.get(name, address), _protocol(name, protocols), config)
        for name, address in config.listeners
    )


def _named(
    name: str, address: Address, advertised: Address, protocol: SecurityProtocol, config: BrokerConfig
) -> ClientListener:
    """A named listener, with its own files or with those of all listeners."""
    own = {setting: config.listener_overrides.get((name, setting), "") for setting in OVERRIDABLE}
    takes = {KEYSTORE: _SECURED, TRUSTSTORE: (SecurityProtocol.SSL,)}
    for setting, value in own.items():
        if value and protocol not in takes[setting]:
            raise InvalidConfig(
                f"{OVERRIDE_PREFIX}{name}.{setting} is given, and the listener {name} is {protocol.value}: the setting "
                f"has an effect only with {_words(takes[setting])}"
            )
    keystore = own[KEYSTORE] or config.ssl_keystore_location if protocol in _SECURED else ""
    truststore = own[TRUSTSTORE] or config.ssl_truststore_location if protocol is SecurityProtocol.SSL else ""
    return ClientListener(name, address, advertised, protocol, keystore, truststore)


def _protocol(name: str, protocols: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
    """The protocol of the map. A listener with the name of a protocol needs no entry."""
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
    return " or ".join(protocol.value for protocol in protocols)


def _check_once(setting: str, names: Iterable[str]) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidConfig(f"{setting} names {twice[0]} twice: each listener needs a name of its own")


def _check_names(setting: str, names: Iterable[str], of_listeners: Iterable[str]) -> None:
    if unknown := sorted(set(names) - set(of_listeners)):
        there = ", ".join(sorted(of_listeners)) or "none"
        raise InvalidConfig(
            f"{setting} names {unknown[0]}, which is not a listener of this broker: listeners has {there}"
        )


def _check_ports(listeners: Iterable[ClientListener], config: BrokerConfig) -> None:
    """Raises InvalidConfig where two listeners share a port: the port of a connection decides on its listener."""
    seen: dict[int, str] = {}
    places = [(str(listener), listener.address) for listener in listeners]
    if config.inter_broker_listen is not None:
        places.append(("inter.broker.listen", parse_address(config.inter_broker_listen)))
    offset = config.stream_port_offset
    for what, (_, port) in places:
        if not 1 <= port + offset <= 65535 or offset == 0:
            raise InvalidConfig(
                f"stream.port.offset={offset} gives {what} no port of streams: {port} plus {offset} has to be another "
                "port from 1 to 65535"
            )
    places += [(f"the port of streams of {what}", config.stream_address(address)) for what, address in places]
    for what, (_, port) in places:
        if port in seen:
            raise InvalidConfig(f"{what} and {seen[port]} both have port {port}: each listener needs a port of its own")
        seen[port] = what


_ONLY_WITH: Mapping[str, tuple[SecurityProtocol, ...]] = {
    KEYSTORE: _SECURED,
    "super.users": _SECURED,
    TRUSTSTORE: (SecurityProtocol.SSL,),
    "sasl.scram.users.file": (SecurityProtocol.SASL_SSL,),
    "sasl.oauthbearer.jwks.file": (SecurityProtocol.SASL_SSL,),
    "sasl.oauthbearer.jwks.endpoint.url": (SecurityProtocol.SASL_SSL,),
}
"""Settings without an effect where no listener has such a protocol. Their author would take the broker for secured."""


def check_security(config: BrokerConfig) -> None:
    """Check that the settings of the listeners are complete, and that each has an effect. Raises InvalidConfig."""
    if config.inter_broker_listen is None and config.inter_broker_ssl_keystore_location:
        raise InvalidConfig("inter.broker.ssl.keystore.location is given, and inter.broker.listen is not")
    if config.inter_broker_listen is not None:
        for name in ("inter.broker.ssl.keystore.location", "inter.broker.ssl.truststore.location"):
            if not getattr(config, name.replace(".", "_")):
                raise InvalidConfig(f"{name} is missing: inter.broker.listen is given (minilog cert create broker)")
    unnamed = SecurityProtocol(config.security_protocol)
    named = named_listeners(config)
    protocols = {unnamed, *(listener.protocol for listener in named)}
    for name, wanted in _ONLY_WITH.items():
        if getattr(config, name.replace(".", "_")) and protocols.isdisjoint(wanted):
            others = f", and no named listener has {_words(wanted)}" if named else ""
            raise InvalidConfig(
                f"{name} is given, and security.protocol is {unnamed.value}{others}: the setting has an effect only "
                f"with {_words(wanted)}"
            )
    _check_files("", unnamed, config.ssl_keystore_location, config.ssl_truststore_location)
    for listener in named:
        _check_files(listener.name, listener.protocol, listener.keystore, listener.truststore)
    if config.inter_broker_listen is None and (closed := [secured for secured in _SECURED if secured in protocols]):
        raise InvalidConfig(
            f"inter.broker.listen is missing: {_of_protocol(unnamed, named, closed[0])} is {closed[0].value}, and "
            "brokers need a listener of their own then"
        )


def _check_files(name: str, protocol: SecurityProtocol, keystore: str, truststore: str) -> None:
    """Check the files that a protocol needs. Raises InvalidConfig."""
    what = f"the listener {name}" if name else "security.protocol"
    for setting, value, is_needed in (
        (KEYSTORE, keystore, protocol in _SECURED),
        (TRUSTSTORE, truststore, protocol is SecurityProtocol.SSL),
    ):
        if is_needed and not value:
            typed = f"{OVERRIDE_PREFIX}{name}.{setting}, or {setting}," if name else setting
            raise InvalidConfig(f"{typed} is missing: {what} is {protocol.value}")


def _of_protocol(unnamed: SecurityProtocol, named: Iterable[ClientListener], protocol: SecurityProtocol) -> str:
    """The setting or listener that has the protocol."""
    if unnamed is protocol:
        return "security.protocol"
    return f"the listener {next(listener.name for listener in named if listener.protocol is protocol)}"


def check_reachable(listeners: Iterable[ClientListener], config: BrokerConfig, *, insecure: bool) -> None:
    """Check that listeners in the clear are on loopback, and that others can connect to each advertised address. Raises
    InvalidConfig."""
    for listener in listeners:
        if listener.is_open:
            option = f"the listener {listener.name}" if listener.name else "--listen"
            check_plaintext(option, *listener.address, insecure=insecure)
    for listener in listeners:
        if listener.name:
            what, remedy = f"the listener {listener.name}:", f"advertised.listeners={listener.name}://HOST:PORT"
        else:
            what, remedy = "advertised.address" if config.advertised_address else "--listen", _ADVERTISED_ADDRESS
        check_advertised(what, listener.advertised[0], remedy)
    if config.inter_broker_listen is not None:
        own = config.inter_broker_advertised_address
        what = "inter.broker.advertised.address" if own else "inter.broker.listen"
        host, _ = parse_address(own or config.inter_broker_listen)
        check_advertised(what, host, "inter.broker.advertised.address=HOST:PORT")
