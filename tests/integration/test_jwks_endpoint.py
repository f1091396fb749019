"""Keys of tokens that are fetched by https: from a real server that answers well, badly, slowly or not at all."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from minilog import Admin
from minilog.errors import AuthenticationFailed, BrokerNotAvailable, MinilogError
from minilog_broker.security.https_url import HttpsUrl
from minilog_broker.server.access import https_fetch
from minilog_broker.server.access.https_fetch import MAX_DOCUMENT_BYTES, FetchFailed, fetch
from tests.cluster import free_ports, running_program
from tests.integration.moving import wait_until
from tests.issuer import AUDIENCE, HOST, NAME, Answer, Handler, Issuer, document, jwks, raw, running_issuer, token
from tests.secured import SecuredCluster, running_secured_cluster

WITHIN_S = 20.0
OLD, NEW, STRANGER = (ec.derive_private_key(each, ec.SECP256R1()) for each in (1_111, 2_222, 3_333))
ENDPOINT = "sasl.oauthbearer.jwks.endpoint"
HEAD = b"HTTP/1.1 200 OK\r\n"
MANY = b"x" * 65_536


@pytest.fixture
def issuer(tmp_path: pathlib.Path) -> Iterator[Issuer]:
    with running_issuer(tmp_path / "issuer") as running:
        yield running


def fetched(issuer: Issuer) -> str:
    return fetch(HttpsUrl.parse(issuer.url), str(issuer.truststore))


def sent_elsewhere(handler: Handler) -> None:
    handler.send_response(302)
    handler.send_header("Location", f"https://{handler.headers['Host']}/elsewhere")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


class TestFetch:
    def test_a_document_comes_whole_with_a_length_in_chunks_or_to_the_end(self, issuer: Issuer) -> None:
        text = jwks(old=OLD)
        content = text.encode()
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in (content[:7], content[7:])) + b"0\r\n\r\n"
        answers = (
            document(text),
            raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks),
            raw(HEAD + b"\r\n" + content),
            raw(HEAD + b"Content-Length: %d\r\n\r\n" % len(content), content[:9], content[9:], pause_s=0.05),
        )
        for each in answers:
            issuer.answer = each
            assert fetched(issuer) == text
        path, headers = issuer.asked[0]
        assert (path, headers["Host"], headers["Connection"]) == (
            "/jwks",
            HttpsUrl.parse(issuer.url).authority,
            "close",
        )

    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            (sent_elsewhere, "the answer has status 302, and not 200. The broker follows no redirection"),
            (document("not here", 404), "the answer has status 404"),
            (document(b"x" * (MAX_DOCUMENT_BYTES + 1)), f"more than {MAX_DOCUMENT_BYTES} bytes"),
            (raw(HEAD + b"\r\n", *[MANY] * 64), "more than"),
            (raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[b"10000\r\n" + MANY + b"\r\n"] * 64), "more than"),
            (raw(HEAD, *[b"X-Header: " + MANY[:60_000] + b"\r\n"] * 64), "more than"),
            (raw(HEAD, *[b"X-Header: x\r\n"] * 1_000), "no whole answer: HTTPException"),
            (raw(HEAD + b"Content-Length: 100\r\n\r\n{}"), "the connection ended before it"),
            (raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n64\r\n{}"), "no whole answer: IncompleteRead"),
            (raw(b"\x00\xff garbage\r\n\r\n"), "no whole answer: BadStatusLine"),
            (raw(b""), "no whole answer"),
            (document(b"\xff\xfe"), "no whole answer: UnicodeDecodeError"),
        ],
    )
    def test_an_answer_that_is_no_document_is_refused_without_showing_it(
        self, issuer: Issuer, answer: Answer, told: str
    ) -> None:
        issuer.answer = answer
        with pytest.raises(FetchFailed, match=told) as refused:
            fetched(issuer)
        assert "garbage" not in str(refused.value)
        assert str(refused.value).isprintable()
        assert len(issuer.asked) == 1  # a redirection is not followed

    def test_a_server_that_is_slow_or_says_nothing_is_not_waited_for(
        self, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each drips on for minutes; all of them side by side."""
        monkeypatch.setattr(https_fetch, "CONNECT_S", 0.5)
        monkeypatch.setattr(https_fetch, "TOTAL_S", 1.0)
        drips = (
            raw(*[HEAD[at : at + 1] for at in range(len(HEAD))] * 30, pause_s=0.3),
            raw(HEAD + b"Content-Length: 1000\r\n\r\n", *[b" "] * 600, pause_s=0.1),
            raw(HEAD + b"\r\n", *[b"1\r\n"] * 600, pause_s=0.1),
            lambda handler: time.sleep(30.0),
        )
        with socket.create_server((HOST, 0)) as silent, concurrent.futures.ThreadPoolExecutor() as threads:
            silent_url = f"https://{HOST}:{silent.getsockname()[1]}/"
            waits = [threads.submit(waited_s, lambda: fetch(HttpsUrl.parse(silent_url), str(issuer.truststore)))]
            for answer in drips:
                issuer.answer = answer
                asked = len(issuer.asked)
                waits.append(threads.submit(waited_s, lambda: fetched(issuer)))
                wait_until(lambda asked=asked: len(issuer.asked) > asked)  # type: ignore[misc]
            for each, limit_s in zip(waits, (0.5, 1.0, 1.0, 1.0, 1.0), strict=True):
                assert limit_s - 0.1 < each.result() < limit_s + 2.0

    def test_only_a_certificate_of_the_authority_for_that_host_is_believed(self, tmp_path: pathlib.Path) -> None:
        with (
            running_issuer(tmp_path / "a") as believed,
            running_issuer(tmp_path / "b", host="issuer.example") as misnamed,
            running_issuer(tmp_path / "c", signs_itself=True) as own,
        ):
            url = HttpsUrl.parse(believed.url)
            assert fetch(url, str(believed.truststore)) == jwks()
            with pytest.raises(FetchFailed, match=r"not trusted: .*certificate is not valid for '127\.0\.0\.1'"):
                fetched(misnamed)
            with pytest.raises(FetchFailed, match="the certificate is not trusted: self-signed"):
                fetch(HttpsUrl.parse(own.url), "")
            for truststore in ("", str(own.truststore)):  # the machine's authorities, and another private one
                with pytest.raises(FetchFailed, match="the certificate is not trusted: unable to get local issuer"):
                    fetch(url, truststore)
            with pytest.raises(FetchFailed, match="the authorities cannot be read: No such file"):
                fetch(url, str(tmp_path / "absent.pem"))
            assert not misnamed.asked
            assert not own.asked

    def test_a_port_that_is_closed_or_speaks_no_tls_is_told(self, issuer: Issuer) -> None:
        (port,) = free_ports(1)
        with pytest.raises(FetchFailed, match="Connection refused"):
            fetch(HttpsUrl.parse(f"https://{HOST}:{port}/"), str(issuer.truststore))
        with running_program(["python3", "-u", "-m", "http.server", "--bind", HOST, str(port)]) as plain:
            assert plain.stdout is not None
            plain.stdout.readline()
            with pytest.raises(FetchFailed, match="no whole answer"):
                fetch(HttpsUrl.parse(f"https://{HOST}:{port}/"), str(issuer.truststore))


def waited_s(work: Callable[[], object]) -> float:
    began_s = time.monotonic()
    with pytest.raises(FetchFailed, match="no whole answer in 1 s"):
        work()
    return time.monotonic() - began_s


def settings(issuer: Issuer, **more: str) -> dict[str, str]:
    return {
        f"{ENDPOINT}.url": issuer.url,
        f"{ENDPOINT}.ssl.truststore.location": str(issuer.truststore),
        "sasl.oauthbearer.expected.issuer": NAME,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        **{f"{ENDPOINT}.{name.replace('_', '.')}": value for name, value in more.items()},
    }


def with_token(cluster: SecuredCluster, folder: pathlib.Path, text: str) -> dict[str, Any]:
    file = folder / "token"
    file.write_text(text)
    known = {name: value for name, value in cluster.client.items() if not name.startswith("sasl.")}
    return {**known, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.file": str(file)}


def login(cluster: SecuredCluster, folder: pathlib.Path, text: str, within_s: float = 5.0) -> None:
    """Raises what a client is told that shows this token."""
    with Admin({**with_token(cluster, folder, text), "request.timeout.ms": int(within_s * 1000)}) as admin:
        admin.list_topics()


class TestBroker:
    @pytest.mark.dear("it waits for the pauses between two questions to an issuer")
    def test_a_broker_takes_tokens_by_the_keys_that_its_issuer_has_now(
        self, issuer: Issuer, tmp_path: pathlib.Path
    ) -> None:
        issuer.answer = document("", 503)
        quick = settings(issuer, retry_backoff_ms="200", retry_backoff_max_ms="400")
        cluster = SecuredCluster(tmp_path / "cluster", 1, quick)
        (port,) = free_ports(1)
        cluster.arguments[1] = [*cluster.arguments[1], "--http", f"{HOST}:{port}"]
        try:
            cluster.start()
            cluster.wait_running()
            with pytest.raises(BrokerNotAvailable):
                login(cluster, tmp_path, token(OLD, "old"))
            assert "has no keys of tokens yet" in cluster.log_text(1)  # the audit log
            assert "the broker refuses all tokens" in cluster.log_text(1)
            with Admin(cluster.client) as admin:  # passwords work
                assert admin.list_topics() == []
            issuer.answer = document(jwks(old=OLD))
            login(cluster, tmp_path, token(OLD, "old"), WITHIN_S)
            with pytest.raises(AuthenticationFailed):
                login(cluster, tmp_path, token(STRANGER, "old"))
            issuer.answer = document(jwks(new=NEW, newer=STRANGER))
            login(cluster, tmp_path, token(NEW, "new"))
            with pytest.raises(AuthenticationFailed):
                login(cluster, tmp_path, token(OLD, "old"))
            found = {name: float(number) for name, number in scraped(port).items()}
            assert found["minilog_token_keys"] == 2.0
            assert 0.0 <= found["minilog_token_keys_age_seconds"] < WITHIN_S
            audited = [each for each in cluster.log_text(1).splitlines() if "FetchKeys" in each][-1]
            assert json.loads(json.loads(audited)["event"])["reason"] == "the keys of tokens are now: 'new', 'newer'"
        finally:
            cluster.end()

    @pytest.mark.long
    @pytest.mark.dear("it waits for the pauses between two questions to an issuer")
    def test_former_keys_stay_in_use_while_the_issuer_answers_wrongly_or_hangs(
        self, issuer: Issuer, tmp_path: pathlib.Path
    ) -> None:
        issuer.answer = document(jwks(old=OLD))
        often = settings(issuer, refresh_ms="1000", retry_backoff_ms="200", retry_backoff_max_ms="400")
        with running_secured_cluster(tmp_path / "cluster", 1, often) as cluster:
            login(cluster, tmp_path, token(OLD, "old"))
            issuer.answer = document("<html>we are sorry</html>")
            wait_until(lambda: "the former keys stay in use" in cluster.log_text(1))
            began, asked = time.monotonic(), len(issuer.asked)
            for _ in range(4):
                login(cluster, tmp_path, token(OLD, "old"))
                with pytest.raises(AuthenticationFailed):
                    login(cluster, tmp_path, token(NEW, "new"))
            assert len(issuer.asked) - asked <= (time.monotonic() - began) / 0.4 + 2
            told = cluster.log_text(1)
            assert told.count("the former keys stay in use") == 1
            assert "we are sorry" not in told
            issuer.answer = document(jwks(new=NEW))
            login(cluster, tmp_path, token(NEW, "new"))
            asked = len(issuer.asked)
            issuer.answer = lambda handler: time.sleep(30.0)
            wait_until(lambda: len(issuer.asked) > asked)
            cluster.processes[1].send_signal(signal.SIGTERM)
            assert cluster.processes[1].wait(6.0) == 0

    @pytest.mark.long
    @pytest.mark.dear("it waits for the pauses between two questions to an issuer")
    def test_unknown_keys_do_not_have_the_issuer_asked_more_often_than_the_pauses_allow(
        self, issuer: Issuer, tmp_path: pathlib.Path
    ) -> None:
        issuer.answer = document(jwks(old=OLD))
        slow = settings(issuer, retry_backoff_ms="1000", retry_backoff_max_ms="4000")
        with running_secured_cluster(tmp_path / "cluster", 1, slow) as cluster:
            login(cluster, tmp_path, token(OLD, "old"))
            began_s = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                for each in [threads.submit(refused, cluster, tmp_path / f"{n}", f"kid-{n}") for n in range(24)]:
                    each.result()
            assert len(issuer.asked) <= 3 + (time.monotonic() - began_s) / 2.0
            login(cluster, tmp_path, token(OLD, "old"))


def scraped(port: int) -> dict[str, str]:
    """What the broker's metrics say of its keys."""
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=15)) as connection:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    return dict(each.rsplit(" ", 1) for each in lines if each.startswith("minilog_token_keys"))


def refused(cluster: SecuredCluster, folder: pathlib.Path, kid: str) -> None:
    folder.mkdir()
    with pytest.raises(MinilogError):
        login(cluster, folder, token(STRANGER, kid), 2.0)
