"""Client configuration: a dictionary with the field's dotted names in, a frozen ClientConfig out.

Defaults < environment (`MINILOG_` + upper case, dots as underscores) < the dictionary. So a setting that differs from
host to host, such as client.rack, is set once on each host. Variables without a client setting of their name belong to
brokers.

All three clients have one table, so a program may pass the same dictionary to each. An unknown name is refused with the
nearest name. A bad value is refused with the key, the value and the allowed values (InvalidConfig). Values may be text,
as they come from command lines and Spark options.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeAlias

from minilog.addresses import Address, address_text, parse_address
from minilog.client_config import ClientConfig
from minilog.effective import DEFAULT, EffectiveSetting, Origin, Source, told_value
from minilog.errors import InvalidConfig
from minilog.limits import MAX_KEEPALIVE_MS
from minilog.place_words import named_place
from minilog.security.jaas import JAAS_CONFIG, parse_jaas
from minilog.security.protocols import MECHANISMS, OAUTHBEARER, SCRAM_SHA_512, SecurityProtocol
from minilog.security.secret import Secret

_Parser: TypeAlias = Callable[[str, object], Any]

ACKS_ALL = -1
ENVIRONMENT_PREFIX = "MINILOG_"
_LARGEST = 2**31 - 1  # a count of milliseconds or bytes above this is a slip


def _refuse(name: str, value: object, right: str) -> InvalidConfig:
    return InvalidConfig(f"{name}={value!r} is not possible: it must be {right}")


def _integer(least: int, most: int = _LARGEST) -> _Parser:
    def parse(name: str, value: object) -> int:
        right = f"a whole number from {least} to {most}"
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _refuse(name, value, right)
        try:
            number = int(value)
        except ValueError:
            raise _refuse(name, value, right) from None
        if not least <= number <= most:
            raise _refuse(name, value, right)
        return number

    return parse


def _boolean(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise _refuse(name, value, "true or false")
    return text == "true"


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _refuse(name, value, "text")
    return value


def _choice(**choices: object) -> _Parser:
    def parse(name: str, value: object) -> object:
        text = str(value).lower()
        if text not in choices:
            raise _refuse(name, value, " or ".join(dict.fromkeys(choices)))
        return choices[text]

    return parse


def parse_addresses(name: str, value: object) -> tuple[Address, ...]:
    """`HOST:PORT[,HOST:PORT...]`, or a list of HOST:PORT; IPv6 hosts in brackets. Raises InvalidConfig."""
    parts = value.split(",") if isinstance(value, str) else value
    right = "HOST:PORT, or several separated by commas"
    if not isinstance(parts, list | tuple):
        raise _refuse(name, value, right)
    addresses = []
    for part in filter(None, (str(part).strip() for part in parts)):
        try:
            addresses.append(parse_address(part))
        except ValueError as error:
            raise InvalidConfig(f"{name}={value!r} is not possible: it must be {right} ({error})") from None
    if not addresses:
        raise _refuse(name, value, right)
    return tuple(addresses)


def _secret(name: str, value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str):
        raise InvalidConfig(f"{name} is not possible: it must be text")  # the value is not told
    return Secret(value)


def _word(*words: str) -> _Parser:
    """A parser for one of the words, in Kafka's spelling or in small letters."""
    spelling = {word.lower(): word for word in words}

    def parse(name: str, value: object) -> str:
        text = str(value).lower()
        if text not in spelling:
            raise _refuse(name, value, " or ".join(words))
        return spelling[text]

    return parse


_PEM = _word("PEM")
_ACKS = _choice(**{"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1})
_RESET = _choice(earliest="earliest", latest="latest", error="error", none="error")
_MIB = 1024 * 1024


def _reset(name: str, value: object) -> object:
    return _RESET(name, named_place(value))


_NEAR = 0.75  # of a name: below it the nearest setting has another meaning

# name: (parser, default). The field of ClientConfig is the name with dots as underscores, but for max_in_flight.
_TABLE: dict[str, tuple[_Parser, object]] = {
    "bootstrap.servers": (parse_addresses, None),
    "client.id": (_text, "minilog-python"),
    "acks": (_ACKS, "all"),
    "linger.ms": (_integer(0), 5),
    "batch.size": (_integer(1), _MIB),
    "buffer.memory": (_integer(1, 2**40), 64 * _MIB),
    "compression.type": (_choice(none="none", lz4="lz4", zstd="zstd"), "none"),
    "enable.idempotence": (_boolean, True),
    "max.in.flight.requests.per.connection": (_integer(1, 5), 5),
    "max.block.ms": (_integer(0), 60_000),
    "delivery.timeout.ms": (_integer(1), 120_000),
    "request.timeout.ms": (_integer(1), 30_000),
    "retry.backoff.ms": (_integer(1), 50),
    "retry.backoff.max.ms": (_integer(1), 500),
    "metadata.max.age.ms": (_integer(1), 5_000),
    "session.keepalive.ms": (_integer(1, MAX_KEEPALIVE_MS), 1_000),
    "group.id": (_text, ""),
    "group.protocol": (_choice(none="none", consumer="consumer"), "none"),  # consumer: subscribe joins the group
    "group.instance.id": (_text, ""),
    "group.remote.assignor": (_text, ""),  # empty: the brokers' first
    "queue": (_text, ""),
    "max.poll.records": (_integer(1, 100_000), 500),
    "max.poll.interval.ms": (_integer(1), 300_000),
    "max.lock.renewals": (_integer(0), 0),  # 0: without an end
    "enable.auto.commit": (_boolean, "false"),  # Kafka's default is true: what was polled is not what was done
    "auto.commit.interval.ms": (_integer(1), 5_000),
    "auto.offset.reset": (_reset, "latest"),
    "isolation.level": (
        _choice(read_committed="read_committed", read_uncommitted="read_uncommitted"),
        "read_committed",
    ),
    "fetch.min.bytes": (_integer(1, 2**40), 1),
    "fetch.max.wait.ms": (_integer(0), 500),  # how long a poll gathers at most for fetch.min.bytes; brokers never wait
    "fetch.max.bytes": (_integer(1, 2**40), 16 * _MIB),
    # What one poll makes of the batches, decoded: they are decoded one by one, and what is above stays as it came.
    "max.poll.bytes": (_integer(1, 2**40), 16 * _MIB),
    # The keys of view=latest, and the offsets of their newest rows: what does not fit takes more reads of the keys.
    "latest.memory.bytes": (_integer(1, 2**30), 256 * _MIB),
    "client.rack": (_text, ""),
    "transactional.id": (_text, ""),
    "transaction.timeout.ms": (_integer(0), 0),  # since the last sign of life of a writer; 0: the brokers' own
    "security.protocol": (_word(*(protocol.value for protocol in SecurityProtocol)), "PLAINTEXT"),
    "ssl.truststore.location": (_text, ""),  # PEM: the authorities that brokers' certificates are believed by
    "ssl.keystore.location": (_text, ""),  # PEM: this client's private key and certificate
    "ssl.truststore.type": (_PEM, "PEM"),
    "ssl.keystore.type": (_PEM, "PEM"),
    "ssl.endpoint.identification.algorithm": (_word("https"), "https"),  # host names are always checked
    "sasl.mechanism": (_word(*MECHANISMS), SCRAM_SHA_512),
    "sasl.username": (_text, ""),
    "sasl.password": (_secret, ""),
    "sasl.tokenauth": (_boolean, "false"),  # name and password are those of a delegation token
    "sasl.oauthbearer.token.file": (_text, ""),  # read anew for each session
}
_FIELD = {name: name.replace(".", "_") for name in _TABLE} | {"max.in.flight.requests.per.connection": "max_in_flight"}
assert {*_FIELD.values(), "lingers_alone"} == {field.name for field in fields(ClientConfig)}


def config_names() -> list[str]:
    """All allowed names, sorted: the names of the table, and sasl.jaas.config, which stands for some of them."""
    return sorted((*_TABLE, JAAS_CONFIG))


def parse_config(settings: Mapping[str, object], environment: Mapping[str, str] | None = None) -> ClientConfig:
    """The checked `settings`, completed with `environment` (None: the process's own) and the defaults.

    Raises InvalidConfig, which names key, value and remedy.
    """
    for name in settings:
        if name not in _TABLE and name != JAAS_CONFIG:
            raise _unknown(str(name))
    given = _from_environment(os.environ if environment is None else environment) | _without_jaas(settings)
    if given.get("bootstrap.servers") is None:
        raise InvalidConfig("bootstrap.servers is missing: give it as HOST:PORT[,HOST:PORT...]")
    values = {_FIELD[name]: parse(name, given.get(name, default)) for name, (parse, default) in _TABLE.items()}
    if values["acks"] != ACKS_ALL:
        if "enable.idempotence" in given and values["enable_idempotence"]:
            raise _refuse("acks", given["acks"], "all while enable.idempotence is true")
        values["enable_idempotence"] = False
    if values["transactional_id"]:
        _check_transactional(given, values)
    if values["delivery_timeout_ms"] < values["linger_ms"]:
        raise _refuse("delivery.timeout.ms", values["delivery_timeout_ms"], "at least linger.ms")
    _check_group(values)
    _check_queue(values)
    _check_security(values)
    return ClientConfig(**values, lingers_alone="linger.ms" in given)


# Settings of Kafka's clients that have no setting here, and the place of what they do.
_OF_KAFKA = {
    "session.timeout.ms": "brokers and groups have group.consumer.session.timeout.ms",
    "heartbeat.interval.ms": "brokers and groups have group.consumer.heartbeat.interval.ms",
    "partition.assignment.strategy": "group.remote.assignor names an assignor of the brokers",
    "key.serializer": "send bytes, or rows of a topic with a schema",
    "value.serializer": "send bytes, or rows of a topic with a schema",
    "key.deserializer": "a record has bytes, or the row of a topic with a schema",
    "value.deserializer": "a record has bytes, or the row of a topic with a schema",
    "partitioner.class": "name the partition in send",
    "interceptor.classes": "call your function around send and poll",
    "retries": "delivery.timeout.ms bounds retries",
    "message.send.max.retries": "delivery.timeout.ms bounds retries",
    "max.partition.fetch.bytes": "fetch.max.bytes bounds a fetch",
    "socket.timeout.ms": "request.timeout.ms bounds a request",
    "connections.max.idle.ms": "session.keepalive.ms keeps a stream open",
    "ssl.ca.location": "ssl.truststore.location is the PEM file of authorities",
}


def _unknown(name: str) -> InvalidConfig:
    if name in _OF_KAFKA:
        return InvalidConfig(f"{name!r} of Kafka's clients is no setting here: {_OF_KAFKA[name]}")
    near = difflib.get_close_matches(name, _TABLE, n=1, cutoff=_NEAR)
    offer = f"the nearest is {near[0]!r}" if near else "docs/reference/settings.md#clients has all"
    return InvalidConfig(f"there is no setting {name!r}: {offer}")


def _check_group(values: Mapping[str, Any]) -> None:
    if values["group_protocol"] == "consumer" and not values["group_id"]:
        raise _refuse("group.protocol", "consumer", "none, or used with group.id: the group to join")
    if values["enable_auto_commit"] and not values["group_id"]:
        raise _refuse("enable.auto.commit", "true", "false, or used with group.id: the group to commit for")


def _check_queue(values: Mapping[str, Any]) -> None:
    """Checks that no setting would be ignored. Raises InvalidConfig."""
    if values["queue"] and values["group_id"]:
        raise InvalidConfig(
            f"queue={values['queue']!r} and group.id={values['group_id']!r} are both given: a queue keeps its own "
            "offsets, so leave group.id out"
        )
    if values["queue"] and values["isolation_level"] != "read_committed":
        raise _refuse("isolation.level", values["isolation_level"], "read_committed where a queue is given")


def parse_consumer_config(settings: Mapping[str, object]) -> ClientConfig:
    """The checked settings of a Consumer. Raises InvalidConfig."""
    config = parse_config(settings)
    if config.queue:
        raise InvalidConfig(
            f"queue={config.queue!r} is for minilog.QueueConsumer: a Consumer has positions, and a queue has none"
        )
    return config


def parse_queue_config(settings: Mapping[str, object]) -> ClientConfig:
    """The checked settings of a QueueConsumer. Raises InvalidConfig."""
    config = parse_config(settings)
    if not config.queue:
        raise InvalidConfig("queue is missing: give the name of the queue, such as 'jobs'")
    return config


def explain_config(
    layers: Iterable[tuple[Origin, Mapping[str, object]]], environment: Mapping[str, str]
) -> list[EffectiveSetting]:
    """Each effective setting of a client that is made of `layers`, with its origin: a layer or `environment`. A later
    layer wins over an earlier one. Raises InvalidConfig as parse_config does."""
    origins = {
        name: Origin(Source.ENVIRONMENT, variable_of(name))
        for name in config_names()
        if variable_of(name) in environment
    }
    origins = _origins_without_jaas(origins)
    settings: dict[str, object] = {}
    for origin, layer in layers:
        settings |= layer
        origins |= _origins_without_jaas(dict.fromkeys(layer, origin))
    config = parse_config(settings, environment)
    if not config.enable_idempotence and "enable.idempotence" not in origins:
        origins["enable.idempotence"] = Origin(Source.DERIVED, "acks")
    return [
        EffectiveSetting(name, _as_text(name, getattr(config, _FIELD[name])), origins.get(name, DEFAULT))
        for name in _TABLE
    ]


def _origins_without_jaas(origins: dict[str, Origin]) -> dict[str, Origin]:
    origin = origins.pop(JAAS_CONFIG, None)
    if origin is not None:
        both = Origin(origin.source, f"{origin.where} ({JAAS_CONFIG})")
        origins |= {"sasl.username": both, "sasl.password": both}
    return origins


def _as_text(name: str, value: object) -> str:
    if name == "acks":
        return "all" if value == ACKS_ALL else str(value)
    if name == "bootstrap.servers":
        assert isinstance(value, tuple)
        return ",".join(map(address_text, value))
    return told_value(name, value)


def _check_security(values: Mapping[str, Any]) -> None:
    """Checks that a password never travels without TLS, and that no setting would be ignored. Raises InvalidConfig."""
    protocol, mechanism = SecurityProtocol(values["security_protocol"]), values["sasl_mechanism"]
    if protocol is not SecurityProtocol.SASL_SSL:
        for name in ("sasl.username", "sasl.password", "sasl.tokenauth", "sasl.oauthbearer.token.file"):
            if values[_FIELD[name]] not in ("", Secret(""), False):
                raise InvalidConfig(f"{name} is given, and security.protocol is {protocol.value}: it must be SASL_SSL")
    elif mechanism == OAUTHBEARER:
        if not values["sasl_oauthbearer_token_file"]:
            raise InvalidConfig("sasl.oauthbearer.token.file is missing: sasl.mechanism is OAUTHBEARER")
        if values["sasl_tokenauth"]:
            raise InvalidConfig(
                "sasl.tokenauth is true, and sasl.mechanism is OAUTHBEARER: delegation tokens take SCRAM"
            )
    elif not values["sasl_username"] or not values["sasl_password"].reveal():
        raise InvalidConfig(f"sasl.username and sasl.password are needed: sasl.mechanism is {mechanism}")
    if protocol is SecurityProtocol.PLAINTEXT:
        for name in ("ssl.truststore.location", "ssl.keystore.location"):
            if values[_FIELD[name]]:
                raise InvalidConfig(f"{name} is given, and security.protocol is PLAINTEXT: it must be SSL or SASL_SSL")


def _check_transactional(given: Mapping[str, object], values: Mapping[str, Any]) -> None:
    """Checks that batches of transactions are acknowledged and numbered. Raises InvalidConfig."""
    if values["acks"] != ACKS_ALL:
        raise _refuse("acks", given["acks"], "all where a transactional.id is given")
    if not values["enable_idempotence"]:
        raise _refuse("enable.idempotence", given["enable.idempotence"], "true where a transactional.id is given")


def _without_jaas(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings with sasl.jaas.config replaced by the settings in it. Raises InvalidConfig."""
    given = dict(settings)
    if JAAS_CONFIG not in given:
        return given
    login = parse_jaas(_secret(JAAS_CONFIG, given.pop(JAAS_CONFIG)))
    login_settings: dict[str, object] = {"sasl.username": login.username, "sasl.password": login.password}
    if login.is_token:
        login_settings["sasl.tokenauth"] = "true"
    for name, value in login_settings.items():
        if name in given:
            raise InvalidConfig(f"{name} and {JAAS_CONFIG}, which sets it too, are both given: keep one of them")
        given[name] = value
    return given


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    """The client settings among the variables. Raises InvalidConfig that names the variable."""
    given: dict[str, object] = {}
    for name in config_names():
        variable = variable_of(name)
        if variable in environment:
            try:
                _parser(name)(name, environment[variable])
            except InvalidConfig as error:
                raise InvalidConfig(f"environment variable {variable}: {error}") from None
            given[name] = environment[variable]
    return _without_jaas(given)


def _parser(name: str) -> _Parser:
    return _TABLE[name][0] if name in _TABLE else lambda name, value: parse_jaas(_secret(name, value))
