"""Bearer tokens and quotas on a secured cluster."""

from __future__ import annotations

import contextlib
import json
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from minilog import Admin, Consumer, NewTopic, Producer
from minilog.admin.security import QuotaAlteration, UserUpsertion
from minilog.errors import AuthenticationFailed, BrokerNotAvailable, TimedOut
from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from tests.secured import SecuredCluster, running_secured_cluster

ISSUER, AUDIENCE = "https://issuer.example", "minilog"
TOPIC = "flights"
WITHIN_S = 20.0
KEY, STRANGERS_KEY = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
PASSWORD = "correct horse battery staple"


def token(key: Any = KEY, algorithm: str = "ES256", **claims: Any) -> str:
    now = int(time.time())
    told = {"sub": "reader", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600, **claims}
    return jwt.encode(told, key, algorithm, headers={"kid": "one"})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    folder = tmp_path_factory.mktemp("tokens")
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
    (folder / "jwks.json").write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256", "use": "sig"}]}))
    settings = {
        "sasl.oauthbearer.jwks.file": str(folder / "jwks.json"),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    with running_secured_cluster(folder / "cluster", 1, settings) as running:
        with Admin(running.client) as admin:
            admin.create_topics([NewTopic(TOPIC)])
            rules = [
                AccessRule(
                    f"User:{name}", "*", Operation.ALL, ResourceKind.TOPIC, "*", Pattern.LITERAL, Permission.ALLOW
                )
                for name in ("reader", "slow")
            ]
            admin.create_access_rules(rules)
            admin.alter_users([UserUpsertion("slow", PASSWORD)])
        yield running


def with_token(cluster: SecuredCluster, folder: pathlib.Path, text: str) -> dict[str, Any]:
    """The settings of a client that shows this token; a file of its own."""
    file = folder / "token"
    file.write_text(text)
    settings = {name: value for name, value in cluster.client.items() if not name.startswith("sasl.")}
    return {**settings, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.file": str(file)}


class TestTokens:
    def test_a_token_says_who_a_client_is(self, cluster: SecuredCluster, tmp_path: pathlib.Path) -> None:
        with Admin(with_token(cluster, tmp_path, token())) as admin:
            assert TOPIC in admin.list_topics()

    def test_a_forged_token_is_refused(self, cluster: SecuredCluster, tmp_path: pathlib.Path) -> None:
        with Admin(with_token(cluster, tmp_path, token(STRANGERS_KEY))) as admin, pytest.raises(AuthenticationFailed):
            admin.list_topics()

    def test_a_token_that_expires_is_renewed_while_a_client_works(
        self, cluster: SecuredCluster, tmp_path: pathlib.Path
    ) -> None:
        """Each token is good for two seconds; the file has another one every second."""
        settings = with_token(cluster, tmp_path, token(exp=int(time.time()) + 2))
        found = 0
        with Producer(settings) as producer, Consumer({**settings, "auto.offset.reset": "latest"}) as consumer:
            consumer.subscribe([TOPIC])
            consumer.poll(2.0)
            for number in range(6):
                with_token(cluster, tmp_path, token(exp=int(time.time()) + 3))
                producer.send(TOPIC, bytes([number])).result(timeout=WITHIN_S)
                found += len(consumer.poll(1.0))
            deadline = time.monotonic() + WITHIN_S
            while found < 6 and time.monotonic() < deadline:
                with_token(cluster, tmp_path, token(exp=int(time.time()) + 3))
                found += len(consumer.poll(0.5))
        assert found == 6


def slow(cluster: SecuredCluster) -> dict[str, Any]:
    return {**cluster.client, "sasl.username": "slow", "sasl.password": PASSWORD}


class TestOldPasswords:
    @pytest.mark.long
    @pytest.mark.quiet  # a login has a second, beside 16 threads that fail to log in
    def test_a_job_that_has_one_keeps_nobody_of_its_host_out(self, cluster: SecuredCluster) -> None:
        """Once: its failures held all places of the host, and others were told of an UNKNOWN error."""
        old = {**cluster.client, "sasl.username": "slow", "sasl.password": "old", "request.timeout.ms": 2000}
        ended = threading.Event()

        def job() -> None:
            while not ended.is_set():
                with Admin(old) as admin, contextlib.suppress(AuthenticationFailed, BrokerNotAvailable):
                    admin.list_topics()

        jobs = [threading.Thread(target=job) for _ in range(16)]
        for each in jobs:
            each.start()
        try:
            time.sleep(2.0)
            logged_in = 0
            for _ in range(5):  # each took two seconds and more; a busy machine may be late with one or two
                honest = {**cluster.client, "request.timeout.ms": 1000}
                with Admin(honest) as admin, contextlib.suppress(BrokerNotAvailable, TimedOut):
                    logged_in += TOPIC in admin.list_topics()
            assert logged_in >= 3
        finally:
            ended.set()
            for each in jobs:
                each.join(WITHIN_S)


class TestQuotas:
    @pytest.mark.dear("it waits for a time-out of the product")
    def test_a_producer_above_its_rate_is_slowed_down(self, cluster: SecuredCluster) -> None:
        """500 KB/s, of which ten seconds' worth may come at once: 7 MB take two seconds more, at least."""
        with Admin(cluster.client) as admin:
            admin.alter_quotas([QuotaAlteration("User:slow", "producer_byte_rate", 500_000)])
        began_s = time.monotonic()
        with Producer({**slow(cluster), "batch.size": 100_000}) as producer:
            futures = [producer.send(TOPIC, bytes(10_000)) for _ in range(700)]
            producer.flush()
        assert all(each.result(timeout=WITHIN_S) for each in futures)
        assert time.monotonic() - began_s > 2.0

    def test_a_connection_above_the_quota_is_refused(self, cluster: SecuredCluster) -> None:
        with Admin(cluster.client) as admin:
            admin.alter_quotas([QuotaAlteration("User:slow", "connections", 0)])
            with (
                Admin({**slow(cluster), "request.timeout.ms": 2000}) as refused,
                pytest.raises(BrokerNotAvailable) as told,
            ):
                refused.list_topics()
            assert "its quota" in str(told.value)
            admin.alter_quotas([QuotaAlteration("User:slow", "connections", None)])
        with Admin(slow(cluster)) as allowed:
            assert TOPIC in allowed.list_topics()
