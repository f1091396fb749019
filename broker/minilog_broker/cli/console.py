"""`minilog console`: pages about a cluster for a browser, in the foreground."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import ssl
from typing import Annotated

import typer

from minilog.addresses import Address, address_text, parse_address
from minilog.errors import InvalidConfig
from minilog_broker.cli.common import BootstrapServers, CommandConfig, client_settings
from minilog_broker.console.loopback import is_loopback
from minilog_broker.console.settings import ConsoleSettings, console_settings
from minilog_broker.imports import uncollected
from minilog_broker.printable import printable
from minilog_broker.stop_signal import ended_by_interrupt

DEFAULT_LISTEN = "127.0.0.1:9644"
# A browser opens some connections for a page, and each is for one request.
MOST_WAITING = 128
MOST_SERVED = 128
LIFE_S = 30.0  # a page waits 8 s for a broker's answer, and reads records for 5 s


def console(
    bootstrap_servers: BootstrapServers = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address for browsers. Off loopback with --ssl-keystore only.")
    ] = DEFAULT_LISTEN,
    keystore: Annotated[
        pathlib.Path | None,
        typer.Option("--ssl-keystore", metavar="FILE.pem", help="Key and certificate: browsers come by https."),
    ] = None,
    actions: Annotated[
        bool,
        typer.Option(
            "--actions",
            help="Let viewers elect, seek, trim, abort and cordon, as far as the rules of the brokers allow.",
        ),
    ] = False,
    command_config: CommandConfig = None,
) -> None:
    """Serve pages about a cluster, for a browser, until SIGINT or SIGTERM.

    Where the cluster has users, viewers log in as one of them.
    """
    try:
        address = parse_address(listen)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--listen") from None
    if keystore is None and not is_loopback(address[0]):
        raise InvalidConfig(
            f"--listen {listen} would be plaintext on an address that others reach: listen on 127.0.0.1, or give a key "
            "and a certificate with --ssl-keystore"
        )
    client = client_settings(bootstrap_servers, command_config)
    settings = console_settings(client, has_actions=actions, has_tls=keystore is not None)
    tls = None if keystore is None else _server_context(keystore)
    with ended_by_interrupt(), uncollected():
        from minilog.net.event_loop import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(settings, address, tls))


def _server_context(keystore: pathlib.Path) -> ssl.SSLContext:
    """Raises InvalidConfig."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(keystore)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidConfig(
            f"--ssl-keystore {keystore} cannot be used ({error.strerror or error}): it is a PEM file with a private "
            "key without a password, and its certificate"
        ) from None
    return context


async def _serve(settings: ConsoleSettings, address: Address, tls: ssl.SSLContext | None) -> None:
    with uncollected():
        from minilog_broker.console.web import Console
        from minilog_broker.server.http.listener import HttpListener, ListenerLimits

    limits = ListenerLimits(MOST_WAITING, MOST_SERVED, LIFE_S)
    pages = Console(settings)
    listener = HttpListener(*address, pages.app, option="--listen", limits=limits, tls=tls)
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
