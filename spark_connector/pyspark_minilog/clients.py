"""Clients of this process, kept between tasks: a connection costs more than a small task.

Python workers are forked by a daemon that never makes a client, and live for many tasks; the driver's long-lived source
process keeps one Admin. A client is lent to one user at a time and comes back only from a use that went well: after
a failure it is closed, so that nothing of a failed task is sent, or handed out, later.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pyspark_minilog.config_file import with_file
from pyspark_minilog.worker import settle_in

if TYPE_CHECKING:  # who is lent one has loaded it, and a process needs one kind of them as a rule
    from minilog import Admin, Consumer, Producer
    from minilog.sync.transaction import Transactions

_AnyClient: TypeAlias = "Admin | Consumer | Producer | Transactions"
_Client = TypeVar("_Client", "Admin", "Consumer", "Producer", "Transactions")
_Key = tuple[type, tuple[tuple[str, Any], ...]]

# One of each kind and configuration: a worker runs one task at a time, more would only be connections left behind.
_idle: dict[_Key, _AnyClient] = {}
# A process that serves many queries of many configurations does not collect clients without end.
_MAX_IDLE = 8
# One that logs in by a delegation token is closed after so long: when the token is over it would try for ever, and each
# failure takes the place of an honest login from this host.
_IDLE_WITH_TOKEN_S = 60.0
_ends: dict[_Key, threading.Timer] = {}
_guard = threading.Lock()


@contextlib.contextmanager
def lend(kind: type[_Client], settings: Mapping[str, Any]) -> Iterator[_Client]:
    """A client of this kind, an idle one if there is one; what its configuration file says is read here. Raises what
    its constructor raises, InvalidConfig."""
    settings = with_file(settings)
    key = (kind, tuple(sorted(settings.items(), key=lambda each: each[0])))
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


def _keep(key: _Key, client: _AnyClient) -> None:
    """The one that was idle for longest has to go where there are too many."""
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
    for each in out:
        _close(each)


def _stay(key: _Key) -> None:
    """It is used again, or closed. Under the guard."""
    if (end := _ends.pop(key, None)) is not None:
        end.cancel()


def _let_go(key: _Key, client: _AnyClient) -> None:
    """Nobody has used it for long."""
    with _guard:
        if _idle.get(key) is not client:
            return
        del _idle[key]
        _ends.pop(key, None)
    _close(client)


def _close(client: _AnyClient) -> None:
    from minilog import Producer

    if isinstance(client, Producer):
        client.close(timeout=0.0)  # what a failed task has not had acknowledged is not worth waiting for
    else:
        client.close()
