"""Clients of this process, kept between tasks, because a connection costs more than a small task.

A daemon forks the Python workers and never makes a client itself. A worker lives for many tasks. The driver's
long-lived source process keeps one Admin. `lend` gives a client to one user at a time, and keeps it only after a use
without an error. After an error it closes the client, so nothing of a failed task is sent or handed out later.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar

from pyspark_minilog.login.worker import settle_in
from pyspark_minilog.options.config_file import with_file


class AnyClient(Protocol):
    """An Admin, a Consumer, a Producer, QueueCalls or Transactions. The borrower has loaded the class, and most
    processes need one kind."""

    def __init__(self, config: Mapping[str, Any], /) -> None: ...

    def close(self) -> None: ...


_Client = TypeVar("_Client", bound=AnyClient)
_Key = tuple[type, tuple[tuple[str, Any], ...]]

# One client of each kind and configuration: a worker runs one task at a time, and more would be unused connections.
_idle: dict[_Key, AnyClient] = {}
# A process may serve many queries with many configurations. It does not collect clients without end.
_MAX_IDLE = 8
# A client that logs in by a delegation token is closed after this time without use. With an expired token it would try
# for ever, and each failure takes the place of an honest login from this host.
_IDLE_WITH_TOKEN_S = 60.0
_ends: dict[_Key, threading.Timer] = {}
_guard = threading.Lock()


@contextlib.contextmanager
def lend(kind: type[_Client], settings: Mapping[str, Any]) -> Iterator[_Client]:
    """A client of this kind, an idle one if there is one. This function reads the client's configuration file. Raises
    InvalidConfig, and the errors of the client's constructor."""
    settings = with_file(settings)
    key = (kind, tuple(sorted(settings.items(), key=lambda setting: setting[0])))
    with _guard:
        idle = _idle.pop(key, None)
        _stay(key)
    settle_in()
    client = idle if isinstance(idle, kind) else kind(settings)
    try:
        yield client
    except BaseException:
        _close(client)
        raise
    _keep(key, client)


def _keep(key: _Key, client: AnyClient) -> None:
    """Keep an idle client. If there are too many, close the one that was idle for the longest time."""
    with _guard:
        out = [client] if key in _idle else []
        _idle.setdefault(key, client)
        if len(_idle) > _MAX_IDLE:
            oldest = next(iter(_idle))
            out.append(_idle.pop(oldest))
            _stay(oldest)
        if _idle.get(key) is client and dict(key[1]).get("sasl.tokenauth") == "true":
            _ends[key] = end = threading.Timer(_IDLE_WITH_TOKEN_S, _let_go, (key, client))
            end.daemon = True
            end.start()
    for surplus in out:
        _close(surplus)


def _stay(key: _Key) -> None:
    """Stop the timer of a client that is used again, or closed. The caller holds the guard."""
    if (end := _ends.pop(key, None)) is not None:
        end.cancel()


def _let_go(key: _Key, client: AnyClient) -> None:
    """Close a client that nobody has used for long."""
    with _guard:
        if _idle.get(key) is not client:
            return
        del _idle[key]
        _ends.pop(key, None)
    _close(client)


def _close(client: AnyClient) -> None:
    from minilog import Producer

    if isinstance(client, Producer):
        client.close(timeout=0.0)  # the unacknowledged records of a failed task are not worth waiting for
    else:
        client.close()
