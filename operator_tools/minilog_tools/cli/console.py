"""`minilog console` serves pages about a cluster to a browser, in the foreground.

A broker that serves a console runs this command, too, with --of-broker (server/console_process.py). Then the process
ends with the broker, and gives way to it. The kernel runs the broker first. Where memory is short, it ends the console
first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import ssl
import threading
import time
from typing import Annotated, Any

import typer

from minilog.addresses import Address, address_text, parse_address
from minilog_broker.imports import uncollected
from minilog_broker.printable import printable
from minilog_broker.server.addresses import check_browsers
from minilog_broker.stop_signal import ended_by_interrupt
from minilog_tools.cli.common import BootstrapServers, CommandConfig, Settings, client_settings, parse_assignments
from minilog_tools.console.settings import ConsoleSettings, console_settings

DEFAULT_LISTEN = "127.0.0.1:9644"
# A browser opens some connections for a page, and each is for one request.
MOST_WAITING = 128
MOST_SERVED = 128
LIFE_S = 30.0  # a page waits 8 s for a broker's answer, and reads records for 5 s
_KEYSTORE = "--ssl-keystore"
_ENDS_WITHIN_S = 5.0  # after the broker's end
_NICENESS = 5
_OUT_OF_MEMORY_SCORE = 500  # of 1000: the kernel chooses this process before the broker
_OUT_OF_MEMORY_FILE = pathlib.Path("/proc/self/oom_score_adj")


def console(
    bootstrap_servers: BootstrapServers = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address for browsers. Off loopback it needs --ssl-keystore.")
    ] = DEFAULT_LISTEN,
    keystore: Annotated[
        pathlib.Path | None,
        typer.Option(_KEYSTORE, metavar="FILE.pem", help="The key and the certificate for https."),
    ] = None,
    actions: Annotated[
        bool,
        typer.Option(
            "--actions",
            help="Let viewers elect, seek, trim, abort and cordon, as far as the rules of the brokers allow.",
        ),
    ] = False,
    settings: Settings = None,
    command_config: CommandConfig = None,
    of_broker: Annotated[bool, typer.Option("--of-broker", hidden=True)] = False,
) -> None:
    """Serve pages about a cluster, for a browser, until SIGINT or SIGTERM.

    Where the cluster has users, viewers log in as one of them.
    """
    if of_broker:
        _give_way()
        threading.Thread(target=_end_with_broker, daemon=True, name="broker-watch").start()
    try:
        address = parse_address(listen)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--listen") from None
    check_browsers("--listen", address, has_tls=keystore is not None, remedy=_KEYSTORE)
    client = {**client_settings(bootstrap_servers, command_config), **parse_assignments(settings)}
    chosen = console_settings(client, has_actions=actions, has_tls=keystore is not None)
    tls = None if keystore is None else _server_context(keystore)
    with ended_by_interrupt(), uncollected():
        from minilog.net.event_loop import new_event_loop

    option = "console.listen" if of_broker else "--listen"
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(chosen, address, tls, option))


def _end_with_broker() -> None:
    """End this process when the broker ends. The function needs a thread, which runs even if the event loop hangs. The
    broker holds the other end of stdin and writes nothing. So the input ends when the broker ends."""
    with contextlib.suppress(OSError):
        while os.read(0, 4_096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_ENDS_WITHIN_S)
    os._exit(1)


def _give_way() -> None:
    """The broker is more important. Where the system forbids a step, the console goes on without it."""
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    with contextlib.suppress(OSError):
        _OUT_OF_MEMORY_FILE.write_text(str(_OUT_OF_MEMORY_SCORE))


def _server_context(keystore: pathlib.Path) -> ssl.SSLContext:
    """A TLS context. Each new connection shows the certificate that the file has at that time. Raises InvalidConfig."""
    with ended_by_interrupt(), uncollected():
        from minilog_broker.server.ingress.transport.server_credentials import ServerFiles

    files = ServerFiles(str(keystore), "", (_KEYSTORE, ""))
    context = files.context()

    def show_latest(connection: Any, name: str | None, _: ssl.SSLContext) -> None:
        connection.context = files.context()

    context.sni_callback = show_latest
    return context


async def _serve(settings: ConsoleSettings, address: Address, tls: ssl.SSLContext | None, option: str) -> None:
    with uncollected():
        from minilog_broker.server.http.listener import HttpListener, ListenerLimits
        from minilog_broker.server.runtime.logging import configure_logging
        from minilog_tools.console.web import Console

    configure_logging("info")
    limits = ListenerLimits(MOST_WAITING, MOST_SERVED, LIFE_S)
    pages = Console(settings)
    listener = HttpListener(*address, pages.app, option=option, limits=limits, tls=tls)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    pages.start()
    await listener.start()
    scheme, doing = "http" if tls is None else "https", "with actions" if settings.has_actions else "read-only"
    print(printable(f"minilog console: {scheme}://{address_text(address)}/ ({doing})"), flush=True)
    try:
        await stopped.wait()
    finally:
        await listener.stop()
        await pages.stop()
