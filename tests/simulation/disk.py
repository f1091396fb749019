"""A disk in memory under the real storage: loses, tears, fails and rots as files.py allows, and as a seed says."""

from __future__ import annotations


class SimulatedDisk:
    """A FileSystem (minilog_broker.storage.files). Being written."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
