"""The settings of a console, and their check.

A viewer acts with credentials of his own. So the console takes none from its settings: they belong to the person that
started the console, and would be lent to everybody that reaches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minilog.config import parse_config
from minilog.errors import InvalidConfig

_CREDENTIALS = (
    "sasl.username",
    "sasl.password",
    "sasl.tokenauth",
    "sasl.jaas.config",
    "sasl.oauthbearer.token.file",
)
_ANSWER_WITHIN_MS = "8000"  # a page that comes later is not waited for
_PROTOCOL = "security.protocol"
_SASL = "SASL_SSL"


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The settings of one console. `client`: those of each client that it makes, without credentials. `has_logins`:
    viewers log in. `has_actions`: viewers may change what their rights allow. `has_tls`: browsers come by TLS."""

    client: Mapping[str, str]
    has_logins: bool
    has_actions: bool = False
    has_tls: bool = False


def console_settings(client: Mapping[str, str], *, has_actions: bool, has_tls: bool) -> ConsoleSettings:
    """The settings of a console. Raises InvalidConfig for a wrong setting, and for a certificate of a client."""
    given = {name: value for name, value in client.items() if name not in _CREDENTIALS}
    has_logins = given.get(_PROTOCOL, "").strip().upper() == _SASL
    if given.get("ssl.keystore.location"):
        raise InvalidConfig(
            "ssl.keystore.location would lend the rights of this certificate to everybody that reaches the console: "
            "leave it out, and let the console connect to a listener with security.protocol=SASL_SSL, where viewers "
            "log in"
        )
    given.setdefault("request.timeout.ms", _ANSWER_WITHIN_MS)
    given.setdefault("isolation.level", "read_committed")
    checked = {**given, "sasl.username": "viewer", "sasl.password": "to be given"} if has_logins else given
    parse_config(checked)
    return ConsoleSettings(given, has_logins, has_actions, has_tls)


def viewer_client(settings: ConsoleSettings, name: str, password: str, *, is_token: bool) -> dict[str, str]:
    """The settings of a client that logs in with a user's name and password, or with a delegation token."""
    login = {"sasl.username": name, "sasl.password": password, "sasl.tokenauth": "true" if is_token else "false"}
    return {**settings.client, **login}
