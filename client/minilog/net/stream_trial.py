"""Opens a stream to a broker, and ends it at once: whether this client reaches the broker's port of streams."""

from __future__ import annotations

import asyncio
import contextlib

from minilog.errors import MinilogError
from minilog.net.network_client import NetworkClient
from minilog.net.stream_frames import SharedMemory
from minilog.net.stream_opener import BrokerOpener
from minilog.stream_messages import FETCH


async def try_stream(cluster: NetworkClient, broker_id: int, within_s: float) -> None:
    """Note in the reachability of `cluster` whether a stream opens within `within_s`. A broker that refuses this client
    is reached."""
    address, stream_address = cluster.address(broker_id), cluster.stream_address(broker_id)
    if address is None or stream_address is None:
        return
    opener = BrokerOpener(cluster, address, stream_address, FETCH, SharedMemory())
    try:
        stream = await opener.open(within_s)
    except TimeoutError as error:
        opener.not_opened(error)
    except OSError as error:
        opener.failed(error)
    except MinilogError:
        return
    else:
        with contextlib.suppress(OSError):
            stream.cancel()
        await asyncio.sleep(0)
