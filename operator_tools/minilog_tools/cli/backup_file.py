"""The file of `minilog cluster backup`: the metadata of a cluster, without data and without secrets. Pure.

    {"form": "minilog cluster metadata", "version": 2, "sha256": "...", "content": {...}}

`sha256` is that of `content` as canonical JSON: keys in order, no spaces, UTF-8. `decode` refuses a later version of
the form, and a file whose content has another checksum.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from minilog.admin.security import Quota
from minilog.security.access_rules import AccessRule
from minilog.types import BrokerSetting
from minilog_broker.failure import CommandFailed

FORM, VERSION = "minilog cluster metadata", 2
READABLE = (1, VERSION)  # version 2 brought the settings of queues


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTopic:
    """One topic. `configs` has its settings, also those values from its creation that are not built in. `schemas` has
    all versions of a typed topic's schema in order, each as the JSON of its message (typed.proto), and
    `withdrawn_schemas` the numbers of those that were withdrawn."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    schemas: list[dict[str, Any]] = field(default_factory=list)
    withdrawn_schemas: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOffset:
    """The offset at which a group goes on in one partition."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The content of a file. `users` has the mechanisms of each user by name, and no secrets. `queues` has the settings
    of each queue that has any. A file of version 1 has no `queues`."""

    cluster_id: str
    level: int
    topics: list[KeptTopic] = field(default_factory=list)
    broker_settings: list[BrokerSetting] = field(default_factory=list)
    users: dict[str, list[str]] = field(default_factory=dict)
    access_rules: list[AccessRule] = field(default_factory=list)
    quotas: list[Quota] = field(default_factory=list)
    groups: dict[str, list[KeptOffset]] = field(default_factory=dict)
    queues: dict[str, dict[str, str]] = field(default_factory=dict)


def encode(metadata: Metadata) -> bytes:
    """The bytes of the whole file."""
    content = msgspec.to_builtins(metadata)
    document = {"form": FORM, "version": VERSION, "sha256": _checksum(content), "content": content}
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def decode(data: bytes, name: str) -> Metadata:
    """The content of a file. Raises CommandFailed for a file of another kind, a damaged one, or one of a later
    version."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CommandFailed(f"{name} is no whole backup of a cluster's metadata ({error}): take another copy") from None
    if not isinstance(document, dict) or document.get("form") != FORM:
        raise CommandFailed(f"{name} is no backup of a cluster's metadata: give a file of minilog cluster backup")
    if document.get("version") not in READABLE:
        raise CommandFailed(
            f"{name} has version {document.get('version')!r} of the form, and this minilog reads versions "
            f"{READABLE[0]} to {VERSION}: restore it with the version that wrote it"
        )
    content = document.get("content")
    if document.get("sha256") != _checksum(content):
        raise CommandFailed(f"{name} is damaged, because its content has another checksum: take another copy")
    try:
        return msgspec.convert(content, Metadata)
    except msgspec.ValidationError as error:
        raise CommandFailed(f"{name} is not as minilog cluster backup writes it: {error}") from None


def _checksum(content: object) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
