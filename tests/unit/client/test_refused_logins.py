"""Brokers that do not let a client in any more, as a producer's and a consumer's cores tell it."""

from __future__ import annotations

import pytest

from minilog.consumer.refusals import ALL, BrokerRefusals
from minilog.errors import AuthenticationFailed, UnknownOutcome
from minilog.net.reachability import refuses_certificate
from tests.unit.client.brokers import Brokers
from tests.unit.client.producing import Producing

REFUSAL = AuthenticationFailed("authentication failed: see the password")


def proven(partitions: int = 1) -> Producing:
    cluster = Producing(Brokers(partitions))
    for partition in range(partitions):
        cluster.send(b"first", partition=partition)
    cluster.run()
    return cluster


def refuse(cluster: Producing, broker: int = 1) -> None:
    cluster.lose_connection(broker)
    cluster.down.add(broker)
    cluster.sender.connection_refused(broker, REFUSAL)
    cluster.run()


def test_records_for_a_leader_that_does_not_let_the_client_in_fail_at_once() -> None:
    cluster = proven()
    cluster.down.add(1)
    cluster.lose_connection(1)
    waiting = cluster.send(b"waiting")
    refuse(cluster)
    with pytest.raises(AuthenticationFailed, match=r"1 records for partition 0 .* were not written: authentication"):
        waiting.result(0)
    assert cluster.accumulator.used_bytes() == 0


def test_a_write_that_may_have_landed_is_unknown() -> None:
    cluster = proven()
    cluster.mute = True
    out, waiting = cluster.send(b"out"), cluster.send(b"behind")
    cluster.run()
    refuse(cluster)
    with pytest.raises(UnknownOutcome, match="AUTHENTICATION_FAILED"):
        out.result(0)
    assert waiting.done()


def test_the_next_record_tries_again_and_is_written_when_the_client_is_let_in() -> None:
    cluster = proven()
    cluster.down.add(1)
    refuse(cluster)
    cluster.down.clear()
    again = cluster.send(b"again")
    cluster.run(2_000)
    assert again.result(0).offset == 1


def test_other_leaders_are_not_concerned() -> None:
    cluster = proven(2)
    cluster.brokers.move(2, partition=1)
    cluster.cache.apply(cluster.brokers.metadata())
    cluster.lose_connection(1)
    refused, fine = cluster.send(b"refused", partition=0), cluster.send(b"fine", partition=1)
    refuse(cluster)
    cluster.run(2_000)
    assert isinstance(refused.exception(0), AuthenticationFailed)
    assert fine.result(0).partition == 1


def test_a_producer_without_an_id_is_refused_at_once() -> None:
    cluster = Producing(Brokers())
    cluster.refuses_ids = REFUSAL
    waiting = cluster.send(b"waiting")
    cluster.run()
    assert isinstance(waiting.exception(0), AuthenticationFailed)


def test_without_a_leader_the_refused_metadata_is_the_answer() -> None:
    cluster = proven()
    cluster.brokers.move(-1)
    cluster.cache.apply(cluster.brokers.metadata())
    waiting = cluster.send(b"waiting")
    cluster.sender.metadata_refused(REFUSAL)
    cluster.step()
    assert isinstance(waiting.exception(0), AuthenticationFailed)


class TestPolls:
    def test_a_refusal_is_news_once_and_then_the_end_of_each_poll(self) -> None:
        refusals = BrokerRefusals()
        refusals.refused(1, REFUSAL, 0.0)
        with pytest.raises(AuthenticationFailed):
            refusals.raise_first(1.0, is_over=False)
        refusals.raise_first(2.0, is_over=False)  # a poll waits as long as it may
        with pytest.raises(AuthenticationFailed):
            refusals.raise_first(3.0, is_over=True)

    def test_a_client_that_logs_in_again_raises_nothing(self) -> None:
        refusals = BrokerRefusals()
        refusals.refused(1, REFUSAL, 0.0)
        refusals.let_in(1)
        refusals.raise_first(1.0, is_over=True)

    def test_a_refusal_of_a_broker_that_is_not_asked_any_more_is_forgotten(self) -> None:
        refusals = BrokerRefusals()
        refusals.refused(ALL, REFUSAL, 0.0)
        with pytest.raises(AuthenticationFailed):
            refusals.raise_first(9_000.0, is_over=True)
        refusals.raise_first(10_000.0, is_over=True)


@pytest.mark.parametrize(
    ("details", "refuses"),
    [
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired (_ssl.c:2580)", True),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required (_ssl.c:2580)", True),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:1006)", True),
        ("[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version (_ssl.c:1006)", False),
        ("Connection refused", False),
    ],
)
def test_the_alerts_of_tls_about_certificates_are_known(details: str, refuses: bool) -> None:
    assert refuses_certificate(details) is refuses
