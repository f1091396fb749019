"""The console that a broker serves: its listener, its certificate, its command line, and its answer at --http."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from minilog.addresses import Address, host_of
from minilog.errors import InvalidConfig
from minilog_broker.server.config_layers import load_config
from minilog_broker.server.console_options import ConsoleOptions, console_options
from minilog_broker.server.console_process import LONG_LIFE_S, LONGEST_PAUSE_S, PAUSE_S, Pauses, console_command
from minilog_broker.server.health import ConsoleCondition
from minilog_broker.server.http.app import console_answer
from tests.rules import proves

pytestmark = proves("CON.5")

LOOPBACK = ("127.0.0.1", 9092)
HERE, ELSEWHERE = {"console.listen": "127.0.0.1:9644"}, {"console.listen": "0.0.0.0:9644"}
PEERS = {
    "inter.broker.listen": "127.0.0.1:9192",
    "inter.broker.ssl.keystore.location": "broker.pem",
    "inter.broker.ssl.truststore.location": "brokers.pem",
}
SECURED = {**PEERS, "security.protocol": "SASL_SSL", "ssl.keystore.location": "server.pem"}
CERTIFICATES = {**SECURED, "security.protocol": "SSL", "ssl.truststore.location": "users.pem"}


def served(settings: Mapping[str, str], listen: Address | None = LOOPBACK) -> ConsoleOptions:
    options = console_options(listen, load_config(overrides=settings))
    assert options is not None
    return options


def test_without_an_address_there_is_no_console() -> None:
    assert console_options(LOOPBACK, load_config()) is None


def test_the_console_asks_its_broker_where_clients_find_it() -> None:
    options = served({**HERE, "advertised.address": "b1.example:19092"})
    assert dict(options.client) == {"bootstrap.servers": "b1.example:19092"}
    assert (options.listen, options.keystore, options.has_actions) == (("127.0.0.1", 9644), "", False)


def test_viewers_log_in_where_a_listener_lets_them() -> None:
    inside = {
        **SECURED,
        **HERE,
        "security.protocol": "PLAINTEXT",
        "listeners": "users://127.0.0.1:9094",
        "listener.security.protocol.map": "users:SASL_SSL",
        "console.ssl.truststore.location": "clients.pem",
    }
    assert dict(served(inside).client) == {
        "bootstrap.servers": "127.0.0.1:9094",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "clients.pem",
    }


def test_off_loopback_it_has_the_certificate_of_its_listener_where_none_is_given() -> None:
    assert served({**SECURED, **HERE}).keystore == ""
    own = served({**SECURED, **ELSEWHERE})
    assert (own.keystore, own.keystore_setting) == ("server.pem", "ssl.keystore.location")
    given = served({**SECURED, **ELSEWHERE, "console.ssl.keystore.location": "pages.pem"})
    assert (given.keystore, given.keystore_setting) == ("pages.pem", "console.ssl.keystore.location")
    assert served({**HERE, "console.ssl.keystore.location": "pages.pem"}).keystore == "pages.pem"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (ELSEWHERE, "would be plaintext on an address that others reach"),
        ({**CERTIFICATES, **HERE}, "no listener of this broker is SASL_SSL"),
        ({**HERE, "console.ssl.truststore.location": "clients.pem"}, "it would do nothing"),
        ({"console.actions.enable": "true"}, "console.listen is not"),
        ({"console.ssl.keystore.location": "pages.pem"}, "console.listen is not"),
        ({"console.listen": "9644"}, "expected HOST:PORT"),
    ],
)
def test_a_console_that_could_not_be_what_it_seems_is_refused(settings: Mapping[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        served(settings)


def test_its_command_line_has_what_was_set() -> None:
    plain = console_command(served(HERE))
    assert plain[-5:] == ["--of-broker", "--listen", "127.0.0.1:9644", "-c", "bootstrap.servers=127.0.0.1:9092"]
    command = console_command(served({**SECURED, **ELSEWHERE, "console.actions.enable": "true"}))
    assert "--actions" in command
    assert command[command.index("--ssl-keystore") + 1] == "server.pem"
    assert "security.protocol=SASL_SSL" in command


def test_pauses_between_lives_grow_to_a_bound_and_begin_anew_after_a_long_life() -> None:
    pauses = Pauses()
    assert [pauses.after(0.5) for _ in range(3)] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]
    assert max(pauses.after(0.5) for _ in range(2_000)) == LONGEST_PAUSE_S
    assert pauses.after(LONG_LIFE_S) == PAUSE_S


@pytest.mark.parametrize(
    ("console", "host", "status", "words"),
    [
        (ConsoleCondition(), "b1:8080", 404, "--console 127.0.0.1:9644"),
        (ConsoleCondition(("127.0.0.1", 9644)), "127.0.0.1:8080", 503, "does not answer yet"),
        (ConsoleCondition(("127.0.0.1", 9644), False, True), "127.0.0.1:8080", 307, "http://127.0.0.1:9644/"),
        (ConsoleCondition(("::1", 9644), False, True), "[::1]:8080", 307, "http://[::1]:9644/"),
        (ConsoleCondition(("127.0.0.1", 9644), False, True), "b1:8080", 403, "ssh -L 9644:127.0.0.1:9644"),
        (ConsoleCondition(("10.0.0.1", 9644), True, True), "b1:8080", 307, "https://10.0.0.1:9644/"),
        (ConsoleCondition(("0.0.0.0", 9644), True, True), "b1.example:8080", 307, "https://b1.example:9644/"),
        (ConsoleCondition(("0.0.0.0", 9644), True, True), "b1/@evil", 307, "https://0.0.0.0:9644/"),
    ],
)
def test_http_leads_to_the_console_or_says_why_not(
    console: ConsoleCondition, host: str, status: int, words: str
) -> None:
    answer = console_answer(console, host)
    assert answer.status_code == status
    assert words in (answer.headers["location"] if status == 307 else bytes(answer.body).decode())
    assert answer.headers["cache-control"] == "no-store"


def test_the_host_of_a_request_is_without_its_port() -> None:
    assert [host_of(header) for header in ("a.b:80", "[::1]:80", "a.b", "")] == ["a.b", "::1", "a.b", ""]
