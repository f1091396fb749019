"""The console that a broker serves by a process beside it: which address it has, which listener of the broker it asks,
and with which certificate it answers browsers. Pure.

    its listener      the first one with SASL_SSL, where viewers log in; PLAINTEXT where no listener of the broker is
                      secured
    its certificate   console.ssl.keystore.location; else, off loopback, that of the listener; else none, plaintext

A broker whose secured listeners know clients by certificates alone serves no console: a viewer has no way to log in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minilog.addresses import Address, address_text, is_loopback, parse_address
from minilog.errors import InvalidConfig
from minilog.security.protocols import SecurityProtocol
from minilog_broker.server.addresses import check_browsers
from minilog_broker.server.client_listeners import ClientListener, client_listeners, file_settings
from minilog_broker.server.config import BrokerConfig

LISTEN, KEYSTORE = "console.listen", "console.ssl.keystore.location"
TRUSTSTORE = "console.ssl.truststore.location"


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """One console. `keystore`: the file of its key and certificate, empty for plaintext, and `keystore_setting`, the
    setting that named the file. `client`: the settings of its clients, without anybody's credentials."""

    listen: Address
    keystore: str
    keystore_setting: str
    has_actions: bool
    client: Mapping[str, str]


def check_console(config: BrokerConfig) -> None:
    """Raises InvalidConfig where a setting of the console would do nothing."""
    if config.console_listen is not None:
        return
    given = {
        KEYSTORE: config.console_ssl_keystore_location,
        TRUSTSTORE: config.console_ssl_truststore_location,
        "console.actions.enable": config.console_actions_enable,
    }
    if useless := next((name for name, value in given.items() if value), None):
        raise InvalidConfig(f"{useless} is given, and {LISTEN} is not: without it this broker serves no console")


def console_options(listen: Address | None, config: BrokerConfig) -> ConsoleOptions | None:
    """The console of a broker with this --listen and these settings, None where it has none. Raises InvalidConfig."""
    if config.console_listen is None:
        return None
    address = parse_address(config.console_listen)
    listener = _listener(client_listeners(listen, config))
    client = {"bootstrap.servers": address_text(listener.advertised)}
    truststore = config.console_ssl_truststore_location
    if not listener.is_open:
        client["security.protocol"] = listener.protocol.value
        if truststore:
            client["ssl.truststore.location"] = truststore
    elif truststore:
        raise InvalidConfig(
            f"{TRUSTSTORE} is given, and the listeners of this broker are PLAINTEXT: it would do nothing"
        )
    keystore, setting = config.console_ssl_keystore_location, KEYSTORE
    if not keystore and not is_loopback(address[0]):
        keystore, setting = listener.keystore, file_settings(listener, config)[0]
    check_browsers(LISTEN, address, has_tls=bool(keystore), remedy=KEYSTORE)
    return ConsoleOptions(address, keystore, setting, config.console_actions_enable, client)


def _listener(listeners: Sequence[ClientListener]) -> ClientListener:
    """The listener that the console asks. Raises InvalidConfig."""
    logins = next((listener for listener in listeners if listener.protocol is SecurityProtocol.SASL_SSL), None)
    if logins is not None:
        return logins
    if all(listener.is_open for listener in listeners):
        return listeners[0]
    raise InvalidConfig(
        f"{LISTEN} is given, and no listener of this broker is SASL_SSL: viewers of the console log in with a user's "
        "name and password, so add a listener with SASL_SSL, or leave the console out"
    )
