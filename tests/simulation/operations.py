"""What an operator does meanwhile: creates, deletes and grows topics named `other-<n>`. Being written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster


class Operator:
    """See the module's text."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
