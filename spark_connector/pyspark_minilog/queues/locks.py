"""Renews the locks of a stream's leases, in a thread of the source's process, while a micro-batch is under way.

The thread ends with the process. So a driver that dies loses its locks, and others get the messages.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

logger = logging.getLogger(__name__)

_RENEWAL_PART = 1 / 3  # of the lock: two more attempts fit into the rest
_AFTER_FAILURE_S = 1.0


class LockKeeper:
    """The locks of the leases of one queue. Any thread may call it."""

    def __init__(self, client: Mapping[str, Any], queue: str) -> None:
        self._client = client
        self._queue = queue
        self._held: set[int] = set()
        self._due_s = 0.0  # of the next renewal
        self._guard = threading.Lock()
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_ended = False

    def hold(self, lease_ids: Iterable[int], lock_ms: int) -> None:
        """Renew the locks of these leases from now on. Their locks began just now, for this time."""
        with self._guard:
            if not self._held:
                self._due_s = time.monotonic() + lock_ms / 1000 * _RENEWAL_PART
            self._held |= set(lease_ids)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="minilog-queue-locks", daemon=True)
                self._thread.start()
        self._changed.set()

    def let_go(self, lease_ids: Iterable[int]) -> None:
        """Renew these no more."""
        with self._guard:
            self._held -= set(lease_ids)

    def stop(self) -> None:
        """Renew nothing more."""
        with self._guard:
            self._held.clear()
            self._has_ended = True
        self._changed.set()

    def _work(self) -> None:
        while True:
            with self._guard:
                if self._has_ended:
                    return
                held, due_s = sorted(self._held), self._due_s
            left_s = due_s - time.monotonic() if held else None
            if left_s is not None and left_s <= 0:
                pause_s = self._renew(held)
                with self._guard:
                    self._due_s = time.monotonic() + pause_s
                continue
            self._changed.wait(left_s)
            self._changed.clear()

    def _renew(self, held: list[int]) -> float:
        """Renew, and return the pause before the next time."""
        from pyspark_minilog.login.clients import lend
        from pyspark_minilog.queues.calls import QueueCalls

        try:
            with lend(QueueCalls, self._client) as calls:
                ended, lock_ms = calls.renew(self._queue, held)
        except Exception as error:  # the commit of the batch meets the error, and raises it
            logger.warning("the locks of queue '%s' were not renewed, and are tried again: %s", self._queue, error)
            return _AFTER_FAILURE_S
        with self._guard:
            lost = ended & self._held
            self._held -= ended
        if lost:
            logger.debug("%d leases of queue '%s' hold nothing any more", len(lost), self._queue)
        return lock_ms / 1000 * _RENEWAL_PART
