"""The parsed configuration of a client: only values. config.py makes it from names and texts."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from minilog.addresses import Address
from minilog.security.secret import Secret
from minilog.v1 import common_pb2
from minilog.versions import PROTOCOL

_DISTRIBUTION = "pyspark-minilog"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The parsed settings. Times are in milliseconds, sizes in bytes. acks is 0, 1 or -1 (all)."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str
    acks: int
    linger_ms: int
    lingers_alone: bool  # linger.ms was set: also while nothing of the producer is on its way
    batch_size: int
    buffer_memory: int
    compression_type: str
    enable_idempotence: bool
    max_in_flight: int
    max_block_ms: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    session_keepalive_ms: int
    group_id: str
    group_protocol: str
    group_instance_id: str
    group_remote_assignor: str
    queue: str
    max_poll_records: int
    max_poll_interval_ms: int
    max_lock_renewals: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    isolation_level: str
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_poll_bytes: int
    latest_memory_bytes: int
    client_rack: str
    transactional_id: str
    transaction_timeout_ms: int
    security_protocol: str
    ssl_truststore_location: str
    ssl_keystore_location: str
    ssl_truststore_type: str
    ssl_keystore_type: str
    ssl_endpoint_identification_algorithm: str
    sasl_mechanism: str
    sasl_username: str
    sasl_password: Secret
    sasl_tokenauth: bool
    sasl_oauthbearer_token_file: str

    def identity(self) -> common_pb2.ClientIdentity:
        """The identity of this client, for every request."""
        return common_pb2.ClientIdentity(
            client_id=self.client_id, client_version=client_version(), protocol=PROTOCOL.to_wire()
        )


@functools.cache
def client_version() -> str:
    """The version of the installed distribution, "unknown" where it runs from a bare checkout."""
    import importlib.metadata  # no client needs it before it connects

    try:
        return importlib.metadata.version(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
