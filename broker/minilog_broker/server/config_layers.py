"""The settings of a broker, read from their four layers and checked against each other.

Defaults < TOML file < environment (`MINILOG_` + upper case, dots as underscores) < `--set`. For a dynamic setting the
metadata log comes before all of them (running_config.py).
"""

from __future__ import annotations

import pathlib
import tomllib
from collections.abc import Container, Iterator, Mapping
from typing import Any

from minilog.config import config_names
from minilog.effective import EffectiveSetting, Origin, Source
from minilog.errors import InvalidConfig
from minilog_broker.server.client_listeners import check_security
from minilog_broker.server.config import BrokerConfig, effective_settings, parse_setting, setting_names
from minilog_broker.server.console_options import check_console
from minilog_broker.server.listener_texts import OVERRIDABLE, OVERRIDE_PREFIX, override_name, parse_override

ENVIRONMENT_PREFIX = "MINILOG_"
_VARIABLE = "environment variable "


def load_config(
    file: pathlib.Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """The configuration from its four layers. InvalidConfig names the key, the value and the valid values."""
    return load_with_origins(file, environment, overrides)[0]


def explain_config(
    file: pathlib.Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> list[EffectiveSetting]:
    """Each effective setting, with its layer. Raises as load_config does."""
    return effective_settings(*load_with_origins(file, environment, overrides))


def load_with_origins(
    file: pathlib.Path | None, environment: Mapping[str, str] | None, overrides: Mapping[str, str] | None
) -> tuple[BrokerConfig, dict[str, Origin]]:
    """The configuration as load_config reads it, and the origin of each setting that is not a default."""
    values: dict[str, Any] = {}
    overrides_of_listeners: dict[tuple[str, str], str] = {}
    origins: dict[str, Origin] = {}
    layers = (
        (Source.FILE, _from_file(file) if file is not None else ()),
        (Source.ENVIRONMENT, _from_environment(environment or {})),
        (Source.OPTION, ((name, text, "-c") for name, text in (overrides or {}).items())),
    )
    for source, layer in layers:
        for name, text, where in layer:
            origin = Origin(source, where.removeprefix(_VARIABLE))
            if (listener := _of_listener(name, where)) is not None:
                overrides_of_listeners[listener] = text.strip()
                origins[override_name(listener)] = origin
            else:
                values[name.replace(".", "_")] = parse_setting(name, text, where)
                origins[name] = origin
    config = BrokerConfig(**values, listener_overrides=overrides_of_listeners)
    _check_together(config, values)
    return config, origins


def _of_listener(name: str, where: str) -> tuple[str, str] | None:
    """The listener and its setting; None for a setting of the broker. Raises InvalidConfig."""
    try:
        return parse_override(name)
    except ValueError:
        names = [f"{OVERRIDE_PREFIX}NAME.{setting}" for setting in OVERRIDABLE]
        raise InvalidConfig(f"unknown setting {name} ({where}): a listener has {' and '.join(names)}") from None


def _from_file(file: pathlib.Path) -> Iterator[tuple[str, str, str]]:
    try:
        with file.open("rb") as stream:
            document = tomllib.load(stream)
    except OSError as error:
        raise InvalidConfig(f"the configuration file {file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"the configuration file {file} is not TOML: {error}") from None
    for name, value in _flatten(document, ""):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        yield name, text, str(file)


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """The names and values of a table. TOML reads `segment.bytes = 1` as a table in a table: the name is the path
    through them."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    own = setting_names()
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
        # Names of clients' settings are not for a broker.
        if name in own or name not in config_names():
            yield name, environment[variable], _VARIABLE + variable


def _check_together(config: BrokerConfig, given: Container[str]) -> None:
    """Check values against each other. `given`: the attributes that some layer has set."""
    if config.broker_session_timeout_ms <= config.broker_heartbeat_interval_ms:
        raise InvalidConfig(
            f"broker.session.timeout.ms={config.broker_session_timeout_ms} is not valid: expected more than "
            f"broker.heartbeat.interval.ms, which is {config.broker_heartbeat_interval_ms}"
        )
    if config.transaction_timeout_ms > config.transaction_max_timeout_ms:
        raise InvalidConfig(
            f"transaction.timeout.ms={config.transaction_timeout_ms} is not valid: expected at most "
            f"transaction.max.timeout.ms, which is {config.transaction_max_timeout_ms}"
        )
    if config.group_consumer_session_timeout_ms < 3 * config.group_consumer_heartbeat_interval_ms:
        raise InvalidConfig(
            f"group.consumer.session.timeout.ms={config.group_consumer_session_timeout_ms} is not valid: expected at "
            "least three times group.consumer.heartbeat.interval.ms, which is "
            f"{config.group_consumer_heartbeat_interval_ms}"
        )
    check_security(config)
    check_console(config)
    _check_keys_of_tokens(config)
    factor = config.default_replication_factor
    if factor is not None and "min_insync_replicas" in given and config.min_insync_replicas > factor:
        raise InvalidConfig(
            f"min.insync.replicas={config.min_insync_replicas} is not valid: expected at most "
            f"default.replication.factor, which is {factor}"
        )


def _check_keys_of_tokens(config: BrokerConfig) -> None:
    """Check that the keys come from one place. Raises InvalidConfig."""
    endpoint = "sasl.oauthbearer.jwks.endpoint"
    if config.sasl_oauthbearer_jwks_file and config.sasl_oauthbearer_jwks_endpoint_url:
        raise InvalidConfig(f"sasl.oauthbearer.jwks.file and {endpoint}.url are both given: keep one of them")
    truststore = config.sasl_oauthbearer_jwks_endpoint_ssl_truststore_location
    if truststore and not config.sasl_oauthbearer_jwks_endpoint_url:
        raise InvalidConfig(f"{endpoint}.ssl.truststore.location is given, and {endpoint}.url is not")
    least_ms = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms
    most_ms = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms
    if most_ms < least_ms:
        raise InvalidConfig(
            f"{endpoint}.retry.backoff.max.ms={most_ms} is not valid: expected at least {endpoint}.retry.backoff.ms, "
            f"which is {least_ms}"
        )
