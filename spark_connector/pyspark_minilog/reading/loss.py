"""The reaction to lost data: fail, or warn and go on (option failOnDataLoss)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyspark_minilog.errors import DataLoss

logger = logging.getLogger(__name__)

_REMEDY = "set failOnDataLoss to false to go on with the records that are left, or start a new query"
# An idle query meets the same loss ten times a second. The report warns of a loss once, and its memory is bounded.
_MAX_REMEMBERED = 10_000


class LossReport:
    """The reports of lost data of one reader."""

    def __init__(self, fail: bool) -> None:
        self._fail = fail
        self._reported: set[str] = set()

    def report(self, losses: Iterable[str]) -> None:
        """Raise DataLoss with all of `losses`, or warn of each new loss."""
        sentences = list(losses)
        if sentences and self._fail:
            raise DataLoss(f"data was lost: {'; '.join(sentences)}. Remedy: {_REMEDY}")
        for loss in sentences:
            if loss not in self._reported and len(self._reported) < _MAX_REMEMBERED:
                self._reported.add(loss)
                logger.warning("data was lost, and the query goes on (failOnDataLoss=false): %s", loss)
