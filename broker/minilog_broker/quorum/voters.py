"""Who votes, as the metadata log records it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter of the metadata quorum: known by its id and the id of its data directory; the address may change."""

    broker_id: int
    directory_id: bytes
    host: str
    port: int
