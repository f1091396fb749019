"""Options that are settings of the minilog client: `minilog.<name>`, and Kafka's names of the security settings.

Options travel with Spark's plans: to every task, over Spark Connect, and into the catalog with a table. So the
connector refuses a secret among them, unless the option allowSecretsInOptions allows it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from minilog.config import config_names, parse_config, variable_of
from minilog.errors import InvalidConfig
from minilog.security.secret import is_secret
from pyspark_minilog.errors import InvalidOption, refused
from pyspark_minilog.options.config_file import CONFIG_FILE, OPTION, OWNED, with_file

CLIENT_PREFIX, _KAFKA_PREFIX = CLIENT_PREFIXES = "minilog.", "kafka."
ALLOW_SECRETS = "allowSecretsInOptions"
DELEGATION_TOKENS = "delegationTokens"
_NO_SECRETS = frozenset((ALLOW_SECRETS.lower(), DELEGATION_TOKENS.lower()))  # their names only look like secrets
GROUP = CLIENT_PREFIX + "group.id"
SERVERS = ("bootstrap.servers", "minilog.bootstrap.servers", "kafka.bootstrap.servers")
# Kafka's security settings mean the same here. Its other settings have other defaults.
_SECURITY = ("security.", "ssl.", "sasl.")


def client_spelling(key: str, value: str) -> str | None:
    """The option as `minilog.<name>`, or None if it is no setting of the client. Raises InvalidOption."""
    name = _setting(key)
    if name is None:
        return None
    if name == CONFIG_FILE:
        return OPTION
    if name in OWNED:
        raise refused(key.lower(), value, f"the connector sets it itself: {OWNED[name]}")
    if name not in config_names():
        raise unknown(key.lower(), (), "client")
    return CLIENT_PREFIX + name


def refuse_secrets(keys: Iterable[str]) -> None:
    """Raises InvalidOption if one of these options is a secret. The error does not show its value."""
    for key in _secrets(keys):
        raise InvalidOption(f"option '{key}' holds a secret, and options travel with Spark's plans: {_remedy(key)}")


def refuse_stored_secrets(keys: Iterable[str]) -> None:
    """Like `refuse_secrets`, for the options of a table in the catalog, where no option can allow a secret. Raises
    InvalidOption."""
    for key in _secrets(keys):
        raise InvalidOption(
            f"option '{key}' holds a secret, and the catalog keeps the options of a table: set {OPTION} for the "
            f"table, and put {_name(key)} into that file (mode 600), or into the environment variable "
            f"{variable_of(_name(key))}"
        )


def _secrets(keys: Iterable[str]) -> list[str]:
    return [key for key in keys if is_secret(key) and key.lower() not in _NO_SECRETS]


def unknown(key: str, options: tuple[str, ...], side: str) -> InvalidOption:
    """The refusal of an unknown option. It does not show the value, which may be a secret under a misspelt name."""
    settings = (OPTION, *(CLIENT_PREFIX + name for name in config_names() if name not in OWNED))
    spelling = {name.lower(): name for name in (*options, *settings)}
    nearest = difflib.get_close_matches(key.lower().replace(_KAFKA_PREFIX, CLIENT_PREFIX), spelling, n=1, cutoff=0.6)
    advice = "leave it out"
    if nearest:
        meant = spelling[nearest[0]]
        advice += (
            f". If you mean {_name(meant)}, {_remedy(meant)}" if is_secret(meant) else f", or did you mean '{meant}'?"
        )
    return InvalidOption(f"the {side} of this minilog version has no option '{key}': {advice}")


def client_settings(named: Mapping[str, str]) -> dict[str, str]:
    """The settings of the clients, taken from all options. Raises InvalidOption."""
    servers = {name: named[name].strip() for name in SERVERS if name in named}
    if len(set(servers.values())) > 1:
        both = " and ".join(f"'{name}' ({value})" for name, value in servers.items())
        raise InvalidOption(f"the options {both} name different servers: keep one of them")
    if not any(servers.values()) and OPTION not in named:
        raise InvalidOption("option 'bootstrap.servers' is missing: name the brokers, such as 127.0.0.1:9092")
    settings = {
        name.removeprefix(CLIENT_PREFIX): value
        for name, value in named.items()
        if name.startswith(CLIENT_PREFIX) and name != GROUP  # the driver plans the tasks, and they have no group
    }
    if any(servers.values()):
        settings["bootstrap.servers"] = next(iter(servers.values()))
    try:
        config = parse_config(with_file(settings))
    except InvalidConfig as error:
        raise InvalidOption(_names_the_option(str(error))) from None
    # A host's environment may set client.rack and the like for its own tasks. The isolation level is one for all.
    return settings | {"isolation.level": config.isolation_level}


def _setting(key: str) -> str | None:
    """The client's name of the setting, or None if the option is not one for the client."""
    lower = key.lower()
    if lower.startswith(CLIENT_PREFIX):
        return lower.removeprefix(CLIENT_PREFIX)
    kafka = lower.removeprefix(_KAFKA_PREFIX)
    return kafka if kafka != lower and kafka.startswith(_SECURITY) else None


def _name(key: str) -> str:
    return _setting(key) or key.lower()


def _remedy(key: str) -> str:
    name = _name(key)
    return (
        f"put {name} into the file that {OPTION} names (mode 600), or into the environment variable "
        f"{variable_of(name)}. {ALLOW_SECRETS}=true allows the secret here"
    )


def _names_the_option(refusal: str) -> str:
    if refusal.startswith("option "):
        return refusal
    if refusal.startswith("environment"):
        return f"on the driver: {refusal}"
    return f"option {'' if refusal.startswith('bootstrap.servers') else CLIENT_PREFIX}{refusal}"
