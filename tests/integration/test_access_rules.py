"""Access rules where they count: what a user may do, what it is told when it may not, and rules that change."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.admin.security import QuotaAlteration, UserDeletion
from minilog.errors import (
    AuthorizationFailed,
    MinilogError,
    UnknownOutcome,
    UnknownTopicOrPartition,
)
from minilog.net.coordinators_of import coordinator_partition
from minilog.security.access_rules import (
    AccessRuleFilter,
    Operation,
    ResourceKind,
)
from tests import programs
from tests.integration.moving import wait_until
from tests.integration.users import OPEN, logs_in, rule, user
from tests.pool import SECURED, shared_cluster
from tests.rules import proves
from tests.secured import SecuredCluster

pytestmark = proves("MD.10")

HIDDEN = "hidden"
WITHIN_S = 15.0


shared = shared_cluster(SECURED)


@pytest.fixture(scope="module")
def cluster(shared: SecuredCluster) -> SecuredCluster:
    with Admin(shared.client) as admin:
        admin.create_topics([NewTopic(each, num_partitions=1) for each in (OPEN, HIDDEN)])
    return shared


@pytest.fixture
def admin(cluster: SecuredCluster) -> Iterator[Admin]:
    with Admin(cluster.client) as client:
        yield client
        client.delete_access_rules([AccessRuleFilter()])


def refused(work: Callable[[], object]) -> bool:
    try:
        work()
    except (AuthorizationFailed, UnknownTopicOrPartition):
        return True
    except UnknownOutcome:  # it was on its way when the stream ended: written perhaps, and not to be sent again
        return False
    return False


class TestWriting:
    def test_a_user_with_the_right_writes(self, cluster: SecuredCluster, admin: Admin) -> None:
        with Producer(user(cluster, admin, "writer", rule("writer", Operation.WRITE))) as producer:
            assert producer.send(OPEN, b"x").result(timeout=WITHIN_S).topic == OPEN

    def test_a_user_who_may_write_nothing_gets_no_producer_id(self, cluster: SecuredCluster, admin: Admin) -> None:
        settings = user(cluster, admin, "viewer", rule("viewer", Operation.DESCRIBE))
        told = r"User:viewer is not allowed to idempotent_write cluster"
        with Producer(settings) as producer, pytest.raises(AuthorizationFailed, match=told):
            producer.send(OPEN, b"x").result(timeout=WITHIN_S)

    def test_a_topic_that_may_not_be_seen_is_none(self, cluster: SecuredCluster, admin: Admin) -> None:
        settings = {**user(cluster, admin, "blind"), "max.block.ms": 4000}
        with Producer(settings) as producer, pytest.raises(UnknownTopicOrPartition):
            producer.send(HIDDEN, b"x").result(timeout=WITHIN_S)

    def test_a_rule_that_is_taken_away_ends_a_stream(self, cluster: SecuredCluster, admin: Admin) -> None:
        with Producer(user(cluster, admin, "former", rule("former", Operation.WRITE))) as producer:
            producer.send(OPEN, b"x").result(timeout=WITHIN_S)
            admin.create_access_rules([rule("former", Operation.DESCRIBE)])
            admin.delete_access_rules([AccessRuleFilter(principal="User:former", operation=Operation.WRITE)])
            wait_until(lambda: refused(lambda: producer.send(OPEN, b"x").result(timeout=WITHIN_S)))

    def test_rules_that_change_while_leaders_die(self, cluster: SecuredCluster, admin: Admin) -> None:
        settings = user(cluster, admin, "moved", rule("moved", Operation.WRITE), rule("moved", Operation.DESCRIBE))
        with Producer({**settings, "delivery.timeout.ms": 6000}) as producer:
            assert is_written(producer)
            cluster.kill(first := leader_of(admin))
            admin.delete_access_rules([AccessRuleFilter(principal="User:moved", operation=Operation.WRITE)])
            wait_until(lambda: refused(lambda: producer.send(OPEN, b"x").result(timeout=WITHIN_S)))
            cluster.start(first)
            cluster.wait_running()
            cluster.kill(second := leader_of(admin))
            while leader_of(admin) == second:
                assert not is_written(producer)
            assert not is_written(producer)
            cluster.kill(first)
            cluster.start(first)  # it has replayed nothing when it is asked
            assert not is_written(producer)
            admin.create_access_rules([rule("moved", Operation.WRITE)])
            wait_until(lambda: is_written(producer))
            cluster.start(second)
            cluster.wait_running()


def leader_of(admin: Admin) -> int:
    """Of the open topic; 0 while it has none."""
    return admin.describe_topics([OPEN])[0].partitions[0].leader or 0


def is_written(producer: Producer) -> bool:
    try:
        producer.send(OPEN, b"x").result(timeout=WITHIN_S)
    except MinilogError:
        return False
    return True


def poll_for_long(consumer: Consumer) -> None:
    for _ in range(int(WITHIN_S)):
        consumer.poll(1.0)


class TestReading:
    def test_a_user_with_the_right_reads(self, cluster: SecuredCluster, admin: Admin) -> None:
        with Producer(cluster.client) as producer:
            producer.send(OPEN, b"for the reader").result(timeout=WITHIN_S)
        settings = user(cluster, admin, "reader", rule("reader", Operation.READ))
        with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe([OPEN])
            wait_until(lambda: any(each.value == b"for the reader" for each in consumer.poll(1.0)))

    def test_a_user_who_may_only_look_is_told_so(self, cluster: SecuredCluster, admin: Admin) -> None:
        settings = user(cluster, admin, "viewer", rule("viewer", Operation.DESCRIBE))
        with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition(OPEN, 0)])
            with pytest.raises(AuthorizationFailed, match=r"User:viewer is not allowed to read topic 'open'"):
                poll_for_long(consumer)

    def test_a_reader_whose_rule_is_taken_away_is_told(self, cluster: SecuredCluster, admin: Admin) -> None:
        settings = user(cluster, admin, "ousted", rule("ousted", Operation.READ))
        with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition(OPEN, 0)])
            consumer.poll(1.0)
            admin.create_access_rules([rule("ousted", Operation.DESCRIBE)])
            admin.delete_access_rules([AccessRuleFilter(principal="User:ousted", operation=Operation.READ)])
            wait_until(lambda: refused(lambda: consumer.poll(1.0)))


class TestTheRest:
    def test_topics_are_listed_to_users_who_may_see_them(self, cluster: SecuredCluster, admin: Admin) -> None:
        with Admin(user(cluster, admin, "lister", rule("lister", Operation.DESCRIBE))) as client:
            assert OPEN in client.list_topics()
            assert HIDDEN not in client.list_topics()

    def test_a_user_that_is_deleted_is_out(self, cluster: SecuredCluster, admin: Admin) -> None:
        settings = user(cluster, admin, "gone", rule("gone", Operation.WRITE))
        with Producer({**settings, "delivery.timeout.ms": 3000, "linger.ms": 0}) as producer:
            producer.send(OPEN, b"x").result(timeout=WITHIN_S)
            admin.alter_users([UserDeletion("gone")])

            def is_out() -> bool:
                try:
                    producer.send(OPEN, b"x").result(timeout=WITHIN_S)
                except MinilogError:
                    return True
                return False

            wait_until(is_out)
        wait_until(lambda: not logs_in(settings))

    def test_a_user_with_a_transaction_open_opens_one_more_only_when_one_has_ended(
        self, cluster: SecuredCluster, admin: Admin
    ) -> None:
        """Of one coordinator, in partitions whose leaders register them from other brokers."""
        admin.create_topics([NewTopic("spread", num_partitions=3, replication_factor=3)])
        every = rule("slow", Operation.ALL, "*"), rule("slow", Operation.ALL, "*", kind=ResourceKind.TRANSACTIONAL_ID)
        settings = user(cluster, admin, "slow", *every)
        admin.alter_quotas([QuotaAlteration("User:slow", "open_transactions", 1)])
        first, second = [name for name in map(str, range(200)) if coordinator_partition(name) == 0][:2]

        def commit_second() -> None:
            with Producer({**settings, "transactional.id": second}) as producer, producer.transaction():
                producer.send("spread", b"x")

        with Producer({**settings, "transactional.id": first}) as producer:
            waiting = threading.Thread(target=commit_second)
            with producer.transaction():
                for partition in range(3):
                    producer.send("spread", b"x", partition=partition).result(timeout=WITHIN_S)
                waiting.start()
                waiting.join(1.5)
                assert waiting.is_alive(), "another transaction is open beside it"
        waiting.join(WITHIN_S)
        assert not waiting.is_alive()

    def test_the_command_line_takes_a_login_of_a_file(self, cluster: SecuredCluster, tmp_path: pathlib.Path) -> None:
        file = str(cluster.security.client_properties)
        listed = programs.run("topic", "list", "--command-config", file)
        assert (listed.returncode, listed.stderr) == (0, "")
        assert OPEN in listed.stdout
        added = ["acl", "add", "--allow-principal", "User:cli", "--operation", "read", "--topic", OPEN]
        assert programs.run(*added, "--command-config", file).returncode == 0
