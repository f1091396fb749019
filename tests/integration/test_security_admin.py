"""Users, access rules and quotas on real brokers: they outlive restarts and snapshots, and wait for their level."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import subprocess
import time
from typing import Any

import pytest

from minilog import Admin
from minilog.admin.security import (
    QuotaAlteration,
    UserDeletion,
    UserExpectation,
    UserUpsertion,
)
from minilog.security.access_rules import (
    AccessRule,
    AccessRuleFilter,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
)
from minilog.security.scram import ScramCredential, ScramMechanism
from minilog.security.secret import Secret
from tests import programs
from tests.cluster import Cluster, running_cluster
from tests.integration.commands import minilog
from tests.integration.rounds import admin_of
from tests.pool import THREE, shared_cluster
from tests.rules import proves

PASSWORD = "no horse staples itself"
ITERATIONS = {ScramMechanism.SCRAM_SHA_512: 4_096}
WITHIN_S = 30.0
READ = AccessRule("User:alice", "*", Operation.READ, ResourceKind.TOPIC, "flights", Pattern.LITERAL, Permission.ALLOW)

pytestmark = [pytest.mark.timeout(180), proves("MD.26")]


cluster = shared_cluster(THREE)


def told(cluster: Cluster, *arguments: str, stdin: str = "") -> Any:
    """What a verb that succeeds tells machines."""
    ended = minilog(cluster, *arguments, "--json", stdin=stdin)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def upsertion(name: str, expectation: UserExpectation = UserExpectation.NEW) -> UserUpsertion:
    return UserUpsertion(name, PASSWORD, iterations=4_096, expectation=expectation)


def test_rules_beyond_the_limit_of_a_request_are_split(admin: Admin) -> None:
    rules = [
        AccessRule(f"User:u{number}", "*", Operation.READ, ResourceKind.GROUP, "g", Pattern.PREFIXED, Permission.DENY)
        for number in range(1_500)
    ]
    wanted = AccessRuleFilter(resource_kind=ResourceKind.GROUP, name="g")
    assert admin.create_access_rules(rules) == 1_500
    assert admin.create_access_rules(rules[:3]) == 0
    assert sorted(admin.describe_access_rules(wanted), key=lambda rule: rule.order) == sorted(
        rules, key=lambda rule: rule.order
    )
    some = [AccessRuleFilter(principal=f"User:u{number}") for number in range(30)]
    assert set(admin.delete_access_rules(some)) == set(rules[:30])
    assert set(admin.delete_access_rules([wanted])) == set(rules[30:])
    assert admin.delete_access_rules([wanted]) == []


class TestCommandLine:
    def test_a_user_lives_from_create_to_delete(self, cluster: Cluster, tmp_path: pathlib.Path) -> None:
        password = tmp_path / "password"
        password.write_text(PASSWORD + "\n")
        assert minilog(cluster, "user", "create", "carl", "--password-file", str(password)).returncode == 0
        again = minilog(cluster, "user", "create", "carl", "--password-stdin", stdin=PASSWORD)
        assert (again.returncode, again.stderr.count("\n")) == (1, 1)
        assert "user 'carl' exists" in again.stderr
        options = ("--mechanism", "SCRAM-SHA-256", "--iterations", "8192", "--password-stdin")
        assert minilog(cluster, "user", "alter", "carl", *options, stdin=PASSWORD + "\n").returncode == 0
        (found,) = told(cluster, "user", "list", "carl")
        assert [each["mechanism"] for each in found["credentials"]] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert found["credentials"][0]["iterations"] == 8_192
        assert "SCRAM-SHA-256" in minilog(cluster, "user", "list").stdout
        assert told(cluster, "user", "delete", "carl") == {"name": "carl", "deleted": True}
        assert minilog(cluster, "user", "delete", "carl").returncode == 1
        assert minilog(cluster, "user", "alter", "carl", "--password-stdin", stdin=PASSWORD).returncode == 1

    def test_a_password_that_nobody_can_be_asked_for_is_refused(self, cluster: Cluster) -> None:
        refused = minilog(cluster, "user", "create", "dora")
        assert refused.returncode == 2
        assert "--password-stdin" in refused.stderr
        for wrong in ("", "two\nlines\n"):
            assert minilog(cluster, "user", "create", "dora", "--password-stdin", stdin=wrong).returncode == 2

    def test_a_password_that_is_typed_is_not_shown(self, cluster: Cluster) -> None:
        ours, theirs = pty.openpty()
        command = [*programs.MINILOG, "user", "create", "emil", "-b", cluster.bootstrap_servers]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        shown = b""
        try:
            for asked in (b"Password", b"Repeat"):
                while asked not in shown:
                    shown += os.read(ours, 1_000)
                time.sleep(0.2)  # the echo is off when the question stands there, and not before
                os.write(ours, PASSWORD.encode() + b"\n")
            while b"created" not in shown:
                shown += os.read(ours, 1_000)
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()
            os.close(ours)
        assert PASSWORD.encode() not in shown
        assert told(cluster, "user", "delete", "emil")["deleted"]

    @pytest.mark.dear("it runs many programs of the command line")
    def test_rules_are_added_listed_and_removed(self, cluster: Cluster) -> None:
        alice = ("--allow-principal", "User:fred", "--topic", "flights")
        added = told(cluster, "acl", "add", *alice, "--operation", "read", "--operation", "write")
        assert (added["created"], len(added["rules"])) == (2, 2)
        again = minilog(cluster, "acl", "add", *alice, "--operation", "read")
        assert "0 rules added, 1 were there already" in again.stdout
        report = ("--allow-principal", "User:rita", "--consumer", "--topic", "fl", "--group", "rep", "--prefixed")
        assert told(cluster, "acl", "add", *report)["created"] == 3
        denied = ("--deny-principal", "User:*", "--operation", "all", "--cluster", "--host", "127.0.0.1")
        assert told(cluster, "acl", "add", *denied)["created"] == 1
        assert [each["principal"] for each in told(cluster, "acl", "list", "--topic", "flights")] == ["User:fred"] * 2
        assert "User:fred" in minilog(cluster, "acl", "list", "--principal", "User:fred").stdout
        assert len(told(cluster, "acl", "remove", *alice, "--operation", "read")) == 1
        assert len(told(cluster, "acl", "remove", "--allow-principal", "User:rita")) == 3
        none = minilog(cluster, "acl", "remove", *alice, "--prefixed")
        assert (none.returncode, "none was removed" in none.stderr) == (1, True)
        assert minilog(cluster, "acl", "remove").returncode == 2
        assert len(told(cluster, "acl", "remove", *alice)) == 1
        assert len(told(cluster, "acl", "remove", *denied)) == 1
        assert told(cluster, "acl", "list") == []

    def test_a_rule_that_could_never_match_is_refused(self, cluster: Cluster) -> None:
        options = ("--operation", "read", "--topic", "t", "--allow-principal")
        refused = minilog(cluster, "acl", "add", *options, "\x1b[2Jalice")
        assert (refused.returncode, refused.stderr.count("\n"), "\x1b" in refused.stderr) == (1, 1, False)
        assert "write User:NAME" in refused.stderr

    def test_quotas_are_set_listed_and_removed(self, cluster: Cluster) -> None:
        entity = "User:gina"
        assert told(cluster, "quota", "set", entity, "connections=3", "producer_byte_rate=10")["former"] == {}
        assert "was 3 before" in minilog(cluster, "quota", "set", entity, "connections=4").stdout
        assert told(cluster, "quota", "list") == [
            {"entity": entity, "quotas": {"connections": 4, "producer_byte_rate": 10}}
        ]
        assert "bytes/s" in minilog(cluster, "quota", "list", entity).stdout
        for wrong in ("connections=few", "connections", "connection=3"):
            assert minilog(cluster, "quota", "set", entity, wrong).returncode == 2
        assert told(cluster, "quota", "remove", entity, "connections")["former"] == {"connections": 4}
        missing = minilog(cluster, "quota", "remove", entity, "connections")
        assert (missing.returncode, "had no connections" in missing.stderr) == (1, True)
        assert told(cluster, "quota", "remove", entity)["former"] == {"producer_byte_rate": 10}
        assert minilog(cluster, "quota", "remove", entity).returncode == 1
        assert told(cluster, "quota", "list") == []


def everything(cluster: Cluster) -> tuple[object, ...]:
    with admin_of(cluster) as admin:
        return admin.describe_users(), admin.describe_access_rules(), admin.describe_quotas()


@pytest.mark.dear("it kills brokers, and others take over")
def test_users_rules_and_quotas_outlive_a_controller_restarts_and_snapshots(
    tmp_path: pathlib.Path,
) -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    with running_cluster(tmp_path, settings=settings) as cluster:
        with admin_of(cluster) as admin:
            admin.alter_users([upsertion(f"user{number}") for number in range(20)])
            admin.alter_users([UserDeletion("user7")])
            admin.create_access_rules([READ])
            admin.alter_quotas([QuotaAlteration("default", "request_rate", 7)])
            before = everything(cluster)
            cluster.kill(controller := admin.describe_cluster().controller or 0)
            admin.alter_users([upsertion("late")])
            assert len(everything(cluster)[0]) == 20  # type: ignore[arg-type]
            cluster.start(controller)
            cluster.wait_running()
            admin.alter_users([UserDeletion("late")])
        assert everything(cluster) == before
        assert set(cluster.stop().values()) == {0}
        snapshots = [[*cluster.data_directory(each).rglob("*.snapshot")] for each in (1, 2, 3)]
        assert all(snapshots), "no broker has taken a snapshot"
        cluster.start()
        cluster.wait_running()
        assert everything(cluster) == before


def test_no_password_is_on_a_disk_or_in_a_log(cluster: Cluster, admin: Admin) -> None:
    admin.alter_users([upsertion("hugo")])
    for broker_id in (1, 2, 3):
        logs = list(cluster.data_directory(broker_id).rglob("*.log"))
        assert any(b"hugo" in path.read_bytes() for path in logs)
        assert not any(PASSWORD.encode() in path.read_bytes() for path in logs)
        assert PASSWORD not in cluster.log_text(broker_id)
    assert PASSWORD not in repr(upsertion("hugo"))
    assert ScramCredential.derive(
        ScramMechanism.SCRAM_SHA_512, Secret(PASSWORD), salt=bytes(16), iterations=4_096
    ).stored_key
    admin.alter_users([UserDeletion("hugo")])
