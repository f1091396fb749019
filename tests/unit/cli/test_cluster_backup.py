"""The file of a backup, and the plan of a restore: what it creates, leaves, changes, and refuses."""

from __future__ import annotations

import json
import pathlib
from dataclasses import replace
from typing import Any

import pytest

from minilog.admin.security import Quota
from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog.types import BrokerSetting
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.backup_file import KeptOffset, KeptTopic, Metadata, _checksum, decode, encode
from minilog_tools.cli.backup_plan import Plan, plan_of, settable_configs
from minilog_tools.cli.cluster_backup import _write
from minilog_tools.cli.held_offsets import HeldOffsets

SCHEMA = {"version": 1, "fields": [{"id": 1, "name": "carrier"}]}
FLIGHTS = KeptTopic(name="flights", partitions=3, replication_factor=2, configs={"retention.ms": "5"})
TYPED = KeptTopic(name="typed", partitions=1, replication_factor=1, configs={}, schemas=[SCHEMA])
RULE = AccessRule("User:alice", "*", Operation.READ, ResourceKind.TOPIC, "flights", Pattern.LITERAL, Permission.ALLOW)
OF_ALL, OF_TWO = BrokerSetting(None, "log.level", "debug"), BrokerSetting(2, "log.level", "info")
QUOTA = Quota("User:alice", "producer_byte_rate", 1000)
AT_FIVE = KeptOffset(topic="flights", partition=0, offset=5)
DEAD_LETTERS = "errors.deadletterqueue.topic.name"
KEPT = Metadata(
    cluster_id="one",
    level=5,
    topics=[FLIGHTS, TYPED],
    broker_settings=[OF_ALL, OF_TWO],
    users={"alice": ["SCRAM-SHA-512"]},
    access_rules=[RULE],
    quotas=[QUOTA],
    groups={"g": [AT_FIVE]},
    queues={"jobs": {DEAD_LETTERS: "dead", "group.share.delivery.count.limit": "7"}},
)
EMPTY = Metadata(cluster_id="two", level=5)
HELD = {("flights", 0): HeldOffsets(0, 10)}


def planned(there: Metadata, *, overwrite: bool = False, **more: Any) -> Plan:
    return plan_of(KEPT, there, [1, 2, 3], overwrite=overwrite, **more)


# -- the file


def test_a_file_has_what_was_written() -> None:
    assert decode(encode(KEPT), "f") == KEPT
    assert decode(encode(EMPTY), "f") == EMPTY


def test_any_bit_that_flips_is_noticed() -> None:
    data = encode(KEPT)
    for at in range(0, len(data), 7):
        rotten = bytearray(data)
        rotten[at] ^= 4
        try:
            metadata = decode(bytes(rotten), "f")
        except CommandFailed:
            continue
        assert metadata == KEPT, f"byte {at}"  # white space between the parts


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "f is no whole backup"),
        (encode(KEPT)[:-20], "f is no whole backup"),
        (b"[" * 100_000, "f is no whole backup"),
        (b"\xff\xfe", "f is no whole backup"),
        (b"[]", "f is no backup of a cluster's metadata"),
        (b'{"form": "another"}', "f is no backup of a cluster's metadata"),
        (
            encode(KEPT).replace(b'"version": 2,\n "sha', b'"version": 3,\n "sha'),
            "reads versions 1 to 2: restore it with",
        ),
        (encode(KEPT).replace(b"flights", b"flighty"), "f is damaged"),
    ],
)
def test_a_file_that_is_no_backup_is_refused_in_a_sentence(data: bytes, words: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        decode(data, "f")
    assert words in str(refused.value)


def test_content_of_another_shape_is_refused_though_its_checksum_is_right() -> None:
    document = json.loads(encode(EMPTY))
    broken = replace(EMPTY, cluster_id=7)  # type: ignore[arg-type]
    assert document["version"] == 2
    with pytest.raises(CommandFailed, match="not as minilog cluster backup writes it"):
        decode(encode(broken), "f")


def test_a_file_is_its_owners_alone_and_never_overwritten(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "metadata.json"
    _write(file, b"one")
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(CommandFailed, match="exists: give the name of a new file"):
        _write(file, b"two")
    assert file.read_bytes() == b"one"


# -- the plan


def test_into_an_empty_cluster_all_is_made_but_users_and_offsets() -> None:
    plan = planned(EMPTY)
    assert plan.topics == [FLIGHTS, TYPED]
    assert plan.broker_settings == [OF_ALL, OF_TWO]
    assert (plan.access_rules, plan.quotas, plan.groups, plan.conflicts) == ([RULE], [QUOTA], {}, [])
    assert plan.left == [
        "user alice (SCRAM-SHA-512): a backup has no passwords. Run minilog user create alice",
        "group g: its offsets belong to data. See --group-offsets",
    ]


def test_into_the_same_cluster_nothing_is_done() -> None:
    plan = planned(KEPT, held=HELD)
    assert not any(plan.counts().values())
    assert (plan.left, plan.conflicts) == ([], [])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(FLIGHTS, partitions=4), "topic flights has 4 partitions here, and 3 in the file"),
        (replace(FLIGHTS, schemas=[SCHEMA]), "topic flights has another schema here than in the file"),
    ],
)
def test_a_name_with_other_partitions_or_another_schema_is_a_conflict_also_for_who_overwrites(
    other: KeptTopic, words: str
) -> None:
    for overwrite in (False, True):
        assert planned(replace(EMPTY, topics=[other]), overwrite=overwrite).conflicts == [words]


def test_differing_state_is_left_and_named_unless_it_is_to_be_overwritten() -> None:
    there = replace(
        EMPTY,
        topics=[replace(FLIGHTS, configs={"retention.ms": "6", "segment.ms": "1"})],
        broker_settings=[BrokerSetting(None, "log.level", "error")],
        quotas=[replace(QUOTA, value=1)],
    )
    plan = planned(there)
    assert (plan.configs, plan.quotas, plan.broker_settings) == ({}, [], [OF_TWO])
    assert plan.left[:3] == [
        "topic flights: it is there, with another retention.ms",
        "setting log.level of all brokers: it is error here, and debug in the file",
        "quota producer_byte_rate of User:alice: it is 1 here, and 1000 in the file",
    ]
    plan = planned(there, overwrite=True)
    assert plan.configs == {"flights": {"retention.ms": "5"}}
    assert (plan.quotas, plan.broker_settings) == ([QUOTA], [OF_ALL, OF_TWO])


def test_another_number_of_replicas_is_named_and_left_also_by_overwrite() -> None:
    there = replace(KEPT, topics=[replace(FLIGHTS, replication_factor=1), TYPED])
    plan = planned(there, overwrite=True)
    assert (plan.topics, plan.configs, plan.conflicts) == ([], {}, [])
    assert "topic flights: it has 1 replicas here, and 2 in the file. minilog topic reassign flights" in plan.left[0]


def test_a_setting_of_a_broker_that_is_not_here_is_left() -> None:
    plan = plan_of(KEPT, EMPTY, [1], overwrite=True)
    assert plan.broker_settings == [OF_ALL]
    assert "setting log.level of broker 2: there is no such broker here" in plan.left


def test_offsets_are_restored_where_the_log_holds_them() -> None:
    there = replace(EMPTY, topics=[FLIGHTS])
    assert planned(there, held=HELD).groups == {"g": [AT_FIVE]}
    assert planned(there, held={("flights", 0): HeldOffsets(0, 4)}).left[-1] == (
        "group g at 5 of partition 0 of flights: its log holds 0 to 4"
    )
    assert planned(there, held={}).left[-1] == "group g at 5 of partition 0 of flights: it is not there"
    elsewhere = replace(there, groups={"g": [replace(AT_FIVE, offset=2)]})
    assert planned(elsewhere, held=HELD).left[-1] == "group g at 5 of partition 0 of flights: it is at 2 here"
    assert planned(elsewhere, held=HELD, overwrite=True).groups == {"g": [AT_FIVE]}


def test_a_minimum_above_the_replicas_is_what_a_topic_was_made_with_and_not_set() -> None:
    topic = replace(FLIGHTS, configs={"min.insync.replicas": "2"})
    assert settable_configs(topic) == {"min.insync.replicas": "2"}
    assert settable_configs(replace(topic, replication_factor=1)) == {}


# -- queues


def test_settings_of_queues_are_restored_where_they_are_missing_and_named_where_they_differ() -> None:
    assert planned(EMPTY).queues == KEPT.queues
    there = replace(EMPTY, queues={"jobs": {DEAD_LETTERS: "other"}})
    plan = planned(there)
    assert plan.queues == {"jobs": {"group.share.delivery.count.limit": "7"}}
    assert f"setting {DEAD_LETTERS} of queue jobs: it is other here, and dead in the file" in plan.left
    assert planned(there, overwrite=True).queues == KEPT.queues


def test_a_file_of_version_1_is_read_and_has_no_queues() -> None:
    document = json.loads(encode(EMPTY))
    content = {name: value for name, value in document["content"].items() if name != "queues"}
    assert (
        decode(json.dumps({**document, "version": 1, "content": content, "sha256": _checksum(content)}).encode(), "f")
        == EMPTY
    )
