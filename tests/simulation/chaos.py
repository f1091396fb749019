"""Faults at random moments, as the plan says how often; and the end of them, when the liveness phase begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster


class Chaos:
    """See the module's text."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def heal(self) -> None:
        """No fault any more."""
