"""SCRAM on a broker: users of the metadata, and those of a file, known without it (the first administrators)."""

from __future__ import annotations

from minilog_broker.controller.image import MetadataImage
from minilog_broker.server.access.authentication_service import ServerMechanism


class ScramUsers:
    def __init__(self, image: MetadataImage, file: str) -> None:
        self._image = image

    def begin(self, mechanism: str) -> ServerMechanism:
        raise AssertionError

    def take_changed(self) -> frozenset[str]:
        return frozenset()
