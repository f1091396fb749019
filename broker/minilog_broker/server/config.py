"""The settings of a broker: their names, their defaults and their valid values.

config_layers.py reads them. Users type the attribute names with dots for underscores (settings.md). The error of an
unknown name offers the nearest one. The error of a bad value has the name, the value, its origin and the valid values.
The settings of topics here are for new topics, which this broker makes as the controller: an existing topic has its own
(controller/topic_config.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from minilog.addresses import Address, address_text, parse_address
from minilog.effective import DEFAULT, EffectiveSetting, Origin, told_value
from minilog.errors import InvalidConfig
from minilog.record_batch.bounds import MAX_MESSAGE_BYTES
from minilog.security.protocols import SecurityProtocol
from minilog_broker.controller.topic_config import BUILT_IN, MAX_SEGMENT_BYTES
from minilog_broker.coordinators.groups.assignors import ASSIGNORS
from minilog_broker.printable import shortened
from minilog_broker.quorum.settings import SNAPSHOT_BYTES
from minilog_broker.replication.partition_state import MAX_INT64
from minilog_broker.security import https_url
from minilog_broker.security.https_url import HttpsUrl
from minilog_broker.server.listener_texts import (
    Overrides,
    override_name,
    parse_named,
    parse_protocols,
    tell_named,
    tell_protocols,
)

_DAY_MS = 24 * 60 * 60 * 1000
_MOST_TIMEOUT_MS = 2**31 - 1
_MOST_TOKEN_MS = 10 * 365 * _DAY_MS  # no token has a longer life
_MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of value: the way to read it, and the words for its valid values."""

    expected: str
    parse: Callable[[str], Any]
    is_shown: bool = True
    """Whether an error may show the value, which may hold a secret."""
    none_word: str = ""
    """The word that users type for None."""
    tell: Callable[[Any], Any] = lambda value: value
    """The shown form of a value."""


def _integer(least: int, most: int = MAX_INT64, *, none_word: str | None = None) -> _Kind:
    limits = f"a whole number of at least {least}" if most == MAX_INT64 else f"a whole number from {least} to {most}"

    def parse(text: str) -> int | None:
        if none_word is not None and text == none_word:
            return None
        number = int(text)
        if not least <= number <= most:
            raise ValueError(text)
        return number

    if none_word is None:
        return _Kind(limits, parse)
    return _Kind(f"{limits}, or {none_word}", parse, none_word=none_word)


def _choice(*words: str) -> _Kind:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return _Kind(" or ".join(words), parse)


def _boolean() -> _Kind:
    words = {"true": True, "false": False}

    def parse(text: str) -> bool:
        try:
            return words[text.lower()]
        except KeyError:
            raise ValueError(text) from None

    return _Kind("true or false", parse)


def _address() -> _Kind:
    return _Kind("HOST:PORT, such as broker-1.example:9092", lambda text: address_text(parse_address(text)))


def _text() -> _Kind:
    return _Kind("text", lambda text: text)


def _cluster_name() -> _Kind:
    def parse(text: str) -> str:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
            raise ValueError(text)
        return text

    return _Kind("a name as of a host: small letters, digits and dashes, at most 63", parse)


def _https_url() -> _Kind:
    def parse(text: str) -> str:
        if text:
            HttpsUrl.parse(text)
        return text

    return _Kind(
        https_url.EXPECTED, parse, is_shown=False, tell=lambda text: str(HttpsUrl.parse(text)) if text else text
    )


def _names() -> _Kind:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(filter(None, (name.strip() for name in text.split(";"))))
        are_users = all(
            name.startswith("User:") and name not in ("User:", "User:*", "User:ANONYMOUS") for name in names
        )
        if not are_users:
            raise ValueError(text)
        return names

    return _Kind("User:NAME, or several separated by semicolons", parse, tell=";".join)


def _assignors() -> _Kind:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        if not set(names) <= ASSIGNORS.keys() or len(set(names)) < len(names):
            raise ValueError(text)
        return names

    return _Kind("names out of uniform and range, separated by commas", parse, tell=",".join)


def _listeners() -> _Kind:
    return _Kind("NAME://HOST:PORT, or several separated by commas", parse_named, tell=tell_named)


def _protocols() -> _Kind:
    return _Kind("NAME:PROTOCOL, or several separated by commas", parse_protocols, tell=tell_protocols)


def _setting(kind: _Kind, default: object, *, is_dynamic: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind, "dynamic": is_dynamic})


def _dynamic(kind: _Kind, default: object) -> Any:
    """A setting that may change while a broker runs, for one broker or for all (server/running_config.py)."""
    return _setting(kind, default, is_dynamic=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All settings of one broker. Units are in the names. -1 is "without limit" where settings.md has it."""

    num_partitions: int = _dynamic(_integer(1, 10_000), 1)
    default_replication_factor: int | None = _dynamic(_integer(1, 100, none_word="auto"), None)
    """None: min(3, brokers), decided when a topic is created."""
    min_insync_replicas: int = _dynamic(_integer(1, 100), BUILT_IN.min_in_sync_replicas)
    flush_policy: str = _dynamic(_choice("fsync", "os"), "fsync" if BUILT_IN.flush_on_append else "os")
    unclean_leader_election_enable: bool = _dynamic(_boolean(), BUILT_IN.unclean_leader_election)
    auto_create_topics_enable: str = _setting(_choice("false"), "false")
    """Only commands create topics. The row is here so that a configuration with this value is accepted."""
    max_message_bytes: int = _dynamic(_integer(1024, MAX_MESSAGE_BYTES), BUILT_IN.max_message_bytes)
    segment_bytes: int = _dynamic(_integer(1024, MAX_SEGMENT_BYTES), BUILT_IN.segment_bytes)
    segment_ms: int = _dynamic(_integer(1), BUILT_IN.segment_ms)
    retention_ms: int = _dynamic(_integer(-1), BUILT_IN.retention_ms)
    retention_bytes: int = _dynamic(_integer(-1), BUILT_IN.retention_bytes)
    message_timestamp_before_max_ms: int = _dynamic(_integer(0), BUILT_IN.timestamp_before_max_ms)
    message_timestamp_after_max_ms: int = _dynamic(_integer(0), BUILT_IN.timestamp_after_max_ms)
    cleanup_policy: str = _setting(_choice("delete"), "delete")
    replica_lag_time_max_ms: int = _dynamic(_integer(1), 10_000)
    replica_lag_max_records: int | None = _dynamic(_integer(1, none_word="off"), None)
    replica_fetch_max_bytes: int = _dynamic(_integer(1024, 1024 * _MIB), 16 * _MIB)
    session_keepalive_ms: int = _setting(_integer(1), 1_000)
    follower_replication_throttled_rate_bytes: int | None = _dynamic(_integer(1, none_word="off"), None)
    """Per second, for replicas that are being added to this broker and are not in the ISR yet (Kafka's
    follower.replication.throttled.rate, with its unit); `minilog topic reassign --throttle` sets it for one command."""
    broker_heartbeat_interval_ms: int = _setting(_integer(1), 300)
    broker_session_timeout_ms: int = _setting(_integer(1), 3_000)
    quorum_election_timeout_ms: int = _setting(_integer(10), 300)
    """The pause before a candidate stands again, without the jitter."""
    quorum_fetch_timeout_ms: int = _setting(_integer(10), 2_000)
    """The silence after which a voter looks for a new leader, and after which a leader without a majority resigns."""
    metadata_log_max_record_bytes_between_snapshots: int = _dynamic(_integer(1024), SNAPSHOT_BYTES)
    """The bytes of replayed metadata log between two snapshots of the image."""
    transaction_timeout_ms: int = _setting(_integer(1, _MOST_TIMEOUT_MS), 900_000)
    """The silence of its writers after which a transaction is aborted, where they asked for no other time-out."""
    transaction_max_timeout_ms: int = _setting(_integer(1, _MOST_TIMEOUT_MS), _DAY_MS)
    """The longest time-out that writers may ask for."""
    group_consumer_session_timeout_ms: int = _setting(_integer(1, _MOST_TIMEOUT_MS), 45_000)
    """A member of a group that is silent for so long is fenced."""
    group_consumer_heartbeat_interval_ms: int = _setting(_integer(1, _MOST_TIMEOUT_MS), 5_000)
    """How often members are heard."""
    group_consumer_max_size: int = _setting(_integer(1), 1_000)
    """Members of one group."""
    group_consumer_assignors: tuple[str, ...] = _setting(_assignors(), ("uniform", "range"))
    """Those that members may ask for; the first for members that ask for none."""
    controlled_shutdown_timeout_ms: int = _dynamic(_integer(0), 10_000)
    delete_delay_ms: int = _dynamic(_integer(0), 60_000)
    auto_leader_rebalance_enable: bool = _dynamic(_boolean(), True)
    leader_imbalance_check_interval_ms: int = _dynamic(_integer(1), 300_000)
    """Kafka's leader.imbalance.check.interval.seconds, in milliseconds as all our times are."""
    log_retention_check_interval_ms: int = _dynamic(_integer(1), 300_000)
    """The time between two rounds of retention."""
    log_scrub_interval_ms: int = _dynamic(_integer(0), 604_800_000)
    """The time between two scrubs of the partitions that this broker leads. 0: the broker scrubs none."""
    log_scrub_max_bytes_per_second: int = _dynamic(_integer(65_536), 4 * _MIB)
    """The rate at which this broker reads for its own scrub and for the scrubs of other brokers together."""
    log_cleaner_enable: bool = _dynamic(_boolean(), True)
    """Whether this broker's cleaner works. It is one thread."""
    log_cleaner_dedupe_buffer_size: int = _dynamic(_integer(_MIB, 1024 * _MIB), 128 * _MIB)
    """The bytes of the table of keys and their newest offsets (storage/compaction/newest_offsets.py)."""
    log_cleaner_io_max_bytes_per_second: int = _dynamic(_integer(65_536), 64 * _MIB)
    """The rate at which the cleaner reads and writes together. Kafka has no bound unless one is set."""
    log_cleaner_backoff_ms: int = _dynamic(_integer(1), 15_000)
    """The pause of the cleaner after it found no log to clean."""
    queued_max_request_bytes: int = _setting(_integer(_MIB), 256 * _MIB)
    """The bytes of clients that are not on disk yet. Half of it is for messages of which only a part is here."""
    queued_max_response_bytes: int = _setting(_integer(_MIB), 256 * _MIB)
    """The bytes that were read for clients and that they have not taken yet."""
    page_cache_bytes: int | None = _setting(_integer(_MIB, none_word="off"), 64 * _MIB)
    """The last written bytes of logs that stay in the page cache; off: the kernel decides."""
    max_connections: int = _setting(_integer(16), 1_000)
    """Connections to this broker's port. Above the limit the broker closes those that were silent longest. At most a
    quarter of the files that the process may open."""
    connections_max_idle_ms: int = _setting(_integer(1_000, _MOST_TIMEOUT_MS), 600_000)
    """The time after which a connection without calls is closed."""
    log_level: str = _dynamic(_choice("debug", "info", "warning", "error"), "info")
    """The least level of log lines on stderr."""
    advertised_address: str | None = _setting(_address(), None)
    """HOST:PORT for clients, and for other brokers where they have no listener of their own; None: the listen
    address."""
    listeners: tuple[tuple[str, Address], ...] = _setting(_listeners(), ())
    """Named listeners for clients, beside that of `--listen` or in its place."""
    advertised_listeners: tuple[tuple[str, Address], ...] = _setting(_listeners(), ())
    """The addresses for clients that come by such a listener; by default those on which it listens."""
    listener_security_protocol_map: tuple[tuple[str, SecurityProtocol], ...] = _setting(_protocols(), ())
    security_protocol: str = _setting(_choice(*(protocol.value for protocol in SecurityProtocol)), "PLAINTEXT")
    """The protocol of the clients' listener. Without PLAINTEXT rules count, and brokers need a listener of their
    own."""
    ssl_keystore_location: str = _setting(_text(), "")
    """PEM: the private key, and the certificate for clients."""
    ssl_truststore_location: str = _setting(_text(), "")
    """PEM: the trusted authorities of clients' certificates, where security.protocol is SSL."""
    cluster_name: str = _setting(_cluster_name(), "minilog")
    """The cluster's name in certificates of brokers: `broker:<cluster>:<id>`."""
    inter_broker_listen: str | None = _setting(_address(), None)
    """HOST:PORT for other brokers alone, mutual TLS; None: they share the clients' listener, in the clear."""
    inter_broker_advertised_address: str | None = _setting(_address(), None)
    inter_broker_ssl_keystore_location: str = _setting(_text(), "")
    inter_broker_ssl_truststore_location: str = _setting(_text(), "")
    stream_port_offset: int = _setting(_integer(-64_000, 64_000), 1_000)
    """The distance from a port of calls to its port of streams. The same on all brokers of a cluster."""
    super_users: tuple[str, ...] = _setting(_names(), ())
    """`User:NAME;User:NAME`: users that may do everything, without rules."""
    stale_access_rules_enable: bool = _setting(_boolean(), False)
    sasl_scram_users_file: str = _setting(_text(), "")
    """Verifiers of users outside of the metadata, one JSON object a line: the first administrators."""
    sasl_oauthbearer_jwks_file: str = _setting(_text(), "")
    """The keys of the issuer of tokens, a JWK set."""
    sasl_oauthbearer_jwks_endpoint_url: str = _setting(_https_url(), "")
    """The URL of these keys, in the place of the file. Without both the broker takes no token."""
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = _setting(_integer(1_000, _MOST_TIMEOUT_MS), 3_600_000)
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = _setting(_integer(10, _MOST_TIMEOUT_MS), 100)
    """The pause after a failed fetch, or after one for an unknown key that brought nothing new; doubled each time."""
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = _setting(_integer(10, _MOST_TIMEOUT_MS), 10_000)
    sasl_oauthbearer_jwks_endpoint_ssl_truststore_location: str = _setting(_text(), "")
    """PEM: the trusted authorities of the endpoint's certificate; empty: those of the machine."""
    sasl_oauthbearer_expected_issuer: str = _setting(_text(), "")
    sasl_oauthbearer_expected_audience: str = _setting(_text(), "")
    delegation_token_max_lifetime_ms: int = _dynamic(_integer(1, _MOST_TOKEN_MS), 7 * _DAY_MS)
    delegation_token_expiry_time_ms: int = _dynamic(_integer(1, _MOST_TOKEN_MS), _DAY_MS)
    """The life of a delegation token before a renewal. The controller's values of these three count."""
    delegation_token_expiry_check_interval_ms: int = _dynamic(_integer(1, _MOST_TOKEN_MS), 3_600_000)
    connections_max_reauth_ms: int = _dynamic(_integer(1_000, _MOST_TIMEOUT_MS), 3_600_000)
    """The lifetime of a session that began with a password."""
    console_listen: str | None = _setting(_address(), None)
    """HOST:PORT where browsers find the console that this broker serves by a process beside it; None: nowhere."""
    console_actions_enable: bool = _setting(_boolean(), False)
    """Whether viewers of the console may change what their rights allow."""
    console_ssl_keystore_location: str = _setting(_text(), "")
    """PEM: the key and certificate that the console shows browsers."""
    console_ssl_truststore_location: str = _setting(_text(), "")
    """PEM: the authorities by which the console believes the certificates of brokers."""
    listener_overrides: Overrides = dataclasses.field(default_factory=dict)
    """The own settings of named listeners (`listener.name.NAME.SETTING`)."""

    @property
    def flush_on_append(self) -> bool:
        """Whether an append counts only after an fdatasync."""
        return self.flush_policy == "fsync"

    def stream_address(self, address: Address) -> Address:
        """The port of streams beside a port of calls."""
        host, port = address
        return host, port + self.stream_port_offset


_KINDS: dict[str, _Kind] = {
    field.name.replace("_", "."): field.metadata["kind"]
    for field in dataclasses.fields(BrokerConfig)
    if "kind" in field.metadata
}


DYNAMIC_NAMES = frozenset(
    field.name.replace("_", ".") for field in dataclasses.fields(BrokerConfig) if field.metadata.get("dynamic")
)
"""The settings that may change while a broker runs. All others need a restart."""


def setting_names() -> list[str]:
    """All names as users type them."""
    return list(_KINDS)


def unknown_name(name: str, names: Iterable[str], where: str) -> InvalidConfig:
    """The error for an unknown name, with the nearest one offered. `names`: the valid ones."""
    nearest = difflib.get_close_matches(shortened(name), list(names), n=1, cutoff=0.5)
    offer = f"did you mean {nearest[0]}?" if nearest else "docs/reference/settings.md has the table of settings"
    return InvalidConfig(f"unknown setting {shortened(name)} ({where}): {offer}")


def effective_settings(config: BrokerConfig, origins: Mapping[str, Origin]) -> list[EffectiveSetting]:
    """Each effective setting with its origin: that in `origins`, else a default."""
    settings = []
    for name, kind in _KINDS.items():
        value = getattr(config, name.replace(".", "_"))
        text = told_value(name, None if value is None else kind.tell(value), kind.none_word)
        settings.append(EffectiveSetting(name, text, origins.get(name, DEFAULT)))
    for overridden, value in config.listener_overrides.items():
        name = override_name(overridden)
        settings.append(EffectiveSetting(name, told_value(name, value, ""), origins.get(name, DEFAULT)))
    return settings


def parse_setting(name: str, text: str, where: str) -> Any:
    """The value of a setting from its text. Raises InvalidConfig."""
    kind = _KINDS.get(name)
    if kind is None:
        raise unknown_name(name, _KINDS, where)
    try:
        return kind.parse(text.strip())
    except ValueError:
        assignment = f"{name}={shortened(text)}" if kind.is_shown else name
        raise InvalidConfig(f"{assignment} ({where}) is not valid: expected {kind.expected}") from None
